//! The kinds of values that settings have. A kind determines how a value is read, checked and
//! printed.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

use super::Percent;

/// The values that a setting accepts.
#[derive(Clone, Copy, Debug)]
pub enum ValueKind {
    /// A decimal integer.
    Integer {
        /// The minimum.
        least: u32,
        /// The maximum.
        most: u32,
        /// The meaning of 0, if 0 is accepted although it is outside the range.
        zero: Option<&'static str>,
    },
    /// 0 or 1, or a word with the same meaning, such as `yes` or `off`.
    Bool,
    /// A number of bytes, which may have a suffix for a power of 1024.
    Bytes {
        /// The minimum.
        least: u64,
        /// The maximum.
        most: u64,
        /// The number of which every value must be a multiple.
        multiple: u64,
    },
    /// A percentage.
    Percent,
    /// One or more of these words, separated by commas.
    Words(&'static [&'static str]),
    /// One of these signals. It is given either by its number or by its name, in upper or lower
    /// case and optionally prefixed with `SIG`.
    Signal(&'static [(&'static str, u32)]),
    /// The path of a file or directory. It is used verbatim.
    Path,
    /// Any text on one line. The string describes the text.
    Text(&'static str),
}

/// The value of a setting. It is printed in a form that the variable accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A count.
    Integer(u32),
    /// 1 or 0.
    Bool(bool),
    /// A number of bytes.
    Bytes(u64),
    /// A percentage.
    Percent(Percent),
    /// Words from a list.
    Words(Vec<String>),
    /// A path, which is UTF-8.
    Path(String),
    /// A text without leading and trailing blanks.
    Text(String),
}

/// The maximum of byte counts that have no lower maximum. It exceeds the address space of any
/// process on the supported machines.
pub const MOST_BYTES: u64 = i64::MAX as u64;
/// The maximum of times in milliseconds: one day.
pub const MOST_TIME: u32 = 86_400_000;

const TRUE: [&str; 5] = ["1", "y", "yes", "true", "on"];
const FALSE: [&str; 5] = ["0", "n", "no", "false", "off"];
/// The suffixes of byte counts, each with the base-2 logarithm of its factor.
const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

impl ValueKind {
    /// Returns the kind of integers from `least` to `most`.
    pub const fn integer(least: u32, most: u32) -> Self {
        Self::Integer {
            least,
            most,
            zero: None,
        }
    }

    /// Returns the kind of integers from `least` to `most`, or 0 with the meaning `zero`.
    pub const fn integer_or_zero(least: u32, most: u32, zero: &'static str) -> Self {
        Self::Integer {
            least,
            most,
            zero: Some(zero),
        }
    }

    /// Returns the kind of byte counts from `least` to `most` that are multiples of `multiple`.
    pub const fn bytes(least: u64, most: u64, multiple: u64) -> Self {
        Self::Bytes {
            least,
            most,
            multiple,
        }
    }

    /// Parses a value. Returns `None` if the text is malformed or out of range. Leading and
    /// trailing blanks are ignored, except in paths.
    pub fn parse(self, text: &str) -> Option<Value> {
        let given = text;
        let text = text.trim();
        match self {
            Self::Integer { least, most, zero } => {
                let number = digits(text)?.try_into().ok()?;
                ((least..=most).contains(&number) || (number == 0 && zero.is_some()))
                    .then_some(Value::Integer(number))
            }
            Self::Bool => {
                let is_one_of =
                    |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
                if is_one_of(&TRUE) {
                    Some(Value::Bool(true))
                } else {
                    is_one_of(&FALSE).then_some(Value::Bool(false))
                }
            }
            Self::Bytes {
                least,
                most,
                multiple,
            } => {
                let bytes = parse_bytes(text)?;
                ((least..=most).contains(&bytes) && bytes.is_multiple_of(multiple))
                    .then_some(Value::Bytes(bytes))
            }
            Self::Percent => Percent::parse(text).map(Value::Percent),
            Self::Words(choices) => {
                let mut words: Vec<String> = Vec::new();
                for word in text.split(',') {
                    let word = word.trim().to_ascii_lowercase();
                    if !choices.contains(&word.as_str()) {
                        return None;
                    }
                    if !words.contains(&word) {
                        words.push(word);
                    }
                }
                Some(Value::Words(words))
            }
            Self::Signal(signals) => {
                let name = text.to_ascii_uppercase();
                let name = name.strip_prefix("SIG").unwrap_or(&name);
                let number = digits(text);
                let is_it =
                    |&&(known, its): &&(&str, u32)| known == name || number == Some(its.into());
                let (name, _) = signals.iter().find(is_it)?;
                Some(Value::Text((*name).to_owned()))
            }
            // A replacement character in the text shows that the variable was not valid UTF-8.
            Self::Path => (!text.is_empty()
                && !given.contains(['\0', char::REPLACEMENT_CHARACTER]))
            .then(|| Value::Path(given.to_owned())),
            Self::Text(_) => (!text.is_empty()
                && !text.contains(|c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER))
            .then(|| Value::Text(text.to_owned())),
        }
    }
}

