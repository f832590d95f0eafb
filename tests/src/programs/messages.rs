//! Programs that test messages between processes.

use conduit_core::ni::{Ack, Exchange, Inject, MatchEntry, Ni, Outcome, Put};

use super::Group;
use crate::conformance::entry::{PT, managed, pattern, put_to};
use crate::conformance::{Seen, World};

/// Each rank sends a greeting to the next one.
pub(super) fn hello<N: Ni>(w: &mut World<N>) {
    let mut group = Group::join(w);
    w.listen(group.rank);
    w.append(group.rank, managed(8192, 64));
    group.meet(w);
    let next = (group.rank + 1) % group.size;
    let md = w.source(group.rank, format!("hello {next}").as_bytes());
    let end = w.put_and_wait(&md, &put_to(next, &md));
    assert_eq!(end.outcome, Outcome::Done);
    let put = group.wait_puts(w, 1).remove(0);
    assert_eq!(put.source, (group.rank + group.size - 1) % group.size);
    assert_eq!(put.data, format!("hello {}", group.rank).as_bytes());
    group.meet(w);
}

/// The ranks pass a token round a thousand times.
pub(super) fn token_ring<N: Ni>(w: &mut World<N>) {
    const ROUNDS: u64 = 1000;
    let mut group = Group::join(w);
    w.listen(group.rank);
    w.append(group.rank, managed(1 << 20, 64));
    let md = w.source(group.rank, &[]);
    group.meet(w);
    let next = (group.rank + 1) % group.size;
    for round in 0..ROUNDS {
        let pass = Put {
            hdr_data: round,
            ack: Ack::Local,
            ..put_to(next, &md)
        };
        if group.rank == 0 {
            w.put(0, &pass);
        }
        let put = group.wait_puts(w, 1).remove(0);
        assert_eq!(put.hdr_data, round);
        w.forget(|event| matches!(event, Seen::Put(seen) if *seen == put));
        if group.rank != 0 {
            w.put(group.rank, &pass);
        }
        w.end_of(group.rank, 0);
    }
    group.meet(w);
}

/// All ranks send messages of all sizes to all ranks.
pub(super) fn all_to_all<N: Ni>(w: &mut World<N>) {
    const EACH: u64 = 200;
    let mut group = Group::join(w);
    w.listen(group.rank);
    w.append(group.rank, managed(4 << 20, 1000));
    let bytes = pattern(group.rank.into(), 1000);
    let md = w.source(group.rank, &bytes);
    group.meet(w);
    for i in 0..EACH {
        for to in 0..group.size {
            let put = Put {
                length: (i as usize * 41 + to as usize) % 1001,
                hdr_data: i,
                token: u64::from(to),
                ..put_to(to, &md)
            };
            w.put(group.rank, &put);
        }
        for to in 0..group.size {
            let end = w.end_of(group.rank, to.into());
            assert_eq!(end.outcome, Outcome::Done);
        }
    }
    for put in group.wait_puts(w, EACH as usize * group.size as usize) {
        let length = (put.hdr_data as usize * 41 + group.rank as usize) % 1001;
        assert!(put.data == pattern(put.source.into(), 1000)[..length]);
    }
    group.meet(w);
}

/// Sends `number` numbered messages, of which at most 64 are in flight. `w` is polled only when the
/// network refuses a message or that limit is reached.
fn send_flood<N: Ni>(w: &mut World<N>, rank: u32, to: u32, number: u64) {
    let md = w.source(rank, &pattern(u64::from(rank) + 50, 40));
    let ended = |w: &World<N>| w.count(rank, |event| matches!(event, Seen::Send { .. })) as u64;
    for token in 0..number {
        if token % 64 == 0 {
            w.until("completions", |w| ended(w) == token);
        }
        let put = Put {
            hdr_data: token,
            token,
            ack: Ack::Local,
            ..put_to(to, &md)
        };
        w.put(rank, &put);
    }
    w.until("completions", |w| ended(w) == number);
    w.forget(|event| matches!(event, Seen::Send { .. }));
}

/// Checks that each source's messages arrived unchanged and once.
fn check_flood<N: Ni>(group: &Group, w: &mut World<N>, sources: &[u32], number: u64) {
    let puts = group.wait_puts(w, sources.len() * number as usize);
    for &source in sources {
        let expected = pattern(u64::from(source) + 50, 40);
        let of_source = || puts.iter().filter(|put| put.source == source);
        assert!(of_source().all(|put| put.data == expected));
        let mut numbers: Vec<_> = of_source().map(|put| put.hdr_data).collect();
        numbers.sort_unstable();
        assert!(
            numbers.into_iter().eq(0..number),
            "each message from {source} must arrive once"
        );
    }
}

/// All ranks flood rank 0, which is slow.
pub(super) fn flood_one<N: Ni>(w: &mut World<N>) {
    const NUMBER: u64 = 1000;
    let mut group = Group::join(w);
    let eq = w.queue(group.rank, 64);
    w.open(group.rank, PT, Some(eq));
    w.append(group.rank, managed(1 << 20, 64));
    group.meet(w);
    if group.rank == 0 {
        let others: Vec<_> = group.others().collect();
        check_flood(&group, w, &others, NUMBER);
    } else {
        send_flood(w, group.rank, 0, NUMBER);
    }
    group.meet(w);
}

