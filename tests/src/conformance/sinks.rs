//! Calls that are allowed within the sink of a poll, because message handlers run there.

use std::cell::{Cell, RefCell};

use conduit_core::ni::{Event, Exchange, Get, Inject, Ni, Put, Region, Submit};

use super::entry::{PT, get_from, managed, over, pattern, put_to};
use super::{Applies, Md, Peek, Seen, World, theme};

theme! { "sinks":
    poll_within_a_sink_gives_nothing(2)
        "A poll of a queue within a sink of the same queue delivers nothing and loses nothing.";
    poll_of_another_queue_within_a_sink(2)
        "A sink may poll another queue.";
    submission_within_a_sink(2)
        "A sink may submit puts, gets and injects, and after Again the caller has to repeat them.";
    append_within_a_sink(2)
        "A sink may append an entry again as soon as it gets Free.";
    data_outlives_a_sinks_own_submissions(2)
        "A message's bytes don't change during their delivery, whatever the sink submits meanwhile.";
    messages_that_ask_are_answered(2)
        "Replies that a sink injects to the source of a message that expects one arrive once each, of any length and even if there are two.";
}

fn poll_within_a_sink_gives_nothing<N: Ni>(w: &mut World<N>) {
    let eq = w.listen(1);
    w.append(1, managed(1 << 16, 64));
    let md = w.source(0, &[4; 16]);
    w.freeze(1);
    for token in 0..50 {
        let put = Put {
            token,
            hdr_data: token,
            ..put_to(1, &md)
        };
        w.put(0, &put);
    }
    let seen = RefCell::new(Vec::new());
    w.until("all messages are delivered", |w| {
        let net = w.net(1);
        net.progress();
        net.poll(eq, 7, |event| {
            let inner = net.poll(eq, 7, |_| panic!("delivered within a delivery"));
            assert_eq!(inner, 0);
            if let Event::Put(put) = event {
                assert_eq!(put.data, [4; 16]);
                seen.borrow_mut().push(put.hdr_data);
            }
        });
        seen.borrow().len() == 50
    });
    let mut seen = seen.into_inner();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..50));
}

fn poll_of_another_queue_within_a_sink<N: Ni>(w: &mut World<N>) {
    let eq = w.listen(1);
    w.append(1, managed(1 << 16, 64));
    let md = w.source(0, &[4; 16]);
    let own = w.source(1, &[5; 16]);
    let region = w.region(0, 4096);
    w.listen(0);
    w.append(0, over(&region));
    w.freeze(1);
    w.put(1, &put_to(0, &own));
    w.put(0, &put_to(1, &md));
    let (outer, inner) = (Cell::new(0), Cell::new(0));
    w.until("both messages are delivered", |w| {
        let net = w.net(1);
        net.progress();
        net.poll(eq, 1, |_| {
            outer.set(outer.get() + 1);
            inner.set(inner.get() + net.poll(own.eq, 4, |_| ()));
        });
        inner.set(inner.get() + net.poll(own.eq, 4, |_| ()));
        (outer.get(), inner.get()) == (1, 1)
    });
}

/// Submits the reply to message `n`. The reply is a put for kind 0, a get for kind 1, and an inject
/// for kind 2.
fn submit_reply<N: Ni>(net: &N, kind: usize, n: u64, reply: &Md, fetched: &Md) -> Submit {
    let answer = match kind {
        0 => {
            let put = Put {
                remote_offset: n * 8,
                token: n,
                hdr_data: n,
                ..put_to(0, reply)
            };
            // SAFETY: the source belongs to the world, and nothing writes it before the put has
            // ended.
            unsafe { net.put(&put) }
        }
        1 => {
            let get = Get {
                local_offset: n as usize * 40,
                length: 40,
                remote_offset: 4096 + n * 40,
                token: 100 + n,
                ..get_from(0, fetched)
            };
            // SAFETY: the destination belongs to the world, and nothing reads it before the get has
            // ended.
            unsafe { net.get(&get) }
        }
        _ if net.reach(0).inject_size == 0 => Ok(Submit::Posted),
        _ => net.inject(&Inject {
            target: 0,
            index: PT,
            exchange: Exchange::OneWay,
            match_bits: 0,
            hdr_data: 1000 + n,
            head: &[],
            body: &[],
        }),
    };
    answer.expect("a valid operation")
}

