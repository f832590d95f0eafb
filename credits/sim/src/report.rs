//! The results of a run.

use serde::Serialize;

use crate::{Config, Space};

/// Counters of the ranks' work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) served: u64,
    pub(crate) replies: u64,
    /// The number of system messages sent.
    pub(crate) system: u64,
    /// The number of events taken.
    pub(crate) events: u64,
    /// The number of replies that lent extra credits.
    pub(crate) grants: u64,
    /// The number of extra credits lent.
    pub(crate) granted: u64,
    /// The number of credits given back.
    pub(crate) returned: u64,
    pub(crate) stalls: u64,
    pub(crate) stalled_ns: u64,
    /// The largest size, in credits, of the requests that waited at one rank.
    pub(crate) waiting: u64,
    /// The largest loan.
    pub(crate) loan: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Counts) {
        self.requests += other.requests;
        self.served += other.served;
        self.replies += other.replies;
        self.system += other.system;
        self.events += other.events;
        self.grants += other.grants;
        self.granted += other.granted;
        self.returned += other.returned;
        self.stalls += other.stalls;
        self.stalled_ns += other.stalled_ns;
        self.waiting = self.waiting.max(other.waiting);
        self.loan = self.loan.max(other.loan);
    }

    /// Returns the number of messages sent, served or taken.
    pub(crate) fn all_events(&self) -> u64 {
        self.requests + self.served + self.replies + self.system + self.events
    }
}

/// One step of all ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The number of the set of partners, from 0.
    pub rotation: u32,
    /// The number of the step with these partners, from 0.
    pub step: u32,
    /// The time from the step's start until the last rank had all its replies.
    pub time_ns: u64,
    /// The number of requests sent.
    pub requests: u64,
    /// The number of system messages sent.
    pub system: u64,
    /// The number of replies that lent extra credits.
    pub grants: u64,
    /// The number of extra credits lent.
    pub granted: u64,
    /// The number of credits given back.
    pub returned: u64,
    /// The number of requests that had to wait for credits.
    pub stalls: u64,
    /// The average time for which a rank waited for credits in this step.
    pub stalled_ns: f64,
    /// The largest size, in credits, of the requests that waited at one rank at a time.
    pub waiting: u64,
    /// The numbers of requests that ranks have served since the pattern changed: the maximum and
    /// the mean over the ranks.
    pub served: (u32, f64),
}

impl Step {
    /// Returns whether no credit moved and no peer was asked for any.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.system == 0 && self.granted == 0 && self.returned == 0
    }

    /// Returns whether the step is at rest, or fewer than one in 1,000 requests brought credits and
    /// fewer than one system message was sent per 1,000 requests.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.is_at_rest()
            || (self.system * 1000 < self.requests && self.grants * 1000 < self.requests)
    }
}

/// The steps with the same partners.
///
/// A rotation is at *rest* from a step on if no credit moves and no peer is asked for any in that
/// step and all later ones, and if either these are all steps or the busiest rank receives at least
/// an epoch's worth of requests in them. In a large job, some rank needs a few more credits for a
/// long time. Therefore there is a weaker state as well: a rotation is *calm* from a step on if, in
/// that step and each later one, fewer than one in 1,000 requests brings credits and fewer than one
/// system message is sent per 1,000 requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rotation {
    /// The number of the rotation, from 0.
    pub rotation: u32,
    /// The number of steps before the rotation is at rest, or `None` if it never is.
    pub steps_until_rest: Option<u32>,
    /// The number of epochs before the rotation is at rest: the number of requests that the busiest
    /// rank has served by then, divided by the epoch of the flow control (or by the default epoch
    /// if it has none).
    pub epochs_until_rest: Option<f64>,
    /// The number of steps before the rotation is calm, or `None` if it never is.
    pub steps_until_calm: Option<u32>,
    /// The number of epochs before the rotation is calm.
    pub epochs_until_calm: Option<f64>,
    /// The mean time of the steps at rest. If there are none, the calm steps are used, and if there
    /// are none either, the last step.
    pub time_ns: f64,
    /// The mean time of a step without flow control.
    pub reference_ns: Option<f64>,
    /// The speed in the steps used for `time_ns`, relative to the speed without flow control.
    pub speed: Option<f64>,
    /// The speed in the first step.
    pub speed_first: Option<f64>,
    /// The speed over all steps.
    pub speed_all: Option<f64>,
    /// The number of system messages per 1,000 requests before the rotation is calm.
    pub system_adapting: f64,
    /// The number of system messages per 1,000 requests in the worst step.
    pub system_worst: f64,
    /// The number of system messages per 1,000 requests when the rotation is calm.
    pub system_calm: Option<f64>,
    /// The number of extra credits lent.
    pub granted: u64,
    /// The number of credits given back.
    pub returned: u64,
    /// The number of requests per 1,000 that waited for credits, in the steps used for `time_ns`.
    pub stalls: f64,
}

