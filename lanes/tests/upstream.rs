//! Tests that lanes behave as UCX expects of its usage tracker, or better.

use lanes::{Action, LaneKind, Lanes, Message, Settings, Tracker};

/// An owner whose peers accept every offer and return recalled lanes at once.
struct Owner {
    tracker: Tracker,
    lanes: Lanes,
    promoted: Vec<u32>,
    demoted: Vec<u32>,
    round: u32,
}

impl Owner {
    fn new(slots: u16) -> Self {
        let settings = Settings {
            slots,
            ..Settings::default()
        };
        Self {
            tracker: Tracker::new(settings.decay),
            lanes: Lanes::new(0, LaneKind::Owner, settings).unwrap(),
            promoted: Vec::new(),
            demoted: Vec::new(),
            round: 0,
        }
    }

    /// Runs `count` rounds, in each of which two samples of each peer are noted.
    fn rounds(&mut self, count: u32, peers: impl Iterator<Item = u32> + Clone) {
        for _ in 0..count {
            self.round += 1;
            peers.clone().for_each(|peer| self.tracker.touch(peer, 2));
            self.tracker.progress();
            let mut messages = Vec::new();
            self.lanes.progress(&self.tracker, &mut |action| {
                if let Action::Send { to, message } = action {
                    messages.push((to, message));
                }
            });
            for (peer, message) in messages {
                let answer = match message {
                    Message::Offer { generation, .. } => Message::Taken { generation },
                    Message::Recall { generation } => Message::Returned { generation },
                    other => panic!("{other:?}"),
                };
                let (promoted, demoted) = (&mut self.promoted, &mut self.demoted);
                let mut count = |action| match action {
                    Action::Open { peer, .. } => promoted.push(peer),
                    Action::Close { peer, .. } => demoted.push(peer),
                    _ => {}
                };
                self.lanes
                    .on_message(peer, answer, &self.tracker, &mut count)
                    .unwrap();
            }
        }
    }

    fn holders(&self) -> Vec<u32> {
        let mut holders: Vec<u32> = self.lanes.iter().map(|lane| lane.peer).collect();
        holders.sort_unstable();
        holders
    }
}

#[test]
fn of_thirty_equal_ones_the_first_ten_are_promoted_and_none_is_demoted() {
    let mut owner = Owner::new(10);
    owner.rounds(100, 1..31);
    assert_eq!(owner.promoted, (1..11).collect::<Vec<_>>());
    assert_eq!(owner.demoted, []);
}

#[test]
fn others_take_over_if_they_go_on_for_long_enough() {
    let mut owner = Owner::new(10);
    owner.rounds(5, 1..11);
    assert_eq!(owner.holders(), (1..11).collect::<Vec<_>>());
    // UCX switches in exactly the tenth round. Here the switch follows from the traffic: the
    // newcomers have twice as much, which is more than chance explains, and the holders have had
    // their lanes for sixteen rounds.
    owner.rounds(9, 11..21);
    assert_eq!(owner.demoted, []);
    owner.rounds(20, 11..21);
    assert_eq!(owner.holders(), (11..21).collect::<Vec<_>>());
    assert_eq!(owner.demoted.len(), 10, "a lane moved more than once");
}

#[test]
fn being_there_once_takes_nothing_away() {
    let mut owner = Owner::new(10);
    owner.rounds(20, 1..11);
    owner.rounds(1, 11..21);
    owner.rounds(20, 1..11);
    assert_eq!(owner.holders(), (1..11).collect::<Vec<_>>());
    assert_eq!(owner.demoted, []);
}

// UCX's list of most recently used peers has no counterpart here, because peers are ordered by
// weight and each sample counts.
#[test]
fn the_heaviest_come_first() {
    let mut tracker = Tracker::<10>::new(3);
    for push in 0..100 {
        tracker.touch(push % 20, 1 + push % 20 / 10 * 5);
    }
    let (count, heaviest) = tracker.heaviest(1);
    assert_eq!(count, 10);
    assert!(heaviest.iter().all(|&(_, peer)| peer >= 10), "{heaviest:?}");
}
