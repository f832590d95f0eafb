//! Event queues: their limits, and the back-pressure when a rank doesn't poll them.

use std::time::Duration;

use conduit_core::ni::{
    Ack, Exchange, Inject, MatchEntry, MeMemory, MeOptions, Ni, Outcome, Put, Submit,
};

use super::entry::{OTHER, PT, atomic_on, catch_basin, get_from, managed, over, pattern, put_to};
use super::{Applies, Peek, Seen, World, theme};

theme! { "queues":
    full_queue_holds_senders_back(2)
        "A target that doesn't poll holds its senders back with Again, no message is lost, and all arrive once it polls.";
    full_queue_of_large_messages(2)
        "A full queue also holds back messages that take more than one slot.";
    full_queue_of_headers(2)
        "A full queue also holds back messages to an entry that takes only headers.";
    injects_are_held_back(2)
        "A full queue also holds back injects.";
    queue_is_filled_again_and_again(2)
        "A small queue passes any number of messages.";
    poll_keeps_its_limit(2)
        "A poll delivers at most its limit, returns the number of events, and delivers none with a limit of 0.";
    indices_share_a_queue(2)
        "Several indices may deliver to one queue, and each event names its index.";
    index_without_a_queue(2)
        "Operations on an index without a queue complete without events, in progress().";
    index_that_opens_late(2)
        "A put to an index that isn't open yet is held back or arrives after it opens.";
    target_and_initiator_share_a_queue(2)
        "One queue may take a rank's completions and its peers' messages.";
    waiting_ends(2)
        "wait() returns after its limit at the latest, and earlier if there is something to do, and notify() only ends a wait.";
}

/// Freezes rank 1 and sends it up to `most` numbered puts, until the network holds them back or the
/// initiator's queue has no room for more completions. Then thaws rank 1 and sends the rest.
/// Returns the numbers in the order of delivery.
fn flood<N: Ni>(w: &mut World<N>, length: usize, most: u64) -> Vec<u64> {
    let md = w.source(0, &pattern(9, length));
    w.freeze(1);
    let (mut sent, mut again) = (0, 0);
    while sent < most && again < 100 {
        let put = Put {
            hdr_data: sent,
            token: sent,
            ack: Ack::Local,
            ..put_to(1, &md)
        };
        // The initiator's own queue has room for the completion, because the initiator polls
        // meanwhile.
        if w.try_put(0, &put) {
            sent += 1;
        } else {
            again += 1;
        }
        w.turn_of(0);
        // No more puts may be in flight than the initiator's queue has room for.
        if sent - w.count(0, |event| matches!(event, Seen::Send { .. })) as u64 >= 128 {
            break;
        }
    }
    w.thaw(1);
    for token in sent..most {
        w.until("the queue has room for one more completion", |w| {
            token + 1 - (w.count(0, |event| matches!(event, Seen::Send { .. })) as u64) < 128
        });
        let put = Put {
            hdr_data: token,
            token,
            ack: Ack::Local,
            ..put_to(1, &md)
        };
        w.put(0, &put);
    }
    w.until("all arrive", |w| w.puts(1).len() as u64 >= most);
    w.until("all end", |w| w.events(0).count() as u64 >= most);
    w.settle();
    let puts = w.puts(1);
    for put in &puts {
        if !put.data.is_empty() {
            assert!(put.data == md.bytes(), "message {}", put.hdr_data);
        }
    }
    puts.iter().map(|put| put.hdr_data).collect()
}

fn all_once(mut numbers: Vec<u64>, most: u64) {
    numbers.sort_unstable();
    assert!(
        numbers.iter().copied().eq(0..most),
        "each message must arrive once: {numbers:?}"
    );
}

fn full_queue_holds_senders_back<N: Ni>(w: &mut World<N>) {
    let eq = w.queue(1, 32);
    w.open(1, PT, Some(eq));
    w.append(1, managed(1 << 18, 64));
    let numbers = flood(w, 8, 500);
    all_once(numbers, 500);
}

fn full_queue_of_large_messages<N: Ni>(w: &mut World<N>) {
    let eq = w.queue(1, 32);
    w.open(1, PT, Some(eq));
    let length = w.net(0).reach(1).max_managed.min(1000);
    w.append(1, managed(1 << 18, 1000));
    let numbers = flood(w, length, 200);
    all_once(numbers, 200);
}

