//! Messages that are not eager: at their sender's agent until they were pulled, at their receiver's until they have
//! arrived.

use std::hash::{Hash, Hasher};

use slab::Slab;

use super::link::{Reply, Sending};
use super::wire::{Content, Fragment, Sent};
use super::{Machine, ProtocolError, Transfer, hash, length};
use crate::code::Code;
use crate::host::{Host, Memory, Message, NoMemory, Place};

/// A message here that another agent pulls, or that waits to be packed.
#[derive(Debug, Clone, Hash)]
struct Source<M> {
    node: u32,
    message: Message<M>,
    /// Bytes that were pulled, and those of them that are there.
    pulled: u64,
    sent: u64,
    /// Strips that the network reads.
    flying: u32,
    /// Of a request that isn't answered: its key.
    request: Option<u32>,
    /// It was taken from a channel here.
    is_taken: bool,
    /// It isn't wanted any more.
    dropped: Option<Code>,
}

/// A part of a source that an arrival at another agent is to be given.
#[derive(Debug, Clone, Copy, Hash)]
pub(super) struct Pulled {
    pub(super) source: u32,
    pub(super) arrival: u32,
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl Pulled {
    /// What is left of it after so many bytes.
    pub(super) fn after(self, bytes: u64) -> Option<Self> {
        (bytes < self.length).then(|| Self {
            offset: self.offset + bytes,
            length: self.length - bytes,
            ..self
        })
    }
}

/// What a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum For {
    /// An operation here, by its key.
    Operation(u32),
    /// A get of a process here, by its key.
    Request(u32),
}

/// A message that comes, once there is memory for it and budget.
#[derive(Debug, Clone, Hash)]
struct Arrival<M> {
    node: u32,
    /// `None`: it is here.
    source: Option<u32>,
    here: Vec<u8>,
    length: u64,
    hints: u64,
    client: u64,
    memory: Option<M>,
    requested: u64,
    arrived: u64,
    owner: For,
    /// It isn't wanted any more; strips of it are under way.
    unwanted: Option<Code>,
}

/// See the [module](self).
#[derive(Debug, Clone)]
pub(super) struct Bulk<M> {
    sources: Slab<Source<M>>,
    arrivals: Slab<Arrival<M>>,
    /// Arrivals of which there is more to ask for.
    hungry: Vec<u32>,
    /// Bytes asked for that have not arrived; bytes under way from here.
    pub(super) ejected: u64,
    pub(super) injected: u64,
    /// There was no memory at the last look.
    starved: bool,
}

impl<M: Hash> Hash for Bulk<M> {
    fn hash<S: Hasher>(&self, state: &mut S) {
        let Self {
            sources,
            arrivals,
            hungry,
            ejected,
            injected,
            starved,
        } = self;
        hash::table(sources, state);
        hash::table(arrivals, state);
        (hungry, ejected, injected, starved).hash(state);
    }
}

impl<M: Memory> Bulk<M> {
    pub(super) fn new() -> Self {
        Self {
            sources: Slab::new(),
            arrivals: Slab::new(),
            hungry: Vec::new(),
            ejected: 0,
            injected: 0,
            starved: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.sources.len() + self.arrivals.len()
    }

    /// Whether an arrival waits for memory, of which nobody tells.
    pub(super) fn is_starved(&self) -> bool {
        self.starved
    }

    /// Reads a part of a source.
    pub(super) fn read(&self, source: u32, offset: u64, into: &mut [u8]) {
        if let Some(source) = self.sources.get(source as usize) {
            // Fits: within the message.
            source.message.memory.read(offset as usize, into);
        }
    }

    /// A source's bytes, and what travels beside them.
    pub(super) fn describe(&self, source: u32) -> Option<(u64, u64, u64)> {
        let message = &self.sources.get(source as usize)?.message;
        Some((length(message), message.hints, message.client))
    }
}

impl<H: Host> Machine<H> {
    // ---- sources ----

