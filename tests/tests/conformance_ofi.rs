//! Every case of the conformance suite for the network over libfabric.

use conduit_core::threads::{Mode, Par, Seq};
use conduit_ofi::job::{OfiConfig, in_process};
use conduit_ofi::library::Which;
use conduit_tests::conformance::Setup;
use conduit_tests::conformance::trials::add;
use conduit_tests::ofi;
use libtest_mimic::Trial;

/// Returns a network over libfabric on this host, with all ranks in this process.
fn setup<M: Mode>(settings: &str, config: OfiConfig) -> Setup {
    let name = format!("ofi::{}::{settings}", M::NAME);
    Setup::new(name, move |ranks| in_process::<M>(ranks, &config)).patient()
}

fn endpoints<M: Mode>() -> Vec<Setup> {
    let mut all = Vec::new();
    for library in ofi::libraries() {
        for (provider, domain) in ofi::ALSO_CALM {
            for native_atomics in [false, true] {
                // That provider's native atomics are not used.
                if native_atomics && provider.contains("rxd") {
                    continue;
                }
                for &(protected, protection) in ofi::protections(provider) {
                    // Nor are native atomics if frames are sealed.
                    if native_atomics && protection.is_some() {
                        continue;
                    }
                    let mut config = ofi::config(&library.which, provider, domain);
                    config.portals.native_atomics = native_atomics;
                    config.protection = protection;
                    let atomics = if native_atomics { "::atomics" } else { "" };
                    let settings = format!("{}::{provider}{atomics}{protected}", library.name);
                    let setup = setup::<M>(&settings, config);
                    // All cases run on each provider in `Seq` without options, a sample of them
                    // otherwise.
                    let plain = M::NAME == Seq::NAME && !native_atomics && protection.is_none();
                    all.push(if plain { setup } else { setup.sampled() });
                }
            }
        }
    }
    all
}

/// Requirements and refusals of networks that we can't test on, simulated by the crate
/// `refusing-fabric`: provider, whether it does atomics, faults.
const DEMANDING: [(&str, bool, &str); 6] = [
    ("tcp", false, "verbs"),
    ("tcp", false, "cxi"),
    ("tcp", false, "local,allocated,provkey,endpoint,again=3"),
    ("tcp!sourceless", false, "sourceless"),
    ("tcp;ofi_rxm", true, "verbs,again=2"),
    ("shm", true, "cxi"),
];

/// Returns the faults that the library simulates, for its variable.
pub(crate) fn faults() -> String {
    DEMANDING.map(|(_, _, faults)| faults).join(" ")
}

fn demanding() -> Vec<Setup> {
    let library = Which::File(ofi::refusing());
    DEMANDING
        .into_iter()
        .map(|(provider, native_atomics, faults)| {
            let device = if provider == "shm" { "shm" } else { "lo" };
            let domain = format!("{device}{}{faults}", refusing_fabric::MARK);
            let mut config = ofi::config(&library, provider, Some(&domain));
            config.portals.native_atomics = native_atomics;
            setup::<Seq>(&format!("refusing::{provider}::{faults}"), config).sampled()
        })
        .collect()
}

/// Adds all of these tests.
pub(crate) fn add_all(trials: &mut Vec<Trial>) {
    for network in endpoints::<Seq>() {
        add(trials, network);
    }
    for network in demanding() {
        add(trials, network);
    }
    for network in endpoints::<Par>() {
        add(trials, network);
    }
}
