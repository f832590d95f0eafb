//! The decisions, event by event.

use super::*;

#[test]
fn a_killed_rank_is_the_cause_before_those_that_failed_with_it() {
    let pid = 1;
    let mut causes = [
        How::Exited {
            rank: 2,
            pid,
            code: 1,
        },
        How::Exited {
            rank: 3,
            pid,
            code: 1,
        },
        How::Killed {
            rank: 4,
            pid,
            signal: 9,
            core: false,
        },
    ];
    causes.sort_by_key(precedence);
    assert_eq!(causes[0].failed_rank(), Some(4));
    assert_eq!(causes[1].failed_rank(), Some(2));
}
