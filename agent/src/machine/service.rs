//! Operations on local channels, which agents have requested and which wait in the queues of their
//! ports. The first operation of each queue is tried again and again, without waiting in a channel,
//! until it succeeds, fails or times out.

use std::collections::BTreeSet;

use super::state::bulk::{For, Origin};
use super::state::link::{Entry, Reply, Response};
use super::state::service::{LONGEST, Load, MOST_OPERATIONS, Operation, PortState, SHORTEST, Task};
use super::wire::{Body, Content, Header, Port, What};
use super::{AgentMachine, ProtocolError, length};
use crate::code::Code;
use crate::host::{
    Attempt, Host, Limit, MAX_DESCRIPTOR, Memory, Message, NoMemory, Place, ReturnMode,
};

impl<H: Host> AgentMachine<H> {
    // ---- in ----

    pub(super) fn take_entry(
        &mut self,
        node: u32,
        header: &Header,
        body: &Body<'_>,
    ) -> Result<(), ProtocolError> {
        if node != self.own {
            let most = MOST_OPERATIONS * self.limits.requests.max(1 << 14) as usize;
            let link = self.link(node);
            if link.operations + link.ports + link.entries.len() >= most {
                return Err(ProtocolError);
            }
        }
        match *body {
            Body::Request {
                channel,
                number,
                what,
            } => self.begin_operation(node, header, channel, number, &what),
            Body::Response {
                number,
                code,
                answer,
            } => self.on_response(node, header.protocol, number, code, &answer),
            Body::Cancel { number } => {
                // If the operation has been answered already, there is nothing to cancel.
                if let Some(&key) = self.service.numbered.get(&(node, number)) {
                    self.end_operation(key, Code::TIMEOUT, Reply::Nothing);
                }
                Ok(())
            }
            Body::Close => {
                let place = (node, header.port);
                let port = self.service.ports.get_mut(&place).ok_or(ProtocolError)?;
                if std::mem::replace(&mut port.is_closed, true) {
                    return Err(ProtocolError);
                }
                self.close_if_over(node, header.port);
                Ok(())
            }
            Body::Closed => self.on_closed(node, header.port),
        }
    }

    fn begin_operation(
        &mut self,
        node: u32,
        header: &Header,
        channel: Option<&[u8]>,
        number: Option<u32>,
        what: &What<'_>,
    ) -> Result<(), ProtocolError> {
        let place = (node, header.port);
        if let Some(descriptor) = channel
            && let Some(port) = self.service.ports.get_mut(&place)
        {
            // The requester reuses a port that it has closed but that is not empty yet.
            let queue = &self.service.queues[port.queue as usize];
            let is_same = *queue.descriptor == *descriptor;
            if !std::mem::take(&mut port.is_closed) || !is_same {
                return Err(ProtocolError);
            }
            self.post(node, Entry::Closed(header.port, header.protocol));
        } else if let Some(descriptor) = channel {
            if descriptor.len() > MAX_DESCRIPTOR {
                return Err(ProtocolError);
            }
            let queue = self.service.queue(header.protocol, descriptor);
            let state = PortState {
                queue,
                protocol: header.protocol,
                uses: 0,
                is_closed: false,
            };
            self.service.ports.insert(place, state);
            self.link(node).ports += 1;
        }
        let port = self.service.ports.get_mut(&place).ok_or(ProtocolError)?;
        let is_known = number.is_some_and(|n| self.service.numbered.contains_key(&(node, n)));
        if port.protocol != header.protocol || port.is_closed || is_known {
            return Err(ProtocolError);
        }
        let queue = port.queue;
        let mut eager = 0;
        let (mut bulk, task) = match *what {
            What::Get => (None, Task::Get),
            What::Poll { mask } => (None, Task::Poll(mask)),
            What::Send {
                destination,
                ref message,
            } => {
                let (bulk, load) = match message.content {
                    Content::Eager(bytes) => {
                        // The cast is lossless: the bytes are within a buffer.
                        eager = bytes.len() as u32;
                        (None, Load::Eager(bytes.to_vec()))
                    }
                    Content::Bulk { length: 0, .. } => return Err(ProtocolError),
                    Content::Bulk {
                        length,
                        source,
                        name,
                    } => {
                        let name = name.map(Into::into);
                        let origin = Origin::Source { source, name };
                        (Some((length, origin, *message)), Load::Arriving(0))
                    }
                };
                let task = Task::Send {
                    load,
                    hints: message.hints,
                    client: message.client,
                    destination: destination.map(Into::into),
                    receipt: None,
                };
                (bulk, task)
            }
        };
        let share = self.share;
        let link = self.link(node);
        link.held += u64::from(eager);
        if link.held > share {
            return Err(ProtocolError);
        }
        link.operations += 1;
        let limit = header.timeout.limit(self.now);
        let operation = Operation {
            node,
            port: header.port,
            queue,
            number,
            protocol: header.protocol,
            mode: header.mode,
            limit,
            eager,
            task,
        };
        if let Some(port) = self.service.ports.get_mut(&place) {
            port.uses += 1;
        }
        // The cast is lossless: the number of other agents' requests is limited.
        let key = self.service.operations.insert(operation) as u32;
        if let Some(number) = number {
            self.service.numbered.insert((node, number), key);
        }
        if let Limit::At(at) = limit {
            self.service.deadlines.insert((at, key));
        }
        if let Some((length, origin, message)) = bulk.take() {
            let arrival = self.expect(node, &message, length, origin, For::Operation(key));
            if let Task::Send { load, .. } = &mut self.service.operations[key as usize].task {
                *load = Load::Arriving(arrival);
            }
        }
        self.service.queues[queue as usize]
            .operations
            .push_back(key);
        if self.service.queues[queue as usize].operations.len() == 1 {
            let now = self.now;
            self.service.plan(queue, now);
        }
        Ok(())
    }

