//! The conformance suite for jobs over several hosts: shared memory on each host, and the reference
//! network between them.

use conduit_core::ni::{Capabilities, Ni};
use conduit_core::threads::{Mode, Par, Seq};
use conduit_shm::job::{ShmConfig, in_process};
use conduit_tests::composite::{self, Hosts};
use conduit_tests::conformance::Setup;
use conduit_tests::conformance::trials::add_with_chaos;
use libtest_mimic::{Failed, Trial};

/// Adds these distributions over hosts, with and without windows onto ranks of the same host.
fn add<M: Mode>(trials: &mut Vec<Trial>, hosts: &[Hosts]) {
    // Little address space per rank, because many tests with many ranks run at the same time.
    let small = ShmConfig {
        region_bytes: 64 << 20,
        queue_bytes: 64 << 20,
        ..ShmConfig::default()
    };
    let messages = ShmConfig {
        windows: false,
        ..small.clone()
    };
    for &hosts in hosts {
        for (settings, config) in [("windows", &small), ("no_windows", &messages)] {
            let name = format!("composite::{}::{}::{settings}", M::NAME, hosts.name());
            let config = config.clone();
            let on_each =
                move |ranks| in_process::<M>(ranks, &config).map_err(|error| error.to_string());
            let start = move |ranks| composite::job::<_, M>(ranks, hosts, &on_each);
            let setup = Setup::new(name, start);
            // All cases run on each setting in `Seq`, a sample of them in the other modes.
            let plain = M::NAME == Seq::NAME;
            add_with_chaos(trials, if plain { setup } else { setup.sampled() });
        }
    }
}

/// A device's atomics on a rank's memory are atomic with the rank's own only if the device also
/// does those.
fn a_device_that_does_atomics_does_a_ranks_own_too() -> Result<(), Failed> {
    let native = Capabilities::REMOTE_COMPLETION | Capabilities::NATIVE_ATOMICS;
    let config = ShmConfig {
        region_bytes: 1 << 20,
        ..ShmConfig::default()
    };
    let intra = |ranks| in_process::<Seq>(ranks, &config).map_err(|error| error.to_string());
    for end in composite::job_over::<_, Seq>(2, Hosts::Alone, native, intra)? {
        let own = end.reach(end.rank()).capabilities;
        if !own.contains(native | Capabilities::WINDOW) {
            return Err(format!("reaches itself by {own:?}").into());
        }
    }
    match composite::job_over::<_, Seq>(2, Hosts::Pairs, native, intra) {
        Ok(_) => Err("ranks that share memory and atomics by a device".into()),
        Err(_) => Ok(()),
    }
}

/// Adds all of these tests.
pub(crate) fn add_all(trials: &mut Vec<Trial>) {
    trials.push(Trial::test(
        "composite::a_device_that_does_atomics_does_a_ranks_own_too",
        a_device_that_does_atomics_does_a_ranks_own_too,
    ));
    add::<Seq>(trials, &Hosts::ALL);
    add::<Par>(trials, &[Hosts::Alternating]);
}
