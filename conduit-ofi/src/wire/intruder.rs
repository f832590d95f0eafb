//! Tests with two kinds of attackers. The first kind is not a rank of the job. It uses libfabric
//! itself, knows the ranks' addresses and the frame format, and has seen the ranks' traffic. The
//! second kind is a malicious rank of the job.

use std::ptr;
use std::time::{Duration, Instant};

use conduit_portals::transport::Remote;
use libfabric_sys::{
    FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_EAGAIN, FI_EAVAIL, fi_context2, fi_cq_data_entry,
    fi_cq_err_entry, fi_cq_read, fi_cq_readerr, fi_inject, fi_msg_rma, fi_rma_iov, fi_writemsg,
    fid_ep,
};
use seal::{Protection, Seal};

use crate::job::{OfiConfig, wires};
use crate::library::Which;
use crate::provider::{Hints, choose};
use crate::testing::libraries;
use crate::wire::frame::{EARLY, Frame, FrameKind, HEADER};
use crate::wire::liveness::Liveness;

use super::*;

/// A time limit far above the duration of any test.
const HANG: Duration = Duration::from_secs(300);
const AGAIN: isize = -(FI_EAGAIN as isize);

/// Records what a rank receives.
#[derive(Default)]
struct Recorder {
    fragments: Vec<(Rank, Vec<u8>)>,
    failed: Vec<(Rank, String)>,
}

/// The limit on the number of bytes of frames that are kept because there is no room to deliver
/// them.
const ROOM: usize = 32 << 10;

impl FragmentHandler for Recorder {
    fn read(&mut self, _: Rank, _: u64, _: usize, _: &mut [u8]) {}
    fn sent(&mut self, _: Rank, _: u64) {}
    fn fragment(&mut self, peer: Rank, header: &[u8], payload: &[u8]) -> bool {
        self.fragments.push((peer, [header, payload].concat()));
        true
    }
    fn begin(&mut self, _: Rank, _: &[u8], _: usize) -> Option<u64> {
        None
    }
    fn place(&mut self, _: u64, _: usize, _: &[u8]) {}
    fn end(&mut self, _: u64) {}
    fn failed(&mut self, peer: Rank, failure: Failure) {
        self.failed.push((peer, failure.to_string()));
    }
    fn room(&self) -> usize {
        ROOM
    }
}

fn hints() -> Hints {
    Hints {
        provider: Some("tcp".to_owned()),
        domain: Some("lo".to_owned()),
        one_host: true,
        messages_only: false,
    }
}

/// A job within this process.
struct Job {
    wires: Vec<OfiEndpoint>,
    recorders: Vec<Recorder>,
}

impl Job {
    fn new(which: &Which, change: impl FnOnce(&mut OfiConfig)) -> Self {
        let mut config = OfiConfig {
            library: which.clone(),
            ..OfiConfig::new(hints(), "here".to_owned())
        };
        // After the first check, when no links exist yet, no rank pings another one, so the numbers
        // of all frames are known.
        config.wire.dead_time = Duration::from_secs(86_400);
        change(&mut config);
        let wires = wires(3, &config).expect("the network starts");
        let recorders = wires.iter().map(|_| Recorder::default()).collect();
        let mut job = Self { wires, recorders };
        job.turn();
        job
    }

    fn turn(&mut self) {
        for (wire, recorder) in self.wires.iter_mut().zip(&mut self.recorders) {
            wire.receive(recorder);
            wire.transmit(recorder);
        }
    }

    #[track_caller]
    fn until(&mut self, mut is_over: impl FnMut(&mut Self) -> bool) {
        let begin = Instant::now();
        while !is_over(self) {
            assert!(begin.elapsed() < HANG, "{:?}", self.wires);
            self.turn();
        }
    }

    /// Sends a fragment in the same way as the layer above, and waits until the fragment has
    /// arrived.
    #[track_caller]
    fn send(&mut self, from: usize, to: usize, text: &[u8]) {
        let fragment = Fragment {
            header: text,
            payload: Payload::Copied(&[]),
        };
        assert_eq!(self.wires[from].send(to as Rank, &fragment), Ok(()));
        let expected = (from as Rank, text.to_vec());
        self.until(|job| job.recorders[to].fragments.contains(&expected));
    }

    /// Sends bytes from an endpoint, and waits until the first rank has handled them.
    #[track_caller]
    fn inject(&mut self, from: impl Fn(&mut Self) -> (*mut fid_ep, fi_addr_t), bytes: &[u8]) {
        let before = self.wires[0].counters().received;
        self.until(|job| {
            let (ep, to) = from(job);
            // SAFETY: the endpoint is open, and the library copies the bytes during the call.
            match unsafe { fi_inject(ep, bytes.as_ptr().cast(), bytes.len(), to) } {
                0 => true,
                AGAIN => false,
                error => panic!("fi_inject: {error}"),
            }
        });
        self.until(|job| job.wires[0].counters().received > before);
    }

