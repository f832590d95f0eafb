//! Tests of open networks over libfabric, with several ends in one process.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use conduit_core::ni::Rank;
use conduit_portals::transport::Transport;
use conduit_portals::transport::fragment::{Failure, Fragment, FragmentHandler, Payload, Refused};
use conduit_portals::transport::open::{ConnectError, OpenTransport};
use seal::Secret;

use crate::library::Which;
use crate::testing::libraries;

use super::*;

/// A time limit far above the duration of any test.
const HANG: Duration = Duration::from_secs(120);

/// Records what an end receives, and provides the bytes of the fragments that it sends.
#[derive(Default)]
struct Recorder {
    fragments: Vec<(Rank, Vec<u8>)>,
    failed: Vec<(Rank, Failure)>,
    joined: Vec<Rank>,
    sent: Vec<u64>,
    sources: HashMap<u64, Vec<u8>>,
    arriving: HashMap<u64, (Rank, Vec<u8>)>,
    next: u64,
}

impl FragmentHandler for Recorder {
    fn read(&mut self, _: Rank, token: u64, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.sources[&token][offset..offset + into.len()]);
    }
    fn sent(&mut self, _: Rank, token: u64) {
        self.sources.remove(&token).expect("under way");
        self.sent.push(token);
    }
    fn fragment(&mut self, peer: Rank, _: &[u8], payload: &[u8]) -> bool {
        self.fragments.push((peer, payload.to_vec()));
        true
    }
    fn begin(&mut self, peer: Rank, _: &[u8], length: usize) -> Option<u64> {
        self.next += 1;
        self.arriving.insert(self.next, (peer, vec![0; length]));
        Some(self.next)
    }
    fn place(&mut self, id: u64, offset: usize, bytes: &[u8]) {
        let (_, fragment) = self.arriving.get_mut(&id).expect("begun");
        fragment[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    fn end(&mut self, id: u64) {
        let whole = self.arriving.remove(&id).expect("begun");
        self.fragments.push(whole);
    }
    fn failed(&mut self, peer: Rank, failure: Failure) {
        self.arriving.retain(|_, (other, _)| *other != peer);
        self.sources.clear();
        self.failed.push((peer, failure));
    }
    fn joined(&mut self, peer: Rank) {
        self.joined.push(peer);
    }
    fn room(&self) -> usize {
        1 << 20
    }
}

/// A process's end.
struct End {
    net: OpenOfi,
    saw: Recorder,
}

impl End {
    fn of(config: &OpenConfig) -> Self {
        Self {
            net: OpenOfi::start(config).expect("the network starts"),
            saw: Recorder::default(),
        }
    }

    fn turn(&mut self) {
        self.net.receive(&mut self.saw);
        self.net.transmit(&mut self.saw);
    }

    fn try_send(&mut self, peer: Rank, text: &[u8]) -> bool {
        let fragment = Fragment {
            header: b"header",
            payload: Payload::Copied(&[text]),
        };
        match self.net.send(peer, &fragment) {
            Ok(()) => true,
            Err(refused) => {
                let known = self.net.peer_address(peer).is_some();
                assert_eq!(
                    refused,
                    if known {
                        Refused::Full
                    } else {
                        Refused::NoSuchRank
                    }
                );
                false
            }
        }
    }

    fn to(&mut self, other: &Self) -> Rank {
        self.net.connect(other.net.address()).expect("an address")
    }

    fn texts(&self) -> Vec<&[u8]> {
        self.saw
            .fragments
            .iter()
            .map(|(_, text)| &text[..])
            .collect()
    }
}

/// Makes progress on all ends until the condition holds.
#[track_caller]
fn until<const N: usize>(
    mut ends: [&mut End; N],
    mut is_over: impl FnMut(&mut [&mut End; N]) -> bool,
) {
    let begin = Instant::now();
    while !is_over(&mut ends) {
        assert!(
            begin.elapsed() < HANG,
            "{:?}",
            ends.map(|end| end.net.known())
        );
        for end in &mut ends {
            end.turn();
        }
    }
}

#[track_caller]
fn deliver(from: &mut End, to: &mut End, peer: Rank, text: &[u8]) {
    let mut is_sent = false;
    until([from, to], |[from, to]| {
        is_sent = is_sent || from.try_send(peer, text);
        to.saw.fragments.iter().any(|(_, other)| other == text)
    });
}

fn secret(key: &str) -> Option<Secret> {
    Some(Secret::from_key(key.as_bytes()))
}

fn config(which: &Which, secret: Option<Secret>) -> OpenConfig {
    let mut config = OpenConfig::new(secret);
    config.library = which.clone();
    config.provider = Some("tcp".to_owned());
    config.host = Some("lo".to_owned());
    config.wire.dead_time = Duration::from_secs(60);
    config
}

fn bytes(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at * 7 + at / 251 + seed) as u8)
        .collect()
}

