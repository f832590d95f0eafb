//! The names of operations: compact ids, and the handles that callers have.

/// A 24-bit id with its 8-bit generation above. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpId(u32);

impl OpId {
    pub(crate) const MAX: u32 = (1 << 24) - 1;

    pub(crate) fn new(index: u32, generation: u8) -> Self {
        Self(u32::from(generation) << 24 | (index + 1))
    }

    /// Its place in the table.
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

/// An operation under way. Has to be synchronised: until then it keeps an operation id, and memory
/// that it uses is not the caller's.
///
/// Dropping it does neither harm nor good: the operation goes on, and its id stays in use.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an operation is complete only when its handle has been synchronised"]
pub struct Handle(pub(crate) Option<OpId>);

impl Handle {
    /// The handle of an operation that has ended.
    pub const DONE: Self = Self(None);

    /// Whether it is the handle of an operation that had ended when it was started.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.0.is_none()
    }

    /// The handle as a number for foreign interfaces; 0 is done.
    pub fn into_bits(self) -> u32 {
        self.0.map_or(0, OpId::bits)
    }

    /// The handle of a number from [`Handle::into_bits`], used once. Another number gives a stale
    /// handle, which is an error when it is synchronised, or somebody else's operation, which is
    /// then lost to its owner.
    pub fn from_bits(bits: u32) -> Self {
        Self(OpId::from_bits(bits))
    }
}