    /// Hands an arrived message to its operation.
    pub(super) fn message_arrived(&mut self, key: u32, message: Message<H::Memory>) {
        let Some(operation) = self.service.operations.get_mut(key as usize) else {
            return;
        };
        let queue = operation.queue;
        if let Task::Send { load, .. } = &mut operation.task {
            *load = Load::Ready(Some(message));
        }
        let now = self.now;
        self.service.plan(queue, now);
    }

    /// Ends a send that waits until its message is taken from the channel. The code tells whether
    /// the message has been taken or never will be.
    pub(super) fn receipt(&mut self, receipt: u64, code: Code) {
        if let Some(&key) = self.service.receipts.get(&receipt) {
            self.end_operation(key, code, Reply::Nothing);
        }
    }

    /// Schedules an attempt at the queue of a changed channel. If the key belongs to another queue
    /// by now, the additional attempt is harmless.
    pub(super) fn channel_changed(&mut self, queue: u32) {
        if let Some(waits) = self.service.queues.get(queue as usize)
            && !waits.operations.is_empty()
        {
            let now = self.now;
            self.service.plan(queue, now);
        }
    }

    // ---- ends ----

    /// Ends an operation, and queues the response if one is expected.
    pub(super) fn end_operation(&mut self, key: u32, code: Code, reply: Reply) {
        let Some(operation) = self.remove_operation(key, code) else {
            return;
        };
        let Operation {
            node,
            port,
            protocol,
            eager,
            ..
        } = operation;
        if eager > 0 {
            self.link(node).consume(eager);
            self.list(node);
        }
        match operation.number {
            Some(number) => {
                let response = Response {
                    port,
                    protocol,
                    number,
                    code,
                    answer: reply,
                };
                self.post(node, Entry::Response(Box::new(response)));
            }
            None if code != Code::SUCCESS => {
                let host = self.nodes[node as usize].host;
                tracing::warn!(host, "lost a message whose sender no longer waits: {code}");
                self.counters.lost += 1;
            }
            None => {}
        }
    }

    /// Removes an operation from all tables.
    fn remove_operation(&mut self, key: u32, code: Code) -> Option<Operation<H::Memory>> {
        let operation = self.take_operation(key, code)?;
        // Keys are reused, so the operation's key must not be left in its queue.
        let queue = &mut self.service.queues[operation.queue as usize];
        if queue.operations.front() == Some(&key) {
            queue.operations.pop_front();
            queue.pause = SHORTEST;
            let now = self.now;
            self.service.plan(operation.queue, now);
        } else {
            queue.operations.retain(|other| *other != key);
        }
        self.close_if_over(operation.node, operation.port);
        Some(operation)
    }

