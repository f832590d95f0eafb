//! A peer that sends forged fragments must not affect the victim's exchange with others.

use conduit_portals::transport::fragment::{Fragment, Payload, Refused};
use proptest::prelude::*;

use super::wire::{Header, Request, Status};
use super::*;

const FRIEND: u8 = 1;
const VICTIM: u8 = 2;
const HOSTILE: u8 = 3;
/// The size of the victim's registered memory in bytes.
const BYTES: usize = 9000;

/// The fields of a header, some of which are chosen so that they mean something to the victim.
#[derive(Debug, Clone)]
struct Forged {
    kind: u8,
    operation: u8,
    memory: u8,
    numbers: [u64; 2],
    small: [u8; 3],
    length: usize,
}

fn forged() -> impl Strategy<Value = Forged> {
    let number = prop_oneof![
        3 => 0u64..BYTES as u64 + 10,
        1 => any::<u64>(),
        1 => Just(u64::MAX),
    ];
    (
        0u8..9,
        0u8..8,
        0u8..4,
        [number.clone(), number],
        any::<[u8; 3]>(),
        prop_oneof![0usize..100, 0usize..6000],
    )
        .prop_map(|(kind, operation, memory, numbers, small, length)| Forged {
            kind,
            operation,
            memory,
            numbers,
            small,
            length,
        })
}

impl Forged {
    /// Returns the header. `known` are the victim's operations, and `keys` the keys of its memory.
    fn header(&self, known: &[OperationId], keys: &[MemoryKey]) -> Header {
        let [first, second] = self.numbers;
        let [context, from, tag] = self.small.map(|byte| byte % 4);
        let chosen = known.get(usize::from(self.operation));
        let operation = chosen.map_or(first, |id| id.to_u64());
        let request = Request {
            operation,
            memory: keys[usize::from(self.memory) % keys.len()],
            offset: first,
        };
        // Copies are not tried, because all processes of the test share the memory of a single real
        // process.
        match self.kind {
            0 => Header::Unexpected {
                context,
                tag: tag.into(),
            },
            1 => Header::Expected {
                context,
                from,
                tag: tag.into(),
            },
            2 => Header::Credits(second as u32),
            3 => Header::Put(request),
            4 => Header::Get {
                request,
                position: second,
                length: self.length as u32,
            },
            5 => Header::Reply {
                operation,
                position: second,
                last: tag > 1,
            },
            6 => Header::Reply {
                operation,
                position: 0,
                last: true,
            },
            7 => Header::Done {
                operation,
                status: Status::NotReadable,
            },
            _ => Header::Done {
                operation,
                status: Status::Done,
            },
        }
    }
}

