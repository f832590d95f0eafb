//! Tests over real sockets of this host.

use std::time::{Duration, Instant};

use conduit_core::ni::Rank;
use conduit_portals::transport::Transport;
use conduit_portals::transport::open::{ConnectError, OpenTransport};
use seal::Secret;
use settings::Percent;

use super::app::{App, COPIED, READ};
use crate::peers::{Family, OpenConfig, OpenError, OpenUdp};
use crate::protocol::{Failure, Refused};
use crate::socket::FaultConfig;

/// A process with the application that uses it.
struct Process {
    udp: OpenUdp,
    app: App,
}

fn config(key: &str) -> OpenConfig {
    OpenConfig {
        host: Some("127.0.0.1".to_owned()),
        ..OpenConfig::new(Some(Secret::from_key(key.as_bytes())))
    }
}

impl Process {
    fn start(number: u32, config: &OpenConfig) -> Self {
        Self {
            udp: OpenUdp::start(config).unwrap(),
            app: App::new(number),
        }
    }

    fn port(&self) -> String {
        let text = self.udp.address_to_text(self.udp.address()).unwrap();
        text.rsplit_once(':').unwrap().1.to_owned()
    }

    fn connect(&mut self, to: &Self) -> Rank {
        self.udp.connect(to.udp.address()).unwrap()
    }

    fn send(&mut self, peer: Rank, channel: u8, length: usize) -> Result<(), Refused> {
        let udp = &mut self.udp;
        self.app.send(peer, channel, length, |peer, fragment| {
            udp.send(peer, fragment)
        })
    }

    fn progress(&mut self) {
        self.udp.transmit(&mut self.app);
        self.udp.receive(&mut self.app);
        self.udp.transmit(&mut self.app);
    }
}

/// Makes progress on all processes until `done` returns true.
fn until(all: &mut [&mut Process], mut done: impl FnMut(&mut [&mut Process]) -> bool) {
    let begin = Instant::now();
    while !done(all) {
        for process in all.iter_mut() {
            process.progress();
        }
        // Without this check, a failing test would hang.
        assert!(begin.elapsed() < Duration::from_secs(100), "it hangs");
    }
}

/// Sends once there is a session.
fn send_one(all: &mut [&mut Process], from: usize, peer: Rank, channel: u8, length: usize) {
    until(all, |all| all[from].send(peer, channel, length).is_ok());
}

#[test]
fn fragments_of_all_sizes_arrive_both_ways() {
    for encrypt in [false, true] {
        let config = OpenConfig {
            encrypt,
            ..config("a")
        };
        let (mut a, mut b) = (Process::start(1, &config), Process::start(2, &config));
        let to_b = a.connect(&b);
        assert_eq!(a.udp.peer_address(to_b).as_deref(), Some(b.udp.address()));
        assert!(!a.udp.has_session(to_b));
        assert_eq!(a.send(to_b, COPIED, 10), Err(Refused::Full));
        assert!(a.udp.has_session(to_b));
        let mut both = [&mut a, &mut b];
        for (channel, length) in [(COPIED, 0), (COPIED, 700), (READ, 1000), (READ, 10 << 20)] {
            send_one(&mut both, 0, to_b, channel, length);
        }
        until(&mut both, |both| both[1].app.arrived_from(1) == 4);
        let [to_a] = both[1].app.joined[..] else {
            panic!("expected one joined peer")
        };
        assert_eq!(
            both[1].udp.peer_address(to_a).as_deref(),
            Some(both[0].udp.address())
        );
        for (channel, length) in [(COPIED, 600), (READ, 10 << 20)] {
            send_one(&mut both, 1, to_a, channel, length);
        }
        until(&mut both, |both| {
            both[0].app.arrived_from(2) == 2
                && both[0].udp.is_idle(to_b)
                && both[1].udp.is_idle(to_a)
        });
        assert!(both.iter().all(|one| one.app.failures.is_empty()));
        assert!(both[0].app.keeps_nothing() && both[1].app.keeps_nothing());
        assert_eq!(both[0].udp.handshake_counters().sessions, 1);
        assert_eq!(both[1].udp.handshake_counters().sessions, 1);
        assert!(both[0].udp.describe(to_b).contains("127.0.0.1"));
    }
}

