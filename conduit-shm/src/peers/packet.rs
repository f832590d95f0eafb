//! Packets that two processes exchange over their socket, some with descriptors.
//!
//! ```text
//! magic: u32 | version: u16 | kind: u16 | fields, little-endian
//! ```
//!
//! The first eight bytes, and [`Packet::Refused`], have the same format in all versions.

use conduit_portals::transport::open::MAX_ADDRESS;

const MAGIC: u32 = 0x4c4e_4443;
/// The protocol version. It must be changed whenever this file or the order of descriptors is
/// changed.
const VERSION: u16 = 2;
const LEAD: usize = 8;
/// The maximum size in bytes of a packet.
pub(super) const MAX_PACKET: usize = 512;

const HELLO: u16 = 1;
const WELCOME: u16 = 2;
const REFUSED: u16 = 3;
const WAKE: u16 = 4;
const GOODBYE: u16 = 5;

/// The terms on which the receiver may use the sender's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    /// The number that the sender assigns to the receiver, which is the number of a bit of the
    /// sender's front page.
    pub(super) number: u32,
    /// The number of peers for which the sender's front page has bits.
    pub(super) peers: u32,
    /// The address of a word by which the receiver tests whether it can copy the sender's memory,
    /// or 0 if the receiver must not copy it.
    pub(super) probe: u64,
    /// The value of that word.
    pub(super) probe_value: u64,
}

/// A packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packet<'a> {
    /// The request of the connecting process for a session, with the descriptors of the pair's
    /// memory and of the sender's front page.
    Hello {
        terms: Terms,
        /// The base-2 logarithm of the number of slots of a ring.
        shift: u32,
        /// The sender's address.
        address: &'a [u8],
    },
    /// The reply that opens the session, with the descriptor of the sender's front page.
    Welcome(Terms),
    /// The reply that refuses the session.
    Refused(Refusal),
    /// Wakes a sleeping peer, which must then check its front page.
    Wake,
    /// Announces that the session ends normally.
    Goodbye,
}

/// The reason why a process refuses a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Refusal {
    /// The process is itself connecting to the sender, and its own attempt takes precedence.
    Duplicate = 1,
    /// The process uses another version of the protocol.
    Version,
    /// The process belongs to another user.
    User,
    /// The process has reached its limit of peers.
    Peers,
    /// The process has no descriptors left.
    Descriptors,
    /// The process received a malformed packet.
    Malformed,
    /// The process's system refused another operation.
    System,
}

impl Refusal {
    const ALL: [Self; 7] = [
        Self::Duplicate,
        Self::Version,
        Self::User,
        Self::Peers,
        Self::Descriptors,
        Self::Malformed,
        Self::System,
    ];

    /// Returns the reason as text for
    /// [`Failure::Network`](conduit_portals::transport::fragment::Failure::Network).
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Duplicate => "it refuses each attempt in favour of its own attempts",
            Self::Version => "it uses another version of the protocol",
            Self::User => "it belongs to another user",
            Self::Peers => "it has reached its limit of peers",
            Self::Descriptors => "it has no file descriptors left (limit of open files)",
            Self::Malformed => "it rejects the greeting of this process as malformed",
            Self::System => "its system refused the shared memory or the socket",
        }
    }
}

/// The reason why bytes are not a valid [`Packet`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    Version,
    Malformed,
}

