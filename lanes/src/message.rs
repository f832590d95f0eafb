//! The messages that ranks exchange about lanes, and their encoding.

use crate::Weight;

/// A message about a lane.
///
/// Every exchange has a *generation*, a number that its initiator picks and uses once. A message
/// with an old generation belongs to a finished exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Message {
    /// Says that the sender has a free slot for a lane with the receiver, and asks for one at the
    /// receiver. Used only if lanes cost both ends.
    Ask {
        /// The generation of this exchange.
        generation: u32,
        /// The traffic between the two ranks, as seen by the sender.
        weight: Weight,
    },
    /// Offers a lane to the receiver.
    Offer {
        /// The generation of this exchange, which is that of the ask or, without an ask, a new one.
        generation: u32,
        /// The lane's slot at the sender.
        slot: u16,
        /// The lane's size.
        size: u32,
    },
    /// Accepts the receiver's offer. From now on the sender may use the lane.
    Taken {
        /// The generation of the offer.
        generation: u32,
    },
    /// Denies the receiver's ask or offer.
    Denied {
        /// The generation of the ask or offer.
        generation: u32,
        /// The weight that would have sufficed, or 0 if the weight is not the reason.
        price: Weight,
        /// The number of rounds in which asking again would be pointless.
        rest: u16,
    },
    /// Asks the receiver to give the lane back.
    Recall {
        /// The generation of the lane.
        generation: u32,
    },
    /// Gives the lane back. Nothing that the sender sent is left in it.
    Returned {
        /// The generation of the lane.
        generation: u32,
    },
}

/// The length of the longest message in bytes.
pub const MAX_LENGTH: usize = 12;

/// A malformed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The kind is unknown.
    #[error("lane message has kind {0}, must be from 1 to 6")]
    LaneKind(u8),
    /// The length does not fit the kind.
    #[error("lane message has {found} bytes, its kind has {expected}")]
    Length {
        /// The length found, in bytes.
        found: usize,
        /// The length that the kind requires, in bytes.
        expected: usize,
    },
    /// A reserved byte is not 0.
    #[error("lane message has nonzero reserved bytes")]
    Reserved,
}

/// The bytes of an encoded message.
#[derive(Clone, Copy, Debug)]
pub struct Encoded {
    bytes: [u8; MAX_LENGTH],
    length: usize,
}

impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Message {
    /// Returns the message's generation.
    #[must_use]
    pub fn generation(self) -> u32 {
        match self {
            Self::Ask { generation, .. }
            | Self::Offer { generation, .. }
            | Self::Taken { generation }
            | Self::Denied { generation, .. }
            | Self::Recall { generation }
            | Self::Returned { generation } => generation,
        }
    }

    /// Returns whether the message is addressed to the lane's owner, given that one end owns it.
    #[must_use]
    pub fn is_for_owner(self) -> bool {
        matches!(
            self,
            Self::Taken { .. } | Self::Denied { .. } | Self::Returned { .. }
        )
    }

    /// Encodes the message as its kind, a 0, a small number, the generation and a large number.
    /// Kinds without a large number omit it. All numbers are little-endian.
    #[must_use]
    pub fn encode(self) -> Encoded {
        let (kind, small, large) = match self {
            Self::Ask { weight, .. } => (1, 0, weight),
            Self::Offer { slot, size, .. } => (2, slot, size),
            Self::Taken { .. } => (3, 0, 0),
            Self::Denied { price, rest, .. } => (4, rest, price),
            Self::Recall { .. } => (5, 0, 0),
            Self::Returned { .. } => (6, 0, 0),
        };
        let mut bytes = [0; MAX_LENGTH];
        bytes[0] = kind;
        bytes[2..4].copy_from_slice(&small.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.generation().to_le_bytes());
        bytes[8..12].copy_from_slice(&large.to_le_bytes());
        let length = length(kind);
        Encoded { bytes, length }
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// Returns an error if the bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let kind = bytes.first().copied().unwrap_or(0);
        if !(1..=6).contains(&kind) {
            return Err(DecodeError::LaneKind(kind));
        }
        let expected = length(kind);
        if bytes.len() != expected {
            return Err(DecodeError::Length {
                found: bytes.len(),
                expected,
            });
        }
        let mut all = [0; MAX_LENGTH];
        all[..expected].copy_from_slice(bytes);
        let [_, reserved, s0, s1, g0, g1, g2, g3, l0, l1, l2, l3] = all;
        let small = u16::from_le_bytes([s0, s1]);
        let generation = u32::from_le_bytes([g0, g1, g2, g3]);
        let large = u32::from_le_bytes([l0, l1, l2, l3]);
        let has_small = matches!(kind, 2 | 4);
        if reserved != 0 || (small != 0 && !has_small) {
            return Err(DecodeError::Reserved);
        }
        Ok(match kind {
            1 => Self::Ask {
                generation,
                weight: large,
            },
            2 => Self::Offer {
                generation,
                slot: small,
                size: large,
            },
            3 => Self::Taken { generation },
            4 => Self::Denied {
                generation,
                price: large,
                rest: small,
            },
            5 => Self::Recall { generation },
            _ => Self::Returned { generation },
        })
    }
}

fn length(kind: u8) -> usize {
    match kind {
        1 | 2 | 4 => 12,
        _ => 8,
    }
}