    /// Asserts that the first rank has given up the third rank for this reason and has kept none of
    /// the third rank's frames.
    #[track_caller]
    fn gave_up_the_bad_rank(&self, why: &str) {
        assert_eq!((self.wires[0].early, self.wires[0].held), (0, 0));
        let [(2, reason)] = &self.recorders[0].failed[..] else {
            panic!("{:?}", self.recorders[0].failed);
        };
        assert!(reason.contains(why), "{reason}");
    }

    fn frame(&self, kind: FrameKind, rank: Rank, number: u64) -> Vec<u8> {
        self.frame_of(0, kind, rank, number)
    }

    /// Returns a frame whose field `length` is `length`, without any of the fragment's bytes.
    fn frame_of(&self, length: u64, kind: FrameKind, rank: Rank, number: u64) -> Vec<u8> {
        let frame = Frame {
            kind,
            header: 8,
            number: number as u16,
            rank,
            job: self.wires[0].scope.job,
            length,
        };
        let mut bytes = vec![0; kind.header()];
        frame.write(&mut bytes);
        bytes.extend(*b"forged!!");
        bytes
    }
}

/// An attacker's endpoint, and the attacker's handle of the first rank.
struct Intruder {
    objects: Objects,
    to: fi_addr_t,
}

impl Intruder {
    fn new(which: &Which, job: &Job) -> Self {
        let library = which.load().expect("loaded before");
        let offer = choose(&library, &hints()).map_err(|(reason, _)| reason);
        let objects = Objects::open(offer.expect("tcp"), 1 << 14).expect("an endpoint");
        let address = job.wires[0].scope.address(0).expect("the first rank");
        let to = objects.insert(address).expect("an address");
        Self { objects, to }
    }

    #[track_caller]
    fn send(&self, job: &mut Job, bytes: &[u8]) {
        job.inject(
            |_| {
                self.progress();
                (self.objects.ep, self.to)
            },
            bytes,
        );
    }

    /// Returns `None` while the operation is in flight, and then whether it was successful.
    fn progress(&self) -> Option<bool> {
        let mut entry = fi_cq_data_entry::default();
        // SAFETY: the queue is open, and `entry` has its format and room for one entry.
        match unsafe { fi_cq_read(self.objects.cq, (&raw mut entry).cast(), 1) } {
            AGAIN => None,
            1 => Some(true),
            failed => {
                assert_eq!(failed, -(FI_EAVAIL as isize));
                let mut entry = fi_cq_err_entry::default();
                // SAFETY: the queue is open, and `entry` is valid for writes.
                unsafe { fi_cq_readerr(self.objects.cq, &mut entry, 0) };
                Some(false)
            }
        }
    }

    /// Writes to the first rank's memory. Returns whether the library reports success.
    fn write(&self, job: &mut Job, there: Remote) -> bool {
        let bytes = *b"written!";
        let mut context = fi_context2::default();
        let piece = libfabric_sys::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let target = fi_rma_iov {
            addr: there.address,
            len: bytes.len(),
            key: there.key,
        };
        let message = fi_msg_rma {
            msg_iov: &piece,
            desc: ptr::null_mut(),
            iov_count: 1,
            addr: self.to,
            rma_iov: &target,
            rma_iov_count: 1,
            context: (&raw mut context).cast(),
            data: 0,
        };
        job.until(|_| {
            self.progress();
            // SAFETY: the endpoint is open, and the bytes and the context outlive the operation,
            // for whose end the code below waits.
            let result = unsafe {
                fi_writemsg(
                    self.objects.ep,
                    &message,
                    FI_DELIVERY_COMPLETE | FI_COMPLETION,
                )
            };
            assert!(matches!(result, 0 | AGAIN), "fi_writemsg: {result}");
            result == 0
        });
        let mut ended = None;
        job.until(|_| {
            ended = self.progress();
            ended.is_some()
        });
        ended == Some(true)
    }
}

/// Creates a job in which some ranks have communicated and some have not.
fn acquainted(which: &Which, change: impl FnOnce(&mut OfiConfig)) -> Job {
    let mut job = Job::new(which, change);
    job.send(1, 0, b"true");
    assert!(job.wires.iter().all(|wire| wire.counters().frames < 2));
    job
}

