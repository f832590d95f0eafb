//! Handling of the requests of this node's processes, and of the ports of these requests.

use super::state::bulk::{For, Origin};
use super::state::client::{ClientState, Pending, Sequence};
use super::state::link::Entry;
use super::wire::{Answer, Content, Port, Protocol};
use super::{AgentMachine, GONE, ProtocolError};
use crate::code::Code;
use crate::host::{Host, Limit, MAX_DESCRIPTOR, Message, Operation, Outcome, Request, ReturnMode};

impl<H: Host> AgentMachine<H> {
    // ---- from processes ----

    /// Starts a process's request.
    pub(super) fn request(&mut self, request: Request<H::Memory>) {
        let Request {
            id,
            node,
            channel,
            process,
            limit,
            operation,
        } = request;
        let Some(&node) = self.by_host.get(&node) else {
            return self.complete(id, Outcome::Failed(Code::NOT_FOUND));
        };
        let (mut mode, mut mask, mut of) = (ReturnMode::None, 0, u128::from(process));
        let (mut message, mut destination) = (None, None);
        let protocol = match operation {
            Operation::Send {
                handle,
                message: sent,
                mode: wanted,
                destination: place,
            } => {
                (of, mode) = (handle, wanted);
                (message, destination) = (Some(sent), place);
                Protocol::SendMsg
            }
            Operation::Get => Protocol::GetMsg,
            Operation::Poll { mask: wanted } => {
                mask = wanted;
                Protocol::Poll
            }
        };
        let lengths = [Some(&channel), destination.as_ref()];
        let is_sound = lengths
            .into_iter()
            .flatten()
            .all(|bytes| bytes.len() <= MAX_DESCRIPTOR);
        // A buffered send is complete before its only attempt, so its user would never learn that
        // the attempt failed.
        if !is_sound || (mode == ReturnMode::Buffered && limit == Limit::Once) {
            return self.complete(id, Outcome::Failed(Code::INVALID_ARGUMENT));
        }
        self.make_room_for_port();
        let by = self.client.port(Sequence {
            node,
            protocol,
            of,
            channel,
        });
        let pending = Pending {
            id,
            node,
            port: self.client.ports[by as usize].port,
            by,
            limit,
            protocol,
            mode,
            mask,
            destination,
            message,
            state: ClientState::Queued,
            completed: false,
        };
        let is_send = protocol == Protocol::SendMsg;
        // The cast is lossless: the number of requests is limited.
        let key = self.client.requests.insert(pending) as u32;
        self.client.by_id.insert(id, key);
        if let Limit::At(at) = limit {
            self.client.deadlines.insert((at, key));
        }
        if is_send && matches!(mode, ReturnMode::Immediately | ReturnMode::None) {
            self.end(key, Outcome::Sent);
        }
        self.post(node, Entry::Request(key));
    }

    /// Closes unused ports, least recently used first, once there are too many.
    fn make_room_for_port(&mut self) {
        let most = self.limits.ports as usize;
        while self.client.ports.len() - self.client.closing >= most
            && let Some((_, key)) = self.client.idle.pop_first()
        {
            let port = &mut self.client.ports[key as usize];
            let was_open = std::mem::take(&mut port.is_open);
            if !was_open && port.closes == 0 {
                self.client.remove_port(key);
                continue;
            }
            port.is_closing = true;
            self.client.closing += 1;
            if !was_open {
                continue;
            }
            port.closes += 1;
            let Sequence { node, protocol, .. } = port.sequence;
            let port = port.port;
            self.post(node, Entry::Close(port, protocol));
        }
    }

    /// Handles the confirmation of a close. The channel's agent sends it when all operations that
    /// used the port before the close have ended.
    pub(super) fn on_closed(&mut self, node: u32, port: Port) -> Result<(), ProtocolError> {
        let key = *self.client.by_port.get(&port).ok_or(ProtocolError)?;
        let port = &mut self.client.ports[key as usize];
        if port.sequence.node != node || port.closes == 0 {
            return Err(ProtocolError);
        }
        port.closes -= 1;
        if port.is_closing && port.closes == 0 {
            self.client.remove_port(key);
        }
        Ok(())
    }

    /// Reports a request's outcome to the request's user.
    fn end(&mut self, key: u32, outcome: Outcome<H::Memory>) {
        let Some(request) = self.client.get_mut(key) else {
            return;
        };
        if std::mem::replace(&mut request.completed, true) {
            if let Outcome::Failed(code) = outcome {
                self.counters.lost += 1;
                let host = self.nodes[request.node as usize].host;
                tracing::warn!(host, "lost a message whose sender no longer waits: {code}");
            }
            return;
        }
        let id = request.id;
        self.client.by_id.remove(&id);
        self.complete(id, outcome);
    }

