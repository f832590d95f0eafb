//! Traffic with one node: entries, which are packed into eager buffers, and all other fragments.

use conduit_portals::transport::fragment::{Fragment as Parts, MAX_TINY, Payload, Refused};
use conduit_portals::transport::open::OpenTransport;
use credits::{CreditByte, FlowControl, System};

use super::state::link::BUFFER;
use super::state::link::{Entry, MAX_NAME, Reply, Response, Sending};
use super::wire::{
    self, Answer, Body, Content, Entries, Fragment, MAX_REPLIES, OVERHEAD, Port, Protocol, Sent,
    Told, What,
};
use super::{AgentMachine, Arrived, From, ProtocolError};
use crate::host::{Host, Memory, ReturnMode};
use crate::machine::timeout::Timeout;

impl<H: Host> AgentMachine<H> {
    /// Queues an entry for a node.
    pub(super) fn post(&mut self, node: u32, entry: Entry) {
        self.link(node).entries.push_back(entry);
        self.list(node);
    }

    /// Queues a short fragment for a node.
    pub(super) fn control(&mut self, node: u32, fragment: &Fragment) {
        self.control_with(node, fragment, Box::default());
    }

    /// Queues a short fragment with a short payload for a node.
    pub(super) fn control_with(&mut self, node: u32, fragment: &Fragment, payload: Box<[u8]>) {
        let fragment = (fragment.encode(), payload);
        self.link(node).control.push_back(fragment);
        self.list(node);
    }

    // ---- out ----

    /// Packs and sends as much as possible. Returns whether anything was packed or sent.
    pub(super) fn transmit(&mut self, network: &mut impl OpenTransport) -> bool {
        while let Some((node, message)) = self.credits.next_system() {
            self.control(node, &system(message));
        }
        let mut did = false;
        let mut listed = std::mem::take(&mut self.listed);
        // Shuffles the nodes each time, so that agents do not all send to the same node at once.
        self.random.shuffle(&mut listed);
        for node in listed {
            self.link(node).listed = false;
            did |= self.transmit_to(node, network);
            let link = self.nodes[node as usize].link.as_deref();
            if link.is_some_and(|link| !link.is_quiet()) {
                self.list(node);
            }
        }
        did
    }

    fn transmit_to(&mut self, node: u32, network: &mut impl OpenTransport) -> bool {
        if node != self.own && self.rank(node, network).is_none() {
            return false;
        }
        if self.nodes[node as usize].expected && !self.is_greeted(node, network) {
            return false;
        }
        let mut did = self.pack(node);
        did |= self.send_control(node, network) == Ok(true);
        did |= self.send_buffers(node, network);
        did |= self.send_told(node, network);
        did | self.send_strips(node, network)
    }

    /// Greets an agent that has never been heard from, and returns whether the network took the
    /// greeting. Nothing is packed for the agent until the network has taken the greeting, so that
    /// all queued traffic can still time out.
    fn is_greeted(&mut self, node: u32, network: &mut impl OpenTransport) -> bool {
        let greeting = Fragment::Told(Told::default()).encode();
        let now = self.now;
        let is_greeted = self.link(node).again(now).is_none()
            && self.give(node, &greeting, &[], None, network).is_ok();
        if is_greeted {
            self.nodes[node as usize].expected = false;
        }
        is_greeted
    }