impl<'a> Packet<'a> {
    /// Encodes the packet into up to [`MAX_PACKET`] bytes. Returns the packet's length.
    pub(super) fn encode(&self, into: &mut [u8; MAX_PACKET]) -> usize {
        let mut writer = Writer { into, at: 0 };
        writer.put(&MAGIC.to_le_bytes());
        writer.put(&VERSION.to_le_bytes());
        let mut kind = |kind: u16| writer.put(&kind.to_le_bytes());
        match *self {
            Self::Hello {
                terms,
                shift,
                address,
            } => {
                kind(HELLO);
                writer.put_terms(&terms);
                writer.put(&shift.to_le_bytes());
                writer.put(address);
            }
            Self::Welcome(terms) => {
                kind(WELCOME);
                writer.put_terms(&terms);
            }
            Self::Refused(refusal) => {
                kind(REFUSED);
                writer.put(&(refusal as u32).to_le_bytes());
            }
            Self::Wake => kind(WAKE),
            Self::Goodbye => kind(GOODBYE),
        }
        writer.at
    }

    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        Self::fields(bytes).unwrap_or(Err(Unreadable::Malformed))
    }

    fn fields(bytes: &'a [u8]) -> Option<Result<Self, Unreadable>> {
        let (lead, mut rest) = bytes.split_at_checked(LEAD)?;
        let (magic, lead) = lead.split_first_chunk()?;
        let (version, kind) = lead.split_first_chunk()?;
        if u32::from_le_bytes(*magic) != MAGIC {
            return None;
        }
        let kind = u16::from_le_bytes(kind.try_into().ok()?);
        if u16::from_le_bytes(*version) != VERSION && kind != REFUSED {
            return Some(Err(Unreadable::Version));
        }
        let packet = match kind {
            HELLO => {
                let terms = Terms::take(&mut rest)?;
                let shift = take(&mut rest).map(u32::from_le_bytes)?;
                let address = std::mem::take(&mut rest);
                (address.len() <= MAX_ADDRESS).then_some(Self::Hello {
                    terms,
                    shift,
                    address,
                })?
            }
            WELCOME => Self::Welcome(Terms::take(&mut rest)?),
            REFUSED => {
                let number = take(&mut rest).map(u32::from_le_bytes)?;
                let mut all = Refusal::ALL.into_iter();
                Self::Refused(all.find(|refusal| *refusal as u32 == number)?)
            }
            WAKE => Self::Wake,
            GOODBYE => Self::Goodbye,
            _ => return None,
        };
        rest.is_empty().then_some(Ok(packet))
    }
}

impl Terms {
    fn take(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            number: u32::from_le_bytes(take(bytes)?),
            peers: u32::from_le_bytes(take(bytes)?),
            probe: u64::from_le_bytes(take(bytes)?),
            probe_value: u64::from_le_bytes(take(bytes)?),
        })
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

struct Writer<'a> {
    into: &'a mut [u8; MAX_PACKET],
    at: usize,
}

// The longest packet fits, even with the longest address.
const _: () = assert!(LEAD + 24 + 4 + MAX_ADDRESS <= MAX_PACKET);

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let end = self.at + bytes.len();
        if let Some(into) = self.into.get_mut(self.at..end) {
            into.copy_from_slice(bytes);
            self.at = end;
        }
    }

    fn put_terms(&mut self, terms: &Terms) {
        self.put(&terms.number.to_le_bytes());
        self.put(&terms.peers.to_le_bytes());
        self.put(&terms.probe.to_le_bytes());
        self.put(&terms.probe_value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TERMS: Terms = Terms {
        number: 7,
        peers: 64,
        probe: 1 << 40,
        probe_value: u64::MAX,
    };

    fn all() -> Vec<Packet<'static>> {
        let mut all = vec![Packet::Welcome(TERMS), Packet::Wake, Packet::Goodbye];
        all.extend(Refusal::ALL.map(Packet::Refused));
        all.extend(
            [&[][..], &[5; 20], &[6; MAX_ADDRESS]].map(|address| Packet::Hello {
                terms: TERMS,
                shift: 9,
                address,
            }),
        );
        all
    }

    #[test]
    fn packets_survive() {
        for packet in all() {
            let mut bytes = [0; MAX_PACKET];
            let length = packet.encode(&mut bytes);
            assert_eq!(Packet::decode(&bytes[..length]), Ok(packet));
            if !matches!(packet, Packet::Hello { .. }) {
                for wrong in (0..length).chain([length + 1]) {
                    let read = Packet::decode(&bytes[..wrong]);
                    assert_eq!(read, Err(Unreadable::Malformed), "{packet:?}");
                }
            }
            bytes[4] ^= 1;
            let read = Packet::decode(&bytes[..length]);
            match packet {
                Packet::Refused(_) => assert_eq!(read, Ok(packet)),
                _ => assert_eq!(read, Err(Unreadable::Version)),
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_packet_or_none(
            mut bytes in prop::collection::vec(any::<u8>(), 0..400),
            kind in 0u16..8,
            is_ours in any::<bool>(),
        ) {
            if is_ours && bytes.len() >= LEAD {
                bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
                bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
                bytes[6..8].copy_from_slice(&kind.to_le_bytes());
            }
            if let Ok(packet) = Packet::decode(&bytes) {
                let mut again = [0; MAX_PACKET];
                let length = packet.encode(&mut again);
                if !matches!(packet, Packet::Refused(_)) {
                    prop_assert_eq!(&again[..length], &bytes[..]);
                }
            }
        }
    }
}
