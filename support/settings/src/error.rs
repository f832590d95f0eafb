//! Errors in the settings that a user has given, and warnings about them.

use super::kind::ValueKind;
use std::fmt::{self, Display, Formatter};

/// An invalid setting, which ends the job before it starts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The value is malformed or out of range.
    #[error("{name}={} is not valid: expected {accepted}", Quoted(.value))]
    Invalid {
        /// The variable.
        name: &'static str,
        /// The value as given.
        value: String,
        /// The values that are accepted.
        accepted: String,
    },
    /// The name has the prefix of a setting, but no setting has this name.
    #[error("{}={}: unknown setting{}", Plain(.name), Quoted(.value), Suggestion(*.nearest))]
    Unknown {
        /// The variable.
        name: String,
        /// The value as given.
        value: String,
        /// The setting with the most similar name, if one is similar enough.
        nearest: Option<&'static str>,
    },
    /// Two settings contradict each other.
    #[error("{name}={value} is not valid: expected at most {limit}, the value of {limited_by}")]
    Above {
        /// The variable with the larger value.
        name: &'static str,
        /// The value of `name`.
        value: u32,
        /// The variable whose value is the bound.
        limited_by: &'static str,
        /// The value of `limited_by`.
        limit: u32,
    },
}

impl SettingsError {
    pub(super) fn invalid(name: &'static str, value: String, kind: ValueKind) -> Self {
        Self::Invalid {
            name,
            value,
            accepted: kind.to_string(),
        }
    }
}

/// A warning about a setting that is accepted but does not have the effect that its name promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The variable.
    pub name: &'static str,
    /// The explanation for the user.
    pub text: &'static str,
}

impl Display for Warning {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.text)
    }
}

/// The maximum number of characters that a message repeats from a user's text.
const MOST_SHOWN: usize = 80;

/// A text that is printed in quotes, on one line and truncated.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", Plain(self.0))
    }
}

/// A text that is printed without quotes, on one line and truncated.
struct Plain<'a>(&'a str);

impl Display for Plain<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for c in self.0.chars().take(MOST_SHOWN) {
            write!(f, "{}", c.escape_debug())?;
        }
        if self.0.chars().nth(MOST_SHOWN).is_some() {
            f.write_str("…")?;
        }
        Ok(())
    }
}

struct Suggestion(Option<&'static str>);

impl Display for Suggestion {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "; did you mean {name}?"),
            None => Ok(()),
        }
    }
}
