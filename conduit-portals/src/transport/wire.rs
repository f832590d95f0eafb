//! The headers of fragments. Little-endian, at most [`MAX_HEADER`] bytes.
//!
//! ```text
//! all        kind 1 | flags 1 | a 1 | b 1 | taken: operations 2, units 2
//! PUT        a: index       match bits 8 | header data 8 | offset 8 | operation 4
//! SHORT_PUT  a: index       match bits 8 | header data 8
//! GET        a: index       match bits 8 | offset 8 | length 4 | operation 4
//! ATOMIC     a: index       match bits 8 | offset 8 | operand 8 | comparand 8 | operation 4      b: what
//! RESPONSE   a: outcome     operation 4 | length 4 | value 8
//! REPLY      a: outcome     operation 4
//! TAKEN, LEAVE
//! DIRECT     a: options     entry 4 | match bits 8 | ignore bits 8 | key 8 | address 8 | length 8
//! WITHDRAW   entry 4
//! WITHDRAWN  entry 4
//! ```
//!
//! `taken` is of the window whose number is in the upper half of the flags.
//!
//! An *operation* is its initiator's name for it; the target gives it back and does not look into it. What a target has *taken*
//! ([`super::window`]) is told in tiny fragments only: those arrive in order. An *entry* ([`super::direct`]) is the target's name
//! for one, index included.

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
const TAKEN: u8 = 7;
const LEAVE: u8 = 8;
const DIRECT: u8 = 9;
const WITHDRAW: u8 = 10;
const WITHDRAWN: u8 = 11;

/// The fields about what was taken mean something.
const WITH_TAKEN: u8 = 1;
/// Where the window's number begins.
const WINDOW_SHIFT: u32 = 4;
/// A put that is to be answered; an atomic whose old value is wanted.
const WANTED: u8 = 2;

/// Bytes of a put's header; `full` with an offset or an operation.
pub(crate) const fn put_header(full: bool) -> usize {
    if full { 36 } else { 24 }
}

/// What a fragment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    Put(Put),
    Get(Get),
    Atomic(Atomic),
    /// How a put or an atomic has ended.
    Response {
        operation: u32,
        outcome: Outcome,
        length: u32,
        value: u64,
    },
    /// A get's data follow.
    Reply {
        operation: u32,
        outcome: Outcome,
    },
    /// Nothing but what all headers have.
    Taken,
    /// The sender is about to end as it should: its silence is no failure.
    Leave,
    /// An entry that the receiver may reach directly.
    Direct(Direct),
    /// It may do so no longer.
    Withdraw(MeId),
    /// It does so no longer.
    Withdrawn(MeId),
}

/// An entry that a peer may reach directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Direct {
    pub(crate) entry: MeId,
    /// What may be done to it: puts, gets, atomics.
    pub(crate) options: MeOptions,
    pub(crate) match_bits: u64,
    pub(crate) ignore_bits: u64,
    /// Its first byte.
    pub(crate) remote: Remote,
    /// Its bytes.
    pub(crate) length: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Put {
    pub(crate) index: u8,
    pub(crate) match_bits: u64,
    pub(crate) hdr_data: u64,
    pub(crate) offset: u64,
    /// To be answered, if it is to be.
    pub(crate) operation: Option<u32>,
}

impl Put {
    /// What tells of it, its data left out, where an entry with this tag took so many of the bytes asked for at this offset.
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

/// What the sender has taken of the receiver's in one of the [windows](super::window).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Taken {
    pub(crate) operations: u16,
    pub(crate) units: u16,
}

/// The same, and in which window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) window: u8,
    pub(crate) taken: Taken,
}

/// A header as it travels.
#[derive(Debug)]
pub(crate) struct Bytes {
    bytes: [u8; MAX_HEADER],
    length: usize,
}

impl Bytes {
    #[inline]
    fn new(kind: u8, flags: u8, a: u8, b: u8, told: Option<Told>) -> Self {
        let mut new = Self {
            bytes: [0; MAX_HEADER],
            length: 0,
        };
        let (flags, taken) = match told {
            Some(Told { window, taken }) => (flags | WITH_TAKEN | window << WINDOW_SHIFT, taken),
            None => (flags, Taken::default()),
        };
        new.push([kind, flags, a, b]);
        new.push(taken.operations.to_le_bytes());
        new.push(taken.units.to_le_bytes());
        new
    }

