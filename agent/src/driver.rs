//! Runs an agent: progress as long as there is something to do, then sleep.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use conduit_portals::transport::open::OpenTransport;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};

use crate::host::{Host, Nanos};
use crate::machine::AgentMachine;

/// How long an agent that has nothing to do looks for more before it sleeps.
const SPIN: Nanos = 50_000;
/// Sleeps of an agent whose host has no descriptor: they grow while nothing comes.
const SHORTEST: Nanos = 50_000;
const LONGEST: Nanos = 1_000_000;

/// The time, of the clock that all processes of the node share.
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    // The clock begins at 0, and has nanoseconds for centuries.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Runs an agent until `ends`, which is asked each time there is nothing to do, and at least once a second. What is under
/// way then fails.
pub fn run<H: Host>(
    machine: &mut AgentMachine<H>,
    host: &mut H,
    network: &mut impl OpenTransport,
    mut ends: impl FnMut() -> bool,
) {
    let mut quiet_since = now();
    let mut asked = quiet_since;
    let mut pause = SHORTEST;
    loop {
        let now = now();
        let did = machine.progress(now, host, network);
        if did && now - asked < 1_000_000_000 {
            (quiet_since, pause) = (now, SHORTEST);
            continue;
        }
        asked = now;
        if ends() {
            break;
        }
        if did || now - quiet_since < SPIN {
            std::thread::yield_now();
            continue;
        }
        sleep(machine, host, network, pause);
        pause = (2 * pause).min(LONGEST);
    }
    machine.leave(host, network);
}

/// Sleeps until something comes or is due.
fn sleep<H: Host>(
    machine: &AgentMachine<H>,
    host: &mut H,
    network: &mut impl OpenTransport,
    pause: Nanos,
) {
    let look = match host.prepare_sleep() {
        Some(true) => None,
        Some(false) => return,
        None => Some(pause),
    };
    if !network.prepare_sleep() {
        return;
    }
    let due = machine.due().map(|at| at.saturating_sub(now()));
    // Signals end sleeps, but one may come just before.
    let second = Some(1_000_000_000);
    let least = [due, look, second].into_iter().flatten().min();
    let times = [least.map(Duration::from_nanos), network.timeout()];
    let limit = times.into_iter().flatten().min();
    let mut descriptors: Vec<BorrowedFd<'_>> = Vec::new();
    network.descriptors(&mut descriptors);
    descriptors.extend(host.descriptor());
    let mut waited: Vec<_> = descriptors
        .iter()
        .map(|descriptor| PollFd::new(descriptor, PollFlags::IN))
        .collect();
    let limit = limit.map(conduit_portals::transport::timespec);
    // A signal ends it early, which is allowed.
    let _ = poll(&mut waited, limit.as_ref());
}
