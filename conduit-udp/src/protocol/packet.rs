//! The format of packets on the wire.
//!
//! ```text
//! header: version and kind 1 | flags 1 | body's length 2 | sender's rank 4 | packet number 8
//! body:   acknowledgements | segment
//! tag:    16
//! ```
//!
//! Numbers after names are lengths in bytes, and all integers are little-endian. If a flag
//! announces acknowledgements, they begin with the ack delay of the newest segment in µs 2 and the
//! highest packet number received (low bits) 3. For the command channel, the data channel or both,
//! there follow: first segment not received (low bits) 3, credits 2, number of words 1, and that
//! number of words of 8. The words are a bitmap of received segments. The first word covers the
//! aligned group of 64 segments that contains the first missing one, the next word covers the 64
//! segments after this group, and so on.
//!
//! Segments, by kind:
//!
//! ```text
//! bundle    sequence number 3 | tiny fragments (see `bundle`)
//! fragment  sequence number 3 | header's length 1 | header | payload
//! first     sequence number 3 | fragment's length 4 | bytes of a full chunk 2 | header's length 1 | header | first bytes
//! chunk     sequence number 3 | bytes
//! probe     stamp 8 | anything
//! reply     the probe's stamp 8 | the probe's length in bytes 2
//! ```
//!
//! All input from a peer is read by [`Reader`], which checks every length.

use conduit_core::ni::Rank;

use super::contract::{MAX_HEADER, TAG};

/// The number of bytes of a packet's header, which is not encrypted.
pub(super) const HEADER: usize = 16;
/// The number of bytes of a packet besides its body.
pub(super) const OVERHEAD: usize = HEADER + TAG;
/// The number of bytes of the two channels' acknowledgements without words.
pub(super) const ACKS: usize = ACKS_BEGIN + 2 * CHANNEL_ACK;
/// The number of bytes of acknowledgements before the first channel's part.
pub(super) const ACKS_BEGIN: usize = 2 + 3;
/// The number of bytes of one channel's acknowledgement without words.
pub(super) const CHANNEL_ACK: usize = 3 + 2 + 1;
/// The number of words that cover a full window, wherever the window begins in its first word.
pub(super) const MAX_WORDS: usize = 65;
/// The number of bytes of a whole fragment's segment besides the fragment's header and payload.
pub(super) const FRAGMENT: usize = 3 + 1;
/// The number of bytes of a first chunk besides the fragment's header and payload.
pub(super) const FIRST: usize = 3 + 4 + 2 + 1;
/// The number of bytes of a chunk besides its payload.
pub(super) const CHUNK: usize = 3;
/// The number of bytes of a tiny probe's body. The rest of a larger probe is padding.
pub(super) const PROBE: usize = 8;
/// The number of bytes of a probe reply's body.
pub(super) const PROBE_REPLY: usize = 8 + 2;

/// The flag of a packet that has an acknowledgement of the data channel.
pub(super) const FLAG_DATA: u8 = 2;
/// The flag of a packet that has an acknowledgement of the command channel.
pub(super) const FLAG_COMMAND: u8 = 1;
/// The flag of a packet whose sender requests an immediate acknowledgement, because it has nothing
/// more to send or has sent many segments since its last request.
pub(super) const FLAG_IMMEDIATE_ACK: u8 = 4;

const VERSION: u8 = 1;

/// The kind of a packet, which says what the packet contains besides acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum PacketKind {
    Nothing = 0,
    Bundle = 1,
    Fragment = 2,
    First = 3,
    Chunk = 4,
    Probe = 5,
    ProbeReply = 6,
}

impl PacketKind {
    fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Nothing,
            1 => Self::Bundle,
            2 => Self::Fragment,
            3 => Self::First,
            4 => Self::Chunk,
            5 => Self::Probe,
            6 => Self::ProbeReply,
            _ => return None,
        })
    }
}

/// A packet's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: PacketKind,
    pub(super) flags: u8,
    pub(super) sender: Rank,
    pub(super) number: u64,
}

