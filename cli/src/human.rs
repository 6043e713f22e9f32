//! Text for people: times, UUIDs, names, aligned lines.

/// A UUID in its usual form.
pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Parses a UUID: 32 hexadecimal digits, with or without dashes.
///
/// # Errors
/// A sentence that shows the form.
pub(crate) fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let wrong = || {
        format!(
            "`{text}` is not a UUID: write 32 hexadecimal digits, as in 01234567-89ab-cdef-0123-456789abcdef"
        )
    };
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(wrong());
    }
    let mut uuid = [0u8; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(uuid)
}

/// Nanoseconds since 1970 as `2026-01-31T12:00:00Z`, UTC.
pub(crate) fn time_text(ns: i64) -> String {
    let seconds = ns.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// The proleptic Gregorian date of a day counted from 1970-01-01.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468; // days since 0000-03-01, so that leap days end a year
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Bytes as text that can be printed: what is no printable UTF-8 is escaped.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || turns(c) {
                text.extend(c.escape_default());
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Whether a terminal shows nothing for it, but what is behind it in another order, or on another line.
fn turns(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}');
    turns || matches!(c, '\u{2066}'..='\u{2069}')
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lines of `name  value`, the values aligned.
#[derive(Default)]
pub(crate) struct Lines {
    rows: Vec<(String, String)>,
}

impl Lines {
    /// Adds a line.
    pub(crate) fn add(&mut self, name: impl Into<String>, value: impl Into<String>) -> &mut Self {
        self.rows.push((name.into(), value.into()));
        self
    }

    /// All lines as text, each ended.
    pub(crate) fn text(&self) -> String {
        let width = self.rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        self.rows.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_survive_the_way_through_text() {
        let uuid = *b"0123456789abcdef";
        assert_eq!(parse_uuid(&uuid_text(&uuid)), Ok(uuid));
        assert!(parse_uuid("0123").is_err());
        assert!(parse_uuid("g1234567-89ab-cdef-0123-456789abcdef").is_err());
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(time_text(0), "1970-01-01T00:00:00Z");
        assert_eq!(time_text(951_782_399_999_999_999), "2000-02-28T23:59:59Z");
        assert_eq!(time_text(951_782_400_000_000_000), "2000-02-29T00:00:00Z");
        assert_eq!(time_text(-1), "1969-12-31T23:59:59Z");
        let _ = (time_text(i64::MAX), time_text(i64::MIN));
    }

    #[test]
    fn any_bytes_can_be_printed() {
        assert_eq!(printable(b"a\n\xff\xc3\xa4"), "a\\n\\xff\u{e4}");
        assert_eq!(printable("a\u{202e}gpj.exe".as_bytes()), "a\\u{202e}gpj.exe");
        assert_eq!(printable("\u{5d0}\u{200d}".as_bytes()), "\u{5d0}\u{200d}");
    }
}