    /// Removes an operation from all tables except its queue.
    fn take_operation(&mut self, key: u32, code: Code) -> Option<Operation<H::Memory>> {
        let operation = self.service.operations.get(key as usize)?;
        if let Task::Send {
            load: Load::Arriving(arrival),
            ..
        } = operation.task
        {
            self.drop_arrival(arrival, code);
        }
        let service = &mut self.service;
        let operation = service.operations.remove(key as usize);
        if let Some(number) = operation.number {
            service.numbered.remove(&(operation.node, number));
        }
        if let Limit::At(at) = operation.limit {
            service.deadlines.remove(&(at, key));
        }
        if let Task::Send {
            receipt: Some(receipt),
            ..
        } = operation.task
        {
            service.receipts.remove(&receipt);
        }
        let place = (operation.node, operation.port);
        if let Some(port) = service.ports.get_mut(&place) {
            port.uses -= 1;
        }
        if let Some(link) = &mut self.nodes[operation.node as usize].link {
            link.operations -= 1;
        }
        Some(operation)
    }

    /// Removes a port that is closed and empty.
    fn close_if_over(&mut self, node: u32, port: Port) {
        if let Some(state) = self.service.ports.get(&(node, port))
            && state.is_closed
            && state.uses == 0
        {
            let protocol = state.protocol;
            self.service.remove_port(node, port);
            self.link(node).ports -= 1;
            self.post(node, Entry::Closed(port, protocol));
        }
    }

    /// Ends the operations and ports of a node whose session has ended.
    pub(super) fn lose_operations(&mut self, node: u32) {
        let gone: Vec<u32> = self
            .service
            .operations
            .iter()
            .filter(|(_, operation)| operation.node == node)
            .map(|(key, _)| key as u32)
            .collect();
        let ports: Vec<Port> = self
            .service
            .ports
            .keys()
            .filter(|(of, _)| *of == node)
            .map(|(_, port)| *port)
            .collect();
        // Removes the operations from each queue in one pass, so the time is linear in their number
        // even if many are in one queue.
        let taken = gone
            .iter()
            .filter_map(|key| self.take_operation(*key, super::GONE));
        let queues: BTreeSet<u32> = taken.map(|operation| operation.queue).collect();
        for key in queues {
            let operations = &self.service.operations;
            let queue = &mut self.service.queues[key as usize];
            let first = queue.operations.front().copied();
            let is_left = |key: &u32| operations.contains(*key as usize);
            queue.operations.retain(is_left);
            if queue.operations.front().copied() != first {
                queue.pause = SHORTEST;
                let now = self.now;
                self.service.plan(key, now);
            }
        }
        for port in ports {
            self.service.remove_port(node, port);
        }
    }

    // ---- attempts ----

    /// Makes the attempts that are due. Returns whether it did anything.
    pub(super) fn serve(&mut self, host: &mut H) -> bool {
        let now = self.now;
        let mut did = false;
        while let Some(&(at, key)) = self.service.deadlines.first()
            && at <= now
        {
            did = true;
            self.end_operation(key, Code::TIMEOUT, Reply::Nothing);
            // Usually the call has removed the deadline. If the operation no longer existed, the
            // deadline is still there.
            self.service.deadlines.remove(&(at, key));
        }
        // Tries each queue only once, because `try_queue` does all that it can do now.
        let mut due = Vec::new();
        while let Some(&(at, key)) = self.service.schedule.first()
            && at <= now
        {
            self.service.schedule.pop_first();
            self.service.queues[key as usize].next = None;
            due.push(key);
        }
        for key in due {
            did |= self.try_queue(key, host);
        }
        did
    }

    /// Tries the operations of a queue in order until one has to wait. Returns whether any
    /// operation proceeded.
    fn try_queue(&mut self, key: u32, host: &mut H) -> bool {
        let mut did = false;
        loop {
            let Some(queue) = self.service.queues.get(key as usize) else {
                return did;
            };
            let Some(&first) = queue.operations.front() else {
                return did;
            };
            match self.attempt(key, first, host) {
                Tried::Ended(code, reply) => self.end_operation(first, code, reply),
                // The operation waits for its receipt, and the next ones proceed.
                Tried::Deposited => {
                    if let Some(queue) = self.service.queues.get_mut(key as usize) {
                        queue.operations.pop_front();
                    }
                }
                Tried::Waits => return did,
                Tried::Blocked(code) => {
                    let limit = self.service.operations.get(first as usize).map(|o| o.limit);
                    if limit == Some(Limit::Once) {
                        self.end_operation(first, code, Reply::Nothing);
                    } else {
                        let queue = &mut self.service.queues[key as usize];
                        // Only these codes are caused by the channel's state, which can be watched.
                        if matches!(code, Code::CHANNEL_EMPTY | Code::CHANNEL_FULL)
                            && let Some(channel) = &mut queue.channel
                            && host.watch(channel, key)
                        {
                            return did;
                        }
                        let at = self.now + queue.pause;
                        queue.pause = (2 * queue.pause).min(LONGEST);
                        self.service.plan(key, at);
                        return did;
                    }
                }
            }
            did = true;
        }
    }

