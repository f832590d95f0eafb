//! The messages that begin and end sessions. None of them can be mistaken for a packet.
//!
//! ```text
//! all        kind 1 | version 1 | flags or reason 1 | attempt 1
//! init       initiator's number for the responder 4 | its incarnation 8 | nonce 16 | share 32 | MAC 16 | padding 24
//! challenge  the init's nonce 16 | responder's incarnation 8 | share 32 | session 8 | issued 8 | cookie 16 | MAC 16
//! confirm    issued 8 | cookie 16 | the init without its padding 80 | MAC 16
//! accept     the init's nonce 16 | responder's number for the initiator 4 | MAC 16
//! goodbye    receiver's number for the sender 4 | MAC 16
//! unknown    the number that a packet named 4
//! refused    the init's nonce 16
//! ```
//!
//! Numbers after names are lengths in bytes, and integers are little-endian. The attempt counts how
//! often the same message has been sent, and no MAC covers it. An answer repeats the attempt of the
//! message that it answers.

use conduit_core::ni::Rank;
use seal::SESSION_TAG;

const VERSION: u8 = 1;

/// A MAC, cookie or nonce.
pub(super) type Tag = [u8; SESSION_TAG];

/// The number of bytes that all messages have in common at their beginning.
const COMMON: usize = 4;
/// The number of bytes of an init that its MAC covers, after the common bytes.
pub(super) const INIT_COVERED: usize = 4 + 8 + 16 + 32;
/// The number of bytes of an init without the common bytes and without padding.
pub(super) const INIT: usize = INIT_COVERED + SESSION_TAG;
/// The number of bytes of a challenge that its MAC covers, after the common bytes.
const CHALLENGE_COVERED: usize = 16 + 8 + 32 + 8 + 8 + SESSION_TAG;
/// The number of bytes of an init. It is padded so that no answer to a stranger is longer than the
/// init.
const INIT_LENGTH: usize = COMMON + CHALLENGE_COVERED + SESSION_TAG;
const _: () = assert!(COMMON + INIT <= INIT_LENGTH);
/// The number of bytes of the longest message.
pub(super) const LONGEST: usize = COMMON + 8 + SESSION_TAG + INIT + SESSION_TAG;
// Packets have at least 32 bytes, so an answer to a packet is not longer than the packet.
const _: () = assert!(COMMON + 4 <= 32);

/// The flag of an init whose sender encrypts.
pub(super) const ENCRYPTS: u8 = 1;

/// The kind of a message. Packets begin with other values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum HandshakeKind {
    Init = 0xa1,
    Challenge = 0xa2,
    Confirm = 0xa3,
    Accept = 0xa4,
    Goodbye = 0xa5,
    Unknown = 0xa6,
    Refused = 0xa7,
}

/// The reason for refusing an init.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Reason {
    Version = 1,
    Secret = 2,
    Protection = 3,
}

impl Reason {
    pub(super) fn of_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            1 => Self::Version,
            2 => Self::Secret,
            3 => Self::Protection,
            _ => return None,
        })
    }

    /// Returns the reason as a statement about the responder, for the user of the initiator.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Version => "it runs another version of Conduit",
            Self::Secret => "it has another secret, or addresses are translated on the path",
            Self::Protection => "only one of the two processes encrypts",
        }
    }
}

/// A message to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) struct Message {
    bytes: [u8; LONGEST],
    length: u8,
}

impl Message {
    pub(super) fn new(kind: HandshakeKind, what: u8, attempt: u8) -> Self {
        let mut bytes = [0; LONGEST];
        bytes[..COMMON].copy_from_slice(&[kind as u8, VERSION, what, attempt]);
        Self {
            bytes,
            length: COMMON as u8,
        }
    }

    /// Appends these bytes, which must be the next fields of the message's kind.
    pub(super) fn with(mut self, bytes: &[u8]) -> Self {
        let begin = usize::from(self.length);
        self.bytes[begin..begin + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len() as u8;
        self
    }

    pub(super) fn set_attempt(&mut self, attempt: u8) {
        self.bytes[COMMON - 1] = attempt;
    }

    /// Pads an init to the length that it has on the wire.
    pub(super) fn padded(mut self) -> Self {
        self.length = INIT_LENGTH as u8;
        self
    }

    pub(in super::super) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Returns the bytes after the common ones.
    pub(super) fn body(&self) -> &[u8] {
        &self.bytes()[COMMON..]
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:02x?}", self.bytes())
    }
}

