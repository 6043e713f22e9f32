//! What a mount shows of itself as files: names, and who writes their text.

use serde_json::Value;

/// A file in the directory `.lode` of a mount.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Its name.
    pub name: &'static str,
    /// Writes what is in it, each time that it is opened; or says why it can't.
    pub text: fn(&mut Ask<'_>) -> Result<String, String>,
}

/// Answers a request as the control socket does.
pub type Ask<'a> = dyn FnMut(&Value) -> Result<Value, String> + 'a;
