//! The machine's buffers, on which clients' functions compute.

/// The alignment of every buffer in bytes, sufficient for any C type and for wide vectors.
const ALIGN: usize = 64;

/// Bytes at a fixed, aligned address.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// The memory, which is not resized while the buffer is in use.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn of_len(mut bytes: Vec<u8>, len: usize) -> Self {
        if bytes.len() < len + ALIGN {
            bytes.resize(len + ALIGN, 0);
        }
        let start = bytes.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self { bytes, start, len }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

/// Buffers kept for reuse.
#[derive(Debug, Default)]
pub(super) struct Pool {
    free: Vec<Vec<u8>>,
    /// Maximum number of buffers that are kept.
    most: usize,
    /// Maximum size in bytes of a buffer that is kept.
    largest: usize,
}

impl Pool {
    pub(super) fn new(most: usize, largest: usize) -> Self {
        Self {
            free: Vec::new(),
            most,
            largest,
        }
    }

    /// Returns a buffer with unspecified contents.
    pub(super) fn take(&mut self, len: usize) -> Buffer {
        Buffer::of_len(self.free.pop().unwrap_or_default(), len)
    }

    pub(super) fn copy_of(&mut self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.take(bytes.len());
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer
    }

    pub(super) fn give(&mut self, buffer: Buffer) {
        if self.free.len() < self.most && buffer.bytes.len() <= self.largest + ALIGN {
            self.free.push(buffer.bytes);
        }
    }
}