impl Header {
    /// Reads the header of a datagram. Returns `None` if its length or version is wrong.
    pub(super) fn read(packet: &[u8]) -> Option<Self> {
        if packet.len() < OVERHEAD {
            return None;
        }
        let header: &[u8; HEADER] = packet.first_chunk()?;
        let [first, flags, b0, b1, r0, r1, r2, r3, number @ ..] = *header;
        if first >> 4 != VERSION
            || usize::from(u16::from_le_bytes([b0, b1])) + OVERHEAD != packet.len()
        {
            return None;
        }
        Some(Self {
            kind: PacketKind::from_bits(first & 15)?,
            flags,
            sender: Rank::from_le_bytes([r0, r1, r2, r3]),
            number: u64::from_le_bytes(number),
        })
    }

    /// Returns the length in bytes of the packet that begins with these bytes, without checking the
    /// packet's tag.
    #[inline]
    pub(super) fn length(begin: &[u8]) -> Option<usize> {
        let &[first, _, b0, b1, ..] = begin else {
            return None;
        };
        (first >> 4 == VERSION).then(|| usize::from(u16::from_le_bytes([b0, b1])) + OVERHEAD)
    }

    /// Writes the header of a packet whose body has `body` bytes.
    pub(super) fn write(&self, packet: &mut [u8], body: usize) {
        debug_assert!(HEADER <= packet.len() && body <= usize::from(u16::MAX));
        packet[0] = VERSION << 4 | self.kind as u8;
        packet[1] = self.flags;
        packet[2..4].copy_from_slice(&(body as u16).to_le_bytes());
        packet[4..8].copy_from_slice(&self.sender.to_le_bytes());
        packet[8..16].copy_from_slice(&self.number.to_le_bytes());
    }
}

/// Reads integers and bytes from a peer's input.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u24(&mut self) -> Option<u32> {
        self.array()
            .map(|[a, b, c]| u32::from_le_bytes([a, b, c, 0]))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// Writes integers and bytes to a packet. The caller must have checked that they fit.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    into: &'a mut [u8],
    filled: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(into: &'a mut [u8]) -> Self {
        Self { into, filled: 0 }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.space(bytes.len()).copy_from_slice(bytes);
    }

    /// Returns the next `count` bytes, for the caller to fill.
    pub(super) fn space(&mut self, count: usize) -> &mut [u8] {
        let at = self.filled;
        self.filled += count;
        &mut self.into[at..at + count]
    }

    pub(super) fn u24(&mut self, number: u32) {
        self.bytes(&number.to_le_bytes()[..3]);
    }
}

/// The received acknowledgement of one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ack<'a> {
    /// The low bits of the number of the first segment not received.
    pub(super) next: u32,
    /// The number of segments that may be outstanding, counted from the first one not received.
    pub(super) credits: u16,
    /// The bitmap, as words of 8 bytes, little-endian.
    words: &'a [[u8; 8]],
}

impl Ack<'_> {
    /// Returns the bitmap of received segments. It begins with the aligned group of 64 segments
    /// that contains the first missing one.
    pub(super) fn words(&self) -> impl ExactSizeIterator<Item = u64> {
        self.words.iter().map(|word| u64::from_le_bytes(*word))
    }
}

/// The acknowledgements at the beginning of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Acks<'a> {
    /// The ack delay, in nanoseconds: the time from the arrival of the newest segment to the
    /// sending of this packet.
    pub(super) delay: u64,
    /// The low bits of the highest packet number received.
    pub(super) newest: u32,
    /// The acknowledgements of the command channel and of the data channel.
    pub(super) channels: [Option<Ack<'a>>; 2],
}

