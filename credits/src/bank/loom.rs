//! Tests of the shared bank under the model checker, which tries every interleaving of the parts
//! and every value that the orderings allow a load to return.
//!
//! Run the tests with `RUSTFLAGS="--cfg loom" cargo test -p pgas-credits --release --lib loom`.

use std::sync::Arc;

use loom::thread;

use super::{Asking, Bank, SharedBank};

type Part = Arc<SharedBank>;

/// Runs `run` in two parts concurrently. Returns the two results, and a third part through which
/// the bank can be inspected afterwards.
fn two<T: 'static>(
    credits: u32,
    run: impl Fn(&mut Part) -> T + Clone + Send + 'static,
) -> ([T; 2], Part) {
    let mut parts = Part::open(credits, 3);
    let [mut first, mut second] = [parts.remove(0), parts.remove(0)];
    let other = run.clone();
    let thread = thread::spawn(move || other(&mut second));
    let mine = run(&mut first);
    ([mine, thread.join().unwrap()], parts.remove(0))
}

#[test]
fn loom_parts_neither_make_nor_lose_credits() {
    loom::model(|| {
        let (held, bank) = two(4, |part| {
            let mut held = part.withdraw(3);
            let back = held.min(2);
            part.deposit(back);
            held -= back;
            held + part.withdraw(2)
        });
        assert!(bank.credits() <= 4, "overdrawn");
        assert_eq!(held[0] + held[1] + bank.credits(), 4);
    });
}

#[test]
fn loom_a_bank_gives_all_that_it_has() {
    loom::model(|| {
        let (held, bank) = two(3, |part| part.withdraw(2));
        assert_eq!(bank.credits(), 0);
        assert!(held == [2, 1] || held == [1, 2], "{held:?}");
    });
}

#[test]
fn loom_each_epoch_has_as_many_requests() {
    loom::model(|| {
        let (seen, bank) = two(0, |part| {
            [(); 3].map(|()| {
                part.note_requests(1, 2);
                part.epoch()
            })
        });
        assert_eq!(bank.epoch(), 3);
        for seen in seen {
            assert!(seen.is_sorted(), "{seen:?}");
        }
    });
}

#[test]
fn loom_no_more_peers_are_asked_at_a_time_than_are_wanted() {
    const AT_A_TIME: u32 = 2;
    loom::model(|| {
        let (begun, bank) = two(0, |part| {
            part.want(AT_A_TIME, false);
            let begun = (0..=AT_A_TIME).filter(|_| part.begin_revoke(0, 1));
            u32::try_from(begun.count()).unwrap()
        });
        assert_eq!(begun[0] + begun[1], AT_A_TIME);
        let expected = Asking {
            wanted: 0,
            empty: false,
            under_way: 2,
            next: 0,
        };
        assert_eq!(bank.asking(), expected);
    });
}

#[test]
fn loom_answers_are_counted_once() {
    loom::model(|| {
        let (begun, bank) = two(0, |part| {
            part.want(1, true);
            let begun = part.begin_revoke(0, 1);
            if begun {
                part.end_revoke();
            }
            u32::from(begun)
        });
        assert_eq!(bank.asking().under_way, 0);
        assert!((1..=2).contains(&(begun[0] + begun[1])));
    });
}

#[test]
fn loom_a_pace_is_kept() {
    const APART: u32 = 2;
    let mut checker = loom::model::Builder::new();
    // The number of preemptions is bounded, because checking all interleavings takes minutes.
    checker.preemption_bound = Some(3);
    checker.check(|| {
        let (begun, mut bank) = two(0, |part| {
            part.want(3, false);
            part.note_requests(1, 1);
            (0..2).filter(|_| part.begin_revoke(APART, 1)).count()
        });
        // Only two requests arrive, and peers must be asked two requests apart, so only one peer
        // may be asked.
        assert_eq!(begun[0] + begun[1], 1, "{begun:?}");
        bank.want(9, false);
        bank.note_requests(APART, 1);
        assert!(bank.begin_revoke(APART, 1) && !bank.begin_revoke(APART, 1));
    });
}
