//! The messages of a handshake. All numbers are little-endian, and each field is followed by its
//! length in bytes:
//!
//! ```text
//! HELLO      kind 1 | version 1 | offer | zeros, so that no CHALLENGE is longer | MAC 16
//! CHALLENGE  kind 1 | version 1 | initiator's number 4 | nonce 16 | incarnation 8 | share 32 | cookie 40 | MAC 16
//! CONFIRM    kind 1 | version 1 | offer | incarnation 8 | share 32 | cookie 40 | MAC 16
//! ACCEPT     kind 1 | version 1 | initiator's number 4 | nonce 16 | number 4 | attempts 8 | MAC 16
//!
//! offer      number 4 | incarnation 8 | attempt 8 | nonce 16 | share 32 | own address 1 + n | peer's address 1 + n
//! cookie     time step 8 | nonce 16 | MAC 16
//! ```

use seal::SESSION_TAG;

/// The first byte of a HELLO. Frames must not begin with the first byte of any handshake message.
pub(super) const HELLO: u8 = 0xf1;
/// The first byte of a CHALLENGE.
pub(super) const CHALLENGE: u8 = 0xf2;
/// The first byte of a CONFIRM.
pub(super) const CONFIRM: u8 = 0xf3;
/// The first byte of an ACCEPT.
pub(super) const ACCEPT: u8 = 0xf4;
/// The second byte of every message, which is the protocol's version.
pub(super) const VERSION: u8 = 1;
/// The length of the MAC at the end of every message.
pub(super) const TAG: usize = SESSION_TAG;
/// The length of a CHALLENGE, which is the minimum length of a HELLO.
pub(super) const CHALLENGE_LENGTH: usize = 2 + 4 + 16 + 8 + 32 + Cookie::LENGTH + TAG;

/// The maximum length of an address in a message.
pub(super) const MAX_ADDRESS: usize = 255;

/// Reads the fields of a message in order.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    fn address(&mut self) -> Option<&'a [u8]> {
        let [length] = self.take()?;
        let (address, rest) = self.0.split_at_checked(length.into())?;
        self.0 = rest;
        Some(address)
    }
}

/// The initiator's offer, which a HELLO contains and a CONFIRM repeats.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer<'a> {
    /// The number that the initiator assigned to the responder.
    pub(super) number: u32,
    pub(super) incarnation: u64,
    pub(super) attempt: u64,
    pub(super) nonce: [u8; 16],
    pub(super) share: [u8; 32],
    /// The initiator's address.
    pub(super) from: &'a [u8],
    /// The responder's address.
    pub(super) to: &'a [u8],
    /// The whole offer, as it is transmitted.
    pub(super) bytes: &'a [u8],
}

impl<'a> Offer<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let all = reader.0;
        let mut offer = Self {
            number: reader.u32()?,
            incarnation: reader.u64()?,
            attempt: reader.u64()?,
            nonce: reader.take()?,
            share: reader.take()?,
            from: reader.address()?,
            to: reader.address()?,
            bytes: all,
        };
        offer.bytes = &all[..all.len() - reader.0.len()];
        Some(offer)
    }

    /// Writes the offer. Ignores `self.bytes`.
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        into.extend(self.number.to_le_bytes());
        into.extend(self.incarnation.to_le_bytes());
        into.extend(self.attempt.to_le_bytes());
        into.extend(self.nonce);
        into.extend(self.share);
        for address in [self.from, self.to] {
            // The cast is lossless, because an address has at most `MAX_ADDRESS` bytes.
            into.push(address.len() as u8);
            into.extend(address);
        }
    }
}

/// A cookie, with which the initiator proves to the responder that it has received the CHALLENGE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cookie {
    pub(super) step: u64,
    /// The responder's nonce.
    pub(super) nonce: [u8; 16],
    pub(super) tag: [u8; 16],
}

impl Cookie {
    const LENGTH: usize = 40;

    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            step: reader.u64()?,
            nonce: reader.take()?,
            tag: reader.take()?,
        })
    }

    pub(super) fn write(&self, into: &mut Vec<u8>) {
        into.extend(self.step.to_le_bytes());
        into.extend(self.nonce);
        into.extend(self.tag);
    }
}

/// Returns whether a message may belong to a handshake.
pub(crate) fn is_handshake(message: &[u8]) -> bool {
    matches!(message, [HELLO..=ACCEPT, VERSION, ..])
}
