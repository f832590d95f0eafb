//! Tests of the machine over a network within the test.

mod hostile;
mod hub;
mod schedules;

use std::sync::Arc;

use conduit_portals::transport::Transport;
use conduit_portals::transport::open::OpenTransport;

use super::memory::{Rights, Segment, Segments};
use super::operation::Buffer;
use super::*;

use hub::{Hub, Node};

fn limits() -> Limits {
    Limits {
        unexpected: 4096,
        expected: 20_000,
        window: 4,
        early: 64 << 10,
        contexts: 2,
    }
}

/// A process: its machine, its end of the network, and its completions.
struct Process {
    node: Node,
    machine: NaMachine,
    ended: Vec<Completion>,
}

impl Process {
    fn new(hub: &Hub, address: u8, copies: bool) -> Self {
        Self {
            node: hub.start(address, copies),
            machine: NaMachine::new(limits()),
            ended: Vec::new(),
        }
    }

    fn peer(&mut self, address: u8) -> Rank {
        let peer = self.node.connect(&[address]).unwrap();
        self.machine.look_up(peer);
        peer
    }

    fn step(&mut self) -> bool {
        let arrived = self.node.receive(&mut self.machine);
        self.machine.flush(&mut self.node);
        self.node.transmit(&mut self.machine);
        self.machine.tidy(&mut self.node);
        self.ended.append(self.machine.completions());
        arrived
    }

    fn send(
        &mut self,
        to: Rank,
        cookie: u64,
        bytes: &'static [u8],
        tag: u32,
        is_expected: bool,
    ) -> OperationId {
        let buffer = Buffer {
            start: bytes.as_ptr().cast_mut(),
            length: bytes.len(),
        };
        let header = MessageHeader {
            is_expected,
            context: 0,
            tag,
        };
        self.machine.send(0, cookie, buffer, to, header).unwrap()
    }

    fn buffer(length: usize) -> Buffer {
        Buffer {
            start: Box::leak(vec![0; length].into_boxed_slice()).as_mut_ptr(),
            length,
        }
    }

    fn result(&mut self, cookie: u64) -> Option<Result<Outcome>> {
        let at = self.ended.iter().position(|ended| ended.cookie == cookie)?;
        Some(self.ended.remove(at).result)
    }

    fn register(&mut self, bytes: &mut [u8], rights: Rights) -> (MemoryKey, Arc<Segments>) {
        let segments = of(bytes);
        let key = self.machine.register(77, rights, Arc::clone(&segments));
        (key.unwrap(), segments)
    }

    fn transfer(
        &mut self,
        cookie: u64,
        to: Rank,
        is_put: bool,
        local: &Arc<Segments>,
        remote: MemoryKey,
        (offset, length): (u64, u64),
    ) -> OperationId {
        let transfer = NewTransfer {
            is_put,
            local: Arc::clone(local),
            local_offset: 0,
            remote,
            remote_offset: offset,
            length,
        };
        self.machine.transfer(0, cookie, to, transfer).unwrap()
    }
}

/// Returns memory in two segments.
fn of(bytes: &mut [u8]) -> Arc<Segments> {
    let (first, second) = bytes.split_at_mut(bytes.len() / 3);
    let segments = [first, second].map(|part| Segment {
        base: part.as_mut_ptr(),
        length: part.len(),
    });
    Arc::new(Segments::new(&segments).unwrap())
}

/// Lets the processes make progress until nothing happens any more.
fn settle(processes: &mut [&mut Process]) {
    let mut quiet = 0;
    while quiet < 3 {
        let did = processes
            .iter_mut()
            .fold(false, |did, process| process.step() | did);
        quiet = if did { 0 } else { quiet + 1 };
    }
}

fn pair(copies: bool) -> (Hub, Process, Process) {
    let hub = Hub::default();
    let (a, b) = (Process::new(&hub, 1, copies), Process::new(&hub, 2, copies));
    (hub, a, b)
}

#[test]
fn messages_find_their_receives() {
    let (_, mut a, mut b) = pair(false);
    let to_b = a.peer(2);
    let buffer = Process::buffer(4096);
    a.send(to_b, 1, b"hello", 9, false);
    settle(&mut [&mut a, &mut b]);
    assert_eq!(a.result(1), Some(Ok(Outcome::Done)));
    b.machine.receive_unexpected(0, 2, buffer, false).unwrap();
    settle(&mut [&mut a, &mut b]);
    let Some(Ok(Outcome::Unexpected {
        source,
        tag: 9,
        offset: 0,
        length: 5,
        last: true,
    })) = b.result(2)
    else {
        panic!("{:?}", b.ended);
    };
    // One expected answer has a posted receive, and the other arrives before its receive.
    for tag in [5, 6] {
        b.send(source, 3, b"world!", tag, true);
    }
    a.machine
        .receive_expected(0, 4, Process::buffer(10), (to_b, 0), 6)
        .unwrap();
    settle(&mut [&mut a, &mut b]);
    assert_eq!(a.result(4), Some(Ok(Outcome::Received(6))));
    a.machine
        .receive_expected(0, 5, Process::buffer(3), (to_b, 0), 5)
        .unwrap();
    assert_eq!(
        {
            a.step();
            a.result(5)
        },
        Some(Err(Error::Truncated { length: 6, room: 3 }))
    );
}