#[test]
fn ipv6_serves_as_well() {
    let config = OpenConfig {
        host: Some("[::1]".to_owned()),
        ..config("a")
    };
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        return println!("skipped: this host has no ::1");
    }
    let (mut a, mut b) = (Process::start(1, &config), Process::start(2, &config));
    let to = a.connect(&b);
    let mut both = [&mut a, &mut b];
    send_one(&mut both, 0, to, READ, 100_000);
    until(&mut both, |both| both[1].app.arrived_from(1) == 1);
    let text = both[1].udp.address_to_text(both[0].udp.address());
    assert!(text.is_some_and(|text| text.starts_with("[::1]:")));
}

#[test]
fn both_may_begin_at_once() {
    let config = config("a");
    let (mut a, mut b) = (Process::start(1, &config), Process::start(2, &config));
    let (to_b, to_a) = (a.connect(&b), b.connect(&a));
    assert_eq!(a.send(to_b, COPIED, 1), Err(Refused::Full));
    assert_eq!(b.send(to_a, COPIED, 1), Err(Refused::Full));
    let mut both = [&mut a, &mut b];
    send_one(&mut both, 0, to_b, COPIED, 1);
    send_one(&mut both, 1, to_a, COPIED, 1);
    until(&mut both, |both| {
        both[0].app.arrived_from(2) == 1 && both[1].app.arrived_from(1) == 1
    });
    for one in both {
        assert!(one.app.failures.is_empty() && one.app.joined.is_empty());
        assert_eq!(one.udp.handshake_counters().sessions, 1);
    }
}

#[test]
fn a_process_that_starts_again_at_its_port_is_another_one() {
    let mut here = Process::start(1, &config("a"));
    let mut server = Process::start(2, &config("a"));
    let fixed = OpenConfig {
        host: Some(format!("127.0.0.1:{}", server.port())),
        ..config("a")
    };
    let to = here.connect(&server);
    for restarts in 0..3 {
        let process = server.app.process();
        let mut both = [&mut here, &mut server];
        send_one(&mut both, 0, to, READ, 100_000);
        until(&mut both, |both| both[1].app.arrived_from(1) == 1);
        // The server ends without notification, and another process takes its port.
        drop(server);
        server = Process::start(process + 1, &fixed);
        assert_eq!(here.app.failures.len(), restarts);
        // Packets for the old server reach the new one. The new one reports that the packets belong
        // to no session.
        let _ = here.send(to, COPIED, 5);
        let mut both = [&mut here, &mut server];
        until(&mut both, |both| both[0].app.failures.len() > restarts);
        let last = here.app.failures.last();
        assert_eq!(last, Some(&(to, Failure::Network("was restarted"))));
        assert_eq!(here.connect(&server), to);
    }
}

#[test]
fn a_client_that_starts_again_at_its_port_replaces_itself() {
    let mut server = Process::start(1, &config("a"));
    let mut client = Process::start(2, &config("a"));
    let fixed = OpenConfig {
        host: Some(format!("127.0.0.1:{}", client.port())),
        ..config("a")
    };
    let to = client.connect(&server);
    let mut both = [&mut client, &mut server];
    send_one(&mut both, 0, to, COPIED, 5);
    until(&mut both, |both| both[1].app.arrived_from(2) == 1);
    drop(client);
    let mut client = Process::start(3, &fixed);
    let to = client.connect(&server);
    let mut both = [&mut client, &mut server];
    send_one(&mut both, 0, to, COPIED, 5);
    until(&mut both, |both| both[1].app.arrived_from(3) == 1);
    // The same address keeps its number.
    let joined = &server.app.joined;
    assert_eq!(joined.len(), 1);
    let restarted = Failure::Network("was restarted");
    assert_eq!(server.app.failures, [(joined[0], restarted)]);
    // The answer goes to the new process.
    let back = joined[0];
    let mut both = [&mut client, &mut server];
    send_one(&mut both, 1, back, COPIED, 5);
    until(&mut both, |both| both[0].app.arrived_from(1) == 1);
}

