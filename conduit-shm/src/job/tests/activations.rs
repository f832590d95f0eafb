//! Tests that rings are polled from the first message on, but not before, and that no source's
//! first message is missed.

use super::*;

fn open(ranks: u32) -> Vec<End<Seq>> {
    let ends = world(ranks, &small());
    for end in &ends {
        let memory = MeMemory::Managed {
            bytes: 1 << 30,
            min_free: 0,
        };
        end.append(memory, MeOptions::PUT);
        // Consumes everything that is left over from the start.
        end.ni.progress();
        assert!(end.ni.ready().is_empty());
    }
    ends
}

impl End<Seq> {
    fn watched(&self) -> u32 {
        let queues = self.ni.queues.iter().filter_map(|queue| queue.get());
        let rings = |queue: &super::super::receive::Queue<Seq>| {
            let inbox = conduit_core::threads::Lock::lock(&queue.inbox);
            inbox
                .rings
                .iter()
                .filter(|ring| ring.place.is_some())
                .count() as u32
        };
        queues.map(rings).sum()
    }
}

#[test]
fn rings_are_watched_from_the_first_message_on() {
    let ends = open(4);
    assert_eq!(ends[0].watched(), 0);
    for (number, from) in [2, 0, 3].into_iter().enumerate() {
        assert_eq!(ends[from].ni.inject(&inject(0, &[1])), Ok(Submit::Posted));
        assert!(ends[0].ni.ready().intersects(Ready::queue(ends[0].eq)));
        assert_eq!(ends[0].poll().len(), 1);
        assert!(ends[0].ni.ready().is_empty());
        assert_eq!(ends[0].watched(), number as u32 + 1);
        // From now on, the sender knows the queue of the index.
        assert_eq!(ends[from].ni.inject(&inject(0, &[1])), Ok(Submit::Posted));
        assert_eq!(ends[0].ni.ready(), Ready::queue(ends[0].eq));
        assert_eq!(ends[0].poll().len(), 1);
    }
}

#[test]
fn a_sleeping_rank_wakes_for_an_activation() {
    let ends = open(2);
    assert_eq!(ends[1].ni.inject(&inject(0, &[1])), Ok(Submit::Posted));
    ends[0].ni.wait(Duration::from_secs(3600));
    assert_eq!(ends[0].poll().len(), 1);
}

/// Checks that rings are not activated in a queue while that queue is being polled, and are
/// activated afterwards.
#[test]
fn an_activation_waits_while_its_queue_is_polled() {
    let ends = open(3);
    let (a, other) = (&ends[0], ends[0].ni.eq_create(64).unwrap());
    assert_eq!(ends[1].ni.inject(&inject(0, &[1])), Ok(Submit::Posted));
    let mut delivered = 0;
    a.ni.poll(a.eq, 1, |_| {
        delivered += 1;
        assert_eq!(ends[2].ni.inject(&inject(0, &[2])), Ok(Submit::Posted));
        assert_eq!(a.ni.poll(other, 1, |_| ()), 0);
    });
    assert_eq!(delivered, 1);
    assert!(a.ni.ready().intersects(Ready::queue(a.eq)));
    assert_eq!(a.poll().len(), 1);
    assert!(a.ni.ready().is_empty());
    assert_eq!(a.watched(), 2);
}

/// Checks that a queue may be created after peers have already sent to its index.
#[test]
fn a_message_may_come_before_its_queue_is_looked_at() {
    let ends = open(2);
    let late = PtIndex(3);
    let message = Inject {
        index: late,
        ..inject(0, &[])
    };
    assert_eq!(ends[1].ni.inject(&message), Ok(Submit::Again));
    let eq = ends[0].ni.eq_create(64).unwrap();
    ends[0].ni.pt_open(late, Some(eq)).unwrap();
    assert_eq!(ends[1].ni.inject(&message), Ok(Submit::Posted));
    assert!(ends[0].ni.ready().intersects(Ready::queue(eq)));
    // The message matches nothing, so there is no event. The second poll frees the ring.
    for _ in 0..2 {
        assert_eq!(ends[0].ni.poll(eq, 3, |_| ()), 0);
    }
    assert!(ends[0].ni.ready().is_empty());
    assert_eq!(ends[0].ni.statistics().dropped, 1);
}