#[test]
fn fragments_of_all_sizes_go_both_ways() {
    for which in libraries() {
        for (secret, encrypt) in [
            (None, false),
            (None, true),
            (secret("key"), false),
            (secret("key"), true),
        ] {
            let mut config = config(&which, secret);
            config.encrypt = encrypt;
            let (mut a, mut b) = (End::of(&config), End::of(&config));
            let nobody = a.try_send(0, b"nobody");
            assert!(!nobody && !a.net.has_session(0));
            let peer = a.to(&b);
            deliver(&mut a, &mut b, peer, b"hello");
            assert_eq!(b.saw.joined, [0]);
            assert_eq!(b.net.peer_address(0).as_deref(), Some(a.net.address()));
            deliver(&mut b, &mut a, 0, b"answer");
            assert!(a.saw.joined.is_empty());
            // Long and short fragments, in both directions at once.
            let lengths = [1, 700, 16 << 10, 100_000, 10_000_000];
            for (token, length) in (0..).zip(lengths) {
                for (end, peer) in [(&mut a, peer), (&mut b, 0)] {
                    end.saw.sources.insert(token, bytes(length, length));
                    let fragment = Fragment {
                        header: b"header",
                        payload: Payload::Read {
                            token,
                            length: length as u32,
                        },
                    };
                    assert_eq!(end.net.send(peer, &fragment), Ok(()));
                }
            }
            until([&mut a, &mut b], |ends| {
                ends.iter().all(|end| end.saw.fragments.len() == 6)
            });
            for end in [&a, &b] {
                let texts = &end.texts()[1..];
                assert!(
                    texts
                        .iter()
                        .zip(lengths)
                        .all(|(text, length)| *text == bytes(length, length))
                );
                assert_eq!(end.saw.sent.len(), 5);
                assert_eq!(end.saw.failed, []);
            }
            assert_eq!(a.net.counters().sessions, 1);
            until([&mut a, &mut b], |[a, b]| {
                a.net.is_idle(peer) && b.net.is_idle(0)
            });
        }
    }
}

/// Runs over the other tested providers. All ends are in one process, so none is restarted, because
/// `shm` crashes if a peer's endpoint is closed.
#[test]
fn other_providers_carry_fragments() {
    for which in libraries() {
        for provider in ["shm", "udp;ofi_rxd"] {
            let mut config = config(&which, secret("key"));
            config.provider = Some(provider.to_owned());
            config.host = (provider != "shm").then(|| "lo".to_owned());
            let (mut a, mut b) = (End::of(&config), End::of(&config));
            let text = a.net.address_to_text(a.net.address()).expect("its own");
            assert_eq!(a.net.address_of_text(&text).as_deref(), Ok(a.net.address()));
            let peer = a.to(&b);
            deliver(&mut a, &mut b, peer, b"hello");
            deliver(&mut b, &mut a, 0, b"answer");
            a.saw.sources.insert(1, bytes(100_000, 0));
            let fragment = Fragment {
                header: b"header",
                payload: Payload::Read {
                    token: 1,
                    length: 100_000,
                },
            };
            assert_eq!(a.net.send(peer, &fragment), Ok(()));
            until([&mut a, &mut b], |[_, b]| b.saw.fragments.len() == 2);
            assert_eq!(b.saw.fragments[1].1, bytes(100_000, 0));
            a.net.close(peer);
            until([&mut a, &mut b], |[_, b]| {
                b.saw.failed == [(0, Failure::Left)]
            });
        }
    }
}

/// An attacker's endpoint. It does not belong to a process of the network, but the attacker knows
/// addresses and formats.
struct Intruder {
    objects: Objects,
    to: libfabric_sys::fi_addr_t,
}