    /// A message waits here to be pulled by a node; of a request that isn't answered, with its key.
    pub(super) fn offer(
        &mut self,
        node: u32,
        request: Option<u32>,
        message: Message<H::Memory>,
    ) -> Content<'static> {
        let length = length(&message);
        let source = self.add_source(node, request, message, false);
        Content::Bulk { length, source }
    }

    /// A message that was taken from a channel here for a node.
    pub(super) fn add_taken(&mut self, node: u32, message: Message<H::Memory>) -> u32 {
        self.add_source(node, None, message, true)
    }

    fn add_source(
        &mut self,
        node: u32,
        request: Option<u32>,
        message: Message<H::Memory>,
        is_taken: bool,
    ) -> u32 {
        let source = Source {
            node,
            message,
            pulled: 0,
            sent: 0,
            flying: 0,
            request,
            is_taken,
            dropped: None,
        };
        // Fits: operations are limited.
        self.bulk.sources.insert(source) as u32
    }

    /// A source is not needed any more.
    pub(super) fn source_over(&mut self, key: u32) {
        let Some(source) = self.bulk.sources.try_remove(key as usize) else {
            return;
        };
        if source.is_taken {
            self.service.taken -= length(&source.message);
        }
        let dropped = source.dropped;
        if let Some(request) = source.request {
            drop(source);
            match dropped {
                Some(code) => self.fail_request(request, code),
                None => self.message_gone(request),
            }
        }
    }

    fn source_if_over(&mut self, key: u32) {
        if let Some(source) = self.bulk.sources.get(key as usize)
            && source.flying == 0
            && (source.dropped.is_some() || source.sent == length(&source.message))
        {
            self.source_over(key);
        }
    }

    pub(super) fn on_pull(
        &mut self,
        node: u32,
        key: u32,
        arrival: u32,
        (offset, length): (u64, u64),
    ) -> Result<(), ProtocolError> {
        let source = self
            .bulk
            .sources
            .get_mut(key as usize)
            .ok_or(ProtocolError)?;
        // In order, each byte once.
        let left = self::length(&source.message) - source.pulled;
        let is_sound = source.node == node
            && source.dropped.is_none()
            && offset == source.pulled
            && (1..=left).contains(&length);
        if !is_sound {
            return Err(ProtocolError);
        }
        source.pulled += length;
        self.link(node).pulls.push_back(Pulled {
            source: key,
            arrival,
            offset,
            length,
        });
        self.list(node);
        Ok(())
    }

    pub(super) fn on_drop(&mut self, node: u32, key: u32, code: Code) -> Result<(), ProtocolError> {
        let source = self
            .bulk
            .sources
            .get_mut(key as usize)
            .ok_or(ProtocolError)?;
        if source.node != node || source.dropped.is_some() || code == Code::SUCCESS {
            return Err(ProtocolError);
        }
        source.dropped = Some(code);
        self.link(node).pulls.retain(|pulled| pulled.source != key);
        self.source_if_over(key);
        Ok(())
    }

    /// The network is given a strip.
    pub(super) fn strip_begins(&mut self, source: u32, length: u64) {
        self.bulk.injected += length;
        if let Some(source) = self.bulk.sources.get_mut(source as usize) {
            source.flying += 1;
        }
    }

    /// It was not taken.
    pub(super) fn strip_refused(&mut self, source: u32, length: u64) {
        self.bulk.injected -= length;
        if let Some(source) = self.bulk.sources.get_mut(source as usize) {
            source.flying -= 1;
        }
    }

    pub(super) fn strip_sent(&mut self, key: u32, length: u64) {
        self.bulk.injected -= length;
        if let Some(source) = self.bulk.sources.get_mut(key as usize) {
            source.flying -= 1;
            source.sent += length;
            self.source_if_over(key);
        }
    }

    // ---- arrivals ----

    /// A message comes from a node.
    pub(super) fn expect(
        &mut self,
        node: u32,
        sent: &Sent<'_>,
        (length, source): (u64, u32),
        owner: For,
    ) -> u32 {
        self.add_arrival(node, sent, length, (Some(source), Vec::new()), owner)
    }

