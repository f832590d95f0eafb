//! Tests with processes of the same user that violate the protocol.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::super::address::{encode, socket_name};
use super::super::memory::{COMMANDS, DATA, FrontPage, Pair};
use super::super::packet::{MAX_PACKET, Packet, Refusal, Terms};
use super::super::record::{self, BEGIN, CHUNK, WHOLE};
use super::super::socket::{self, Incoming};
use super::*;
use crate::ring::{Discipline, Frame, Producer, RingView, SLOT};

/// Connects without a handshake.
fn stranger(to: &Process) -> OwnedFd {
    let socket = socket::create().unwrap();
    socket::connect_to(&socket, &socket_name(to.local.address())).unwrap();
    socket
}

fn send_bytes(socket: &OwnedFd, bytes: &[u8]) {
    rustix::net::send(socket, bytes, rustix::net::SendFlags::NOSIGNAL).unwrap();
}

/// Returns the refusal that a stranger receives, if any.
fn answer(socket: &OwnedFd) -> Option<Refusal> {
    match socket::receive(socket).unwrap() {
        Incoming::Packet(received) => match Packet::decode(received.bytes()) {
            Ok(Packet::Refused(refusal)) => Some(refusal),
            packet => panic!("{packet:?}"),
        },
        _ => None,
    }
}

/// A server that already has a peer. The session with that peer must continue to work.
struct Victim {
    server: Process,
    client: Process,
    of_client: Rank,
    joined: usize,
}

impl Victim {
    fn new() -> Self {
        let (client, server, _, of_client) = connected();
        Self {
            server,
            client,
            of_client,
            joined: 1,
        }
    }

    fn check(&mut self) {
        send_to(&mut self.client, &mut self.server, 0, b"still", b"there");
        let (server, client) = (&mut self.server, &mut self.client);
        assert_eq!(await_message(server, client, self.of_client).0, b"still");
        assert_eq!(server.handler.joined.len(), self.joined);
    }
}

struct Files {
    pair: OwnedFd,
    front: OwnedFd,
    memory: (Pair, FrontPage),
}

fn files() -> Files {
    let (pair, pair_memory) = Pair::create(32 << 10).unwrap();
    let (front, front_memory) = FrontPage::create(64).unwrap();
    Files {
        pair,
        front,
        memory: (pair_memory, front_memory),
    }
}

const TERMS: Terms = Terms {
    number: 0,
    peers: 64,
    probe: 0,
    probe_value: 0,
};

