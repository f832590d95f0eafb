//! What ranks say to each other about lanes, and its bytes.

use crate::Weight;

/// A message about a lane.
///
/// Every exchange has a *generation*, a number that whoever begins it takes and uses once. What
/// comes with another generation than the present one's is about an exchange that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Message {
    /// Where a lane costs both ends: its sender has a slot free for the receiver, and wants one
    /// there.
    Ask {
        /// Of this exchange.
        generation: u32,
        /// The traffic between the two, as the sender sees it.
        weight: Weight,
    },
    /// The receiver may have the lane.
    Offer {
        /// Of this exchange: a new one, or the ask's.
        generation: u32,
        /// The place of the lane at the sender.
        slot: u16,
        /// What the lane is worth.
        size: u32,
    },
    /// The receiver's offer is accepted; what comes next comes by the lane.
    Taken {
        /// The offer's.
        generation: u32,
    },
    /// The receiver's ask or offer is not accepted.
    Denied {
        /// The ask's or offer's.
        generation: u32,
        /// The weight that would have been enough; 0 if weight is not the reason.
        price: Weight,
        /// Rounds for which it is no use to come again.
        rest: u16,
    },
    /// The lane has to be given back.
    Recall {
        /// The lane's.
        generation: u32,
    },
    /// The lane was given back: the sender has nothing in it.
    Returned {
        /// The lane's.
        generation: u32,
    },
}

/// Bytes of the longest message.
pub const MAX_LENGTH: usize = 12;

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// There is no such kind.
    #[error("kind {0} of a message about a lane, there are 1 to 6")]
    LaneKind(u8),
    /// A message of another length.
    #[error("a message about a lane of {found} bytes, its kind has {expected}")]
    Length {
        /// Bytes that there are.
        found: usize,
        /// Bytes that there should be.
        expected: usize,
    },
    /// A byte that means nothing is not 0.
    #[error("reserved bytes of a message about a lane are not 0")]
    Reserved,
}

/// A message's bytes.
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
    /// The message's generation.
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

    /// Whether it is for the one who gives lanes, where that is one end alone.
    #[must_use]
    pub fn is_for_owner(self) -> bool {
        matches!(
            self,
            Self::Taken { .. } | Self::Denied { .. } | Self::Returned { .. }
        )
    }

    /// Its bytes: kind, 0, a small number, generation, a large number; what a kind does not have at
    /// the end is left out. All are little-endian.
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

    /// Reads a message.
    ///
    /// # Errors
    /// It is none.
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
