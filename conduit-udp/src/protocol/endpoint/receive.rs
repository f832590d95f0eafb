//! Packets that come.

use conduit_core::ni::Rank;

use super::{Endpoint, FAILED, IDLE};
use crate::protocol::contract::{Failure, FragmentHandler, Nanos, Seal, TAG};
use crate::protocol::packet::{HEADER, Header};

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// It is this peer's.
    Taken(Rank),
    /// Nothing has changed but a counter.
    Dropped(Dropped),
}

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// It is no packet of this job: length, version, kind or rank is wrong.
    Malformed,
    /// Its number has come already, or is too old.
    Replayed,
    /// Its tag is not valid.
    BadTag,
    /// Its peer has failed.
    Failed,
}

impl Endpoint {
    /// Bytes of the packet that begins so, if it is one: for a driver that receives several packets
    /// of one length joined. They are not proven to be right; if they are wrong, so are the packets
    /// that it makes of them.
    #[inline]
    pub fn length_of(begin: &[u8]) -> Option<usize> {
        Header::length(begin)
    }

    /// The rank that a packet names as its sender, if it is one as far as can be told without its
    /// tag.
    #[inline]
    pub fn sender_of(packet: &[u8]) -> Option<Rank> {
        Some(Header::read(packet)?.sender)
    }

    /// A datagram has come. Whatever its bytes are, nothing changes but a counter unless its tag is
    /// valid.
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
        self.tell(now);
        if index >= IDLE {
            index = self.open(now, peer);
        }
        let Some(link) = self.links[index as usize].as_deref_mut() else {
            return Received::Dropped(Dropped::Failed);
        };
        link.replay.note(header.number);
        let body = &packet[HEADER..packet.len() - TAG];
        match link.receive(now, header, body, &self.config, &mut self.budget, handler) {
            Ok(heard) => {
                if heard.segment {
                    self.senders.note(now, &mut link.period);
                }
                self.wake(now, index);
            }
            Err(what) => self.fail(index, Failure::Broken(what), handler),
        }
        Received::Taken(peer)
    }
}
