//! The header of an AM, which consists of 64 match bits and 64 bits of header data.
//!
//! | word | bits | field |
//! |---|---|---|
//! | match bits | 0..4 | selector ([`select`](crate::select)) |
//! | | 4..8 | operation ([`op`](crate::op)) |
//! | | 8..16 | [`Flags`] |
//! | | 16..24 | handler |
//! | | 24..32 | argument count |
//! | | 32..64 | chunk |
//! | header data | 0..32 | the argument, if there is only one |
//! | | 32..40 | credit byte |
//! | | 40..64 | LID |
//!
//! The match bits are those of the original conduit. In the header data, the LID takes the place of
//! the original's second argument, so that all categories use one layout.

use crate::{Category, Flags, MAX_ARGS, Role, op};

/// The value of [`Header::chunk`] in a message with [`Flags::NO_CHUNK`].
pub const NO_CHUNK: u32 = u32::MAX;

/// The LID in a message that needs none.
pub const NO_LID: u32 = 0;

/// The number of bits of a LID.
pub const LID_BITS: u32 = 24;

/// The mask of the bits that a LID may use.
pub const LID_MASK: u32 = (1 << LID_BITS) - 1;

/// The header of an AM on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The category, the role, and the way in which the data travels.
    pub flags: Flags,
    /// The handler to run at the receiver. Ignored in an implied reply.
    pub handler: u8,
    /// The number of arguments, at most [`MAX_ARGS`].
    pub nargs: u8,
    /// The credit byte as encoded by the flow control.
    pub credit: u8,
    /// The offset of the requester's chunk, in units of 64 bytes. In a request, this is the chunk
    /// to which the reply must go. In a reply, it is the chunk to which this reply was written. If
    /// [`Flags::NO_CHUNK`] is set, the value is irrelevant, and [`NO_CHUNK`] by convention.
    pub chunk: u32,
    /// The argument, if there is only one. If there are several, all of them are in the body, and
    /// this field is irrelevant. By convention it is then one of them, or 0.
    pub arg0: u32,
    /// The LID that pairs a long with its separate data: 24 bits, or [`NO_LID`] if there is none.
    pub lid: u32,
}

const _: () = assert!(size_of::<Header>() == 16);

/// The reason why a received message is not a valid AM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The match bits contain a different operation.
    #[error("match bits hold operation {found:#x}, expected {expected:#x}")]
    Operation {
        /// The operation in the match bits.
        found: u8,
        /// The operation that this decoder expects.
        expected: u8,
    },
    /// The flags contradict each other.
    #[error("active message with contradictory flags {bits:#04x}")]
    Flags {
        /// The flag byte.
        bits: u8,
    },
    /// The message has more than [`MAX_ARGS`] arguments.
    #[error("active message with {nargs} arguments; at most {MAX_ARGS} are allowed")]
    TooManyArgs {
        /// The number of arguments.
        nargs: u8,
    },
    /// A long with separate data lacks the LID that pairs it with its data.
    #[error("long with separate data has no LID")]
    NoLid,
    /// The body ends before the arguments or the descriptor of a long do.
    #[error("active message with a body of {length} bytes; its header requires at least {needed}")]
    BodyTooShort {
        /// The length of the body in bytes.
        length: usize,
        /// The minimum length for the number of arguments and the category.
        needed: usize,
    },
    /// The body is not aligned to 4 bytes, which is the network's fault.
    #[error("active message with a body that is not aligned to 4 bytes")]
    Misaligned,
    /// A packed long announces more data than it carries.
    #[error("packed long announces {length} bytes but carries {carried}")]
    PayloadTooShort {
        /// The length in the descriptor, in bytes.
        length: u64,
        /// The number of bytes after the descriptor.
        carried: usize,
    },
}

impl Header {
    /// Returns the match bits and the header data of this AM. `select` identifies the memory
    /// descriptor to which the AM goes.
    ///
    /// Uses only the low four bits of `select` and the low 24 bits of the LID.
    #[inline]
    #[must_use]
    pub const fn encode(&self, select: u8) -> (u64, u64) {
        debug_assert!(self.lid & !LID_MASK == 0);
        let match_bits = (select & 0xF) as u64
            | (op::AM as u64) << 4
            | (self.flags.bits() as u64) << 8
            | (self.handler as u64) << 16
            | (self.nargs as u64) << 24
            | (self.chunk as u64) << 32;
        let hdr_data = self.arg0 as u64 | (self.credit as u64) << 32 | (self.lid as u64) << 40;
        (match_bits, hdr_data)
    }

