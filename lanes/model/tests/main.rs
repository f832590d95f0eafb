//! Tests that the rules hold, and that the checker finds deliberate errors.

use lanes_model::{Broken, Fault, RULES, check, small};

#[test]
fn all_rules_hold_in_every_state_of_the_small_worlds() {
    for world in small() {
        let name = world.name;
        check(world).assert_sound(name);
    }
}

/// Checks the worlds with a deliberate error in all ranks until one of them violates one of the
/// rules in `broken`.
fn finds(fault: Fault, broken: &[Broken]) {
    let mut found = Vec::new();
    for mut world in small() {
        world.fault = fault;
        let failures = check(world).failures;
        let is_meant = |name: &str| {
            let mut rules = RULES.iter().filter(|(rule, _)| broken.contains(rule));
            rules.any(|&(_, rule)| rule == name)
        };
        if failures.iter().any(|&(name, _)| is_meant(name)) {
            return;
        }
        found.extend(failures);
    }
    panic!("{fault:?} was not found: {found:#?}");
}

#[test]
fn lanes_that_are_not_announced_are_found() {
    finds(Fault::NoAnnouncement, &[Broken::Order]);
}

#[test]
fn lanes_that_are_returned_before_they_are_empty_are_found() {
    finds(Fault::EarlyReturn, &[Broken::Order, Broken::Lost]);
}

#[test]
fn generations_that_are_used_again_are_found() {
    finds(
        Fault::SameGeneration,
        &[Broken::Promised, Broken::Disagree, Broken::Unanswered],
    );
}

#[test]
fn silent_denials_are_found() {
    finds(Fault::SilentDenial, &[Broken::Unanswered]);
}

#[test]
fn deaths_that_nobody_hears_of_are_found() {
    finds(Fault::Deaf, &[Broken::Unanswered, Broken::Disagree]);
}

#[test]
fn messages_that_change_their_way_are_found() {
    finds(Fault::TornMessage, &[Broken::Torn]);
}
