//! Protection of the standard streams' descriptor numbers.

use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd};

/// The number of standard streams, which have the first descriptors.
const STREAMS: i32 = 3;

/// Opens `/dev/null` in place of closed standard streams, like Rust's runtime at program start.
/// Otherwise the network's descriptors would get these numbers, and the program would read packets
/// as its input, or replace a socket when it sets up the stream.
pub fn occupy_standard_streams() {
    // The system returns the lowest free number.
    while let Ok(file) = File::options().read(true).write(true).open("/dev/null")
        && file.as_raw_fd() < STREAMS
    {
        let _ = file.into_raw_fd();
    }
}
