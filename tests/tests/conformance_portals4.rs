//! Every case of the conformance suite for the network over Portals 4, on a library with faults.

use conduit_core::threads::{Mode, Par, Seq};
use conduit_portals::portals4::Portals4Config;
use conduit_tests::conformance::trials::{add, add_with_chaos};
use conduit_tests::conformance::{Exclusion, Setup};
use conduit_tests::portals4::{config, ends_of_faults, faults, job};
use libtest_mimic::Trial;

/// Cases where Portals 4 differs from the contract, if the library does the atomics.
const OF_ATOMICS: &[Exclusion] = &[
    excused("atomics/misaligned_is_out_of_range", ALIGNMENT),
    excused("matching/kinds_select_the_entry", KIND),
    excused("managed/entry_unlinks_when_little_is_left", LENGTH),
    excused("truncation/managed_message_is_cut_to_what_is_left", LENGTH),
    excused("puts/offset_outside_moves_nothing", OFFSET),
    excused("gets/offset_outside_brings_nothing", OFFSET),
    excused("unseen/what_does_not_fit_ends_as_ever", OFFSET),
    excused("process/bytes_go_to_and_come_from_addresses", PROCESS),
    excused("process/target_is_told_of_addresses", PROCESS),
    excused("process/from_oneself_by_address", PROCESS),
    excused("process/what_is_no_memory_is_out_of_range", PROCESS),
    excused(
        "process/what_ends_before_the_range_is_out_of_range",
        PROCESS,
    ),
    excused("process/what_may_not_be_written_is_read", PROCESS),
    excused("process/a_range_has_its_bounds", PROCESS),
    excused("process/atomics_act_on_addresses", PROCESS),
];

/// The same if messages do the atomics.
const EXCLUSIONS: &[Exclusion] = OF_ATOMICS.split_at(1).1;

const ALIGNMENT: &str = "the library accepts misaligned atomics";
const KIND: &str =
    "the first entry whose bits match decides, even if it does not take the operation's kind";
const LENGTH: &str = "a message uses exactly its length of a managed entry";
const OFFSET: &str = "a message outside an entry that may truncate is truncated to nothing";
const PROCESS: &str = "an unmapped address would crash the process";

const fn excused(case: &'static str, reason: &'static str) -> Exclusion {
    Exclusion { case, reason }
}

/// Returns a job over a library with these faults. `atomics`: the library does the atomics instead
/// of messages.
fn setup<M: Mode>(faults: &'static str, atomics: bool) -> Setup {
    let config = Portals4Config {
        atomics,
        ..config()
    };
    let name = match (faults, atomics) {
        ("", false) => "plain".to_owned(),
        ("", true) => "atomics".to_owned(),
        (faults, false) => faults.to_owned(),
        (faults, true) => format!("atomics,{faults}"),
    };
    let name = format!("portals4::{}::{name}", M::NAME);
    Setup::new(name, move |ranks| job::<M>(ranks, faults, &config))
        .patient()
        .excused(if atomics { OF_ATOMICS } else { EXCLUSIONS })
}

/// Adds all of these tests.
pub(crate) fn add_all(trials: &mut Vec<Trial>) {
    for faults in faults() {
        add(trials, setup::<Seq>(faults, false).sampled());
    }
    for faults in ends_of_faults() {
        add(trials, setup::<Seq>(faults, true).sampled());
    }
    add_with_chaos(trials, setup::<Seq>("", false));
    add(trials, setup::<Par>("", false).sampled());
}
