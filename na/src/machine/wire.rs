//! Headers of NA's fragments. All integers are little-endian.
//!
//! ```text
//! unexpected  1 | context 1 | tag 4                                          | message
//! expected    2 | context 1 | sender's context 1 | tag 4                     | message
//! credits     3 | number of credits 4
//! put         4 | operation 8 | memory 12 | offset 8                         | bytes
//! put copy    5 | operation 8 | memory 12 | offset 8 | address 8 | length 4
//! get         6 | operation 8 | memory 12 | offset 8 | position 8 | length 4
//! get copy    7 | operation 8 | memory 12 | offset 8 | address 8 | length 4
//! reply       8 | operation 8 | position 8 | last 1                          | bytes
//! done        9 | operation 8 | status 1
//! may copy   10
//! ```
//!
//! The field `memory` consists of the memory's index (4 bytes) and key (8 bytes), and `offset` is
//! relative to the beginning of the memory. Put, put copy, get and get copy are requests. Each
//! request is answered once, by `done` or by the last `reply`. A copy is performed by the target,
//! which has access to the memory of the initiator's process at the given address. A process that
//! has such access announces it with `may copy` before it sends anything else in a session.

/// The maximum length of a header in bytes.
pub(crate) const MAX: usize = 41;
const _: () = assert!(MAX <= conduit_portals::transport::fragment::MAX_HEADER);

/// The identity of a process's registered memory; see [`super::memory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryKey {
    pub(crate) index: u32,
    /// The key, which is random, so that no handle of earlier memory or of another process's memory
    /// matches.
    pub(crate) key: u64,
}

/// The fields that all requests for a transfer share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// The initiator's operation.
    pub(crate) operation: u64,
    pub(crate) memory: MemoryKey,
    /// The offset in the target's memory.
    pub(crate) offset: u64,
}

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    Done = 0,
    NoSuchMemory = 1,
    NotReadable = 2,
    NotWritable = 3,
    OutOfBounds = 4,
    Fault = 5,
}

impl Status {
    fn from_byte(byte: u8) -> Option<Self> {
        use Status::*;
        let all = [
            Done,
            NoSuchMemory,
            NotReadable,
            NotWritable,
            OutOfBounds,
            Fault,
        ];
        all.get(usize::from(byte)).copied()
    }
}

/// A fragment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    Unexpected {
        context: u8,
        tag: u32,
    },
    Expected {
        context: u8,
        from: u8,
        tag: u32,
    },
    Credits(u32),
    Put(Request),
    PutCopy {
        request: Request,
        address: u64,
        length: u32,
    },
    Get {
        request: Request,
        position: u64,
        length: u32,
    },
    GetCopy {
        request: Request,
        address: u64,
        length: u32,
    },
    Reply {
        operation: u64,
        position: u64,
        last: bool,
    },
    Done {
        operation: u64,
        status: Status,
    },
    MayCopy,
}

/// An encoded header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoded {
    bytes: [u8; MAX],
    length: usize,
}