#[test]
fn who_is_no_rank_is_not_heard() {
    for which in libraries() {
        let mut job = acquainted(&which, |_| ());
        let intruder = Intruder::new(&which, &job);
        let place = job.wires[0].describe(1);
        assert!(place.ends_with(" on lo)"), "{place}");
        // The frames name a rank that has sent a frame, one that has not, the receiver itself, and
        // no rank of the job.
        for rank in [1, 2, 0, 3] {
            for kind in [FrameKind::Tiny, FrameKind::Whole, FrameKind::Chunk] {
                for number in [0, 1, 2, u64::from(EARLY) + 1] {
                    let frame = job.frame(kind, rank, number);
                    intruder.send(&mut job, &frame);
                }
            }
        }
        let counters = job.wires[0].counters();
        assert_eq!((counters.wrong_source, counters.malformed), (36, 12));
        // The failure text for a silent peer reports the frames.
        let place = job.wires[0].describe(1);
        assert!(place.contains("; 36 frames were not from"), "{place}");
        // A frame with a wrong guess of the job's number is ignored, too.
        job.wires[0].scope.job ^= 1;
        let frame = job.frame(FrameKind::Tiny, 1, 1);
        job.wires[0].scope.job ^= 1;
        intruder.send(&mut job, &frame);
        job.send(1, 0, b"also");
        job.send(2, 0, b"more");
        let recorder = &job.recorders[0];
        let true_ones = [(1, &b"true"[..]), (1, b"also"), (2, b"more")];
        let true_ones = true_ones.map(|(rank, text)| (rank, text.to_vec()));
        assert_eq!(recorder.fragments, true_ones);
        assert_eq!(recorder.failed, []);
    }
}

/// The message comes from a known endpoint but names another rank.
#[test]
fn a_rank_is_not_heard_as_another() {
    for which in libraries() {
        let mut job = acquainted(&which, |_| ());
        job.send(2, 0, b"else");
        for rank in [0, 1] {
            let frame = job.frame(FrameKind::Tiny, rank, 1);
            job.inject(bad_rank, &frame);
        }
        assert_eq!(job.wires[0].counters().wrong_source, 2);
        assert_eq!(job.recorders[0].fragments.len(), 2);
        assert_eq!(job.recorders[0].failed, []);
    }
}

/// Returns the third rank's endpoint, and its handle of the first rank.
fn bad_rank(job: &mut Job) -> (*mut fid_ep, fi_addr_t) {
    let wire = &mut job.wires[2];
    let link = wire.open(0).expect("a link");
    let address = link.address;
    (wire.objects.ep, address)
}

#[test]
fn keys_of_memory_are_not_guessed() {
    for which in libraries() {
        let mut job = acquainted(&which, |_| ());
        let intruder = Intruder::new(&which, &job);
        let memory: &'static mut [u8] = vec![7; 64].leak();
        let (base, length) = (memory.as_mut_ptr(), memory.len());
        // SAFETY: the memory is never freed, and it is read only when no access is in flight.
        let remote = unsafe { job.wires[0].expose(base, length) };
        let remote = remote.expect("registered").expect("within reach");
        for key in (0..16).chain([remote.key ^ 1, remote.key ^ 1 << 63]) {
            for address in [0, base.addr() as u64] {
                let intruder = Intruder::new(&which, &job);
                assert!(!intruder.write(&mut job, Remote { key, address }));
            }
        }
        // SAFETY: the memory is never freed, and no access is in flight.
        let memory = || unsafe { std::slice::from_raw_parts(base, length) };
        assert_eq!(memory(), [7; 64]);
        // With the right key, the write succeeds.
        assert!(intruder.write(&mut job, remote));
        assert_eq!(memory()[..8], *b"written!");
    }
}

