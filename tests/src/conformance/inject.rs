//! Injects, which are puts whose bytes are copied before the call returns.

use conduit_core::ni::{Exchange, Inject, Ni, NiError};

use super::entry::{PT, managed, over, pattern};
use super::{Applies, Peek, World, theme};

theme! { "inject":
    pieces_arrive_in_one(2)
        "Head and body arrive in one message, in order and aligned to 16.";
    every_size_to_the_limit(2)
        "Every length from 0 to inject_size may be injected.";
    beyond_the_limit_is_refused(2)
        "More than inject_size bytes are refused with OverLimit, however they are split between head and body.";
    bytes_are_copied_before_return(2)
        "Head and body may be changed as soon as the call has returned.";
    no_event_at_the_initiator(2)
        "An injected put has no event at its initiator, whether it matches or not.";
    into_a_region(2)
        "An inject to an entry over a region writes at the entry's first byte.";
    head_must_keep_the_body_aligned(2)
        "A head whose length isn't a multiple of 16, followed by a body, is refused or arrives whole.";
    without_inject_all_is_refused(2)
        "A network without inject reports a size of 0 and refuses injects.";
}

fn message<'a>(head: &'a [u8], body: &'a [u8]) -> Inject<'a> {
    Inject {
        target: 1,
        index: PT,
        exchange: Exchange::OneWay,
        match_bits: 0,
        hdr_data: 0,
        head,
        body,
    }
}

/// Returns the size limit of injects, or the reason why the case doesn't apply.
fn limit<N: Ni>(w: &World<N>, least: usize) -> Result<usize, Applies> {
    match w.net(0).reach(1).inject_size {
        size if size < least => Err(Applies::No(format!("inject_size is {size}"))),
        size => Ok(size),
    }
}

fn pieces_arrive_in_one<N: Ni>(w: &mut World<N>) -> Applies {
    let size = match limit(w, 1) {
        Ok(size) => size,
        Err(no) => return no,
    };
    w.listen(1);
    w.append(1, managed(65536, 1024));
    let bytes = pattern(1, size);
    let mut sent = 0;
    for (head, body) in [
        (0, 1),
        (1, 0),
        (8, 0),
        (0, 40),
        (16, 1),
        (16, 24),
        (32, 5),
        (48, 9),
    ] {
        if head + body > size {
            continue;
        }
        let inject = Inject {
            hdr_data: (head + body) as u64,
            ..message(&bytes[..head], &bytes[head..head + body])
        };
        w.inject(0, &inject);
        sent += 1;
    }
    for put in w.wait_puts(1, sent) {
        assert_eq!(put.data, bytes[..put.hdr_data as usize]);
        assert_eq!(
            (put.length, put.requested),
            (put.data.len(), put.data.len())
        );
        assert!(put.aligned, "{} bytes", put.length);
    }
    Applies::Yes
}

fn every_size_to_the_limit<N: Ni>(w: &mut World<N>) -> Applies {
    let size = match limit(w, 1) {
        Ok(size) => size,
        Err(no) => return no,
    };
    w.listen(1);
    // Uses all lengths if there are few, otherwise only the smallest and the largest ones.
    let lengths: Vec<_> = (0..=size.min(200))
        .chain(size.saturating_sub(64).max(201)..=size)
        .collect();
    let room = lengths
        .iter()
        .map(|length| length.next_multiple_of(64) + 64)
        .sum();
    w.append(1, managed(room, 1));
    let bytes = pattern(2, size);
    for &length in &lengths {
        // The bytes are all in the head, all in the body, or split between the two.
        let head = [0, length, length / 32 * 16][length % 3];
        let inject = Inject {
            hdr_data: length as u64,
            ..message(&bytes[..head], &bytes[head..length])
        };
        w.inject(0, &inject);
    }
    let mut seen = vec![false; size + 1];
    for put in w.wait_puts(1, lengths.len()) {
        let length = put.hdr_data as usize;
        assert!(!seen[length], "the message of {length} bytes arrived twice");
        seen[length] = true;
        assert!(put.data == bytes[..length], "{length} bytes");
    }
    Applies::Yes
}

