//! Tests of connections over the `tcp` provider of every available libfabric. They cover the
//! traffic on connections, the protection against intruders, and connections that are not
//! established.

use std::net::TcpListener;
use std::time::Instant;

use conduit_portals::transport::fragment::Payload;
use seal::Protection;

use crate::job::{OfiConfig, connected_in_process};
use crate::library::Which;
use crate::provider::{Hints, choose};
use crate::testing::libraries;

use super::*;

/// A time limit far above the duration of any test.
const HANG: Duration = Duration::from_secs(120);
/// The number of the connection between ranks 0 and 1.
const NUMBER: u32 = 0x0102_0304;

/// An upper layer that refuses fragments for which it has no room.
#[derive(Default)]
struct Above {
    came: [Vec<Vec<u8>>; CHANNELS],
    begun: Vec<Vec<u8>>,
    sent: Vec<u64>,
    failed: Vec<(Rank, String)>,
    /// Whether to refuse all fragments.
    is_full: bool,
}

/// Returns the bytes of a fragment that is read.
fn byte(token: u64, at: usize) -> u8 {
    (token as usize).wrapping_mul(31).wrapping_add(at / 7) as u8
}

impl FragmentHandler for Above {
    fn read(&mut self, _: Rank, token: u64, offset: usize, into: &mut [u8]) {
        for (at, into) in into.iter_mut().enumerate() {
            *into = byte(token, offset + at);
        }
    }
    fn sent(&mut self, _: Rank, token: u64) {
        self.sent.push(token);
    }
    fn fragment(&mut self, _: Rank, header: &[u8], payload: &[u8]) -> bool {
        if !self.is_full {
            self.came[usize::from(header[0])].push([header, payload].concat());
        }
        !self.is_full
    }
    fn begin(&mut self, _: Rank, header: &[u8], length: usize) -> Option<u64> {
        if self.is_full {
            return None;
        }
        let mut bytes = header.to_vec();
        bytes.resize(header.len() + length, 0);
        self.begun.push(bytes);
        Some(self.begun.len() as u64 - 1)
    }
    fn place(&mut self, id: u64, offset: usize, bytes: &[u8]) {
        let begun = &mut self.begun[id as usize];
        // Headers in these tests have two bytes.
        begun[2 + offset..][..bytes.len()].copy_from_slice(bytes);
    }
    fn end(&mut self, id: u64) {
        let bytes = std::mem::take(&mut self.begun[id as usize]);
        self.came[1].push(bytes);
    }
    fn failed(&mut self, peer: Rank, failure: Failure) {
        self.failed.push((peer, failure.to_string()));
    }
    fn room(&self) -> usize {
        1 << 20
    }
}

/// The ranks of this process, driven by one thread.
struct Job {
    ranks: Vec<Connected>,
    above: Vec<Above>,
}

fn config(which: &Which, protection: Option<Protection>) -> OfiConfig {
    let hints = Hints {
        provider: Some("tcp".to_owned()),
        domain: Some("lo".to_owned()),
        one_host: true,
        messages_only: false,
    };
    let mut config = OfiConfig {
        library: which.clone(),
        protection,
        connections: 2,
        ..OfiConfig::new(hints, "here".to_owned())
    };
    config.wire.dead_time = HANG;
    config
}

/// Runs a test with each available library, first with plain frames and then with sealed ones.
fn each(run: impl Fn(OfiConfig)) {
    for which in libraries() {
        for protection in [
            None,
            Some(Protection::Authenticate),
            Some(Protection::Encrypt),
        ] {
            println!("{which:?} {protection:?}");
            run(config(&which, protection));
        }
    }
}

impl Job {
    fn new(config: &OfiConfig) -> Self {
        let ranks = connected_in_process(3, config).expect("the network starts");
        let above = ranks.iter().map(|_| Above::default()).collect();
        Self { ranks, above }
    }

    fn turn(&mut self) {
        for (rank, above) in self.ranks.iter_mut().zip(&mut self.above) {
            rank.receive(above);
            for peer in 0..3 {
                for channel in 0..CHANNELS {
                    rank.receive_connected(peer, channel, above);
                }
            }
            rank.transmit(above);
        }
    }

    #[track_caller]
    fn until(&mut self, mut is_over: impl FnMut(&mut Self) -> bool) {
        let begin = Instant::now();
        while !is_over(self) {
            assert!(begin.elapsed() < HANG, "{:?}", self.ranks);
            self.turn();
        }
    }

