//! The cases of NA, over every network.

use conduit_tests::na::{CASES, NETS};
use libtest_mimic::Trial;

pub(crate) fn add_all(trials: &mut Vec<Trial>) {
    for net in &NETS {
        for (name, case) in CASES {
            trials.push(Trial::test(
                format!("na::{}::{name}", net.name),
                move || case(net).map_err(|error| format!("{error:?}").into()),
            ));
        }
    }
}
