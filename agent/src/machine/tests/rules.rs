//! Tests of individual rules of the machine, each by calling the method that enforces it.

use credits::CreditByte;

use crate::code::Code;
use crate::host::{
    Attempt, Event, Host, Limit, Memory, Message, NoMemory, Operation, Outcome, Place, Request,
    ReturnMode,
};
use crate::machine::state::bulk::{For, Origin};
use crate::machine::state::link::Entry;
use crate::machine::timeout::Timeout;
use crate::machine::wire::{Body, Content, FrameKind, Header, Protocol, Sent, What};
use crate::machine::{AgentMachine, Limits, Node};

/// The node that sends most messages. There are three nodes, and the machine's own is node 0.
pub(in crate::machine) const PEER: u32 = 1;
const OTHER: u32 = 2;

/// A host on which every channel is empty and refuses messages.
pub(in crate::machine) struct Empty;

impl Memory for Vec<u8> {
    fn length(&self) -> usize {
        self.len()
    }
    fn read(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self[offset..][..into.len()]);
    }
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self[offset..][..bytes.len()].copy_from_slice(bytes);
    }
}

impl Host for Empty {
    type Memory = Vec<u8>;
    type Channel = ();

    fn next(&mut self, _: bool) -> Option<Event<Vec<u8>>> {
        None
    }
    fn complete(&mut self, _: u64, _: Outcome<Vec<u8>>) {}
    fn allocate(&mut self, bytes: usize, _: Place<'_>) -> Result<Vec<u8>, NoMemory> {
        Ok(vec![0; bytes])
    }
    fn import(&mut self, _: &[u8]) -> Result<Vec<u8>, Code> {
        Ok(vec![0; 100])
    }
    fn attach(&mut self, _: &[u8]) -> Result<(), Code> {
        Ok(())
    }
    fn send(
        &mut self,
        (): &mut (),
        _: &mut Option<Message<Vec<u8>>>,
        _: Option<u64>,
    ) -> Attempt<()> {
        Attempt::Blocked(Code::CHANNEL_FULL)
    }
    fn get(&mut self, (): &mut ()) -> Attempt<Message<Vec<u8>>> {
        Attempt::Blocked(Code::CHANNEL_EMPTY)
    }
    fn poll(&mut self, (): &mut (), _: u16) -> Attempt<(u64, Code)> {
        Attempt::Blocked(Code::CHANNEL_EMPTY)
    }
    fn watch(&mut self, (): &mut (), _: u32) -> bool {
        true
    }
}

pub(in crate::machine) fn machine() -> AgentMachine<Empty> {
    let nodes = (0..3).map(|host| Node {
        host,
        address: vec![host as u8],
    });
    AgentMachine::new(0, nodes.collect(), Limits::default(), 1)
}

pub(in crate::machine) const NOTHING: Sent<'_> = Sent {
    hints: 0,
    client: 0,
    content: Content::Eager(&[]),
};

fn header(kind: FrameKind, timeout: Timeout) -> Header {
    Header {
        kind,
        protocol: Protocol::GetMsg,
        mode: ReturnMode::None,
        eager: 0,
        timeout,
        port: 1,
    }
}

fn send(id: u64, mode: ReturnMode) -> Request<Vec<u8>> {
    Request {
        id,
        node: PEER.into(),
        channel: [0].into(),
        process: 0,
        limit: Limit::Never,
        operation: Operation::Send {
            handle: 1,
            message: Message {
                memory: vec![0; 10],
                hints: 0,
                client: 0,
            },
            mode,
            destination: None,
        },
    }
}

/// Responses pile up here for a node that sends requests but receives nothing.
#[test]
fn answers_that_wait_count_against_a_node() {
    let mut machine = machine();
    let cancel = Body::Cancel { number: 0 };
    let header = header(FrameKind::Cancel, Timeout::ONCE);
    for _ in 0..8 << 14 {
        assert!(machine.take_entry(PEER, &header, &cancel).is_ok());
        machine.post(PEER, Entry::Closed(1, Protocol::GetMsg));
    }
    assert!(machine.take_entry(PEER, &header, &cancel).is_err());
    assert!(machine.take_entry(OTHER, &header, &cancel).is_ok());
}