#[test]
fn a_process_that_ends_without_a_word_is_found_dead() {
    let mut config = config("a");
    config.protocol.dead_time = 300_000_000;
    let (mut a, mut b) = (Process::start(1, &config), Process::start(2, &config));
    let to = a.connect(&b);
    let mut both = [&mut a, &mut b];
    send_one(&mut both, 0, to, COPIED, 5);
    until(&mut both, |both| both[1].app.arrived_from(1) == 1);
    drop(b);
    // Neither process sends anything, so the idle session is probed.
    until(&mut [&mut a], |all| !all[0].app.failures.is_empty());
    assert!(matches!(a.app.failures[..], [(peer, Failure::Silent(_))] if peer == to));
    assert!(!a.udp.has_session(to));
    // The port is closed, and the system reports that.
    assert_eq!(a.send(to, COPIED, 5), Err(Refused::Full));
    until(&mut [&mut a], |all| all[0].app.failures.len() == 2);
    assert_eq!(a.app.failures[1], (to, Failure::Unreachable));
}

#[test]
fn one_that_leaves_or_closes_says_so() {
    let config = config("a");
    let (mut a, mut b) = (Process::start(1, &config), Process::start(2, &config));
    let to = a.connect(&b);
    for closes in [true, false] {
        let mut both = [&mut a, &mut b];
        let before = both[0].app.arrived_from(2);
        let there = both[1].app.arrived_from(1);
        send_one(&mut both, 0, to, COPIED, 5);
        until(&mut both, |both| both[1].app.arrived_from(1) > there);
        let back = *b.app.joined.last().unwrap();
        let mut both = [&mut a, &mut b];
        send_one(&mut both, 1, back, COPIED, 5);
        until(&mut both, |both| both[0].app.arrived_from(2) > before);
        until(&mut both, |both| both[1].udp.is_idle(back));
        b.app.ended(back);
        match closes {
            true => b.udp.close(back),
            false => b.udp.leave(),
        }
        until(&mut [&mut a], |all| !all[0].app.failures.is_empty());
        assert_eq!(a.app.failures, [(to, Failure::Left)]);
        assert!(!a.udp.has_session(to));
        assert_eq!(b.udp.peer_address(back).is_none(), closes);
        a.app.failures.clear();
    }
}

#[test]
fn another_secret_makes_no_session_and_is_named() {
    let (mut a, mut b) = (
        Process::start(1, &config("a")),
        Process::start(2, &config("b")),
    );
    let memory = b.udp.memory();
    let to = a.connect(&b);
    assert_eq!(a.send(to, COPIED, 5), Err(Refused::Full));
    until(&mut [&mut a, &mut b], |all| !all[0].app.failures.is_empty());
    let [(_, Failure::Network(words))] = a.app.failures[..] else {
        panic!("{:?}", a.app.failures)
    };
    assert!(words.contains("secret"), "{words}");
    assert!(b.app.joined.is_empty());
    assert!(b.udp.handshake_counters().other_secret > 0);
    assert!(b.udp.memory() <= memory + 1024);
}

#[test]
fn one_that_encrypts_and_one_that_does_not_are_told() {
    let mut a = Process::start(1, &config("a"));
    let mut b = Process::start(
        2,
        &OpenConfig {
            encrypt: true,
            ..config("a")
        },
    );
    let to = a.connect(&b);
    assert_eq!(a.send(to, COPIED, 5), Err(Refused::Full));
    until(&mut [&mut a, &mut b], |all| !all[0].app.failures.is_empty());
    let [(_, Failure::Network(words))] = a.app.failures[..] else {
        panic!("{:?}", a.app.failures)
    };
    assert!(words.contains("encrypts"), "{words}");
    assert!(b.app.joined.is_empty());
}