    /// The answer to a get is here, and needs memory.
    pub(super) fn land(&mut self, node: u32, request: u32, sent: &Sent<'_>, bytes: &[u8]) {
        let length = bytes.len() as u64;
        self.add_arrival(
            node,
            sent,
            length,
            (None, bytes.to_vec()),
            For::Request(request),
        );
    }

    fn add_arrival(
        &mut self,
        node: u32,
        sent: &Sent<'_>,
        length: u64,
        (source, here): (Option<u32>, Vec<u8>),
        owner: For,
    ) -> u32 {
        let arrival = Arrival {
            node,
            source,
            here,
            length,
            hints: sent.hints,
            client: sent.client,
            memory: None,
            requested: 0,
            arrived: 0,
            owner,
            unwanted: None,
        };
        // Fits: operations are limited.
        let key = self.bulk.arrivals.insert(arrival) as u32;
        self.bulk.hungry.push(key);
        key
    }

    /// Asks for messages, as far as there is memory and budget.
    pub(super) fn feed(&mut self, host: &mut H) -> bool {
        let mut did = false;
        self.bulk.starved = false;
        let mut hungry = std::mem::take(&mut self.bulk.hungry);
        // One after the other, in an order that differs from that of other agents.
        self.random.shuffle(&mut hungry);
        let mut left = Vec::new();
        while let Some(key) = hungry.pop() {
            match self.feed_one(key, host) {
                Fed::Full => {}
                Fed::More => {
                    did = true;
                    hungry.insert(0, key);
                    continue;
                }
                Fed::No => {
                    left.push(key);
                    continue;
                }
            }
            did = true;
        }
        left.append(&mut self.bulk.hungry);
        self.bulk.hungry = left;
        did
    }

    fn feed_one(&mut self, key: u32, host: &mut H) -> Fed {
        let Some(arrival) = self.bulk.arrivals.get_mut(key as usize) else {
            return Fed::Full;
        };
        if arrival.memory.is_none() {
            let place = match arrival.owner {
                For::Operation(operation) => Place::Channel(self.service.destination(operation)),
                For::Request(request) => match self.client.get(request) {
                    Some(request) => Place::Get(request.id),
                    None => Place::Channel(None),
                },
            };
            // A length that no memory has is one that there is never memory for.
            let bytes = usize::try_from(arrival.length).unwrap_or(usize::MAX);
            match host.allocate(bytes, place) {
                Ok(memory) => arrival.memory = Some(memory),
                Err(NoMemory::Now) => {
                    self.bulk.starved = true;
                    return Fed::No;
                }
                Err(NoMemory::Ever(code)) => {
                    self.fail_arrival(key, code);
                    return Fed::Full;
                }
            }
        }
        let Some(source) = arrival.source else {
            if let Some(memory) = &mut arrival.memory {
                memory.write(0, &arrival.here);
            }
            self.has_arrived(key);
            return Fed::Full;
        };
        let budget = self.limits.ejection.saturating_sub(self.bulk.ejected);
        let strip = u64::from(self.limits.strip).min(arrival.length - arrival.requested);
        if strip > budget && self.bulk.ejected > 0 {
            return Fed::No;
        }
        let length = match self.limits.transfer {
            Transfer::Rma => strip,
            Transfer::PointToPoint => budget.min(arrival.length - arrival.requested).max(strip),
        };
        let pull = Fragment::Pull {
            source,
            arrival: key,
            offset: arrival.requested,
            length,
        };
        arrival.requested += length;
        self.bulk.ejected += length;
        let (node, is_full) = (arrival.node, arrival.requested == arrival.length);
        self.control(node, &pull);
        match is_full {
            true => Fed::Full,
            false => Fed::More,
        }
    }