impl Intruder {
    fn new(config: &OpenConfig, end: &End) -> Self {
        let library = config.library.load().expect("loaded before");
        let offer = config::choose(&library, config).expect("an offer");
        let objects = Objects::open(offer, 1 << 14).expect("an endpoint");
        let raw = end.net.addressing.raw(end.net.address());
        let to = objects.insert(&raw.expect("an address")).expect("inserted");
        Self { objects, to }
    }

    /// Sends bytes and waits until the end has examined them.
    #[track_caller]
    fn send(&self, end: &mut End, bytes: &[u8]) {
        let before = end.net.wire_counters().received;
        let mut is_sent = false;
        until([end], |[end]| {
            let mut entry = libfabric_sys::fi_cq_data_entry::default();
            // SAFETY: the queue is open, and `entry` has its format and room for one entry. The
            // endpoint is open, and the library copies the bytes.
            unsafe {
                libfabric_sys::fi_cq_read(self.objects.cq, (&raw mut entry).cast(), 1);
                is_sent = is_sent
                    || libfabric_sys::fi_inject(
                        self.objects.ep,
                        bytes.as_ptr().cast(),
                        bytes.len(),
                        self.to,
                    ) == 0;
            }
            end.net.wire_counters().received > before
        });
    }
}

#[test]
fn made_up_messages_do_nothing() {
    for which in libraries() {
        for secret in [None, secret("key")] {
            let config = config(&which, secret);
            let (mut a, mut b) = (End::of(&config), End::of(&config));
            let peer = a.to(&b);
            deliver(&mut a, &mut b, peer, b"hello");
            let intruder = Intruder::new(&config, &b);
            let mut count = 0;
            for kind in (0..10).chain(0xf0..=0xf5) {
                for number in 0..3u32 {
                    for length in [1, 2, 16, 24, 60] {
                        // Even if the length fits a frame and the number names a link, the bytes
                        // match no session.
                        let mut bytes = vec![1; length];
                        bytes[0] = kind;
                        if let Some(place) = bytes.get_mut(4..8) {
                            place.copy_from_slice(&number.to_le_bytes());
                        }
                        intruder.send(&mut b, &bytes);
                        count += 1;
                    }
                }
            }
            let wire = b.net.wire_counters();
            let refused = wire.malformed + wire.bad_tag + wire.replayed;
            assert_eq!(refused + b.net.counters().strangers, count);
            assert_eq!(b.net.known(), (1, 1));
            assert_eq!(b.texts(), [b"hello"]);
            deliver(&mut a, &mut b, peer, b"still here");
            assert!(a.saw.failed.is_empty() && b.saw.failed.is_empty());
        }
    }
}

/// A recorded HELLO is valid only at the address to which it was sent, so the repetitions go to
/// that address.
#[test]
fn hellos_that_are_repeated_leave_room_for_others() {
    for which in libraries() {
        let config = config(&which, secret("key"));
        let (mut a, mut b, mut c) = (End::of(&config), End::of(&config), End::of(&config));
        let to_b = b.net.address().to_vec();
        let hello = a.net.handshake.start(0, &to_b, 7, None).expect("a message");
        let intruder = Intruder::new(&config, &b);
        for _ in 0..200 {
            intruder.send(&mut b, &hello.bytes);
            assert_eq!(b.net.answers, 1);
        }
        let peer = c.to(&b);
        deliver(&mut c, &mut b, peer, b"hello");
    }
}

#[test]
fn two_that_begin_at_once_have_one_session() {
    for which in libraries() {
        let config = config(&which, secret("key"));
        let (mut a, mut b) = (End::of(&config), End::of(&config));
        let (to_b, to_a) = (a.to(&b), b.to(&a));
        let mut are_sent = [false; 2];
        until([&mut a, &mut b], |[a, b]| {
            are_sent[0] = are_sent[0] || a.try_send(to_b, b"from a");
            are_sent[1] = are_sent[1] || b.try_send(to_a, b"from b");
            a.texts() == [b"from b"] && b.texts() == [b"from a"]
        });
        assert_eq!(
            (a.net.counters().sessions, b.net.counters().sessions),
            (1, 1)
        );
        assert!(a.saw.joined.is_empty() && b.saw.joined.is_empty());
        assert!(a.saw.failed.is_empty() && b.saw.failed.is_empty());
    }
}