#[test]
fn unexpected_messages_wait_for_credits() {
    let (_, mut a, mut b) = pair(false);
    let to_b = a.peer(2);
    for cookie in 0..20 {
        a.send(to_b, cookie, b"x", cookie as u32, false);
    }
    settle(&mut [&mut a, &mut b]);
    assert_eq!(a.ended.len(), 4, "the window");
    for cookie in 0..20 {
        b.machine
            .receive_unexpected(0, cookie, Process::buffer(8), false)
            .unwrap();
    }
    settle(&mut [&mut a, &mut b]);
    assert_eq!((a.ended.len(), b.ended.len()), (20, 20));
    let tags = b.ended.iter().map(|ended| match ended.result {
        Ok(Outcome::Unexpected { tag, .. }) => tag,
        _ => panic!("{ended:?}"),
    });
    assert!(tags.eq(0..20));
}

#[test]
fn a_receive_takes_several_messages_while_there_is_room() {
    let (_, mut a, mut b) = pair(false);
    let to_b = a.peer(2);
    b.machine
        .receive_unexpected(0, 1, Process::buffer(4096 + 40), true)
        .unwrap();
    for cookie in 0..4 {
        a.send(to_b, cookie, &[7; 15], 0, false);
    }
    settle(&mut [&mut a, &mut b]);
    let seen = b.ended.iter().map(|ended| match ended.result {
        Ok(Outcome::Unexpected { offset, last, .. }) => (offset, last),
        _ => panic!("{ended:?}"),
    });
    assert_eq!(
        seen.collect::<Vec<_>>(),
        [(0, false), (16, false), (32, true)]
    );
    assert_eq!(b.machine.operation_count(), 0);
}

#[test]
fn transfers_move_what_they_should_and_nothing_else() {
    for copies in [false, true] {
        for length in [0, 1, 100, 700, 5000, 3 << 20] {
            let (_, mut a, mut b) = pair(copies);
            let to_b = a.peer(2);
            let mut here: Vec<u8> = (0..length + 10).map(|i| i as u8 ^ 5).collect();
            let mut there = vec![1u8; length + 100];
            let (remote, _) = b.register(&mut there, Rights::ReadWrite);
            let local = of(&mut here);
            a.transfer(1, to_b, true, &local, remote, (50, length as u64));
            settle(&mut [&mut a, &mut b]);
            assert_eq!(a.result(1), Some(Ok(Outcome::Done)));
            let mut expected = vec![1; length + 100];
            expected[50..][..length].copy_from_slice(&here[..length]);
            assert_eq!(there, expected);
            let mut back = vec![0; length];
            let local = of(&mut back);
            a.transfer(2, to_b, false, &local, remote, (50, length as u64));
            settle(&mut [&mut a, &mut b]);
            assert_eq!(a.result(2), Some(Ok(Outcome::Done)));
            assert_eq!(back, here[..length]);
        }
    }
}

/// Memory in segments is sent in pieces of any length, and short pieces use another channel than
/// long ones.
#[test]
fn a_get_ends_when_all_has_come_in_any_order() {
    let (_, mut a, mut b) = pair(false);
    let to_b = a.peer(2);
    let mut there: Vec<u8> = (0..9000).map(|i| i as u8 ^ 5).collect();
    let (remote, _) = b.register(&mut there, Rights::ReadOnly);
    let mut back = vec![0; 3010];
    let local = of(&mut back);
    a.transfer(1, to_b, false, &local, remote, (0, 3010));
    let result = std::iter::repeat_with(|| {
        b.step();
        a.step();
        a.result(1)
    });
    assert_eq!(result.take(100).flatten().next(), Some(Ok(Outcome::Done)));
    assert_eq!(back, there[..3010]);
}

