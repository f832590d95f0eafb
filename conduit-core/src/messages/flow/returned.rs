//! The credits that a peer has returned, as a running count that the requester reads.

/// A running count of a peer's returns in a single word: credits (24 bits), requests (24), and the
/// number of those requests whose reply announces the end of an epoch (16). All fields wrap. A rank
/// never has enough requests outstanding to wrap a field between two readings, so the difference of
/// two counts is what was returned in between.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Returned(u64);

impl Returned {
    /// The number of bits of the credit count, and of the request count.
    const BITS: u32 = 24;

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// Adds requests and credits.
    #[inline]
    pub(crate) fn add(self, requests: u32, credits: u32) -> Self {
        let count = u64::from(requests) << Self::BITS | u64::from(credits);
        self.and(Self(count))
    }

    /// Adds a reply that announces the end of an epoch.
    #[inline]
    pub(crate) fn add_epoch(self) -> Self {
        self.and(Self(1 << (2 * Self::BITS)))
    }

    /// Returns the sum. Carries into the next field cancel out in the difference of two counts.
    #[inline]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// Returns what was returned between `earlier` and now.
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

/// The returns between two counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Since {
    pub(crate) credits: u32,
    pub(crate) requests: u32,
    pub(crate) epochs: u32,
}