#[test]
fn a_peer_that_leaves_or_closes_is_known_to_have_left() {
    for which in libraries() {
        let config = config(&which, secret("key"));
        let (mut a, mut b) = (End::of(&config), End::of(&config));
        let peer = a.to(&b);
        deliver(&mut a, &mut b, peer, b"hello");
        b.net.close(0);
        assert!(!b.net.has_session(0) && b.net.peer_address(0).is_none());
        until([&mut a, &mut b], |[a, _]| {
            a.saw.failed == [(peer, Failure::Left)]
        });
        assert!(!a.net.has_session(peer));
        // The next fragment begins a new session.
        deliver(&mut a, &mut b, peer, b"again");
        assert_eq!(b.saw.joined, [0, 0]);
        // A session can end while the peer keeps its number. Afterwards, either side can begin
        // another session.
        b.net.end_session(0);
        assert!(!b.net.has_session(0) && b.net.peer_address(0).is_some());
        until([&mut a, &mut b], |[a, _]| a.saw.failed.len() == 2);
        deliver(&mut b, &mut a, 0, b"and again");
        assert_eq!(a.saw.fragments.last().map(|(from, _)| *from), Some(peer));
        assert_eq!((b.saw.joined.len(), b.saw.failed.len()), (2, 0));
        a.saw.failed.truncate(1);
        b.net.leave();
        drop(b);
        let failed = |end: &End| end.saw.failed.len();
        until([&mut a], |[a]| failed(a) == 2);
        assert_eq!(a.saw.failed[1], (peer, Failure::Left));
    }
}

#[test]
fn a_restarted_process_is_another_at_the_same_address() {
    for which in libraries() {
        let mut config = config(&which, secret("key"));
        // Peers with overdue answers are probed after an eighth of the dead time.
        config.wire.dead_time = Duration::from_secs(8);
        let mut b = End::of(&config);
        // First, a client that the server contacts.
        let mut a = End::of(&config);
        let text = b.net.address_to_text(b.net.address()).expect("its own");
        let port = text.rsplit_once(':').expect("a port").1;
        config.host = Some(format!("lo:{port}"));
        let peer = a.to(&b);
        deliver(&mut a, &mut b, peer, b"hello");
        let (address, old) = (b.net.address().to_vec(), b);
        drop(old);
        let mut b = End::of(&config);
        assert_eq!(b.net.address(), address);
        let back = b.to(&a);
        deliver(&mut b, &mut a, back, b"I am back");
        assert_eq!(a.saw.fragments.last().map(|(from, _)| *from), Some(peer));
        assert_eq!(a.saw.failed.len(), 1, "{:?}", a.saw.failed);
        deliver(&mut a, &mut b, peer, b"so you are");
        // Then a server that sends nothing on its own.
        drop(b);
        let mut b = End::of(&config);
        assert_eq!(b.net.address(), address);
        deliver_again(&mut a, &mut b, peer, b"and again");
        assert!(a.saw.failed.iter().all(|(failed, _)| *failed == peer));
        assert!(a.saw.failed.len() >= 2);
    }
}

/// Sends until the text has arrived.
#[track_caller]
fn deliver_again(from: &mut End, to: &mut End, peer: Rank, text: &[u8]) {
    until([from, to], |[from, to]| {
        from.try_send(peer, text);
        to.saw.fragments.iter().any(|(_, other)| other == text)
    });
}

#[test]
fn who_is_dead_is_found_silent_or_lost() {
    for which in libraries() {
        let mut config = config(&which, secret("key"));
        config.wire.dead_time = Duration::from_millis(400);
        let (mut a, mut b) = (End::of(&config), End::of(&config));
        let peer = a.to(&b);
        deliver(&mut a, &mut b, peer, b"hello");
        drop(b);
        // The peer's death is detected even though nothing is sent to the peer.
        until([&mut a], |[a]| !a.saw.failed.is_empty());
        assert!(!a.net.has_session(peer));
        // There is no process at the address any more.
        until([&mut a], |[a]| {
            a.try_send(peer, b"are you there?");
            a.saw.failed.len() == 2
        });
    }
}

#[test]
fn strangers_are_not_let_in() {
    for which in libraries() {
        let mut config_a = config(&which, secret("one"));
        config_a.wire.dead_time = Duration::from_millis(500);
        for other in [secret("another"), None] {
            let mut a = End::of(&config_a);
            let mut b = End::of(&config(&which, other));
            let peer = a.to(&b);
            until([&mut a, &mut b], |[a, _]| {
                a.try_send(peer, b"hello");
                !a.saw.failed.is_empty()
            });
            assert_eq!(a.saw.failed, [(peer, Failure::Unreachable)]);
            assert_eq!(b.net.known(), (0, 0));
            assert!(b.net.counters().strangers > 0);
            assert_eq!(b.saw.fragments, []);
        }
    }
}

