//! The network between the two nodes. It holds the fragments that an end has sent until a step of
//! the checker delivers them, with any delay and in any order that the contract of
//! [`OpenTransport`] allows.

use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use conduit_core::ni::Rank;
use conduit_portals::transport::fragment::{Failure, Fragment, FragmentHandler, Payload, Refused};
use conduit_portals::transport::open::{ConnectError, OpenTransport};
use conduit_portals::transport::{Transport, Wait};

use crate::Fault;

/// The maximum number of long fragments that an end holds.
const ROOM: usize = 2;

/// An input for the next progress of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Arrival {
    Short(Vec<u8>, Vec<u8>),
    Begin(Vec<u8>, Vec<u8>),
    End,
    Sent(u64),
    Failed,
    Joined,
}

/// A long fragment in flight.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Long {
    pub(crate) header: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    pub(crate) token: u64,
    /// It has begun to arrive.
    pub(crate) has_begun: bool,
}

/// One node's end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct End {
    fault: Fault,
    peer: Rank,
    address: [u8; 4],
    /// The session with the other node, which may have ended there.
    pub(crate) session: Option<u32>,
    /// Whether this end wants a session.
    pub(crate) wants: bool,
    /// Whether the peer has a number.
    pub(crate) is_known: bool,
    pub(crate) inbox: VecDeque<Arrival>,
    /// Fragments on their way to the other node.
    pub(crate) short: VecDeque<(Vec<u8>, Vec<u8>)>,
    pub(crate) long: VecDeque<Long>,
    /// Long fragments to be read, as tokens with headers and lengths; tokens of those in flight;
    /// tokens of those that have arrived.
    reading: Vec<(u64, Vec<u8>, usize)>,
    flying: Vec<u64>,
    pub(crate) arrived: VecDeque<u64>,
    /// The handler's id of a long fragment that is arriving.
    landing: Option<u64>,
}

impl End {
    pub(crate) fn new(fault: Fault, own: Rank) -> Self {
        Self {
            fault,
            peer: 1 - own,
            address: own.to_le_bytes(),
            session: None,
            wants: false,
            is_known: false,
            inbox: VecDeque::new(),
            short: VecDeque::new(),
            long: VecDeque::new(),
            reading: Vec::new(),
            flying: Vec::new(),
            arrived: VecDeque::new(),
            landing: None,
        }
    }

    /// Handles the end of its session.
    pub(crate) fn lose(&mut self) {
        self.forget();
        if self.fault != Fault::Deaf {
            self.inbox.push_back(Arrival::Failed);
        }
    }

    fn forget(&mut self) {
        self.session = None;
        self.short.clear();
        self.long.clear();
        self.reading.clear();
        self.flying.clear();
        self.arrived.clear();
    }

    /// Begins a session.
    pub(crate) fn meet(&mut self, session: u32) {
        if self.session.is_some() {
            self.lose();
        }
        self.session = Some(session);
        self.wants = false;
        if !std::mem::replace(&mut self.is_known, true) {
            self.inbox.push_back(Arrival::Joined);
        }
    }

    /// Reports to the handler that a long fragment has arrived.
    pub(crate) fn sent(&mut self) {
        if let Some(token) = self.arrived.pop_front() {
            self.flying.retain(|flying| *flying != token);
            self.inbox.push_back(Arrival::Sent(token));
        }
    }

    /// Alters a fragment like a faulty agent.
    fn spoil(&self, header: &mut Vec<u8>, payload: &mut Vec<u8>) {
        // A buffer's header: kind, sequence, credits, bytes consumed, replies. A `Told` header:
        // kind, and the last two.
        let told = match header.first() {
            Some(1) => 6,
            Some(2) => 1,
            _ => return,
        };
        match self.fault {
            Fault::SaysTwice => *payload = payload.repeat(2),
            Fault::KeepsBudget => header[told..told + 4].fill(0),
            Fault::KeepsCredits => header.truncate(told + 4),
            _ => {}
        }
    }
}

