//! Tests of message exchanges between ranks, in which messages are delivered one at a time.

use super::*;

/// Ranks with one lane each, which costs both ends. Messages arrive when the test delivers them.
struct Ranks {
    lanes: Vec<Lanes>,
    trackers: Vec<Tracker>,
    /// The messages in flight, each with its sender and receiver.
    messages: Vec<(u32, u32, Message)>,
    others: Vec<(u32, Action)>,
    /// Whether connections are established at once.
    connects: bool,
}

impl Ranks {
    fn new(count: u32) -> Self {
        Self::with_hold(count, 0)
    }

    fn with_hold(count: u32, hold: u32) -> Self {
        let settings = Settings {
            slots: 1,
            hold,
            ..Settings::default()
        };
        let lanes = |rank| Lanes::new(rank, LaneKind::Both, settings.clone()).unwrap();
        Self {
            lanes: (0..count).map(lanes).collect(),
            trackers: vec![Tracker::new(settings.decay); count as usize],
            messages: Vec::new(),
            others: Vec::new(),
            connects: true,
        }
    }

    fn on(&mut self, rank: u32, run: impl FnOnce(&mut Lanes, &Tracker, &mut dyn FnMut(Action))) {
        let (messages, others) = (&mut self.messages, &mut self.others);
        let at = rank as usize;
        run(
            &mut self.lanes[at],
            &self.trackers[at],
            &mut |action| match action {
                Action::Send { to, message } => messages.push((rank, to, message)),
                other => others.push((rank, other)),
            },
        );
        while self.connects
            && let Some(made) = (self.others.iter())
                .position(|(_, action)| matches!(action, Action::Connect { .. }))
            && let (rank, Action::Connect { slot, .. }) = self.others.remove(made)
        {
            self.connected(rank, slot);
        }
    }

    fn connected(&mut self, rank: u32, slot: u16) {
        self.on(rank, |lanes, _, act| lanes.connected(slot, act));
    }

    /// Adds the same traffic at both ranks.
    fn touch(&mut self, one: u32, other: u32, samples: u32) {
        self.trackers[one as usize].touch(other, samples);
        self.trackers[other as usize].touch(one, samples);
    }

    fn progress(&mut self, rank: u32) {
        self.on(rank, |lanes, tracker, act| lanes.progress(tracker, act));
    }

    /// Delivers the oldest message and returns it.
    fn arrive(&mut self) -> Message {
        let (from, to, message) = self.messages.remove(0);
        self.on(to, |lanes, tracker, act| {
            lanes.on_message(from, message, tracker, act).unwrap();
        });
        message
    }

    /// Delivers all messages, and drains lanes at once.
    fn settle(&mut self) {
        loop {
            for rank in 0..self.lanes.len() as u32 {
                let slots: Vec<u16> = self.lanes[rank as usize].iter().map(|l| l.slot).collect();
                for slot in slots {
                    self.on(rank, |lanes, _, act| lanes.drained(slot, act));
                }
            }
            if self.messages.is_empty() {
                return;
            }
            self.arrive();
        }
    }

    /// Returns the peer of a rank's open lane.
    fn open(&self, rank: u32) -> Option<u32> {
        let mut lanes = self.lanes[rank as usize].iter();
        lanes
            .next()
            .filter(|lane| lane.state == State::Open)
            .map(|lane| lane.peer)
    }
}

#[test]
fn of_asks_that_cross_the_lower_one_s_counts() {
    let mut ranks = Ranks::new(2);
    ranks.touch(0, 1, 50);
    ranks.progress(0);
    ranks.progress(1);
    let asks = ranks.messages.clone();
    ranks.settle();
    assert_eq!((ranks.open(0), ranks.open(1)), (Some(1), Some(0)));
    let generation = ranks.lanes[1].iter().next().unwrap().generation;
    assert_eq!(generation, asks[0].2.generation());
    assert_ne!(generation, asks[1].2.generation());
}

#[test]
fn a_heavier_ask_goes_before_an_own_one() {
    let mut ranks = Ranks::new(3);
    ranks.touch(0, 1, 20);
    ranks.touch(1, 2, 50);
    ranks.trackers[1].forget(2);
    ranks.progress(1); // Rank 1 asks rank 0, because it knows no other peer.
    ranks.progress(2);
    ranks.settle();
    assert_eq!((ranks.open(1), ranks.open(2)), (Some(2), Some(1)));
    assert_eq!(ranks.lanes[0].iter().count(), 0);
}

