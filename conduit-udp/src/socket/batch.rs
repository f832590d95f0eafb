//! Receive buffers, and the iteration over the datagrams in them.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::ops::Range;

use super::system::{Filled, LONGEST, MANY};

/// The average number of bytes per filled buffer above which the next call offers only one buffer.
const LARGE: usize = 16 << 10;

/// The buffers into which one system call receives. There are 16 of 64 KiB each, and they are
/// reused. Their pages are allocated when they are first filled, and the first buffer is filled
/// first, so a rank with little traffic uses only one buffer.
pub struct Batch {
    pub(super) space: Vec<u8>,
    pub(super) filled: [Filled; MANY],
    /// The number of filled buffers.
    pub(super) count: usize,
    /// The index of the buffer that holds the next datagram.
    at: usize,
    /// The offset of the next datagram in its buffer.
    offset: usize,
    /// The number of buffers that the next call offers. It offers only as many buffers as will
    /// probably be filled, because each one takes time.
    pub(super) want: usize,
    /// Whether to request the source of each datagram from the system.
    pub(super) asks: bool,
}

impl Batch {
    /// Creates empty buffers.
    pub fn new() -> Self {
        Self {
            space: vec![0; MANY * LONGEST],
            filled: [Filled::default(); MANY],
            count: 0,
            at: 0,
            offset: 0,
            want: 1,
            asks: false,
        }
    }

    /// Returns the next datagram, if one is left.
    #[inline]
    pub fn next_datagram(&mut self) -> Option<&mut [u8]> {
        let range = self.next_range()?;
        Some(&mut self.space[range])
    }

    /// Returns the position of the next datagram, if one is left.
    #[inline]
    fn next_range(&mut self) -> Option<Range<usize>> {
        while self.at < self.count {
            let Filled {
                length, segment, ..
            } = self.filled[self.at];
            // An empty datagram is also returned. The protocol counts it as malformed.
            if self.offset < length || (length == 0 && segment == 0 && self.offset == 0) {
                let begin = self.offset;
                let end = (begin + segment).min(length);
                self.offset = end.max(1);
                let buffer = self.at * LONGEST;
                return Some(buffer + begin..buffer + end);
            }
            self.at += 1;
            self.offset = 0;
        }
        None
    }

    /// Returns the next datagram, if one is left, and its source, if sources were requested. IPv4
    /// sources are mapped to IPv6.
    pub(super) fn next_datagram_from(&mut self) -> Option<(&mut [u8], Option<SocketAddrV6>)> {
        let range = self.next_range()?;
        let filled = self.filled[self.at];
        let source = filled
            .source
            .map(|address| SocketAddrV6::new(address, filled.port, 0, 0));
        Some((&mut self.space[range], source))
    }

    /// Returns the source of the last buffer's datagrams, if it was requested.
    pub(super) fn source(&self) -> Option<Ipv6Addr> {
        self.filled.get(self.at)?.source
    }

    /// Skips the datagrams that follow the last one in its buffer.
    pub(super) fn skip_rest(&mut self) {
        self.at += 1;
        self.offset = 0;
    }

    /// Skips each newly filled buffer for whose first datagram and source `is_wanted` returns
    /// `false`. Returns the number of buffers skipped and the number of bytes in them.
    pub(super) fn filter_sources(
        &mut self,
        mut is_wanted: impl FnMut(&[u8], Ipv6Addr) -> bool,
    ) -> (usize, usize) {
        let (mut buffers, mut bytes) = (0, 0);
        let filled = self.filled[..self.count].iter_mut();
        for (filled, buffer) in filled.zip(self.space.chunks_exact(LONGEST)) {
            let first = &buffer[..filled.segment.min(filled.length)];
            if let Some(source) = filled.source
                && !is_wanted(first, source)
            {
                buffers += 1;
                bytes += filled.length.max(1);
                *filled = Filled::SKIPPED;
            }
        }
        while self.count > 0 && self.filled[self.count - 1] == Filled::SKIPPED {
            self.count -= 1;
        }
        (buffers, bytes)
    }

    /// Returns whether no datagram is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.at >= self.count
            || (self.at + 1 == self.count && self.offset >= self.filled[self.at].length.max(1))
    }

    /// Records that a call that offered `want` buffers has filled `count` of them.
    pub(super) fn refilled(&mut self, count: usize) {
        self.count = count;
        self.at = 0;
        self.offset = 0;
        let bytes: usize = self.filled[..count].iter().map(|one| one.length).sum();
        self.want = if bytes > count * LARGE {
            // With so much data per buffer, the overhead of a call is small, and a single buffer is
            // kept in the cache.
            1
        } else if count == self.want {
            (self.want * 2).min(MANY)
        } else {
            count.max(1)
        };
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("count", &self.count)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}
