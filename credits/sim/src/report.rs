//! What came out.

use serde::Serialize;

use crate::{Config, Space};

/// What is counted while ranks work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) served: u64,
    pub(crate) replies: u64,
    /// System messages sent, and arrived.
    pub(crate) system: u64,
    pub(crate) events: u64,
    /// Credits lent on top, and given back.
    pub(crate) granted: u64,
    pub(crate) returned: u64,
    pub(crate) stalls: u64,
    pub(crate) stalled_ns: u64,
    /// The largest: credits' worth of requests that wait at a rank, loan.
    pub(crate) waiting: u64,
    pub(crate) loan: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Counts) {
        self.requests += other.requests;
        self.served += other.served;
        self.replies += other.replies;
        self.system += other.system;
        self.events += other.events;
        self.granted += other.granted;
        self.returned += other.returned;
        self.stalls += other.stalls;
        self.stalled_ns += other.stalled_ns;
        self.waiting = self.waiting.max(other.waiting);
        self.loan = self.loan.max(other.loan);
    }

    /// Messages sent, served or taken.
    pub(crate) fn all_events(&self) -> u64 {
        self.requests + self.served + self.replies + self.system + self.events
    }
}

/// One step of all ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Which set of partners, from 0.
    pub rotation: u32,
    /// Which step with it, from 0.
    pub step: u32,
    /// From its start until the last rank has all its replies.
    pub time_ns: u64,
    /// Requests sent.
    pub requests: u64,
    /// System messages sent.
    pub system: u64,
    /// Credits lent on top.
    pub granted: u64,
    /// Credits given back.
    pub returned: u64,
    /// Requests that had to wait for credits.
    pub stalls: u64,
    /// How long a rank waited for credits in this step, on average.
    pub stalled_ns: f64,
    /// Most credits' worth of requests that waited at one rank at a time.
    pub waiting: u64,
    /// Requests that a rank has served since the pattern changed: the most and the mean.
    pub served: (u32, f64),
}

impl Step {
    /// No credit moved and nobody was asked for any.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.system == 0 && self.granted == 0 && self.returned == 0
    }
}

/// The steps with the same partners.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rotation {
    /// Which, from 0.
    pub rotation: u32,
    /// Steps before the first one from which on all are at rest; none if the last one isn't.
    pub steps_until_rest: Option<u32>,
    /// Requests that the busiest rank served until then, in epochs of the flow control (of the default length if it has none).
    pub epochs_until_rest: Option<f64>,
    /// Mean time of the steps at rest, or of the last one if none is.
    pub time_ns: f64,
    /// Mean time of a step without flow control.
    pub reference_ns: Option<f64>,
    /// Speed at rest as a part of the speed without flow control.
    pub speed: Option<f64>,
    /// Speed of the first step.
    pub speed_first: Option<f64>,
    /// Speed of all steps.
    pub speed_all: Option<f64>,
    /// System messages for 1,000 requests before rest.
    pub system_adapting: f64,
    /// The same at rest.
    pub system_at_rest: Option<f64>,
    /// Credits lent on top, and given back.
    pub moved: u64,
    /// Requests that waited for credits, of 1,000, at rest or in the last step.
    pub stalls: f64,
}

/// All rotations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Speed at rest as a part of the speed without flow control, mean of all rotations.
    pub speed: Option<f64>,
    /// Of the worst one.
    pub speed_worst: Option<f64>,
    /// Most steps until rest; none if one rotation didn't come to rest.
    pub steps_until_rest: Option<u32>,
    /// Most epochs until rest.
    pub epochs_until_rest: Option<f64>,
    /// System messages for 1,000 requests before rest, the worst rotation.
    pub system_adapting: f64,
    /// The same at rest.
    pub system_at_rest: Option<f64>,
    /// Requests sent.
    pub requests: u64,
    /// System messages sent.
    pub system: u64,
    /// Credits lent on top.
    pub granted: u64,
    /// Credits given back.
    pub returned: u64,
    /// Requests that had to wait for credits.
    pub stalls: u64,
    /// The largest loan; none without flow control.
    pub largest_loan: Option<u64>,
    /// Most credits' worth of requests that waited at one rank at a time.
    pub waiting: u64,
}

/// Static credits that are as fast.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EqualStatic {
    /// The fewest credits per peer.
    pub credits: u16,
    /// With them, as a part of the speed without flow control.
    pub speed: f64,
    /// Their memory.
    pub space: Space,
}

