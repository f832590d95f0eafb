//! The credit byte.

use std::fmt;

/// The maximum code of the extra credits that one message can ask for or grant (3 bits).
pub const MAX_EXTRA: u8 = 7;

/// The maximum number of credits that one message can use or give back (4 bits).
pub const MAX_CREDITS: u8 = 15;

/// The byte that requests and replies carry: `EXXXNNNN`.
///
/// | bits | in a request | in a reply |
/// |---|---|---|
/// | `E` | whether the sender has ended an epoch | whether the sender has ended an epoch |
/// | `XXX` | the code of the extra credits wanted | the code of the extra credits granted |
/// | `NNNN` | the number of credits used | the number of credits given back |
///
/// Every value is a valid credit byte.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CreditByte(u8);

const _: () = assert!(size_of::<CreditByte>() == 1);

impl CreditByte {
    const END: u8 = 0x80;

    /// Creates a credit byte from the low three bits of `extra` and the low four bits of `credits`.
    #[inline]
    #[must_use]
    pub const fn new(end_of_epoch: bool, extra: u8, credits: u8) -> CreditByte {
        debug_assert!(extra <= MAX_EXTRA && credits <= MAX_CREDITS);
        CreditByte((end_of_epoch as u8) << 7 | (extra & MAX_EXTRA) << 4 | credits & MAX_CREDITS)
    }

    /// Decodes a byte from the wire.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u8) -> CreditByte {
        CreditByte(bits)
    }

    /// Encodes the byte for the wire.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether the sender has ended an epoch.
    #[inline]
    #[must_use]
    pub const fn end_of_epoch(self) -> bool {
        self.0 & CreditByte::END != 0
    }

    /// Returns the code of the extra credits wanted or granted, at most [`MAX_EXTRA`].
    /// [`Tuning::credits`](crate::Tuning::credits) says how many credits it stands for.
    #[inline]
    #[must_use]
    pub const fn extra(self) -> u8 {
        self.0 >> 4 & MAX_EXTRA
    }

    /// Returns the number of credits used or given back, at most [`MAX_CREDITS`].
    #[inline]
    #[must_use]
    pub const fn credits(self) -> u8 {
        self.0 & MAX_CREDITS
    }

    /// Returns whether the byte contains nothing but the number of credits used or given back.
    #[inline]
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.0 <= MAX_CREDITS
    }
}

impl fmt::Debug for CreditByte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreditByte")
            .field("end_of_epoch", &self.end_of_epoch())
            .field("extra", &self.extra())
            .field("credits", &self.credits())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_its_three_fields() {
        for bits in 0..=u8::MAX {
            let byte = CreditByte::from_bits(bits);
            assert_eq!(
                CreditByte::new(byte.end_of_epoch(), byte.extra(), byte.credits()),
                byte
            );
            assert_eq!(byte.bits(), bits);
            assert_eq!(byte.is_plain(), !byte.end_of_epoch() && byte.extra() == 0);
        }
    }

    #[test]
    fn the_fields_lie_where_the_scheme_puts_them() {
        assert_eq!(CreditByte::new(true, 0, 0).bits(), 0b1000_0000);
        assert_eq!(CreditByte::new(false, 5, 0).bits(), 0b0101_0000);
        assert_eq!(CreditByte::new(false, 0, 9).bits(), 0b0000_1001);
    }
}