    /// Decodes the header in these words. Ignores the selector, which the network has already
    /// matched.
    ///
    /// # Errors
    /// If the words are not those of an AM, its flags contradict each other, it has too many
    /// arguments, or it lacks a LID that it needs.
    // Always inlined, because a header that is returned through memory is written byte by byte and
    // read back as words, which stalls the processor.
    #[inline(always)]
    pub const fn decode(match_bits: u64, hdr_data: u64) -> Result<Header, HeaderError> {
        let header = Header {
            flags: Flags::from_bits_retain((match_bits >> 8) as u8),
            handler: (match_bits >> 16) as u8,
            nargs: (match_bits >> 24) as u8,
            chunk: Header::chunk_in(match_bits),
            arg0: Header::arg0_in(hdr_data),
            credit: Header::credit_in(hdr_data),
            lid: (hdr_data >> 40) as u32,
        };
        // The valid case takes a single test. `why_not` determines off the hot path which rule was
        // violated.
        if op::of(match_bits) == op::AM
            && header.flags.is_valid()
            && header.nargs as usize <= MAX_ARGS
            && (!header.flags.has_separate_data() || header.lid != NO_LID)
        {
            Ok(header)
        } else {
            Err(header.why_not(op::of(match_bits)))
        }
    }

    /// Returns [`arg0`](Header::arg0) from header data.
    #[inline]
    #[must_use]
    pub const fn arg0_in(hdr_data: u64) -> u32 {
        hdr_data as u32
    }

    /// Returns [`chunk`](Header::chunk) from match bits.
    #[inline]
    #[must_use]
    pub const fn chunk_in(match_bits: u64) -> u32 {
        (match_bits >> 32) as u32
    }

    /// Returns [`credit`](Header::credit) from header data.
    #[inline]
    #[must_use]
    pub const fn credit_in(hdr_data: u64) -> u8 {
        (hdr_data >> 32) as u8
    }

    #[cold]
    const fn why_not(&self, op: u8) -> HeaderError {
        if op != op::AM {
            HeaderError::Operation {
                found: op,
                expected: op::AM,
            }
        } else if !self.flags.is_valid() {
            HeaderError::Flags {
                bits: self.flags.bits(),
            }
        } else if self.nargs as usize > MAX_ARGS {
            HeaderError::TooManyArgs { nargs: self.nargs }
        } else {
            HeaderError::NoLid
        }
    }

    /// Returns the category: short, medium or long.
    #[inline]
    #[must_use]
    pub const fn category(&self) -> Category {
        self.flags.category()
    }

    /// Returns the role: request or reply.
    #[inline]
    #[must_use]
    pub const fn role(&self) -> Role {
        self.flags.role()
    }
}

/// The header of a long's data that travels separately from the long's [`Header`].
///
/// It uses the same words as [`Header`], and the same fields as far as they apply. All other bits
/// are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// Request or reply.
    pub role: Role,
    /// The LID that pairs the data with the long's header. It has 24 bits and is not 0.
    pub lid: u32,
}

impl DataHeader {
    /// Returns the match bits and the header data. `select` identifies the memory descriptor to
    /// which the data goes (RARAM for requests, RARSRC for replies).
    #[inline]
    #[must_use]
    pub const fn encode(&self, select: u8) -> (u64, u64) {
        debug_assert!(self.lid != NO_LID && self.lid & !LID_MASK == 0);
        let flags = Flags::of(Category::Long, self.role);
        let match_bits =
            (select & 0xF) as u64 | (op::AM_DATA as u64) << 4 | (flags.bits() as u64) << 8;
        (match_bits, (self.lid as u64) << 40)
    }

    /// Decodes the header in these words.
    ///
    /// # Errors
    /// If the words are not those of a long's data, or contain no LID.
    #[inline]
    pub const fn decode(match_bits: u64, hdr_data: u64) -> Result<DataHeader, HeaderError> {
        let flags = Flags::from_bits_retain((match_bits >> 8) as u8);
        let lid = (hdr_data >> 40) as u32;
        if op::of(match_bits) != op::AM_DATA {
            return Err(HeaderError::Operation {
                found: op::of(match_bits),
                expected: op::AM_DATA,
            });
        }
        if flags.difference(Flags::REQUEST).bits() != Flags::LONG.bits() {
            return Err(HeaderError::Flags { bits: flags.bits() });
        }
        if lid == NO_LID {
            return Err(HeaderError::NoLid);
        }
        Ok(DataHeader {
            role: flags.role(),
            lid,
        })
    }
}
