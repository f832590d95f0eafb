//! One end of a channel: two descriptors that carry frames.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, ioctl_fionbio, read, write};
use serde::Serialize;

use super::frame::{Decoder, Frame};

/// The maximum number of bytes to read before other descriptors get their turn.
const TURN: usize = 256 << 10;

/// One end of a channel.
#[derive(Debug)]
pub(crate) struct Link {
    read: OwnedFd,
    /// `None` once this end is closed or the other does not read any more.
    write: Option<OwnedFd>,
    /// Bytes to write. Their number is bounded by the windows of output and input, by the
    /// limit of PMI's pairs, and by a few messages for each rank.
    outgoing: VecDeque<u8>,
    pub(crate) decoder: Decoder,
}

impl Link {
    pub(crate) fn new(read: OwnedFd, write: OwnedFd) -> io::Result<Self> {
        ioctl_fionbio(&read, true)?;
        ioctl_fionbio(&write, true)?;
        Ok(Link {
            read,
            write: Some(write),
            outgoing: VecDeque::new(),
            decoder: Decoder::default(),
        })
    }

    pub(crate) fn send<T: Serialize>(&mut self, host: u32, message: &T) {
        self.forward(&Frame::new(host, message));
    }

    pub(crate) fn forward(&mut self, frame: &Frame) {
        self.write_bytes(&frame.header());
        self.write_bytes(&frame.payload);
    }

    /// Appends bytes that are not a frame.
    pub(crate) fn write_bytes(&mut self, bytes: &[u8]) {
        if self.write.is_some() {
            self.outgoing.extend(bytes);
        }
    }

    /// Closes the writing end.
    pub(crate) fn close(&mut self) {
        self.write = None;
        self.outgoing.clear();
    }

    /// Returns the descriptor for reading.
    pub(crate) fn incoming(&self) -> PollFd<'_> {
        PollFd::new(&self.read, PollFlags::IN)
    }

    /// Returns the descriptor for writing if there is something to write.
    pub(crate) fn outgoing(&self) -> Option<PollFd<'_>> {
        let write = self.write.as_ref().filter(|_| !self.outgoing.is_empty());
        write.map(|write| PollFd::new(write, PollFlags::OUT))
    }

    /// Writes as much as the other end accepts now.
    pub(crate) fn flush(&mut self) {
        while let Some(fd) = &self.write
            && !self.outgoing.is_empty()
        {
            let (front, _) = self.outgoing.as_slices();
            match write(fd, front) {
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The end of the other is noticed when reading.
                Err(_) => self.close(),
            }
        }
    }

    /// Passes what has arrived to `take`. Returns `false` at the end of the stream.
    pub(crate) fn read(&mut self, mut take: impl FnMut(&mut Decoder, &[u8])) -> bool {
        let mut chunk = [0; 64 << 10];
        let mut total = 0;
        while total < TURN {
            match read(&self.read, &mut chunk) {
                Ok(0) => return false,
                Ok(count) => {
                    take(&mut self.decoder, &chunk[..count]);
                    total += count;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}
