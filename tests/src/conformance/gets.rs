//! Gets, and the events at their initiator and target.

use conduit_core::ni::{Get, MatchEntry, MeOptions, Ni, NiError, Outcome};

use super::entry::{get_from, over, pattern, piece};
use super::puts::LENGTHS;
use super::{Applies, Peek, Seen, World, theme};

theme! { "gets":
    bytes_are_brought(2)
        "A get copies the entry's bytes to the given offset in its descriptor, and changes no other byte.";
    destination_may_be_a_region(2)
        "A get's destination may lie in a region of its rank.";
    target_is_told(2)
        "The target's event names the entry, the initiator, the bits, the offset and the length.";
    offsets_at_the_edges(2)
        "A get may read the first and the last byte of the entry.";
    offset_outside_brings_nothing(2)
        "A get outside the entry moves no bytes.";
    zero_length_get(2)
        "A get without bytes matches and completes.";
    tokens_tell_gets_apart(3)
        "Concurrent gets are distinguished by their tokens, and each ends once.";
    from_oneself(1)
        "A rank may get from itself.";
    use_once_entry_serves_one_get(2)
        "A use-once entry is unlinked after one get.";
    maximum_length(2)
        "A get of max_message bytes succeeds.";
    beyond_the_maximum_is_refused(2)
        "A get of more than max_message bytes is refused with OverLimit, without any effect.";
}

fn bytes_are_brought<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let largest = w.net(0).reach(1).max_message;
    let region = w.region(1, (1 << 20) + 8192);
    let bytes = pattern(1, region.len);
    region.poke(0, &bytes);
    w.append(1, over(&region));
    let md = w.space(0, (1 << 20) + 64);
    let mut expected = vec![0; md.len];
    for (i, &length) in LENGTHS.iter().enumerate().filter(|(_, l)| **l <= largest) {
        let (from, to) = (i * 307, i * 3);
        let get = Get {
            local_offset: to,
            length,
            remote_offset: from as u64,
            ..get_from(1, &md)
        };
        let end = w.get_and_wait(&md, &get);
        assert_eq!((end.outcome, end.length), (Outcome::Done, length));
        expected[to..to + length].copy_from_slice(&bytes[from..from + length]);
        assert!(
            md.bytes() == expected,
            "a get of {length} bytes from offset {from}"
        );
    }
    assert!(
        region.bytes() == bytes,
        "the get changed the target's memory"
    );
}

fn destination_may_be_a_region<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let from = w.region(1, 65536);
    let to = w.region(0, 65536);
    from.poke(0, &pattern(2, 65536));
    w.append(1, over(&from));
    let md = w.source_in(0, &to, 999, 60_000);
    let get = Get {
        local_offset: 1,
        length: 50_001,
        remote_offset: 7,
        ..get_from(1, &md)
    };
    assert_eq!(w.get_and_wait(&md, &get).length, 50_001);
    assert!(to.peek(1000, 50_001) == from.peek(7, 50_001));
    assert_eq!(to.peek(0, 1000), [0; 1000]);
    assert_eq!(to.peek(51_001, 1000), [0; 1000]);
}

fn target_is_told<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    let match_bits = 0xFEDC_BA98_7654_3210;
    w.append(
        1,
        MatchEntry {
            match_bits,
            tag: 0x1234_5678_9ABC_DEF0,
            ..piece(&region, 256, 512)
        },
    );
    let md = w.space(0, 100);
    let get = Get {
        match_bits,
        remote_offset: 33,
        ..get_from(1, &md)
    };
    assert_eq!(w.get_and_wait(&md, &get).outcome, Outcome::Done);
    w.until("the target's event", |w| w.events(1).count() == 1);
    let told = Seen::Get {
        tag: 0x1234_5678_9ABC_DEF0,
        source: 0,
        match_bits,
        offset: 33,
        length: 100,
    };
    assert_eq!(w.events(1).next(), Some(&told));
}

fn offsets_at_the_edges<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    let bytes = pattern(3, 4096);
    region.poke(0, &bytes);
    w.append(1, piece(&region, 64, 1000));
    let md = w.space(0, 1000);
    for (length, remote_offset) in [(1, 0), (1, 999), (500, 500), (1000, 0)] {
        let get = Get {
            length,
            remote_offset: remote_offset as u64,
            ..get_from(1, &md)
        };
        assert_eq!(w.get_and_wait(&md, &get).length, length);
        let from = 64 + remote_offset;
        assert_eq!(md.peek(0, length), bytes[from..from + length]);
    }
}

fn offset_outside_brings_nothing<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 8192);
    let entry = piece(&region, 4096, 1000);
    w.append(1, entry);
    w.append(
        1,
        MatchEntry {
            match_bits: 1,
            options: entry.options | MeOptions::TRUNCATE,
            ..entry
        },
    );
    let md = w.source(0, &[0xEE; 16]);
    for remote_offset in [1001, 1 << 32, u64::MAX - 15, u64::MAX] {
        // Without TRUNCATE, the contract permits two readings. Either the entry doesn't match
        // because the message doesn't fit, or it matches and the offset is outside. No bytes move
        // in either case.
        let either: &[Outcome] = &[Outcome::NoMatch, Outcome::OutOfRange];
        for (match_bits, outcomes) in [(0, either), (1, &[Outcome::OutOfRange])] {
            let get = Get {
                remote_offset,
                match_bits,
                ..get_from(1, &md)
            };
            let end = w.get_and_wait(&md, &get);
            assert!(
                outcomes.contains(&end.outcome) && end.length == 0,
                "bits {match_bits} at {remote_offset}: {end:?}"
            );
        }
    }
    assert_eq!(md.bytes(), [0xEE; 16]);
}

