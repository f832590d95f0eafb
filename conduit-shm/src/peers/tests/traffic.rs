//! Tests of fragments of all sizes, full rings, and handlers without room.

use super::*;

fn small_rings() -> LocalConfig {
    LocalConfig {
        ring: 4 << 10,
        ..LocalConfig::default()
    }
}

#[test]
fn fragments_of_all_sizes_arrive_in_order() {
    for config in [LocalConfig::default(), small_rings()] {
        let (mut a, mut b, to_b, to_a) = connected_with(&config);
        let sizes = [
            0,
            1,
            7,
            8,
            63,
            64,
            500,
            1000,
            4000,
            8170,
            8192,
            9000,
            70_000,
            1 << 20,
        ];
        for (token, &size) in (0..).zip(&sizes) {
            a.handler.sources.insert(token, pattern(token, size));
            a.send_read(to_b, &[token as u8; 10], token).unwrap();
        }
        for (token, &size) in (0..).zip(&sizes) {
            let message = await_message(&mut b, &mut a, to_a);
            assert_eq!(message, (vec![token as u8; 10], pattern(token, size)));
        }
        let tokens: Vec<_> = a.handler.sent.iter().map(|(_, token)| *token).collect();
        assert_eq!(tokens, (0..sizes.len() as u64).collect::<Vec<_>>());
        b.pump();
        assert!(a.local.is_idle(to_b));
        for size in 0..=704 {
            let header = vec![size as u8; size % 65];
            let payload = pattern(size as u64, size);
            send_to(&mut a, &mut b, to_b, &header, &payload);
            if size % 3 == 0 {
                a.pass();
                b.pass();
            }
        }
        for size in 0..=704 {
            let (header, payload) = await_message(&mut b, &mut a, to_a);
            assert_eq!(header, vec![size as u8; size % 65]);
            assert_eq!(payload, pattern(size as u64, size));
        }
    }
}

#[test]
fn what_is_too_long_is_refused() {
    let (mut a, b, to_b, _) = connected();
    assert_eq!(a.send(to_b, &[0; 65], b""), Err(Refused::TooLong));
    assert_eq!(a.send(to_b, &[0; 64], &[0; 705]), Err(Refused::TooLong));
    assert_eq!(a.send(to_b, &[0; 64], &[0; 704]), Ok(()));
    a.handler.sources.insert(0, vec![]);
    assert_eq!(a.send_read(to_b, &[0; 65], 0), Err(Refused::TooLong));
    assert_eq!(a.send(to_b + 1, b"h", b""), Err(Refused::NoSuchRank));
    drop(b);
}

/// Checks that pieces are written one after another.
#[test]
fn pieces_make_one_payload() {
    let (mut a, mut b, to_b, to_a) = connected();
    let pieces: [&[u8]; 4] = [b"ab", b"", b"c", b"defg"];
    let payload = Payload::Copied(&pieces);
    let header = b"h";
    a.local.send(to_b, &Fragment { header, payload }).unwrap();
    assert_eq!(await_message(&mut b, &mut a, to_a).1, b"abcdefg");
}

#[test]
fn a_full_ring_refuses_until_there_is_room() {
    let (mut a, mut b, to_b, to_a) = connected_with(&small_rings());
    let mut accepted = 0u32;
    while a.send(to_b, b"h", &accepted.to_le_bytes()).is_ok() {
        accepted += 1;
        assert!(accepted < 1000, "a ring is bounded");
    }
    assert!(accepted > 30 && a.local.outstanding(to_b) >= accepted as usize * 64);
    assert!(!a.local.is_idle(to_b));
    assert_eq!(a.send(to_b, b"h", b""), Err(Refused::Full));
    for count in 0..accepted {
        assert_eq!(await_message(&mut b, &mut a, to_a).1, count.to_le_bytes());
    }
    b.pump();
    assert!(a.local.is_idle(to_b));
    assert_eq!(a.send(to_b, b"h", b"more"), Ok(()));
    assert_eq!(await_message(&mut b, &mut a, to_a).1, b"more");
}

#[test]
fn fragments_to_be_read_are_bounded_and_wait_for_room() {
    let (mut a, mut b, to_b, to_a) = connected_with(&small_rings());
    let mut accepted = 0;
    loop {
        a.handler.sources.insert(accepted, pattern(accepted, 3000));
        if a.send_read(to_b, b"h", accepted).is_err() {
            break;
        }
        accepted += 1;
    }
    assert!((10..1000).contains(&accepted));
    a.local.transmit(&mut a.handler);
    assert!(
        a.handler.sent.len() < 4,
        "bytes in the ring are not read again"
    );
    for token in 0..accepted {
        assert_eq!(await_message(&mut b, &mut a, to_a).1, pattern(token, 3000));
    }
    assert_eq!(a.handler.sent.len() as u64, accepted);
    assert!(a.local.sending.is_empty());
}

