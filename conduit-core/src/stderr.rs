//! Lines on stderr, which all ranks of a job share.

use std::fmt::Display;
use std::io::Write as _;

/// Writes a line with a single write. Formatted output would reach stderr in pieces, which would
/// mix with the pieces of other ranks.
pub fn write_line(line: impl Display) {
    // An error of stderr can't be reported anywhere, so it is ignored.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
