//! The names of operations: compact ids, and the handles that callers hold.

/// An operation's index in the lower 24 bits, plus 1, and its generation in the upper 8 bits. The
/// value is never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpId(u32);

impl OpId {
    pub(crate) const MAX: u32 = (1 << 24) - 1;

    pub(crate) fn new(index: u32, generation: u8) -> Self {
        Self(u32::from(generation) << 24 | (index + 1))
    }

    /// Returns the operation's index in the table.
    pub(crate) fn index(self) -> usize {
        (self.0 & Self::MAX) as usize - 1
    }

    pub(crate) fn generation(self) -> u8 {
        (self.0 >> 24) as u8
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn from_bits(bits: u32) -> Option<Self> {
        (bits & Self::MAX != 0).then_some(Self(bits))
    }
}

/// The handle of an operation. It must be synchronised. Until then the operation keeps its id, and
/// the network may access its memory.
///
/// Dropping a handle does not cancel the operation; it leaks the operation's id.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an operation is complete only when its handle has been synchronised"]
pub struct Handle(pub(crate) Option<OpId>);

impl Handle {
    /// The handle of a completed operation.
    pub const DONE: Self = Self(None);

    /// Returns whether the operation had already completed when it was started.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.0.is_none()
    }

    /// Converts the handle to a number for foreign interfaces. The number is 0 if the operation is
    /// done.
    pub fn into_bits(self) -> u32 {
        self.0.map_or(0, OpId::bits)
    }

    /// Converts a number from [`Handle::into_bits`] back to its handle. Each number must be
    /// converted at most once. Any other number yields either a stale handle, which fails when it
    /// is synchronised, or the handle of another operation, whose owner then loses it.
    pub fn from_bits(bits: u32) -> Self {
        Self(OpId::from_bits(bits))
    }
}
