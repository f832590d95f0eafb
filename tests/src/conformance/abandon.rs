//! Abandoned operations. After `abandon`, the network no longer touches the memory of their
//! callers.

use conduit_core::ni::{Ack, Get, Inject, Ni, Put};

use super::entry::{PT, get_from, managed, over, pattern, put_to};
use super::{Md, Peek, World, theme};

theme! { "abandon":
    a_destination_is_left_alone(2)
        "After abandon, the bytes of a late get are discarded, whatever path the get took.";
    a_source_is_left_alone(2)
        "After abandon, a put's source is not read, so either its earlier bytes arrive or none.";
    what_is_submitted_later_is_left_alone(2)
        "A put or get submitted after abandon is refused with Again, or touches no memory after the call.";
    each_operation_by_itself(3)
        "A rank's abandon doesn't affect operations of other ranks, including those on its memory.";
    messages_go_on(2)
        "Injects and puts without bytes still work after abandon.";
    twice(2)
        "Abandon may be called again.";
    within_a_sink(2)
        "Abandon may be called from within a sink.";
}

/// These lengths need one fragment on any network, several fragments, and more fragments than are
/// in flight at once.
const LENGTHS: [usize; 5] = [8, 300, 5000, 64 << 10, 1 << 20];

/// The byte that fills memory that has been given back. It must not change.
const OTHERS: u8 = 0xA5;

fn lengths<N: Ni>(w: &World<N>) -> Vec<usize> {
    let most = w.net(0).reach(1).max_message;
    LENGTHS.into_iter().filter(|l| *l <= most).collect()
}

/// Overwrites a descriptor's memory, which belongs to another owner from here on.
fn give_back(md: &Md) {
    md.poke(0, &vec![OTHERS; md.len]);
}

#[track_caller]
fn is_others(md: &Md) {
    let changed = md.bytes().iter().filter(|byte| **byte != OTHERS).count();
    assert_eq!(changed, 0, "of {} bytes", md.len);
}

/// Submits a get twice. The network may refuse either submission.
fn try_get<N: Ni>(w: &World<N>, get: &Get) {
    for _ in 0..2 {
        // SAFETY: the destination belongs to the world, which keeps it valid. Cases access it only
        // after the get has ended or been abandoned.
        let answer = unsafe { w.net(0).get(get) };
        let _ = answer.expect("get");
    }
}

fn a_destination_is_left_alone<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 1 << 20);
    region.poke(0, &pattern(1, region.len));
    w.append(1, over(&region));
    let whole = w.space(0, 8);
    // Makes a first get, so that a network with direct access can advertise it.
    w.get_and_wait(&whole, &get_from(1, &whole));
    let lengths = lengths(w);
    let mds: Vec<_> = lengths.iter().map(|length| w.space(0, *length)).collect();
    w.freeze(1);
    for (token, md) in (10..).zip(&mds) {
        let get = Get {
            token,
            ..get_from(1, md)
        };
        try_get(w, &get);
    }
    // Some of the gets are at the target now. Others may still be deferred.
    w.turn_of(0);
    w.net(0).abandon();
    mds.iter().for_each(give_back);
    w.thaw(1);
    w.settle();
    mds.iter().for_each(is_others);
}

fn a_source_is_left_alone<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 1 << 20);
    w.append(1, over(&region));
    let first = w.source(0, &[0; 8]);
    w.put_and_wait(&first, &put_to(1, &first));
    for (round, ack) in [Ack::Remote, Ack::Local].into_iter().enumerate() {
        region.poke(0, &vec![0; region.len]);
        w.freeze(1);
        for (token, length) in (0..).zip(lengths(w)) {
            let md = w.source(0, &vec![1; length]);
            let put = Put {
                ack,
                token: 100 * round as u64 + token,
                ..put_to(1, &md)
            };
            // Every put but the first is submitted after an earlier `abandon`. Its memory is given
            // back too.
            w.try_put(0, &put);
            w.turn_of(0);
            w.net(0).abandon();
            give_back(&md);
        }
        w.thaw(1);
        w.settle();
        let wrong = region.bytes().iter().filter(|byte| **byte > 1).count();
        assert_eq!(wrong, 0, "bytes written after abandon");
    }
}

