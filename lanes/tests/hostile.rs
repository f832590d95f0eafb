//! Tests with peers that send arbitrary messages at any time.

use lanes::{Action, LaneKind, Lanes, Message, Settings, State, Tracker};
use proptest::prelude::*;

use crate::messages::any_message;

#[derive(Clone, Debug)]
enum Event {
    Message(u32, Message),
    Announced(u32, u32),
    Touch(u32, u32),
    Round,
    Drained(u16),
    Connected(u16),
    Refused(u16),
    Death(u32),
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0u32..5, any_message()).prop_map(|(peer, message)| Event::Message(peer, message)),
        1 => (0u32..5, 0u32..6).prop_map(|(peer, generation)| Event::Announced(peer, generation)),
        2 => (1u32..5, 0u32..100).prop_map(|(peer, samples)| Event::Touch(peer, samples)),
        3 => Just(Event::Round),
        2 => (0u16..4).prop_map(Event::Drained),
        1 => (0u16..4).prop_map(Event::Connected),
        1 => (0u16..4).prop_map(Event::Refused),
        1 => (1u32..5).prop_map(Event::Death),
    ]
}

proptest! {
    #[test]
    fn nothing_panics_and_every_question_is_answered(
        kind in prop_oneof![Just(LaneKind::Owner), Just(LaneKind::Holder), Just(LaneKind::Both)],
        slots in 0u16..4,
        events in prop::collection::vec(any_event(), 0..200),
    ) {
        let settings = Settings { slots, hold: 2, backoff: 2, ..Settings::default() };
        let mut tracker = Tracker::new(settings.decay);
        let mut lanes = Lanes::new(0, kind, settings).unwrap();
        for event in events {
            let mut actions = Vec::new();
            let act = &mut |action| actions.push(action);
            let mut question = None;
            match event {
                Event::Message(peer, message) => {
                    let before = lanes.clone();
                    match lanes.on_message(peer, message, &tracker, act) {
                        Ok(()) => question = Some((peer, message)),
                        Err(_) => prop_assert_eq!(&lanes, &before, "a refused message changed the state"),
                    }
                }
                Event::Announced(peer, generation) => {
                    let _ = lanes.on_announced(peer, generation, act);
                }
                Event::Touch(peer, samples) => tracker.touch(peer, samples),
                Event::Round => {
                    tracker.progress();
                    lanes.progress(&tracker, act);
                }
                Event::Drained(slot) => lanes.drained(slot, act),
                Event::Connected(slot) => lanes.connected(slot, act),
                Event::Refused(slot) => lanes.refused(slot, act),
                Event::Death(peer) => {
                    tracker.forget(peer);
                    lanes.on_death(peer, act);
                    prop_assert!(lanes.iter().all(|lane| lane.peer != peer));
                }
            }
            prop_assert!(lanes.iter().count() <= usize::from(slots));
            let mut peers: Vec<u32> = lanes.iter().map(|lane| lane.peer).collect();
            peers.sort_unstable();
            peers.dedup();
            prop_assert_eq!(peers.len(), lanes.iter().count(), "a peer has several lanes");
            let Some((peer, message)) = question else { continue };
            let generation = message.generation();
            let lane = lanes.iter().find(|lane| (lane.peer, lane.generation) == (peer, generation));
            let sent = actions.iter().any(|action| matches!(
                action,
                Action::Send { to, message } if *to == peer && message.generation() == generation
            ));
            let is_answered = match message {
                Message::Ask { .. } => sent,
                // An offer is answered at once, or when the connection has been established or
                // refused.
                Message::Offer { .. } => {
                    sent || lane.is_some_and(|lane| lane.state == State::Connecting)
                }
                // A recall is answered at once, after the drain, or by the recall that crossed it.
                Message::Recall { .. } => sent
                    || lane.is_some_and(|lane| lane.state == State::Draining)
                    || actions.iter().any(|action| matches!(action, Action::Close { .. }))
                    || lane.is_some_and(|lane| {
                        matches!(lane.state, State::Asked | State::Connecting)
                    }),
                _ => true,
            };
            prop_assert!(is_answered, "{message:?}: {actions:?}");
        }
    }
}