    /// Hands a fragment to the network, or directly to this agent if `node` is this agent's node.
    /// The payload is that of `sending`, or `short` if `sending` is `None`. On an error, `sending`
    /// is returned.
    fn give(
        &mut self,
        node: u32,
        header: &[u8],
        short: &[u8],
        sending: Option<Sending>,
        network: &mut impl OpenTransport,
    ) -> Result<(), (Refused, Option<Sending>)> {
        let length = match &sending {
            None => short.len(),
            Some(Sending::Buffer { bytes, .. }) => bytes.len(),
            // The cast is lossless: the length of a strip fits `usize`.
            Some(Sending::Strip { length, .. }) => *length as usize,
        };
        if node == self.own {
            let mut payload = vec![0; length];
            match &sending {
                None => payload.copy_from_slice(short),
                Some(Sending::Buffer { bytes, .. }) => payload.copy_from_slice(bytes),
                Some(Sending::Strip { source, offset, .. }) => {
                    self.bulk.read(*source, *offset, &mut payload);
                }
            }
            self.arrived.push_back(Arrived {
                from: From::Own,
                header: header.to_vec(),
                payload,
            });
            if let Some(sending) = sending {
                self.is_sent(&sending);
            }
            return Ok(());
        }
        let Some(rank) = self.rank(node, network) else {
            return Err((Refused::NoSuchRank, sending));
        };
        let tiny = match &sending {
            None => Some(short),
            Some(Sending::Buffer { bytes, .. }) if header.len() + bytes.len() <= MAX_TINY => {
                Some(&bytes[..])
            }
            _ => None,
        };
        if let Some(bytes) = tiny {
            let payload = Payload::Copied(&[bytes]);
            return match network.send(rank, &Parts { header, payload }) {
                Ok(()) => {
                    if let Some(sending) = sending {
                        self.is_sent(&sending);
                    }
                    Ok(())
                }
                Err(refused) => Err((refused, sending)),
            };
        }
        let Some(sending) = sending else {
            return Ok(());
        };
        let token = self.sending.insert(sending);
        let payload = Payload::Read {
            token: token as u64,
            // The cast is lossless: the length of a buffer or of a strip fits `u32`.
            length: length as u32,
        };
        network
            .send(rank, &Parts { header, payload })
            .map_err(|refused| (refused, Some(self.sending.remove(token))))
    }

    /// Handles the end of a send. The network no longer reads the bytes of the send.
    pub(super) fn is_sent(&mut self, sending: &Sending) {
        match sending {
            Sending::Buffer { node, .. } => {
                self.link(*node).flying -= 1;
                self.list(*node);
            }
            Sending::Strip { source, length, .. } => self.strip_sent(*source, *length),
        }
    }

    fn send_control(
        &mut self,
        node: u32,
        network: &mut impl OpenTransport,
    ) -> Result<bool, Refused> {
        let mut did = false;
        while let Some((header, payload)) = self.link(node).control.pop_front() {
            if let Err((refused, _)) = self.give(node, &header, &payload, None, network) {
                self.link(node).control.push_front((header, payload));
                return Err(refused);
            }
            did = true;
        }
        Ok(did)
    }

    fn send_buffers(&mut self, node: u32, network: &mut impl OpenTransport) -> bool {
        let (now, age) = (self.now, self.limits.age);
        let is_idle = node == self.own
            || (self.limits.idle
                && self.link(node).flying == 0
                && self.nodes[node as usize]
                    .rank
                    .is_none_or(|rank| network.is_idle(rank)));
        let link = self.link(node);
        let is_old = link.due(age).is_some_and(|due| due <= now);
        if !link.open.is_empty() && ((is_idle && link.packed.is_empty()) || is_old) {
            let open = std::mem::take(&mut link.open);
            link.packed.push_back(open);
        }
        let mut did = false;
        while let Some(bytes) = self.link(node).packed.pop_front() {
            let cost = self.scale.cost(bytes.len());
            let credits = match node == self.own {
                true => Ok(CreditByte::default()),
                false => self.credits.take(node, cost),
            };
            let Ok(credits) = credits else {
                self.link(node).packed.push_front(bytes);
                break;
            };
            let link = self.link(node);
            let told = take_told(&mut link.told);
            let header = Fragment::Buffer {
                sequence: link.next,
                credits,
                told: told.clone(),
            };
            let (header, length) = (header.encode(), bytes.len());
            link.flying += 1;
            let sending = Sending::Buffer { node, bytes };
            if let Err((_, sending)) = self.give(node, &header, &[], Some(sending), network) {
                self.credits.give_back(node, credits);
                let link = self.link(node);
                link.flying -= 1;
                untake(&mut link.told, told);
                if let Some(Sending::Buffer { bytes, .. }) = sending {
                    link.packed.push_front(bytes);
                }
                break;
            }
            let link = self.link(node);
            link.next = link.next.wrapping_add(1);
            self.counters.buffers += 1;
            self.counters.bytes += length as u64;
            did = true;
        }
        did
    }

