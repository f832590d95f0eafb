//! Numbers in settings, and their human-readable form.

use thiserror::Error;

/// The reason why a setting's text cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NumberError {
    /// Not an integer.
    #[error("is not an integer in decimal, or in hexadecimal with 0x")]
    NotInteger,
    /// Not a size of memory.
    #[error("is not a size of memory, like 4096, 1.5MB or 2 GB")]
    NotSize,
    /// Not a number.
    #[error("is not a number, like 1.5, -1e4 or 3/8")]
    NotDecimal,
    /// Neither yes nor no.
    #[error("is neither yes nor no (YES, Y, 1, NO, N, 0)")]
    NotYesNo,
    /// Too large for 64 bits.
    #[error("is beyond 64 bits")]
    TooLarge,
}

/// Units of memory, the largest first: the letter, and the base-2 logarithm of the number of bytes.
const UNITS: [(char, u32); 6] = [
    ('E', 60),
    ('P', 50),
    ('T', 40),
    ('G', 30),
    ('M', 20),
    ('K', 10),
];

/// Formats a number. A size of memory is written in the largest unit that divides it, for example
/// `KB`. Other numbers are written unchanged.
pub(crate) fn format(value: i64, memory: bool) -> String {
    if !memory {
        return value.to_string();
    }
    match UNITS
        .iter()
        .find(|(_, shift)| value != 0 && value % (1 << shift) == 0)
    {
        Some((unit, shift)) => format!("{} {unit}B", value >> shift),
        None => format!("{value} B"),
    }
}

/// Reads an integer. If `multiplier` is not 0, reads a size of memory, and multiplies a size
/// without a unit by `multiplier`.
///
/// # Errors
/// Returns an error if the text is not a number of this kind, or if the value does not fit in 64
/// bits.
pub fn parse_integer(text: &str, multiplier: u64) -> Result<i64, NumberError> {
    let text = text.trim();
    if multiplier == 0 {
        return to_i64(integer(text).ok_or(NumberError::NotInteger)??);
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let hexadecimal = digits.starts_with("0x") || digits.starts_with("0X");
    // A hexadecimal number may end in the digit B or E, so these letters are never taken for its
    // unit. The number extends to the first character that is not a hexadecimal digit.
    let end = text
        .char_indices()
        .find(|&(at, c)| {
            let sign = at == 0 && matches!(c, '-' | '+');
            let prefix = hexadecimal && at <= 2 && matches!(c, 'x' | 'X');
            let digit = if hexadecimal {
                c.is_ascii_hexdigit()
            } else {
                c.is_ascii_digit() || c == '.'
            };
            !(sign || prefix || digit)
        })
        .map_or(text.len(), |(at, _)| at);
    let (number, unit) = text.split_at(end);
    let multiplier = match unit.trim() {
        "" => multiplier,
        unit => unit_of(unit).ok_or(NumberError::NotSize)?,
    };
    if let Some(number) = integer(number) {
        return to_i64(
            number?
                .checked_mul(i128::from(multiplier))
                .ok_or(NumberError::TooLarge)?,
        );
    }
    let number: f64 = number.parse().map_err(|_| NumberError::NotSize)?;
    let bytes = number * multiplier as f64;
    // 2^63 is representable as a float; the largest i64 is not.
    if bytes.abs() >= 9_223_372_036_854_775_808.0 {
        return Err(NumberError::TooLarge);
    }
    Ok(bytes as i64)
}

/// Reads a decimal number or a fraction.
///
/// # Errors
/// Returns an error if the text is neither.
pub fn parse_decimal(text: &str) -> Result<f64, NumberError> {
    let number = |text: &str| {
        text.trim()
            .parse::<f64>()
            .map_err(|_| NumberError::NotDecimal)
    };
    match text.split_once('/') {
        None => number(text),
        Some((numerator, denominator)) => match number(denominator)? {
            0.0 => Err(NumberError::NotDecimal),
            denominator => Ok(number(numerator)? / denominator),
        },
    }
}

/// Reads a yes or no.
///
/// # Errors
/// Returns an error if the text is neither.
pub fn parse_yes_no(text: &str) -> Result<bool, NumberError> {
    let text = text.trim();
    let is_one_of = |words: [&str; 3]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    match (is_one_of(["Y", "YES", "1"]), is_one_of(["N", "NO", "0"])) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(NumberError::NotYesNo),
    }
}