    /// Returns whether rank 0 gets a connection when it requests one.
    #[track_caller]
    fn connect(&mut self) -> bool {
        self.ranks[0].connect(1, NUMBER);
        let mut made = None;
        self.until(|job| {
            made = job.ranks[0].made(1);
            made.is_some()
        });
        made == Some(true)
    }

    /// Creates a job in which ranks 0 and 1 are connected.
    #[track_caller]
    fn connected(config: &OfiConfig) -> Self {
        let mut job = Self::new(config);
        job.ranks[1].expect(0, NUMBER);
        assert!(job.connect(), "{:?}", job.ranks);
        job
    }

    /// Sends a fragment on the connection. The fragment is tiny if `length` is `None`.
    #[track_caller]
    fn send(&mut self, from: usize, number: u8, length: Option<u32>) {
        let header = [u8::from(length.is_some()), number];
        let bytes = [number; 100];
        let payload = match length {
            None => Payload::Copied(&[&bytes]),
            Some(length) => Payload::Read {
                token: number.into(),
                length,
            },
        };
        let fragment = Fragment {
            header: &header,
            payload,
        };
        self.until(|job| {
            let sent = job.ranks[from].send_connected(1 - from as Rank, &fragment);
            assert_ne!(sent, Err(Refused::TooLong));
            sent.is_ok()
        });
    }
}

const LENGTHS: [u32; 6] = [0, 1, 3000, 16 << 10, 100_000, 1_000_000];

/// Each fragment on a connection arrives once, whole and in order on its channel, even if the
/// receiver has no room for a while. The sender learns that the fragment was taken. All this is
/// also true of a second connection.
#[test]
fn what_goes_by_a_connection_comes() {
    each(|config| {
        let mut job = Job::connected(&config);
        for _ in 0..2 {
            for from in [0, 1] {
                let to = 1 - from;
                job.above[to].is_full = true;
                // This is more than the number of credits.
                for number in 0..8 {
                    job.send(from, number, Some(LENGTHS[usize::from(number) % 6]));
                }
                for number in 0..20 {
                    job.send(from, number, None);
                }
                for _ in 0..100 {
                    job.turn();
                }
                assert!(job.above[to].came.iter().all(Vec::is_empty));
                job.above[to].is_full = false;
                for number in 20..200 {
                    job.send(from, number, None);
                }
                job.ranks[from].leave(to as Rank);
                let mut taken = [0; CHANNELS];
                job.until(|job| {
                    let more = job.ranks[from].taken(to as Rank);
                    taken = [taken[0] + more[0], taken[1] + more[1]];
                    taken == [200, 8]
                });
                let outstanding = |job: &Job| job.ranks[from].outstanding(to as Rank);
                job.until(|job| outstanding(job) == 0);
                let above = std::mem::take(&mut job.above[to]);
                for (number, bytes) in (0..200).zip(&above.came[0]) {
                    assert_eq!(bytes[..], [&[0, number][..], &[number; 100]].concat()[..]);
                }
                for (number, bytes) in (0..8).zip(&above.came[1]) {
                    assert_eq!(bytes[..2], [1, number]);
                    assert_eq!(bytes.len(), 2 + LENGTHS[usize::from(number) % 6] as usize);
                    let expected = |at| byte(number.into(), at);
                    assert!((0..bytes.len() - 2).all(|at| bytes[2 + at] == expected(at)));
                }
                assert_eq!([above.came[0].len(), above.came[1].len()], [200, 8]);
                let sent = std::mem::take(&mut job.above[from].sent);
                assert_eq!(sent, (0..8).collect::<Vec<u64>>());
            }
            // The two ranks disconnect in order, and reconnect.
            for (rank, peer) in [(0, 1), (1, 0)] {
                job.ranks[rank].disconnect(peer);
                assert_eq!(job.ranks[rank].taken(peer), [0; CHANNELS]);
            }
            (0..100).for_each(|_| job.turn());
            job.ranks[1].expect(0, NUMBER);
            assert!(job.connect());
        }
        assert!(job.above.iter().all(|above| above.failed.is_empty()));
        assert_eq!(job.ranks[0].counters().made, 3);
        assert_eq!(job.ranks[1].counters().strangers, 0);
    });
}