/// The results of all rotations. Totals are sums over all steps; of other values, the worst
/// rotation counts unless a field says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The mean over the rotations of the speed at rest, relative to the speed without flow
    /// control.
    pub speed: Option<f64>,
    /// The speed in the worst rotation.
    pub speed_worst: Option<f64>,
    /// The speed in the first step of the worst rotation.
    pub speed_first: Option<f64>,
    /// The number of steps until rest, or `None` if a rotation did not come to rest.
    pub steps_until_rest: Option<u32>,
    /// The number of epochs until rest.
    pub epochs_until_rest: Option<f64>,
    /// The number of steps until calm, or `None` if a rotation did not become calm.
    pub steps_until_calm: Option<u32>,
    /// The number of epochs until calm.
    pub epochs_until_calm: Option<f64>,
    /// The number of system messages per 1,000 requests before calm.
    pub system_adapting: f64,
    /// The number of system messages per 1,000 requests in the worst step.
    pub system_worst: f64,
    /// The number of system messages per 1,000 requests when calm.
    pub system_calm: Option<f64>,
    /// The number of requests sent.
    pub requests: u64,
    /// The number of system messages sent.
    pub system: u64,
    /// The number of extra credits lent.
    pub granted: u64,
    /// The number of credits given back.
    pub returned: u64,
    /// The number of requests that had to wait for credits.
    pub stalls: u64,
    /// The largest loan, or `None` without flow control.
    pub largest_loan: Option<u64>,
    /// The largest size, in credits, of the requests that waited at one rank at a time.
    pub waiting: u64,
}

/// Static credits that are equally fast.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EqualStatic {
    /// The smallest number of credits per peer that is found to be fast enough.
    pub credits: u16,
    /// The speed with these credits, relative to the speed without flow control.
    pub speed: f64,
    /// The memory for these credits.
    pub space: Space,
}

/// The effort of the simulation itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effort {
    /// The number of threads.
    pub threads: usize,
    /// The duration in seconds, without the runs for comparison.
    pub seconds: f64,
    /// The number of messages sent, served or taken.
    pub events: u64,
    /// The number of events per second.
    pub events_per_second: f64,
    /// The mean number of peers whose state a rank keeps in the simulation, if the flow control
    /// reports that number.
    pub peers_kept: Option<f64>,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The configuration of the run.
    pub config: Config,
    /// A rank's memory for buffers and events, or `None` without flow control.
    pub space: Option<Space>,
    /// The results of all rotations.
    pub summary: Summary,
    /// The results by set of partners.
    pub rotations: Vec<Rotation>,
    /// The results by step.
    pub steps: Vec<Step>,
    /// The static credits that are equally fast, if they were searched for and found.
    pub equal_static: Option<EqualStatic>,
    /// The effort of the simulation. It varies, while everything else is the same in every run.
    pub effort: Effort,
}

/// Returns the mean of the values, or `None` if there are none.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

fn per_thousand(part: u64, of: u64) -> f64 {
    part as f64 * 1000.0 / of.max(1) as f64
}

fn sum(steps: &[Step], of: fn(&Step) -> u64) -> u64 {
    steps.iter().map(of).sum()
}

impl Rotation {
    /// Summarises the steps of one rotation. There must be at least one.
    pub(crate) fn new(steps: &[Step], reference_ns: Option<f64>, epoch: u32) -> Rotation {
        let last = &steps[steps.len() - 1];
        // Returns the index of the first step from which on all steps satisfy `good`.
        let from = |good: fn(&Step) -> bool| {
            let bad = steps.iter().rposition(|step| !good(step));
            bad.map_or(0, |bad| bad + 1)
        };
        let served = |until: usize| until.checked_sub(1).map_or(0, |step| steps[step].served.0);
        let epochs = |until: usize| f64::from(served(until)) / f64::from(epoch);
        let rest = Some(from(Step::is_at_rest)).filter(|&rest| {
            let after = last.served.0 - served(rest);
            rest < steps.len() && (after >= epoch || rest == 0)
        });
        let calm = Some(from(Step::is_calm)).filter(|&calm| calm < steps.len());
        let settled = &steps[rest.or(calm).unwrap_or(steps.len() - 1)..];
        let adapting = &steps[..calm.unwrap_or(steps.len())];
        let system = |steps: &[Step]| {
            per_thousand(
                sum(steps, |step| step.system),
                sum(steps, |step| step.requests),
            )
        };
        let times = |steps: &[Step]| mean(steps.iter().map(|step| step.time_ns as f64));
        let speed = |steps: &[Step]| Some(reference_ns? / times(steps)?.max(1.0));
        Rotation {
            rotation: last.rotation,
            steps_until_rest: rest.map(|rest| rest as u32),
            epochs_until_rest: rest.map(epochs),
            steps_until_calm: calm.map(|calm| calm as u32),
            epochs_until_calm: calm.map(epochs),
            time_ns: times(settled).unwrap_or(0.0),
            reference_ns,
            speed: speed(settled),
            speed_first: speed(&steps[..1]),
            speed_all: speed(steps),
            system_adapting: system(adapting),
            system_worst: steps
                .iter()
                .map(|step| per_thousand(step.system, step.requests))
                .fold(0.0, f64::max),
            system_calm: calm.map(|calm| system(&steps[calm..])),
            granted: sum(steps, |step| step.granted),
            returned: sum(steps, |step| step.returned),
            stalls: per_thousand(
                sum(settled, |step| step.stalls),
                sum(settled, |step| step.requests),
            ),
        }
    }
}

