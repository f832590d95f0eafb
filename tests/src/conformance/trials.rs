//! Every case as a test of its own, for programs of `libtest_mimic`.

use conduit_core::ni::Ni;
use libtest_mimic::{Completion, Failed, Trial};

use super::{Exclusion, Network, Patience, Verdict, cases, run_case, unknown_exclusions};
use crate::chaos::{Chaos, Disorder};

/// Seeds of the chaos that each network is run under.
const SEEDS: [u64; 2] = [1, 20_260_411];

/// Adds every case for a network.
pub fn add<W>(trials: &mut Vec<Trial>, network: W)
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
pub fn add_with_chaos<W>(trials: &mut Vec<Trial>, network: W)
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
#[derive(Debug, Clone)]
pub struct Chaotic<W> {
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
