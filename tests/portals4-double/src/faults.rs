//! How the library misbehaves.

/// What of it is wrong. Each word of [`WORDS`] sets one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Events come later than they could, in any order.
    pub unordered: bool,
    /// Half of the events about a table entry that refuses messages are missing.
    pub silent: bool,
    /// Most attempts to unlink an entry are answered with `PTL_IN_USE`.
    pub in_use: bool,
    /// Fields without meaning in an event have any value.
    pub stale: bool,
    /// Some messages are dropped, and acknowledged as such.
    pub dropped: bool,
    /// Some operations find no room in the library.
    pub no_space: bool,
    /// An entry that unlinks itself says so before the messages that it has taken last.
    pub early: bool,
}

/// The words, in the order of the fields.
pub const WORDS: [&str; 7] = [
    "unordered",
    "silent",
    "in_use",
    "stale",
    "dropped",
    "no_space",
    "early",
];

impl Faults {
    /// Those that the words name.
    ///
    /// # Errors
    /// The word that names none.
    pub fn named(words: &str) -> Result<Self, String> {
        let mut faults = Self::default();
        for word in words.split(',').filter(|word| !word.is_empty()) {
            match word {
                "unordered" => faults.unordered = true,
                "silent" => faults.silent = true,
                "in_use" => faults.in_use = true,
                "stale" => faults.stale = true,
                "dropped" => faults.dropped = true,
                "no_space" => faults.no_space = true,
                "early" => faults.early = true,
                _ => return Err(format!("{word} is none of {WORDS:?}")),
            }
        }
        Ok(faults)
    }
}
