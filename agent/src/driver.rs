//! Runs an agent: drives it while it has work, and sleeps otherwise.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use conduit_portals::transport::open::OpenTransport;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};

use crate::host::{Host, Nanos};
use crate::machine::AgentMachine;

/// How long an idle agent polls for more work before it sleeps.
const SPIN: Nanos = 50_000;
/// The shortest sleep of an agent whose host has no descriptor. Each sleep is twice as long as the
/// one before, up to [`LONGEST`], until work arrives.
const SHORTEST: Nanos = 50_000;
/// The longest sleep of an agent whose host has no descriptor.
const LONGEST: Nanos = 1_000_000;

/// Returns the time of the clock shared by all processes of the node.
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    // The casts are lossless and nothing overflows: the clock starts at 0, and 64 bits hold the
    // nanoseconds of centuries.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Runs an agent until `ends` returns `true`. `ends` is called whenever the agent is idle, and at
/// least about once a second. Operations that have not ended when the agent ends fail.
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

/// Sleeps until an event arrives or a deadline passes.
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
    // A signal that arrives just before the sleep does not end it, so no sleep lasts longer than a
    // second.
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
    // Ignores the result: a signal may end the sleep early, which is harmless.
    let _ = poll(&mut waited, limit.as_ref());
}
