//! The conformance suite for shared memory and for the reference network.

use conduit_core::threads::{Mode, Par, Seq};
use conduit_shm::job::{ShmConfig, in_process};
use conduit_tests::conformance::Setup;
use conduit_tests::conformance::trials::add_with_chaos;
use conduit_tests::reference::Reference;
use libtest_mimic::Trial;

/// Adds the shared-memory network with settings that change how it works.
fn add_shm<M: Mode>(trials: &mut Vec<Trial>) {
    // Little address space per rank, because many tests with many ranks run at the same time.
    let small = ShmConfig {
        region_bytes: 64 << 20,
        queue_bytes: 64 << 20,
        ..ShmConfig::default()
    };
    let no_windows = ShmConfig {
        windows: false,
        ..small.clone()
    };
    let shared_rings = |config: &ShmConfig| ShmConfig {
        shared_ring_above: 0,
        ..config.clone()
    };
    // Exclusive rings that change hands every few messages.
    let lanes = |config: &ShmConfig| ShmConfig {
        lane_rings: 1,
        lane_force_switch: 3,
        ..shared_rings(config)
    };
    let no_inject = ShmConfig {
        inject_size: 0,
        ..small.clone()
    };
    let all = [
        ("shared_rings", shared_rings(&small)),
        ("no_windows_shared_rings", shared_rings(&no_windows)),
        ("lanes", lanes(&small)),
        ("no_windows_lanes", lanes(&no_windows)),
        ("windows", small),
        ("no_windows", no_windows),
        ("no_inject", no_inject),
    ];
    for (settings, config) in all {
        let name = format!("shm::{}::{settings}", M::NAME);
        let start = move |ranks| in_process::<M>(ranks, &config);
        let setup = Setup::new(name, start);
        // All cases run on each setting in `Seq`, a sample of them in the other modes.
        let plain = M::NAME == Seq::NAME;
        add_with_chaos(trials, if plain { setup } else { setup.sampled() });
    }
}

/// Adds all of these tests.
pub(crate) fn add_all(trials: &mut Vec<Trial>) {
    // The oracle.
    let start = |ranks| Ok::<_, String>(Reference::job(ranks));
    add_with_chaos(trials, Setup::new("reference".to_owned(), start));
    add_shm::<Seq>(trials);
    add_shm::<Par>(trials);
}
