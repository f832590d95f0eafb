//! The headers of fragments. They are little-endian and have at most [`MAX_HEADER`] bytes.
//!
//! ```text
//! all            kind 1 | flags 1 | a 1 | b 1 | update: operations 2, units 2
//! PUT            a: index     match bits 8 | header data 8 | offset 8 | operation 4
//! SHORT_PUT      a: index     match bits 8 | header data 8
//! GET            a: index     match bits 8 | offset 8 | length 4 | operation 4
//! ATOMIC         a: index     match bits 8 | offset 8 | operand 8 | comparand 8 | operation 4
//!                b: operation and type, 4 bits each
//! RESPONSE       a: outcome   operation 4 | length 4 | value 8
//! REPLY          a: outcome   operation 4
//! WINDOW_UPDATE
//! LEAVE          a: 1 if unfinished
//! ADVERTISE      a: options   entry 4 | match bits 8 | ignore bits 8 | key 8 | address 8 | length 8
//! WITHDRAW       entry 4
//! WITHDRAWN      entry 4
//! LANE           a message of the crate `lanes`, 8 or 12
//! ```
//!
//! `update` is a window update ([`super::window`]) of the window whose number is in the upper half
//! of the flags. Only tiny fragments carry an update, because they arrive in order. An *operation*
//! is the initiator's id of an operation. The target does not interpret it, but returns it. An
//! *entry* ([`super::direct`]) is the target's id of a match entry, including its index.

use conduit_core::ni::{AtomicOp, AtomicType, MeId, MeOptions, Outcome, PtIndex, PutEvent, Rank};

use crate::matching::{atomic_code, atomic_of, outcome_code, outcome_of};
use crate::transport::fragment::MAX_HEADER;
use crate::transport::interface::Remote;

const PUT: u8 = 1;
const SHORT_PUT: u8 = 2;
const GET: u8 = 3;
const ATOMIC: u8 = 4;
const RESPONSE: u8 = 5;
const REPLY: u8 = 6;
const WINDOW_UPDATE: u8 = 7;
const LEAVE: u8 = 8;
const ADVERTISE: u8 = 9;
const WITHDRAW: u8 = 10;
const WITHDRAWN: u8 = 11;
const LANE: u8 = 12;

/// Flag: the header carries a window update.
const WITH_UPDATE: u8 = 1;
/// Position of the window's number in the flags.
const WINDOW_SHIFT: u32 = 4;
/// Flag: the initiator of a put requests a response.
const WANTED: u8 = 2;

/// Returns the length of a put's header in bytes. `full` must be set if the header has an offset or
/// an operation.
pub(crate) const fn put_header(full: bool) -> usize {
    if full { 36 } else { 24 }
}

/// A decoded header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    Put(Put),
    Get(Get),
    Atomic(Atomic),
    /// The outcome of a put or an atomic.
    Response {
        operation: u32,
        outcome: Outcome,
        length: u32,
        value: u64,
    },
    /// The outcome of a get, followed by its data.
    Reply {
        operation: u32,
        outcome: Outcome,
    },
    /// A header with nothing but the window update that any header may carry.
    WindowUpdate,
    /// The sender is about to end. Its silence is then not a failure, unless it owes a response.
    Leave(Left),
    /// An advertisement of an entry that the receiver may access directly.
    Advertise(Advertisement),
    /// A request that the receiver stop accessing this entry directly.
    Withdraw(MeId),
    /// The confirmation that the sender has stopped accessing this entry directly.
    Withdrawn(MeId),
    /// A message about a wide window.
    Lane(::lanes::Message),
}

/// The way in which a rank leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// The rank leaves together with all other ranks, so no response from it is awaited any more.
    Finished,
    /// The rank leaves alone, so other ranks may still await a response from it.
    Unfinished,
}

/// An entry that a peer may access directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Advertisement {
    pub(crate) entry: MeId,
    /// The permitted operations among puts, gets and atomics.
    pub(crate) options: MeOptions,
    pub(crate) match_bits: u64,
    pub(crate) ignore_bits: u64,
    /// The address of the entry's first byte.
    pub(crate) remote: Remote,
    /// The entry's length in bytes.
    pub(crate) length: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Put {
    pub(crate) index: u8,
    pub(crate) match_bits: u64,
    pub(crate) hdr_data: u64,
    pub(crate) offset: u64,
    /// The initiator's id, if it requests a response.
    pub(crate) operation: Option<u32>,
}