    pub(super) fn begin_strip(
        &mut self,
        node: u32,
        arrival: u32,
        offset: u64,
        length: usize,
    ) -> Result<(), ProtocolError> {
        let arrival = self
            .bulk
            .arrivals
            .get(arrival as usize)
            .ok_or(ProtocolError)?;
        let end = offset.checked_add(length as u64).ok_or(ProtocolError)?;
        let is_sound = arrival.node == node
            && end <= arrival.requested
            && arrival.arrived + length as u64 <= arrival.requested;
        is_sound.then_some(()).ok_or(ProtocolError)
    }

    pub(super) fn place_strip(&mut self, arrival: u32, offset: u64, bytes: &[u8]) {
        if let Some(arrival) = self.bulk.arrivals.get_mut(arrival as usize)
            && offset.saturating_add(bytes.len() as u64) <= arrival.length
            && let Some(memory) = &mut arrival.memory
        {
            // Fits: within the message.
            memory.write(offset as usize, bytes);
        }
    }

    pub(super) fn end_strip(&mut self, key: u32, length: usize) {
        let Some(arrival) = self.bulk.arrivals.get_mut(key as usize) else {
            return;
        };
        arrival.arrived += length as u64;
        self.bulk.ejected = self.bulk.ejected.saturating_sub(length as u64);
        match arrival.unwanted {
            Some(code) if arrival.arrived == arrival.requested => self.drop_arrival(key, code),
            None if arrival.arrived == arrival.length => self.has_arrived(key),
            _ => {}
        }
    }

    fn has_arrived(&mut self, key: u32) {
        let Some(arrival) = self.bulk.arrivals.try_remove(key as usize) else {
            return;
        };
        let Some(memory) = arrival.memory else {
            return;
        };
        let message = Message {
            memory,
            hints: arrival.hints,
            client: arrival.client,
        };
        match arrival.owner {
            For::Operation(operation) => self.message_arrived(operation, message),
            For::Request(request) => self.got(request, message),
        }
    }

    /// There is no memory for a message, and never will be.
    fn fail_arrival(&mut self, key: u32, code: Code) {
        let Some(arrival) = self.bulk.arrivals.get(key as usize) else {
            return;
        };
        match arrival.owner {
            // It takes the arrival along.
            For::Operation(operation) => self.end_operation(operation, code, Reply::Nothing),
            For::Request(request) => {
                self.drop_arrival(key, code);
                self.fail_request(request, code);
            }
        }
    }

    /// A message that comes is not wanted any more.
    pub(super) fn drop_arrival(&mut self, key: u32, code: Code) {
        self.bulk.hungry.retain(|hungry| *hungry != key);
        let Some(arrival) = self.bulk.arrivals.get_mut(key as usize) else {
            return;
        };
        if arrival.requested > arrival.arrived {
            arrival.unwanted = Some(code);
            return;
        }
        let arrival = self.bulk.arrivals.remove(key as usize);
        // Nothing is left of a source that was pulled to its end.
        if let Some(source) = arrival.source
            && arrival.arrived < arrival.length
        {
            self.control(arrival.node, &Fragment::Drop { source, code });
        }
    }

    // ---- the end of a node ----

    pub(super) fn lose_bulk(&mut self, node: u32) {
        for (_, sending) in &self.sending {
            if let Sending::Strip {
                node: of, length, ..
            } = sending
                && *of == node
            {
                self.bulk.injected -= length;
            }
        }
        self.sending.retain(|_, sending| sending.node() != node);
        let taken = &mut self.service.taken;
        self.bulk.sources.retain(|_, source| {
            if source.node == node && source.is_taken {
                *taken -= length(&source.message);
            }
            source.node != node
        });
        let ejected = &mut self.bulk.ejected;
        self.bulk.arrivals.retain(|_, arrival| {
            if arrival.node == node {
                *ejected -= arrival.requested - arrival.arrived;
            }
            arrival.node != node
        });
        let arrivals = &self.bulk.arrivals;
        self.bulk
            .hungry
            .retain(|key| arrivals.contains(*key as usize));
    }
}

/// What an arrival was given.
enum Fed {
    /// All that there is.
    Full,
    /// A part; there is more to ask for.
    More,
    /// Nothing now.
    No,
}
