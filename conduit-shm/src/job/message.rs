//! The format of a message in its slots.
//!
//! | byte | compact and full | full only |
//! |---|---|---|
//! | 0 | the ring's word u64: tag, and the [`Frame`]: slots and whether it is clean, kind, index | |
//! | 8 | length u32 | |
//! | 12 | source u32 | |
//! | 16 | match bits u64 | |
//! | 24 | header data u64 | |
//! | 32 | *payload of a compact put*, here or at 64 ([`before_payload`]) | remote offset u64 |
//! | 40 | | token u64 |
//! | 48 | | reference u64: an offset into the initiator's mapping |
//! | 56 | | md u32 |
//! | 60 | | piece u16 |
//! | 62 | | eq u8, flags u8 |
//! | 64 | | *payload* |
//!
//! | kind | uses |
//! |---|---|
//! | [`PUT_COMPACT`] | remote offset 0, no completion from the target |
//! | [`PUT_REPLY_SLOT`] | a compact put in one slot, into which the reply may be written |
//! | [`PUT`] | payload in the slots |
//! | [`PUT_REFERENCE`] | payload at the reference |
//! | [`GET`] | header data: offset within the initiator's descriptor; reference: where to write, unless [`REPLY_INLINE`] |
//! | [`ATOMIC`] | header data: operand; reference: comparand; md: operation and type |
//! | [`LANE`] | length, header data, remote offset: bytes of a message about lanes (`super::lanes`) |
//! | [`LANE_OPENED`] | header data: the generation of the lane through which the source continues |
//! | [`SEND`], [`ACK`], [`REPLY`] | index: outcome; match bits: old value of an atomic; header data, token, reference, md, piece, flags: those of the operation |
//!
//! Integers are in native byte order, because both ends are on the same host.

use std::mem::{offset_of, size_of};
use std::ptr;

use crate::ring::{Frame, SLOT};

pub(super) const PUT_COMPACT: u8 = 1;
pub(super) const PUT: u8 = 2;
pub(super) const PUT_REFERENCE: u8 = 3;
pub(super) const GET: u8 = 4;
pub(super) const ATOMIC: u8 = 5;
pub(super) const SEND: u8 = 6;
pub(super) const ACK: u8 = 7;
pub(super) const REPLY: u8 = 8;
pub(super) const PUT_REPLY_SLOT: u8 = 9;
pub(super) const LANE: u8 = 10;
pub(super) const LANE_OPENED: u8 = 11;

/// A flag that tells the target to post an [`ACK`].
pub(super) const WANT_ACK: u8 = 1;
/// A flag that tells the target to post a [`SEND`].
pub(super) const WANT_SEND: u8 = 2;
/// A flag that says that the reference is the offset of the initiator's staging piece with the
/// number `piece`.
pub(super) const STAGED: u8 = 4;
/// A flag that says that the get's data travel in the reply.
pub(super) const REPLY_INLINE: u8 = 8;
/// A flag that says that the initiator wants the atomic's old value.
pub(super) const FETCH: u8 = 16;

/// A number that stands for no memory descriptor.
pub(super) const NO_MD: u32 = u32::MAX;

/// The size in bytes of a compact message's header.
pub(super) const COMPACT: usize = 32;
/// The size in bytes of any other message's header, which precedes its payload.
pub(super) const FULL: usize = size_of::<Header>();

/// A full header. In a slot, the first eight bytes are the ring's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, align(64))]
pub(super) struct Header {
    pub(super) tag: u32,
    /// The frame with which the message is committed. [`Header::read`] leaves this field 0.
    pub(super) frame: Frame,
    pub(super) length: u32,
    pub(super) source: u32,
    pub(super) match_bits: u64,
    pub(super) hdr_data: u64,
    pub(super) remote_offset: u64,
    pub(super) token: u64,
    pub(super) reference: u64,
    pub(super) md: u32,
    pub(super) piece: u16,
    pub(super) eq: u8,
    pub(super) flags: u8,
}

/// The first half of a header, which is the whole header of a compact message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Compact {
    word: u64,
    pub(super) length: u32,
    pub(super) source: u32,
    pub(super) match_bits: u64,
    pub(super) hdr_data: u64,
}

/// The size in bytes of the ring's word.
const WORD: usize = 8;

const _: () = {
    assert!(size_of::<Compact>() == COMPACT && align_of::<Compact>() <= SLOT);
    assert!(offset_of!(Compact, length) == offset_of!(Header, length));
    assert!(offset_of!(Compact, hdr_data) == offset_of!(Header, hdr_data));
    assert!(size_of::<Header>() == SLOT);
    assert!(offset_of!(Header, length) == WORD && offset_of!(Header, remote_offset) == COMPACT);
};

/// Returns the number of slots that a message needs for `header` bytes followed by `payload` bytes.
#[inline]
pub(super) const fn slots_for(header: usize, payload: usize) -> u32 {
    (header + payload).div_ceil(SLOT) as u32
}

