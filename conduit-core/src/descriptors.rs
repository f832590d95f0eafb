//! Protection of the descriptor numbers of the standard streams.

use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd};

/// The number of standard streams, which use the lowest descriptor numbers.
const STREAMS: i32 = 3;

/// Opens `/dev/null` in place of closed standard streams, as Rust's runtime does at program start.
/// Otherwise the network's descriptors could get the numbers of these streams. The program would
/// then read packets as its input, or replace a socket when it opens the stream.
pub fn occupy_standard_streams() {
    // The system returns the lowest free descriptor number.
    while let Ok(file) = File::options().read(true).write(true).open("/dev/null")
        && file.as_raw_fd() < STREAMS
    {
        let _ = file.into_raw_fd();
    }
}
