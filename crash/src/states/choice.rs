//! Which alternative each unit has: a state, as a short text that can be written into a replay id.

use std::fmt;
use std::str::FromStr;

/// Places that a text may speak of.
const PLACES_MAX: usize = 1 << 22;

/// The alternative of each unit of a point.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Choice(pub Vec<u16>);

impl fmt::Display for Choice {
    /// Numbers between dots, `NxT` where one comes T times; what is left out at the end is 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().rposition(|&one| one != 0).map_or(0, |last| last + 1);
        let mut rest = &self.0[..end];
        let mut dot = "";
        while let Some(&first) = rest.first() {
            let times = rest.iter().take_while(|&&one| one == first).count();
            write!(f, "{dot}{first}")?;
            if times > 1 {
                write!(f, "x{times}")?;
            }
            rest = &rest[times..];
            dot = ".";
        }
        if end == 0 { f.write_str("0") } else { Ok(()) }
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Vec::new();
        for piece in text.split('.') {
            let (number, times) = piece.split_once('x').unwrap_or((piece, "1"));
            let bad = || format!("{piece:?} is no choice: a number, or NUMBERxTIMES");
            let number: u16 = number.parse().map_err(|_| bad())?;
            let times: usize = times.parse().map_err(|_| bad())?;
            if times > PLACES_MAX - all.len() {
                return Err(bad());
            }
            all.extend(std::iter::repeat_n(number, times));
        }
        Ok(Self(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_printed_shortly_and_read_again() {
        for (choice, text) in [
            (vec![0, 0, 0], "0"),
            (vec![1, 1, 1, 0, 7], "1x3.0.7"),
            (vec![2], "2"),
            (vec![0, 0, 3, 0], "0x2.3"),
        ] {
            assert_eq!(Choice(choice.clone()).to_string(), text);
            let mut read: Choice = text.parse().unwrap();
            read.0.resize(choice.len(), 0);
            assert_eq!(read.0, choice);
        }
        assert!("1xx".parse::<Choice>().is_err());
    }
}