proptest! {
    // `PROPTEST_CASES` can raise the number of cases.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(500)))]

    #[test]
    fn what_others_are_owed_is_not_touched(all in prop::collection::vec(forged(), 1..60)) {
        let hub = Hub::default();
        let mut friend = Process::new(&hub, FRIEND, false);
        let mut victim = Process::new(&hub, VICTIM, false);
        let mut hostile = Process::new(&hub, HOSTILE, false);
        let (mut open, mut closed) = (vec![1; BYTES], vec![2; BYTES]);
        let (open_key, _open) = victim.register(&mut open, Rights::ReadWrite);
        let (closed_key, _closed) = victim.register(&mut closed, Rights::ReadOnly);
        let wrong = MemoryKey { key: closed_key.key ^ 1, ..closed_key };
        let keys = [
            closed_key,open_key, wrong, MemoryKey { index: 77, ..open_key }];
        let (to_victim, to_friend) = (hostile.peer(VICTIM), victim.peer(FRIEND));
        let friend_to_victim = friend.peer(VICTIM);
        let mut theirs = vec![3; BYTES];
        let (friends_key, _theirs) = friend.register(&mut theirs, Rights::ReadWrite);
        // Open sessions between all processes, and get the victim's number of the hostile peer.
        victim.machine.receive_unexpected(0, 1, Process::buffer(4096), false).unwrap();
        hostile.send(to_victim, 1, b"hello", 0, false);
        settle(&mut [&mut friend, &mut victim, &mut hostile]);
        let Some(Ok(Outcome::Unexpected { source, .. })) = victim.result(1) else {
            panic!("{:?}", victim.ended);
        };
        let mut local = vec![4; BYTES];
        let beyond = local[500..].as_ptr();
        let local = of(&mut local);
        let mut got = vec![0; 900];
        let start = got.as_mut_ptr();
        let into = of(&mut got);
        for (round, forged) in (0u64..).zip(&all) {
            let cookie = 100 + 10 * round;
            let mut known = Vec::new();
            if victim.machine.peers().any(|peer| peer == source) {
                let machine = &mut victim.machine;
                let buffer = || Process::buffer(64);
                known.extend(machine.receive_expected(0, cookie, buffer(), (source, 0), 1).ok());
                known.push(victim.transfer(cookie + 1, source, false, &local, open_key, (0, 500)));
                known.push(victim.transfer(cookie + 2, source, true, &local, open_key, (0, 500)));
            }
            // Operations with another peer.
            known.push(victim.transfer(cookie + 3, to_friend, false, &into, friends_key, (0, 900)));
            let machine = &mut victim.machine;
            let expected = machine.receive_expected(0, cookie + 4, Process::buffer(64), (to_friend, 0), 2);
            known.extend(expected.ok());
            let header = forged.header(&known, &keys);
            let has_payload = matches!(forged.kind, 0 | 1 | 3 | 5 | 6) || forged.small[0] > 220;
            let payload = vec![9; if has_payload { forged.length } else { 0 }];
            let fragment = Fragment {
                header: &header.encode(),
                payload: Payload::Copied(&[&payload]),
            };
            // The victim's requests are in flight and unanswered.
            victim.step();
            if hostile.node.send(to_victim, &fragment).is_err() {
                // The session has ended, and a new one begins.
                hostile.send(to_victim, cookie, b"again", 9, true);
                hostile.step();
            }
            victim.step();
            // SAFETY: `start` points to the 900 bytes of `got`, which no thread accesses otherwise.
            let bytes = unsafe { std::slice::from_raw_parts(start, 900) };
            prop_assert!(!bytes.contains(&9), "{:?}", header);
            settle(&mut [&mut victim, &mut hostile]);
            friend.send(friend_to_victim, cookie, b"expected", 2, true);
            settle(&mut [&mut friend, &mut victim, &mut hostile]);
            prop_assert_eq!(victim.result(cookie + 3), Some(Ok(Outcome::Done)), "{:?}", header);
            prop_assert_eq!(victim.result(cookie + 4), Some(Ok(Outcome::Received(8))), "{:?}", header);
            prop_assert_eq!(friend.result(cookie), Some(Ok(Outcome::Done)), "{:?}", header);
            // SAFETY: `start` points to the 900 bytes of `got`, and no transfer is under way.
            let bytes = unsafe { std::slice::from_raw_parts(start, 900) };
            prop_assert!(bytes.iter().all(|byte| *byte == 3), "{:?}", header);
            let early = victim.machine.unexpected.iter().map(|place| place.early.len());
            // Messages of this session and of the previous one may be waiting.
            prop_assert!(early.sum::<usize>() <= 2 * limits().window as usize);
        }
        // SAFETY: `beyond` points to the last `BYTES - 500` bytes of `local`, and no transfer is
        // under way.
        let beyond = unsafe { std::slice::from_raw_parts(beyond, BYTES - 500) };
        prop_assert!(beyond.iter().all(|byte| *byte == 4));
        hub.kill(HOSTILE);
        settle(&mut [&mut friend, &mut victim]);
        prop_assert_eq!(victim.machine.operation_count(), 0);
        prop_assert!(closed.iter().all(|byte| *byte == 2));
        prop_assert!(theirs.iter().all(|byte| *byte == 3));
    }
}

#[test]
fn more_messages_than_there_are_credits_for_end_the_session() {
    let (mut a, mut b, to_b) = acquainted();
    let header = Header::Unexpected { context: 0, tag: 0 }.encode();
    let fragment = Fragment {
        header: &header,
        payload: Payload::Copied(&[b"unasked"]),
    };
    for sent in 0..=limits().window {
        assert_eq!(b.machine.counters().protocol_errors, 0, "{sent}");
        a.node.send(to_b, &fragment).unwrap();
        settle(&mut [&mut b]);
    }
    assert_eq!(b.machine.counters().protocol_errors, 1);
}

/// Returns two processes with a session, and the first one's number of the second.
fn acquainted() -> (Process, Process, Rank) {
    let (_, mut a, mut b) = pair(false);
    let to_b = a.peer(2);
    a.send(to_b, 1, b"x", 0, true);
    settle(&mut [&mut a, &mut b]);
    (a, b, to_b)
}

