//! Snapshots of a mounted pool as streams: a piece for each question on the control socket. So nothing goes on when
//! nobody asks any more, and only who may use that socket gets what all users have.

use std::time::{SystemTime, UNIX_EPOCH};

use lode_engine::{Host, Pool};
use lode_pmem::Medium;
use lode_stream::{Error, Sender};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Streams that go on at a time, at most: one more ends the oldest.
const OPEN_MAX: usize = 8;
/// Error number of what is not there.
const ENOENT: i32 = 2;

/// The streams that go on.
#[derive(Default)]
pub struct Sends(Mutex<Open>);

#[derive(Default)]
struct Open {
    last: u64,
    streams: Vec<(u64, Sender)>,
}

impl Sends {
    /// Answers `send`: with a `name`, and perhaps `since`, begins a stream and tells its number; with the `number`,
    /// tells its next piece, and whether there are more.
    pub fn answer<M: Medium, H: Host>(
        &self,
        pool: &Pool<M, H>,
        request: &Value,
    ) -> Result<Value, String> {
        let told = match request.get("number").and_then(Value::as_u64) {
            Some(number) => self.piece(pool, number)?,
            None => self.begin(pool, request)?,
        };
        Ok(told.unwrap_or_else(|error| refused(&error)))
    }

    fn begin<M: Medium, H: Host>(
        &self,
        pool: &Pool<M, H>,
        request: &Value,
    ) -> Result<lode_stream::Result<Value>, String> {
        let name = |key: &str| -> Result<Option<Vec<u8>>, String> {
            let value = request.get(key).cloned().unwrap_or_default();
            serde_json::from_value(value).map_err(|_| format!("no name in \"{key}\""))
        };
        let (name, since) = (name("name")?.ok_or("no \"name\"")?, name("since")?);
        let sender = match Sender::new(pool, &name, since.as_deref()) {
            Ok(sender) => sender,
            Err(error) => return Ok(Err(error)),
        };
        let mut open = self.0.lock();
        if open.streams.len() >= OPEN_MAX {
            open.streams.remove(0);
        }
        let number = number_after(open.last, SystemTime::now());
        open.last = number;
        open.streams.push((number, sender));
        Ok(Ok(json!({ "number": number })))
    }

    fn piece<M: Medium, H: Host>(
        &self,
        pool: &Pool<M, H>,
        number: u64,
    ) -> Result<lode_stream::Result<Value>, String> {
        let mut open = self.0.lock();
        let at = open.streams.iter().position(|(other, _)| *other == number);
        let (_, mut sender) = open.streams.remove(at.ok_or("there is no such stream any more")?);
        drop(open);
        let mut bytes = Vec::new();
        let more = match sender.next(pool, &mut bytes) {
            Ok(more) => more,
            Err(error) => return Ok(Err(error)),
        };
        if more {
            self.0.lock().streams.push((number, sender));
        }
        Ok(Ok(json!({ "bytes": hex(&bytes), "more": more })))
    }
}

/// A number that no stream had, of an earlier server of the mount neither: who asks for a piece of one of those is not
/// given one of another.
fn number_after(last: u64, now: SystemTime) -> u64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    (last + 1).max(u64::try_from(since.as_nanos()).unwrap_or(0))
}

/// Bytes as text that a line can have.
fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn refused(error: &Error) -> Value {
    let errno = match error {
        Error::Pool { source, .. } => source.errno(),
        Error::Absent(_) | Error::Deleted(_) => ENOENT,
        _ => 0,
    };
    json!({ "refused": { "errno": errno, "why": error.to_string(), "absent": errno == ENOENT } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::MAX_LINE;
    use std::time::Duration;

    #[test]
    fn no_number_comes_twice() {
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let first = number_after(0, now);
        assert_eq!(number_after(first, now), first + 1);
        assert_eq!(number_after(first, UNIX_EPOCH), first + 1);
        assert!(number_after(0, now + Duration::from_secs(1)) > first + 8);
    }

    #[test]
    fn the_longest_piece_fits_a_line() {
        // What a piece has before its last frame, and that frame: a path, and data.
        let longest = (64 << 10) + 65_535 + (256 << 10) + 100;
        assert!(hex(&vec![0xab; longest]).len() + 1000 < MAX_LINE);
        assert_eq!(hex(&[0, 0xab, 0x0f]), "00ab0f");
    }
}
