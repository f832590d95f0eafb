//! The wire format between agents: fragments, and the entries that are packed into eager buffers.
//!
//! An entry is a header of 12 bytes, followed by eager data. The header consists of:
//!
//! ```text
//! 1 byte   type (the lowest 3 bits), protocol (2 bits), send-return mode (3 bits)
//! 2 bytes  length of the eager data in bytes
//! 1 byte   timeout
//! 8 bytes  port
//! ```
//!
//! All numbers are little-endian.

use credits::CreditByte;

use super::timeout::Timeout;
use crate::code::Code;
use crate::host::ReturnMode;

/// The size of an entry's header in bytes.
pub(crate) const HEADER: usize = 12;

/// The number of a port, a sequence of ordered operations on one channel: those of one send handle,
/// or the gets or the polls of one process.
pub(crate) type Port = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Protocol {
    SendMsg,
    GetMsg,
    Poll,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// An operation.
    Request,
    /// The first operation of its port, whose data begins with the channel's descriptor.
    Open,
    /// The result of an operation.
    Response,
    /// Cancels an operation, which must then be answered at once.
    Cancel,
    /// Closes a port.
    Close,
    /// Confirms a close: nothing that used the port before it is left.
    Closed,
}

/// An entry's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: FrameKind,
    pub(crate) protocol: Protocol,
    pub(crate) mode: ReturnMode,
    pub(crate) eager: u16,
    pub(crate) timeout: Timeout,
    pub(crate) port: Port,
}

impl Header {
    fn encode(&self) -> [u8; HEADER] {
        let kind = match self.kind {
            FrameKind::Request => 0,
            FrameKind::Open => 1,
            FrameKind::Response => 2,
            FrameKind::Cancel => 3,
            FrameKind::Close => 4,
            FrameKind::Closed => 5,
        };
        let protocol = match self.protocol {
            Protocol::SendMsg => 0,
            Protocol::GetMsg => 1,
            Protocol::Poll => 2,
        };
        let mode = match self.mode {
            ReturnMode::Immediately => 0,
            ReturnMode::Buffered => 1,
            ReturnMode::Deposited => 2,
            ReturnMode::Received => 3,
            ReturnMode::None => 4,
        };
        let mut bytes = [0; HEADER];
        bytes[0] = kind | protocol << 3 | mode << 5;
        bytes[1..3].copy_from_slice(&self.eager.to_le_bytes());
        bytes[3] = self.timeout.0;
        bytes[4..].copy_from_slice(&self.port.to_le_bytes());
        bytes
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let first = reader.u8()?;
        Some(Self {
            kind: match first & 7 {
                0 => FrameKind::Request,
                1 => FrameKind::Open,
                2 => FrameKind::Response,
                3 => FrameKind::Cancel,
                4 => FrameKind::Close,
                5 => FrameKind::Closed,
                _ => return None,
            },
            protocol: match first >> 3 & 3 {
                0 => Protocol::SendMsg,
                1 => Protocol::GetMsg,
                2 => Protocol::Poll,
                _ => return None,
            },
            mode: match first >> 5 {
                0 => ReturnMode::Immediately,
                1 => ReturnMode::Buffered,
                2 => ReturnMode::Deposited,
                3 => ReturnMode::Received,
                4 => ReturnMode::None,
                _ => return None,
            },
            eager: reader.u16()?,
            timeout: Timeout(reader.u8()?),
            port: reader.u64()?,
        })
    }
}

/// Where the bytes of a message to another agent are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// The bytes are in the entry.
    Eager(&'a [u8]),
    /// The bytes are at the sender's agent, from which they are pulled. `length` is the length of
    /// the message, `source` the number of its source there, and `name` the name by which the other
    /// agents of that node can import its memory.
    Bulk {
        length: u64,
        source: u32,
        name: Option<&'a [u8]>,
    },
}

/// A message in an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent<'a> {
    pub(crate) hints: u64,
    pub(crate) client: u64,
    pub(crate) content: Content<'a>,
}

