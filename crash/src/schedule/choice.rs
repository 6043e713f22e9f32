//! The choices of a run as a value and as text.

use std::fmt;
use std::str::FromStr;

/// Which thread went on at each switch point that left a choice, up to the last choice that
/// was not the usual one. As text: run lengths, as in `0x3.1x7.0`; `-` if there are none.
///
/// The usual choice is the thread that runs already; where that one can't go on, the lowest
/// that can.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Schedule {
    runs: Vec<(u8, u32)>,
}

impl Schedule {
    /// Adds a choice.
    pub fn push(&mut self, thread: u8) {
        match self.runs.last_mut() {
            Some((last, times)) if *last == thread => *times += 1,
            _ => self.runs.push((thread, 1)),
        }
    }

    /// The choices in order.
    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        self.runs.iter().flat_map(|&(thread, times)| (0..times).map(move |_| thread))
    }

    /// How many choices there are.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|&(_, times)| times as usize).sum()
    }

    /// Whether all choices are the usual ones.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The same for people: who went on how often, where both could.
    pub fn in_words(&self) -> String {
        let name = |thread: u8| match thread {
            0 => "`ops`".to_owned(),
            1 => "`beside`".to_owned(),
            other => format!("thread {other}"),
        };
        let times = |&(thread, times): &(u8, u32)| match times {
            1 => format!("{} once", name(thread)),
            _ => format!("{} {times} times", name(thread)),
        };
        let runs: Vec<String> = self.runs.iter().map(times).collect();
        let rest = "who runs goes on for as long as it can";
        match runs.is_empty() {
            true => rest.to_owned(),
            false => format!("at locks and fences went on {}; then {rest}", runs.join(", ")),
        }
    }

    /// Choice number `at`, found from a place that moves forward with it.
    pub(super) fn next(&self, cursor: &mut Cursor) -> Option<u8> {
        let &(thread, times) = self.runs.get(cursor.run)?;
        cursor.used += 1;
        if cursor.used == times {
            *cursor = Cursor { run: cursor.run + 1, used: 0 };
        }
        Some(thread)
    }
}

/// A place in a schedule.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Cursor {
    run: usize,
    used: u32,
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.runs.is_empty() {
            return f.write_str("-");
        }
        for (index, (thread, times)) in self.runs.iter().enumerate() {
            let dot = if index > 0 { "." } else { "" };
            match times {
                1 => write!(f, "{dot}{thread}")?,
                _ => write!(f, "{dot}{thread}x{times}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut runs: Vec<(u8, u32)> = Vec::new();
        if text == "-" {
            return Ok(Self { runs });
        }
        for part in text.split('.') {
            let wrong = || format!("\"{part}\" is no choice; one looks like 1 or 1x7");
            let (thread, times) = part.split_once('x').unwrap_or((part, "1"));
            let thread: u8 = thread.parse().map_err(|_| wrong())?;
            let times: u32 = times.parse().map_err(|_| wrong())?;
            let known = u32::from(thread) < u64::BITS;
            match runs.last_mut() {
                _ if times == 0 || !known => return Err(wrong()),
                Some((last, before)) if *last == thread => {
                    *before = before.checked_add(times).ok_or_else(wrong)?;
                }
                _ => runs.push((thread, times)),
            }
        }
        Ok(Self { runs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_prints_in_runs_and_parses_back() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.to_string(), "-");
        assert_eq!("-".parse(), Ok(schedule.clone()));
        [0, 0, 0, 1, 1, 0].into_iter().for_each(|thread| schedule.push(thread));
        assert_eq!(schedule.to_string(), "0x3.1x2.0");
        assert_eq!("0x2.0.1x2.0".parse(), Ok(schedule.clone()));
        assert_eq!(schedule.len(), 6);
        let words = schedule.in_words();
        assert!(words.contains("`ops` 3 times, `beside` 2 times, `ops` once; then"), "{words}");
        let mut cursor = Cursor::default();
        let walked: Vec<u8> = std::iter::from_fn(|| schedule.next(&mut cursor)).collect();
        assert_eq!(walked, schedule.iter().collect::<Vec<_>>());
        for wrong in ["", "0.", "x", "1x", "1x0", "64", "0x4294967295.0"] {
            assert!(wrong.parse::<Schedule>().is_err(), "{wrong}");
        }
    }
}