    /// Gives up a request that was abandoned or has timed out.
    fn give_up(&mut self, key: u32, code: Code) {
        let Some(request) = self.client.get_mut(key) else {
            return;
        };
        match request.state {
            ClientState::Queued => {
                request.state = ClientState::Over;
                request.message = None;
                self.end(key, Outcome::Failed(code));
            }
            ClientState::Sent if request.is_answered() => {
                // Only the channel's agent knows the outcome, because it may have taken a message
                // from the channel already.
                request.state = ClientState::Canceled;
                let node = request.node;
                self.post(node, Entry::Cancel(key));
            }
            _ => {}
        }
    }

    pub(super) fn abandon(&mut self, id: u64) {
        if let Some(&key) = self.client.by_id.get(&id) {
            self.give_up(key, Code::TIMEOUT);
        }
    }

    pub(super) fn client_deadlines(&mut self) {
        while let Some(&(at, key)) = self.client.deadlines.first()
            && at <= self.now
        {
            self.client.deadlines.pop_first();
            self.give_up(key, Code::TIMEOUT);
        }
    }

    // ---- packed ----

    /// Records that a request was packed.
    pub(super) fn request_packed(&mut self, key: u32) {
        if let Some(request) = self.client.get_mut(key) {
            request.state = ClientState::Sent;
            let by = request.by as usize;
            if let Some(port) = self.client.ports.get_mut(by) {
                port.is_open = true;
            }
        }
    }

    /// Ends a send that gets no response, once this agent no longer needs its message.
    pub(super) fn message_gone(&mut self, key: u32) {
        let Some(request) = self.client.get(key) else {
            return;
        };
        if !request.is_answered() {
            self.end(key, Outcome::Sent);
            self.forget(key);
        }
    }

    /// Removes a request.
    pub(super) fn forget(&mut self, key: u32) {
        if let Some(request) = self.client.requests.try_remove(key as usize) {
            if let Limit::At(at) = request.limit {
                self.client.deadlines.remove(&(at, key));
            }
            // If the request was completed early, another request may have the same id.
            if self.client.by_id.get(&request.id) == Some(&key) {
                self.client.by_id.remove(&request.id);
            }
            self.client.release(request.by);
        }
    }

    /// Fails a request with a code and removes it.
    pub(super) fn fail_request(&mut self, key: u32, code: Code) {
        self.end(key, Outcome::Failed(code));
        self.forget(key);
    }

    /// Completes a get with the message that it received.
    pub(super) fn got(&mut self, key: u32, message: Message<H::Memory>) {
        self.end(key, Outcome::Got(message));
        self.forget(key);
    }

    // ---- answered ----

    pub(super) fn on_response(
        &mut self,
        node: u32,
        protocol: Protocol,
        number: u32,
        code: Code,
        answer: &Answer<'_>,
    ) -> Result<(), ProtocolError> {
        let request = self.client.get_mut(number);
        let request = request.ok_or(ProtocolError)?;
        let is_awaited = matches!(request.state, ClientState::Sent | ClientState::Canceled);
        if request.node != node
            || request.protocol != protocol
            || !is_awaited
            || !request.is_answered()
        {
            return Err(ProtocolError);
        }
        match *answer {
            Answer::Value(value) => {
                self.end(number, Outcome::Polled(value, code));
                self.forget(number);
            }
            Answer::Message(sent) if code == Code::SUCCESS => {
                request.state = ClientState::Arriving;
                match sent.content {
                    Content::Eager(bytes) => self.land(node, number, &sent, bytes),
                    Content::Bulk {
                        length,
                        source,
                        name,
                    } => {
                        if length == 0 {
                            return Err(ProtocolError);
                        }
                        let name = name.map(Into::into);
                        let origin = Origin::Source { source, name };
                        self.expect(node, &sent, length, origin, For::Request(number));
                    }
                }
            }
            _ if protocol == Protocol::SendMsg && code == Code::SUCCESS => {
                self.end(number, Outcome::Sent);
                self.forget(number);
            }
            _ if code == Code::SUCCESS => return Err(ProtocolError),
            _ => self.fail_request(number, code),
        }
        Ok(())
    }

    /// Ends the requests and ports of a node whose session has ended.
    pub(super) fn lose_requests(&mut self, node: u32) {
        let gone: Vec<u32> = self
            .client
            .requests
            .iter()
            .filter(|(_, request)| request.node == node)
            .map(|(key, _)| key as u32)
            .collect();
        for key in gone {
            match self.client.get(key).is_some_and(Pending::is_over) {
                true => self.forget(key),
                false => self.fail_request(key, GONE),
            }
        }
        let closed: Vec<u32> = self
            .client
            .ports
            .iter()
            .filter(|(_, port)| port.sequence.node == node)
            .map(|(key, _)| key as u32)
            .collect();
        for key in closed {
            self.client.remove_port(key);
        }
    }
}