#[test]
fn nothing_without_the_right_tag_is_heard() {
    for which in libraries() {
        for protection in [Protection::Authenticate, Protection::Encrypt] {
            let mut job = acquainted(&which, |config| config.protection = Some(protection));
            let intruder = Intruder::new(&which, &job);
            let sealed = |job: &mut Job, from: usize, to: Rank, number: u64| {
                let mut frame = job.frame(FrameKind::Tiny, from as Rank, number);
                frame.extend([0; TAG]);
                let seal = job.wires[from].seal.as_mut().expect("sealed");
                seal.seal(to, number, &mut frame, HEADER);
                frame
            };
            // Forged frames without a tag, with a made-up tag, and with used numbers.
            for rank in [0, 1, 2] {
                for number in [0, 1, 2] {
                    let frame = job.frame(FrameKind::Tiny, rank, number);
                    intruder.send(&mut job, &frame);
                    intruder.send(&mut job, &[&frame[..], &[0; TAG]].concat());
                    intruder.send(&mut job, &frame[..HEADER]);
                }
            }
            // Recorded frames that were sent to another rank, were modified, or are repeated.
            let mut others = vec![sealed(&mut job, 1, 2, 1), sealed(&mut job, 2, 1, 0)];
            for at in 0..HEADER + 8 + TAG {
                let mut changed = sealed(&mut job, 1, 0, 1);
                changed[at] ^= 1;
                others.push(changed);
            }
            others.push(sealed(&mut job, 1, 0, 0));
            for frame in others {
                intruder.send(&mut job, &frame);
            }
            assert_eq!(job.recorders[0].fragments.len(), 1);
            let counters = job.wires[0].counters();
            assert!(counters.bad_tag > 50, "{counters:?}");
            assert!(counters.replayed > 3, "{counters:?}");
            job.send(1, 0, b"also");
            job.send(2, 0, b"more");
            assert_eq!(job.recorders[0].fragments.len(), 3);
            assert_eq!(job.recorders[0].failed, []);
            // A recorded frame that is replayed early is handled once, because it is authentic.
            let early = sealed(&mut job, 1, 0, 3);
            let repeated = job.wires[0].counters().replayed;
            intruder.send(&mut job, &early);
            // Invalid frames do not keep a silent sender alive.
            job.wires[0].links.get(1).expect("a link").liveness = Liveness::of_known();
            for _ in 0..4 {
                intruder.send(&mut job, &early);
            }
            let link = job.wires[0].links.get(1).expect("a link");
            assert!(link.liveness.is_quiet());
            assert_eq!(job.wires[0].counters().replayed, repeated + 4);
            job.send(1, 0, b"then");
            job.until(|job| job.recorders[0].fragments.len() == 5);
            assert_eq!(job.recorders[0].fragments[4].1, b"forged!!");
        }
    }
}

#[test]
fn where_frames_are_sealed_no_memory_is_within_reach() {
    for which in libraries() {
        let change = |config: &mut OfiConfig| config.protection = Some(Protection::default());
        let mut job = acquainted(&which, change);
        let wire = &mut job.wires[0];
        assert!(!wire.has_direct());
        let memory = vec![0; 64].leak();
        // SAFETY: the memory is never freed, and nothing else uses it.
        let exposed = unsafe { wire.expose(memory.as_mut_ptr(), memory.len()) };
        assert!(matches!(exposed, Ok(None)));
    }
}

/// Early frames of a rank take no more than the available room. If a rank sends more of them, it is
/// given up.
#[test]
fn early_frames_are_bounded() {
    for which in libraries() {
        let mut job = acquainted(&which, |config| {
            config.portals.arrival_bytes = 0;
            config.wire.receives = 2;
            config.wire.receive_bytes = 64 << 10;
        });
        let room = job.wires[0].early_room;
        assert!(room <= 256 << 10, "{room} bytes");
        let frame = job.frame(FrameKind::Tiny, 2, 1);
        for _ in 0..100 {
            job.inject(bad_rank, &frame);
        }
        assert_eq!(job.wires[0].counters().replayed, 99);
        assert!(job.wires[0].early < 100, "{} bytes", job.wires[0].early);
        for number in 2..u64::from(EARLY) {
            assert!(job.wires[0].early <= room);
            if !job.recorders[0].failed.is_empty() {
                break;
            }
            let frame = job.frame(FrameKind::Tiny, 2, number);
            job.inject(bad_rank, &frame);
        }
        job.gave_up_the_bad_rank("early frames");
        job.send(1, 0, b"also");
    }
}

/// If a rank's fragment cannot begin, its frames are held. They take no more room than the rank
/// announced, and no more than is available.
#[test]
fn held_frames_are_bounded() {
    let chunk = |job: &Job, number, bytes: usize| {
        let frame = job.frame(FrameKind::Chunk, 2, number);
        [frame, vec![0; bytes]].concat()
    };
    for which in libraries() {
        let mut job = acquainted(&which, |_| ());
        let first = job.frame_of(60, FrameKind::First, 2, 0);
        let frames = [first, chunk(&job, 1, 40), chunk(&job, 2, 20)];
        for frame in &frames {
            job.inject(bad_rank, frame);
        }
        assert_eq!(job.recorders[0].failed, []);
        assert!(job.wires[0].held >= frames.concat().len());
        let frame = chunk(&job, 3, 1);
        job.inject(bad_rank, &frame);
        job.gave_up_the_bad_rank("out of order");
        job.send(1, 0, b"also");

        let mut job = acquainted(&which, |_| ());
        let first = job.frame_of(1 << 30, FrameKind::First, 2, 0);
        job.inject(bad_rank, &first);
        // Each frame takes more memory than its own bytes.
        for number in 1..(ROOM / 80) as u64 {
            assert!(job.wires[0].held <= ROOM);
            if !job.recorders[0].failed.is_empty() {
                break;
            }
            let frame = chunk(&job, number, 40);
            job.inject(bad_rank, &frame);
        }
        job.gave_up_the_bad_rank("than can be delivered or kept");
        job.send(1, 0, b"also");
    }
}