fn full_queue_of_headers<N: Ni>(w: &mut World<N>) {
    let eq = w.queue(1, 32);
    w.open(1, PT, Some(eq));
    w.append(1, catch_basin());
    let numbers = flood(w, 100, 500);
    all_once(numbers, 500);
}

fn injects_are_held_back<N: Ni>(w: &mut World<N>) -> Applies {
    let size = w.net(0).reach(1).inject_size.min(24);
    if size == 0 {
        return Applies::No("no inject".to_owned());
    }
    let eq = w.queue(1, 32);
    w.open(1, PT, Some(eq));
    w.append(1, managed(1 << 18, 64));
    let bytes = pattern(1, size);
    w.freeze(1);
    for hdr_data in 0..1000 {
        let inject = Inject {
            target: 1,
            index: PT,
            exchange: Exchange::OneWay,
            match_bits: 0,
            hdr_data,
            head: &bytes,
            body: &[],
        };
        if w.net(0).inject(&inject).expect("inject") == Submit::Again {
            w.thaw(1);
            w.inject(0, &inject);
        }
        if hdr_data % 100 == 50 {
            w.freeze(1);
        }
    }
    w.thaw(1);
    let puts = w.wait_puts(1, 1000);
    assert!(puts.iter().all(|put| put.data == bytes));
    all_once(puts.iter().map(|put| put.hdr_data).collect(), 1000);
    Applies::Yes
}

fn queue_is_filled_again_and_again<N: Ni>(w: &mut World<N>) {
    let eq = w.queue(1, 8);
    w.open(1, PT, Some(eq));
    let region = w.region(1, 4096);
    w.append(1, over(&region));
    let md = w.source(0, &[1; 8]);
    for token in 0..3000 {
        let put = Put {
            token,
            hdr_data: token,
            remote_offset: token % 500 * 8,
            ..put_to(1, &md)
        };
        w.put(0, &put);
        if token % 64 == 63 {
            for token in token - 63..=token {
                w.end_of(0, token);
            }
        }
    }
    let numbers = w
        .wait_puts(1, 3000)
        .iter()
        .map(|put| put.hdr_data)
        .collect();
    all_once(numbers, 3000);
}

fn poll_keeps_its_limit<N: Ni>(w: &mut World<N>) {
    let eq = w.listen(1);
    w.append(1, managed(1 << 16, 64));
    let md = w.source(0, &[1; 8]);
    w.freeze(1);
    for token in 0..20 {
        let put = Put {
            ack: Ack::Local,
            token,
            ..put_to(1, &md)
        };
        w.put(0, &put);
    }
    let mut delivered = 0;
    // The queue is polled directly, because the world's own polls would take the events that are
    // counted here.
    w.until("all messages are delivered", |w| {
        let net = w.net(1);
        net.progress();
        assert_eq!(net.poll(eq, 0, |_| panic!("a limit of 0")), 0);
        for limit in [1, 2, 3, u32::MAX] {
            let mut calls = 0;
            let said = net.poll(eq, limit, |_| calls += 1);
            assert_eq!(
                said, calls,
                "poll must return the number of delivered events"
            );
            assert!(said <= limit);
            delivered += said;
        }
        delivered == 20
    });
    w.thaw(1);
    w.settle();
    assert_eq!(w.events(1).count(), 0, "a message was delivered twice");
}

fn indices_share_a_queue<N: Ni>(w: &mut World<N>) {
    let eq = w.listen(1);
    w.open(1, OTHER, Some(eq));
    for (index, tag) in [(PT, 1), (OTHER, 2)] {
        w.append_at(
            1,
            index,
            MatchEntry {
                tag,
                ..managed(8192, 64)
            },
        );
    }
    let md = w.source(0, b"both");
    for i in 0..20 {
        let put = Put {
            index: if i % 2 == 0 { PT } else { OTHER },
            ..put_to(1, &md)
        };
        w.put_and_wait(&md, &put);
    }
    let puts = w.wait_puts(1, 20);
    for (index, tag) in [(PT, 1), (OTHER, 2)] {
        let count = puts
            .iter()
            .filter(|put| (put.index, put.tag) == (index, tag));
        assert_eq!(count.count(), 10);
    }
}

