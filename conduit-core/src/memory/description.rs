//! The description of bound memory. Errors contain it too.

/// Memory that a rank has bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The number to which the memory is bound, or 0 if the memory is its owner's segment.
    pub index: u16,
    /// The address in the owner's process.
    pub address: u64,
    /// The length in bytes.
    pub len: usize,
}

impl Bound {
    pub(super) fn holds(&self, address: u64, len: usize) -> bool {
        let offset = address.wrapping_sub(self.address);
        len <= self.len && offset <= (self.len - len) as u64
    }
}