impl Put {
    /// Returns the event, without data, of an entry with this tag that took `length` of the
    /// `requested` bytes at this offset.
    #[inline(always)]
    pub(crate) fn event(
        &self,
        source: Rank,
        (tag, offset): (u64, u64),
        length: usize,
        requested: usize,
    ) -> PutEvent<'static> {
        PutEvent {
            index: PtIndex(self.index),
            tag,
            source,
            match_bits: self.match_bits,
            hdr_data: self.hdr_data,
            offset,
            length,
            requested,
            data: &[],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Get {
    pub(crate) index: u8,
    pub(crate) match_bits: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) operation: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Atomic {
    pub(crate) index: u8,
    pub(crate) op: AtomicOp,
    pub(crate) ty: AtomicType,
    pub(crate) match_bits: u64,
    pub(crate) offset: u64,
    pub(crate) operand: u64,
    pub(crate) comparand: u64,
    pub(crate) operation: u32,
}

/// The number of operations and the number of 64-byte units counted in a [window](super::window).
/// Both counters wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WindowCount {
    pub(crate) operations: u16,
    pub(crate) units: u16,
}

/// The number of operations and units in one of the receiver's windows that the sender has consumed
/// since start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowUpdate {
    pub(crate) window: u8,
    pub(crate) consumed: WindowCount,
}

/// An encoded header.
#[derive(Debug)]
pub(crate) struct Bytes {
    bytes: [u8; MAX_HEADER],
    length: usize,
}

impl Bytes {
    #[inline]
    fn new(kind: u8, flags: u8, a: u8, b: u8, update: Option<WindowUpdate>) -> Self {
        let mut new = Self {
            bytes: [0; MAX_HEADER],
            length: 0,
        };
        let (flags, consumed) = match update {
            Some(WindowUpdate { window, consumed }) => {
                (flags | WITH_UPDATE | window << WINDOW_SHIFT, consumed)
            }
            None => (flags, WindowCount::default()),
        };
        new.push([kind, flags, a, b]);
        new.push(consumed.operations.to_le_bytes());
        new.push(consumed.units.to_le_bytes());
        new
    }

    /// Creates a header whose only field is an entry.
    fn of_entry(kind: u8, entry: MeId, update: Option<WindowUpdate>) -> Self {
        let mut new = Self::new(kind, 0, 0, 0, update);
        new.push(entry.0.to_le_bytes());
        new
    }

    /// Appends a field. All fields of a header together have at most [`MAX_HEADER`] bytes.
    #[inline]
    fn push<const N: usize>(&mut self, piece: [u8; N]) {
        if let Some(place) = self.bytes.get_mut(self.length..self.length + N) {
            place.copy_from_slice(&piece);
            self.length += N;
        }
    }

    /// Appends the bytes that follow the fields.
    fn extend(&mut self, rest: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.length..self.length + rest.len()) {
            place.copy_from_slice(rest);
            self.length += rest.len();
        }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Reads fields one after the other.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    #[inline]
    fn next<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }
    #[inline]
    fn u16(&mut self) -> Option<u16> {
        self.next().map(u16::from_le_bytes)
    }
    #[inline]
    fn u32(&mut self) -> Option<u32> {
        self.next().map(u32::from_le_bytes)
    }
    #[inline]
    fn u64(&mut self) -> Option<u64> {
        self.next().map(u64::from_le_bytes)
    }
}

/// Length of a short put's header in bytes.
pub(crate) const SHORT_HEADER: usize = put_header(false);

/// Does the same as [`Header::encode`] for a put without offset and response, which most fragments
/// are.
#[inline(always)]
pub(crate) fn encode_short(
    index: u8,
    match_bits: u64,
    hdr_data: u64,
    update: WindowUpdate,
) -> [u8; SHORT_HEADER] {
    let WindowUpdate { window, consumed } = update;
    let flags = WITH_UPDATE | window << WINDOW_SHIFT;
    // The fields are combined into a 64-bit value, so that a single store writes them.
    let first = u64::from(SHORT_PUT)
        | u64::from(flags) << 8
        | u64::from(index) << 16
        | u64::from(consumed.operations) << 32
        | u64::from(consumed.units) << 48;
    let mut bytes = [0; SHORT_HEADER];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..16].copy_from_slice(&match_bits.to_le_bytes());
    bytes[16..].copy_from_slice(&hdr_data.to_le_bytes());
    bytes
}