#[test]
fn the_target_refuses_what_is_not_allowed() {
    for copies in [false, true] {
        let (_, mut a, mut b) = pair(copies);
        let to_b = a.peer(2);
        let mut here = vec![0; 10_000];
        let local = of(&mut here);
        let mut there = vec![1u8; 10_000];
        let cases = [
            (Rights::ReadOnly, true, 0, Error::Rights("written")),
            (Rights::WriteOnly, false, 0, Error::Rights("read")),
            (
                Rights::ReadWrite,
                true,
                1,
                Error::Invalid("the transfer exceeds the peer's memory"),
            ),
        ];
        for (rights, is_put, offset, error) in cases {
            let (remote, _) = b.register(&mut there, rights);
            a.transfer(1, to_b, is_put, &local, remote, (offset, 10_000));
            settle(&mut [&mut a, &mut b]);
            assert_eq!(a.result(1), Some(Err(error)));
            let forged = MemoryKey {
                key: remote.key ^ 1,
                ..remote
            };
            a.transfer(2, to_b, is_put, &local, forged, (0, 10));
            b.machine.deregister(remote);
            a.transfer(3, to_b, is_put, &local, remote, (0, 10));
            settle(&mut [&mut a, &mut b]);
            for cookie in [2, 3] {
                assert_eq!(a.result(cookie), Some(Err(Error::NoSuchMemory)));
            }
        }
        assert!(there.iter().all(|byte| *byte == 1));
        assert!(here.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn what_a_dead_peer_owes_ends_and_who_comes_next_is_served() {
    let (hub, mut a, mut b) = pair(false);
    let to_b = a.peer(2);
    let mut here = vec![7; 3 << 20];
    let local = of(&mut here);
    let mut there = vec![1u8; 3 << 20];
    let (remote, _) = b.register(&mut there, Rights::ReadWrite);
    a.transfer(1, to_b, true, &local, remote, (0, 3 << 20));
    a.machine
        .receive_expected(0, 2, Process::buffer(3), (to_b, 0), 5)
        .unwrap();
    for _ in 0..20 {
        a.step();
        b.step();
    }
    assert!(a.ended.is_empty());
    hub.kill(2);
    settle(&mut [&mut a]);
    for cookie in [1, 2] {
        assert_eq!(
            a.result(cookie),
            Some(Err(Error::Unreachable(Failure::Left)))
        );
    }
    a.send(to_b, 3, b"anybody?", 0, false);
    settle(&mut [&mut a]);
    assert_eq!(
        a.result(3),
        Some(Err(Error::Unreachable(Failure::Unreachable)))
    );
    // Start another process at the same address.
    let mut b = Process::new(&hub, 2, false);
    b.machine
        .receive_unexpected(0, 1, Process::buffer(64), false)
        .unwrap();
    a.send(to_b, 4, b"hello", 0, false);
    a.transfer(5, to_b, true, &local, remote, (0, 10));
    settle(&mut [&mut a, &mut b]);
    assert_eq!(a.result(4), Some(Ok(Outcome::Done)));
    assert_eq!(
        a.result(5),
        Some(Err(Error::NoSuchMemory)),
        "the old process's"
    );
    assert_eq!(b.ended.len(), 1);
}

/// The sender has larger limits. It is notified that its session has ended, and no receive for any
/// source is used up.
#[test]
fn a_message_beyond_the_limit_of_its_kind_ends_the_session() {
    for (is_expected, length) in [(false, 5000), (false, 5001), (true, 20_001)] {
        let (_, mut a, mut b) = pair(false);
        a.machine = NaMachine::new(Limits {
            unexpected: 30_000,
            expected: 30_000,
            ..limits()
        });
        let (to_b, to_a) = (a.peer(2), b.peer(1));
        let receives = [
            b.machine
                .receive_unexpected(0, 1, Process::buffer(30_000), true),
            b.machine
                .receive_expected(0, 2, Process::buffer(30_000), (to_a, 0), 5),
        ];
        assert!(receives.iter().all(Result::is_ok));
        a.machine
            .receive_expected(0, 3, Process::buffer(64), (to_b, 0), 6)
            .unwrap();
        let long = Box::leak(vec![7; length].into_boxed_slice());
        a.send(to_b, 4, long, 5, is_expected);
        settle(&mut [&mut a, &mut b]);
        assert_eq!(a.result(3), Some(Err(Error::Unreachable(Failure::Left))));
        assert_eq!(b.result(2), Some(Err(Error::GivenUp)));
        assert_eq!(b.machine.counters().protocol_errors, 1);
        assert_eq!(b.result(1), None, "receives from any source continue");
    }
}

#[test]
fn what_a_dead_process_has_answered_is_not_its_successors() {
    let (hub, mut a, mut b) = pair(false);
    let to_b = a.peer(2);
    let to_a = b.peer(1);
    b.send(to_a, 1, b"old", 5, true);
    settle(&mut [&mut a, &mut b]);
    hub.kill(2);
    settle(&mut [&mut a]);
    let mut b = Process::new(&hub, 2, false);
    let to_a = b.peer(1);
    a.machine
        .receive_expected(0, 2, Process::buffer(64), (to_b, 0), 5)
        .unwrap();
    b.send(to_a, 3, b"later", 5, true);
    settle(&mut [&mut a, &mut b]);
    assert_eq!(a.result(2), Some(Ok(Outcome::Received(5))));
}

/// The network gives up a peer that violates the protocol and that may still be alive. The memory
/// that it may be copying is leaked.
#[test]
fn memory_that_a_broken_peer_may_copy_is_given_up() {
    use conduit_portals::transport::fragment::FragmentHandler;
    let failures = [
        (Failure::Left, Error::Unreachable(Failure::Left)),
        (Failure::Broken("a test"), Error::GivenUp),
        (Failure::Lost(5), Error::GivenUp),
    ];
    for (failure, error) in failures {
        let (_, mut a, mut b) = pair(true);
        let to_b = a.peer(2);
        a.send(to_b, 1, b"x", 0, false);
        settle(&mut [&mut a, &mut b]);
        let mut here = vec![7; 30_000];
        let local = of(&mut here);
        let mut there = vec![1u8; 30_000];
        let (remote, _) = b.register(&mut there, Rights::ReadWrite);
        a.transfer(2, to_b, false, &local, remote, (0, 30_000));
        a.step();
        assert_eq!(a.machine.copies(), 1, "requested from the peer");
        a.machine.failed(to_b, failure);
        a.step();
        assert_eq!(a.result(2), Some(Err(error)));
    }
}

#[test]
fn every_kind_of_operation_is_canceled() {
    let (_, mut a, mut b) = pair(false);
    let to_b = a.peer(2);
    let mut here = vec![7; 3 << 20];
    let local = of(&mut here);
    let mut there = vec![1u8; 3 << 20];
    let (remote, _) = b.register(&mut there, Rights::ReadWrite);
    let operations = [
        a.send(to_b, 0, b"x", 0, false),
        a.send(to_b, 1, b"x", 0, true),
        a.machine
            .receive_unexpected(0, 2, Process::buffer(64), false)
            .unwrap(),
        a.machine
            .receive_expected(0, 3, Process::buffer(64), (to_b, 0), 5)
            .unwrap(),
        a.transfer(4, to_b, true, &local, remote, (0, 3 << 20)),
        a.transfer(5, to_b, false, &local, remote, (0, 3 << 20)),
    ];
    // Cancel the first four operations at once, and all in the middle of the transfers.
    for id in &operations[..4] {
        a.machine.cancel(*id);
    }
    for _ in 0..30 {
        a.step();
        b.step();
    }
    for id in &operations {
        a.machine.cancel(*id);
    }
    settle(&mut [&mut a, &mut b]);
    for cookie in 0..6 {
        assert_eq!(a.result(cookie), Some(Err(Error::Canceled)), "{cookie}");
    }
    // An operation that has ended is not affected.
    for id in operations {
        a.machine.cancel(id);
    }
    assert!(a.ended.is_empty());
    assert_eq!(a.machine.operation_count(), 0);
}

#[test]
fn nonsense_ends_the_session_of_who_sends_it() {
    use conduit_portals::transport::fragment::{Fragment, Payload};
    let nonsense: [&[u8]; 4] = [b"", b"\0", b"\x09short", &[1; 64]];
    for header in nonsense {
        let (_, mut a, mut b) = pair(false);
        let to_b = a.peer(2);
        a.send(to_b, 1, b"x", 0, false);
        settle(&mut [&mut a, &mut b]);
        let fragment = Fragment {
            header,
            payload: Payload::Copied(&[b"payload"]),
        };
        a.node.send(to_b, &fragment).unwrap();
        a.machine
            .receive_expected(0, 2, Process::buffer(64), (to_b, 0), 5)
            .unwrap();
        settle(&mut [&mut a, &mut b]);
        assert_eq!(b.machine.counters().protocol_errors, 1);
        assert_eq!(a.result(2), Some(Err(Error::Unreachable(Failure::Left))));
    }
}

#[test]
fn numbers_of_peers_that_are_gone_are_given_back() {
    let hub = Hub::default();
    let mut server = Process::new(&hub, 0, false);
    for round in 0..50u8 {
        let mut client = Process::new(&hub, 1 + round, false);
        server
            .machine
            .receive_unexpected(0, 1, Process::buffer(64), false)
            .unwrap();
        let to = client.peer(0);
        client.send(to, 1, b"x", 0, false);
        settle(&mut [&mut client, &mut server]);
        let Some(Ok(Outcome::Unexpected { source, .. })) = server.result(1) else {
            panic!("{:?}", server.ended);
        };
        server.machine.release(source);
        match round % 3 {
            0 => hub.kill(1 + round),
            _ => client.node.leave(),
        }
        settle(&mut [&mut server]);
        assert_eq!(server.machine.peers().count(), 0, "{round}");
    }
}
