//! Transfer of messages that are not eager. The sender's agent keeps such a message as a source
//! until it has been pulled, and the receiver's agent has an arrival until the message is complete.

use std::collections::BTreeSet;
use std::ops::Range;

use super::state::bulk::{Arrival, For, Origin, Pulled, Source};
use super::state::link::{Reply, Sending};
use super::wire::{Fragment, Sent};
use super::{AgentMachine, ProtocolError, Transfer, length};
use crate::code::Code;
use crate::host::{Host, Memory, Message, NoMemory, Place};

impl<H: Host> AgentMachine<H> {
    // ---- sources ----

    /// Registers a message to be pulled by a node. `request` is the key of the request that sends
    /// it, if that request gets no response.
    pub(super) fn offer(
        &mut self,
        node: u32,
        request: Option<u32>,
        message: Message<H::Memory>,
    ) -> u32 {
        self.add_source(node, request, message, false)
    }

    /// Registers a message that was taken from a local channel for a node.
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
            length: length(&message),
            message,
            pulled: 0,
            sent: 0,
            flying: 0,
            request,
            is_taken,
            is_part: false,
            dropped: None,
        };
        // The cast is lossless: the number of operations is limited.
        self.bulk.sources.insert(source) as u32
    }

    /// Removes a source that is no longer needed.
    pub(super) fn source_over(&mut self, key: u32) {
        let Some(source) = self.bulk.sources.try_remove(key as usize) else {
            return;
        };
        if source.is_taken {
            self.service.taken -= length(&source.message);
        }
        self.bulk.parts -= usize::from(source.is_part);
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
            && (source.dropped.is_some() || source.sent == source.length)
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
        // The receiver may pull only as many bytes as the source has, but in any order: it pulls
        // parts that it lent to siblings and got back later than the parts that follow them.
        let left = source.length - source.pulled;
        let end = offset.checked_add(length).ok_or(ProtocolError)?;
        let is_sound = source.node == node
            && source.dropped.is_none()
            && end <= source.length
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

    /// Handles the report that other agents of this node sent `length` bytes of a source, and
    /// confirms that the source was kept until now.
    pub(super) fn on_settle(
        &mut self,
        node: u32,
        key: u32,
        arrival: u32,
        length: u64,
    ) -> Result<(), ProtocolError> {
        let source = self.bulk.sources.get_mut(key as usize);
        let source = source.ok_or(ProtocolError)?;
        let left = source.length - source.pulled;
        if source.node != node || source.dropped.is_some() || length > left {
            return Err(ProtocolError);
        }
        source.pulled += length;
        source.sent += length;
        self.control(node, &Fragment::Settled { arrival });
        self.source_if_over(key);
        Ok(())
    }

    /// Queues a part of imported memory, which another agent of this node has exported, to be sent
    /// to a node.
    pub(super) fn give_part(&mut self, node: u32, part: Pulled, memory: H::Memory) {
        let message = Message {
            memory,
            hints: 0,
            client: 0,
        };
        let source = self.add_source(node, None, message, false);
        let part = Pulled { source, ..part };
        if let Some(source) = self.bulk.sources.get_mut(source as usize) {
            (source.length, source.pulled) = (part.length, part.length);
            source.is_part = true;
            self.bulk.parts += 1;
        }
        self.link(node).pulls.push_back(part);
        self.list(node);
    }

    /// Accounts for a strip before it is handed to the network.
    pub(super) fn strip_begins(&mut self, source: u32, length: u64) {
        self.bulk.injected += length;
        if let Some(source) = self.bulk.sources.get_mut(source as usize) {
            source.flying += 1;
        }
    }

    /// Undoes `strip_begins` for a strip that the network refused.
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

    /// Registers a message that is to be transferred from a node.
    pub(super) fn expect(
        &mut self,
        node: u32,
        sent: &Sent<'_>,
        length: u64,
        origin: Origin,
        owner: For,
    ) -> u32 {
        self.add_arrival(node, sent, 0..length, origin, owner)
    }

    /// Registers the response to a get whose message is at this agent and still needs memory.
    pub(super) fn land(&mut self, node: u32, request: u32, sent: &Sent<'_>, bytes: &[u8]) {
        let origin = Origin::Here(bytes.to_vec());
        self.expect(
            node,
            sent,
            bytes.len() as u64,
            origin,
            For::Request(request),
        );
    }

    pub(super) fn add_arrival(
        &mut self,
        node: u32,
        sent: &Sent<'_>,
        span: Range<u64>,
        origin: Origin,
        owner: For,
    ) -> u32 {
        let arrival = Arrival {
            node,
            origin,
            rest: span.clone(),
            span,
            hints: sent.hints,
            client: sent.client,
            memory: None,
            returned: Vec::new(),
            requested: 0,
            begun: 0,
            arrived: 0,
            lent: 0,
            stolen: 0,
            settling: false,
            owner,
            unwanted: None,
            lost: false,
        };
        // The cast is lossless: the number of operations is limited.
        let key = self.bulk.arrivals.insert(arrival) as u32;
        self.bulk.unallocated.push_back(key);
        key
    }

    /// Requests messages as far as memory and budget allow. Returns whether it did anything.
    pub(super) fn feed(&mut self, host: &mut H) -> bool {
        let mut did = self.allocate(host);
        let mut hungry = std::mem::take(&mut self.bulk.hungry);
        // Requests from the arrivals in turn, in a random order, so that agents do not all request
        // from the same node at once.
        self.random.shuffle(&mut hungry);
        let mut left = Vec::new();
        while let Some(key) = hungry.pop() {
            match self.feed_one(key) {
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

    /// Allocates memory for arrivals, in order within each queue. Otherwise later messages, which
    /// must not overtake the first one, could take all the memory, and the first one would never
    /// arrive.
    fn allocate(&mut self, host: &mut H) -> bool {
        let mut did = false;
        let mut starved = BTreeSet::new();
        for key in std::mem::take(&mut self.bulk.unallocated) {
            let owner = self.bulk.arrivals.get(key as usize).map(|a| &a.owner);
            let queue = match owner {
                Some(&For::Operation(operation)) => self.service.queue_of(operation),
                _ => None,
            };
            if queue.is_some_and(|queue| starved.contains(&queue)) {
                self.bulk.unallocated.push_back(key);
                continue;
            }
            match self.allocate_one(key, host) {
                Ok(()) => {
                    self.bulk.hungry.push(key);
                    did = true;
                }
                Err(NoMemory::Now) => {
                    self.bulk.unallocated.push_back(key);
                    starved.extend(queue);
                }
                Err(NoMemory::Ever(code)) => {
                    self.fail_arrival(key, code);
                    did = true;
                }
            }
        }
        did
    }

    fn allocate_one(&mut self, key: u32, host: &mut H) -> Result<(), NoMemory> {
        let Some(arrival) = self.bulk.arrivals.get_mut(key as usize) else {
            return Ok(());
        };
        let place = match arrival.owner {
            For::Operation(operation) => Place::Channel(self.service.destination(operation)),
            For::Request(request) => match self.client.get(request) {
                Some(request) => Place::Get(request.id),
                None => Place::Channel(None),
            },
            For::Loan(..) => Place::Channel(None),
        };
        // A length beyond the address space can never be allocated.
        let bytes = usize::try_from(arrival.length()).unwrap_or(usize::MAX);
        let memory = match &arrival.origin {
            Origin::Part { destination, .. } => {
                let memory = host.import(destination).map_err(NoMemory::Ever)?;
                if (memory.length() as u64) < arrival.span.end {
                    return Err(NoMemory::Ever(Code::INVALID_ARGUMENT));
                }
                memory
            }
            _ => host.allocate(bytes, place)?,
        };
        arrival.memory = Some(memory);
        Ok(())
    }

    fn feed_one(&mut self, key: u32) -> Fed {
        let Some(arrival) = self.bulk.arrivals.get_mut(key as usize) else {
            return Fed::Full;
        };
        if let Origin::Here(bytes) = &arrival.origin {
            if let Some(memory) = &mut arrival.memory {
                memory.write(0, bytes);
            }
            self.has_arrived(key);
            return Fed::Full;
        }
        let next = arrival.next().clone();
        let left = next.end - next.start;
        if left == 0 {
            return Fed::Full;
        }
        let budget = self.limits.ejection.saturating_sub(self.bulk.ejected);
        let strip = match arrival.origin {
            // A part is requested as a whole, because it is short.
            Origin::Part { .. } => left,
            _ => left.min(self.limits.strip.into()),
        };
        if strip > budget && self.bulk.ejected > 0 {
            return Fed::No;
        }
        let length = match self.limits.transfer {
            Transfer::Rma => strip,
            Transfer::PointToPoint => budget.min(left).max(strip),
        };
        arrival.next().start += length;
        if arrival.next().is_empty() {
            arrival.returned.pop();
        }
        arrival.requested += length;
        self.bulk.ejected += length;
        let (node, offset) = (arrival.node, next.start);
        let fed = match arrival.next().is_empty() {
            true => Fed::Full,
            false => Fed::More,
        };
        match &arrival.origin {
            Origin::Part { name, .. } => {
                let pull = Fragment::PullPart {
                    arrival: key,
                    offset,
                    length,
                };
                let name = name.clone();
                self.control_with(node, &pull, name);
            }
            &Origin::Source { source, .. } => {
                let pull = Fragment::Pull {
                    source,
                    arrival: key,
                    offset,
                    length,
                };
                self.control(node, &pull);
            }
            Origin::Here(_) => {}
        }
        fed
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
            .get_mut(arrival as usize)
            .ok_or(ProtocolError)?;
        let end = offset.checked_add(length as u64).ok_or(ProtocolError)?;
        let is_sound = arrival.node == node
            && offset >= arrival.span.start
            && end <= arrival.span.end
            && length as u64 <= arrival.requested - arrival.begun;
        if !is_sound {
            return Err(ProtocolError);
        }
        arrival.begun += length as u64;
        Ok(())
    }

    pub(super) fn place_strip(&mut self, arrival: u32, offset: u64, bytes: &[u8]) {
        if let Some(arrival) = self.bulk.arrivals.get_mut(arrival as usize)
            && offset.saturating_add(bytes.len() as u64) <= arrival.span.end
            && let Some(memory) = &mut arrival.memory
        {
            // The cast is lossless: the offset is within the message.
            memory.write(offset as usize, bytes);
        }
    }

    pub(super) fn end_strip(&mut self, key: u32, length: usize) {
        let Some(arrival) = self.bulk.arrivals.get_mut(key as usize) else {
            return;
        };
        arrival.arrived += length as u64;
        self.bulk.ejected -= length as u64;
        self.arrival_goes_on(key);
    }

    /// Finishes an arrival unless strips are in flight, siblings still have parts of it, or bytes
    /// are missing. If siblings have transferred parts, it first asks the source's agent for
    /// confirmation.
    pub(super) fn arrival_goes_on(&mut self, key: u32) {
        let Some(arrival) = self.bulk.arrivals.get_mut(key as usize) else {
            return;
        };
        if arrival.lent > 0 || arrival.settling || arrival.requested > arrival.arrived {
            return;
        }
        let (node, length) = (arrival.node, arrival.length());
        if let Some(code) = arrival.unwanted {
            let arrival = self.bulk.arrivals.remove(key as usize);
            // A source that was pulled completely no longer exists.
            if let Origin::Source { source, .. } = arrival.origin
                && arrival.arrived < length
                && !arrival.lost
            {
                self.control(node, &Fragment::Drop { source, code });
            }
            return;
        }
        if arrival.arrived + arrival.stolen < length {
            return;
        }
        match arrival.origin {
            Origin::Source { source, .. } if arrival.stolen > 0 => {
                arrival.settling = true;
                let settle = Fragment::Settle {
                    source,
                    arrival: key,
                    length: arrival.stolen,
                };
                self.control(node, &settle);
            }
            _ => self.has_arrived(key),
        }
    }

    /// Handles the confirmation that an arrival's source was kept until all bytes had arrived.
    pub(super) fn on_settled(&mut self, node: u32, key: u32) -> Result<(), ProtocolError> {
        let arrival = self.bulk.arrivals.get_mut(key as usize);
        let arrival = arrival.ok_or(ProtocolError)?;
        if arrival.node != node || !arrival.settling {
            return Err(ProtocolError);
        }
        match arrival.unwanted {
            Some(_) => drop(self.bulk.arrivals.remove(key as usize)),
            None => self.has_arrived(key),
        }
        Ok(())
    }

    /// Handles a node's refusal to send a part, which goes back to the sibling that lent it.
    pub(super) fn on_refuse(&mut self, node: u32, key: u32) -> Result<(), ProtocolError> {
        let arrival = self.bulk.arrivals.get_mut(key as usize);
        let arrival = arrival.ok_or(ProtocolError)?;
        let is_part = matches!(arrival.origin, Origin::Part { .. });
        if arrival.node != node || !is_part || arrival.begun > 0 || arrival.requested == 0 {
            return Err(ProtocolError);
        }
        self.bulk.ejected -= std::mem::take(&mut arrival.requested);
        if let For::Loan(sibling, loan) = arrival.owner
            && arrival.unwanted.is_none()
        {
            self.give_back(sibling, loan, false);
        }
        self.let_go(key);
        Ok(())
    }

    /// Gives up the arrival of a part that a sibling has lent, and releases the sibling's memory.
    pub(super) fn let_go(&mut self, key: u32) {
        self.bulk.ask_only(|other, _| other != key);
        if let Some(arrival) = self.bulk.arrivals.get_mut(key as usize) {
            arrival.memory = None;
            arrival.unwanted = Some(super::GONE);
        }
        self.arrival_goes_on(key);
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
            For::Loan(sibling, loan) => {
                drop(message);
                self.give_back(sibling, loan, true);
            }
            For::Operation(operation) => self.message_arrived(operation, message),
            For::Request(request) => self.got(request, message),
        }
    }

    /// Fails an arrival for which memory can never be allocated.
    fn fail_arrival(&mut self, key: u32, code: Code) {
        let Some(arrival) = self.bulk.arrivals.get(key as usize) else {
            return;
        };
        match arrival.owner {
            // The call also drops the arrival.
            For::Operation(operation) => self.end_operation(operation, code, Reply::Nothing),
            For::Request(request) => {
                self.drop_arrival(key, code);
                self.fail_request(request, code);
            }
            For::Loan(sibling, loan) => {
                self.give_back(sibling, loan, false);
                self.let_go(key);
            }
        }
    }

    /// Drops an arrival that is no longer wanted.
    pub(super) fn drop_arrival(&mut self, key: u32, code: Code) {
        let arrival = self.bulk.arrivals.get(key as usize);
        if arrival.is_none_or(|arrival| arrival.lost) {
            return;
        }
        self.bulk.ask_only(|other, _| other != key);
        let arrival = &mut self.bulk.arrivals[key as usize];
        arrival.unwanted = Some(code);
        arrival.rest.end = arrival.rest.start;
        arrival.returned.clear();
        self.recall(key);
        self.arrival_goes_on(key);
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
        let (taken, parts) = (&mut self.service.taken, &mut self.bulk.parts);
        self.bulk.sources.retain(|_, source| {
            if source.node == node && source.is_taken {
                *taken -= length(&source.message);
            }
            *parts -= usize::from(source.node == node && source.is_part);
            source.node != node
        });
        let of = self.bulk.arrivals.iter();
        let of = of.filter(|(_, arrival)| arrival.node == node && !arrival.lost);
        let lost: Vec<u32> = of.map(|(key, _)| key as u32).collect();
        for key in lost {
            let arrival = &mut self.bulk.arrivals[key as usize];
            self.bulk.ejected -= arrival.requested - arrival.arrived;
            arrival.requested = arrival.arrived;
            arrival.begun = arrival.arrived;
            arrival.settling = false;
            arrival.lost = true;
            let was_wanted = arrival.unwanted.replace(super::GONE).is_none();
            if let For::Loan(sibling, loan) = arrival.owner
                && was_wanted
            {
                arrival.memory = None;
                self.give_back(sibling, loan, false);
            }
            // The arrival's memory is kept as long as siblings may write to it.
            self.recall(key);
            self.arrival_goes_on(key);
        }
        self.bulk.ask_only(|_, arrival| !arrival.lost);
    }

    /// Leaks the memory to which siblings may still write. Called when the agent itself ends.
    pub(super) fn leak_lent(&mut self) {
        for (_, arrival) in &mut self.bulk.arrivals {
            if arrival.lent > 0 {
                std::mem::forget(arrival.memory.take());
            }
        }
    }
}

/// How much of the range to be requested next has been requested.
enum Fed {
    /// The whole range, or there was nothing to request.
    Full,
    /// A part of it, so that more is to be requested.
    More,
    /// Nothing, because the budget has no room at present.
    No,
}