/// An entry's eager data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    Request {
        /// The channel's descriptor, present in the first operation of a port.
        channel: Option<&'a [u8]>,
        /// The number of the expected response, if any.
        number: Option<u32>,
        what: What<'a>,
    },
    Response {
        number: u32,
        code: Code,
        answer: Answer<'a>,
    },
    Cancel {
        number: u32,
    },
    Close,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What<'a> {
    Send {
        destination: Option<&'a [u8]>,
        message: Sent<'a>,
    },
    Get,
    Poll {
        mask: u16,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    Nothing,
    Message(Sent<'a>),
    Value(u64),
}

const NUMBER: u8 = 1;
const ATTRIBUTES: u8 = 2;
const DESTINATION: u8 = 4;
const BULK: u8 = 8;
const NAME: u8 = 16;

/// The maximum number of bytes of an entry without descriptors and an eager message. They are the
/// header, the flags, the number, either a code or the lengths of two descriptors, the attributes
/// and a source. The name of a source's memory is not included.
pub(crate) const OVERHEAD: usize = HEADER + 1 + 4 + 4 + 16 + 12;

fn put_message(into: &mut Vec<u8>, flags: &mut u8, message: &Sent<'_>) {
    if message.hints != 0 || message.client != 0 {
        *flags |= ATTRIBUTES;
        into.extend(message.hints.to_le_bytes());
        into.extend(message.client.to_le_bytes());
    }
    match message.content {
        Content::Eager(bytes) => into.extend(bytes),
        Content::Bulk {
            length,
            source,
            name,
        } => {
            *flags |= BULK;
            into.extend(length.to_le_bytes());
            into.extend(source.to_le_bytes());
            if let Some(name) = name {
                *flags |= NAME;
                put_bytes(into, name);
            }
        }
    }
}

pub(crate) fn put_bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    // The cast is lossless: descriptors are short.
    into.extend((bytes.len() as u16).to_le_bytes());
    into.extend(bytes);
}

/// Appends an entry. The body determines the header's kind and its number of eager bytes.
pub(crate) fn append(
    into: &mut Vec<u8>,
    (protocol, mode, timeout, port): (Protocol, ReturnMode, Timeout, Port),
    body: &Body<'_>,
) {
    let start = into.len();
    into.extend([0; HEADER]);
    let kind = match body {
        Body::Request {
            channel,
            number,
            what,
        } => {
            if let Some(channel) = channel {
                put_bytes(into, channel);
            }
            let at = into.len();
            into.push(0);
            let mut flags = 0;
            if let Some(number) = number {
                flags |= NUMBER;
                into.extend(number.to_le_bytes());
            }
            match what {
                What::Send {
                    destination,
                    message,
                } => {
                    if let Some(destination) = destination {
                        flags |= DESTINATION;
                        put_bytes(into, destination);
                    }
                    put_message(into, &mut flags, message);
                }
                What::Get => {}
                What::Poll { mask } => into.extend(mask.to_le_bytes()),
            }
            into[at] = flags;
            match channel {
                Some(_) => FrameKind::Open,
                None => FrameKind::Request,
            }
        }
        Body::Response {
            number,
            code,
            answer,
        } => {
            into.extend(number.to_le_bytes());
            into.extend(code.0.to_le_bytes());
            match answer {
                Answer::Nothing => {}
                Answer::Message(message) => {
                    let at = into.len();
                    into.push(0);
                    let mut flags = 0;
                    put_message(into, &mut flags, message);
                    into[at] = flags;
                }
                Answer::Value(value) => into.extend(value.to_le_bytes()),
            }
            FrameKind::Response
        }
        Body::Cancel { number } => {
            into.extend(number.to_le_bytes());
            FrameKind::Cancel
        }
        Body::Close => FrameKind::Close,
        Body::Closed => FrameKind::Closed,
    };
    let header = Header {
        kind,
        protocol,
        mode,
        // The cast is lossless: an entry is shorter than a buffer.
        eager: (into.len() - start - HEADER) as u16,
        timeout,
        port,
    };
    into[start..][..HEADER].copy_from_slice(&header.encode());
}

/// Iterates over the entries of a buffer.
pub(crate) struct Entries<'a>(Reader<'a>);

impl<'a> Entries<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self(Reader(bytes))
    }
}

impl<'a> Iterator for Entries<'a> {
    /// An entry, or `None` if the rest of the buffer is malformed.
    type Item = Option<(Header, Body<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.0.is_empty() {
            return None;
        }
        let entry = entry(&mut self.0);
        if entry.is_none() {
            self.0.0 = &[];
        }
        Some(entry)
    }
}