fn index_without_a_queue<N: Ni>(w: &mut World<N>) {
    w.open(1, PT, None);
    let region = w.region(1, 1 << 17);
    w.append(1, over(&region));
    w.append(
        1,
        MatchEntry {
            memory: MeMemory::Nothing,
            match_bits: 1,
            options: MeOptions::PUT | MeOptions::TRUNCATE,
            ..over(&region)
        },
    );
    let length = w.net(0).reach(1).max_message.min(100_000);
    let bytes = pattern(2, length);
    let md = w.source(0, &bytes);
    for round in 0..3 {
        let end = w.put_and_wait(&md, &put_to(1, &md));
        assert_eq!(end.length, length, "put {round}");
        assert!(region.peek(0, length) == bytes);
        let back = w.space(0, length);
        assert_eq!(w.get_and_wait(&back, &get_from(1, &back)).length, length);
        assert!(back.bytes() == bytes);
        w.release(&back);
    }
    let eq = w.completions(0);
    let first = u64::from_ne_bytes(bytes[..8].try_into().expect("8 bytes"));
    assert_eq!(w.atomic_and_wait(0, &atomic_on(1, eq)).value, first);
    // Sends many more messages than any queue has room for.
    for token in 0..1000 {
        let put = Put {
            match_bits: token % 2,
            length: 8,
            ..put_to(1, &md)
        };
        w.put_and_wait(&md, &put);
    }
    w.settle();
    assert_eq!(w.events(1).count(), 0, "unseen");
}

fn index_that_opens_late<N: Ni>(w: &mut World<N>) {
    let eq = w.queue(1, 64);
    let md = w.source(0, b"early");
    let mut posted = 0;
    for token in 0..8 {
        let put = Put {
            token,
            ..put_to(1, &md)
        };
        if !w.try_put(0, &put) {
            break;
        }
        posted += 1;
        w.turn();
    }
    w.settle();
    assert_eq!(w.events(1).count(), 0, "a closed index delivered an event");
    let ended = w.count(0, |event| matches!(event, Seen::Ack { .. }));
    assert_eq!(ended, 0, "a put to a closed index ended");
    w.open(1, PT, Some(eq));
    w.append(1, managed(4096, 64));
    for token in posted..8 {
        let put = Put {
            token,
            ..put_to(1, &md)
        };
        w.put(0, &put);
    }
    // A put that was submitted early may have arrived when the index was open but its entry was not
    // linked yet. NoMatch is therefore also a valid end.
    let mut done = 0;
    for token in 0..8 {
        done += usize::from(w.end_of(0, token).outcome == Outcome::Done);
    }
    assert_eq!(w.put_and_wait(&md, &put_to(1, &md)).outcome, Outcome::Done);
    assert_eq!(w.wait_puts(1, done + 1).len(), done + 1);
}

fn target_and_initiator_share_a_queue<N: Ni>(w: &mut World<N>) {
    let mut sides = Vec::new();
    for rank in 0..2 {
        let eq = w.listen(rank);
        w.append(rank, managed(1 << 16, 64));
        sides.push(w.source_on(rank, &[rank as u8; 32], eq));
    }
    for token in 0..100 {
        for md in &sides {
            let put = Put {
                token,
                ..put_to(1 - md.rank, md)
            };
            w.put(md.rank, &put);
        }
        if token % 20 == 19 {
            for (rank, last) in [(0, token), (1, token)] {
                for token in last - 19..=last {
                    w.end_of(rank, token);
                }
            }
        }
    }
    for rank in 0..2 {
        for put in w.wait_puts(rank, 100) {
            assert_eq!(put.data, [1 - rank as u8; 32]);
        }
    }
}

fn waiting_ends<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(1, managed(4096, 64));
    let md = w.source(0, b"wake");
    w.net(1).wait(Duration::ZERO);
    w.net(1).wait(Duration::from_millis(1));
    for rank in 0..2 {
        w.net(0).notify(rank);
    }
    w.net(1).wait(Duration::from_millis(1));
    let put = Put {
        ack: Ack::Local,
        ..put_to(1, &md)
    };
    w.put(0, &put);
    // With a message in flight, the wait may end early, but it must not lose the message.
    w.net(1).wait(Duration::from_millis(1));
    assert_eq!(w.wait_puts(1, 1)[0].data, b"wake");
    for rank in 0..2 {
        assert_eq!(w.net(rank).failed_peer(), None, "all peers must be alive");
    }
}