/// What the simulation itself took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effort {
    /// Threads.
    pub threads: usize,
    /// Seconds, without the runs for comparison.
    pub seconds: f64,
    /// Messages sent, served or taken.
    pub events: u64,
    /// Per second.
    pub events_per_second: f64,
    /// Peers of which a rank keeps state in the simulation, the mean of all ranks, if the flow control tells.
    pub peers_kept: Option<f64>,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What was run.
    pub config: Config,
    /// Memory of a rank for buffers and events; none without flow control.
    pub space: Option<Space>,
    /// The whole.
    pub summary: Summary,
    /// By set of partners.
    pub rotations: Vec<Rotation>,
    /// Step by step.
    pub steps: Vec<Step>,
    /// Static credits that are as fast, if they were looked for and there are any.
    pub equal_static: Option<EqualStatic>,
    /// What it took; all else is the same every time.
    pub effort: Effort,
}

/// Mean; `None` of nothing.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

fn per_thousand(part: u64, of: u64) -> f64 {
    part as f64 * 1000.0 / of.max(1) as f64
}

impl Rotation {
    /// Sums up the steps of one rotation, at least one.
    pub(crate) fn new(steps: &[Step], reference_ns: Option<f64>, epoch: u32) -> Rotation {
        let moving = steps
            .iter()
            .rposition(|step| !step.is_at_rest())
            .map_or(0, |last| last + 1);
        let (adapting, resting) = steps.split_at(moving);
        let settled = if resting.is_empty() {
            &steps[steps.len() - 1..]
        } else {
            resting
        };
        let system = |steps: &[Step]| {
            let sum = |of: fn(&Step) -> u64| steps.iter().map(of).sum();
            per_thousand(sum(|step| step.system), sum(|step| step.requests))
        };
        let times = |steps: &[Step]| mean(steps.iter().map(|step| step.time_ns as f64));
        let speed = |steps: &[Step]| Some(reference_ns? / times(steps)?.max(1.0));
        let at_rest = !resting.is_empty();
        let stalls = settled.iter().map(|step| step.stalls).sum();
        Rotation {
            rotation: steps[0].rotation,
            steps_until_rest: at_rest.then_some(moving as u32),
            epochs_until_rest: at_rest.then(|| {
                let served = adapting.last().map_or(0, |step| step.served.0);
                f64::from(served) / f64::from(epoch)
            }),
            time_ns: times(settled).unwrap_or(0.0),
            reference_ns,
            speed: speed(settled),
            speed_first: speed(&steps[..1]),
            speed_all: speed(steps),
            system_adapting: system(adapting),
            system_at_rest: at_rest.then(|| system(resting)),
            moved: steps.iter().map(|step| step.granted + step.returned).sum(),
            stalls: per_thousand(stalls, settled.iter().map(|step| step.requests).sum()),
        }
    }
}

impl Summary {
    pub(crate) fn new(
        rotations: &[Rotation],
        steps: &[Step],
        largest_loan: Option<u64>,
    ) -> Summary {
        let sum = |of: fn(&Step) -> u64| steps.iter().map(of).sum();
        let worst = |values: &mut dyn Iterator<Item = Option<f64>>| {
            let values: Option<Vec<f64>> = values.collect();
            values.map(|values| values.into_iter().fold(0.0, f64::max))
        };
        let speeds = || rotations.iter().filter_map(|rotation| rotation.speed);
        let until_rest: Option<Vec<u32>> =
            rotations.iter().map(|one| one.steps_until_rest).collect();
        Summary {
            speed: mean(speeds()),
            speed_worst: speeds().reduce(f64::min),
            steps_until_rest: until_rest.and_then(|steps| steps.into_iter().max()),
            epochs_until_rest: worst(&mut rotations.iter().map(|one| one.epochs_until_rest)),
            system_adapting: rotations
                .iter()
                .map(|one| one.system_adapting)
                .fold(0.0, f64::max),
            system_at_rest: worst(&mut rotations.iter().map(|one| one.system_at_rest)),
            requests: sum(|step| step.requests),
            system: sum(|step| step.system),
            granted: sum(|step| step.granted),
            returned: sum(|step| step.returned),
            stalls: sum(|step| step.stalls),
            largest_loan,
            waiting: steps.iter().map(|step| step.waiting).max().unwrap_or(0),
        }
    }
}
