//! Tests of wide windows. The peers that send most get them, nothing is lost or duplicated when
//! windows change hands, and no rank lends more of them than it has.

use std::collections::BTreeMap;

use ::lanes::Settings;
use conduit_core::ni::{Exchange, Inject, Submit};
use proptest::prelude::*;

use super::*;
use crate::transport::Transport;
use crate::transport::fragment::Failure;

/// Length of the longest message in bytes, followed by the size of a lane's window.
const LONGEST: usize = 1 << 10;
const WIDE: usize = 32 << 10;

/// A job whose ranks have the smallest windows.
pub(super) struct Job<T: Transport = FabricTransport> {
    fabric: Fabric,
    ends: Vec<SoftPortals<Seq, T>>,
    queues: Vec<EqId>,
    /// For each source and target, the number of messages sent, followed by the numbers of those
    /// that arrived.
    sent: BTreeMap<(u32, u32), u64>,
    came: BTreeMap<(u32, u32), Vec<u64>>,
}

impl Job {
    fn new(ranks: u32, lanes: Settings, disorder: Disorder) -> Self {
        Self::over(ranks, lanes, disorder, |_, transport| transport)
    }
}

impl<T: Transport> Job<T> {
    pub(super) fn over(
        ranks: u32,
        lanes: Settings,
        disorder: Disorder,
        make: impl Fn(u32, FabricTransport) -> T,
    ) -> Self {
        let fabric = Fabric::new(ranks);
        let config = PortalsConfig {
            max_managed: LONGEST,
            arrival_bytes: 0,
            lanes,
            linger: Duration::ZERO,
            ..PortalsConfig::default()
        };
        let ends: Vec<SoftPortals<Seq, T>> = (0..ranks)
            .map(|rank| {
                let transport = make(rank, fabric.transport(rank, disorder));
                SoftPortals::new(transport, rank, ranks, &config)
            })
            .collect();
        let queues = ends.iter().map(|end| {
            let eq = end.eq_create(64).unwrap();
            end.pt_open(PT, Some(eq)).unwrap();
            let managed = MeMemory::Managed {
                bytes: 1 << 40,
                min_free: 64,
            };
            end.me_append(PT, entry(managed)).unwrap();
            eq
        });
        Self {
            queues: queues.collect(),
            fabric,
            ends,
            sent: BTreeMap::new(),
            came: BTreeMap::new(),
        }
    }

    /// Sends a message. Returns whether there was room for it.
    fn send(&mut self, from: u32, to: u32, length: usize) -> bool {
        let sent = self.sent.entry((from, to)).or_default();
        let inject = Inject {
            target: to,
            index: PT,
            exchange: Exchange::OneWay,
            match_bits: 0,
            hdr_data: *sent,
            head: &vec![*sent as u8; length],
            body: &[],
        };
        let is_sent = self.ends[from as usize].inject(&inject) == Ok(Submit::Posted);
        *sent += u64::from(is_sent);
        is_sent
    }

    fn poll(&mut self, rank: u32, limit: u32) {
        let eq = self.queues[rank as usize];
        self.ends[rank as usize].poll(eq, limit, |event| {
            if let Event::Put(put) = event {
                assert_eq!(put.data, vec![put.hdr_data as u8; put.length]);
                let came = self.came.entry((put.source, rank)).or_default();
                came.push(put.hdr_data);
            }
        });
    }

    fn settle(&mut self) {
        for _ in 0..200 {
            for rank in 0..self.ends.len() as u32 {
                self.ends[rank as usize].progress();
                self.poll(rank, u32::MAX);
            }
        }
    }

    /// Returns whether `from` has a wide window at `to`, first according to `from`, then according
    /// to `to`.
    fn is_wide(&self, from: u32, to: u32) -> (bool, bool) {
        let portals = &mut self.ends[from as usize].inner().portals;
        let base = portals.window;
        let sends = portals.links.get(to).unwrap().send_size != base;
        let portals = &mut self.ends[to as usize].inner().portals;
        (sends, portals.links.get(from).unwrap().receive_size != base)
    }

    fn lanes_of(&self, to: u32) -> usize {
        let portals = &mut self.ends[to as usize].inner().portals;
        let base = portals.window;
        let links = portals.links.active();
        let up = links.filter(|link| link.is_up());
        up.filter(|link| link.receive_size != base).count()
    }