    /// A header that names an entry only.
    fn of_entry(kind: u8, entry: MeId, told: Option<Told>) -> Self {
        let mut new = Self::new(kind, 0, 0, 0, told);
        new.push(entry.0.to_le_bytes());
        new
    }

    /// All pieces of a header together are less than [`MAX_HEADER`].
    #[inline]
    fn push<const N: usize>(&mut self, piece: [u8; N]) {
        if let Some(place) = self.bytes.get_mut(self.length..self.length + N) {
            place.copy_from_slice(&piece);
            self.length += N;
        }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Reads one field after the other.
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

/// Bytes of a short put's header.
pub(crate) const SHORT_HEADER: usize = put_header(false);

/// What [`Header::encode`] makes of a put without offset and answer, nearly all that is sent.
#[inline(always)]
pub(crate) fn encode_short(
    index: u8,
    match_bits: u64,
    hdr_data: u64,
    told: Told,
) -> [u8; SHORT_HEADER] {
    let Told { window, taken } = told;
    let flags = WITH_TAKEN | window << WINDOW_SHIFT;
    // Its bytes in a word: one store.
    let first = u64::from(SHORT_PUT)
        | u64::from(flags) << 8
        | u64::from(index) << 16
        | u64::from(taken.operations) << 32
        | u64::from(taken.units) << 48;
    let mut bytes = [0; SHORT_HEADER];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..16].copy_from_slice(&match_bits.to_le_bytes());
    bytes[16..].copy_from_slice(&hdr_data.to_le_bytes());
    bytes
}

impl Header {
    /// As it travels; `taken` in tiny fragments only.
    #[inline]
    pub(crate) fn encode(&self, taken: Option<Told>) -> Bytes {
        match *self {
            Self::Put(put) => {
                if put.offset == 0 && put.operation.is_none() {
                    let mut bytes = Bytes::new(SHORT_PUT, 0, put.index, 0, taken);
                    bytes.push(put.match_bits.to_le_bytes());
                    bytes.push(put.hdr_data.to_le_bytes());
                    return bytes;
                }
                let flags = if put.operation.is_some() { WANTED } else { 0 };
                let mut bytes = Bytes::new(PUT, flags, put.index, 0, taken);
                bytes.push(put.match_bits.to_le_bytes());
                bytes.push(put.hdr_data.to_le_bytes());
                bytes.push(put.offset.to_le_bytes());
                bytes.push(put.operation.unwrap_or_default().to_le_bytes());
                bytes
            }
            Self::Get(get) => {
                let mut bytes = Bytes::new(GET, 0, get.index, 0, taken);
                bytes.push(get.match_bits.to_le_bytes());
                bytes.push(get.offset.to_le_bytes());
                bytes.push(get.length.to_le_bytes());
                bytes.push(get.operation.to_le_bytes());
                bytes
            }
            Self::Atomic(atomic) => {
                // Operation in one byte, type in another, each less than 16.
                let code = atomic_code(atomic.op, atomic.ty);
                let what = (code >> 4 | code & 15) as u8;
                let mut bytes = Bytes::new(ATOMIC, 0, atomic.index, what, taken);
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
                let mut bytes = Bytes::new(RESPONSE, 0, outcome_code(outcome), 0, taken);
                bytes.push(operation.to_le_bytes());
                bytes.push(length.to_le_bytes());
                bytes.push(value.to_le_bytes());
                bytes
            }
            Self::Reply { operation, outcome } => {
                let mut bytes = Bytes::new(REPLY, 0, outcome_code(outcome), 0, taken);
                bytes.push(operation.to_le_bytes());
                bytes
            }
            Self::Taken => Bytes::new(TAKEN, 0, 0, 0, taken),
            Self::Leave => Bytes::new(LEAVE, 0, 0, 0, taken),
            Self::Direct(direct) => {
                let mut bytes = Bytes::new(DIRECT, 0, direct.options.bits(), 0, taken);
                bytes.push(direct.entry.0.to_le_bytes());
                bytes.push(direct.match_bits.to_le_bytes());
                bytes.push(direct.ignore_bits.to_le_bytes());
                bytes.push(direct.remote.key.to_le_bytes());
                bytes.push(direct.remote.address.to_le_bytes());
                bytes.push(direct.length.to_le_bytes());
                bytes
            }
            Self::Withdraw(entry) => Bytes::of_entry(WITHDRAW, entry, taken),
            Self::Withdrawn(entry) => Bytes::of_entry(WITHDRAWN, entry, taken),
        }
    }