#[test]
fn buffers_that_came_early_have_taken_their_credits() {
    let mut machine = machine();
    // The cast is lossless: the number of credits is the cost of one buffer.
    let all = credits::FlowControl::lent(&machine.credits, PEER) as u8;
    let all = CreditByte::new(false, 0, all);
    assert!(machine.take_buffer(PEER, 1, all, Vec::new()).is_ok());
    assert!(machine.take_buffer(PEER, 2, all, Vec::new()).is_err());
    assert!(machine.take_buffer(OTHER, 1, all, Vec::new()).is_ok());
}

/// A host may reuse the id of a completed request.
#[test]
fn the_end_of_a_request_does_not_hide_another_one_with_its_number() {
    let mut machine = machine();
    machine.request(send(7, ReturnMode::None));
    machine.request(send(7, ReturnMode::Deposited));
    machine.forget(0);
    machine.outcomes.clear();
    machine.abandon(7);
    assert_eq!(machine.outcomes, [(7, Outcome::Failed(Code::TIMEOUT))]);
}

#[test]
fn no_more_of_a_source_is_settled_than_was_not_pulled() {
    let mut machine = machine();
    let message = Message {
        memory: vec![0; 100],
        hints: 0,
        client: 0,
    };
    let source = machine.offer(PEER, None, message);
    assert!(machine.on_pull(PEER, source, 0, (0, 60)).is_ok());
    assert!(machine.on_settle(OTHER, source, 0, 40).is_err());
    assert!(machine.on_settle(PEER, source, 0, 41).is_err());
    assert!(machine.on_settle(PEER, source, 0, 40).is_ok());
}

/// Adds a part of 100 bytes and requests it.
fn part(machine: &mut AgentMachine<Empty>) -> u32 {
    let origin = Origin::Part {
        name: [0].into(),
        destination: [1].into(),
    };
    let part = machine.add_arrival(PEER, &NOTHING, 0..100, origin, For::Loan(0, 0));
    machine.feed(&mut Empty);
    part
}

/// Overlapping strips have more bytes than were requested. If strips counted only when they end,
/// the arrival would end early, and its key would be reused while a strip is still arriving.
#[test]
fn strips_count_from_their_begin() {
    let mut machine = machine();
    let part = part(&mut machine);
    assert!(machine.begin_strip(PEER, part, 0, 60).is_ok());
    assert!(machine.begin_strip(PEER, part, 30, 41).is_err());
    assert!(machine.begin_strip(PEER, part, 30, 40).is_ok());
    assert!(machine.begin_strip(PEER, part, 99, 1).is_err());
}

#[test]
fn a_part_is_not_refused_after_some_of_it_has_come() {
    let refused_after = |bytes: usize| {
        let mut machine = machine();
        let part = part(&mut machine);
        if bytes > 0 {
            machine.begin_strip(PEER, part, 0, bytes).unwrap();
            machine.end_strip(part, bytes);
        }
        machine.on_refuse(PEER, part)
    };
    assert!(refused_after(0).is_ok());
    assert!(refused_after(40).is_err());
}

/// The channel is watched and does not change, so no event triggers another attempt at its queue.
#[test]
fn what_was_behind_a_lost_nodes_operation_is_tried() {
    let mut machine = machine();
    for (node, timeout) in [(PEER, Timeout::of(Limit::Never, 0)), (OTHER, Timeout::ONCE)] {
        let get = Body::Request {
            channel: Some(&[0]),
            number: Some(0),
            what: What::Get,
        };
        let header = header(FrameKind::Open, timeout);
        machine.take_entry(node, &header, &get).unwrap();
    }
    machine.serve(&mut Empty);
    assert_eq!(machine.held().operations, 2);
    machine.lose(PEER);
    machine.serve(&mut Empty);
    assert_eq!(machine.held().operations, 0);
}
