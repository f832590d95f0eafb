//! Every case of the conformance suite for the network over Portals 4, on a library that misbehaves.

use conduit_core::threads::{Mode, Par, Seq};
use conduit_portals::portals4::Portals4;
use conduit_tests::conformance::trials::{add, add_with_chaos};
use conduit_tests::conformance::{Exclusion, Setup};
use conduit_tests::portals4::{config, faults, job};
use libtest_mimic::Trial;

/// What Portals 4 does otherwise than the contract says.
const EXCLUSIONS: &[Exclusion] = &[];

fn setup<M: Mode>(faults: &'static str) -> Setup<Portals4<M>> {
    let name = match faults {
        "" => "plain",
        faults => faults,
    };
    let name = format!("portals4::{}::{name}", M::NAME);
    Setup::new(name, move |ranks| job(ranks, faults, &config()))
        .patient()
        .excused(EXCLUSIONS)
}

/// Adds all of these.
pub(crate) fn add_all(trials: &mut Vec<Trial>) {
    for faults in faults() {
        add(trials, setup::<Seq>(faults));
    }
    add_with_chaos(trials, setup::<Seq>(""));
    add(trials, setup::<Par>(""));
}
