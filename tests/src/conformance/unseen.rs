//! Entries without events at the target, which are used repeatedly. A network may run operations on
//! such entries without the target.

use conduit_core::ni::{Ack, Get, MatchEntry, MeEvents, MeOptions, Ni, Outcome, Put, Region};

use super::entry::{atomic_on, get_from, over, pattern, piece, put_to};
use super::{Md, Peek, World, theme};

theme! { "unseen":
    puts_of_all_lengths(2)
        "Puts without events at the target write the right bytes, however many came before.";
    gets_of_all_lengths(2)
        "Gets without events at the target read the right bytes.";
    what_does_not_fit_ends_as_ever(2)
        "An operation that is outside the entry, doesn't match, or is truncated ends in the same way as a first one.";
    a_piece_is_all_that_is_reached(2)
        "Offsets count from the entry's beginning, and nothing around it changes.";
    unlinked_is_not_written(2)
        "Once the entry's unlinking is Done, its memory doesn't change, acknowledged bytes are there, and later messages match nothing.";
    another_entry_in_its_place(2)
        "After unlinking, another entry over other memory takes messages, and the old memory doesn't change.";
    all_ranks_at_once(4)
        "Several ranks put to and get from one entry at the same time.";
    atomics_of_all_ranks_add_up(4)
        "Additions of all ranks, including the owner, add up, and no two fetch the same old value.";
}

const LEN: usize = 1 << 16;
/// The lengths of operations. Most lengths occur twice in a row.
const LENGTHS: [usize; 14] = [
    1, 1, 8, 8, 700, 700, 3000, 3000, 0, 0, 50_000, 50_000, 16, 16,
];

fn silent(region: &Region) -> MatchEntry {
    MatchEntry {
        events: MeEvents::empty(),
        ..over(region)
    }
}

fn puts_of_all_lengths<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, LEN);
    w.append(1, silent(&region));
    let mut expected = region.bytes();
    for (i, length) in LENGTHS.into_iter().enumerate() {
        for ack in [Ack::Local, Ack::Remote] {
            let bytes = pattern(i as u64 + 100 * u64::from(ack == Ack::Local), length);
            let md = w.source(0, &bytes);
            let offset = if length < 4096 { 37 * i } else { LEN - length };
            let put = Put {
                ack,
                remote_offset: offset as u64,
                ..put_to(1, &md)
            };
            let end = w.put_and_wait(&md, &put);
            assert_eq!(end.outcome, Outcome::Done);
            if ack == Ack::Remote {
                assert_eq!(end.length, length);
            } else {
                // When only the source is known to be free, the bytes may arrive later.
                w.until("the bytes are there", |_| {
                    region.peek(offset, length) == bytes
                });
            }
            w.release(&md);
            expected[offset..offset + length].copy_from_slice(&bytes);
            assert!(region.bytes() == expected, "{length} bytes, {ack:?}");
        }
    }
}

fn gets_of_all_lengths<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, LEN);
    region.poke(0, &pattern(7, LEN));
    w.append(1, silent(&region));
    for (i, length) in LENGTHS.into_iter().enumerate() {
        let md = w.space(0, length);
        let offset = if length < 4096 { 41 * i } else { LEN - length };
        let get = Get {
            remote_offset: offset as u64,
            ..get_from(1, &md)
        };
        let end = w.get_and_wait(&md, &get);
        assert_eq!((end.outcome, end.length), (Outcome::Done, length));
        assert!(md.bytes() == region.peek(offset, length), "{length} bytes");
        w.release(&md);
    }
}

fn what_does_not_fit_ends_as_ever<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, LEN);
    let cut = MatchEntry {
        options: silent(&region).options | MeOptions::TRUNCATE,
        ..silent(&region)
    };
    w.append(1, cut);
    let md = w.source(0, &pattern(1, 500));
    let right = put_to(1, &md);
    for _ in 0..3 {
        for (remote_offset, match_bits, outcome, length) in [
            (0, 0, Outcome::Done, 500),
            (LEN as u64 - 100, 0, Outcome::Done, 100),
            (LEN as u64 + 64, 0, Outcome::OutOfRange, 0),
            (u64::MAX - 10, 0, Outcome::OutOfRange, 0),
            (0, 1, Outcome::NoMatch, 0),
        ] {
            let put = Put {
                remote_offset,
                match_bits,
                ..right
            };
            let end = w.put_and_wait(&md, &put);
            assert_eq!((end.outcome, end.length), (outcome, length), "{put:?}");
        }
    }
}

fn a_piece_is_all_that_is_reached<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 8192);
    region.poke(0, &[0x55; 8192]);
    let part = MatchEntry {
        events: MeEvents::empty(),
        ..piece(&region, 1000, 600)
    };
    w.append(1, part);
    for round in 0..4 {
        let md = w.source(0, &[round; 600]);
        assert_eq!(w.put_and_wait(&md, &put_to(1, &md)).outcome, Outcome::Done);
        assert!(region.peek(1000, 600).iter().all(|byte| *byte == round));
        let around = [region.peek(0, 1000), region.peek(1600, 8192 - 1600)].concat();
        assert!(around.iter().all(|byte| *byte == 0x55));
    }
}

