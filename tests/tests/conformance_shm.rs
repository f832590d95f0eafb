//! The conformance suite for shared memory and for the reference network.

use std::marker::PhantomData;

use conduit_core::threads::{Mode, Par, Seq};
use conduit_portals::shm::{Shm, ShmConfig, in_process};
use conduit_tests::conformance::Network;
use conduit_tests::conformance::trials::add_with_chaos;
use conduit_tests::reference::Reference;
use libtest_mimic::Trial;

/// The oracle.
#[derive(Clone)]
struct TheReference;

impl Network for TheReference {
    type Ni = Reference;
    fn name(&self) -> String {
        "reference".to_owned()
    }
    fn start(&self, ranks: u32) -> Result<Vec<Reference>, String> {
        Ok(Reference::job(ranks))
    }
}

/// Software Portals in shared memory, all ranks in this process.
struct SharedMemory<M> {
    settings: &'static str,
    config: ShmConfig,
    // The mode is a parameter only.
    mode: PhantomData<fn() -> M>,
}

impl<M> Clone for SharedMemory<M> {
    fn clone(&self) -> Self {
        Self {
            config: self.config.clone(),
            ..*self
        }
    }
}

impl<M: Mode> Network for SharedMemory<M> {
    type Ni = Shm<M>;
    fn name(&self) -> String {
        format!("shm::{}::{}", M::NAME, self.settings)
    }
    fn start(&self, ranks: u32) -> Result<Vec<Shm<M>>, String> {
        in_process(ranks, &self.config).map_err(|error| error.to_string())
    }
}

/// The shared-memory network with settings that change how it works.
fn add_shm<M: Mode>(trials: &mut Vec<Trial>) {
    // Address space for many ranks at once, in every test that runs at the same time.
    let small = ShmConfig {
        region_bytes: 64 << 20,
        queue_bytes: 64 << 20,
        ..ShmConfig::default()
    };
    let all = [
        ("windows", small.clone()),
        (
            "no_windows",
            ShmConfig {
                windows: false,
                ..small.clone()
            },
        ),
        (
            "shared_rings",
            ShmConfig {
                shared_ring_above: 0,
                ..small.clone()
            },
        ),
        (
            "no_windows_shared_rings",
            ShmConfig {
                windows: false,
                shared_ring_above: 0,
                ..small.clone()
            },
        ),
        (
            "no_inject",
            ShmConfig {
                inject_size: 0,
                ..small
            },
        ),
    ];
    for (settings, config) in all {
        let network = SharedMemory::<M> {
            settings,
            config,
            mode: PhantomData,
        };
        add_with_chaos(trials, network);
    }
}

/// Adds all of these.
pub(crate) fn add_all(trials: &mut Vec<Trial>) {
    add_with_chaos(trials, TheReference);
    add_shm::<Seq>(trials);
    add_shm::<Par>(trials);
}