#[test]
fn without_a_secret_everybody_may_come() {
    let open = || OpenConfig {
        secret: None,
        ..config("")
    };
    let (mut a, mut b) = (Process::start(1, &open()), Process::start(2, &open()));
    let mut stranger = Process::start(3, &config("a"));
    let (to, other) = (a.connect(&b), stranger.connect(&b));
    let mut all = [&mut a, &mut b, &mut stranger];
    let _ = all[2].send(other, COPIED, 5);
    send_one(&mut all, 0, to, COPIED, 5);
    until(&mut all, |all| {
        all[1].app.arrived_from(1) == 1 && !all[2].app.failures.is_empty()
    });
    assert_eq!(all[1].app.joined.len(), 1);
}

#[test]
fn lost_doubled_changed_and_late_datagrams_do_no_harm() {
    for seed in 1..=3 {
        let config = OpenConfig {
            faults: FaultConfig {
                seed,
                loss: Percent::of(15),
                duplicates: Percent::of(10),
                corruption: Percent::of(5),
                reorder: Percent::of(20),
                delay: 0,
            },
            ..config("a")
        };
        let (mut a, mut b) = (Process::start(1, &config), Process::start(2, &config));
        let (to_b, to_a) = (a.connect(&b), b.connect(&a));
        let _ = a.send(to_b, COPIED, 5);
        let _ = b.send(to_a, COPIED, 5);
        let mut both = [&mut a, &mut b];
        for length in [1, 500, 20_000, 300_000] {
            let channel = if length > 700 { READ } else { COPIED };
            send_one(&mut both, 0, to_b, channel, length);
            send_one(&mut both, 1, to_a, channel, length);
        }
        until(&mut both, |both| {
            both[0].app.arrived_from(2) == 4 && both[1].app.arrived_from(1) == 4
        });
        for one in &both {
            assert!(
                one.app.failures.is_empty(),
                "seed {seed}: {:?}, {:?}, sent {:?}, arrived {:?}",
                one.app.failures,
                one.udp.handshake_counters(),
                one.app.sent,
                one.app.arrived
            );
        }
    }
}

#[test]
fn the_memory_of_many_that_come_and_go_comes_back() {
    let mut server = Process::start(0, &config("a"));
    let mut most = 0;
    let empty = server.udp.memory();
    for round in 0..4 {
        let mut clients: Vec<Process> = (0..50)
            .map(|number| Process::start(1 + round * 50 + number, &config("a")))
            .collect();
        for client in &mut clients {
            let to = client.connect(&server);
            let mut both = [client, &mut server];
            send_one(&mut both, 0, to, READ, 3000);
            let process = both[0].app.process();
            until(&mut both, |both| both[1].app.arrived_from(process) == 1);
        }
        most = most.max(server.udp.memory());
        // Some clients say goodbye, and the others are given up.
        for client in clients.iter_mut().skip(round as usize % 2) {
            client.udp.leave();
        }
        drop(clients);
        for peer in std::mem::take(&mut server.app.joined) {
            server.app.ended(peer);
            server.udp.close(peer);
        }
        server.app.failures.clear();
        server.progress();
    }
    assert!(most > empty + 50 * 200, "{most} after {empty}");
    // The used cookies are remembered for a while.
    let after = server.udp.memory();
    assert!(after < empty + 200 * 40 + 4096, "{after} after {empty}");
    assert_eq!(server.udp.handshake_counters().sessions, 200);
}

