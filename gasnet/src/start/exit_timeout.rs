//! `GASNET_EXITTIMEOUT` and related variables, which determine how long a rank that ends the job
//! waits for the others.
//!
//! The time in seconds is `GASNET_EXITTIMEOUT` if that is set, otherwise min(`_MAX`, `_MIN` + ranks
//! × `_FACTOR`). Conduit's own rule has the same form; its numbers are the defaults of these
//! variables. `CONDUIT_EXIT_TIMEOUT` overrides all of them.

use std::fmt;

use crate::tools::number::parse_decimal;

/// The numbers of Conduit's own rule: see `Settings::exit_wait`.
const MAX: f64 = 360.0;
const MIN: f64 = 3.0;
const FACTOR: f64 = 0.125;

/// The largest number of seconds accepted, the same as for `CONDUIT_EXIT_TIMEOUT`.
const MOST: f64 = 86_400.0;

/// The error for a variable of this family whose value is not a number of seconds in the accepted
/// range.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ExitTimeoutError {
    name: &'static str,
    value: String,
}

impl fmt::Display for ExitTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value } = self;
        write!(
            f,
            "{name} is {value:?}; accepted: a number of seconds from 0 to {MOST}"
        )
    }
}

/// Returns the time-out that these variables give for a job of `ranks` ranks, rounded up to whole
/// seconds, or `None` if none of them is set.
pub(crate) fn exit_timeout(
    ranks: u32,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<u32>, ExitTimeoutError> {
    let seconds = |name: &'static str| {
        let Some(value) = variable(name).filter(|value| !value.trim().is_empty()) else {
            return Ok(None);
        };
        match parse_decimal(&value) {
            Ok(seconds) if (0.0..=MOST).contains(&seconds) => Ok(Some(seconds)),
            _ => Err(ExitTimeoutError { name, value }),
        }
    };
    let fixed = seconds("GASNET_EXITTIMEOUT")?;
    let rule = (
        seconds("GASNET_EXITTIMEOUT_MAX")?,
        seconds("GASNET_EXITTIMEOUT_MIN")?,
        seconds("GASNET_EXITTIMEOUT_FACTOR")?,
    );
    let seconds = match (fixed, rule) {
        (Some(seconds), _) => seconds,
        (None, (None, None, None)) => return Ok(None),
        (None, (max, min, factor)) => {
            let grown = min.unwrap_or(MIN) + f64::from(ranks) * factor.unwrap_or(FACTOR);
            grown.min(max.unwrap_or(MAX))
        }
    };
    // The cast is lossless: the value is at most `MOST`, because each of the two forms is limited
    // to it.
    Ok(Some(seconds.ceil() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(ranks: u32, variables: &str) -> Result<Option<u32>, ExitTimeoutError> {
        let pairs: Vec<_> = variables
            .split_whitespace()
            .filter_map(|pair| pair.split_once('='))
            .collect();
        exit_timeout(ranks, |asked| {
            let (_, value) = pairs
                .iter()
                .find(|(name, _)| asked == format!("GASNET_EXITTIMEOUT{name}"))?;
            Some((*value).to_owned())
        })
    }

    #[test]
    fn the_rule_is_gasnets() {
        assert_eq!(with(4, ""), Ok(None));
        assert_eq!(with(4, "=7.5"), Ok(Some(8)));
        assert_eq!(with(4, "=7 _MAX=1 _MIN=2"), Ok(Some(7)));
        assert_eq!(with(8, "_MIN=10"), Ok(Some(11)));
        assert_eq!(with(8, "_FACTOR=2"), Ok(Some(19)));
        assert_eq!(with(8, "_MAX=3"), Ok(Some(3)));
        assert_eq!(with(100_000, "_FACTOR=1"), Ok(Some(360)));
        assert_eq!(with(u32::MAX, "_FACTOR=86400 _MAX=86400"), Ok(Some(86_400)));
        assert_eq!(with(1, "="), Ok(None), "an empty value counts as not set");
    }

    #[test]
    fn what_is_no_time_is_named() {
        for (variables, name) in [
            ("=soon", "GASNET_EXITTIMEOUT"),
            ("=1 _MAX=-1", "GASNET_EXITTIMEOUT_MAX"),
            ("_MIN=nan", "GASNET_EXITTIMEOUT_MIN"),
            ("_FACTOR=1e9", "GASNET_EXITTIMEOUT_FACTOR"),
        ] {
            let error = with(4, variables).unwrap_err();
            assert_eq!(error.name, name);
            assert!(error.to_string().contains("from 0 to 86400"), "{error}");
        }
    }
}