fn beyond_the_limit_is_refused<N: Ni>(w: &mut World<N>) -> Applies {
    let size = match limit(w, 1) {
        Ok(size) => size,
        Err(no) => return no,
    };
    w.listen(1);
    w.append(1, managed(65536, 64));
    let bytes = vec![1; size + 17];
    for (head, length) in [
        (0, size + 1),
        (size + 1, size + 1),
        (16, size + 1),
        (0, size + 17),
    ] {
        if head > length {
            continue;
        }
        let inject = message(&bytes[..head], &bytes[head..length]);
        let answer = w.submit(0, |net| net.inject(&inject));
        assert!(
            matches!(answer, Err(NiError::OverLimit { value, limit, .. })
                if value == length as u64 && limit == size as u64),
            "{head} + {}: {answer:?}",
            length - head
        );
    }
    w.settle();
    assert!(w.log().is_empty(), "no effects");
    Applies::Yes
}

fn bytes_are_copied_before_return<N: Ni>(w: &mut World<N>) -> Applies {
    let size = match limit(w, 32) {
        Ok(size) => size.min(256),
        Err(no) => return no,
    };
    w.listen(1);
    w.append(1, managed(65536, 256));
    for i in 0..20_u8 {
        let mut bytes = vec![i; size];
        let (head, body) = bytes.split_at(16);
        w.inject(0, &message(head, body));
        bytes.fill(0xFF);
    }
    let mut seen: Vec<_> = w.wait_puts(1, 20).into_iter().map(|put| put.data).collect();
    seen.sort_unstable();
    let expected: Vec<_> = (0..20_u8).map(|i| vec![i; size]).collect();
    assert!(seen == expected);
    Applies::Yes
}

fn no_event_at_the_initiator<N: Ni>(w: &mut World<N>) -> Applies {
    if let Err(no) = limit(w, 8) {
        return no;
    }
    w.listen(1);
    w.completions(0);
    w.append(1, managed(4096, 64));
    for match_bits in [0, 1, 0, 2, 0] {
        let inject = Inject {
            match_bits,
            ..message(&[3; 8], &[])
        };
        w.inject(0, &inject);
    }
    w.wait_puts(1, 3);
    w.settle();
    assert_eq!((w.events(0).count(), w.events(1).count()), (0, 3));
    Applies::Yes
}

fn into_a_region<N: Ni>(w: &mut World<N>) -> Applies {
    if let Err(no) = limit(w, 20) {
        return no;
    }
    w.listen(1);
    let region = w.region(1, 4096);
    w.append(1, super::entry::piece(&region, 100, 64));
    w.inject(0, &message(&[7; 16], &[8; 4]));
    let put = w.wait_puts(1, 1).remove(0);
    assert_eq!((put.offset, put.length), (0, 20));
    assert_eq!(region.peek(100, 16), [7; 16]);
    assert_eq!(region.peek(116, 5), [8, 8, 8, 8, 0]);
    Applies::Yes
}

fn head_must_keep_the_body_aligned<N: Ni>(w: &mut World<N>) -> Applies {
    if let Err(no) = limit(w, 32) {
        return no;
    }
    w.listen(1);
    w.append(1, managed(4096, 64));
    let bytes = pattern(3, 32);
    let mut taken = 0;
    for head in [1, 8, 15, 17] {
        let inject = message(&bytes[..head], &bytes[head..]);
        taken += usize::from(w.submit(0, |net| net.inject(&inject)).is_ok());
    }
    for put in w.wait_puts(1, taken) {
        assert_eq!(put.data, bytes);
    }
    w.settle();
    assert_eq!(w.puts(1).len(), taken);
    Applies::Yes
}

fn without_inject_all_is_refused<N: Ni>(w: &mut World<N>) -> Applies {
    if w.net(0).reach(1).inject_size > 0 {
        return Applies::No("the network has inject".to_owned());
    }
    w.listen(1);
    let region = w.region(1, 4096);
    w.append(1, over(&region));
    let answer = w.submit(0, |net| net.inject(&message(&[1], &[])));
    assert!(matches!(answer, Err(NiError::OverLimit { limit: 0, .. })));
    w.settle();
    assert!(w.log().is_empty());
    Applies::Yes
}