fn submission_within_a_sink<N: Ni>(w: &mut World<N>) {
    let eq = w.listen(1);
    w.listen(0);
    let region = w.region(0, 8192);
    region.poke(4096, &pattern(1, 4096));
    w.append(0, over(&region));
    w.append(1, managed(1 << 16, 64));
    let md = w.source(0, &[1; 8]);
    let reply = w.source(1, &[2; 8]);
    let fetched = w.space(1, 800);
    w.freeze(1);
    for token in 0..20 {
        let put = Put {
            token,
            hdr_data: token,
            ..put_to(1, &md)
        };
        w.put(0, &put);
    }
    // The sink records submissions that are refused within it. They are repeated outside of it.
    let refused = RefCell::new(Vec::new());
    let heard = Cell::new(0);
    w.until("all messages are delivered", |w| {
        let net = w.net(1);
        net.progress();
        net.poll(eq, 8, |event| {
            if let Event::Put(put) = event {
                heard.set(heard.get() + 1);
                for kind in 0..3 {
                    if submit_reply(net, kind, put.hdr_data, &reply, &fetched) == Submit::Again {
                        refused.borrow_mut().push((kind, put.hdr_data));
                    }
                }
            }
        });
        heard.get() == 20
    });
    w.thaw(1);
    for (kind, n) in refused.into_inner() {
        w.until("the network accepts the reply", |w| {
            submit_reply(w.net(1), kind, n, &reply, &fetched) == Submit::Posted
        });
    }
    let inject_size = w.net(1).reach(0).inject_size;
    finish_submissions(w, &region, &fetched, inject_size);
}

fn finish_submissions<N: Ni>(w: &mut World<N>, region: &Region, fetched: &Md, inject: usize) {
    for n in 0..20 {
        w.end_of(1, n);
        assert_eq!(w.end_of(1, 100 + n).length, 40);
    }
    let expected = if inject == 0 { 20 } else { 40 };
    w.wait_puts(0, expected);
    assert_eq!(region.peek(0, 160), [2; 160]);
    assert_eq!(fetched.bytes(), region.peek(4096, 800));
}

fn append_within_a_sink<N: Ni>(w: &mut World<N>) -> Applies {
    let eq = w.listen(1);
    for _ in 0..2 {
        w.append(1, managed(512, 128));
    }
    let md = w.source(0, &[6; 128]);
    w.freeze(1);
    let (heard, sent) = (Cell::new(0), Cell::new(0_u64));
    let turn = |w: &mut World<N>| {
        let net = w.net(1);
        net.progress();
        net.poll(eq, 4, |event| match event {
            Event::Put(put) => {
                assert_eq!(put.data, [6; 128]);
                heard.set(heard.get() + 1);
            }
            Event::Free { .. } => {
                net.me_append(PT, managed(512, 128)).expect("me_append");
            }
            _ => (),
        });
        w.turn_of(0);
    };
    while sent.get() < 200 {
        let token = sent.get();
        let put = Put {
            token,
            ..put_to(1, &md)
        };
        w.until("the network accepts the message", |w| {
            turn(w);
            w.try_put(0, &put)
        });
        w.until("it ends", |w| {
            turn(w);
            w.count(0, |event| event.token() == Some(token)) == 1
        });
        let end = w.end_of(0, token);
        if end.outcome == conduit_core::ni::Outcome::Done {
            sent.set(token + 1);
        }
    }
    w.until("all messages are delivered", |w| {
        turn(w);
        heard.get() == 200
    });
    Applies::Yes
}