fn entry<'a>(reader: &mut Reader<'a>) -> Option<(Header, Body<'a>)> {
    let header = Header::decode(reader)?;
    let mut data = Reader(reader.bytes(header.eager.into())?);
    let body = match header.kind {
        FrameKind::Request | FrameKind::Open => {
            let channel = match header.kind {
                FrameKind::Open => Some(data.counted()?),
                _ => None,
            };
            let flags = data.u8()?;
            let number = match flags & NUMBER {
                0 => None,
                _ => Some(data.u32()?),
            };
            let what = match header.protocol {
                Protocol::SendMsg => What::Send {
                    destination: match flags & DESTINATION {
                        0 => None,
                        _ => Some(data.counted()?),
                    },
                    message: data.message(flags)?,
                },
                Protocol::GetMsg => What::Get,
                Protocol::Poll => What::Poll { mask: data.u16()? },
            };
            // Gets and polls always expect a response.
            if number.is_none() && header.protocol != Protocol::SendMsg {
                return None;
            }
            Body::Request {
                channel,
                number,
                what,
            }
        }
        FrameKind::Response => Body::Response {
            number: data.u32()?,
            code: Code(data.u32()?),
            answer: match header.protocol {
                _ if data.0.is_empty() => Answer::Nothing,
                Protocol::SendMsg => return None,
                Protocol::GetMsg => {
                    let flags = data.u8()?;
                    Answer::Message(data.message(flags)?)
                }
                Protocol::Poll => Answer::Value(data.u64()?),
            },
        },
        FrameKind::Cancel => Body::Cancel {
            number: data.u32()?,
        },
        FrameKind::Close => Body::Close,
        FrameKind::Closed => Body::Closed,
    };
    data.0.is_empty().then_some((header, body))
}

/// The maximum number of credit replies in a fragment.
pub(crate) const MAX_REPLIES: usize = 32;

/// A fragment's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fragment {
    /// Carries the filled part of a buffer of entries.
    Buffer {
        /// The position of this buffer among those to the node. Buffers may arrive in any order.
        sequence: u32,
        credits: CreditByte,
        told: Told,
    },
    /// Carries flow control information when there is no buffer to carry it.
    Told(Told),
    /// Revokes credits that the sender has lent.
    Revoke { end_of_epoch: bool },
    /// Returns revoked credits to their lender.
    Return { credits: u16, end_of_epoch: bool },
    /// Requests a range of a message, to be sent in strips to this arrival.
    Pull {
        source: u32,
        arrival: u32,
        offset: u64,
        length: u64,
    },
    /// Carries a piece of a message.
    Strip { arrival: u32, offset: u64 },
    /// Reports that a message is no longer wanted. Its operation ends with the code.
    Drop { source: u32, code: Code },
    /// Requests a part of memory that another agent of the receiving node has exported. The payload
    /// is the memory's name.
    PullPart {
        arrival: u32,
        offset: u64,
        length: u64,
    },
    /// Refuses to send a part.
    Refuse { arrival: u32 },
    /// Reports that other agents have transferred this many bytes of a message, and asks for
    /// confirmation that the source was kept until now.
    Settle {
        source: u32,
        arrival: u32,
        length: u64,
    },
    /// Confirms that the source of this arrival was kept until now.
    Settled { arrival: u32 },
}

/// Flow control information for another agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Told {
    /// The number of bytes of eager messages that have been consumed since the last report.
    pub(crate) consumed: u32,
    /// The replies to buffers, which return the credits of these buffers.
    pub(crate) replies: Vec<CreditByte>,
}

impl Told {
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend(self.consumed.to_le_bytes());
        into.extend(self.replies.iter().map(|reply| reply.bits()));
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let consumed = reader.u32()?;
        let replies = std::mem::take(&mut reader.0);
        (replies.len() <= MAX_REPLIES).then(|| Self {
            consumed,
            replies: replies
                .iter()
                .map(|bits| CreditByte::from_bits(*bits))
                .collect(),
        })
    }
}

