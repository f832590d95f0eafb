//! Puts into regions, and the events at the puts' initiator.

use conduit_core::ni::{Ack, Capabilities, MatchEntry, MeOptions, Ni, NiError, Outcome, Put};

use super::entry::{over, pattern, piece, put_to};
use super::{Applies, Peek, Seen, World, theme};

/// Lengths around every size at which a network may change how it sends a put.
pub(super) const LENGTHS: [usize; 16] = [
    1,
    3,
    8,
    17,
    63,
    64,
    65,
    255,
    1024,
    1500,
    4095,
    4096,
    9000,
    65536,
    200_000,
    1 << 20,
];

theme! { "puts":
    bytes_are_placed(2)
        "A put writes its bytes at the offset within the entry's memory, and no other byte changes.";
    source_may_be_a_region(2)
        "An initiator's memory may be anywhere, including in one of its regions.";
    offsets_at_the_edges(2)
        "A put may write the first and the last byte of the entry.";
    offset_outside_moves_nothing(2)
        "An offset outside the entry moves nothing, at any distance.";
    zero_length_put(2)
        "A put without bytes matches, raises events at both sides and changes nothing, even at the entry's end.";
    every_operation_ends_once(2)
        "Each put ends with the requested event, Send or Ack, exactly once.";
    acknowledged_bytes_can_be_seen(2)
        "With REMOTE_COMPLETION an acknowledged put's bytes are visible at the target.";
    source_may_be_reused_after_send(2)
        "After Send the source may be overwritten, and the target gets the earlier bytes.";
    to_oneself(1)
        "A rank may put to itself.";
    maximum_length(2)
        "A put of max_message bytes arrives.";
    beyond_the_maximum_is_refused(2)
        "A put of more bytes than any entry takes (max_message, max_managed) is refused with OverLimit, without any effect.";
}

fn bytes_are_placed<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let largest = w.net(0).reach(1).max_message;
    let region = w.region(1, (1 << 20) + 8192);
    w.append(1, over(&region));
    let bytes = pattern(1, 1 << 20);
    let md = w.source(0, &bytes);
    let mut expected = vec![0; region.len];
    for (i, &length) in LENGTHS.iter().enumerate().filter(|(_, l)| **l <= largest) {
        let (from, to) = (i * 3 % (bytes.len() - length + 1), i * 211);
        let put = Put {
            local_offset: from,
            length,
            remote_offset: to as u64,
            ..put_to(1, &md)
        };
        let end = w.put_and_wait(&md, &put);
        assert_eq!((end.outcome, end.length), (Outcome::Done, length));
        let seen = w.wait_puts(1, 1).remove(0);
        assert_eq!((seen.offset, seen.length), (to as u64, length));
        assert!(seen.data.is_empty(), "only managed entries pass data");
        w.clear_log();
        expected[to..to + length].copy_from_slice(&bytes[from..from + length]);
        assert!(
            region.bytes() == expected,
            "a put of {length} bytes to offset {to}"
        );
    }
}

fn source_may_be_a_region<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let from = w.region(0, 65536);
    let to = w.region(1, 65536);
    w.append(1, over(&to));
    from.poke(0, &pattern(2, 65536));
    let md = w.source_in(0, &from, 1001, 60000);
    let put = Put {
        local_offset: 10,
        length: 50_001,
        remote_offset: 5,
        ..put_to(1, &md)
    };
    assert_eq!(w.put_and_wait(&md, &put).length, 50_001);
    w.wait_puts(1, 1);
    assert!(to.peek(5, 50_001) == from.peek(1011, 50_001));
    assert_eq!(to.peek(0, 5), [0; 5]);
    assert_eq!(to.peek(50_006, 100), [0; 100]);
}

fn offsets_at_the_edges<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 8192);
    w.append(1, piece(&region, 100, 1000));
    let md = w.source(0, &[0xFF; 1000]);
    for (length, remote_offset) in [(1, 0), (1, 999), (500, 500), (1000, 0)] {
        region.poke(0, &[0; 2000]);
        let put = Put {
            length,
            remote_offset: remote_offset as u64,
            ..put_to(1, &md)
        };
        assert_eq!(w.put_and_wait(&md, &put).outcome, Outcome::Done);
        let mut expected = vec![0; 2000];
        expected[100 + remote_offset..100 + remote_offset + length].fill(0xFF);
        assert_eq!(region.peek(0, 2000), expected);
    }
}

fn offset_outside_moves_nothing<N: Ni>(w: &mut World<N>) {
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
    let md = w.source(0, &[0xFF; 16]);
    for remote_offset in [
        1001,
        4096,
        1 << 32,
        1 << 63,
        u64::MAX - 4096,
        u64::MAX - 15,
        u64::MAX,
    ] {
        // Without TRUNCATE, the contract permits two readings. Either the entry doesn't match
        // because the message doesn't fit, or it matches and the offset is outside. No bytes move
        // in either case.
        let either: &[Outcome] = &[Outcome::NoMatch, Outcome::OutOfRange];
        for (match_bits, outcomes) in [(0, either), (1, &[Outcome::OutOfRange])] {
            let put = Put {
                remote_offset,
                match_bits,
                ..put_to(1, &md)
            };
            let end = w.put_and_wait(&md, &put);
            assert!(
                outcomes.contains(&end.outcome) && end.length == 0,
                "bits {match_bits} at {remote_offset}: {end:?}"
            );
        }
    }
    w.settle();
    assert_eq!(region.bytes(), vec![0; region.len]);
    assert!(w.puts(1).is_empty(), "a put was placed");
}

