//! One line of PMI-1: `cmd=<command> name=value name=value …\n`.
//!
//! Blanks separate fields, so names and values contain none; binary data travels as hex digits. The
//! field `message` is an exception: some clients send free text in it, so its value extends to the
//! end of the line.

mod lines;

pub use lines::LineBuffer;

/// The maximum length of a line in bytes, including its newline. It is about four times
/// [`MAX_REQUEST`].
pub const MAX_LINE: usize = 4096;
/// The maximum length of a request in bytes, including its newline. Slurm truncates longer
/// requests.
pub const MAX_REQUEST: usize = 1023;
/// The maximum number of fields in a line. The longest command of PMI-1 other than spawn has five.
pub const MAX_FIELDS: usize = 32;
/// The maximum length of a key in bytes (Hydra's limit).
pub const MAX_KEY: usize = 64;
/// The maximum length of a value in bytes (Hydra's limit).
pub const MAX_VALUE: usize = 1024;
/// The maximum length of the name of a key-value space in bytes (Hydra's limit).
pub const MAX_KVSNAME: usize = 256;

/// The field whose value is the rest of the line.
const FREE_TEXT: &str = "message";

/// An error in a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A received line has no newline within [`MAX_LINE`] bytes, or a line to send is longer.
    #[error("a PMI line is longer than {MAX_LINE} bytes")]
    TooLong,
    /// The bytes are not UTF-8 text.
    #[error("a PMI line is not text: {0}")]
    NotText(String),
    /// A line has more than [`MAX_FIELDS`] fields.
    #[error("a PMI line has more than {MAX_FIELDS} fields")]
    TooManyFields,
    /// A field has no `=`, or no name before the `=`.
    #[error("PMI field {0} is not of the form name=value")]
    NotAField(String),
    /// A line has two fields with the same name.
    #[error("PMI field {0} occurs twice in one line")]
    Duplicate(String),
    /// A name or value contains a blank or a control character, or a name contains `=`.
    #[error(
        "{0} contains a character that PMI cannot carry (blank, control character, or '=' in a name)"
    )]
    BadCharacter(String),
    /// The line lacks a field that the command needs.
    #[error("PMI command {command:?} lacks the field {field:?}")]
    Missing {
        /// The command of the line.
        command: String,
        /// The absent field.
        field: &'static str,
    },
    /// A field that must be a number is not a number or is out of range.
    #[error("PMI field {field:?} is {value}, not a number in range")]
    NotANumber {
        /// The field's name.
        field: &'static str,
        /// Its value, quoted and truncated.
        value: String,
    },
}

/// Returns text from a peer in a form for messages, which is quoted, escaped and truncated.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    let cut: String = text.chars().take(SHOWN).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{more}")
}

/// A parsed line, borrowing from its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<'a> {
    fields: Vec<(&'a str, &'a str)>,
}

impl<'a> Line<'a> {
    /// Parses a line; a newline at its end is ignored.
    ///
    /// # Errors
    /// The line is not a list of blank-separated `name=value` pairs within the limits of this
    /// module.
    pub fn parse(text: &'a str) -> Result<Self, Error> {
        if text.len() > MAX_LINE {
            return Err(Error::TooLong);
        }
        let mut rest = text.strip_suffix('\n').unwrap_or(text);
        let mut fields: Vec<(&str, &str)> = Vec::new();
        loop {
            rest = rest.trim_start_matches(' ');
            if rest.is_empty() {
                return Ok(Line { fields });
            }
            let end = rest.find(' ').unwrap_or(rest.len());
            let (name, mut value) = rest[..end]
                .split_once('=')
                .ok_or_else(|| Error::NotAField(quoted(&rest[..end])))?;
            if name.is_empty() {
                return Err(Error::NotAField(quoted(&rest[..end])));
            }
            rest = if name == FREE_TEXT {
                value = &rest[name.len() + 1..];
                ""
            } else {
                &rest[end..]
            };
            if [name, value]
                .iter()
                .any(|text| text.contains(char::is_control))
            {
                return Err(Error::BadCharacter(quoted(name)));
            }
            if fields.iter().any(|(known, _)| *known == name) {
                return Err(Error::Duplicate(quoted(name)));
            }
            if fields.len() == MAX_FIELDS {
                return Err(Error::TooManyFields);
            }
            fields.push((name, value));
        }
    }

    /// Returns the value of the field `cmd`, or an empty text if the field is absent.
    pub fn command(&self) -> &'a str {
        self.get("cmd").unwrap_or_default()
    }

    /// Returns the value of a field.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.fields
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value)
    }

    /// Returns the value of a required field.
    ///
    /// # Errors
    /// Returns [`Error::Missing`] if the line does not have the field.
    pub fn require(&self, field: &'static str) -> Result<&'a str, Error> {
        self.get(field).ok_or_else(|| Error::Missing {
            command: self.command().chars().take(MAX_KEY).collect(),
            field,
        })
    }

    /// Returns the value of a required field that is a number.
    ///
    /// # Errors
    /// Returns [`Error::Missing`] if the line does not have the field, and [`Error::NotANumber`] if
    /// it is not a number in the range of `T`.
    pub fn number<T: std::str::FromStr>(&self, field: &'static str) -> Result<T, Error> {
        let value = self.require(field)?;
        value.parse().map_err(|_| Error::NotANumber {
            field,
            value: quoted(value),
        })
    }

    /// Returns the fields in the order of the line.
    pub fn fields(&self) -> &[(&'a str, &'a str)] {
        &self.fields
    }
}