struct Never;

impl Wait for Never {
    fn wait(&self, _: Option<&OwnedFd>, _: Option<Duration>) -> bool {
        true
    }
}

impl Transport for End {
    fn send(&mut self, _: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        if self.session.is_none() {
            self.wants = true;
            return Err(Refused::Full);
        }
        let mut header = fragment.header.to_vec();
        match fragment.payload {
            Payload::Copied(pieces) => {
                let mut payload = pieces.concat();
                self.spoil(&mut header, &mut payload);
                self.short.push_back((header, payload));
            }
            Payload::Read { token, length } => {
                if self.outstanding(self.peer) >= ROOM {
                    return Err(Refused::Full);
                }
                // Fits: the length of a buffer or a strip.
                self.reading.push((token, header, length as usize));
            }
        }
        Ok(())
    }

    fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let did = !self.inbox.is_empty();
        let peer = self.peer;
        for arrival in std::mem::take(&mut self.inbox) {
            match arrival {
                Arrival::Short(header, payload) => {
                    assert!(
                        handler.fragment(peer, &header, &payload),
                        "agents have room"
                    );
                }
                Arrival::Begin(header, payload) => {
                    let id = handler.begin(peer, &header, payload.len());
                    let id = id.expect("agents have room");
                    // Chunks arrive in any order.
                    let half = payload.len() / 2;
                    handler.place(id, half, &payload[half..]);
                    handler.place(id, 0, &payload[..half]);
                    self.landing = Some(id);
                }
                Arrival::End => {
                    if let Some(id) = self.landing.take() {
                        handler.end(id);
                    }
                }
                Arrival::Sent(token) => handler.sent(peer, token),
                Arrival::Failed => {
                    self.landing = None;
                    handler.failed(peer, Failure::Left);
                }
                Arrival::Joined => handler.joined(peer),
            }
        }
        did
    }

    fn transmit(&mut self, handler: &mut impl FragmentHandler) {
        for (token, header, length) in std::mem::take(&mut self.reading) {
            let mut payload = vec![0; length];
            handler.read(self.peer, token, 0, &mut payload);
            self.flying.push(token);
            self.long.push_back(Long {
                header,
                payload,
                token,
                has_begun: false,
            });
        }
    }

    fn outstanding(&self, _: Rank) -> usize {
        self.reading.len() + self.flying.len()
    }
    fn timeout(&self) -> Option<Duration> {
        None
    }
    fn waiter(&self) -> Arc<dyn Wait> {
        Arc::new(Never)
    }
    fn abandon(&mut self, _: &[Rank], _: &mut impl FragmentHandler) {}
    fn describe(&self, peer: Rank) -> String {
        format!("node {peer}")
    }
}

impl OpenTransport for End {
    fn address(&self) -> &[u8] {
        &self.address
    }
    fn address_to_text(&self, address: &[u8]) -> Option<String> {
        Some(format!("{address:?}"))
    }
    fn address_of_text(&self, _: &str) -> Result<Vec<u8>, ConnectError> {
        Err(ConnectError::Malformed("nodes have no names"))
    }
    fn connect(&mut self, _: &[u8]) -> Result<Rank, ConnectError> {
        self.is_known = true;
        Ok(self.peer)
    }
    fn peer_address(&self, peer: Rank) -> Option<Vec<u8>> {
        Some(peer.to_le_bytes().to_vec())
    }
    fn has_session(&self, _: Rank) -> bool {
        self.session.is_some()
    }
    fn end_session(&mut self, _: Rank) {
        self.forget();
        self.landing = None;
    }
    fn close(&mut self, peer: Rank) {
        self.end_session(peer);
        self.is_known = false;
    }
    fn leave(&mut self) {
        self.forget();
    }
    fn descriptors<'a>(&'a self, _: &mut Vec<BorrowedFd<'a>>) {}
}
