//! Programs that fail, to test the launcher and the test harness.

use conduit_core::ni::{Ack, Ni, Put};
use rustix::process::{Signal, getpid, kill_process};

use super::Group;
use crate::conformance::World;
use crate::conformance::entry::{managed, put_to};

/// Rank 1 leaves with exit code 7 while the other ranks wait for it.
pub(super) fn leave_early<N: Ni>(w: &mut World<N>) {
    let mut group = Group::join(w);
    if group.rank == 1 {
        std::process::exit(7);
    }
    group.meet(w);
}

/// No rank ever ends.
pub(super) fn never_end<N: Ni>(w: &mut World<N>) {
    w.until("the end of time", |_| false);
}

/// The last rank kills itself while all others flood it.
pub(super) fn die_in_a_flood<N: Ni>(w: &mut World<N>) {
    let mut group = Group::join(w);
    let (rank, victim) = (group.rank, group.size - 1);
    w.listen(rank);
    w.append(rank, managed(1 << 20, 64));
    let md = w.source(rank, &[1; 64]);
    group.meet(w);
    if rank == victim {
        group.wait_puts(w, 100);
        // The process ends without running destructors. Sending a signal to one's own process can't
        // fail.
        let _ = kill_process(getpid(), Signal::KILL);
    }
    for token in 0.. {
        let put = Put {
            token,
            ack: Ack::Local,
            ..put_to(victim, &md)
        };
        w.put(rank, &put);
        w.end_of(rank, token);
    }
}