impl Fragment {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        match self {
            Self::Buffer {
                sequence,
                credits,
                told,
            } => {
                bytes.push(1);
                bytes.extend(sequence.to_le_bytes());
                bytes.push(credits.bits());
                told.encode(&mut bytes);
            }
            Self::Told(told) => {
                bytes.push(2);
                told.encode(&mut bytes);
            }
            Self::Revoke { end_of_epoch } => bytes.extend([3, u8::from(*end_of_epoch)]),
            Self::Return {
                credits,
                end_of_epoch,
            } => {
                bytes.extend([4, u8::from(*end_of_epoch)]);
                bytes.extend(credits.to_le_bytes());
            }
            Self::Pull {
                source,
                arrival,
                offset,
                length,
            } => {
                bytes.push(5);
                bytes.extend(source.to_le_bytes());
                bytes.extend(arrival.to_le_bytes());
                bytes.extend(offset.to_le_bytes());
                bytes.extend(length.to_le_bytes());
            }
            Self::Strip { arrival, offset } => {
                bytes.push(6);
                bytes.extend(arrival.to_le_bytes());
                bytes.extend(offset.to_le_bytes());
            }
            Self::Drop { source, code } => {
                bytes.push(7);
                bytes.extend(source.to_le_bytes());
                bytes.extend(code.0.to_le_bytes());
            }
            Self::PullPart {
                arrival,
                offset,
                length,
            } => {
                bytes.push(16);
                bytes.extend(arrival.to_le_bytes());
                bytes.extend(offset.to_le_bytes());
                bytes.extend(length.to_le_bytes());
            }
            Self::Refuse { arrival } => {
                bytes.push(17);
                bytes.extend(arrival.to_le_bytes());
            }
            Self::Settle {
                source,
                arrival,
                length,
            } => {
                bytes.push(18);
                bytes.extend(source.to_le_bytes());
                bytes.extend(arrival.to_le_bytes());
                bytes.extend(length.to_le_bytes());
            }
            Self::Settled { arrival } => {
                bytes.push(19);
                bytes.extend(arrival.to_le_bytes());
            }
        }
        bytes
    }

    /// Decodes a header. Returns `None` if it is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let fragment = match reader.u8()? {
            1 => Self::Buffer {
                sequence: reader.u32()?,
                credits: CreditByte::from_bits(reader.u8()?),
                told: Told::decode(&mut reader)?,
            },
            2 => Self::Told(Told::decode(&mut reader)?),
            3 => Self::Revoke {
                end_of_epoch: reader.bool()?,
            },
            4 => Self::Return {
                end_of_epoch: reader.bool()?,
                credits: reader.u16()?,
            },
            5 => Self::Pull {
                source: reader.u32()?,
                arrival: reader.u32()?,
                offset: reader.u64()?,
                length: reader.u64()?,
            },
            6 => Self::Strip {
                arrival: reader.u32()?,
                offset: reader.u64()?,
            },
            7 => Self::Drop {
                source: reader.u32()?,
                code: Code(reader.u32()?),
            },
            16 => Self::PullPart {
                arrival: reader.u32()?,
                offset: reader.u64()?,
                length: reader.u64()?,
            },
            17 => Self::Refuse {
                arrival: reader.u32()?,
            },
            18 => Self::Settle {
                source: reader.u32()?,
                arrival: reader.u32()?,
                length: reader.u64()?,
            },
            19 => Self::Settled {
                arrival: reader.u32()?,
            },
            _ => return None,
        };
        reader.0.is_empty().then_some(fragment)
    }
}

pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }
    pub(crate) fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    pub(crate) fn counted(&mut self) -> Option<&'a [u8]> {
        let count = self.u16()?;
        self.bytes(count.into())
    }
    fn message(&mut self, flags: u8) -> Option<Sent<'a>> {
        let (hints, client) = match flags & ATTRIBUTES {
            0 => (0, 0),
            _ => (self.u64()?, self.u64()?),
        };
        let content = match flags & BULK {
            0 => Content::Eager(std::mem::take(&mut self.0)),
            _ => Content::Bulk {
                length: self.u64()?,
                source: self.u32()?,
                name: match flags & NAME {
                    0 => None,
                    _ => Some(self.counted()?),
                },
            },
        };
        Some(Sent {
            hints,
            client,
            content,
        })
    }
}