#[test]
fn a_handler_without_room_gets_it_again_and_commands_pass_data() {
    let (mut a, mut b, to_b, to_a) = connected();
    b.handler.refused = vec![b'd', b'l', b'c'];
    a.handler.sources.insert(1, pattern(1, 100));
    a.handler.sources.insert(2, pattern(2, 100_000));
    for (header, token) in [(b"d", 1), (b"l", 2)] {
        a.send_read(to_b, header, token).unwrap();
    }
    a.pump();
    b.pump();
    a.send(to_b, b"x", b"1").unwrap();
    a.send(to_b, b"c", b"2").unwrap();
    b.pump();
    // Data for which the handler has no room do not block commands.
    assert_eq!(b.next(to_a).unwrap().0, b"x");
    assert_eq!(b.next(to_a), None);
    b.handler.refused = vec![b'l'];
    b.pump();
    let mut headers = [b.next(to_a).unwrap().0, b.next(to_a).unwrap().0];
    headers.sort();
    assert_eq!(headers, [b"c", b"d"]);
    b.handler.refused.clear();
    assert_eq!(
        await_message(&mut b, &mut a, to_a),
        (b"l".to_vec(), pattern(2, 100_000))
    );
}

#[test]
fn abandoned_memory_is_not_read() {
    let (mut a, mut b, to_b, to_a) = connected();
    a.handler.sources.insert(1, pattern(1, 1 << 20));
    a.send_read(to_b, b"d", 1).unwrap();
    a.pass();
    a.local.abandon(&[to_b, 77], &mut a.handler);
    a.handler.sources.clear();
    a.pump();
    b.pump();
    a.handler.sources.insert(2, vec![]);
    assert_eq!(a.send_read(to_b, b"d", 2), Err(Refused::Full));
    a.send(to_b, b"c", b"").unwrap();
    assert_eq!(await_message(&mut b, &mut a, to_a).0, b"c");
    assert_eq!(a.handler.sent, []);
}

/// Checks that no messages are lost if more peers than can be watched send in turns.
#[test]
fn many_peers_are_heard() {
    const PEERS: usize = 20;
    let mut server = Process::new();
    let mut clients: Vec<_> = (0..PEERS).map(|_| Process::new()).collect();
    for client in &mut clients {
        let number = client.connect(&server);
        send_to(client, &mut server, number, b"h", b"");
    }
    server.pump();
    let mut counts = vec![1; PEERS];
    let mut random = fastrand::Rng::with_seed(31);
    for _ in 0..5000 {
        let which = random.usize(..PEERS);
        for _ in 0..random.u32(1..4) {
            if clients[which].send(0, b"h", b"").is_ok() {
                counts[which] += 1;
            }
        }
        if random.u8(..) < 40 {
            server.pass();
        }
    }
    server.pump();
    let joined = server.handler.joined.iter();
    let arrived: Vec<_> = joined
        .map(|number| server.handler.arrived[number].len())
        .collect();
    assert_eq!(arrived, counts);
    assert!(server.failures().is_empty());
}

#[test]
fn memory_of_a_peer_is_copied_by_its_address() {
    let (mut a, b, to_b, _) = connected();
    assert!(a.local.can_copy(to_b) && !a.local.can_copy(to_b + 1));
    let mut theirs = pattern(1, 100_000);
    let remote = theirs.as_mut_ptr().expose_provenance() as u64;
    let mut ours = vec![0; 100_000];
    // SAFETY: `ours` is valid for writes of `ours.len()` bytes.
    unsafe {
        a.local
            .copy_from(to_b, remote, ours.as_mut_ptr(), ours.len())
    }
    .unwrap();
    assert_eq!(ours, pattern(1, 100_000));
    let ours = pattern(2, 100_000);
    // SAFETY: `ours` is valid for reads of the given length, and the remote memory is that of
    // `theirs`.
    unsafe { a.local.copy_to(to_b, remote, ours.as_ptr(), ours.len()) }.unwrap();
    assert_eq!(std::hint::black_box(&theirs), &ours);
    let mut byte = 0u8;
    // SAFETY: `byte` is valid for writes of one byte. The peer has no memory at the remote address.
    let nothing = unsafe { a.local.copy_from(to_b, 16, &raw mut byte, 1) };
    assert!(nothing.is_err());
    // Nothing is written to a process that has ended, even before its end was noticed.
    drop(b);
    // SAFETY: `ours` is valid for reads of the given length, and the remote memory is that of
    // `theirs`.
    let ended = unsafe { a.local.copy_to(to_b, remote, ours.as_ptr(), 1) }.unwrap_err();
    assert_eq!(ended.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn who_does_not_want_to_be_copied_is_not() {
    let private = LocalConfig {
        copy: false,
        ..LocalConfig::default()
    };
    let (mut a, mut b) = (Process::new(), Process::with(&private));
    let to_b = a.connect(&b);
    send_to(&mut a, &mut b, to_b, b"h", b"");
    b.pump();
    assert!(!a.local.can_copy(to_b));
    let mut byte = 0u8;
    // SAFETY: `byte` is valid for writes of one byte.
    let refused = unsafe { a.local.copy_from(to_b, 16, &raw mut byte, 1) }.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::Unsupported);
}
