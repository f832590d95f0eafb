//! Programs that test puts, gets, atomics and windows between processes.

use conduit_core::ni::{
    Atomic, AtomicOp, Capabilities, Get, MatchEntry, MeEvents, Ni, Outcome, Put, Region,
};

use super::Group;
use crate::conformance::entry::{atomic_on, get_from, over, pattern, put_to};
use crate::conformance::{Peek, World};

/// Creates a region and an entry without events that covers all of it. Returns when the entries of
/// all ranks are ready.
fn share<N: Ni>(w: &mut World<N>, group: &mut Group, len: usize) -> Region {
    w.listen(group.rank);
    let region = w.region(group.rank, len);
    let entry = MatchEntry {
        events: MeEvents::empty(),
        ..over(&region)
    };
    w.append(group.rank, entry);
    group.meet(w);
    region
}

/// Every rank puts into a piece of every rank's region.
pub(super) fn puts_between_all<N: Ni>(w: &mut World<N>) {
    const PIECE: usize = 10_000;
    let mut group = Group::join(w);
    let len = PIECE * group.size as usize;
    let region = share(w, &mut group, len);
    let (rank, size) = (group.rank, group.size);
    let of = |from: u32, to: u32| pattern(u64::from(from * 1000 + to), PIECE);
    for to in 0..size {
        let md = w.source(rank, &of(rank, to));
        let put = Put {
            remote_offset: u64::from(rank) * PIECE as u64,
            ..put_to(to, &md)
        };
        assert_eq!(w.put_and_wait(&md, &put).length, PIECE);
        w.release(&md);
    }
    group.meet(w);
    for from in 0..size {
        let piece = region.peek(from as usize * PIECE, PIECE);
        assert!(piece == of(from, rank), "from {from}");
    }
    group.meet(w);
}

/// Every rank gets the region of every rank.
pub(super) fn gets_between_all<N: Ni>(w: &mut World<N>) {
    const LENGTH: usize = 60_000;
    let mut group = Group::join(w);
    let region = share(w, &mut group, LENGTH);
    region.poke(0, &pattern(group.rank.into(), LENGTH));
    group.meet(w);
    for round in 0..20 {
        for from in 0..group.size {
            let md = w.space(group.rank, LENGTH);
            let at = round * 1009;
            let get = Get {
                length: LENGTH - at,
                remote_offset: at as u64,
                ..get_from(from, &md)
            };
            let end = w.get_and_wait(&md, &get);
            assert_eq!((end.outcome, end.length), (Outcome::Done, LENGTH - at));
            assert!(md.peek(0, LENGTH - at) == pattern(from.into(), LENGTH)[at..]);
            w.release(&md);
        }
    }
    group.meet(w);
}

/// Stores into peers' windows are visible after a meeting.
pub(super) fn windows<N: Ni>(w: &mut World<N>) {
    let mut group = Group::join(w);
    let len = 4096 * group.size as usize;
    let region = share(w, &mut group, len);
    for round in 0..50_u8 {
        for peer in group.others() {
            let net = w.net(group.rank);
            if net.reach(peer).capabilities.contains(Capabilities::WINDOW) {
                let window = net.window(peer, region.id).expect("a window");
                window.poke(
                    4096 * group.rank as usize,
                    &[round ^ group.rank as u8; 4096],
                );
            }
        }
        group.meet(w);
        for peer in group.others() {
            let reach = w.net(group.rank).reach(peer);
            if reach.capabilities.contains(Capabilities::WINDOW) {
                let piece = region.peek(4096 * peer as usize, 4096);
                assert!(piece.iter().all(|byte| *byte == round ^ peer as u8));
            }
        }
        group.meet(w);
    }
}

/// Checks that rank 0's counter has the sum of `each` additions by every rank.
fn adds_up<N: Ni>(w: &mut World<N>, group: &mut Group, region: &Region, each: u64) {
    group.meet(w);
    if group.rank == 0 {
        let sum = each * u64::from(group.size);
        assert_eq!(region.peek(0, 8), sum.to_ne_bytes());
    }
    group.meet(w);
}

/// The additions of all ranks to one counter add up, and each old value is returned once.
pub(super) fn atomics_add_up<N: Ni>(w: &mut World<N>) {
    const EACH: u64 = 500;
    let mut group = Group::join(w);
    let region = share(w, &mut group, 4096);
    let eq = w.completions(group.rank);
    let mut last = None;
    for i in 0..EACH {
        let atomic = Atomic {
            fetch: i % 2 == 0,
            ..atomic_on(0, eq)
        };
        let end = w.atomic_and_wait(group.rank, &atomic);
        assert_eq!(end.outcome, Outcome::Done);
        if atomic.fetch {
            assert!(
                last.is_none_or(|last| last < end.value),
                "the fetched values must grow"
            );
            last = Some(end.value);
        }
    }
    adds_up(w, &mut group, &region, EACH);
}

/// Increments by compare-and-swap lose no updates.
pub(super) fn compare_and_swap<N: Ni>(w: &mut World<N>) {
    const EACH: u64 = 100;
    let mut group = Group::join(w);
    let region = share(w, &mut group, 4096);
    let eq = w.completions(group.rank);
    let (mut known, mut done) = (0, 0);
    while done < EACH {
        let atomic = Atomic {
            op: AtomicOp::CompareSwap,
            operand: known + 1,
            comparand: known,
            ..atomic_on(0, eq)
        };
        let old = w.atomic_and_wait(group.rank, &atomic).value;
        if old == known {
            done += 1;
            known += 1;
        } else {
            known = old;
        }
    }
    adds_up(w, &mut group, &region, EACH);
}

/// Puts and gets of the maximum message length, many of them in flight at once in both directions.
pub(super) fn large_transfers<N: Ni>(w: &mut World<N>) {
    const PIECES: usize = 32;
    let mut group = Group::join(w);
    let rank = group.rank;
    let length = w.net(rank).reach(rank).max_message.min(256 << 10);
    let region = share(w, &mut group, length * PIECES);
    let next = (rank + 1) % group.size;
    let bytes = pattern(rank.into(), length * PIECES);
    let md = w.source(rank, &bytes);
    for i in 0..PIECES {
        let put = Put {
            local_offset: i * length,
            length,
            remote_offset: (i * length) as u64,
            token: i as u64,
            ..put_to(next, &md)
        };
        w.put(rank, &put);
    }
    for i in 0..PIECES as u64 {
        assert_eq!(w.end_of(rank, i).length, length);
    }
    group.meet(w);
    let from = (rank + group.size - 1) % group.size;
    assert!(region.peek(0, length * PIECES) == pattern(from.into(), length * PIECES));
    let back = w.space(rank, length * PIECES);
    for i in 0..PIECES {
        let get = Get {
            local_offset: i * length,
            length,
            remote_offset: (i * length) as u64,
            token: i as u64,
            ..get_from(next, &back)
        };
        w.get(rank, &get);
    }
    for i in 0..PIECES as u64 {
        assert_eq!(w.end_of(rank, i).length, length);
    }
    assert!(
        back.bytes() == bytes,
        "the get must return the bytes that were put"
    );
    group.meet(w);
}