/// Returns whether `count` fragments with this header end the session.
fn ends_session(header: Header, payload: &[u8], count: usize) -> bool {
    let (mut a, mut b, to_b) = acquainted();
    let header = header.encode();
    let fragment = Fragment {
        header: &header,
        payload: Payload::Copied(&[payload]),
    };
    for _ in 0..count {
        // The victim sends no answer meanwhile.
        while a.node.send(to_b, &fragment) == Err(Refused::Full) {
            b.node.receive(&mut b.machine);
        }
    }
    while b.node.receive(&mut b.machine) {}
    b.machine.counters().protocol_errors > 0
}

#[test]
fn what_a_peer_may_ask_for_is_bounded() {
    let request = Request {
        operation: 1,
        memory: MemoryKey { index: 0, key: 0 },
        offset: 0,
    };
    let get = Header::Get {
        request,
        position: 0,
        length: 1,
    };
    let answers = 2 * MAX_REQUESTS as usize;
    assert!(!ends_session(get, b"", answers));
    assert!(ends_session(get, b"", answers + 1));
    // Each put is answered at once.
    let put = Header::Put(request);
    assert!(!ends_session(put, b"x", answers + 9));
    assert!(ends_session(put, b"x", answers + 10));
    for is_put in [false, true] {
        let copy = |length| match is_put {
            true => Header::PutCopy {
                request,
                address: 0,
                length,
            },
            false => Header::GetCopy {
                request,
                address: 0,
                length,
            },
        };
        let piece = send::PIECE as u32;
        assert!(!ends_session(copy(piece), b"", 1));
        assert!(ends_session(copy(piece + 1), b"", 1));
    }
}

#[test]
fn memory_is_read_until_its_readers_are_through() {
    for dies in [false, true] {
        let (hub, mut a, mut b) = pair(false);
        let to_b = a.peer(2);
        let mut theirs = vec![5; 60_000];
        let (key, _theirs) = b.register(&mut theirs, Rights::ReadWrite);
        let mut ours = vec![0; 60_000];
        let local = of(&mut ours);
        a.transfer(1, to_b, false, &local, key, (0, 60_000));
        while !b.machine.is_read(key) {
            a.step();
            b.step();
        }
        b.machine.close_memory(key);
        // New requests are refused, but earlier requests proceed.
        a.transfer(2, to_b, false, &local, key, (0, 10));
        a.transfer(3, to_b, true, &local, key, (0, 10));
        if dies {
            hub.kill(1);
            settle(&mut [&mut b]);
        } else {
            settle(&mut [&mut a, &mut b]);
            for cookie in [2, 3] {
                let result = a.result(cookie);
                assert_eq!(result, Some(Err(Error::NoSuchMemory)));
            }
        }
        assert!(!b.machine.is_read(key), "{dies}");
        b.machine.deregister(key);
    }
}

#[test]
fn a_put_into_memory_that_is_deregistered_meanwhile_is_refused() {
    let (_, mut a, mut b) = pair(false);
    let to_b = a.peer(2);
    let mut theirs = vec![5; 60_000];
    let (key, _theirs) = b.register(&mut theirs, Rights::ReadWrite);
    let mut ours = vec![6; 60_000];
    let local = of(&mut ours);
    a.transfer(1, to_b, true, &local, key, (0, 60_000));
    while !b
        .machine
        .arrivals
        .iter()
        .any(|(_, arrival)| arrival.peer() != u32::MAX)
    {
        a.step();
        b.step();
    }
    b.machine.close_memory(key);
    b.machine.deregister(key);
    settle(&mut [&mut a, &mut b]);
    assert_eq!(a.result(1), Some(Err(Error::NoSuchMemory)));
}

#[test]
fn messages_of_a_former_session_return_no_credits() {
    let (hub, mut a, mut b) = pair(false);
    let to_b = a.peer(2);
    for cookie in 0..3 {
        a.send(to_b, cookie, b"former", 0, false);
    }
    settle(&mut [&mut a, &mut b]);
    hub.kill(1);
    settle(&mut [&mut b]);
    let mut next = Process::new(&hub, 1, false);
    let to_b = next.peer(2);
    next.send(to_b, 1, b"x", 0, false);
    settle(&mut [&mut next, &mut b]);
    let credits = |process: &mut Process| process.machine.peers.get(to_b).unwrap().credits;
    let before = credits(&mut next);
    // Messages of the former session are received first.
    for cookie in 0..3 {
        let buffer = Process::buffer(4096);
        b.machine
            .receive_unexpected(0, cookie, buffer, false)
            .unwrap();
    }
    settle(&mut [&mut next, &mut b]);
    assert_eq!(b.ended.len(), 3);
    assert_eq!(credits(&mut next), before);
}
