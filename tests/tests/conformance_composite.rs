//! The conformance suite for jobs over several hosts: shared memory on each, the reference network between them.

use std::marker::PhantomData;

use conduit_core::threads::{Mode, Par, Seq};
use conduit_portals::shm::{Shm, ShmConfig, in_process};
use conduit_tests::composite::{self, Hosts};
use conduit_tests::conformance::Network;
use conduit_tests::conformance::trials::add_with_chaos;
use conduit_tests::reference::Reference;
use lanes::composite::Composite;
use libtest_mimic::Trial;

/// Ranks on several hosts within this process.
struct SeveralHosts<M> {
    hosts: Hosts,
    settings: &'static str,
    config: ShmConfig,
    // The mode is a parameter only.
    mode: PhantomData<fn() -> M>,
}

impl<M> Clone for SeveralHosts<M> {
    fn clone(&self) -> Self {
        Self {
            config: self.config.clone(),
            ..*self
        }
    }
}

impl<M: Mode> Network for SeveralHosts<M> {
    type Ni = Composite<Shm<M>, Reference, M>;
    fn name(&self) -> String {
        let (hosts, settings) = (self.hosts.name(), self.settings);
        format!("composite::{}::{hosts}::{settings}", M::NAME)
    }
    fn start(&self, ranks: u32) -> Result<Vec<Self::Ni>, String> {
        composite::job(ranks, self.hosts, |ranks| {
            in_process(ranks, &self.config).map_err(|error| error.to_string())
        })
    }
}

/// Adds these hosts, with and without windows onto ranks of the same one.
fn add<M: Mode>(trials: &mut Vec<Trial>, hosts: &[Hosts]) {
    // Address space for many ranks at once, in every test that runs at the same time.
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
            let network = SeveralHosts::<M> {
                hosts,
                settings,
                config: config.clone(),
                mode: PhantomData,
            };
            add_with_chaos(trials, network);
        }
    }
}

/// Adds all of these.
pub(crate) fn add_all(trials: &mut Vec<Trial>) {
    add::<Seq>(trials, &Hosts::ALL);
    add::<Par>(trials, &[Hosts::Alternating]);
}