    /// Runs all steps. Checks that no rank lends more wide windows than it has, that messages
    /// between live ranks arrive once, and that the two ends agree on the lanes once there is no
    /// traffic.
    pub(super) fn run(&mut self, steps: impl IntoIterator<Item = Step>, slots: u16) {
        let ranks = self.ends.len() as u32;
        let mut failed = vec![false; self.ends.len()];
        for step in steps {
            match step {
                Step::Send(from, to, length, count) if from != to => {
                    let _ = (0..count).find(|_| !self.send(from, to, length));
                }
                Step::Progress(rank) => self.ends[rank as usize].progress(),
                Step::Poll(rank, limit) => self.poll(rank, limit),
                Step::Fail(rank) if !failed[rank as usize] => {
                    self.fabric.fail(rank, Failure::Silent(1));
                    failed[rank as usize] = true;
                }
                Step::Send(..) | Step::Fail(_) => {}
            }
            assert!((0..ranks).all(|rank| self.lanes_of(rank) <= usize::from(slots)));
        }
        self.settle();
        for (&(from, to), &sent) in &self.sent {
            assert_eq!(self.ends[to as usize].bad_peer(), None);
            if failed[from as usize] || failed[to as usize] {
                continue;
            }
            let mut came = self.came.get(&(from, to)).cloned().unwrap_or_default();
            came.sort_unstable();
            assert_eq!(came, (0..sent).collect::<Vec<_>>(), "from {from} to {to}");
            let (sends, receives) = self.is_wide(from, to);
            assert_eq!(sends, receives, "from {from} to {to}");
        }
    }

    fn statistics(&self, rank: u32) -> ::lanes::Statistics {
        self.ends[rank as usize].counters(|counters, _| counters.lanes)
    }
}

/// Returns settings with which lanes change hands as soon as they can, which is after each sample,
/// and to the peer with more traffic.
pub(super) fn restless(slots: u16) -> Settings {
    Settings {
        slots,
        size: WIDE as u32,
        interval: 1,
        samples: 1,
        threshold: 1,
        factor: 1,
        deviations: 0,
        hold: 0,
        ..Settings::default()
    }
}

#[test]
fn whoever_sends_most_has_the_room() {
    let mut job = Job::new(3, PortalsConfig::lanes(WIDE, 4 * WIDE), Disorder::default());
    let fill = |job: &mut Job, from| (0..).take_while(|_| job.send(from, 0, LONGEST)).count();
    // A window of the minimum size has room for two of the longest messages and a little more.
    assert_eq!(fill(&mut job, 1), 2);
    for (hot, cold) in [(1, 2), (2, 1)] {
        for _ in 0..4000 {
            job.send(hot, 0, LONGEST);
            for rank in 0..3 {
                job.ends[rank as usize].progress();
                job.poll(rank, u32::MAX);
            }
        }
        job.settle();
        assert_eq!(job.is_wide(hot, 0), (true, true));
        assert_eq!(job.is_wide(cold, 0), (false, false));
        assert_eq!(fill(&mut job, hot), WIDE / LONGEST);
        assert_eq!(fill(&mut job, cold), 2);
        job.settle();
    }
    assert_eq!(job.statistics(0).recalls, 1);
    assert_eq!(job.statistics(1).demotions, 1);
    for (pair, sent) in &job.sent {
        assert_eq!(job.came[pair], (0..*sent).collect::<Vec<_>>());
    }
}

/// Checks that a job has no lanes if its peers' shares of the memory exceed the minimum.
#[test]
fn small_jobs_have_no_lanes() {
    let (_, ends) = job::<Seq>(2);
    assert!(ends[0].inner().portals.wide.is_none());
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// Sends up to this many messages of this length, while there is room.
    Send(u32, u32, usize, u32),
    Progress(u32),
    Poll(u32, u32),
    Fail(u32),
}

pub(super) fn step(ranks: u32) -> impl Strategy<Value = Step> {
    let length = prop_oneof![Just(8), Just(LONGEST), 8..LONGEST];
    prop_oneof![
        40 => (0..ranks, 0..ranks, length, 1_u32..40)
            .prop_map(|(from, to, length, count)| Step::Send(from, to, length, count)),
        40 => (0..ranks).prop_map(Step::Progress),
        40 => (0..ranks, 1_u32..60).prop_map(|(rank, limit)| Step::Poll(rank, limit)),
        1 => (0..ranks).prop_map(Step::Fail),
    ]
}

proptest! {
    /// Checks that, even with disorder and failures, messages between live ranks arrive once, and
    /// in order if they use the same channel. No rank lends more lanes than it has, and the two
    /// ends agree on the lanes once there is no traffic.
    #[test]
    fn lanes_change_hands_under_traffic(
        steps in prop::collection::vec(step(4), 1..300),
        seed in any::<Option<u64>>(),
        slots in 1_u16..3,
    ) {
        let disorder = Disorder { seed, refuse: 5, packet: 300, link_fragments: 16, ..Disorder::default() };
        Job::new(4, restless(slots), disorder).run(steps, slots);
    }
}
