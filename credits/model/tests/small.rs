//! Checks of every state of the small worlds.

use credits::Dynamic;
use credits_model::{check, small};

#[test]
fn all_properties_hold_in_every_state_of_the_small_worlds() {
    for world in small() {
        let name = world.name;
        check::<Dynamic>(world).assert_sound(name);
    }
}
