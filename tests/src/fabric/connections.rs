//! Connections of a fabric. Each connection has its own queues, so its fragments have no order
//! relative to fragments on the base path.

use std::collections::VecDeque;

use conduit_core::ni::Rank;

use super::{Channel, FabricLink, FabricTransport, Packet, Waiting};
use conduit_portals::transport::connect::{CHANNELS, Connect};
use conduit_portals::transport::fragment::{Failure, Fragment, FragmentHandler, Payload, Refused};

/// This rank's end of a connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    number: u32,
    /// Whether the connection is still being established.
    is_begun: bool,
    /// The fragments that have not been transmitted yet.
    waiting: VecDeque<Waiting>,
    /// The number of fragments that the peer has not yet taken, by channel.
    left: [u32; CHANNELS],
    /// The number of fragments taken since the last report, by channel.
    taken: [u32; CHANNELS],
    channels: [Channel; CHANNELS],
}

impl Connection {
    fn take(&mut self, channel: usize, fragments: u32) {
        self.left[channel] -= fragments;
        self.taken[channel] += fragments;
    }
}

fn numbered(link: &mut FabricLink, number: u32) -> Option<&mut Connection> {
    let connection = link.connection.as_mut();
    connection.filter(|connection| connection.number == number)
}

/// Returns the channels of connection `number`, if this rank still has its end of that connection.
pub(super) fn channels(link: &mut FabricLink, number: u32) -> Option<&mut [Channel; CHANNELS]> {
    numbered(link, number).map(|connection| &mut connection.channels)
}

/// Records that the peer has taken a fragment.
pub(super) fn take(link: &mut FabricLink, number: u32, channel: usize) {
    if let Some(connection) = numbered(link, number) {
        connection.take(channel, 1);
    }
}

/// Drops the fragments whose payload has not been read yet.
pub(super) fn abandon(link: &mut FabricLink) {
    if let Some(connection) = &mut link.connection {
        let before = connection.waiting.len();
        connection.waiting.retain(|waiting| !waiting.is_read());
        let dropped = before - connection.waiting.len();
        link.unacknowledged -= dropped;
        // The cast is lossless, because the queue's length is limited.
        connection.take(1, dropped as u32);
    }
}

pub(super) fn outstanding(link: &FabricLink) -> usize {
    let connection = link.connection.as_ref();
    connection.map_or(0, |connection| connection.left.iter().sum::<u32>() as usize)
}

impl FabricTransport {
    /// Returns the number of this rank's connections.
    pub fn connected(&self) -> usize {
        let links = self.links.iter();
        links.filter(|link| link.connection.is_some()).count()
    }

    fn add(&mut self, peer: Rank, number: u32, is_begun: bool) {
        let limit = usize::from(self.disorder.connections);
        assert!(
            self.connected() < limit,
            "a rank has more than {limit} connections"
        );
        let connection = Connection {
            number,
            is_begun,
            ..Connection::default()
        };
        let before = self.links[peer as usize].connection.replace(connection);
        assert!(before.is_none(), "a second connection with rank {peer}");
    }

    /// Appends the packets that may be transmitted over the connection with a peer.
    pub(super) fn transmit_connected(
        &mut self,
        peer: Rank,
        packets: &mut Vec<Packet>,
        handler: &mut impl FragmentHandler,
    ) {
        while !self.chance(8)
            && let Some(connection) = &mut self.links[peer as usize].connection
            && let Some(waiting) = connection.waiting.pop_front()
        {
            packets.push(Packet {
                connection: Some(connection.number),
                ..waiting.read(peer, self.disorder.packet, handler)
            });
        }
    }
}

impl Connect for FabricTransport {
    fn connections(&self) -> u16 {
        self.disorder.connections
    }

    fn expect(&mut self, peer: Rank, number: u32) {
        self.add(peer, number, false);
    }

    fn connect(&mut self, peer: Rank, number: u32) {
        self.add(peer, number, true);
    }

    fn made(&mut self, peer: Rank) -> Option<bool> {
        if self.chance(2) {
            return None;
        }
        let is_refused = self.chance(self.disorder.refuse_connections);
        let connection = self.links[peer as usize].connection.as_mut();
        let is_there = connection.is_some_and(|connection| {
            connection.is_begun = false;
            !is_refused
        });
        Some(is_there)
    }

    fn disconnect(&mut self, peer: Rank) {
        self.links[peer as usize].connection = None;
    }

    fn send_connected(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        if self.dead[peer as usize] {
            return Err(Refused::Dead);
        }
        let refused = self.chance(self.disorder.refuse);
        let limit = self.disorder.link_fragments;
        let link = &mut self.links[peer as usize];
        let Some(connection) = &mut link.connection else {
            return Err(Refused::Full);
        };
        assert!(
            !connection.is_begun,
            "no fragments before the connection is established"
        );
        if refused || connection.left.iter().sum::<u32>() as usize >= limit {
            return Err(Refused::Full);
        }
        let is_read = matches!(fragment.payload, Payload::Read { .. });
        link.unacknowledged += usize::from(is_read);
        connection.left[usize::from(is_read)] += 1;
        connection.waiting.push_back(Waiting::new(fragment));
        Ok(())
    }

    fn receive_connected(
        &mut self,
        peer: Rank,
        channel: usize,
        handler: &mut impl FragmentHandler,
    ) -> bool {
        if self.chance(2) {
            return false;
        }
        let packet = self.disorder.packet;
        let Some(connection) = &mut self.links[peer as usize].connection else {
            return false;
        };
        let queue = &mut connection.channels[channel];
        let arrived = queue.deliver(peer, packet, &mut self.random, handler);
        let number = connection.number;
        self.acknowledge(peer, &arrived, Some((number, channel)));
        !arrived.is_empty()
    }

    fn taken(&mut self, peer: Rank) -> [u32; CHANNELS] {
        let connection = self.links[peer as usize].connection.as_mut();
        connection.map_or([0; CHANNELS], |connection| {
            std::mem::take(&mut connection.taken)
        })
    }

    fn give_up(&mut self, peer: Rank, failure: Failure, handler: &mut impl FragmentHandler) {
        self.lose(peer, failure, handler);
    }
}