impl std::ops::Deref for Encoded {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Encoded {
    fn of(kind: u8) -> Self {
        let mut encoded = Self {
            bytes: [0; MAX],
            length: 1,
        };
        encoded.bytes[0] = kind;
        encoded
    }
    fn put<const N: usize>(mut self, bytes: [u8; N]) -> Self {
        self.bytes[self.length..][..N].copy_from_slice(&bytes);
        self.length += N;
        self
    }
    fn u8(self, value: u8) -> Self {
        self.put([value])
    }
    fn u32(self, value: u32) -> Self {
        self.put(value.to_le_bytes())
    }
    fn u64(self, value: u64) -> Self {
        self.put(value.to_le_bytes())
    }
    fn request(self, request: &Request) -> Self {
        self.u64(request.operation)
            .u32(request.memory.index)
            .u64(request.memory.key)
            .u64(request.offset)
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }
    fn u8(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    fn request(&mut self) -> Option<Request> {
        Some(Request {
            operation: self.u64()?,
            memory: MemoryKey {
                index: self.u32()?,
                key: self.u64()?,
            },
            offset: self.u64()?,
        })
    }
}

impl Header {
    pub(crate) fn encode(&self) -> Encoded {
        match self {
            Self::Unexpected { context, tag } => Encoded::of(1).u8(*context).u32(*tag),
            Self::Expected { context, from, tag } => {
                Encoded::of(2).u8(*context).u8(*from).u32(*tag)
            }
            Self::Credits(count) => Encoded::of(3).u32(*count),
            Self::Put(request) => Encoded::of(4).request(request),
            Self::PutCopy {
                request,
                address,
                length,
            } => Encoded::of(5).request(request).u64(*address).u32(*length),
            Self::Get {
                request,
                position,
                length,
            } => Encoded::of(6).request(request).u64(*position).u32(*length),
            Self::GetCopy {
                request,
                address,
                length,
            } => Encoded::of(7).request(request).u64(*address).u32(*length),
            Self::Reply {
                operation,
                position,
                last,
            } => Encoded::of(8)
                .u64(*operation)
                .u64(*position)
                .u8(u8::from(*last)),
            Self::Done { operation, status } => Encoded::of(9).u64(*operation).u8(*status as u8),
            Self::MayCopy => Encoded::of(10),
        }
    }

    /// Decodes a header. Returns `None` if it is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let header = match reader.u8()? {
            1 => Self::Unexpected {
                context: reader.u8()?,
                tag: reader.u32()?,
            },
            2 => Self::Expected {
                context: reader.u8()?,
                from: reader.u8()?,
                tag: reader.u32()?,
            },
            3 => Self::Credits(reader.u32()?),
            4 => Self::Put(reader.request()?),
            5 => Self::PutCopy {
                request: reader.request()?,
                address: reader.u64()?,
                length: reader.u32()?,
            },
            6 => Self::Get {
                request: reader.request()?,
                position: reader.u64()?,
                length: reader.u32()?,
            },
            7 => Self::GetCopy {
                request: reader.request()?,
                address: reader.u64()?,
                length: reader.u32()?,
            },
            8 => Self::Reply {
                operation: reader.u64()?,
                position: reader.u64()?,
                last: match reader.u8()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                },
            },
            9 => Self::Done {
                operation: reader.u64()?,
                status: Status::from_byte(reader.u8()?)?,
            },
            10 => Self::MayCopy,
            _ => return None,
        };
        reader.0.is_empty().then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request() -> impl Strategy<Value = Request> {
        (any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>()).prop_map(
            |(operation, index, key, offset)| Request {
                operation,
                memory: MemoryKey { index, key },
                offset,
            },
        )
    }

    fn header() -> impl Strategy<Value = Header> {
        let copy = || (request(), any::<u64>(), any::<u32>());
        prop_oneof![
            (any::<u8>(), any::<u32>())
                .prop_map(|(context, tag)| Header::Unexpected { context, tag }),
            (any::<u8>(), any::<u8>(), any::<u32>())
                .prop_map(|(context, from, tag)| Header::Expected { context, from, tag }),
            Just(Header::MayCopy),
            any::<u32>().prop_map(Header::Credits),
            request().prop_map(Header::Put),
            copy().prop_map(|(request, address, length)| Header::PutCopy {
                request,
                address,
                length
            }),
            copy().prop_map(|(request, position, length)| Header::Get {
                request,
                position,
                length
            }),
            copy().prop_map(|(request, address, length)| Header::GetCopy {
                request,
                address,
                length
            }),
            (any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(operation, position, last)| {
                Header::Reply {
                    operation,
                    position,
                    last,
                }
            }),
            (any::<u64>(), 0u8..6).prop_map(|(operation, status)| Header::Done {
                operation,
                status: Status::from_byte(status).unwrap_or(Status::Fault)
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(header in header()) {
            let bytes = header.encode();
            prop_assert_eq!(Header::decode(&bytes), Some(header));
            for cut in 0..bytes.len() {
                prop_assert_eq!(Header::decode(&bytes[..cut]), None);
            }
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(header) = Header::decode(&bytes) {
                prop_assert_eq!(&*header.encode(), &bytes[..]);
            }
        }
    }
}