fn data_outlives_a_sinks_own_submissions<N: Ni>(w: &mut World<N>) {
    let eq = w.listen(1);
    w.append(1, managed(4096, 256));
    w.append(1, managed(1 << 16, 256));
    let bytes = pattern(2, 256);
    let md = w.source(0, &bytes);
    let own = w.source(1, &[0xFF; 256]);
    w.freeze(1);
    for token in 0..10 {
        let put = Put {
            token,
            ..put_to(1, &md)
        };
        w.put(0, &put);
    }
    let (heard, own_sent) = (Cell::new(0), Cell::new(0));
    w.until("all messages are delivered", |w| {
        let net = w.net(1);
        net.progress();
        net.poll(eq, 3, |event| {
            if let Event::Put(put) = event {
                if put.source == 1 {
                    return;
                }
                heard.set(heard.get() + 1);
                // Further messages to the same entry that the sink sends must not reuse this
                // message's memory.
                for _ in 0..4 {
                    let again = Put {
                        token: own_sent.get(),
                        ..put_to(1, &own)
                    };
                    // SAFETY: the source belongs to the world, and nothing writes it before the put
                    // has ended.
                    if unsafe { net.put(&again) }.expect("put") == Submit::Posted {
                        own_sent.set(own_sent.get() + 1);
                    }
                }
                assert_eq!(put.data, bytes);
            }
        });
        heard.get() == 10
    });
    w.thaw(1);
    w.until("the sink's own operations end", |w| {
        w.count(1, |event| matches!(event, Seen::Ack { .. })) as u64 == own_sent.get()
    });
}

fn messages_that_ask_are_answered<N: Ni>(w: &mut World<N>) -> Applies {
    const BYTES: [u8; 80] = [9; 80];
    let most = |from, to| w.net(from).reach(to).inject_size;
    let most = most(0, 1).min(most(1, 0));
    if most < BYTES.len() {
        return Applies::No(format!("inject_size is {most}"));
    }
    let eq = w.listen(1);
    w.listen(0);
    w.append(0, managed(1 << 20, 64));
    w.append(1, managed(1 << 20, 64));
    w.freeze(1);
    let message = |target, n: u64, length, exchange| Inject {
        target,
        index: PT,
        exchange,
        match_bits: 0,
        hdr_data: n,
        head: &[],
        body: &BYTES[..length],
    };
    let asked = |n: u64| n as usize * 7 % 81;
    // Returns the number and the length of each reply to a message. A message gets none, one or two
    // replies.
    let answers = |n: u64| {
        let count = [1, 0, 2, 1][n as usize / 5 % 4];
        (0..count).map(move |copy| (1000 * copy + n, n as usize % 81))
    };
    let delivered = Cell::new(0);
    let again = RefCell::new(Vec::new());
    for n in 0..200 {
        w.inject(0, &message(1, n, asked(n), Exchange::ExpectsReply));
        if n % 3 == 0 {
            // Not waiting here makes two messages be in flight at once.
            continue;
        }
        w.until("all messages are delivered and have their replies", |w| {
            let net = w.net(1);
            net.progress();
            again.borrow_mut().retain(|&(n, length)| {
                net.inject(&message(0, n, length, Exchange::OneWay)) == Ok(Submit::Again)
            });
            net.poll(eq, 3, |event| {
                if let Event::Put(put) = event {
                    delivered.set(delivered.get() + 1);
                    for (number, length) in answers(put.hdr_data) {
                        let answer = message(0, number, length, Exchange::IsReply);
                        if net.inject(&answer).expect("a valid operation") == Submit::Again {
                            again.borrow_mut().push((number, length));
                        }
                    }
                    assert_eq!(put.data, &BYTES[..asked(put.hdr_data)]);
                }
            });
            delivered.get() == n + 1 && again.borrow().is_empty()
        });
    }
    w.thaw(1);
    let mut expected: Vec<_> = (0..200).flat_map(answers).collect();
    let puts = w.wait_puts(0, expected.len());
    let mut got: Vec<_> = puts
        .iter()
        .map(|put| {
            assert_eq!((put.source, &put.data[..]), (1, &BYTES[..put.length]));
            (put.hdr_data, put.length)
        })
        .collect();
    got.sort_unstable();
    expected.sort_unstable();
    assert_eq!(got, expected);
    Applies::Yes
}