#[test]
fn a_denial_names_its_price_and_who_does_not_pay_it_stays_away() {
    let mut ranks = Ranks::new(3);
    ranks.touch(0, 1, 50);
    ranks.progress(0);
    ranks.settle();
    ranks.touch(0, 2, 60);
    ranks.progress(2);
    ranks.arrive();
    let (0, 2, Message::Denied { price, .. }) = ranks.messages[0] else {
        panic!("{:?}", ranks.messages);
    };
    assert_eq!(price, 100 * SAMPLE);
    ranks.settle();
    for _ in 0..20 {
        ranks.progress(2);
    }
    assert_eq!(ranks.messages, [], "asked again below the price");
    ranks.touch(0, 2, 60);
    ranks.progress(2);
    ranks.settle();
    assert_eq!(ranks.open(0), None, "the lane was not made free");
    ranks.progress(0);
    ranks.settle();
    assert_eq!((ranks.open(0), ranks.open(2)), (Some(2), Some(0)));
}

#[test]
fn nobody_loses_a_lane_for_one_that_does_not_want_it() {
    let mut ranks = Ranks::new(4);
    ranks.touch(0, 1, 50);
    ranks.touch(2, 3, 500);
    ranks.progress(0);
    ranks.progress(2);
    ranks.settle();
    ranks.touch(0, 2, 200);
    ranks.progress(0);
    assert!(ranks.lanes[0].is_probing());
    ranks.settle();
    assert!(!ranks.lanes[0].is_probing());
    assert_eq!((ranks.open(0), ranks.open(2)), (Some(1), Some(3)));
}

#[test]
fn a_lane_that_both_recall_is_free_at_both() {
    let mut ranks = Ranks::new(4);
    ranks.touch(0, 1, 50);
    ranks.progress(0);
    ranks.settle();
    ranks.trackers[0].forget(1);
    ranks.trackers[1].forget(0);
    ranks.touch(0, 2, 50);
    ranks.touch(1, 3, 50);
    ranks.progress(0);
    ranks.progress(1);
    assert_eq!(ranks.messages, [], "recalled before leaving");
    for rank in [0, 1] {
        ranks.on(rank, |lanes, _, act| lanes.drained(0, act));
    }
    let recall = |message| matches!(message, Message::Recall { .. });
    assert!(recall(ranks.arrive()) && recall(ranks.arrive()));
    assert_eq!(ranks.messages, []);
    assert!(ranks.lanes.iter().all(|lanes| lanes.iter().count() == 0));
}

#[test]
fn a_connection_that_fails_is_a_denial() {
    let mut ranks = Ranks::new(2);
    ranks.connects = false;
    ranks.touch(0, 1, 50);
    ranks.progress(0);
    ranks.settle();
    let [
        (
            0,
            Action::Connect {
                slot: 0, peer: 1, ..
            },
        ),
    ] = ranks.others[..]
    else {
        panic!("{:?}", ranks.others);
    };
    let states: Vec<State> = ranks
        .lanes
        .iter()
        .flat_map(|lanes| lanes.iter().map(|lane| lane.state))
        .collect();
    assert_eq!(states, [State::Connecting, State::Offered]);
    ranks.on(0, |lanes, _, act| lanes.refused(0, act));
    assert_eq!(ranks.lanes[0].iter().count(), 0);
    ranks.settle();
    assert_eq!(
        ranks.lanes[1].iter().count(),
        0,
        "the lane did not become free"
    );
    ranks.progress(0);
    assert_eq!(ranks.messages, [], "asked again at once");
    for _ in 0..4 {
        ranks.progress(0);
    }
    assert_ne!(ranks.messages, []);
    // The connection is reported too late, which must change nothing.
    for late in [Lanes::connected, Lanes::refused] {
        ranks.on(0, |lanes, _, act| late(lanes, 0, act));
        assert_eq!(ranks.lanes[0].iter().next().unwrap().state, State::Asked);
    }
}

#[test]
fn death_frees_this_side_in_every_state() {
    for (steps, connects) in (0..8).flat_map(|steps| [(steps, true), (steps, false)]) {
        let mut ranks = Ranks::new(3);
        ranks.connects = connects;
        ranks.touch(0, 1, 50);
        ranks.progress(0);
        for step in 0..steps {
            if step == 3 {
                ranks.trackers[0].forget(1);
                ranks.touch(0, 2, 50);
                ranks.progress(0);
            } else if !ranks.messages.is_empty() {
                ranks.arrive();
            } else {
                ranks.on(step % 2, |lanes, _, act| lanes.drained(0, act));
            }
        }
        for (rank, dead) in [(0, 1), (1, 0)] {
            ranks.on(rank, |lanes, _, act| lanes.on_death(dead, act));
            let lanes = &ranks.lanes[rank as usize];
            assert!(lanes.iter().all(|lane| lane.peer != dead), "{steps}");
        }
    }
}

