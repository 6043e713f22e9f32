//! Periods as people write them: `30s`, `24h`, `7d`.

use std::time::Duration;

/// Seconds of a unit, the longest first.
const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
/// No longer than some lives of a machine, so that sums with it are times.
const MOST_S: u64 = 36_500 * 86_400;

/// Parses a period: a whole number and `s`, `m`, `h` or `d`; or `0`.
///
/// # Errors
/// A sentence that says what is wrong with `text`.
pub(crate) fn parse_period(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let wrong = || format!("`{text}` is not a period: write a whole number and s, m, h or d");
    let unit =
        UNITS.into_iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let (number, seconds) = unit.ok_or_else(wrong)?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(seconds));
    let seconds = seconds.filter(|seconds| *seconds <= MOST_S);
    seconds.map(Duration::from_secs).ok_or_else(|| format!("`{text}` is too long"))
}

/// A period as [`parse_period`] reads it, in the longest unit that it is a whole number of.
pub(crate) fn period_text(period: Duration) -> String {
    let seconds = period.as_secs();
    let fits = |(_, unit): &(&str, u64)| seconds > 0 && seconds.is_multiple_of(*unit);
    match UNITS.into_iter().find(fits) {
        Some((name, unit)) => format!("{}{name}", seconds / unit),
        None => "0".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_read_and_written() {
        for (text, seconds, written) in [
            ("0", 0, "0"),
            ("0h", 0, "0"),
            ("1s", 1, "1s"),
            ("90s", 90, "90s"),
            ("120s", 120, "2m"),
            ("36h", 129_600, "36h"),
            ("24h", 86_400, "1d"),
            ("36500d", MOST_S, "36500d"),
        ] {
            let period = parse_period(text).unwrap();
            assert_eq!((period.as_secs(), period_text(period).as_str()), (seconds, written));
        }
    }

    #[test]
    fn what_is_no_period_is_refused() {
        for text in
            ["", "s", "1", "+1s", "-1s", "1.5h", "1w", "1 d", "36501d", "99999999999999999999s"]
        {
            assert!(parse_period(text).is_err(), "{text}");
        }
    }
}
