//! Operations and the results of their submission.

use super::{MdId, PtIndex, Rank};

/// The result of a submission. Retrying is a status, not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Submit {
    /// Accepted. The requested events will be raised, or already have been.
    Posted,
    /// There was no room, and nothing happened. The caller must poll, then submit again.
    Again,
}

/// The kind of completion that a put reports to its initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// [`Event::Send`](super::Event::Send): the source may be reused. This says nothing about the
    /// target.
    Local,
    /// [`Event::Ack`](super::Event::Ack): the target has accepted or refused the put. This implies
    /// that the source may be reused.
    Remote,
}

/// A put. See [`super::Ni::put`].
#[derive(Debug, Clone, Copy)]
pub struct Put {
    /// The source's descriptor.
    pub md: MdId,
    /// The offset of the first byte in the descriptor's memory.
    pub local_offset: usize,
    /// Length in bytes, at most [`super::Reach::max_message`], or [`super::Reach::max_managed`] to
    /// a managed entry.
    pub length: usize,
    /// The completion event at the initiator.
    pub ack: Ack,
    /// The target.
    pub target: Rank,
    /// The target's portal table index.
    pub index: PtIndex,
    /// Match bits, which select the entry and carry further data.
    pub match_bits: u64,
    /// The offset of the first byte in the entry's memory; ignored by managed entries.
    pub remote_offset: u64,
    /// 64 bits that are passed to the target's event.
    pub hdr_data: u64,
    /// The initiator's name for the operation.
    pub token: u64,
}

/// A put of bytes given in two pieces, copied before the call returns. See [`super::Ni::inject`].
///
/// The field order keeps the two words apart: adjacent words of eight bytes are read as one of
/// sixteen, and that read waits until both, written just before, have left the processor's store
/// buffer.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Inject<'a> {
    /// Match bits, which select the entry and carry further data.
    pub match_bits: u64,
    /// The first piece. Its length must be a multiple of 16 bytes unless the second piece is empty,
    /// so that the second piece is aligned.
    pub head: &'a [u8],
    /// 64 bits that are passed to the target's event.
    pub hdr_data: u64,
    /// The second piece.
    pub body: &'a [u8],
    /// The target.
    pub target: Rank,
    /// The target's portal table index.
    pub index: PtIndex,
    /// Whether the message expects a reply or is one.
    pub exchange: Exchange,
}

/// Whether a short message is a request that expects a short reply, or that reply. A network may
/// let the two share memory. This is a hint; every message arrives, whatever the hint says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// Neither, as far as is known. Such a message is often one of many.
    OneWay,
    /// The target is likely to send a message of a few bytes, [`Self::IsReply`], while it handles
    /// this one.
    ExpectsReply,
    /// The message goes to the source of a message that is being delivered.
    IsReply,
}

/// A get. See [`super::Ni::get`].
#[derive(Debug, Clone, Copy)]
pub struct Get {
    /// The destination's descriptor.
    pub md: MdId,
    /// The offset of the first byte in the descriptor's memory.
    pub local_offset: usize,
    /// Length in bytes, at most [`super::Reach::max_message`].
    pub length: usize,
    /// The target.
    pub target: Rank,
    /// The target's portal table index.
    pub index: PtIndex,
    /// Match bits, which select the entry and carry further data.
    pub match_bits: u64,
    /// The offset of the first byte in the entry's memory.
    pub remote_offset: u64,
    /// The initiator's name for the operation.
    pub token: u64,
}

/// The type of an atomic's number. Integers wrap. Floats travel, and are compared for
/// [`AtomicOp::CompareSwap`], as their bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicType {
    /// Signed 32 bits.
    I32,
    /// Unsigned 32 bits.
    U32,
    /// Signed 64 bits.
    I64,
    /// Unsigned 64 bits.
    U64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl AtomicType {
    /// All types, indexed by their code in messages.
    pub const ALL: [Self; 6] = [
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F32,
        Self::F64,
    ];

    /// Returns the number's size in bytes, which is also its alignment.
    pub const fn size(self) -> usize {
        match self {
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Returns the unsigned integer type of the same size.
    pub const fn bits(self) -> Self {
        match self.size() {
            4 => Self::U32,
            _ => Self::U64,
        }
    }

    /// Returns the negated value. Adding it is the same as subtracting `value`.
    pub const fn negated(self, value: u64) -> u64 {
        match self {
            Self::F32 => value ^ 1 << 31,
            Self::F64 => value ^ 1 << 63,
            _ => value.wrapping_neg(),
        }
    }

    /// Returns whether this is a float.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }
}

/// The function of an atomic, of the old value `x` and its operand `a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    /// Reads `x`.
    Get,
    /// Writes `a` (fetching: swap).
    Set,
    /// `x + a`.
    Add,
    /// `x - a`.
    Sub,
    /// `x * a`.
    Mult,
    /// The smaller by the type's order: `x` if `x < a`, else `a` (so `a` if floats are unordered).
    Min,
    /// The larger by the type's order: `x` if `x > a`, else `a`.
    Max,
    /// `x & a`; of floats, on their bits.
    And,
    /// `x | a`; of floats, on their bits.
    Or,
    /// `x ^ a`; of floats, on their bits.
    Xor,
    /// Writes `a` if `x` equals the comparand bit by bit.
    CompareSwap,
}

impl AtomicOp {
    /// All operations, indexed by their code in messages.
    pub const ALL: [Self; 11] = [
        Self::Get,
        Self::Set,
        Self::Add,
        Self::Sub,
        Self::Mult,
        Self::Min,
        Self::Max,
        Self::And,
        Self::Or,
        Self::Xor,
        Self::CompareSwap,
    ];

    /// Returns whether the operation computes or compares, and thus depends on more of the type
    /// than its size.
    pub const fn is_arithmetic(self) -> bool {
        matches!(
            self,
            Self::Add | Self::Sub | Self::Mult | Self::Min | Self::Max
        )
    }
}

/// An atomic on one number. See [`super::Ni::atomic`].
///
/// Values travel as `u64`; 32-bit types use the low half.
#[derive(Debug, Clone, Copy)]
pub struct Atomic {
    /// The operation.
    pub op: AtomicOp,
    /// The number's type.
    pub ty: AtomicType,
    /// The operand `a`.
    pub operand: u64,
    /// The comparand of [`AtomicOp::CompareSwap`].
    pub comparand: u64,
    /// Whether to return the old value.
    pub fetch: bool,
    /// The target.
    pub target: Rank,
    /// The target's portal table index.
    pub index: PtIndex,
    /// Match bits, which select the entry.
    pub match_bits: u64,
    /// The number's offset within the entry's memory, which must be a multiple of its size.
    pub remote_offset: u64,
    /// The queue for the event.
    pub eq: super::EqId,
    /// The initiator's name for the operation.
    pub token: u64,
}