impl<'a> Acks<'a> {
    /// Reads acknowledgements from a body. Returns `None` if the body is too short or announces too
    /// many words. Call this only for packets whose flags announce acknowledgements.
    pub(super) fn read(flags: u8, body: &mut Reader<'a>) -> Option<Self> {
        let delay = u64::from(body.u16()?) * 1000;
        let newest = body.u24()?;
        let mut channels = [None; 2];
        for (channel, flag) in [FLAG_COMMAND, FLAG_DATA].into_iter().enumerate() {
            if flags & flag != 0 {
                let (next, credits, words) = (body.u24()?, body.u16()?, usize::from(body.u8()?));
                if words > MAX_WORDS {
                    return None;
                }
                let (words, rest) = body.bytes(words * 8)?.as_chunks();
                debug_assert!(rest.is_empty());
                channels[channel] = Some(Ack {
                    next,
                    credits,
                    words,
                });
            }
        }
        Some(Self {
            delay,
            newest,
            channels,
        })
    }
}

/// A segment of the data channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Data<'a> {
    Whole {
        header: &'a [u8],
        payload: &'a [u8],
    },
    First {
        header: &'a [u8],
        length: u32,
        chunk: u16,
        bytes: &'a [u8],
    },
    Chunk(&'a [u8]),
}

impl<'a> Data<'a> {
    /// Parses the bytes after the sequence number. The error is a description of what is wrong with
    /// them.
    pub(super) fn read(kind: PacketKind, bytes: &'a [u8]) -> Result<Self, &'static str> {
        let mut reader = Reader(bytes);
        match kind {
            PacketKind::Chunk if bytes.is_empty() => Err("a chunk without bytes"),
            PacketKind::Chunk => Ok(Self::Chunk(bytes)),
            PacketKind::Fragment => {
                let header = reader.u8().and_then(|length| reader.bytes(length.into()));
                match header {
                    Some(header) if header.len() <= MAX_HEADER => Ok(Self::Whole {
                        header,
                        payload: reader.0,
                    }),
                    _ => Err("a fragment with a wrong header length"),
                }
            }
            PacketKind::First => {
                let fields = (|| {
                    let (length, chunk, header) = (reader.u32()?, reader.u16()?, reader.u8()?);
                    Some((length, chunk, reader.bytes(header.into())?))
                })();
                match fields {
                    Some((length, chunk, header))
                        if header.len() <= MAX_HEADER
                            && chunk > 0
                            && reader.0.len() < length as usize =>
                    {
                        Ok(Self::First {
                            header,
                            length,
                            chunk,
                            bytes: reader.0,
                        })
                    }
                    _ => Err("a first chunk with wrong lengths"),
                }
            }
            _ => Err("a segment of the wrong kind"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_clear_part_comes_back() {
        let header = Header {
            kind: PacketKind::First,
            flags: 5,
            sender: 0x0102_0304,
            number: 0x1122_3344_5566_7788,
        };
        let mut packet = [0; OVERHEAD + 9];
        header.write(&mut packet, 9);
        assert_eq!(Header::read(&packet), Some(header));
        assert_eq!(Header::read(&packet[..OVERHEAD + 8]), None);
        assert_eq!(Header::read(&packet[..3]), None);
        packet[0] = 0x2f;
        assert_eq!(Header::read(&packet), None);
        packet[0] = 0x1f;
        assert_eq!(Header::read(&packet), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..700), flags: u8, kind in 0u8..16) {
            let _ = Header::read(&bytes);
            let mut reader = Reader(&bytes);
            if let Some(acks) = Acks::read(flags, &mut reader) {
                let words: usize = acks.channels.iter().flatten().map(|ack| ack.words().len()).sum();
                let channels = acks.channels.iter().flatten().count();
                prop_assert_eq!(bytes.len() - reader.0.len(), ACKS_BEGIN + channels * CHANNEL_ACK + words * 8);
            }
            if let Some(kind) = PacketKind::from_bits(kind) {
                match Data::read(kind, &bytes) {
                    Ok(Data::Whole { header, payload }) => prop_assert_eq!(1 + header.len() + payload.len(), bytes.len()),
                    Ok(Data::First { header, length, bytes: payload, .. }) => {
                        prop_assert_eq!(FIRST - 3 + header.len() + payload.len(), bytes.len());
                        prop_assert!(payload.len() < length as usize);
                    }
                    Ok(Data::Chunk(payload)) => prop_assert_eq!(payload, &bytes),
                    Err(_) => {}
                }
            }
        }
    }
}
