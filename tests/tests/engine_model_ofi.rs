//! Random schedules against the reference model, over libfabric on this host.
//!
//! `PROPTEST_CASES=1000 cargo test -p conduit-tests --release --test engine engine_model_ofi::` is
//! the long run.

use std::time::Duration;

use conduit_core::ni::Ni;
use conduit_core::settings::Settings;
use conduit_core::threads::Seq;
use conduit_ofi::job::Ofi;
use conduit_ofi::job::{OfiConfig, in_process};
use conduit_portals::transport::PortalsConfig;
use conduit_tests::chaos::{self, Chaos};
use conduit_tests::model::given_up::check_given_up;
use conduit_tests::model::schedule::Schedule;
use conduit_tests::model::{Limits, check, check_drawn};
use conduit_tests::small::without_windows;
use conduit_tests::{ofi, udp};

/// The number of schedules per configuration, unless `PROPTEST_CASES` is set.
const CASES: u32 = 3;
/// The attempts to shrink a failing schedule.
const SHRINKS: u32 = 200;

fn job(ranks: u32, settings: &Settings, config: &OfiConfig) -> Vec<Ofi<Seq>> {
    let config = OfiConfig {
        portals: PortalsConfig {
            linger: Duration::ZERO,
            ..udp::with_inject(settings)
        },
        ..config.clone()
    };
    in_process(ranks, &config).expect("the network starts")
}

/// Runs over every library and provider, and with frames that have tags.
fn over_libraries<N: Ni + 'static>(make: impl Fn(&Schedule, Vec<Ofi<Seq>>) -> Vec<N>) {
    for library in ofi::libraries() {
        for (provider, domain) in ofi::ALSO_CALM {
            for &(_, protection) in ofi::protections(provider) {
                let config = OfiConfig {
                    protection,
                    ..ofi::config(&library.which, provider, domain)
                };
                for settings in without_windows() {
                    check_drawn(CASES, SHRINKS, |schedule| {
                        let ends = make(schedule, job(schedule.ranks, &settings, &config));
                        check::<_, Seq>(schedule, &settings, ends, Limits::TIME)
                    });
                }
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

/// A call fails while its frames or direct accesses are in flight.
#[test]
fn what_is_given_up_is_left_alone() {
    let [settings, ..] = without_windows();
    let polls = Limits {
        polls: 3000,
        ..Limits::TIME
    };
    for library in ofi::libraries() {
        // `shm` crashes in the library if an endpoint of the same process closes while its direct
        // write is in flight.
        for (provider, domain) in [ofi::PROVIDERS[0], ofi::DATAGRAMS] {
            let config = ofi::config(&library.which, provider, domain);
            check_given_up(&settings, polls, |_| job(3, &settings, &config));
        }
    }
}
