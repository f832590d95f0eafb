//! Adds every case as a separate test, for test programs that use `libtest_mimic`.

use libtest_mimic::{Completion, Failed, Trial};

use super::{Setup, Verdict, cases, run_case, unknown_exclusions};
use crate::chaos::Disorder;

/// The seeds of the chaos that each network is tested under.
const SEEDS: [u64; 2] = [1, 20_260_411];

/// Adds every case for a network as a test.
pub fn add(trials: &mut Vec<Trial>, network: Setup) {
    let name = network.name().to_owned();
    for case in cases() {
        let name = format!("{name}::{}", case.name);
        let network = network.clone();
        let trial = move || {
            if !network.draws(case.name) {
                return Ok(Completion::ignored_with("not drawn"));
            }
            match run_case(&network, &case) {
                Verdict::Passed => Ok(Completion::Completed),
                Verdict::NotApplicable(reason) => Ok(Completion::ignored_with(reason)),
                Verdict::Excluded(reason) => Ok(Completion::ignored_with(reason)),
                Verdict::Failed(reason) => Err(Failed::from(reason)),
            }
        };
        trials.push(Trial::ignorable_test(name, trial));
    }
    trials.push(Trial::test(
        format!("{name}::exclusions_name_cases"),
        move || match unknown_exclusions(&network).as_slice() {
            [] => Ok(()),
            unknown => Err(format!("unknown cases: {unknown:?}").into()),
        },
    ));
}

/// Adds all cases for a network, and samples of them under chaos. One chaotic variant lacks the
/// capabilities that a network may lack.
pub fn add_with_chaos(trials: &mut Vec<Trial>, network: Setup) {
    let bare = Disorder {
        windows: false,
        inject: false,
        ..Disorder::seeded(3)
    };
    for disorder in SEEDS.map(Disorder::seeded).into_iter().chain([bare]) {
        add(trials, network.clone().chaotic(disorder).sampled());
    }
    add(trials, network);
}