    fn send_told(&mut self, node: u32, network: &mut impl OpenTransport) -> bool {
        let mut did = false;
        while self.link(node).told != Told::default() {
            let told = take_told(&mut self.link(node).told);
            let header = Fragment::Told(told.clone()).encode();
            if self.give(node, &header, &[], None, network).is_err() {
                untake(&mut self.link(node).told, told);
                break;
            }
            did = true;
        }
        did
    }

    fn send_strips(&mut self, node: u32, network: &mut impl OpenTransport) -> bool {
        let mut did = false;
        while let Some(pulled) = self.link(node).pulls.pop_front() {
            let length = pulled.length.min(self.limits.strip.into());
            if self.bulk.injected > 0 && self.bulk.injected + length > self.limits.injection {
                self.link(node).pulls.push_front(pulled);
                break;
            }
            let header = Fragment::Strip {
                arrival: pulled.arrival,
                offset: pulled.offset,
            };
            let sending = Sending::Strip {
                node,
                source: pulled.source,
                offset: pulled.offset,
                length,
            };
            self.strip_begins(pulled.source, length);
            let header = header.encode();
            let given = self.give(node, &header, &[], Some(sending), network);
            if given.is_err() {
                self.strip_refused(pulled.source, length);
                self.link(node).pulls.push_front(pulled);
                break;
            }
            self.counters.strips += 1;
            did = true;
            if let Some(rest) = pulled.after(length) {
                self.link(node).pulls.push_front(rest);
            }
        }
        did
    }

    // ---- packing ----

    /// Packs entries into the open buffer while there is room. Returns whether any
    /// entry was packed.
    fn pack(&mut self, node: u32) -> bool {
        let mut did = false;
        while let Some(entry) = self.link(node).entries.pop_front() {
            let entry = match entry {
                Entry::Request(key) => match self.pack_request(node, key) {
                    true => None,
                    false => Some(entry),
                },
                Entry::Response(response) => match self.pack_response(node, &response) {
                    true => None,
                    false => Some(Entry::Response(response)),
                },
                Entry::Cancel(key) => {
                    // If the response has arrived in the meantime, there is nothing to cancel.
                    let of = self
                        .client
                        .get(key)
                        .map(|request| (request.port, request.protocol));
                    let body = Body::Cancel { number: key };
                    match of.is_none_or(|(port, protocol)| self.put(node, port, protocol, &body)) {
                        true => None,
                        false => Some(entry),
                    }
                }
                Entry::Close(port, protocol) => {
                    match self.put(node, port, protocol, &Body::Close) {
                        true => None,
                        false => Some(entry),
                    }
                }
                Entry::Closed(port, protocol) => {
                    match self.put(node, port, protocol, &Body::Closed) {
                        true => None,
                        false => Some(entry),
                    }
                }
            };
            if let Some(entry) = entry {
                self.link(node).entries.push_front(entry);
                break;
            }
            did = true;
        }
        did
    }

    /// Appends a short entry. Returns `false` if there is no room now.
    fn put(&mut self, node: u32, port: Port, protocol: Protocol, body: &Body<'_>) -> bool {
        self.put_entry(
            node,
            OVERHEAD,
            (protocol, ReturnMode::None, Timeout::ONCE, port),
            body,
        )
    }

    /// Appends an entry of at most `most` bytes. Returns `false` if there is no room now.
    fn put_entry(
        &mut self,
        node: u32,
        most: usize,
        header: (Protocol, ReturnMode, Timeout, Port),
        body: &Body<'_>,
    ) -> bool {
        let now = self.now;
        let link = self.link(node);
        if !link.make_room(most, now) {
            return false;
        }
        wire::append(&mut link.open, header, body);
        debug_assert!(link.open.len() <= BUFFER);
        self.counters.entries += 1;
        true
    }

