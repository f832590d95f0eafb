//! The rules for which entry takes a message.

use conduit_core::ni::{MatchEntry, MeOptions, Ni, Outcome, Put};

use super::entry::{OTHER, atomic_on, get_from, managed, over, piece, put_to};
use super::{Peek, Seen, World, theme};

theme! { "matching":
    first_entry_in_list_order_takes_the_message(2)
        "The first entry in list order that matches takes the message.";
    match_bits_select_the_entry(2)
        "A message matches when its bits equal the entry's.";
    each_bit_counts(2)
        "A message matches when (message ^ entry) & !ignore == 0, so one differing bit of the 64 prevents a match.";
    ignored_bits_do_not_count(2)
        "Bits set in ignore_bits aren't compared.";
    all_bits_reach_the_event(2)
        "All 64 match bits and all 64 bits of header data reach the target's event as sent.";
    source_filter_admits_one_rank(3)
        "With a source filter, only messages of that rank match.";
    kinds_select_the_entry(2)
        "An entry takes only the kinds of operation that its options name.";
    no_match_is_told(2)
        "Without a matching entry nothing is moved, and the initiator gets NoMatch.";
    no_match_completes_locally(2)
        "A put without remote acknowledgement also ends with Send if nothing matches.";
    indices_have_lists_of_their_own(2)
        "An entry takes only messages of its own index.";
}

fn first_entry_in_list_order_takes_the_message<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    for tag in 0..4 {
        w.append(
            1,
            MatchEntry {
                tag,
                ..piece(&region, 64 * tag as usize, 64)
            },
        );
    }
    let md = w.source(0, b"first");
    for token in 0..3 {
        let end = w.put_and_wait(
            &md,
            &Put {
                token,
                ..put_to(1, &md)
            },
        );
        assert_eq!((end.outcome, end.length), (Outcome::Done, 5));
    }
    let puts = w.wait_puts(1, 3);
    assert!(puts.iter().all(|put| put.tag == 0), "{puts:?}");
    assert_eq!(region.peek(0, 5), b"first");
    assert_eq!(
        region.peek(64, 192),
        [0; 192],
        "the put changed a later entry"
    );
}

fn match_bits_select_the_entry<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    for tag in 1..=3 {
        w.append(
            1,
            MatchEntry {
                match_bits: tag << 40 | tag,
                tag,
                ..managed(4096, 256)
            },
        );
    }
    let md = w.source(0, &[9; 32]);
    for tag in [2, 3, 1, 3] {
        let put = Put {
            match_bits: tag << 40 | tag,
            hdr_data: tag,
            ..put_to(1, &md)
        };
        assert_eq!(w.put_and_wait(&md, &put).outcome, Outcome::Done);
    }
    for put in w.wait_puts(1, 4) {
        assert_eq!(put.tag, put.hdr_data, "{put:?}");
    }
}

fn each_bit_counts<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let wanted = 0x0123_4567_89AB_CDEF;
    w.append(
        1,
        MatchEntry {
            match_bits: wanted,
            ..managed(8192, 64)
        },
    );
    let md = w.source(0, &[1]);
    for bit in 0..64 {
        let put = Put {
            match_bits: wanted ^ 1 << bit,
            token: bit,
            ..put_to(1, &md)
        };
        let end = w.put_and_wait(&md, &put);
        assert_eq!(end.outcome, Outcome::NoMatch, "bit {bit} was ignored");
    }
    let put = Put {
        match_bits: wanted,
        ..put_to(1, &md)
    };
    assert_eq!(w.put_and_wait(&md, &put).outcome, Outcome::Done);
    assert_eq!(w.wait_puts(1, 1).len(), 1);
}

fn ignored_bits_do_not_count<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let ignore_bits = 0xFF00_0000_0000_00F1;
    w.append(
        1,
        MatchEntry {
            match_bits: 0x1200_0000_0000_0300,
            ignore_bits,
            ..managed(16384, 64)
        },
    );
    let md = w.source(0, &[7; 3]);
    let mut taken = 0;
    for bit in 0..64 {
        let put = Put {
            match_bits: 0x0000_0000_0000_0300 ^ 1 << bit,
            token: bit,
            ..put_to(1, &md)
        };
        let expected = if ignore_bits >> bit & 1 == 1 {
            taken += 1;
            Outcome::Done
        } else {
            Outcome::NoMatch
        };
        assert_eq!(w.put_and_wait(&md, &put).outcome, expected, "bit {bit}");
    }
    assert_eq!(w.wait_puts(1, taken).len(), taken);
}

fn all_bits_reach_the_event<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(
        1,
        MatchEntry {
            ignore_bits: u64::MAX,
            ..managed(65536, 64)
        },
    );
    let md = w.source(0, &[5; 8]);
    let values = |bit: u64| (1 << bit, !(1 << bit));
    for bit in 0..64 {
        let (match_bits, hdr_data) = values(bit);
        let put = Put {
            match_bits,
            hdr_data,
            ..put_to(1, &md)
        };
        w.put_and_wait(&md, &put);
    }
    let puts = w.wait_puts(1, 64);
    for bit in 0..64 {
        let (match_bits, hdr_data) = values(bit);
        assert!(
            puts.iter()
                .any(|put| put.match_bits == match_bits && put.hdr_data == hdr_data),
            "bit {bit} did not arrive as sent"
        );
    }
}

