//! Cases with many ranks and much traffic at the same time.

use std::collections::HashMap;

use conduit_core::ni::{Ack, Exchange, Get, Inject, MatchEntry, Ni, Outcome, Put};

use super::entry::{PT, get_from, managed, over, pattern, put_to};
use super::{Peek, Seen, World, theme};

theme! { "many":
    all_to_one(8)
        "Messages of many ranks to one arrive complete, once each, and with their source.";
    all_to_all(6)
        "Every rank sends to every rank, including itself, at the same time.";
    both_directions_are_flooded(2)
        "Two ranks that flood each other and poll meanwhile both finish.";
    entries_of_many_ranks(8)
        "Entries with source filters separate the ranks' messages.";
    sizes_and_kinds_mixed(4)
        "Puts and gets of random sizes produce the content of a byte array per rank.";
    ring_of_tokens(8)
        "A message that each rank forwards when it arrives goes round the ring.";
}

fn all_to_one<N: Ni>(w: &mut World<N>) {
    w.listen(0);
    w.append(0, managed(1 << 18, 256));
    let mds: Vec<_> = (1..8)
        .map(|rank| w.source(rank, &pattern(u64::from(rank), 256)))
        .collect();
    for i in 0..60 {
        for md in &mds {
            let put = Put {
                length: (i as usize * 37) % 257,
                hdr_data: i,
                token: i,
                ack: if i % 3 == 0 { Ack::Remote } else { Ack::Local },
                ..put_to(0, md)
            };
            w.put(md.rank, &put);
        }
    }
    let mut seen = HashMap::new();
    for put in w.wait_puts(0, 7 * 60) {
        let length = (put.hdr_data as usize * 37) % 257;
        assert_eq!((put.length, put.requested), (length, length));
        assert!(put.data == mds[put.source as usize - 1].peek(0, length));
        *seen.entry((put.source, put.hdr_data)).or_insert(0) += 1;
    }
    assert!(seen.len() == 7 * 60 && seen.values().all(|count| *count == 1));
    for md in &mds {
        w.until("all end", |w| w.events(md.rank).count() == 60);
    }
}

fn all_to_all<N: Ni>(w: &mut World<N>) {
    let mut mds = Vec::new();
    for rank in 0..6 {
        w.listen(rank);
        w.append(rank, managed(1 << 18, 100));
        mds.push(w.source(rank, &[rank as u8; 100]));
    }
    for i in 0..30 {
        for md in &mds {
            for to in 0..6 {
                let put = Put {
                    length: 1 + (i + to as usize) % 100,
                    token: i as u64 * 6 + u64::from(to),
                    ..put_to(to, md)
                };
                w.put(md.rank, &put);
            }
        }
    }
    for rank in 0..6 {
        let puts = w.wait_puts(rank, 180);
        assert_eq!(puts.len(), 180);
        assert!(
            puts.iter()
                .all(|put| put.data == vec![put.source as u8; put.length])
        );
        for token in 0..180 {
            assert_eq!(w.end_of(rank, token).outcome, Outcome::Done);
        }
    }
}

fn both_directions_are_flooded<N: Ni>(w: &mut World<N>) {
    let mut sides = Vec::new();
    for rank in 0..2 {
        let eq = w.queue(rank, 16);
        w.open(rank, PT, Some(eq));
        w.append(rank, managed(1 << 18, 64));
        sides.push(w.source(rank, &[rank as u8; 24]));
    }
    let mut sent = [0_u64; 2];
    w.until("all messages are sent", |w| {
        for md in &sides {
            let count = &mut sent[md.rank as usize];
            let ended = w.count(md.rank, |event| matches!(event, Seen::Ack { .. })) as u64;
            if *count < 1000 && *count - ended < 64 {
                let put = Put {
                    token: *count,
                    hdr_data: *count,
                    ..put_to(1 - md.rank, md)
                };
                *count += u64::from(w.try_put(md.rank, &put));
            }
        }
        sent == [1000; 2]
    });
    for rank in 0..2 {
        let mut numbers: Vec<_> = (w.wait_puts(rank, 1000).iter())
            .map(|put| put.hdr_data)
            .collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..1000), "each once");
        w.until("all messages are acknowledged", |w| {
            w.count(rank, |event| matches!(event, Seen::Ack { .. })) == 1000
        });
    }
}

