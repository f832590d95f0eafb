//! What a peer has given back, as a count that the requester reads.

/// A running count of what a peer has given back, in one word: credits (24 bits), requests (24),
/// and for how many of them the reply tells that the peer has ended an epoch (16). All wrap. A rank
/// never has as many requests outstanding, so the difference of two counts is what came between.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Returned(u64);

impl Returned {
    /// Bits of the count of credits, and of that of requests.
    const BITS: u32 = 24;

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// So many more.
    #[inline]
    pub(crate) fn add(self, requests: u32, credits: u32) -> Self {
        let count = u64::from(requests) << Self::BITS | u64::from(credits);
        self.and(Self(count))
    }

    /// A reply tells that the peer has ended an epoch.
    #[inline]
    pub(crate) fn add_epoch(self) -> Self {
        self.and(Self(1 << (2 * Self::BITS)))
    }

    /// Both. One sum: what a field carries into the next one, the difference of two counts takes
    /// out again.
    #[inline]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// What was given back between `earlier` and now.
    pub(crate) fn since(self, earlier: Self) -> Since {
        let difference = self.0.wrapping_sub(earlier.0);
        let field = |number| (difference >> (number * Self::BITS)) as u32 & ((1 << Self::BITS) - 1);
        Since {
            credits: field(0),
            requests: field(1),
            epochs: field(2),
        }
    }
}

/// What was given back between two counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Since {
    pub(crate) credits: u32,
    pub(crate) requests: u32,
    pub(crate) epochs: u32,
}