    fn pack_request(&mut self, node: u32, key: u32) -> bool {
        let now = self.now;
        let room = self.share.saturating_sub(self.link(node).left);
        let Some(request) = self.client.get(key) else {
            return true;
        };
        if request.is_over() {
            self.forget(key);
            return true;
        }
        let timeout = Timeout::of(request.limit, now);
        let header = (request.protocol, request.mode, timeout, request.port);
        let number = request.is_answered().then_some(key);
        let (mask, destination) = (request.mask, request.destination.clone());
        let length = request
            .message
            .as_ref()
            .map(|message| message.memory.length());
        let channel = self.client.descriptor(key);
        let lengths = [&channel, &destination].map(|bytes| bytes.as_ref().map_or(0, |b| b.len()));
        let fixed = OVERHEAD + lengths.iter().sum::<usize>();
        // `room` bounds the number of bytes of this node's eager messages that the other agent
        // holds.
        let is_eager = |length: &usize| fixed + length <= BUFFER && *length as u64 <= room;
        let eager = length.filter(is_eager);
        let is_named = eager.is_none() && length.is_some_and(|bytes| self.is_shared(node, bytes));
        let named = if is_named { MAX_NAME } else { 0 };
        let most = fixed + eager.unwrap_or(named);
        if !self.link(node).make_room(most, now) {
            return false;
        }
        let mut bytes = vec![0; eager.unwrap_or(0)];
        let name;
        let what = match self
            .client
            .get_mut(key)
            .and_then(|request| request.message.take())
        {
            Some(message) => What::Send {
                destination: destination.as_deref(),
                message: Sent {
                    hints: message.hints,
                    client: message.client,
                    content: match eager {
                        Some(length) => {
                            message.memory.read(0, &mut bytes);
                            self.link(node).left += length as u64;
                            Content::Eager(&bytes)
                        }
                        None => {
                            name = is_named.then(|| message.memory.export()).flatten();
                            let length = message.memory.length() as u64;
                            let of = number.is_none().then_some(key);
                            let source = self.offer(node, of, message);
                            let name = name.as_deref();
                            Content::Bulk {
                                length,
                                source,
                                name,
                            }
                        }
                    },
                },
            },
            None if header.0 == Protocol::Poll => What::Poll { mask },
            None => What::Get,
        };
        let body = Body::Request {
            channel: channel.as_deref(),
            number,
            what,
        };
        let is_packed = self.put_entry(node, most, header, &body);
        debug_assert!(
            is_packed,
            "no room for an entry although `make_room` succeeded"
        );
        self.request_packed(key);
        if eager.is_some() {
            self.message_gone(key);
        }
        true
    }

    fn pack_response(&mut self, node: u32, response: &Response) -> bool {
        let &Response {
            port,
            protocol,
            number,
            code,
            ref answer,
        } = response;
        let header = (protocol, ReturnMode::None, Timeout::ONCE, port);
        let &Reply::Message(source) = answer else {
            let answer = match answer {
                Reply::Value(value) => Answer::Value(*value),
                _ => Answer::Nothing,
            };
            let body = Body::Response {
                number,
                code,
                answer,
            };
            return self.put_entry(node, OVERHEAD, header, &body);
        };
        let Some(message) = self.bulk.describe(source) else {
            return true;
        };
        let (length, hints, client) = (message.memory.length(), message.hints, message.client);
        let is_eager = OVERHEAD + length <= BUFFER;
        let is_named = !is_eager && self.is_shared(node, length);
        let name = match is_named {
            true => message.memory.export(),
            false => None,
        };
        let named = if is_named { MAX_NAME } else { 0 };
        let most = OVERHEAD + if is_eager { length } else { named };
        let now = self.now;
        if !self.link(node).make_room(most, now) {
            return false;
        }
        let mut bytes = Vec::new();
        let content = if is_eager {
            bytes.resize(length, 0);
            self.bulk.read(source, 0, &mut bytes);
            self.source_over(source);
            Content::Eager(&bytes)
        } else {
            Content::Bulk {
                length: length as u64,
                source,
                name: name.as_deref(),
            }
        };
        let message = Sent {
            hints,
            client,
            content,
        };
        let body = Body::Response {
            number,
            code,
            answer: Answer::Message(message),
        };
        self.put_entry(node, most, header, &body)
    }

