//! Random schedules against the reference model, over libfabric on this host.
//!
//! `PROPTEST_CASES=1000 cargo test -p conduit-tests --release --test engine_model_ofi` is the long run.

use std::time::Duration;

use conduit_core::ni::Ni;
use conduit_core::settings::Settings;
use conduit_core::threads::Seq;
use conduit_ofi::Ofi;
use conduit_ofi::start::{OfiConfig, in_process};
use conduit_tests::chaos::{self, Chaos};
use conduit_tests::model::schedule::Schedule;
use conduit_tests::model::{Limits, check, check_drawn};
use conduit_tests::small::without_windows;
use conduit_tests::{ofi, udp};
use soft_portals::PortalsConfig;

/// Schedules for each configuration, unless `PROPTEST_CASES` says otherwise.
const CASES: u32 = 3;
/// Attempts at a smaller schedule that fails.
const SHRINKS: u32 = 200;

fn job(schedule: &Schedule, settings: &Settings, config: &OfiConfig) -> Vec<Ofi<Seq>> {
    let config = OfiConfig {
        portals: PortalsConfig {
            linger: Duration::ZERO,
            ..udp::with_inject(settings)
        },
        ..config.clone()
    };
    in_process(schedule.ranks, &config).expect("the network starts")
}

/// Every library and provider.
fn over_libraries<N: Ni + 'static>(make: impl Fn(&Schedule, Vec<Ofi<Seq>>) -> Vec<N>) {
    for library in ofi::libraries() {
        for (provider, domain) in ofi::ALSO_CALM {
            let config = ofi::config(&library.which, provider, domain);
            for settings in without_windows() {
                check_drawn(CASES, SHRINKS, |schedule| {
                    let ends = make(schedule, job(schedule, &settings, &config));
                    check(schedule, &settings, ends, Limits::TIME)
                });
            }
        }
    }
}

#[test]
fn endpoints() {
    over_libraries(|_, ends| ends);
}

#[test]
fn endpoints_under_chaos() {
    over_libraries(|schedule, ends| Chaos::job(ends, chaos::Disorder::seeded(schedule.seed)));
}