fn greet(
    victim: &mut Victim,
    terms: Terms,
    shift: u32,
    address: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Option<Refusal> {
    let socket = stranger(&victim.server);
    let hello = Packet::Hello {
        terms,
        shift,
        address,
    };
    socket::send(&socket, &hello, descriptors).unwrap();
    victim.server.pump();
    let answer = answer(&socket);
    victim.check();
    answer
}

#[test]
fn strangers_who_say_nothing_or_nonsense_are_refused_and_stop_nobody() {
    let mut victim = Victim::new();
    let silent: Vec<_> = (0..200).map(|_| stranger(&victim.server)).collect();
    victim.server.pump();
    victim.server.pump();
    assert!(victim.server.local.strangers.len() <= 128);
    victim.check();
    // The last stranger is honest.
    let files = files();
    let address = encode(victim.server.local.host, 1, "late");
    let hello = Packet::Hello {
        terms: TERMS,
        shift: files.memory.0.shift(),
        address: &address,
    };
    let both = [files.pair.as_fd(), files.front.as_fd()];
    socket::send(&silent[199], &hello, &both).unwrap();
    victim.server.pump();
    victim.joined += 1;
    victim.check();
    for bytes in [&b"x"[..], b"GET / HTTP/1.0\r\n\r\n", &[0; 8], &[0xff; 5000]] {
        let socket = stranger(&victim.server);
        send_bytes(&socket, bytes);
        victim.server.pump();
        assert_eq!(answer(&socket), Some(Refusal::Malformed));
        victim.check();
    }
    for packet in [Packet::Wake, Packet::Goodbye, Packet::Welcome(TERMS)] {
        let socket = stranger(&victim.server);
        socket::send(&socket, &packet, &[files.front.as_fd()]).unwrap();
        victim.server.pump();
        assert_eq!(answer(&socket), Some(Refusal::Malformed));
    }
    let socket = stranger(&victim.server);
    let mut bytes = [0; MAX_PACKET];
    let length = hello.encode(&mut bytes);
    bytes[4] ^= 0x80;
    send_bytes(&socket, &bytes[..length]);
    victim.server.pump();
    assert_eq!(answer(&socket), Some(Refusal::Version));
    drop(silent);
    victim.server.pump();
    victim.server.pump();
    assert!(victim.server.local.strangers.is_empty());
    victim.check();
}

#[test]
fn greetings_that_are_wrong_are_refused() {
    let mut victim = Victim::new();
    let files = files();
    let (pair, front) = (files.pair.as_fd(), files.front.as_fd());
    let shift = files.memory.0.shift();
    let host = victim.server.local.host;
    let good = encode(host, 1, "hostile");
    let refused = Some(Refusal::Malformed);
    let own = victim.server.address();
    // Wrong addresses.
    for address in [&own[..], &encode(host ^ 1, 1, "x"), b"", &[0; 20]] {
        assert_eq!(
            greet(&mut victim, TERMS, shift, address, &[pair, front]),
            refused
        );
    }
    // Wrong descriptors: none, too few, too many, other files, or the wrong order.
    let null = std::fs::File::open("/dev/null").unwrap();
    let null = null.as_fd();
    let wrong: [&[BorrowedFd<'_>]; 6] = [
        &[],
        &[pair],
        &[front, pair],
        &[pair, null],
        &[null, front],
        &[pair, pair],
    ];
    for descriptors in wrong {
        assert_eq!(
            greet(&mut victim, TERMS, shift, &good, descriptors),
            refused
        );
    }
    // Wrong numbers.
    for (number, peers) in [(64, 64), (0, 0), (0, 65), (0, 1 << 17), (0, u32::MAX)] {
        let terms = Terms {
            number,
            peers,
            ..TERMS
        };
        assert_eq!(
            greet(&mut victim, terms, shift, &good, &[pair, front]),
            refused
        );
    }
    for shift in [0, 5, 8, 10, 17, 31, 32, 63, 64, u32::MAX] {
        assert_eq!(
            greet(&mut victim, TERMS, shift, &good, &[pair, front]),
            refused
        );
    }
    // Files that could shrink, are empty, or have invalid contents.
    let size = rustix::fs::fstat(pair).unwrap().st_size as u64;
    for (bytes, seals) in [(size, false), (0, true), (size - 1, true), (size, true)] {
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("hostile", flags).unwrap();
        rustix::fs::ftruncate(&file, bytes).unwrap();
        if seals {
            rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::SHRINK).unwrap();
        }
        assert_eq!(
            greet(&mut victim, TERMS, shift, &good, &[file.as_fd(), front]),
            refused
        );
        assert_eq!(
            greet(&mut victim, TERMS, shift, &good, &[pair, file.as_fd()]),
            refused
        );
    }
    let probe = Terms {
        probe: 8,
        probe_value: 5,
        ..TERMS
    };
    // The handshake succeeds, but the probe is not at the announced address.
    victim.joined += 1;
    let socket = stranger(&victim.server);
    let hello = Packet::Hello {
        terms: probe,
        shift,
        address: &good,
    };
    socket::send(&socket, &hello, &[pair, front]).unwrap();
    victim.server.pump();
    victim.check();
    let number = victim.server.handler.joined[1];
    assert!(!victim.server.local.can_copy(number));
    send_bytes(&socket, b"what is this");
    victim.server.pump();
    let reason = "its socket delivers an invalid packet";
    assert_eq!(
        victim.server.failures(),
        [(number, Failure::Broken(reason))]
    );
    victim.check();
}

/// Checks that a peer that begins a second session is given up as faulty. Its process has not
/// ended, so it may still copy this process's memory.
#[test]
fn a_peer_with_a_session_that_begins_another_one_breaks_the_protocol() {
    let mut server = Process::new();
    let files = files();
    let address = encode(server.local.host, 1, "twice");
    let hello = Packet::Hello {
        terms: TERMS,
        shift: files.memory.0.shift(),
        address: &address,
    };
    let sockets = [(); 2].map(|()| {
        let socket = stranger(&server);
        let both = [files.pair.as_fd(), files.front.as_fd()];
        socket::send(&socket, &hello, &both).unwrap();
        server.pump();
        socket
    });
    let number = server.handler.joined[0];
    let reason = "it begins a second session";
    assert_eq!(server.failures(), [(number, Failure::Broken(reason))]);
    drop(sockets);
}

#[test]
fn answers_that_are_wrong_are_failures() {
    let name = format!("test-impostor-{}", std::process::id());
    let mut a = Process::new();
    let address = encode(a.local.host, a.local.user, &name);
    let listener = socket::listen_as(&socket_name(&address)).unwrap();
    let number = a.local.connect(&address).unwrap();
    let files = files();
    let front = files.front.as_fd();
    let too_great = Terms {
        number: 64,
        ..TERMS
    };
    let network = |refusal: Refusal| Failure::Network(refusal.reason());
    let cases: [(Packet<'_>, &[BorrowedFd<'_>], Failure); 8] = [
        (Packet::Wake, &[], Failure::Broken("its reply is invalid")),
        (
            Packet::Goodbye,
            &[],
            Failure::Broken("its reply is invalid"),
        ),
        (
            Packet::Welcome(TERMS),
            &[],
            Failure::Broken("its reply lacks its front page"),
        ),
        (
            Packet::Welcome(too_great),
            &[front],
            Failure::Broken("its reply lacks its front page"),
        ),
        (
            Packet::Welcome(TERMS),
            &[files.pair.as_fd()],
            Failure::Broken("its memory is not a sealed file of the right size"),
        ),
        (Packet::Refused(Refusal::User), &[], network(Refusal::User)),
        (
            Packet::Refused(Refusal::Peers),
            &[],
            network(Refusal::Peers),
        ),
        // The attempt is refused again and again, in favour of an attempt that does not exist.
        (
            Packet::Refused(Refusal::Duplicate),
            &[],
            network(Refusal::Duplicate),
        ),
    ];
    for (packet, descriptors, failure) in cases {
        assert_eq!(a.send(number, b"h", b""), Err(Refused::Full));
        while let Ok(peer) = socket::accept(&listener) {
            socket::send(&peer, &packet, descriptors).unwrap();
            a.pump();
        }
        assert_eq!(a.failures(), [(number, failure)], "{packet:?}");
    }
    // A reply with another version.
    assert_eq!(a.send(number, b"h", b""), Err(Refused::Full));
    let peer = socket::accept(&listener).unwrap();
    let mut bytes = [0; MAX_PACKET];
    let length = Packet::Welcome(TERMS).encode(&mut bytes);
    bytes[4] ^= 0x80;
    send_bytes(&peer, &bytes[..length]);
    a.pump();
    assert_eq!(a.failures(), [(number, network(Refusal::Version))]);
}