/// The failure to connect is detected in bounded time, whatever its reason: nothing listens, the
/// peer expects no connection, the peer expects a connection with another number or another peer,
/// or the peer does not answer.
#[test]
fn a_connection_that_does_not_come_up_is_known() {
    each(|config| {
        let mut job = Job::new(&config);
        assert!(
            !job.connect(),
            "connected although the peer expects no connection"
        );
        job.ranks[0].disconnect(1);
        job.ranks[1].expect(0, NUMBER + (1 << 16));
        assert!(
            !job.connect(),
            "connected although the peer expects another connection"
        );
        job.ranks[0].disconnect(1);
        job.ranks[1].disconnect(0);
        job.ranks[1].expect(2, NUMBER);
        assert!(
            !job.connect(),
            "connected although the peer expects another rank"
        );
        job.ranks[0].disconnect(1);
        assert_eq!(job.ranks[1].counters().strangers, 3);

        // In this format, the port of an IPv4 address follows the family.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let port = listener.local_addr().expect("its address").port();
        let each = job.ranks[0].addresses.each;
        job.ranks[0].addresses.bytes[each + 2..each + 4].copy_from_slice(&port.to_be_bytes());
        job.ranks[0].wire.dead_time = 400_000_000;
        assert!(!job.connect(), "connected without an answer");
        job.ranks[0].disconnect(1);
        drop(listener);
        job.ranks[0].wire.dead_time = u64::MAX / 4;
        assert!(!job.connect(), "connected without a listener");
        job.ranks[0].disconnect(1);
        assert_eq!(job.ranks[0].counters().failed, 5);
        assert_eq!(job.ranks[0].counters().made, 0);
        assert!(job.above.iter().all(|above| above.failed.is_empty()));
    });
}

/// The last fragment of a peer arrives even if the peer's end no longer exists.
#[test]
fn what_came_before_the_end_counts() {
    each(|config| {
        let mut job = Job::connected(&config);
        job.until(|job| {
            job.ranks[1]
                .ends
                .iter()
                .flatten()
                .all(|end| end.stage == Stage::Up)
        });
        // Meanwhile, rank 1 does not poll.
        for number in 0..20 {
            let fragment = Fragment {
                header: &[0, number],
                payload: Payload::Copied(&[]),
            };
            assert_eq!(job.ranks[1].send_connected(0, &fragment), Ok(()));
        }
        for _ in 0..100 {
            job.ranks[1].receive(&mut job.above[1]);
        }
        job.ranks[1].disconnect(0);
        job.until(|job| {
            job.ranks[0]
                .ends
                .iter()
                .flatten()
                .all(|end| end.ep.is_none())
        });
        (0..10).for_each(|_| job.turn());
        assert_eq!(job.above[0].came[0].len(), 20);
        assert!(job.above[0].failed.is_empty());
    });
}

/// If an end disappears with operations in flight, the peer is reported as failed. If there are
/// none, the peer is reported only once a send uses the connection.
#[test]
fn a_connection_that_ends_early_is_noticed() {
    each(|config| {
        let mut job = Job::connected(&config);
        job.send(1, 0, None);
        job.until(|job| !job.above[0].came[0].is_empty());
        job.ranks[0].disconnect(1);
        // No reports were requested, so the receiver has not reported the fragments.
        job.until(|job| !job.above[1].failed.is_empty());
        let (peer, reason) = &job.above[1].failed[0];
        assert!(*peer == 0 && reason.contains("connection"), "{reason}");

        let mut job = Job::connected(&config);
        job.ranks[0].disconnect(1);
        let is_gone = |job: &Job| {
            let mut ends = job.ranks[1].ends.iter().flatten();
            ends.any(|end| end.stage == Stage::Gone)
        };
        job.until(|job| is_gone(job));
        assert!(job.above[1].failed.is_empty());
        let fragment = Fragment {
            header: &[0, 0],
            payload: Payload::Copied(&[]),
        };
        assert_eq!(
            job.ranks[1].send_connected(0, &fragment),
            Err(Refused::Dead)
        );
        job.until(|job| !job.above[1].failed.is_empty());
    });
}

