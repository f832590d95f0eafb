//! The library's faults.

/// The faults of a library. Each word of [`WORDS`] sets one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Events are delayed and reordered.
    pub unordered: bool,
    /// Half of the events about disabled table entries are missing.
    pub silent: bool,
    /// Most attempts to unlink an entry return `PTL_IN_USE`.
    pub in_use: bool,
    /// Fields that have no meaning in an event have random values.
    pub stale: bool,
    /// Some messages are dropped, and acknowledged as dropped.
    pub dropped: bool,
    /// Some operations are refused for lack of space in the library.
    pub no_space: bool,
    /// An entry that unlinks itself raises that event before those of its last messages.
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
    /// Returns the faults that the words name.
    ///
    /// # Errors
    /// The word that is unknown.
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
                _ => return Err(format!("unknown fault {word}; accepted: {WORDS:?}")),
            }
        }
        Ok(faults)
    }
}
