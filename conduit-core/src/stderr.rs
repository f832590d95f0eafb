//! Lines on standard error, which the ranks of a job share.

use std::fmt::Display;
use std::io::Write as _;

/// Writes a line in one piece. Formatted output reaches standard error piece by piece, and those of
/// several ranks mix.
pub fn write_line(line: impl Display) {
    // Nowhere to complain about a standard error that can't be written.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
