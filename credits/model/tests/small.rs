//! Every state of the small worlds.

use credits::Dynamic;
use credits_model::{check, small};

#[test]
fn all_properties_hold_in_every_state_of_the_small_worlds() {
    for world in small() {
        let name = world.name;
        let report = check::<Dynamic>(world);
        if let Some((property, run)) = report.failures.first() {
            panic!("{name}: not always: {property}, after\n{run}");
        }
        assert!(
            report.missing.is_empty(),
            "{name}: never: {:?}",
            report.missing
        );
        println!(
            "{name}: {} states, {} steps, {:.1?}",
            report.states, report.steps, report.time
        );
    }
}