/// Opens a session with a process that writes arbitrary data.
fn with_writer(write: impl FnOnce(&[Producer<RingView>; 2], &Pair)) -> (Process, Rank) {
    let mut server = Process::new();
    let files = files();
    let address = encode(server.local.host, 1, "writer");
    let hello = Packet::Hello {
        terms: TERMS,
        shift: files.memory.0.shift(),
        address: &address,
    };
    let socket = stranger(&server);
    let both = [files.pair.as_fd(), files.front.as_fd()];
    socket::send(&socket, &hello, &both).unwrap();
    server.pump();
    let pair = &files.memory.0;
    // SAFETY: `files` keeps the pair until the end of this function, after which the views are not
    // used.
    let rings = [COMMANDS, DATA].map(|channel| unsafe {
        Producer::new(pair.ring(true, channel), pair.extent(), Discipline::Thread)
    });
    write(&rings, pair);
    server.pump();
    (server, 0)
}

#[test]
fn records_that_make_no_sense_end_the_session() {
    let lengths = "a record has invalid lengths";
    let order = "a record does not follow from those before it";
    type Case = (usize, (u8, u32), usize, usize, &'static str);
    // Each record is given by its channel, its kind and length, and the bytes of its header and
    // payload.
    let cases: [Case; 12] = [
        (COMMANDS, (WHOLE, 49), 0, 48, lengths),
        (COMMANDS, (WHOLE, u32::MAX), 0, 0, lengths),
        (COMMANDS, (WHOLE, 10), 65, 10, lengths),
        (COMMANDS, (WHOLE, 10), 255, 10, lengths),
        (COMMANDS, (0x77, 0), 0, 0, lengths),
        (
            COMMANDS,
            (WHOLE, 769),
            0,
            769,
            "a copied fragment is too long",
        ),
        (COMMANDS, (BEGIN, 9), 0, 0, order),
        (COMMANDS, (CHUNK, 0), 0, 0, order),
        (DATA, (CHUNK, 0), 0, 0, order),
        (DATA, (BEGIN, 0), 0, 0, order),
        (DATA, (CHUNK, 1 << 20), 0, 0, lengths),
        (DATA, (0, 0), 0, 0, lengths),
    ];
    for (channel, what, header, bytes, reason) in cases {
        let (mut server, number) = with_writer(|rings, _| {
            let header = vec![0; header];
            assert!(record::write(&rings[channel], what, &header, bytes, |_| {}));
        });
        // The ring's own kind is a Skip rather than a record.
        let expected = match what.0 {
            0 => vec![],
            _ => vec![(number, Failure::Broken(reason))],
        };
        assert_eq!(server.failures(), expected, "{what:?}");
        assert_eq!(server.local.has_session(number), what.0 == 0);
    }
    // The fragment has more bytes than announced, or a second fragment begins before the end of the
    // first.
    for (kind, length) in [(CHUNK, 6), (BEGIN, 9), (WHOLE, 1)] {
        let (mut server, number) = with_writer(|rings, _| {
            assert!(record::write(&rings[DATA], (BEGIN, 10), b"h", 0, |_| {}));
            assert!(record::write(&rings[DATA], (CHUNK, 5), b"", 5, |_| {}));
            let bytes = if kind == BEGIN { 0 } else { length as usize };
            assert!(record::write(
                &rings[DATA],
                (kind, length),
                b"",
                bytes,
                |_| {}
            ));
        });
        assert_eq!(server.failures(), [(number, Failure::Broken(order))]);
        assert!(server.handler.begun.is_empty());
    }
    // The frame reaches beyond the ring.
    let (mut server, number) = with_writer(|rings, _| {
        let reserved = rings[DATA].reserve(1).unwrap();
        rings[DATA].commit(reserved, Frame::new(2000, WHOLE, 0));
    });
    let reason = "a ring contains an invalid record";
    assert_eq!(server.failures(), [(number, Failure::Broken(reason))]);
}

#[test]
fn bits_and_heads_that_are_wrong_harm_nobody() {
    let mut victim = Victim::new();
    // All bits of all words are set, including bits that belong to no peer.
    for word in victim.server.local.front.ready_set().words {
        word.store(u64::MAX, Ordering::Relaxed);
    }
    let set = victim.server.local.front.ready_set();
    set.summary.store(u64::MAX, Ordering::Relaxed);
    victim.check();
    // Set bits also keep producers from notifying, even without the summary.
    for _ in 0..2 {
        let server = &mut victim.server;
        assert!(server.local.try_sleep());
        for word in server.local.front.ready_set().words {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        send_to(&mut victim.client, server, 0, b"still", b"there");
        let begin = Instant::now();
        while server.next(victim.of_client).is_none() {
            server.pump();
            assert!(
                begin.elapsed() < Duration::from_secs(100),
                "the message is lost"
            );
        }
        victim.check();
    }
    // A head is the consumer's claim of how many slots it has freed.
    for head in [1, 1 << 10, u64::MAX, 1 << 63] {
        let (mut a, b, to_b, to_a) = connected();
        let session = a.local.peers.session(to_b).unwrap();
        session.set_head_for_test(head);
        for _ in 0..5000 {
            let _ = a.send(to_b, &[1; 64], &[2; 600]);
            a.local.outstanding(to_b);
        }
        a.pump();
        drop((a, b, to_a));
    }
}

proptest! {
    // `PROPTEST_CASES` sets a larger number.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(200)))]

    /// Checks that with any contents of the rings, the session may end, but nothing else happens.
    #[test]
    fn any_bytes_in_the_rings_are_survived(
        words in prop::collection::vec((0usize..512, 0usize..8, any::<u64>()), 1..50),
        frames in prop::collection::vec((0u8..5, 0u16..40, any::<u8>(), any::<u32>()), 1..30),
        channel in 0usize..2,
    ) {
        let (server, _) = with_writer(|rings, pair| {
            for (slot, word, value) in words {
                // SAFETY: the word lies within the ring and is aligned.
                unsafe {
                    let slot = pair.ring(true, channel).address(slot);
                    slot.add(word * 8).cast::<u64>().write_volatile(value);
                }
            }
            for (kind, slots, index, length) in frames {
                let ring = &rings[channel];
                let Some(reserved) = ring.reserve(u32::from(slots).clamp(1, 16)) else {
                    break;
                };
                let first = ring.slots().address(ring.slot(reserved));
                // SAFETY: the address is that of the record's second word.
                unsafe { first.add(8).cast::<u32>().write_volatile(length % (40 * SLOT as u32)) };
                ring.commit(reserved, Frame::new(slots, kind, index));
            }
        });
        prop_assert!(server.handler.failed.len() <= 1);
    }
}

#[test]
fn a_peer_that_closes_its_socket_and_goes_on_writing_is_heard_no_more() {
    let (mut a, mut b, to_b, to_a) = connected();
    let session = a.local.peers.session(to_b).unwrap();
    rustix::net::shutdown(&session.socket, rustix::net::Shutdown::Both).unwrap();
    a.send(to_b, b"h", b"1").unwrap();
    b.pump();
    assert_eq!(b.failures(), [(to_a, Failure::Network("has ended"))]);
    assert_eq!(b.next(to_a).unwrap().1, b"1");
    let _ = a.send(to_b, b"h", b"2");
    b.pump();
    assert_eq!(b.next(to_a), None);
    a.pump();
    assert_eq!(a.failures(), [(to_b, Failure::Network("has ended"))]);
}

/// This test runs in a separate process that has few descriptors.
#[test]
fn without_descriptors_peers_are_refused_by_name() {
    if std::env::var_os("CONDUIT_TEST_ALONE").is_none() {
        let name = "peers::tests::hostile::without_descriptors_peers_are_refused_by_name";
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--test-threads=1"])
            .env("CONDUIT_TEST_ALONE", "1")
            .status();
        assert!(status.unwrap().success());
        return;
    }
    let mut victim = Victim::new();
    let mut other = Process::new();
    let to_server = other.connect(&victim.server);
    let new = Process::new();
    let to_new = victim.client.connect(&new);
    // At this point, the attempt has all that it needs, and no descriptors are left.
    assert_eq!(other.send(to_server, b"h", b""), Err(Refused::Full));
    let mut taken = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    assert_eq!(victim.client.send(to_new, b"h", b""), Err(Refused::Full));
    victim.client.pump();
    let limit = rustix::io::Errno::MFILE.raw_os_error().cast_unsigned();
    assert_eq!(victim.client.failures(), [(to_new, Failure::Lost(limit))]);
    victim.server.pump();
    other.pump();
    let reason = Refusal::Descriptors.reason();
    assert_eq!(other.failures(), [(to_server, Failure::Network(reason))]);
    victim.check();
    // One descriptor is enough to accept a connection, but not for the descriptors that come with
    // it.
    taken.truncate(taken.len() - 4);
    assert_eq!(other.send(to_server, b"h", b""), Err(Refused::Full));
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    taken.truncate(taken.len() - 2);
    victim.server.pump();
    other.pump();
    assert_eq!(other.failures(), [(to_server, Failure::Network(reason))]);
    taken.clear();
    send_to(&mut other, &mut victim.server, to_server, b"h", b"");
    victim.server.pump();
    victim.joined += 1;
    victim.check();
}
