//! Keeps the network's descriptors from becoming standard streams.

use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd};

/// The number of standard streams, whose descriptors come first.
const STREAMS: i32 = 3;

/// Opens `/dev/null` in place of closed standard streams, as Rust's runtime does at the start of a
/// program. Otherwise the network's descriptors would get these numbers, and the program would read
/// packets as its input or replace a socket when it sets up the stream.
pub fn occupy_standard_streams() {
    // The system gives the lowest free number.
    while let Ok(file) = File::options().read(true).write(true).open("/dev/null")
        && file.as_raw_fd() < STREAMS
    {
        let _ = file.into_raw_fd();
    }
}