    /// What [`Header::decode`] makes of a short put with what was taken, nearly all that arrives. `None`: it is something else, or
    /// nothing.
    #[inline(always)]
    pub(crate) fn decode_short(bytes: &[u8]) -> Option<(Put, Told)> {
        let (word, bytes) = bytes.split_first_chunk()?;
        let word = u64::from_le_bytes(*word);
        let (kind, flags, index) = (word as u8, (word >> 8) as u8, (word >> 16) as u8);
        let (match_bits, bytes) = bytes.split_first_chunk()?;
        let hdr_data = bytes.try_into().ok()?;
        if kind != SHORT_PUT || flags & WITH_TAKEN == 0 {
            return None;
        }
        let put = Put {
            index,
            match_bits: u64::from_le_bytes(*match_bits),
            hdr_data: u64::from_le_bytes(hdr_data),
            offset: 0,
            operation: None,
        };
        let told = Told {
            window: flags >> WINDOW_SHIFT,
            taken: Taken {
                operations: (word >> 32) as u16,
                units: (word >> 48) as u16,
            },
        };
        Some((put, told))
    }

    /// The inverse. `None`: no rank writes this.
    #[inline]
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, Option<Told>)> {
        let mut reader = Reader(bytes);
        let [kind, flags, a, b] = reader.next()?;
        let (operations, units) = (reader.u16()?, reader.u16()?);
        let wanted = flags & WANTED != 0;
        let taken = (flags & WITH_TAKEN != 0).then_some(Told {
            window: flags >> WINDOW_SHIFT,
            taken: Taken { operations, units },
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
            TAKEN => Self::Taken,
            LEAVE => Self::Leave,
            DIRECT => Self::Direct(Direct {
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
            _ => return None,
        };
        reader.0.is_empty().then_some((header, taken))
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
        (0_u32..11, 0_u32..4).prop_map(|(op, ty)| atomic_of(op << 8 | ty).unwrap())
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
                // Half of them short.
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
            Just(Header::Taken),
            Just(Header::Leave),
            (any::<u32>(), 0_u8..64, prop::array::uniform5(word())).prop_map(
                |(entry, options, words)| {
                    let [match_bits, ignore_bits, key, address, length] = words;
                    Header::Direct(Direct {
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
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(header in header(), taken in any::<Option<(u8, u16, u16)>>()) {
            let taken = taken.map(|(window, operations, units)| Told {
                window: window % 16,
                taken: Taken { operations, units },
            });
            let bytes = header.encode(taken);
            prop_assert_eq!(Header::decode(bytes.as_slice()), Some((header, taken)));
            let short = match header {
                Header::Put(put) => taken.filter(|_| put.offset == 0 && put.operation.is_none()).map(|told| (put, told)),
                _ => None,
            };
            prop_assert_eq!(Header::decode_short(bytes.as_slice()), short);
            if let Some((put, told)) = short {
                prop_assert_eq!(&encode_short(put.index, put.match_bits, put.hdr_data, told)[..], bytes.as_slice());
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
        fn anything_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some((put, told)) = Header::decode_short(&bytes) {
                prop_assert_eq!(Header::decode(&bytes), Some((Header::Put(put), Some(told))));
            }
            if let Some((header, taken)) = Header::decode(&bytes) {
                let again = header.encode(taken);
                prop_assert_eq!(Header::decode(again.as_slice()), Some((header, taken)));
            }
        }
    }
}