impl Header {
    /// Encodes a header; `update` may be given only for tiny fragments.
    #[inline]
    pub(crate) fn encode(&self, update: Option<WindowUpdate>) -> Bytes {
        match *self {
            Self::Put(put) => {
                if put.offset == 0 && put.operation.is_none() {
                    let mut bytes = Bytes::new(SHORT_PUT, 0, put.index, 0, update);
                    bytes.push(put.match_bits.to_le_bytes());
                    bytes.push(put.hdr_data.to_le_bytes());
                    return bytes;
                }
                let flags = if put.operation.is_some() { WANTED } else { 0 };
                let mut bytes = Bytes::new(PUT, flags, put.index, 0, update);
                bytes.push(put.match_bits.to_le_bytes());
                bytes.push(put.hdr_data.to_le_bytes());
                bytes.push(put.offset.to_le_bytes());
                bytes.push(put.operation.unwrap_or_default().to_le_bytes());
                bytes
            }
            Self::Get(get) => {
                let mut bytes = Bytes::new(GET, 0, get.index, 0, update);
                bytes.push(get.match_bits.to_le_bytes());
                bytes.push(get.offset.to_le_bytes());
                bytes.push(get.length.to_le_bytes());
                bytes.push(get.operation.to_le_bytes());
                bytes
            }
            Self::Atomic(atomic) => {
                // The code holds the operation in one byte and the type in another; both are less
                // than 16.
                let code = atomic_code(atomic.op, atomic.ty);
                let what = (code >> 4 | code & 15) as u8;
                let mut bytes = Bytes::new(ATOMIC, 0, atomic.index, what, update);
                bytes.push(atomic.match_bits.to_le_bytes());
                bytes.push(atomic.offset.to_le_bytes());
                bytes.push(atomic.operand.to_le_bytes());
                bytes.push(atomic.comparand.to_le_bytes());
                bytes.push(atomic.operation.to_le_bytes());
                bytes
            }
            Self::Response {
                operation,
                outcome,
                length,
                value,
            } => {
                let mut bytes = Bytes::new(RESPONSE, 0, outcome_code(outcome), 0, update);
                bytes.push(operation.to_le_bytes());
                bytes.push(length.to_le_bytes());
                bytes.push(value.to_le_bytes());
                bytes
            }
            Self::Reply { operation, outcome } => {
                let mut bytes = Bytes::new(REPLY, 0, outcome_code(outcome), 0, update);
                bytes.push(operation.to_le_bytes());
                bytes
            }
            Self::WindowUpdate => Bytes::new(WINDOW_UPDATE, 0, 0, 0, update),
            Self::Leave(left) => Bytes::new(LEAVE, 0, (left == Left::Unfinished).into(), 0, update),
            Self::Advertise(direct) => {
                let mut bytes = Bytes::new(ADVERTISE, 0, direct.options.bits(), 0, update);
                bytes.push(direct.entry.0.to_le_bytes());
                bytes.push(direct.match_bits.to_le_bytes());
                bytes.push(direct.ignore_bits.to_le_bytes());
                bytes.push(direct.remote.key.to_le_bytes());
                bytes.push(direct.remote.address.to_le_bytes());
                bytes.push(direct.length.to_le_bytes());
                bytes
            }
            Self::Withdraw(entry) => Bytes::of_entry(WITHDRAW, entry, update),
            Self::Withdrawn(entry) => Bytes::of_entry(WITHDRAWN, entry, update),
            Self::Lane(message) => {
                let mut bytes = Bytes::new(LANE, 0, 0, 0, update);
                bytes.extend(message.encode().as_ref());
                bytes
            }
        }
    }