fn zero_length_put<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    w.append(1, piece(&region, 0, 100));
    let full = w.source(0, &[1; 8]);
    let empty = w.source(0, &[]);
    for (md, local_offset, remote_offset) in [(&full, 0, 0), (&full, 8, 100), (&empty, 0, 50)] {
        let put = Put {
            local_offset,
            length: 0,
            remote_offset,
            hdr_data: 77,
            ..put_to(1, md)
        };
        let end = w.put_and_wait(md, &put);
        assert_eq!((end.outcome, end.length), (Outcome::Done, 0));
    }
    for put in w.wait_puts(1, 3) {
        assert_eq!((put.length, put.requested, put.hdr_data), (0, 0, 77));
    }
    assert_eq!(region.peek(0, 200), [0; 200]);
}

fn every_operation_ends_once<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 65536);
    w.append(1, over(&region));
    let md = w.source(0, &pattern(3, 64));
    for token in 0..100 {
        let put = Put {
            ack: if token % 2 == 0 {
                Ack::Local
            } else {
                Ack::Remote
            },
            remote_offset: token * 64,
            // The token uses its highest bits too, because every bit of it belongs to the caller.
            token: token << 57 | token,
            ..put_to(1, &md)
        };
        w.put(0, &put);
        if token % 16 == 0 {
            w.turn();
        }
    }
    w.until("all end", |w| w.events(0).count() >= 100);
    w.settle();
    assert_eq!(w.events(0).count(), 100);
    for token in 0..100 {
        let token = token << 57 | token;
        let expected = if token & 1 == 0 {
            Seen::Send { token }
        } else {
            Seen::Ack {
                token,
                outcome: Outcome::Done,
                length: 64,
            }
        };
        assert_eq!(w.count(0, |event| *event == expected), 1, "{expected:?}");
    }
}

fn acknowledged_bytes_can_be_seen<N: Ni>(w: &mut World<N>) -> Applies {
    let reach = w.net(0).reach(1);
    if !reach.capabilities.contains(Capabilities::REMOTE_COMPLETION) {
        return Applies::No("no REMOTE_COMPLETION".to_owned());
    }
    let largest = reach.max_message;
    w.listen(1);
    let region = w.region(1, 1 << 20);
    w.append(1, over(&region));
    for (i, length) in LENGTHS.into_iter().filter(|l| *l <= largest).enumerate() {
        let bytes = pattern(100 + i as u64, length);
        let md = w.source(0, &bytes);
        w.put(0, &put_to(1, &md));
        // The check follows each single turn of the initiator, so that only the acknowledgement can
        // show that the bytes have arrived.
        w.until("the acknowledgement", |w| {
            w.turn_of(0);
            let acked = w.count(0, |event| matches!(event, Seen::Ack { .. })) == 1;
            if acked {
                assert!(region.peek(0, length) == bytes, "{length} bytes");
            }
            acked
        });
        w.clear_log();
        w.release(&md);
    }
    Applies::Yes
}

fn source_may_be_reused_after_send<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 65536);
    w.append(1, over(&region));
    for length in [8, 64, 1024, 40_000] {
        let md = w.source(0, &vec![0xAA; length]);
        let put = Put {
            ack: Ack::Local,
            ..put_to(1, &md)
        };
        w.put_and_wait(&md, &put);
        md.poke(0, &vec![0x55; length]);
        w.wait_puts(1, 1);
        w.clear_log();
        assert!(region.peek(0, length) == vec![0xAA; length], "{length}");
    }
}

fn to_oneself<N: Ni>(w: &mut World<N>) {
    w.listen(0);
    let region = w.region(0, 65536);
    w.append(0, over(&region));
    w.append(
        0,
        MatchEntry {
            match_bits: 1,
            ..super::entry::managed(8192, 64)
        },
    );
    let bytes = pattern(4, 40_000);
    let md = w.source(0, &bytes);
    assert_eq!(w.put_and_wait(&md, &put_to(0, &md)).length, 40_000);
    assert!(region.peek(0, 40_000) == bytes);
    let put = Put {
        length: 64,
        match_bits: 1,
        hdr_data: 3,
        ..put_to(0, &md)
    };
    assert_eq!(w.put_and_wait(&md, &put).outcome, Outcome::Done);
    let puts = w.wait_puts(0, 2);
    assert!(puts.iter().all(|put| put.source == 0));
    assert!(puts.iter().any(|put| put.data == bytes[..64]));
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
    w.append(1, over(&region));
    let bytes = pattern(5, largest);
    let md = w.source(0, &bytes);
    assert_eq!(w.put_and_wait(&md, &put_to(1, &md)).length, largest);
    assert!(region.peek(0, largest) == bytes);
    Applies::Yes
}

fn beyond_the_maximum_is_refused<N: Ni>(w: &mut World<N>) -> Applies {
    // The memory is only reserved, and is never accessed.
    const TRIED: usize = 1 << 32;
    let reach = w.net(0).reach(1);
    // The limit is the larger one, because the initiator doesn't know which kind of entry will
    // match.
    let largest = reach.max_message.max(reach.max_managed);
    if largest > TRIED {
        return Applies::No(format!(
            "max_message is {largest}, more than this case reserves"
        ));
    }
    w.listen(1);
    let md = w.space(0, largest + 1);
    // SAFETY: the source is reserved memory of the world, and nothing writes it.
    let answer = w.submit(0, |net| unsafe { net.put(&put_to(1, &md)) });
    assert!(
        matches!(answer, Err(NiError::OverLimit { limit, .. }) if limit == largest as u64),
        "{answer:?}"
    );
    w.settle();
    assert!(w.log().is_empty(), "no effects");
    Applies::Yes
}
