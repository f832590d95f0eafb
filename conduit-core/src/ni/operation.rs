//! Operations and the answers to their submission.

use super::{MdId, PtIndex, Rank};

/// The answer to a submission. Retrying is a status, not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Submit {
    /// Taken. The events asked for will come, perhaps they are there already.
    Posted,
    /// No room now, nothing happened: poll, then submit again.
    Again,
}

/// Which completion of a put is told to its initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// [`Event::Send`](super::Event::Send): the source may be reused; nothing is known of the
    /// target.
    Local,
    /// [`Event::Ack`](super::Event::Ack): the target has it, or has refused it. Implies the source
    /// may be reused.
    Remote,
}

/// A put. See [`super::Ni::put`].
#[derive(Debug, Clone, Copy)]
pub struct Put {
    /// The source's descriptor.
    pub md: MdId,
    /// First byte within it.
    pub local_offset: usize,
    /// Bytes, at most [`super::Reach::max_message`], or [`super::Reach::max_managed`] to a managed
    /// entry.
    pub length: usize,
    /// Which event tells the initiator.
    pub ack: Ack,
    /// The target.
    pub target: Rank,
    /// Its portal table index.
    pub index: PtIndex,
    /// Bits that select the entry and carry the rest.
    pub match_bits: u64,
    /// First byte within the entry's memory; ignored by managed entries.
    pub remote_offset: u64,
    /// 64 bits that reach the target's event.
    pub hdr_data: u64,
    /// The initiator's name for the operation.
    pub token: u64,
}

/// A put of bytes given in two pieces, copied before the call returns. See [`super::Ni::inject`].
///
/// In this order, with the two words apart: two of eight bytes side by side are read as one of
/// sixteen, which has to wait until both, written just before, have left the processor's store
/// buffer.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Inject<'a> {
    /// Bits that select the entry and carry the rest.
    pub match_bits: u64,
    /// First piece. A multiple of 16 bytes when the second is not empty, so that the second stays
    /// aligned.
    pub head: &'a [u8],
    /// 64 bits that reach the target's event.
    pub hdr_data: u64,
    /// Second piece.
    pub body: &'a [u8],
    /// The target.
    pub target: Rank,
    /// Its portal table index.
    pub index: PtIndex,
    /// Whether it expects a reply, or is one.
    pub exchange: Exchange,
}

/// Whether a short message is a request that expects a short reply, or that reply. A network may
/// let the two share memory. A hint: every message arrives whatever it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// Neither, as far as is known; often one of many.
    OneWay,
    /// The target is likely to send a message of a few bytes, [`Self::IsReply`], while it handles
    /// this one.
    ExpectsReply,
    /// It goes to the source of a message that is being delivered.
    IsReply,
}

/// A get. See [`super::Ni::get`].
#[derive(Debug, Clone, Copy)]
pub struct Get {
    /// The destination's descriptor.
    pub md: MdId,
    /// First byte within it.
    pub local_offset: usize,
    /// Bytes, at most [`super::Reach::max_message`].
    pub length: usize,
    /// The target.
    pub target: Rank,
    /// Its portal table index.
    pub index: PtIndex,
    /// Bits that select the entry and carry the rest.
    pub match_bits: u64,
    /// First byte within the entry's memory.
    pub remote_offset: u64,
    /// The initiator's name for the operation.
    pub token: u64,
}

/// The number that an atomic works on. Integers wrap; floats travel and compare for
/// [`AtomicOp::CompareSwap`] as their bits.
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
    /// All, each at the place that its code in messages names.
    pub const ALL: [Self; 6] = [
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F32,
        Self::F64,
    ];

    /// Bytes of the number, which is also its alignment.
    pub const fn size(self) -> usize {
        match self {
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// The unsigned integer of its size.
    pub const fn bits(self) -> Self {
        match self.size() {
            4 => Self::U32,
            _ => Self::U64,
        }
    }

    /// A value of this type with the other sign: a subtraction is the sum with it.
    pub const fn negated(self, value: u64) -> u64 {
        match self {
            Self::F32 => value ^ 1 << 31,
            Self::F64 => value ^ 1 << 63,
            _ => value.wrapping_neg(),
        }
    }

    /// Whether it is a float.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }
}

/// What an atomic does with the old value `x` and its operand `a`.
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
    /// The smaller, by the type's sign: `x` if `x < a`, else `a` (of floats that are not ordered,
    /// `a`).
    Min,
    /// The larger, by the type's sign: `x` if `x > a`, else `a`.
    Max,
    /// `x & a`; this and the next two work on a float's bits.
    And,
    /// `x | a`.
    Or,
    /// `x ^ a`.
    Xor,
    /// Writes `a` if `x` equals the comparand, bit by bit.
    CompareSwap,
}

impl AtomicOp {
    /// All, each at the place that its code in messages names.
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

    /// Whether it computes or compares, so that it depends on more of the type than its size.
    pub const fn is_arithmetic(self) -> bool {
        matches!(
            self,
            Self::Add | Self::Sub | Self::Mult | Self::Min | Self::Max
        )
    }
}

/// An atomic on one integer. See [`super::Ni::atomic`].
///
/// Values travel as `u64`; 32-bit types use the low half.
#[derive(Debug, Clone, Copy)]
pub struct Atomic {
    /// What to do.
    pub op: AtomicOp,
    /// On what.
    pub ty: AtomicType,
    /// The operand `a`.
    pub operand: u64,
    /// The comparand of [`AtomicOp::CompareSwap`].
    pub comparand: u64,
    /// Whether the old value is wanted.
    pub fetch: bool,
    /// The target.
    pub target: Rank,
    /// Its portal table index.
    pub index: PtIndex,
    /// Bits that select the entry.
    pub match_bits: u64,
    /// The integer's offset within the entry's memory, a multiple of its size.
    pub remote_offset: u64,
    /// The queue that the event goes to.
    pub eq: super::EqId,
    /// The initiator's name for the operation.
    pub token: u64,
}
