//! Records, which are the contents of a ring's slots.
//!
//! ```text
//! the ring's word | length: u32 | header | padding to a multiple of 8 | payload
//! ```
//!
//! The frame's `index` is the header's length.

use crate::ring::{Consumer, Frame, Producer, RingView, SLOT};
use conduit_portals::transport::fragment::MAX_HEADER;

/// The kind of a record that holds a whole fragment. The record's `length` is the length of the
/// payload.
pub(super) const WHOLE: u8 = 1;
/// The kind of a record that holds the header of a longer fragment. The record's `length` is the
/// length of the payload, which follows in chunks.
pub(super) const BEGIN: u8 = 2;
/// The kind of a record that holds the next part of the fragment that has begun. The record's
/// `length` is the length of this part.
pub(super) const CHUNK: u8 = 3;

/// The offset of `length` in the first slot.
const LENGTH: usize = 8;
/// The offset of the header in the first slot.
const HEADER: usize = 12;

const _: () = assert!(payload_offset(MAX_HEADER) <= 2 * SLOT && MAX_HEADER <= u8::MAX as usize);

/// Returns the payload's offset from the start of the first slot.
const fn payload_offset(header: usize) -> usize {
    (HEADER + header).next_multiple_of(8)
}

/// Returns the length of the longest payload of a record of `slots` slots.
pub(super) const fn room(slots: u32, header: usize) -> usize {
    slots as usize * SLOT - payload_offset(header)
}

/// Writes a record. `fill` writes the payload of `bytes` bytes. Returns `false` if there is no
/// room.
#[inline]
pub(super) fn write(
    ring: &Producer<RingView>,
    (kind, length): (u8, u32),
    header: &[u8],
    bytes: usize,
    fill: impl FnOnce(&mut [u8]),
) -> bool {
    let offset = payload_offset(header.len());
    let slots = (offset + bytes).div_ceil(SLOT) as u32;
    let Some(reserved) = ring.reserve(slots) else {
        return false;
    };
    let first = ring.slots().address(ring.slot(reserved));
    // SAFETY: the reserved slots follow one another from `first` and have room for the header and
    // the payload, from which `slots` was computed. Before the commit, the consumer reads at most
    // the slots' first words. The bytes are initialised, because a new file contains zeros.
    unsafe {
        first.add(LENGTH).cast::<u32>().write(length);
        header
            .as_ptr()
            .copy_to_nonoverlapping(first.add(HEADER), header.len());
        fill(std::slice::from_raw_parts_mut(first.add(offset), bytes));
    }
    ring.commit(reserved, Frame::new(slots as u16, kind, header.len() as u8));
    true
}

/// A record as its consumer sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) kind: u8,
    pub(super) length: u32,
    pub(super) header: &'a [u8],
    /// The payload, which is empty in a [`BEGIN`].
    pub(super) payload: &'a [u8],
}

/// Returns the record that the consumer has found, or `None` if it is malformed.
#[inline]
pub(super) fn read(ring: &Consumer<RingView>, slot: usize, frame: Frame) -> Option<Record<'_>> {
    let first = ring.slots().address(slot).cast_const();
    // SAFETY: the field lies in the first slot and is aligned. The field is read only once, because
    // the peer could change it.
    let length = unsafe { first.add(LENGTH).cast::<u32>().read_volatile() };
    let header = usize::from(frame.index);
    let offset = payload_offset(header);
    let bytes = match frame.kind {
        WHOLE | CHUNK => length as usize,
        BEGIN => 0,
        _ => return None,
    };
    let room = usize::from(frame.slots()) * SLOT;
    if header > MAX_HEADER || offset.checked_add(bytes).is_none_or(|end| end > room) {
        return None;
    }
    // SAFETY: the bytes lie within the record's slots. The consumer has checked that the slots lie
    // within the ring, and they are not released while the record is borrowed. The peer no longer
    // writes the slots unless it breaks the protocol, and in that case any bytes are valid.
    unsafe {
        Some(Record {
            kind: frame.kind,
            length,
            header: std::slice::from_raw_parts(first.add(HEADER), header),
            payload: std::slice::from_raw_parts(first.add(offset), bytes),
        })
    }
}
