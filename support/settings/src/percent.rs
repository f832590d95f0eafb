//! Percentages.

use std::fmt::{self, Display, Formatter};

/// A percentage from 0 to 100, in steps of one ten-thousandth of a per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent {
    millionths: u32,
}

/// Maximum number of decimal places.
const PLACES: usize = 4;

impl Percent {
    /// 0 %.
    pub const NONE: Self = Self { millionths: 0 };
    /// 100 %.
    pub const ALL: Self = Self::of(100);

    /// Returns the percentage for a whole number, which must be at most 100.
    pub const fn of(percent: u32) -> Self {
        assert!(percent <= 100);
        Self {
            millionths: percent * 10_000,
        }
    }

    /// Returns the value in parts per million.
    pub const fn millionths(self) -> u32 {
        self.millionths
    }

    /// Parses a decimal number from 0 to 100 with up to four decimal places.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || decimals.len() > PLACES {
            return None;
        }
        let whole: u32 = whole.parse().ok().filter(|whole| *whole <= 100)?;
        let decimals: u32 = format!("{decimals:0<PLACES$}").parse().ok()?;
        let percent = Self {
            millionths: whole * 10_000 + decimals,
        };
        (percent <= Self::ALL).then_some(percent)
    }
}

impl From<Percent> for f64 {
    fn from(percent: Percent) -> Self {
        Self::from(percent.millionths) / 10_000.0
    }
}

/// Prints the value in the form that settings accept, without unnecessary zeros.
impl Display for Percent {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(*self))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decimals_are_read() {
        let millionths = |text| Percent::parse(text).map(Percent::millionths);
        assert_eq!(millionths("1"), Some(10_000));
        assert_eq!(millionths("0.1"), Some(1_000));
        assert_eq!(millionths("12.3456"), Some(123_456));
        assert_eq!(millionths("100.0"), Some(1_000_000));
        for text in ["100.0001", "0.00001", ".5", "5.", "1.2.3", "-1", "1e1", ""] {
            assert_eq!(millionths(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(millionths in 0..=1_000_000_u32) {
            let percent = Percent { millionths };
            prop_assert_eq!(Percent::parse(&percent.to_string()), Some(percent));
        }
    }
}