    // ---- in ----

    pub(super) fn take_buffer(
        &mut self,
        node: u32,
        sequence: u32,
        credits: CreditByte,
        bytes: Vec<u8>,
    ) -> Result<(), ProtocolError> {
        if bytes.len() > BUFFER {
            return Err(ProtocolError);
        }
        if node != self.own {
            // The node must pay for the buffer with credits, and must not use more credits than
            // this agent has lent to it.
            let lent = self.credits.lent(node);
            let early = self.link(node).early.values();
            let early: u32 = early.map(|(credits, _)| u32::from(credits.credits())).sum();
            let is_paid = credits.credits() >= self.scale.cost(bytes.len());
            if !is_paid || early + u32::from(credits.credits()) > lent {
                return Err(ProtocolError);
            }
        }
        let link = self.link(node);
        if sequence.wrapping_sub(link.expected) > 1 << 16 {
            return Err(ProtocolError);
        }
        link.early.insert(sequence, (credits, bytes));
        while let Some((credits, bytes)) = {
            let link = self.link(node);
            link.early.remove(&link.expected)
        } {
            self.link(node).expected = sequence_after(self.link(node).expected);
            for entry in Entries::of(&bytes) {
                let (header, body) = entry.ok_or(ProtocolError)?;
                self.take_entry(node, &header, &body)?;
            }
            if node != self.own {
                let reply = self.credits.grant(node, credits);
                self.link(node).told.replies.push(reply);
                self.list(node);
            }
        }
        Ok(())
    }

    pub(super) fn told(&mut self, node: u32, told: &Told) -> Result<(), ProtocolError> {
        let link = self.link(node);
        link.left = link
            .left
            .checked_sub(told.consumed.into())
            .ok_or(ProtocolError)?;
        for reply in &told.replies {
            self.credits
                .settle(node, *reply)
                .map_err(|_| ProtocolError)?;
        }
        Ok(())
    }

    pub(super) fn on_revoke(&mut self, node: u32, end_of_epoch: bool) -> Result<(), ProtocolError> {
        let answer = self
            .credits
            .on_system(node, System::Revoke { end_of_epoch });
        if let Some(answer) = answer.map_err(|_| ProtocolError)? {
            self.control(node, &system(answer));
        }
        Ok(())
    }

    pub(super) fn on_return(
        &mut self,
        node: u32,
        credits: u16,
        end_of_epoch: bool,
    ) -> Result<(), ProtocolError> {
        let message = System::Return {
            credits,
            end_of_epoch,
        };
        self.credits
            .on_system(node, message)
            .map_err(|_| ProtocolError)?;
        Ok(())
    }
}

fn sequence_after(sequence: u32) -> u32 {
    sequence.wrapping_add(1)
}

fn system(message: System) -> Fragment {
    match message {
        System::Revoke { end_of_epoch } => Fragment::Revoke { end_of_epoch },
        System::Return {
            credits,
            end_of_epoch,
        } => Fragment::Return {
            credits,
            end_of_epoch,
        },
    }
}

/// Takes as much of the flow control information as fits into a single fragment.
fn take_told(told: &mut Told) -> Told {
    let count = told.replies.len().min(MAX_REPLIES);
    Told {
        consumed: std::mem::take(&mut told.consumed),
        replies: told.replies.drain(..count).collect(),
    }
}

fn untake(told: &mut Told, before: Told) {
    told.consumed += before.consumed;
    told.replies.splice(..0, before.replies);
}