/// Returns whether `text` can be a value, which contains neither blanks nor control characters.
pub(crate) fn carries(text: &str) -> bool {
    !text.contains(|c: char| c == ' ' || c.is_control())
}

/// Formats a line, including its newline, ready for one write.
///
/// # Errors
/// Returns [`Error::BadCharacter`] if PMI cannot carry a name or value, [`Error::Duplicate`] if two
/// names are equal, and [`Error::TooManyFields`] or [`Error::TooLong`] if the line would exceed a
/// limit.
pub fn format(command: &str, fields: &[(&str, &str)]) -> Result<String, Error> {
    if fields.len() >= MAX_FIELDS {
        return Err(Error::TooManyFields);
    }
    let mut line = String::with_capacity(128);
    let all = std::iter::once(("cmd", command)).chain(fields.iter().copied());
    for (index, (name, value)) in all.enumerate() {
        if name.is_empty() || name.contains('=') || !carries(name) || !carries(value) {
            return Err(Error::BadCharacter(quoted(name)));
        }
        if index > 0
            && (name == "cmd" || fields[..index - 1].iter().any(|(known, _)| *known == name))
        {
            return Err(Error::Duplicate(quoted(name)));
        }
        if index > 0 {
            line.push(' ');
        }
        line.push_str(name);
        line.push('=');
        line.push_str(value);
    }
    line.push('\n');
    if line.len() > MAX_LINE {
        Err(Error::TooLong)
    } else {
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_is_written_as_hydra_reads_it() {
        let line = format("init", &[("pmi_version", "1"), ("pmi_subversion", "1")]);
        assert_eq!(
            line.as_deref(),
            Ok("cmd=init pmi_version=1 pmi_subversion=1\n")
        );
    }

    #[test]
    fn an_answer_of_hydra_is_read() {
        let line = Line::parse("cmd=get_result rc=0 msg=success value=(vector,(0,1,4))\n").unwrap();
        assert_eq!(line.command(), "get_result");
        assert_eq!(line.number::<i32>("rc"), Ok(0));
        assert_eq!(line.get("value"), Some("(vector,(0,1,4))"));
        assert!(matches!(
            line.require("key"),
            Err(Error::Missing { field: "key", .. })
        ));
    }

    #[test]
    fn values_may_be_empty_or_hold_equals_signs() {
        let line = Line::parse("cmd=put value= key=a=b").unwrap();
        assert_eq!(
            (line.get("value"), line.get("key")),
            (Some(""), Some("a=b"))
        );
    }

    #[test]
    fn free_text_takes_the_rest_of_the_line() {
        let line = Line::parse("cmd=abort exitcode=3 message=out of memory = bad").unwrap();
        assert_eq!(line.get("message"), Some("out of memory = bad"));
    }

    #[test]
    fn malformed_lines_are_refused() {
        assert!(matches!(Line::parse("cmd"), Err(Error::NotAField(_))));
        assert!(matches!(Line::parse("=x"), Err(Error::NotAField(_))));
        assert!(matches!(Line::parse("a=1 a=2"), Err(Error::Duplicate(_))));
        assert!(matches!(
            Line::parse("a=1\tb=2"),
            Err(Error::BadCharacter(_))
        ));
        assert!(matches!(
            Line::parse(&"x".repeat(MAX_LINE + 1)),
            Err(Error::TooLong)
        ));
        let many: String = (0..=MAX_FIELDS).map(|i| format!("f{i}=1 ")).collect();
        assert_eq!(Line::parse(&many), Err(Error::TooManyFields));
        assert!(matches!(
            Line::parse("a=x").unwrap().number::<u8>("a"),
            Err(Error::NotANumber { .. })
        ));
    }

    #[test]
    fn what_cannot_be_carried_is_not_written() {
        for fields in [
            ("a", "x y"),
            ("a", "x\ny"),
            ("a=b", "x"),
            ("", "x"),
            ("a b", "x"),
        ] {
            assert!(
                matches!(format("put", &[fields]), Err(Error::BadCharacter(_))),
                "{fields:?}"
            );
        }
        assert!(matches!(
            format("put", &[("a", "1"), ("a", "2")]),
            Err(Error::Duplicate(_))
        ));
        assert!(matches!(
            format("put", &[("cmd", "1")]),
            Err(Error::Duplicate(_))
        ));
        assert_eq!(
            format("put", &[("a", &"x".repeat(MAX_LINE))]),
            Err(Error::TooLong)
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            command in "[a-z_]{1,20}",
            fields in proptest::collection::btree_map("f[^ =\\p{Cc}]{0,20}", "[^ \\p{Cc}]{0,60}", 0..8),
        ) {
            let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let text = format(&command, &fields).unwrap();
            let line = Line::parse(&text).unwrap();
            prop_assert_eq!(line.command(), command.as_str());
            prop_assert_eq!(&line.fields()[1..], &fields[..]);
        }

        #[test]
        fn garbage_never_panics(text in ".{0,200}") {
            if let Ok(line) = Line::parse(&text) {
                let _ = (line.command(), line.number::<u32>("rc"), line.require("key"));
            }
        }
    }
}
