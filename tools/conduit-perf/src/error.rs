//! Errors of measurements.

use std::time::Duration;

/// An error of a measurement. An error on one side ends the measurement on all sides, and the other
/// sides report [`Error::Aborted`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The shared area is too small for a measurement.
    #[error("the shared area's work area has {have} bytes, but the measurement needs {need}")]
    AreaTooSmall {
        /// The number of bytes needed.
        need: usize,
        /// The number of bytes available.
        have: usize,
    },
    /// The shared area's base address is not aligned to [`crate::area::LINE_SPACING`].
    #[error(
        "the shared area must start at a multiple of {} bytes",
        crate::area::LINE_SPACING
    )]
    AreaMisaligned,
    /// The control block has invalid contents, because the area was not zeroed.
    #[error("the shared area was not zeroed before the sides joined it")]
    AreaNotZeroed,
    /// More sides joined the area than were announced, or the sides disagree about their number.
    #[error("side {rank} of {sides} does not fit the measurement that uses this area")]
    SideMismatch {
        /// The side that tried to join.
        rank: usize,
        /// The number of sides that this side expected.
        sides: usize,
    },
    /// Another side did not do its part in time.
    #[error("side {rank}: no progress for {after:?} while waiting for {what}")]
    Stalled {
        /// The side that waited.
        rank: usize,
        /// The event for which the side waited.
        what: &'static str,
        /// The time for which the side waited.
        after: Duration,
    },
    /// Another side reported an error.
    #[error("side {by} ended the measurement")]
    Aborted {
        /// The side with the error.
        by: usize,
    },
    /// The received bytes differ from those that were sent.
    #[error("{what}: received checksum {got:#x}, expected {expected:#x}")]
    Corrupt {
        /// The measurement.
        what: &'static str,
        /// The checksum of the received bytes.
        got: u64,
        /// The checksum of the bytes sent.
        expected: u64,
    },
    /// The placement needs more cores than this process may use.
    #[error("{sides} sides with a core each need {sides} cores, but this process may use {cores}")]
    TooFewCores {
        /// The number of sides to place.
        sides: usize,
        /// The number of available cores.
        cores: usize,
    },
    /// A rank has not mapped the home rank's segment, so there is no memory for limits.
    #[error(
        "rank {rank} has no mapping of rank {home}'s segment (CONDUIT_WINDOWS); networks without mappings are \
         measured by `conduit-perf udp`, `ofi` and `portals4`"
    )]
    NoWindow {
        /// The rank without the mapping.
        rank: u32,
        /// The rank with the segment.
        home: u32,
    },
    /// A system call failed.
    #[error("{call}: {source}")]
    System {
        /// The call.
        call: &'static str,
        /// The underlying error.
        source: std::io::Error,
    },
    /// A figure's own error.
    #[error("{name}: {source}")]
    Figure {
        /// The figure.
        name: &'static str,
        /// The underlying error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// Returns a `map_err` function for a system call.
    pub(crate) fn system<E: Into<std::io::Error>>(call: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System {
            call,
            source: source.into(),
        }
    }
}
