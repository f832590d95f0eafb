//! The kind of a message: the properties that follow from all its match bits except those of the
//! chunk. They are computed only when the kind changes, because consecutive messages are usually of
//! the same kind.

use am::{Category, Flags, Header, HeaderError, Layout, NO_CHUNK, NO_LID, Role, Token};

use crate::ni::{PutEvent, Rank};

/// The properties that all messages of one kind share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageKind {
    bits: u32,
    role: Role,
    pub(crate) flags: Flags,
    pub(crate) category: Category,
    /// The id of the handler.
    pub(crate) id: u8,
    pub(crate) layout: Layout,
}

/// Returns the match bits that determine the kind. These are all bits except those of the chunk.
#[inline(always)]
fn kind_bits(match_bits: u64) -> u32 {
    match_bits as u32
}

impl MessageKind {
    /// Returns a kind that no message has, because match bits of 0 do not belong to any active
    /// message.
    pub(crate) fn none() -> Self {
        let header = Header {
            flags: Flags::SHORT,
            handler: 0,
            nargs: 0,
            credit: 0,
            chunk: NO_CHUNK,
            arg0: 0,
            lid: NO_LID,
        };
        Self::of(0, &header).unwrap_or_else(|_| unreachable!("a short without arguments is one"))
    }

    pub(crate) fn of(match_bits: u64, header: &Header) -> Result<Self, HeaderError> {
        Ok(Self {
            bits: kind_bits(match_bits),
            role: header.role(),
            flags: header.flags,
            category: header.category(),
            id: header.handler,
            layout: Layout::of(header)?,
        })
    }

    #[inline(always)]
    pub(crate) fn is_of(&self, match_bits: u64) -> bool {
        self.bits == kind_bits(match_bits)
    }

    /// Returns the token of a message of this kind.
    #[inline(always)]
    pub(crate) fn token(&self, source: Rank, put: &PutEvent<'_>) -> Token {
        Token {
            source,
            chunk: Header::chunk_in(put.match_bits),
            replied: false.into(),
            credit: Header::credit_in(put.hdr_data),
            flags: self.flags,
            role: self.role,
        }
    }
}