fn zero_length_get<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    w.append(1, piece(&region, 0, 100));
    let full = w.source(0, &[1; 8]);
    let empty = w.source(0, &[]);
    for (md, local_offset, remote_offset) in [(&full, 0, 0), (&full, 8, 100), (&empty, 0, 50)] {
        let get = Get {
            local_offset,
            length: 0,
            remote_offset,
            ..get_from(1, md)
        };
        let end = w.get_and_wait(md, &get);
        assert_eq!((end.outcome, end.length), (Outcome::Done, 0));
    }
    assert_eq!(full.bytes(), [1; 8]);
    w.until("the target's events", |w| w.events(1).count() == 3);
}

fn tokens_tell_gets_apart<N: Ni>(w: &mut World<N>) {
    let regions: Vec<_> = (1..3)
        .map(|rank| {
            w.listen(rank);
            let region = w.region(rank, 65536);
            region.poke(0, &pattern(u64::from(rank), 65536));
            w.append(rank, over(&region));
            region
        })
        .collect();
    let md = w.space(0, 64 * 1000);
    for i in 0..64_u64 {
        let get = Get {
            local_offset: i as usize * 1000,
            length: 1 + (i as usize * 331) % 1000,
            remote_offset: i * 997,
            token: i.reverse_bits() | i,
            ..get_from(1 + i as u32 % 2, &md)
        };
        w.get(0, &get);
    }
    for i in 0..64_u64 {
        let length = 1 + (i as usize * 331) % 1000;
        let end = w.end_of(0, i.reverse_bits() | i);
        assert_eq!((end.outcome, end.length), (Outcome::Done, length));
        let from = regions[i as usize % 2].peek(i as usize * 997, length);
        assert!(md.peek(i as usize * 1000, length) == from, "get {i}");
    }
    w.settle();
    assert_eq!(w.events(0).count(), 0, "each get must end once");
}

fn from_oneself<N: Ni>(w: &mut World<N>) {
    w.listen(0);
    let region = w.region(0, 65536);
    let bytes = pattern(4, 65536);
    region.poke(0, &bytes);
    w.append(0, over(&region));
    for length in [8, 64, 5000, 65536] {
        let md = w.space(0, length);
        assert_eq!(w.get_and_wait(&md, &get_from(0, &md)).length, length);
        assert!(md.bytes() == bytes[..length], "{length} bytes");
    }
}

fn use_once_entry_serves_one_get<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    let entry = over(&region);
    w.append(
        1,
        MatchEntry {
            options: entry.options | MeOptions::USE_ONCE,
            tag: 5,
            ..entry
        },
    );
    let md = w.space(0, 8);
    for outcome in [Outcome::Done, Outcome::NoMatch] {
        assert_eq!(w.get_and_wait(&md, &get_from(1, &md)).outcome, outcome);
    }
    w.until("the events of the get and of the unlinking", |w| {
        w.count(1, |event| matches!(event, Seen::Get { tag: 5, .. })) == 1
            && w.count(1, |event| *event == Seen::Unlinked { tag: 5 }) == 1
    });
}

fn maximum_length<N: Ni>(w: &mut World<N>) -> Applies {
    const TRIED: usize = 64 << 20;
    let largest = w.net(0).reach(1).max_message;
    if largest > w.net(1).limits().region_bytes.min(TRIED) {
        return Applies::No(format!(
            "max_message is {largest}, more than this case allocates"
        ));
    }
    w.listen(1);
    let region = w.region(1, largest);
    let bytes = pattern(5, largest);
    region.poke(0, &bytes);
    w.append(1, over(&region));
    let md = w.space(0, largest);
    assert_eq!(w.get_and_wait(&md, &get_from(1, &md)).length, largest);
    assert!(md.bytes() == bytes);
    Applies::Yes
}

fn beyond_the_maximum_is_refused<N: Ni>(w: &mut World<N>) -> Applies {
    // The memory is only reserved, and is never accessed.
    const TRIED: usize = 1 << 32;
    let largest = w.net(0).reach(1).max_message;
    if largest > TRIED {
        return Applies::No(format!(
            "max_message is {largest}, more than this case reserves"
        ));
    }
    w.listen(1);
    let md = w.space(0, largest + 1);
    // SAFETY: the destination is reserved memory of the world, and the refused get doesn't write
    // it.
    let answer = w.submit(0, |net| unsafe { net.get(&get_from(1, &md)) });
    assert!(
        matches!(answer, Err(NiError::OverLimit { limit, .. }) if limit == largest as u64),
        "{answer:?}"
    );
    w.settle();
    assert!(w.log().is_empty(), "no effects");
    Applies::Yes
}
