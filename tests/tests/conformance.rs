//! Every case of the conformance suite as a test of its own, for every network and its settings.

use std::marker::PhantomData;

use conduit_core::ni::Ni;
use conduit_core::threads::{Mode, Par, Seq};
use conduit_portals::shm::{Shm, ShmConfig, in_process};
use conduit_tests::chaos::{Chaos, Disorder};
use conduit_tests::conformance::{
    Exclusion, Network, Patience, Verdict, cases, run_case, unknown_exclusions,
};
use conduit_tests::reference::Reference;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// Seeds of the chaos that each network is run under.
const SEEDS: [u64; 2] = [1, 20_260_411];

/// Adds every case for a network.
fn add<W>(trials: &mut Vec<Trial>, network: W)
where
    W: Network + Clone + Send + 'static,
    W::Ni: 'static,
{
    let name = network.name();
    for (at, case) in cases::<W::Ni>().iter().enumerate() {
        let network = network.clone();
        let trial = move || {
            let case = &cases::<W::Ni>()[at];
            match run_case(&network, case) {
                Verdict::Passed => Ok(Completion::Completed),
                Verdict::NotApplicable(reason) => Ok(Completion::ignored_with(reason)),
                Verdict::Excluded(reason) => Ok(Completion::ignored_with(reason)),
                Verdict::Failed(reason) => Err(Failed::from(reason)),
            }
        };
        trials.push(Trial::ignorable_test(
            format!("{name}::{}", case.name),
            trial,
        ));
    }
    trials.push(Trial::test(
        format!("{name}::exclusions_name_cases"),
        move || match unknown_exclusions(&network).as_slice() {
            [] => Ok(()),
            unknown => Err(format!("no such cases: {unknown:?}").into()),
        },
    ));
}

/// Adds a network, and the same under chaos: as it is, and with nothing that a network may lack.
fn add_with_chaos<W>(trials: &mut Vec<Trial>, network: W)
where
    W: Network + Clone + Send + 'static,
    W::Ni: 'static,
{
    add(trials, network.clone());
    for seed in SEEDS {
        let disorder = Disorder::seeded(seed);
        add(
            trials,
            Chaotic {
                network: network.clone(),
                disorder,
            },
        );
    }
    let bare = Disorder {
        windows: false,
        inject: false,
        ..Disorder::seeded(3)
    };
    add(
        trials,
        Chaotic {
            network,
            disorder: bare,
        },
    );
}

/// A network under chaos.
#[derive(Clone)]
struct Chaotic<W> {
    network: W,
    disorder: Disorder,
}

impl<W: Network> Network for Chaotic<W>
where
    W::Ni: Ni,
{
    type Ni = Chaos<W::Ni>;
    fn name(&self) -> String {
        let Disorder {
            seed,
            windows,
            inject,
            ..
        } = self.disorder;
        let lacks = match (windows, inject) {
            (true, true) => "",
            _ => "_bare",
        };
        format!("{}::chaos_{seed}{lacks}", self.network.name())
    }
    fn start(&self, ranks: u32) -> Result<Vec<Self::Ni>, String> {
        Ok(Chaos::job(self.network.start(ranks)?, self.disorder))
    }
    fn exclusions(&self) -> &[Exclusion] {
        self.network.exclusions()
    }
    fn patience(&self) -> Patience {
        self.network.patience()
    }
}

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

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    add_with_chaos(&mut trials, TheReference);
    add_shm::<Seq>(&mut trials);
    add_shm::<Par>(&mut trials);
    libtest_mimic::run(&arguments, trials).exit();
}