/// Prints the accepted values for error messages and the documentation.
impl Display for ValueKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Integer { least, most, zero } => {
                if let Some(zero) = zero {
                    write!(f, "0 ({zero}), or ")?;
                }
                if most == u32::MAX {
                    write!(f, "an integer from {least}")
                } else {
                    write!(f, "an integer from {least} to {most}")
                }
            }
            Self::Bool => f.write_str("0 or 1"),
            Self::Bytes {
                least,
                most,
                multiple,
            } => {
                write!(f, "bytes from {}", Bytes(least))?;
                if most < MOST_BYTES {
                    write!(f, " to {}", Bytes(most))?;
                }
                if multiple > 1 {
                    write!(f, " in multiples of {}", Bytes(multiple))?;
                }
                f.write_str(", suffix K, M, G or T allowed")
            }
            Self::Percent => f.write_str("a number from 0 to 100 with up to four decimal places"),
            Self::Words(choices) => {
                write!(f, "a comma-separated list of {}", choices.join(", "))
            }
            Self::Signal(signals) => {
                let names: Vec<_> = signals.iter().map(|(name, _)| *name).collect();
                write!(f, "one of {}, or its number", names.join(", "))
            }
            Self::Path => f.write_str("a path in UTF-8"),
            Self::Text(what) => f.write_str(what),
        }
    }
}

/// Prints the value in a form that [`ValueKind::parse`] accepts.
impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => write!(f, "{number}"),
            Self::Bool(yes) => write!(f, "{}", u8::from(*yes)),
            Self::Bytes(bytes) => write!(f, "{}", Bytes(*bytes)),
            Self::Percent(percent) => write!(f, "{percent}"),
            Self::Words(words) => f.write_str(&words.join(",")),
            Self::Path(text) | Self::Text(text) => f.write_str(text),
        }
    }
}

/// A byte count, printed with the largest suffix that leaves a whole number.
struct Bytes(u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (letter, shift) in UNITS {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{letter}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// Parses a plain number, which must consist of digits only.
fn digits(text: &str) -> Option<u64> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// Parses a number that may be followed by blanks and a unit, in upper or lower case. Units are
/// `B`; `K`, `KB` and `KiB`; and the same for `M`, `G` and `T`. They are all powers of 1024.
fn parse_bytes(text: &str) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let number = digits(number)?;
    let suffix = suffix.trim_start().to_ascii_uppercase();
    if suffix.is_empty() || suffix == "B" {
        return Some(number);
    }
    let (_, shift) = UNITS.into_iter().find(|(letter, _)| {
        suffix
            .strip_prefix(*letter)
            .is_some_and(|rest| matches!(rest, "" | "B" | "IB"))
    })?;
    number.checked_mul(1 << shift)
}

/// The type of a field in a [group](super::Group). It can be converted from and to a [`Value`].
pub trait Field: Sized {
    /// Converts from a value. Returns `None` if the value is of another kind or does not fit.
    fn from_value(value: Value) -> Option<Self>;
    /// Converts to a value. Returns `None` if the field is unset.
    fn to_value(&self) -> Option<Value>;
}

/// Implements [`Field`] for a type whose values are of one kind. `$read` converts from the content
/// of the value, and `$show` converts to it.
macro_rules! field {
    ($type:ty, $kind:ident, $read:expr, $show:expr) => {
        impl Field for $type {
            fn from_value(value: Value) -> Option<Self> {
                match value {
                    Value::$kind(content) => $read(content),
                    _ => None,
                }
            }
            fn to_value(&self) -> Option<Value> {
                Some(Value::$kind($show(self)))
            }
        }
    };
}

field!(u32, Integer, Some, u32::clone);
field!(bool, Bool, Some, bool::clone);
field!(
    usize,
    Bytes,
    |bytes: u64| bytes.try_into().ok(),
    |bytes: &usize| *bytes as u64
);
field!(Percent, Percent, Some, Percent::clone);
field!(Vec<String>, Words, Some, Vec::clone);
field!(String, Text, Some, String::clone);
field!(
    PathBuf,
    Path,
    |text: String| Some(text.into()),
    |path: &PathBuf| { path.to_string_lossy().into_owned() }
);

impl<T: Field> Field for Option<T> {
    fn from_value(value: Value) -> Option<Self> {
        T::from_value(value).map(Some)
    }
    fn to_value(&self) -> Option<Value> {
        self.as_ref()?.to_value()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        let kind = ValueKind::Signal(&[("USR1", 10), ("HUP", 1)]);
        for text in ["USR1", "SIGUSR1", "sigusr1", " 10 "] {
            assert_eq!(kind.parse(text), Some(Value::Text("USR1".into())), "{text}");
        }
        for text in ["", "SIG", "KILL", "9", "1 0", "-1", "SIGSIGUSR1"] {
            assert_eq!(kind.parse(text), None, "{text}");
        }
        assert_eq!(kind.to_string(), "one of USR1, HUP, or its number");
    }

    proptest! {
        #[test]
        fn bytes_print_as_they_are_read(bytes in 0..=i64::MAX as u64, shift in 0..50_u32) {
            let value = Value::Bytes(bytes >> shift << shift);
            let kind = ValueKind::bytes(0, i64::MAX as u64, 1);
            prop_assert_eq!(kind.parse(&value.to_string()), Some(value));
        }
    }
}
