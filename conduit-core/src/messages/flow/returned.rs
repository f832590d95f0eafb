//! The running count of the credits that a peer has returned, which the requester reads.

/// A running count of a peer's returns in a single word: the number of credits (24 bits), the
/// number of requests (24 bits), and the number of these requests whose replies announce the end of
/// an epoch (16 bits). All fields wrap. A rank never has enough requests outstanding to wrap a
/// field between two readings, so the difference of two counts is the number returned in between.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Returned(u64);

impl Returned {
    /// The number of bits of the credit count, which is also that of the request count.
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

    /// Returns the sum. Carries into the next field cancel out when the difference of two counts is
    /// taken.
    #[inline]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// Returns the numbers returned between `earlier` and this count.
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

/// The numbers returned between two counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Since {
    pub(crate) credits: u32,
    pub(crate) requests: u32,
    pub(crate) epochs: u32,
}