fn source_filter_admits_one_rank<N: Ni>(w: &mut World<N>) {
    w.listen(0);
    w.append(
        0,
        MatchEntry {
            source: Some(2),
            tag: 2,
            ..managed(4096, 64)
        },
    );
    let from = [w.source(0, &[0]), w.source(1, &[1]), w.source(2, &[2])];
    let outcome = |w: &mut World<N>, md| w.put_and_wait(md, &put_to(0, md)).outcome;
    assert_eq!(outcome(w, &from[1]), Outcome::NoMatch);
    assert_eq!(outcome(w, &from[0]), Outcome::NoMatch);
    assert_eq!(outcome(w, &from[2]), Outcome::Done);
    w.append(
        0,
        MatchEntry {
            tag: 100,
            ..managed(4096, 64)
        },
    );
    assert_eq!(outcome(w, &from[1]), Outcome::Done);
    assert_eq!(outcome(w, &from[2]), Outcome::Done);
    let mut seen: Vec<_> = w
        .wait_puts(0, 3)
        .iter()
        .map(|put| (put.tag, put.source))
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [(2, 2), (2, 2), (100, 1)]);
}

fn kinds_select_the_entry<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    let kinds = [MeOptions::PUT, MeOptions::GET, MeOptions::ATOMIC];
    for (i, &options) in kinds.iter().enumerate() {
        w.append(
            1,
            MatchEntry {
                options,
                tag: i as u64,
                ..piece(&region, 512 * i, 512)
            },
        );
    }
    region.poke(512, &[0xAB; 8]);
    region.poke(1024, &41_u64.to_ne_bytes());
    let md = w.source(0, &[0xCD; 8]);
    assert_eq!(
        w.put_and_wait(&md, &put_to(1, &md)).outcome,
        Outcome::Done,
        "put"
    );
    let old = w.atomic_and_wait(0, &atomic_on(1, md.eq)).value;
    assert_eq!(old, 41, "the atomic went to the entry for atomics");
    assert_eq!(
        w.get_and_wait(&md, &get_from(1, &md)).outcome,
        Outcome::Done,
        "get"
    );
    assert_eq!(
        md.bytes(),
        [0xAB; 8],
        "the get read from the entry for gets"
    );
    assert_eq!(region.peek(0, 8), [0xCD; 8]);
    assert_eq!(region.peek(1024, 8), 42_u64.to_ne_bytes());
    w.until("each entry has raised its operation's event", |w| {
        w.count(1, |event| matches!(event, Seen::Put(put) if put.tag == 0)) == 1
            && w.count(1, |event| matches!(event, Seen::Get { tag: 1, .. })) == 1
            && w.count(1, |event| matches!(event, Seen::Atomic { tag: 2, .. })) == 1
    });
}

fn no_match_is_told<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    w.append(
        1,
        MatchEntry {
            match_bits: 1,
            ..over(&region)
        },
    );
    let md = w.source(0, &[8; 8]);
    let put = w.put_and_wait(&md, &put_to(1, &md));
    assert_eq!((put.outcome, put.length), (Outcome::NoMatch, 0), "put");
    let get = w.get_and_wait(&md, &get_from(1, &md));
    assert_eq!((get.outcome, get.length), (Outcome::NoMatch, 0), "get");
    assert_eq!(md.bytes(), [8; 8], "the get changed its destination");
    for fetch in [true, false] {
        let atomic = conduit_core::ni::Atomic {
            fetch,
            ..atomic_on(1, md.eq)
        };
        let end = w.atomic_and_wait(0, &atomic);
        assert_eq!(end.outcome, Outcome::NoMatch, "atomic, fetch {fetch}");
    }
    w.settle();
    assert_eq!(region.bytes(), vec![0; region.len]);
    assert_eq!(w.events(1).count(), 0, "the target gets no event");
}

fn no_match_completes_locally<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let md = w.source(0, &[8; 8]);
    for token in 0..10 {
        let put = Put {
            ack: conduit_core::ni::Ack::Local,
            token,
            ..put_to(1, &md)
        };
        w.put(0, &put);
        w.until("Send", |w| {
            w.count(0, |event| *event == Seen::Send { token }) == 1
        });
    }
    w.settle();
    assert_eq!(
        w.log().len(),
        10,
        "each operation has one event, and none is at the target"
    );
}

fn indices_have_lists_of_their_own<N: Ni>(w: &mut World<N>) {
    let eq = w.listen(1);
    w.open(1, OTHER, Some(eq));
    w.append_at(
        1,
        OTHER,
        MatchEntry {
            tag: 7,
            ..managed(4096, 64)
        },
    );
    let md = w.source(0, b"x");
    let end = w.put_and_wait(&md, &put_to(1, &md));
    assert_eq!(end.outcome, Outcome::NoMatch);
    let put = Put {
        index: OTHER,
        ..put_to(1, &md)
    };
    assert_eq!(w.put_and_wait(&md, &put).outcome, Outcome::Done);
    let put = w.wait_puts(1, 1).remove(0);
    assert_eq!((put.index, put.tag), (OTHER, 7));
}