#[test]
fn addresses_and_errors_say_what_is_meant() {
    for which in libraries() {
        let mut config = config(&which, secret("key"));
        config.max_peers = 2;
        let mut a = End::of(&config);
        let own = a.net.address().to_vec();
        assert_eq!(a.net.connect(&own), Err(ConnectError::Own));
        let text = a.net.address_to_text(&own).expect("its own");
        assert!(
            text.starts_with("tcp") && text.contains("/127.0.0.1:"),
            "{text}"
        );
        assert_eq!(a.net.address_of_text(&text), Ok(own.clone()));
        assert!(matches!(
            a.net.connect(b"nonsense"),
            Err(ConnectError::Malformed(_))
        ));
        let (provider, _) = text.split_once('/').expect("a slash");
        let some = |port: u16| format!("{provider}/127.0.0.1:{port}");
        let address = |end: &End, port| end.net.address_of_text(&some(port)).expect("an address");
        for port in [1, 2, 1] {
            let address = address(&a, port);
            assert_eq!(a.net.connect(&address), Ok(Rank::from(port) - 1));
        }
        let third = address(&a, 3);
        let error = a.net.connect(&third).expect_err("too many").to_string();
        assert!(error.contains("CONDUIT_NA_MAX_PEERS"), "{error}");
        a.net.close(0);
        assert_eq!(a.net.connect(&third), Ok(0));
        for (host, words) in [
            ("no-such-interface", "no-such-interface"),
            ("198.51.100.7", "no interface"),
            ("lo:x", "no port"),
        ] {
            config.host = Some(host.to_owned());
            let error = OpenOfi::start(&config)
                .expect_err("no such host")
                .to_string();
            assert!(error.contains(words), "{error}");
        }
        // The port is in use.
        config.host = Some(format!("lo:{}", text.rsplit_once(':').expect("a port").1));
        let error = OpenOfi::start(&config).expect_err("taken").to_string();
        assert!(error.contains("lo:"), "{error}");
        // If `host` is not given, an interface is chosen and its address is reported.
        config.host = None;
        config.provider = None;
        let any = OpenOfi::start(&config).expect("the network starts");
        let text = any.address_to_text(any.address()).expect("its own");
        assert!(
            text.starts_with("tcp") && !text.contains("/0.0.0.0"),
            "{text}"
        );
        config.provider = Some("none".to_owned());
        let error = OpenOfi::start(&config)
            .expect_err("no provider")
            .to_string();
        assert!(
            error.contains("none") && error.contains("CONDUIT_OFI_PROVIDER"),
            "{error}"
        );
    }
}

#[test]
fn a_hundred_peers_come_and_go() {
    for which in libraries() {
        let config = config(&which, secret("key"));
        let mut server = End::of(&config);
        let mut before = None;
        for round in 0..10 {
            let mut clients: Vec<_> = (0..10).map(|_| End::of(&config)).collect();
            for (at, client) in clients.iter_mut().enumerate() {
                let peer = client.to(&server);
                let text = format!("client {at} of round {round}");
                deliver(client, &mut server, peer, text.as_bytes());
                let &(from, _) = server.saw.fragments.last().expect("just now");
                deliver(&mut server, client, from, b"welcome");
            }
            assert_eq!(server.net.known(), (10, 10));
            for (at, client) in clients.iter_mut().enumerate() {
                // Some clients leave, and the server closes the others.
                if at % 2 == 0 {
                    client.net.leave();
                }
            }
            until([&mut server], |[server]| server.saw.failed.len() == 5);
            drop(clients);
            for peer in 0..10 {
                server.net.close(peer);
            }
            until([&mut server], |[server]| server.net.known() == (0, 0));
            assert_eq!(server.saw.joined.len(), 10);
            server.saw = Recorder::default();
            // Tables of a few entries keep their memory.
            const FEW: usize = 16 << 10;
            let memory = server.net.memory();
            assert!(
                memory <= *before.get_or_insert(memory) + FEW,
                "{memory} {before:?}"
            );
        }
        assert_eq!(server.net.counters().sessions, 100);
    }
}
