//! Ends an exploration before all is looked at.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Says when to stop; asked before each state.
#[derive(Clone, Default)]
pub struct Stop(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Stop {
    /// Not before the end.
    pub const NEVER: Stop = Stop(None);

    /// When this says so.
    pub fn when(asked: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(asked)))
    }

    /// When this one does, or at a moment if there is one.
    pub fn or_at(&self, moment: Option<Instant>) -> Self {
        let Some(end) = moment else { return self.clone() };
        let this = self.clone();
        Self::when(move || Instant::now() >= end || this.is_asked())
    }

    /// Whether to stop now.
    pub fn is_asked(&self) -> bool {
        self.0.as_ref().is_some_and(|asked| asked())
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stop(asked: {})", self.is_asked())
    }
}
