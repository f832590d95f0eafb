//! The initiator's side of a transfer, which is memory of the caller.

/// A payload's address and length.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    pub(crate) base: *const u8,
    pub(crate) len: usize,
}

impl Source {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            base: bytes.as_ptr(),
            len: bytes.len(),
        }
    }

    /// # Safety
    /// The source must be valid for reads, and must not be written, while the slice lives.
    pub(crate) unsafe fn slice<'a>(self) -> &'a [u8] {
        // SAFETY: the caller guarantees that the source is valid for reads and is not written while
        // the slice lives.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }
}

/// The local side of a transfer.
#[derive(Clone, Copy)]
pub(crate) enum Local {
    /// A put's source.
    Source(Source),
    /// A memset, which has no memory of the caller.
    Fill { byte: u8, len: usize },
    /// A get's destination.
    Destination { base: *mut u8, len: usize },
}

impl Local {
    pub(crate) fn len(&self) -> usize {
        match *self {
            Self::Source(source) => source.len,
            Self::Fill { len, .. } | Self::Destination { len, .. } => len,
        }
    }

    /// Returns the first address of the caller's memory, or `None` if there is none.
    pub(crate) fn base(&self) -> Option<*mut u8> {
        match *self {
            Self::Source(source) => Some(source.base.cast_mut()),
            Self::Destination { base, .. } => Some(base),
            Self::Fill { .. } => None,
        }
    }
}