/// The fields of an init that its initiator chose.
#[derive(Debug, Clone, Copy)]
pub(super) struct Init<'a> {
    pub(super) name: Rank,
    pub(super) incarnation: u64,
    pub(super) nonce: &'a Tag,
    pub(super) share: &'a [u8; 32],
    /// The bytes that the MAC `tag` covers.
    pub(super) covered: &'a [u8; INIT_COVERED],
    pub(super) tag: &'a Tag,
}

impl<'a> Init<'a> {
    pub(super) fn read(body: &'a [u8; INIT]) -> Option<Self> {
        let (covered, _) = body.split_first_chunk::<INIT_COVERED>()?;
        let mut reader = Reader(body);
        Some(Self {
            name: Rank::from_le_bytes(*reader.array()?),
            incarnation: u64::from_le_bytes(*reader.array()?),
            nonce: reader.array()?,
            share: reader.array()?,
            covered,
            tag: reader.array()?,
        })
    }
}

/// A received message.
#[derive(Debug, Clone, Copy)]
pub(super) enum Received<'a> {
    Init {
        encrypts: bool,
        attempt: u8,
        body: &'a [u8; INIT],
    },
    Challenge {
        covered: &'a [u8; CHALLENGE_COVERED],
        nonce: &'a Tag,
        incarnation: u64,
        share: &'a [u8; 32],
        /// The session that the responder has with the initiator, or zeros if there is none.
        session: &'a [u8; 8],
        issued: &'a [u8; 8],
        cookie: &'a Tag,
        tag: &'a Tag,
    },
    Confirm {
        attempt: u8,
        issued: &'a [u8; 8],
        cookie: &'a Tag,
        init: &'a [u8; INIT],
        tag: &'a Tag,
    },
    Accept {
        nonce: &'a Tag,
        name: &'a [u8; 4],
        tag: &'a Tag,
    },
    Goodbye {
        name: Rank,
        tag: &'a Tag,
    },
    Unknown {
        name: Rank,
    },
    Refused {
        reason: Reason,
        attempt: u8,
        nonce: &'a Tag,
    },
    /// An init of another version, with the nonce that it has at the offset of this version's
    /// nonce, if the init is that long.
    OtherVersion {
        attempt: u8,
        nonce: Option<&'a Tag>,
    },
}

impl<'a> Received<'a> {
    /// Reads a datagram. Returns `None` if it is not a handshake message.
    pub(super) fn read(datagram: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(datagram);
        let &[kind, version, what, attempt] = reader.array()?;
        let is = |wanted: HandshakeKind| kind == wanted as u8;
        if version != VERSION {
            let nonce = datagram.get(COMMON + 12..).and_then(<[u8]>::first_chunk);
            return (is(HandshakeKind::Init) && datagram.len() >= INIT_LENGTH)
                .then_some(Self::OtherVersion { attempt, nonce });
        }
        if is(HandshakeKind::Init) {
            let body = reader.array()?;
            return (datagram.len() == INIT_LENGTH).then_some(Self::Init {
                encrypts: what & ENCRYPTS != 0,
                attempt,
                body,
            });
        }
        let received = if is(HandshakeKind::Challenge) {
            let covered = reader.0.first_chunk()?;
            Self::Challenge {
                covered,
                nonce: reader.array()?,
                incarnation: u64::from_le_bytes(*reader.array()?),
                share: reader.array()?,
                session: reader.array()?,
                issued: reader.array()?,
                cookie: reader.array()?,
                tag: reader.array()?,
            }
        } else if is(HandshakeKind::Confirm) {
            Self::Confirm {
                attempt,
                issued: reader.array()?,
                cookie: reader.array()?,
                init: reader.array()?,
                tag: reader.array()?,
            }
        } else if is(HandshakeKind::Accept) {
            Self::Accept {
                nonce: reader.array()?,
                name: reader.array()?,
                tag: reader.array()?,
            }
        } else if is(HandshakeKind::Goodbye) {
            Self::Goodbye {
                name: Rank::from_le_bytes(*reader.array()?),
                tag: reader.array()?,
            }
        } else if is(HandshakeKind::Unknown) {
            Self::Unknown {
                name: Rank::from_le_bytes(*reader.array()?),
            }
        } else if is(HandshakeKind::Refused) {
            Self::Refused {
                reason: Reason::of_bits(what)?,
                attempt,
                nonce: reader.array()?,
            }
        } else {
            return None;
        };
        reader.0.is_empty().then_some(received)
    }
}

/// Reads fields of fixed lengths.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(front)
    }
}