    /// Does the same as [`Header::decode`] for a short put with a window update, which most
    /// fragments are. Returns `None` for all other fragments.
    #[inline(always)]
    pub(crate) fn decode_short(bytes: &[u8]) -> Option<(Put, WindowUpdate)> {
        let (word, bytes) = bytes.split_first_chunk()?;
        let word = u64::from_le_bytes(*word);
        let (kind, flags, index) = (word as u8, (word >> 8) as u8, (word >> 16) as u8);
        let (match_bits, bytes) = bytes.split_first_chunk()?;
        let hdr_data = bytes.try_into().ok()?;
        if kind != SHORT_PUT || flags & WITH_UPDATE == 0 {
            return None;
        }
        let put = Put {
            index,
            match_bits: u64::from_le_bytes(*match_bits),
            hdr_data: u64::from_le_bytes(hdr_data),
            offset: 0,
            operation: None,
        };
        let update = WindowUpdate {
            window: flags >> WINDOW_SHIFT,
            consumed: WindowCount {
                operations: (word >> 32) as u16,
                units: (word >> 48) as u16,
            },
        };
        Some((put, update))
    }

    /// Decodes a header; returns `None` if it is malformed.
    #[inline]
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, Option<WindowUpdate>)> {
        let mut reader = Reader(bytes);
        let [kind, flags, a, b] = reader.next()?;
        let (operations, units) = (reader.u16()?, reader.u16()?);
        let wanted = flags & WANTED != 0;
        let update = (flags & WITH_UPDATE != 0).then_some(WindowUpdate {
            window: flags >> WINDOW_SHIFT,
            consumed: WindowCount { operations, units },
        });
        let header = match kind {
            SHORT_PUT => Self::Put(Put {
                index: a,
                match_bits: reader.u64()?,
                hdr_data: reader.u64()?,
                offset: 0,
                operation: None,
            }),
            PUT => Self::Put(Put {
                index: a,
                match_bits: reader.u64()?,
                hdr_data: reader.u64()?,
                offset: reader.u64()?,
                operation: Some(reader.u32()?).filter(|_| wanted),
            }),
            GET => Self::Get(Get {
                index: a,
                match_bits: reader.u64()?,
                offset: reader.u64()?,
                length: reader.u32()?,
                operation: reader.u32()?,
            }),
            ATOMIC => {
                let (op, ty) = atomic_of(u32::from(b >> 4) << 8 | u32::from(b & 15))?;
                Self::Atomic(Atomic {
                    index: a,
                    op,
                    ty,
                    match_bits: reader.u64()?,
                    offset: reader.u64()?,
                    operand: reader.u64()?,
                    comparand: reader.u64()?,
                    operation: reader.u32()?,
                })
            }
            RESPONSE => Self::Response {
                outcome: outcome_of(a)?,
                operation: reader.u32()?,
                length: reader.u32()?,
                value: reader.u64()?,
            },
            REPLY => Self::Reply {
                outcome: outcome_of(a)?,
                operation: reader.u32()?,
            },
            WINDOW_UPDATE => Self::WindowUpdate,
            LEAVE if a == 0 => Self::Leave(Left::Finished),
            LEAVE => Self::Leave(Left::Unfinished),
            ADVERTISE => Self::Advertise(Advertisement {
                entry: MeId(reader.u32()?),
                options: MeOptions::from_bits(a)?,
                match_bits: reader.u64()?,
                ignore_bits: reader.u64()?,
                remote: Remote {
                    key: reader.u64()?,
                    address: reader.u64()?,
                },
                length: reader.u64()?,
            }),
            WITHDRAW => Self::Withdraw(MeId(reader.u32()?)),
            WITHDRAWN => Self::Withdrawn(MeId(reader.u32()?)),
            LANE => {
                let message = ::lanes::Message::decode(std::mem::take(&mut reader.0)).ok()?;
                Self::Lane(message)
            }
            _ => return None,
        };
        reader.0.is_empty().then_some((header, update))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outcome() -> impl Strategy<Value = Outcome> {
        prop_oneof![
            Just(Outcome::Done),
            Just(Outcome::NoMatch),
            Just(Outcome::OutOfRange)
        ]
    }

    fn what() -> impl Strategy<Value = (AtomicOp, AtomicType)> {
        (0_u32..11, 0_u32..6).prop_map(|(op, ty)| atomic_of(op << 8 | ty).unwrap())
    }

    fn header() -> impl Strategy<Value = Header> {
        let word = any::<u64>;
        let put = (any::<u8>(), word(), word(), word(), any::<Option<u32>>());
        let get = (any::<u8>(), word(), word(), any::<u32>(), any::<u32>());
        let atomic = (
            any::<u8>(),
            what(),
            [word(), word(), word(), word()],
            any::<u32>(),
        );
        prop_oneof![
            put.prop_map(|(index, match_bits, hdr_data, offset, operation)| {
                // An offset of zero makes about half of the puts short.
                let offset = if offset % 2 == 0 { 0 } else { offset };
                Header::Put(Put {
                    index,
                    match_bits,
                    hdr_data,
                    offset,
                    operation,
                })
            }),
            get.prop_map(|(index, match_bits, offset, length, operation)| {
                Header::Get(Get {
                    index,
                    match_bits,
                    offset,
                    length,
                    operation,
                })
            }),
            atomic.prop_map(|(index, (op, ty), words, operation)| {
                let [match_bits, offset, operand, comparand] = words;
                Header::Atomic(Atomic {
                    index,
                    op,
                    ty,
                    match_bits,
                    offset,
                    operand,
                    comparand,
                    operation,
                })
            }),
            (any::<u32>(), outcome(), any::<u32>(), word()).prop_map(
                |(operation, outcome, length, value)| Header::Response {
                    operation,
                    outcome,
                    length,
                    value,
                }
            ),
            (any::<u32>(), outcome())
                .prop_map(|(operation, outcome)| Header::Reply { operation, outcome }),
            Just(Header::WindowUpdate),
            Just(Header::Leave(Left::Finished)),
            Just(Header::Leave(Left::Unfinished)),
            (any::<u32>(), 0_u8..64, prop::array::uniform5(word())).prop_map(
                |(entry, options, words)| {
                    let [match_bits, ignore_bits, key, address, length] = words;
                    Header::Advertise(Advertisement {
                        entry: MeId(entry),
                        options: MeOptions::from_bits(options).unwrap(),
                        match_bits,
                        ignore_bits,
                        remote: Remote { key, address },
                        length,
                    })
                }
            ),
            any::<u32>().prop_map(|entry| Header::Withdraw(MeId(entry))),
            any::<u32>().prop_map(|entry| Header::Withdrawn(MeId(entry))),
            (any::<u32>(), any::<u16>(), any::<u32>()).prop_map(|(generation, slot, size)| {
                Header::Lane(::lanes::Message::Offer {
                    generation,
                    slot,
                    size,
                })
            }),
            any::<u32>()
                .prop_map(|generation| { Header::Lane(::lanes::Message::Returned { generation }) }),
        ]
    }

    proptest! {
        #[test]
        fn decoding_inverts_encoding(header in header(), update in any::<Option<(u8, u16, u16)>>()) {
            let update = update.map(|(window, operations, units)| WindowUpdate {
                window: window % 16,
                consumed: WindowCount { operations, units },
            });
            let bytes = header.encode(update);
            prop_assert_eq!(Header::decode(bytes.as_slice()), Some((header, update)));
            let short = match header {
                Header::Put(put) => update.filter(|_| put.offset == 0 && put.operation.is_none()).map(|update| (put, update)),
                _ => None,
            };
            prop_assert_eq!(Header::decode_short(bytes.as_slice()), short);
            if let Some((put, update)) = short {
                prop_assert_eq!(&encode_short(put.index, put.match_bits, put.hdr_data, update)[..], bytes.as_slice());
            }
            if let Header::Put(put) = header {
                let full = put.offset != 0 || put.operation.is_some();
                prop_assert_eq!(bytes.as_slice().len(), put_header(full));
            }
            for cut in 0..bytes.as_slice().len() {
                prop_assert_eq!(Header::decode(&bytes.as_slice()[..cut]), None);
            }
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some((put, update)) = Header::decode_short(&bytes) {
                prop_assert_eq!(Header::decode(&bytes), Some((Header::Put(put), Some(update))));
            }
            if let Some((header, update)) = Header::decode(&bytes) {
                let again = header.encode(update);
                prop_assert_eq!(Header::decode(again.as_slice()), Some((header, update)));
            }
        }
    }
}