/// The intruder is not a rank. It knows the address of the passive endpoint and all contents of a
/// CONNECT frame, but no key.
#[test]
fn an_intruder_is_not_taken_for_a_rank() {
    each(|config| {
        let mut job = Job::new(&config);
        job.ranks[1].expect(0, NUMBER);
        let library = config.library.load().expect("loaded before");
        let offer = choose(&library, &config.hints).map_err(|(reason, _)| reason);
        let offer = offer
            .expect("tcp")
            .connected()
            .expect("connected endpoints");
        let mut intruder = Endpoints::open(offer).expect("endpoints");
        let address = job.ranks[1].addresses.of(1).expect("rank 1").to_vec();
        let (mut right, length) = job.ranks[0].greeting(1, NUMBER, 0);
        let is_sealed = config.protection.is_some();
        let mut greetings: Vec<Vec<u8>> = vec![
            Vec::new(),
            vec![0; length],
            vec![0xff; MOST_DATA],
            // This is the amount of data that `tcp` accepts.
            vec![0; 256],
            right[..length - 1].to_vec(),
        ];
        // Each field is checked: the kind, the number, the rank and the job. In a sealed frame,
        // each byte is checked.
        let bytes = if is_sealed { length } else { LONG_HEADER };
        for at in 0..bytes {
            right[at] ^= 1;
            greetings.push(right[..length].to_vec());
            right[at] ^= 1;
        }
        if is_sealed {
            // This frame was made for another peer, so it was sealed with another key.
            let (other, length) = job.ranks[0].greeting(2, NUMBER, 0);
            greetings.push(other[..length].to_vec());
        }
        let count = greetings.len() as u64;
        for greeting in greetings {
            let before = job.ranks[1].counters().strangers;
            let ep = intruder.towards(&address).expect("an endpoint");
            let asked = intruder.connect(ep, &address, &greeting);
            assert!(asked.is_ok(), "{asked:?}");
            let mut is_refused = false;
            job.until(|job| {
                match intruder.event().expect("a queue") {
                    Some(Event::Ended(_)) => is_refused = true,
                    Some(_) => panic!("{greeting:?} was accepted"),
                    None => {}
                }
                is_refused && job.ranks[1].counters().strangers > before
            });
            intruder.close(ep);
        }
        assert_eq!(job.ranks[1].counters().strangers, count);
        // The expected rank can still connect.
        assert!(job.connect());
        assert!(job.above.iter().all(|above| above.failed.is_empty()));
    });
}

/// If a peer sends frames on a connection that no honest rank sends, the connection ends without a
/// panic.
#[test]
fn what_a_bad_rank_sends_ends_the_connection() {
    for (number, kind, bits) in [
        (1, FrameKind::Tiny, 0),
        (0, FrameKind::Connect, 0),
        (0, FrameKind::Ping, 0),
        (0, FrameKind::Bye, 0),
        (0, FrameKind::Taken, 1),
        (0, FrameKind::Taken, 1 << 48),
        (0, FrameKind::Chunk, 0),
    ] {
        libfabric_vendored::provide();
        let mut job = Job::connected(&config(&Which::Any, None));
        let mut bytes = [0; SMALL];
        job.until(|job| {
            job.ranks[1]
                .ends
                .iter()
                .flatten()
                .all(|end| end.stage == Stage::Up)
        });
        if let Some(end) = &mut job.ranks[1].ends[0] {
            end.next_out += number;
        }
        let sent = job.ranks[1].send_small(0, kind, 0, bits, &mut bytes, kind.header());
        assert_eq!(sent, Ok(()));
        let is_over = |job: &Job| match kind {
            // A chunk without a preceding fragment.
            FrameKind::Chunk => !job.above[0].failed.is_empty(),
            _ => job.ranks[0].counters().malformed == 1,
        };
        job.until(|job| is_over(job));
        job.until(|job| {
            let mut ends = job.ranks[0].ends.iter().flatten();
            kind == FrameKind::Chunk || ends.all(|end| end.stage == Stage::Gone && end.ep.is_none())
        });
    }
}

/// After `abandon`, the user's memory is not read any more, and the abandoned fragments count as
/// taken.
#[test]
fn what_is_abandoned_is_not_read() {
    each(|config| {
        let mut job = Job::connected(&config);
        job.above[1].is_full = true;
        for number in 0..8 {
            job.send(0, number, Some(1_000_000));
        }
        (0..100).for_each(|_| job.turn());
        let (rank, above) = (&mut job.ranks[0], &mut job.above[0]);
        let sent = above.sent.len() as u32;
        assert!(sent < 8, "all were sent despite the credits");
        rank.abandon(&[1], above);
        assert_eq!(rank.taken(1), [0, 8 - sent]);
        let fragment = Fragment {
            header: &[1, 9],
            payload: Payload::Read {
                token: 9,
                length: 1,
            },
        };
        assert_eq!(rank.send_connected(1, &fragment), Err(Refused::Full));
        job.above[1].is_full = false;
        (0..100).for_each(|_| job.turn());
        assert_eq!(job.above[0].sent.len() as u32, sent);
        // The command channel still works.
        job.send(0, 1, None);
        job.until(|job| !job.above[1].came[0].is_empty());
    });
}