fn what_is_submitted_later_is_left_alone<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 1 << 20);
    region.poke(0, &vec![2; region.len]);
    w.append(1, over(&region));
    w.net(0).abandon();
    for length in lengths(w) {
        let (from, to) = (w.source(0, &vec![1; length]), w.space(0, length));
        w.try_put(0, &put_to(1, &from));
        try_get(w, &get_from(1, &to));
        give_back(&from);
        give_back(&to);
        w.settle();
        is_others(&to);
    }
    let wrong = region.bytes().iter().filter(|byte| **byte > 2).count();
    assert_eq!(wrong, 0, "bytes written after abandon");
}

fn each_operation_by_itself<N: Ni>(w: &mut World<N>) {
    let regions: Vec<_> = (0..2)
        .map(|rank| {
            w.listen(rank);
            let region = w.region(rank, 64 << 10);
            w.append(rank, over(&region));
            region
        })
        .collect();
    let bytes = pattern(3, 30_000);
    let (from, to) = (w.source(2, &bytes), w.space(2, 30_000));
    // Both puts are in flight when rank 0 abandons.
    for (token, rank) in [(1, 0), (2, 1)] {
        let put = Put {
            token,
            ..put_to(rank, &from)
        };
        w.put(2, &put);
    }
    w.net(0).abandon();
    for (token, rank) in [(1, 0), (2, 1)] {
        w.end_of(2, token);
        assert!(regions[rank].peek(0, bytes.len()) == bytes);
        let get = Get {
            token: 10 + token,
            ..get_from(rank as u32, &to)
        };
        assert_eq!(w.get_and_wait(&to, &get).length, bytes.len());
        assert!(to.bytes() == bytes);
    }
}

fn messages_go_on<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(1, managed(1 << 16, 64));
    let none = w.source(0, &[]);
    w.net(0).abandon();
    w.put(0, &put_to(1, &none));
    let mut puts = 1;
    if w.net(0).reach(1).inject_size >= 8 {
        let inject = Inject {
            target: 1,
            index: PT,
            exchange: conduit_core::ni::Exchange::OneWay,
            match_bits: 0,
            hdr_data: 7,
            head: &[1; 4],
            body: &[],
        };
        w.inject(0, &inject);
        puts += 1;
    }
    w.wait_puts(1, puts);
}

fn twice<N: Ni>(w: &mut World<N>) {
    for _ in 0..2 {
        a_destination_of(w);
        w.net(0).abandon();
        w.net(0).abandon();
    }
}

/// Submits a get, which the network may refuse.
fn a_destination_of<N: Ni>(w: &mut World<N>) {
    let md = w.space(0, 100);
    try_get(w, &get_from(1, &md));
}

fn within_a_sink<N: Ni>(w: &mut World<N>) {
    let eq = w.net(0).eq_create(64).expect("eq_create");
    w.open(0, PT, Some(eq));
    w.append(0, managed(1 << 16, 64));
    w.listen(1);
    let region = w.region(1, 4096);
    region.poke(0, &pattern(1, region.len));
    w.append(1, over(&region));
    let (message, to) = (w.source(1, &[1; 8]), w.space(0, 4096));
    w.freeze(1);
    try_get(w, &get_from(1, &to));
    w.thaw(1);
    w.put(1, &put_to(0, &message));
    w.until("the message is there", |w| {
        let net = w.net(0);
        net.progress();
        let mut given_back = false;
        net.poll(eq, 1, |_| {
            net.abandon();
            give_back(&to);
            given_back = true;
        });
        w.turn_of(1);
        given_back
    });
    w.settle();
    is_others(&to);
}