/// Returns the number of bytes that precede a payload of `payload` bytes in a compact message. A
/// payload that doesn't fit in the first slot begins in the second slot if the message needs no
/// additional slot for this, so that copies move whole cache lines. Otherwise, the payload begins
/// right after the header.
#[inline(always)]
pub(super) const fn before_payload(payload: usize) -> usize {
    if payload > SLOT - COMPACT && slots_for(SLOT, payload) == slots_for(COMPACT, payload) {
        SLOT
    } else {
        COMPACT
    }
}

impl Header {
    /// Writes the header except for the ring's word.
    ///
    /// # Safety
    /// `slot` must be the first slot of a reservation that belongs to the caller.
    #[inline]
    pub(super) unsafe fn write(&self, slot: *mut u8) {
        let from: *const u8 = ptr::from_ref(self).cast();
        // SAFETY: the 56 bytes lie within both the header and the slot. Only the caller uses the
        // slot until it commits.
        unsafe { ptr::copy_nonoverlapping(from.add(WORD), slot.add(WORD), FULL - WORD) }
    }

    /// Reads a full header. The ring's word is left 0.
    ///
    /// # Safety
    /// `slot` must be the first slot of a message that was found committed and is not yet released.
    #[inline]
    pub(super) unsafe fn read(slot: *const u8) -> Self {
        let mut header = Self::default();
        let to: *mut u8 = ptr::from_mut(&mut header).cast();
        // SAFETY: the 56 bytes lie within both the slot and the header, and every bit pattern is a
        // valid header. The slot is not written before its release: a message into whose slot a
        // reply may be written is read from a copy.
        unsafe { ptr::copy_nonoverlapping(slot.add(WORD), to.add(WORD), FULL - WORD) }
        header
    }

    /// Reads a compact header. The fields that only a full header has are left 0.
    ///
    /// # Safety
    /// Same as [`Self::read`].
    #[inline]
    pub(super) unsafe fn read_compact(slot: *const u8) -> Self {
        let mut header = Self::default();
        let to: *mut u8 = ptr::from_mut(&mut header).cast();
        // SAFETY: the 24 bytes lie within both the slot and the header, and every bit pattern is a
        // valid header. The slot is not written before its release: a message into whose slot a
        // reply may be written is read from a copy.
        unsafe { ptr::copy_nonoverlapping(slot.add(WORD), to.add(WORD), COMPACT - WORD) }
        header
    }
}

impl Compact {
    /// Returns whether both headers have the same length, source and match bits.
    #[inline(always)]
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.length, self.source, self.match_bits)
            == (other.length, other.source, other.match_bits)
    }

    /// Writes a compact header except for the ring's word.
    ///
    /// # Safety
    /// Same as [`Header::write`].
    #[inline(always)]
    pub(super) unsafe fn write(
        slot: *mut u8,
        length: u32,
        source: u32,
        match_bits: u64,
        hdr_data: u64,
    ) {
        let at: *mut Self = slot.cast();
        // SAFETY: the fields lie in the 24 bytes behind the ring's word, aligned and within the
        // slot. Only the caller uses the slot until it commits.
        unsafe {
            (&raw mut (*at).length).write(length);
            (&raw mut (*at).source).write(source);
            (&raw mut (*at).match_bits).write(match_bits);
            (&raw mut (*at).hdr_data).write(hdr_data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Slot([u8; SLOT]);

    #[test]
    fn a_header_survives_its_slot() {
        let header = Header {
            tag: 0,
            frame: Frame::default(),
            length: 1,
            source: 2,
            match_bits: 3,
            hdr_data: 4,
            remote_offset: 5,
            token: 6,
            reference: 7,
            md: 8,
            piece: 9,
            eq: 10,
            flags: 11,
        };
        let mut slot = Slot([0xff_u8; SLOT]);
        // SAFETY: the slot is a live local variable that only this test uses.
        let read = unsafe {
            header.write(slot.0.as_mut_ptr());
            Header::read(slot.0.as_ptr())
        };
        assert_eq!(read, header);
        assert_eq!(slot.0[..WORD], [0xff; WORD]);
        let mut slot = Slot([0xff_u8; SLOT]);
        // SAFETY: the slot is a live local variable that only this test uses.
        let read = unsafe {
            Compact::write(slot.0.as_mut_ptr(), 1, 2, 3, 4);
            Header::read_compact(slot.0.as_ptr())
        };
        let expected = Header {
            length: 1,
            source: 2,
            match_bits: 3,
            hdr_data: 4,
            ..Header::default()
        };
        assert_eq!(read, expected);
        assert_eq!(slot.0[..WORD], [0xff; WORD]);
        assert_eq!(slot.0[COMPACT..], [0xff; SLOT - COMPACT]);
    }
}
