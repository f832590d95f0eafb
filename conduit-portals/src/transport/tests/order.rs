//! Tests that short puts arrive in the order in which they were sent, whether through a queue or
//! through its mailbox.

use std::cell::RefCell;

use conduit_core::ni::{Exchange, Inject, Ready, Submit};
use proptest::prelude::*;

use super::*;

/// A step of one of the two ranks.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Rank 0 sends this many bytes.
    Send(usize),
    Progress,
    /// Checks which queues are ready.
    Ready,
    /// Takes at most this many events.
    Poll(u32),
    /// Takes one event, and panics in the handler.
    Panic,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop_oneof![Just(8_usize), Just(64), Just(65), Just(300)].prop_map(Step::Send),
        2 => Just(Step::Progress),
        2 => Just(Step::Ready),
        3 => (1_u32..5).prop_map(Step::Poll),
        1 => Just(Step::Panic),
    ]
}

proptest! {
    #[test]
    fn none_overtakes_another(steps in prop::collection::vec(step(), 1..120)) {
        let (_, ends) = job::<Seq>(2);
        let eq = ends[1].eq_create(64).unwrap();
        ends[1].pt_open(PT, Some(eq)).unwrap();
        let managed = MeMemory::Managed { bytes: 1 << 30, min_free: 1 << 20 };
        ends[1].me_append(PT, entry(managed)).unwrap();
        let mut sent = 0_u64;
        let arrived = RefCell::new(Vec::new());
        let take = |limit: u32, panics: bool| {
            let mut next = |event: Event<'_>| {
                let Event::Put(put) = event else { panic!("{event:?}") };
                assert_eq!(put.data, vec![put.hdr_data as u8; put.length]);
                assert!(put.data.as_ptr().addr().is_multiple_of(16));
                arrived.borrow_mut().push(put.hdr_data);
                assert!(!panics, "panics as requested");
            };
            let poll = std::panic::AssertUnwindSafe(|| ends[1].poll(eq, limit, &mut next));
            std::panic::catch_unwind(poll).unwrap_or(1)
        };
        for step in steps {
            match step {
                Step::Send(length) => {
                    let inject = Inject {
                        target: 1,
                        index: PT,
                        exchange: Exchange::OneWay,
                        match_bits: 0,
                        hdr_data: sent,
                        head: &vec![sent as u8; length],
                        body: &[],
                    };
                    if ends[0].inject(&inject).unwrap() == Submit::Posted {
                        sent += 1;
                    }
                    ends[0].progress();
                }
                Step::Progress => ends[1].progress(),
                Step::Ready => {
                    // The first call may report only earlier arrivals. The second call has received
                    // everything that was sent, and takes into account what was consumed.
                    ends[1].ready();
                    let is_ready = ends[1].ready().intersects(Ready::queue(eq));
                    prop_assert_eq!(is_ready, arrived.borrow().len() as u64 != sent);
                }
                Step::Poll(limit) => drop(take(limit, false)),
                Step::Panic => drop(take(1, true)),
            }
        }
        // After this progress, everything has arrived, and nothing may be lost.
        ends[1].progress();
        while ends[1].ready().intersects(Ready::queue(eq)) {
            take(3, false);
            ends[1].progress();
        }
        prop_assert_eq!(arrived.into_inner(), (0..sent).collect::<Vec<_>>());
    }
}
