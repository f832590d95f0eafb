//! The faults that the library can have.

/// The faults of a library. Each word of [`WORDS`] sets one of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Whether events are delayed and reordered.
    pub unordered: bool,
    /// Whether half of the events about disabled table entries are missing.
    pub silent: bool,
    /// Whether most attempts to unlink an entry return `PTL_IN_USE`.
    pub in_use: bool,
    /// Whether fields that have no meaning in an event have random values.
    pub stale: bool,
    /// Whether some messages are dropped, and acknowledged as dropped.
    pub dropped: bool,
    /// Whether some operations are refused for lack of space in the library.
    pub no_space: bool,
    /// Whether the event of an entry that unlinks itself may precede the events of the entry's last
    /// messages.
    pub early: bool,
}

/// The words for the faults, in the order of the fields of [`Faults`].
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
    /// Returns the faults that the words name. Commas separate the words.
    ///
    /// # Errors
    /// The error holds the first unknown word and lists the accepted ones.
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