#[test]
fn a_recall_that_overtakes_the_answer_is_returned() {
    let mut ranks = Ranks::new(2);
    ranks.touch(0, 1, 50);
    ranks.progress(0);
    // The ask and then the offer arrive.
    ranks.arrive();
    ranks.arrive();
    ranks.on(0, |lanes, _, act| {
        lanes.recall_now(0, act);
        lanes.drained(0, act);
    });
    let [
        (0, 1, Message::Taken { .. }),
        (0, 1, Message::Recall { .. }),
    ] = ranks.messages[..]
    else {
        panic!("{:?}", ranks.messages);
    };
    ranks.messages.swap(0, 1);
    ranks.arrive();
    let (1, 0, Message::Returned { .. }) = ranks.messages[1] else {
        panic!("{:?}", ranks.messages);
    };
    ranks.settle();
    assert!(ranks.lanes.iter().all(|lanes| lanes.iter().count() == 0));
}

#[test]
fn an_announcement_is_of_one_exchange() {
    let mut ranks = Ranks::new(2);
    ranks.touch(0, 1, 50);
    ranks.progress(0);
    ranks.settle();
    let generation = ranks.lanes[0].iter().next().unwrap().generation;
    let mut announced = |generation| {
        let mut slot = None;
        ranks.on(1, |lanes, _, act| {
            slot = lanes.on_announced(0, generation, act)
        });
        let is_watched = ranks.lanes[1].iter().next().unwrap().is_watched;
        (slot, is_watched)
    };
    assert_eq!(announced(generation + 2), (None, false));
    assert_eq!(announced(generation), (Some(0), true));
}

#[test]
fn a_lane_is_kept_for_its_hold_time() {
    let hold = 5;
    let mut ranks = Ranks::with_hold(3, hold);
    ranks.touch(0, 1, 50);
    ranks.progress(0);
    ranks.settle();
    for _ in 0..hold - 1 {
        ranks.touch(0, 2, 500);
        ranks.progress(0);
        ranks.settle();
        assert_eq!(ranks.open(0), Some(1));
    }
    ranks.touch(0, 2, 500);
    ranks.progress(0);
    ranks.settle();
    assert_ne!(ranks.open(0), Some(1));
}

#[test]
fn messages_to_another_kind_of_lanes_are_refused() {
    let offer = Message::Offer {
        generation: 2,
        slot: 0,
        size: 1,
    };
    let ask = |generation| Message::Ask {
        generation,
        weight: 1,
    };
    let [taken, recall] = [
        Message::Taken { generation: 2 },
        Message::Recall { generation: 2 },
    ];
    let tracker = Tracker::new(Settings::default().decay);
    let is_refused = |kind, from, message| {
        let mut lanes = Lanes::new(5, kind, Settings::default()).unwrap();
        let before = lanes.clone();
        let refused = lanes
            .on_message(from, message, &tracker, &mut |_| ())
            .is_err();
        assert!(!refused || lanes == before);
        refused
    };
    for (kind, message, expected) in [
        (LaneKind::Owner, offer, true),
        (LaneKind::Owner, recall, true),
        (LaneKind::Owner, taken, false),
        (LaneKind::Owner, ask(2), true),
        (LaneKind::Holder, offer, false),
        (LaneKind::Holder, recall, false),
        (LaneKind::Holder, taken, true),
        (LaneKind::Holder, ask(2), true),
        (LaneKind::Both, offer, false),
        (LaneKind::Both, taken, false),
        // Rank 3 begins exchanges with even numbers, and rank 7 with odd ones.
        (LaneKind::Both, ask(2), false),
        (LaneKind::Both, ask(3), true),
    ] {
        assert_eq!(
            is_refused(kind, 3, message),
            expected,
            "{kind:?}: {message:?}"
        );
    }
    assert!(is_refused(LaneKind::Both, 7, ask(2)) && !is_refused(LaneKind::Both, 7, ask(3)));
    assert!(
        is_refused(LaneKind::Both, 5, ask(2)),
        "a message from itself"
    );
}
