//! Bursts, which are packets for one peer that one system call sends.

use super::UdpLink;
use crate::protocol::config::Config;
use crate::protocol::contract::{FragmentHandler, Nanos, Seal, TAG, Transmit, ZeroCopy};
use crate::protocol::packet::{HEADER, Header, OVERHEAD, PacketKind};

/// The maximum number of packets that one call may send (`UDP_MAX_SEGMENTS` of Linux).
const MAX_PACKETS: usize = 64;
/// The maximum number of bytes that one call may send.
const MAX_BYTES: usize = 65_507;
/// Packets for one peer, which are contiguous in the driver's buffer.
#[derive(Debug)]
pub(crate) struct Burst<'b, 's, S> {
    buffer: &'b mut [u8],
    seal: &'s mut S,
    pub(super) now: Nanos,
    /// The credits to advertise with acknowledgements.
    pub(super) credits: u16,
    filled: usize,
    pub(super) segment: usize,
    pub(super) packets: usize,
    /// The source of the payload that is not in the buffer, if the burst has such a packet.
    zero_copy: Option<ZeroCopySource>,
}

/// The location of a payload that the fragment handler keeps and that is sent without a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ZeroCopySource {
    pub(super) token: u64,
    pub(super) offset: usize,
    pub(super) length: usize,
    /// The offset of the payload in the packet.
    pub(super) at: usize,
}

impl ZeroCopySource {
    /// Adds the payload to a packet.
    pub(crate) fn join<'u>(
        self,
        packet: Transmit<'_>,
        handler: &'u impl FragmentHandler,
    ) -> Transmit<'u> {
        let bytes = handler.source(packet.peer, self.token, self.offset, self.length);
        debug_assert!(bytes.is_some(), "the bytes were available for the tag");
        Transmit {
            peer: packet.peer,
            length: packet.length,
            segment: packet.segment,
            // If the bytes are missing, the packet is sent without its payload and does not open at
            // the peer.
            zero_copy: bytes.map(|bytes| ZeroCopy { at: self.at, bytes }),
        }
    }
}

impl<'b, 's, S: Seal> Burst<'b, 's, S> {
    pub(crate) fn new(now: Nanos, buffer: &'b mut [u8], seal: &'s mut S, credits: u16) -> Self {
        let room = buffer.len().min(MAX_BYTES);
        Self {
            buffer: &mut buffer[..room],
            seal,
            now,
            credits,
            filled: 0,
            segment: 0,
            packets: 0,
            zero_copy: None,
        }
    }

    /// Returns the number of bytes in the packets, including a payload that is not in the buffer.
    pub(super) fn bytes(&self) -> usize {
        self.filled + self.zero_copy.map_or(0, |source| source.length)
    }

    /// Returns the source of the payload that is not in the buffer, if any.
    pub(crate) fn zero_copy(&self) -> Option<ZeroCopySource> {
        self.zero_copy
    }

    /// Returns the packets, if there are any.
    pub(crate) fn transmit(&self, link: &UdpLink) -> Option<Transmit<'static>> {
        (self.packets > 0).then_some(Transmit {
            peer: link.peer,
            length: self.filled,
            segment: self.segment,
            zero_copy: None,
        })
    }

    /// Returns whether a packet of `size` bytes may be appended.
    pub(super) fn admits(&self, size: usize) -> bool {
        self.filled + size <= self.buffer.len()
            && (self.packets == 0 || (self.packets < MAX_PACKETS && size <= self.segment))
    }

    /// Returns space for the next packet's body.
    pub(super) fn body(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled + HEADER..]
    }

    /// Finishes a packet whose payload `bytes` stays in the fragment handler's memory. The `body`
    /// bytes that precede the payload must have been written. The tag follows them in the buffer.
    /// The packet is the only one of the burst. Returns `false`, without any effect, if the seal
    /// cannot seal this packet in parts.
    pub(super) fn finish_zero_copy(
        &mut self,
        link: &mut UdpLink,
        config: &Config,
        (kind, flags): (PacketKind, u8),
        body: usize,
        source: ZeroCopySource,
        bytes: &[u8],
    ) -> bool {
        let at = HEADER + body;
        let packet = &mut self.buffer[..at + TAG];
        let number = link.number;
        Header {
            kind,
            flags,
            sender: self.seal.sender(link.peer, config.rank),
            number,
        }
        .write(packet, body + bytes.len());
        let Some(tag) = self.seal.tag_of(link.peer, number, [&packet[..at], bytes]) else {
            return false;
        };
        packet[at..].copy_from_slice(&tag);
        link.number += 1;
        let size = at + TAG + bytes.len();
        link.counters.packets_sent += 1;
        link.counters.bytes_sent += size as u64;
        self.filled = at + TAG;
        self.packets = 1;
        self.segment = size;
        self.zero_copy = Some(ZeroCopySource { at, ..source });
        true
    }

    /// Finishes the next packet, whose body must have been written. Returns whether another packet
    /// may follow.
    pub(super) fn finish(
        &mut self,
        link: &mut UdpLink,
        config: &Config,
        kind: PacketKind,
        flags: u8,
        body: usize,
    ) -> bool {
        let size = body + OVERHEAD;
        let packet = &mut self.buffer[self.filled..self.filled + size];
        let number = link.number;
        link.number += 1;
        Header {
            kind,
            flags,
            sender: self.seal.sender(link.peer, config.rank),
            number,
        }
        .write(packet, body);
        self.seal.seal(link.peer, number, packet, HEADER);
        link.counters.packets_sent += 1;
        link.counters.bytes_sent += size as u64;
        self.filled += size;
        self.packets += 1;
        if self.packets == 1 {
            self.segment = size;
        }
        size == self.segment && self.packets < MAX_PACKETS
    }
}