#[test]
fn the_number_of_peers_is_bounded() {
    let mut server = Process::start(
        0,
        &OpenConfig {
            max_peers: 2,
            ..config("a")
        },
    );
    let mut clients = [1, 2, 3].map(|number| Process::start(number, &config("a")));
    let numbers = clients.each_mut().map(|client| client.connect(&server));
    for (client, to) in clients.iter_mut().zip(numbers).take(2) {
        let mut both = [client, &mut server];
        send_one(&mut both, 0, to, COPIED, 5);
        let process = both[0].app.process();
        until(&mut both, |both| both[1].app.arrived_from(process) == 1);
    }
    let third = server.udp.connect(clients[2].udp.address());
    let Err(error) = third else {
        panic!("a third peer was accepted")
    };
    assert!(error.to_string().contains("CONDUIT_NA_MAX_PEERS"));
    assert_eq!(clients[2].send(numbers[2], COPIED, 5), Err(Refused::Full));
    until(&mut [&mut clients[2], &mut server], |all| {
        all[1].udp.handshake_counters().full > 0
    });
    // Once a peer has gone, there is room for another.
    let gone = server.app.joined[0];
    server.app.ended(gone);
    server.udp.close(gone);
    let mut both = [&mut clients[2], &mut server];
    send_one(&mut both, 0, numbers[2], COPIED, 5);
    until(&mut both, |both| both[1].app.arrived_from(3) == 1);
    assert_eq!(server.app.joined, [0, 1, 0]);
}

#[test]
fn addresses_are_checked() {
    let mut here = Process::start(1, &config("a"));
    let own = here.udp.address().to_vec();
    assert_eq!(here.udp.connect(&own), Err(ConnectError::Own));
    let text = here.udp.address_to_text(&own).unwrap();
    assert_eq!(here.udp.address_of_text(&text), Ok(own));
    assert_eq!(here.udp.address_to_text(&[1, 2, 3]), None);
    let six = here.udp.address_of_text("[::1]:5").unwrap();
    for bytes in [&[][..], &[4, 1, 2], &six] {
        let connected = here.udp.connect(bytes);
        assert!(matches!(connected, Err(ConnectError::Malformed(_))));
    }
    assert_eq!(here.send(7, COPIED, 1), Err(Refused::NoSuchRank));
    assert_eq!(here.udp.peer_address(7), None);
}

#[test]
fn what_is_wrong_at_start_is_named() {
    let here = Process::start(1, &config("a"));
    let taken = OpenConfig {
        host: Some(format!("127.0.0.1:{}", here.port())),
        ..config("a")
    };
    let error = OpenUdp::start(&taken).unwrap_err();
    assert!(matches!(error, OpenError::Taken(_)));
    assert!(error.to_string().contains(&here.port()), "{error}");
    for host in ["no-such-interface0", "192.0.2.1", "127.0.0.1:x"] {
        let config = OpenConfig {
            host: Some(host.to_owned()),
            ..config("a")
        };
        let error = OpenUdp::start(&config).unwrap_err().to_string();
        assert!(error.contains(host), "{error}");
    }
    let none = OpenConfig {
        family: Family::V6,
        ..config("a")
    };
    assert!(OpenUdp::start(&none).is_err());
}

#[test]
fn a_wait_ends_when_something_arrives() {
    let config = config("a");
    let (mut a, mut b) = (Process::start(1, &config), Process::start(2, &config));
    let to = a.connect(&b);
    let mut both = [&mut a, &mut b];
    send_one(&mut both, 0, to, COPIED, 5);
    until(&mut both, |both| {
        both[1].app.arrived_from(1) == 1 && both[0].udp.is_idle(to)
    });
    a.send(to, COPIED, 5).unwrap();
    a.progress();
    while b.app.arrived_from(1) < 2 {
        b.udp.waiter().wait(None, b.udp.timeout());
        b.udp.receive(&mut b.app);
    }
    let mut descriptors = Vec::new();
    b.udp.descriptors(&mut descriptors);
    assert_eq!(descriptors.len(), 1);
}
