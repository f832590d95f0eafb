//! The operations, and the results of submitting them.

use super::{MdId, PtIndex, Rank};

/// The result of a submission. Having to retry is a result, not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Submit {
    /// The operation was accepted. The requested events will be raised, or have been raised
    /// already.
    Posted,
    /// There was no room, and nothing happened. The caller must poll and submit again.
    Again,
}

/// The completion event that a put raises at its initiator.
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
    /// The descriptor of the source.
    pub md: MdId,
    /// The offset of the first byte in the descriptor's memory.
    pub local_offset: usize,
    /// The length in bytes. The maximum is [`super::Reach::max_message`], or
    /// [`super::Reach::max_managed`] for a put to a managed entry.
    pub length: usize,
    /// The completion event at the initiator.
    pub ack: Ack,
    /// The target.
    pub target: Rank,
    /// The target's portal table index.
    pub index: PtIndex,
    /// Match bits, which select the entry and carry further data.
    pub match_bits: u64,
    /// The offset of the first byte in the entry's memory. Managed entries ignore it.
    pub remote_offset: u64,
    /// 64 bits that the event at the target carries.
    pub hdr_data: u64,
    /// The initiator's name for the operation.
    pub token: u64,
}

/// A put whose bytes are given in two pieces and are copied before the call returns. See
/// [`super::Ni::inject`].
///
/// The order of the fields keeps `match_bits` and `hdr_data` apart. The compiler would read
/// adjacent words of eight bytes as a single value of sixteen. That read would have to wait until
/// both words, which have just been written, have left the processor's store buffer.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Inject<'a> {
    /// Match bits, which select the entry and carry further data.
    pub match_bits: u64,
    /// The first piece. Unless the second piece is empty, the length must be a multiple of 16
    /// bytes, so that the second piece is aligned.
    pub head: &'a [u8],
    /// 64 bits that the event at the target carries.
    pub hdr_data: u64,
    /// The second piece.
    pub body: &'a [u8],
    /// The target.
    pub target: Rank,
    /// The target's portal table index.
    pub index: PtIndex,
    /// Whether the message expects a reply or is a reply.
    pub exchange: Exchange,
}

/// Whether a short message is a request that expects a short reply, or is that reply. A network may
/// let the request and the reply share memory. This is a hint: every message arrives, whatever the
/// hint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// The message is neither, as far as is known. Such a message is often one of many.
    OneWay,
    /// The target will probably send a message of a few bytes, [`Self::IsReply`], while it handles
    /// this message.
    ExpectsReply,
    /// The message goes to the source of the message that is being delivered at the moment.
    IsReply,
}

/// A get. See [`super::Ni::get`].
#[derive(Debug, Clone, Copy)]
pub struct Get {
    /// The descriptor of the destination.
    pub md: MdId,
    /// The offset of the first byte in the descriptor's memory.
    pub local_offset: usize,
    /// The length in bytes, at most [`super::Reach::max_message`].
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

/// The type of the number on which an atomic operates. Integers wrap on overflow. Floats are
/// transmitted as their bits, and [`AtomicOp::CompareSwap`] compares their bits.
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

    /// Returns the size of the number in bytes, which is also its alignment.
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

    /// Returns the negation of `value`. Adding the negation is the same as subtracting `value`.
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

/// The function that an atomic computes from the old value `x` and its operand `a`.
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
    /// The smaller in the type's order: `x` if `x < a`, otherwise `a` (also if floats are
    /// unordered).
    Min,
    /// The larger in the type's order: `x` if `x > a`, otherwise `a` (also if floats are
    /// unordered).
    Max,
    /// `x & a`. For floats, the operation is on their bits.
    And,
    /// `x | a`. For floats, the operation is on their bits.
    Or,
    /// `x ^ a`. For floats, the operation is on their bits.
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

    /// Returns whether the operation computes or compares, so that its result depends on more of
    /// the type than the size.
    pub const fn is_arithmetic(self) -> bool {
        matches!(
            self,
            Self::Add | Self::Sub | Self::Mult | Self::Min | Self::Max
        )
    }
}

/// An atomic on one number. See [`super::Ni::atomic`].
///
/// Values are transmitted as `u64`. Types of 32 bits use the low half.
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
    /// The queue to which the completion event goes.
    pub eq: super::EqId,
    /// The initiator's name for the operation.
    pub token: u64,
}
