//! The numbers of the protocol.
//!
//! A request is a byte that names the operation, followed by its arguments; keys and values are
//! preceded by their length. Lengths and numbers have 8 bytes in the processor's byte order,
//! because PyTorch sends them so.

/// The operations that this crate uses.
pub(crate) mod operation {
    pub(crate) const VALIDATE: u8 = 0;
    pub(crate) const SET: u8 = 1;
    pub(crate) const GET: u8 = 3;
    pub(crate) const ADD: u8 = 4;
    pub(crate) const WAIT: u8 = 6;
}

/// The number that a client sends first.
pub(crate) const MAGIC: u32 = 0x3C85_F7CE;
/// The reply to a wait when all keys exist.
pub(crate) const STOP_WAITING: u8 = 0;
