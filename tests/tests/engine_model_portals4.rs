//! Random schedules against the reference model, over Portals 4 on a library with faults.
//!
//! `PROPTEST_CASES=1000 cargo test -p conduit-tests --release --test engine
//! engine_model_portals4::` is the long run.

use conduit_core::ni::Ni;
use conduit_core::settings::Settings;
use conduit_core::threads::{Mode, Par, Seq};
use conduit_portals::portals4::{Portals4, Portals4Config};
use conduit_tests::chaos::{self, Chaos};
use conduit_tests::model::given_up::check_given_up;
use conduit_tests::model::schedule::Schedule;
use conduit_tests::model::{Limits, check, check_drawn};
use conduit_tests::portals4::{config, faults, job};
use conduit_tests::small::without_windows;

/// The number of schedules per configuration, unless `PROPTEST_CASES` is set.
const CASES: u32 = 3;
/// The attempts to shrink a failing schedule.
const SHRINKS: u32 = 200;

fn ends<M: Mode>(ranks: u32, settings: &Settings, faults: &'static str) -> Vec<Portals4<M>> {
    let config = Portals4Config {
        max_managed: settings.chunk,
        inject_size: if settings.inject { settings.chunk } else { 0 },
        ..config()
    };
    job(ranks, faults, &config).expect("the network starts")
}

/// Runs over a library with each fault.
fn over_faults<N: Ni + 'static>(make: impl Fn(&Schedule, Vec<Portals4<Seq>>) -> Vec<N>) {
    for faults in faults() {
        for settings in without_windows() {
            check_drawn(CASES, SHRINKS, |schedule| {
                let ends = make(schedule, ends(schedule.ranks, &settings, faults));
                check::<_, Seq>(schedule, &settings, ends, Limits::TIME)
            });
        }
    }
}

#[test]
fn every_misbehaviour() {
    over_faults(|_, ends| ends);
}

#[test]
fn every_misbehaviour_under_chaos() {
    over_faults(|schedule, ends| Chaos::job(ends, chaos::Disorder::seeded(schedule.seed)));
}

#[test]
fn several_threads() {
    for settings in without_windows() {
        check_drawn(CASES, SHRINKS, |schedule| {
            let ends = ends::<Par>(schedule.ranks, &settings, "");
            check::<_, Par>(schedule, &settings, ends, Limits::TIME)
        });
    }
}

/// A call fails while its operations are in flight.
#[test]
fn what_is_given_up_is_left_alone() {
    let [settings, ..] = without_windows();
    let polls = Limits {
        polls: 3000,
        ..Limits::TIME
    };
    for faults in faults() {
        check_given_up(&settings, polls, |_| ends::<Seq>(3, &settings, faults));
    }
}
