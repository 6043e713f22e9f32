//! Snapshots that are sent and received, for people and for programs.

use serde::Serialize;

use crate::output::Report;

/// `lode send`.
#[derive(Serialize)]
pub(crate) struct SendReport {
    /// The pool, or the directory it is mounted at.
    pub(crate) target: String,
    /// The snapshot.
    pub(crate) name: String,
    /// The one that the stream is the difference to.
    pub(crate) since: Option<String>,
    /// Where in the stream it began, in bytes.
    pub(crate) from: u64,
    /// Bytes that were written.
    pub(crate) bytes: u64,
}

impl Report for SendReport {
    fn text(&self) -> String {
        String::new()
    }
}

/// What `lode receive` found, or did.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReceiveState {
    /// The snapshot is there now.
    Received,
    /// It was there before.
    There,
    /// What was received is given up.
    Abandoned,
    /// A snapshot is being received.
    Receiving,
    /// Nothing is being received.
    Idle,
}

/// `lode receive`.
#[derive(Serialize)]
pub(crate) struct ReceiveReport {
    /// The pool.
    pub(crate) pool: String,
    /// What it is, or what was done.
    pub(crate) state: ReceiveState,
    /// The snapshot, printable.
    pub(crate) name: Option<String>,
    /// Where the stream goes on, in bytes from its beginning.
    pub(crate) offset: Option<u64>,
}

impl Report for ReceiveReport {
    fn text(&self) -> String {
        let Self { pool, .. } = self;
        let name = self.name.as_deref().unwrap_or_default();
        match self.state {
            ReceiveState::Received => format!("{pool}: is snapshot {name}\n"),
            ReceiveState::There => format!("{pool}: has snapshot {name} already\n"),
            ReceiveState::Abandoned => {
                format!("{pool}: is what it was before snapshot {name} was received\n")
            }
            ReceiveState::Idle => format!("{pool}: nothing is being received\n"),
            ReceiveState::Receiving => {
                let offset = self.offset.unwrap_or(0);
                format!(
                    "{pool}: snapshot {name} is being received, and goes on at {offset}\n\
                     Go on: lode send ... --from {offset} | lode receive {pool}\n\
                     Give it up: lode receive --abandon {pool}\n"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_received_says_how_to_go_on_and_how_to_give_it_up() {
        let report = |state| ReceiveReport {
            pool: "/p".into(),
            state,
            name: Some("s".into()),
            offset: Some(77),
        };
        let text = report(ReceiveState::Receiving).text();
        assert!(text.contains("--from 77 | lode receive /p") && text.contains("--abandon /p"));
        assert_eq!(report(ReceiveState::Received).text(), "/p: is snapshot s\n");
    }
}