/// Returns the number of bytes of a unit. A unit is one of the letters in [`UNITS`], with or
/// without B, or B alone. Either case is accepted.
fn unit_of(unit: &str) -> Option<u64> {
    let mut letters = unit.chars().map(|c| c.to_ascii_uppercase());
    let (first, second, end) = (letters.next()?, letters.next(), letters.next());
    if end.is_some() || !matches!(second, None | Some('B')) {
        return None;
    }
    if first == 'B' {
        return second.is_none().then_some(1);
    }
    UNITS
        .iter()
        .find(|(letter, _)| *letter == first)
        .map(|(_, shift)| 1 << shift)
}

/// Reads an integer with an optional sign and an optional 0x. Returns `None` if the text is
/// something else.
fn integer(text: &str) -> Option<Result<i128, NumberError>> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
    {
        Some(digits) => (16, digits),
        None => (10, digits),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let value = u64::from_str_radix(digits, radix)
        .map(i128::from)
        .map_err(|_| NumberError::TooLarge);
    Some(value.map(|value| if negative { -value } else { value }))
}

fn to_i64(value: i128) -> Result<i64, NumberError> {
    i64::try_from(value).map_err(|_| NumberError::TooLarge)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_have_units_in_either_case() {
        for (text, multiplier, bytes) in [
            ("4096", 1, 4096),
            ("4096", 1024, 4096 * 1024),
            ("4096B", 1024, 4096),
            ("1.5MB", 1, 1_572_864),
            ("1.5 mb", 1, 1_572_864),
            (" 2 GB ", 1, 2 << 30),
            ("2g", 1, 2 << 30),
            ("1TB", 1, 1 << 40),
            ("3p", 1, 3 << 50),
            ("7EB", 1, 7 << 60),
            ("0x10", 1, 16),
            ("0x10", 1024, 16384),
            ("0x10 KB", 1, 16384),
            ("-1K", 1, -1024),
            (".5K", 1, 512),
        ] {
            assert_eq!(parse_integer(text, multiplier), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "", "KB", "1.2.3", "1XB", "1KBB", "1 K B", "lots", "--1", "0x", "1e3",
        ] {
            assert_eq!(parse_integer(text, 1), Err(NumberError::NotSize), "{text}");
        }
        for text in ["8EB", "99999999999999999999", "1e30", "9223372036854775808"] {
            assert!(parse_integer(text, 1).is_err(), "{text}");
        }
        assert_eq!(parse_integer("9223372036854775807", 1), Ok(i64::MAX));
        assert_eq!(parse_integer("8EB", 1), Err(NumberError::TooLarge));
        assert_eq!(parse_integer("8.5EB", 1), Err(NumberError::TooLarge));
    }

    #[test]
    fn plain_integers_have_no_unit() {
        assert_eq!(parse_integer("-12", 0), Ok(-12));
        assert_eq!(parse_integer("0xfF", 0), Ok(255));
        assert_eq!(parse_integer("-9223372036854775808", 0), Ok(i64::MIN));
        for text in ["", "1K", "1.5", "x", "0x", "1 2"] {
            assert_eq!(
                parse_integer(text, 0),
                Err(NumberError::NotInteger),
                "{text}"
            );
        }
    }

    #[test]
    fn decimals_may_be_fractions() {
        assert_eq!(parse_decimal("3/8"), Ok(0.375));
        assert_eq!(parse_decimal("-1e4"), Ok(-10000.0));
        assert_eq!(parse_decimal(" 1.5 "), Ok(1.5));
        for text in ["", "1/0", "a", "1/", "/2", "1/2/3"] {
            assert_eq!(parse_decimal(text), Err(NumberError::NotDecimal), "{text}");
        }
    }

    #[test]
    fn yes_and_no() {
        for (text, value) in [
            ("Y", true),
            ("yes", true),
            ("1", true),
            ("n", false),
            ("No", false),
            ("0", false),
        ] {
            assert_eq!(parse_yes_no(text), Ok(value), "{text}");
        }
        for text in ["", "2", "true", "on"] {
            assert_eq!(parse_yes_no(text), Err(NumberError::NotYesNo), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_formatted_reads_back(value: i64, shift in 0u32..60, memory: bool) {
            for value in [value, (value >> shift) << shift, value >> shift] {
                prop_assert_eq!(parse_integer(&format(value, memory), u64::from(memory)), Ok(value));
            }
        }
    }
}