/// Submits several concurrent puts, calls `then`, and returns how many of the puts were
/// acknowledged as done.
fn some_puts<N: Ni>(w: &mut World<N>, md: &Md, then: impl FnOnce(&mut World<N>)) -> usize {
    for token in 0..8 {
        let put = Put {
            token,
            remote_offset: token * 64,
            ..put_to(1, md)
        };
        w.put(0, &put);
    }
    then(w);
    (0..8)
        .filter(|&token| w.end_of(0, token).outcome == Outcome::Done)
        .count()
}

fn unlinked_is_not_written<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    let md = w.source(0, &[0xAB; 64]);
    for round in 0..10 {
        region.poke(0, &[0; 4096]);
        let me = w.append(1, silent(&region));
        // In some rounds no put precedes, so that the concurrent puts are the first ones that the
        // entry gets.
        for _ in 0..round % 3 {
            w.put_and_wait(&md, &put_to(1, &md));
        }
        region.poke(0, &[0; 64]);
        let mut before = Vec::new();
        let done = some_puts(w, &md, |w| {
            w.unlink(1, me);
            before = region.bytes();
        });
        w.settle();
        assert!(
            region.bytes() == before,
            "round {round}: the entry was written after its unlinking"
        );
        let written = before.iter().filter(|byte| **byte == 0xAB).count();
        assert_eq!(written, 64 * done, "only the acknowledged bytes are there");
        let end = w.put_and_wait(&md, &put_to(1, &md));
        assert_eq!(end.outcome, Outcome::NoMatch, "round {round}");
    }
}

fn another_entry_in_its_place<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let regions = [w.region(1, 4096), w.region(1, 4096)];
    let md = w.source(0, &[0xCD; 64]);
    for round in 0..6 {
        let [now, other] = match round % 2 {
            0 => [&regions[0], &regions[1]],
            _ => [&regions[1], &regions[0]],
        };
        for region in [now, other] {
            region.poke(0, &[0; 4096]);
        }
        let me = w.append(1, silent(now));
        assert_eq!(some_puts(w, &md, |_| ()), 8);
        assert_eq!(some_puts(w, &md, |_| ()), 8);
        assert!(now.peek(0, 512).iter().all(|byte| *byte == 0xCD));
        assert!(other.bytes().iter().all(|byte| *byte == 0));
        w.unlink(1, me);
    }
}

fn all_ranks_at_once<N: Ni>(w: &mut World<N>) {
    const EACH: usize = 2000;
    w.listen(1);
    let region = w.region(1, LEN);
    w.append(1, silent(&region));
    for round in 0..4 {
        let bytes: Vec<_> = (0..4).map(|rank| pattern(4 * round + rank, EACH)).collect();
        let mut sources = Vec::new();
        for (rank, bytes) in (0..).zip(&bytes) {
            let md = w.source(rank, bytes);
            let put = Put {
                remote_offset: u64::from(rank) * EACH as u64,
                ..put_to(1, &md)
            };
            w.put(rank, &put);
            sources.push(md);
        }
        for md in &sources {
            assert_eq!(w.end_of(md.rank, 0).outcome, Outcome::Done);
        }
        let mut spaces = Vec::new();
        for rank in 0..4 {
            let md = w.space(rank, 4 * EACH);
            w.get(rank, &get_from(1, &md));
            spaces.push(md);
        }
        for md in &spaces {
            assert_eq!(w.end_of(md.rank, 0).outcome, Outcome::Done);
            assert!(md.bytes() == bytes.concat(), "round {round}");
        }
        for md in sources.iter().chain(&spaces) {
            w.release(md);
        }
    }
}

fn atomics_of_all_ranks_add_up<N: Ni>(w: &mut World<N>) {
    const EACH: u64 = 10;
    w.listen(1);
    let region = w.region(1, 4096);
    w.append(1, silent(&region));
    let queues: Vec<_> = (0..4).map(|rank| w.completions(rank)).collect();
    let mut fetched = std::collections::BTreeSet::new();
    for _ in 0..EACH {
        for (rank, eq) in (0..).zip(&queues) {
            w.atomic(rank, &atomic_on(1, *eq));
        }
        for rank in 0..4 {
            let end = w.end_of(rank, 0);
            assert_eq!(end.outcome, Outcome::Done);
            fetched.insert(end.value);
        }
    }
    assert_eq!(
        fetched.len() as u64,
        4 * EACH,
        "each value must be fetched once"
    );
    assert_eq!(region.peek(0, 8), (4 * EACH).to_ne_bytes());
}
