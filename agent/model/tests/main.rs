//! Tests that the checker finds mistakes, and that the agents make none.

use agent_model::{Broken, Fault, RULES, check, small};

#[test]
fn all_rules_hold_in_every_state_of_the_small_worlds() {
    for world in small() {
        let name = world.name;
        check(world).assert_sound(name);
    }
}

/// Checks the worlds with agents that make a mistake, until one breaks the given rule.
fn finds(fault: Fault, broken: Broken) {
    let rule = RULES.iter().find(|(rule, _)| *rule == broken);
    let (_, rule) = rule.expect("a known rule");
    let mut found = Vec::new();
    for mut world in small() {
        world.fault = fault;
        let failures = check(world).failures;
        if failures.iter().any(|(name, _)| name == rule) {
            return;
        }
        found.extend(failures);
    }
    panic!("{fault:?} was not found: {found:#?}");
}

#[test]
fn entries_that_are_said_twice_are_found() {
    finds(Fault::SaysTwice, Broken::Refused);
}

#[test]
fn a_second_completion_is_found() {
    finds(Fault::CompletesTwice, Broken::Completed);
}

#[test]
fn lost_messages_are_found() {
    finds(Fault::LosesMessages, Broken::Untrue);
}

#[test]
fn ports_that_are_forgotten_too_early_are_found() {
    finds(Fault::ForgetsPorts, Broken::Order);
}

#[test]
fn room_for_eager_messages_that_is_not_given_back_is_found() {
    finds(Fault::KeepsBudget, Broken::Held);
}

#[test]
fn credits_that_are_not_given_back_are_found() {
    finds(Fault::KeepsCredits, Broken::Hangs);
}

#[test]
fn limits_that_are_passed_are_found() {
    finds(Fault::Exceeds, Broken::Budget);
}

#[test]
fn operations_that_outlive_their_session_are_found() {
    finds(Fault::Deaf, Broken::Hangs);
}