    fn attempt(&mut self, queue: u32, key: u32, host: &mut H) -> Tried {
        let service = &mut self.service;
        let Some(operation) = service.operations.get_mut(key as usize) else {
            return Tried::Waits;
        };
        let queue = &mut service.queues[queue as usize];
        // Takes no message from any channel while the budget is used up.
        if matches!(operation.task, Task::Get) && service.taken >= self.limits.getmsg {
            return match operation.limit {
                Limit::Once => Tried::Blocked(Code::CHANNEL_EMPTY),
                _ => Tried::Blocked(Code::TIMEOUT),
            };
        }
        if let Task::Send {
            load: Load::Arriving(_),
            ..
        } = operation.task
        {
            return Tried::Waits;
        }
        let channel = match &mut queue.channel {
            Some(channel) => channel,
            none => match host.attach(&queue.descriptor) {
                Ok(channel) => none.insert(channel),
                Err(code) => return Tried::Ended(code, Reply::Nothing),
            },
        };
        let tried = match &mut operation.task {
            Task::Send {
                load,
                hints,
                client,
                destination,
                receipt,
            } => {
                if let Load::Eager(bytes) = load {
                    let place = Place::Channel(destination.as_deref());
                    let mut memory = match host.allocate(bytes.len(), place) {
                        Ok(memory) => memory,
                        Err(NoMemory::Now) => return Tried::Blocked(Code::OUT_OF_SPACE),
                        Err(NoMemory::Ever(code)) => return Tried::Ended(code, Reply::Nothing),
                    };
                    memory.write(0, bytes);
                    *load = Load::Ready(Some(Message {
                        memory,
                        hints: *hints,
                        client: *client,
                    }));
                }
                let Load::Ready(message) = load else {
                    return Tried::Waits;
                };
                let wanted = (operation.mode == ReturnMode::Received).then(|| {
                    service.next_receipt += 1;
                    service.next_receipt
                });
                match host.send(channel, message, wanted) {
                    Attempt::Done(()) => match wanted {
                        Some(number) => {
                            *receipt = Some(number);
                            service.receipts.insert(number, key);
                            Tried::Deposited
                        }
                        None => Tried::Ended(Code::SUCCESS, Reply::Nothing),
                    },
                    Attempt::Blocked(code) => Tried::Blocked(code),
                    Attempt::Failed(code) => Tried::Ended(code, Reply::Nothing),
                }
            }
            Task::Get => match host.get(channel) {
                Attempt::Done(message) => {
                    service.taken += length(&message);
                    let node = operation.node;
                    let source = self.add_taken(node, message);
                    return Tried::Ended(Code::SUCCESS, Reply::Message(source));
                }
                Attempt::Blocked(code) => Tried::Blocked(code),
                Attempt::Failed(code) => Tried::Ended(code, Reply::Nothing),
            },
            Task::Poll(mask) => match host.poll(channel, *mask) {
                Attempt::Done((value, code)) => Tried::Ended(code, Reply::Value(value)),
                Attempt::Blocked(code) => Tried::Blocked(code),
                Attempt::Failed(code) => Tried::Ended(code, Reply::Nothing),
            },
        };
        if let Tried::Ended(code, Reply::Nothing) = &tried
            && *code != Code::SUCCESS
        {
            // Attaches anew next time: the channel may be gone, and another may be created in its
            // place.
            queue.channel = None;
        }
        tried
    }
}

/// The result of an attempt.
enum Tried {
    /// The operation has ended with this code and reply.
    Ended(Code, Reply),
    /// The message is in the channel, and its receipt is pending.
    Deposited,
    /// The message has not arrived yet.
    Waits,
    /// The operation is to be tried again, or fails with this code if it is tried only once.
    Blocked(Code),
}
