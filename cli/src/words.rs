//! Values that have a name: parsed by a function, and offered by completions of shells.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};

/// A parser that takes at least these words. (Help and errors name them in sentences of their own.)
#[derive(Clone)]
pub(crate) struct Words<T: Clone> {
    /// What reads a value.
    pub(crate) parse: fn(&str) -> Result<T, String>,
    /// What is offered.
    pub(crate) words: fn() -> Vec<&'static str>,
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Words<T> {
    type Value = T;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        self.parse.parse_ref(cmd, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.words)().into_iter().map(PossibleValue::new)))
    }
}