/// Neighbours flood each other.
pub(super) fn flood_each_other<N: Ni>(w: &mut World<N>) {
    const NUMBER: u64 = 1000;
    let mut group = Group::join(w);
    let eq = w.queue(group.rank, 64);
    w.open(group.rank, PT, Some(eq));
    w.append(group.rank, managed(1 << 20, 64));
    group.meet(w);
    let next = (group.rank + 1) % group.size;
    send_flood(w, group.rank, next, NUMBER);
    let from = (group.rank + group.size - 1) % group.size;
    check_flood(&group, w, &[from], NUMBER);
    group.meet(w);
}

/// All ranks inject messages to all others.
pub(super) fn inject_flood<N: Ni>(w: &mut World<N>) {
    const NUMBER: u64 = 500;
    let mut group = Group::join(w);
    let size = w.net(group.rank).reach(0).inject_size.min(48);
    w.listen(group.rank);
    w.append(group.rank, managed(1 << 20, 64));
    let bytes = pattern(7, size);
    group.meet(w);
    if size > 16 {
        for hdr_data in 0..NUMBER {
            for target in group.others() {
                let inject = Inject {
                    target,
                    index: PT,
                    exchange: Exchange::OneWay,
                    match_bits: 0,
                    hdr_data,
                    head: &bytes[..16],
                    body: &bytes[16..],
                };
                w.inject(group.rank, &inject);
            }
        }
        let number = NUMBER as usize * group.others().count();
        let puts = group.wait_puts(w, number);
        assert!(puts.iter().all(|put| put.data == bytes && put.aligned));
        let sum: u64 = puts.iter().map(|put| put.hdr_data).sum();
        assert_eq!(
            sum,
            NUMBER * (NUMBER - 1) / 2 * group.others().count() as u64
        );
    }
    group.meet(w);
}

/// Small managed entries are reused while all ranks send.
pub(super) fn managed_for_ever<N: Ni>(w: &mut World<N>) {
    const NUMBER: u64 = 500;
    let mut group = Group::join(w);
    let rank = group.rank;
    let entry = |tag| MatchEntry {
        tag,
        ..managed(4096, 512)
    };
    w.listen(rank);
    for tag in 0..4 {
        w.append(rank, entry(tag));
    }
    let md = w.source(rank, &pattern(rank.into(), 512));
    group.meet(w);
    let next = (rank + 1) % group.size;
    let (mut sent, mut under_way, mut taken) = (0, false, 0);
    w.until("all messages are sent and taken", |w| {
        let freed: Vec<_> = (w.events(rank))
            .filter_map(|event| match event {
                Seen::Free { tag } => Some(*tag),
                _ => None,
            })
            .collect();
        for tag in &freed {
            w.append(rank, entry(*tag));
        }
        let from = (rank + group.size - 1) % group.size;
        let expected = pattern(from.into(), 512);
        for put in w.puts(rank).iter().filter(|put| put.tag < 4) {
            assert!(put.data == expected[..put.length]);
            taken += 1;
        }
        let mut done = None;
        for event in w.events(rank) {
            if let Seen::Ack { outcome, .. } = event {
                done = Some(*outcome);
            }
        }
        if let Some(outcome) = done {
            under_way = false;
            // A message is dropped if all entries are full for a moment.
            sent += u64::from(outcome == Outcome::Done);
        }
        w.forget(|event| !matches!(event, Seen::Put(put) if put.tag >= 4));
        if !under_way && sent < NUMBER {
            let put = Put {
                length: 1 + (sent as usize * 97) % 512,
                ..put_to(next, &md)
            };
            under_way = w.try_put(rank, &put);
        }
        (sent, taken) == (NUMBER, NUMBER)
    });
    group.meet(w);
}

/// A message wakes a sleeping rank. No message is lost, however the sleep and the message coincide.
pub(super) fn sleep_and_wake<N: Ni>(w: &mut World<N>) {
    let mut group = Group::join(w);
    w.listen(group.rank);
    w.append(group.rank, managed(1 << 20, 64));
    let md = w.source(group.rank, &[1; 8]);
    group.meet(w);
    let next = (group.rank + 1) % group.size;
    for round in 0..50 {
        let put = Put {
            hdr_data: round,
            ack: Ack::Local,
            ..put_to(next, &md)
        };
        if group.rank == 0 {
            w.put(0, &put);
        }
        // The wait lasts a minute at most, so that a lost wake-up makes the job exceed its time
        // limit.
        w.until("the message arrives", |w| {
            let is_here = (w.puts(group.rank).iter())
                .any(|put| !put.data.is_empty() && put.hdr_data == round);
            if !is_here {
                w.net(group.rank).wait(std::time::Duration::from_secs(60));
            }
            is_here
        });
        if group.rank != 0 {
            w.put(group.rank, &put);
        }
        w.end_of(group.rank, 0);
    }
    group.meet(w);
}
