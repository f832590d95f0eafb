//! Receives packets.

use conduit_core::ni::Rank;

use super::{Endpoint, FAILED, IDLE};
use crate::protocol::contract::{Failure, FragmentHandler, Nanos, Seal, TAG};
use crate::protocol::packet::{HEADER, Header};

/// The fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// The packet was accepted as a packet of this peer.
    Taken(Rank),
    /// The packet was dropped, and only a counter has changed.
    Dropped(Dropped),
}

/// The reason why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// The packet's length, version, kind or rank is wrong.
    Malformed,
    /// A packet with this number has already been received, or the number is too old.
    Replayed,
    /// The packet's tag is invalid.
    BadTag,
    /// The packet's peer has failed.
    Failed,
}

impl Endpoint {
    /// Returns the length in bytes of the packet that begins with these bytes, for a driver that
    /// receives several packets of one length in one buffer. The length is not authenticated. If it
    /// is wrong, the packets cut by it do not open.
    #[inline]
    pub fn length_of(begin: &[u8]) -> Option<usize> {
        Header::length(begin)
    }

    /// Returns the rank that a packet names as its sender, without checking the tag. Returns `None`
    /// if the packet is malformed.
    #[inline]
    pub fn sender_of(packet: &[u8]) -> Option<Rank> {
        Some(Header::read(packet)?.sender)
    }

    /// Handles a received datagram. If its tag is invalid, only a counter changes, whatever the
    /// datagram contains.
    pub fn receive(
        &mut self,
        now: Nanos,
        packet: &mut [u8],
        seal: &mut impl Seal,
        handler: &mut impl FragmentHandler,
    ) -> Received {
        let Some(header) = Header::read(packet).filter(|header| header.sender < self.config.size)
        else {
            self.gone.malformed += 1;
            return Received::Dropped(Dropped::Malformed);
        };
        let peer = header.sender;
        let mut index = self.peers[peer as usize];
        if index == FAILED {
            self.gone.from_failed += 1;
            return Received::Dropped(Dropped::Failed);
        }
        if index < IDLE {
            if let Some(link) = self
                .links
                .get_mut(index as usize)
                .and_then(Option::as_deref_mut)
                && !link.replay.is_new(header.number)
            {
                link.counters.replayed += 1;
                return Received::Dropped(Dropped::Replayed);
            }
        } else if let Some(idle) = self.idle_links.get(index ^ IDLE)
            && !idle.is_new(header.number)
        {
            self.gone.replayed += 1;
            return Received::Dropped(Dropped::Replayed);
        }
        if header.number == u64::MAX || !seal.open(peer, header.number, packet, HEADER) {
            match self
                .links
                .get_mut(index as usize)
                .and_then(Option::as_deref_mut)
            {
                Some(link) => link.counters.bad_tag += 1,
                None => self.gone.bad_tag += 1,
            }
            return Received::Dropped(Dropped::BadTag);
        }
        self.advance(now);
        if index >= IDLE {
            index = self.open(now, peer);
        }
        let Some(link) = self.links[index as usize].as_deref_mut() else {
            return Received::Dropped(Dropped::Failed);
        };
        link.replay.note(header.number);
        let body = &packet[HEADER..packet.len() - TAG];
        match link.receive(now, header, body, &self.config, &mut self.budget, handler) {
            Ok(contents) => {
                if contents.segment {
                    self.senders.note(now, &mut link.period);
                }
                self.enqueue(now, index);
            }
            Err(what) => self.fail(index, Failure::Broken(what), handler),
        }
        Received::Taken(peer)
    }
}