fn entries_of_many_ranks<N: Ni>(w: &mut World<N>) {
    w.listen(0);
    let region = w.region(0, 8192);
    for rank in 0..8 {
        w.append(
            0,
            MatchEntry {
                source: Some(rank),
                tag: u64::from(rank),
                ..super::entry::piece(&region, rank as usize * 1024, 1024)
            },
        );
    }
    let mds: Vec<_> = (0..8)
        .map(|rank| w.source(rank, &[rank as u8 + 1; 64]))
        .collect();
    for i in 0..16 {
        for md in mds.iter().rev() {
            let put = Put {
                remote_offset: i * 64,
                token: i,
                ..put_to(0, md)
            };
            w.put(md.rank, &put);
        }
    }
    for put in w.wait_puts(0, 128) {
        assert_eq!(put.tag, u64::from(put.source));
    }
    for rank in 0..8_u8 {
        let piece = region.peek(usize::from(rank) * 1024, 1024);
        assert!(piece.iter().all(|byte| *byte == rank + 1), "rank {rank}");
    }
}

fn sizes_and_kinds_mixed<N: Ni>(w: &mut World<N>) {
    const BYTES: usize = 1 << 17;
    let mut random = fastrand::Rng::with_seed(42);
    let largest = w.net(0).reach(1).max_message.min(40_000);
    let (mut regions, mut models, mut mds) = (Vec::new(), Vec::new(), Vec::new());
    for rank in 0..4 {
        w.listen(rank);
        let region = w.region(rank, BYTES);
        w.append(
            rank,
            MatchEntry {
                events: conduit_core::ni::MeEvents::empty(),
                ..over(&region)
            },
        );
        regions.push(region);
        models.push(vec![0; BYTES]);
        mds.push(w.space(rank, BYTES));
    }
    for round in 0..60 {
        // Each rank has only one operation in flight, on a piece of memory of its own. The case
        // therefore assumes no order.
        let piece = BYTES / 4;
        let mut gets = Vec::new();
        for (from, &md) in mds.iter().enumerate() {
            let to = random.usize(0..4);
            let most = largest.min(piece);
            let length = if random.bool() {
                random.usize(0..100)
            } else {
                random.usize(0..=most)
            };
            let length = length.min(most);
            let at = from * piece + random.usize(0..=piece - length);
            if random.bool() {
                md.poke(0, &pattern(random.u64(..), length));
                models[to][at..at + length].copy_from_slice(&md.peek(0, length));
                let put = Put {
                    length,
                    remote_offset: at as u64,
                    token: round,
                    ..put_to(to as u32, &md)
                };
                w.put(from as u32, &put);
            } else {
                let get = Get {
                    local_offset: 3,
                    length: length.min(BYTES - 3),
                    remote_offset: at as u64,
                    token: round,
                    ..get_from(to as u32, &md)
                };
                w.get(from as u32, &get);
                gets.push((from, models[to][at..at + get.length].to_vec()));
            }
        }
        for rank in 0..4 {
            assert_eq!(w.end_of(rank, round).outcome, Outcome::Done);
        }
        for (from, bytes) in gets {
            assert!(mds[from].peek(3, bytes.len()) == bytes, "round {round}");
        }
        for (region, model) in regions.iter().zip(&models) {
            assert!(region.peek(0, BYTES) == *model, "round {round}");
        }
    }
}

fn ring_of_tokens<N: Ni>(w: &mut World<N>) {
    let mut mds = Vec::new();
    for rank in 0..8 {
        w.listen(rank);
        w.append(rank, managed(1 << 16, 64));
        mds.push(w.source(rank, &[]));
    }
    let inject_size = w.net(0).reach(1).inject_size;
    for hop in 0..80_u32 {
        let (from, to) = (hop % 8, (hop + 1) % 8);
        if inject_size > 0 && hop % 2 == 0 {
            let inject = Inject {
                target: to,
                index: PT,
                exchange: Exchange::OneWay,
                match_bits: 0,
                hdr_data: hop.into(),
                head: &[],
                body: &[],
            };
            w.inject(from, &inject);
        } else {
            let put = Put {
                hdr_data: hop.into(),
                ack: Ack::Local,
                token: hop.into(),
                ..put_to(to, &mds[from as usize])
            };
            w.put(from, &put);
        }
        w.until("the token arrives", |w| {
            w.puts(to).iter().any(|put| put.hdr_data == u64::from(hop))
        });
    }
}
