//! Sizes as people write them: `1G`, `512MiB`, `4096`. All units are powers of 1024.

use lode_engine::PageClass;

/// Parses a size in bytes. `K`, `M`, `G`, `T` (also `KiB`, `KB`, ... in any case) are powers of 1024.
///
/// # Errors
/// A sentence that says what is wrong with `text`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(no_size(text)),
    };
    if number.is_empty() {
        return Err(no_size(text));
    }
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    match bytes.filter(|bytes| i64::try_from(*bytes).is_ok()) {
        Some(bytes) => Ok(bytes),
        None => Err(format!("`{text}` is too large: 8388607T is the most")),
    }
}

fn no_size(text: &str) -> String {
    format!(
        "`{text}` is not a size: write a whole number of bytes, or one and K, M, G or T, as 512M (powers of 1024)"
    )
}

/// Parses a page size: `4K`, `2M` or `1G`.
///
/// # Errors
/// A sentence that names the three.
pub(crate) fn parse_page_class(text: &str) -> Result<PageClass, String> {
    match parse_size(text) {
        Ok(0x1000) => Ok(PageClass::Small),
        Ok(0x20_0000) => Ok(PageClass::Huge),
        Ok(0x4000_0000) => Ok(PageClass::Giant),
        _ => Err(format!("`{text}` is not a page size: choose 4K, 2M or 1G")),
    }
}

/// The name of a page class, as [`parse_page_class`] reads it.
pub(crate) const fn page_class_name(class: PageClass) -> &'static str {
    match class {
        PageClass::Small => "4K",
        PageClass::Huge => "2M",
        PageClass::Giant => "1G",
    }
}

/// A size for people: exact when it is a whole number of units, else with one digit.
pub(crate) fn human(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in UNITS {
        let one = 1u64 << shift;
        if bytes >= one {
            let tenths = (bytes % one) as u128 * 10 / one as u128;
            return if bytes.is_multiple_of(one) {
                format!("{} {unit}", bytes >> shift)
            } else {
                format!("{}.{tenths} {unit}", bytes >> shift)
            };
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096b", 4096),
            ("1K", 1 << 10),
            ("1kib", 1 << 10),
            ("3KB", 3 << 10),
            ("512M", 512 << 20),
            ("512 MiB", 512 << 20),
            ("1G", 1 << 30),
            ("1g", 1 << 30),
            ("2T", 2 << 40),
            (" 7TiB ", 7 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "G", "1.5G", "-1", "1X", "1GG", "0x10", "9999999999999999999", "99999999T"]
        {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert!(parse_size("8388607T").is_ok() && parse_size("8388608T").is_err());
        let (wrong, large) = (parse_size("1e3").unwrap_err(), parse_size("8388608T").unwrap_err());
        assert!(wrong.contains("as 512M") && large.contains("8388607T"), "{wrong}; {large}");
    }

    #[test]
    fn page_sizes_are_three() {
        for class in [PageClass::Small, PageClass::Huge, PageClass::Giant] {
            assert_eq!(parse_page_class(page_class_name(class)), Ok(class));
            assert_eq!(parse_size(page_class_name(class)), Ok(class.pages() * 4096));
        }
        assert_eq!(parse_page_class("2MiB"), Ok(PageClass::Huge));
        assert!(parse_page_class("8K").is_err());
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(human(100), "100 bytes");
        assert_eq!(human(1 << 30), "1 GiB");
        assert_eq!(human((1 << 30) + (1 << 29)), "1.5 GiB");
        assert_eq!(human(4097), "4.0 KiB");
        assert_eq!(human(u64::MAX), "16777215.9 TiB");
    }
}