/// Returns the largest value, or `None` if a value is missing or there are none.
fn worst<T: PartialOrd>(values: impl Iterator<Item = Option<T>>) -> Option<T> {
    let values: Option<Vec<T>> = values.collect();
    values?
        .into_iter()
        .reduce(|worst, value| if value > worst { value } else { worst })
}

impl Summary {
    pub(crate) fn new(
        rotations: &[Rotation],
        steps: &[Step],
        largest_loan: Option<u64>,
    ) -> Summary {
        let each = || rotations.iter();
        let slowest = |of: fn(&Rotation) -> Option<f64>| each().filter_map(of).reduce(f64::min);
        Summary {
            speed: mean(each().filter_map(|one| one.speed)),
            speed_worst: slowest(|one| one.speed),
            speed_first: slowest(|one| one.speed_first),
            steps_until_rest: worst(each().map(|one| one.steps_until_rest)),
            epochs_until_rest: worst(each().map(|one| one.epochs_until_rest)),
            steps_until_calm: worst(each().map(|one| one.steps_until_calm)),
            epochs_until_calm: worst(each().map(|one| one.epochs_until_calm)),
            system_adapting: each().map(|one| one.system_adapting).fold(0.0, f64::max),
            system_worst: each().map(|one| one.system_worst).fold(0.0, f64::max),
            system_calm: worst(each().map(|one| one.system_calm)),
            requests: sum(steps, |step| step.requests),
            system: sum(steps, |step| step.system),
            granted: sum(steps, |step| step.granted),
            returned: sum(steps, |step| step.returned),
            stalls: sum(steps, |step| step.stalls),
            largest_loan,
            waiting: steps.iter().map(|step| step.waiting).max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a step of 1,000 requests, 100 of which the busiest rank served.
    fn step(step: u32, granted: u64, system: u64) -> Step {
        Step {
            rotation: 0,
            step,
            time_ns: 1000 + granted,
            requests: 1000,
            system,
            grants: granted,
            granted,
            returned: 0,
            stalls: granted,
            stalled_ns: 0.0,
            waiting: 0,
            served: (100 * (step + 1), 0.0),
        }
    }

    fn rotation(moves: &[(u64, u64)]) -> Rotation {
        let steps: Vec<Step> = (0..)
            .zip(moves)
            .map(|(number, &(granted, system))| step(number, granted, system))
            .collect();
        Rotation::new(&steps, Some(1000.0), 200)
    }

    #[test]
    fn rest_is_when_nothing_moves_any_more() {
        let moves = [(1000, 20), (0, 0), (500, 10), (0, 0), (0, 0)];
        let rotation = rotation(&moves);
        assert_eq!(rotation.steps_until_rest, Some(3));
        assert_eq!(rotation.epochs_until_rest, Some(1.5));
        assert_eq!(
            (rotation.speed, rotation.speed_first),
            (Some(1.0), Some(0.5))
        );
        assert_eq!(
            (rotation.system_adapting, rotation.system_worst),
            (10.0, 20.0)
        );
        assert_eq!(rotation.system_calm, Some(0.0));
    }

    #[test]
    fn a_pause_shorter_than_an_epoch_is_no_rest() {
        let rotation = rotation(&[(1000, 0), (0, 0)]);
        assert_eq!(rotation.steps_until_rest, None);
        assert_eq!(rotation.steps_until_calm, Some(1));
    }

    #[test]
    fn a_few_late_credits_leave_it_calm() {
        let some = rotation(&[(1000, 0), (900, 0), (0, 0), (1, 0), (0, 0)]);
        assert_eq!(
            (some.steps_until_rest, some.steps_until_calm),
            (None, Some(4))
        );
        let mut steps: Vec<Step> = (0..5).map(|number| step(number, 0, 0)).collect();
        (steps[3].grants, steps[3].granted) = (1, 64);
        steps[3].requests = 1001;
        let few = Rotation::new(&steps, None, 200);
        assert_eq!(
            (few.steps_until_rest, few.steps_until_calm),
            (None, Some(0))
        );
        assert_eq!((few.speed, few.epochs_until_calm), (None, Some(0.0)));
    }

    #[test]
    fn what_never_moves_is_at_rest_from_the_start() {
        let rotation = rotation(&[(0, 0)]);
        assert_eq!(
            (rotation.steps_until_rest, rotation.steps_until_calm),
            (Some(0), Some(0))
        );
    }

    #[test]
    fn what_always_moves_never_rests() {
        let rotation = rotation(&[(1000, 20), (1000, 40)]);
        assert_eq!(
            (rotation.steps_until_rest, rotation.steps_until_calm),
            (None, None)
        );
        assert_eq!(
            (rotation.system_adapting, rotation.system_calm),
            (30.0, None)
        );
        assert_eq!(rotation.speed, Some(0.5));
    }
}
