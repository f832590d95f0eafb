//! Barriers: GASNet-1's, split in two and with ids, and those of teams.

use std::ffi::{c_int, c_void};

use conduit_core::barrier::BarrierOutcome;
use conduit_core::barrier::{Calls, Value};
use conduit_core::collectives::TeamId;

use crate::abi::{self, events};
use crate::event::{SHIFT, event};
use crate::fault::{Refusal, code, refuse, sure};
use crate::job::Job;
use crate::team::team_without_flags;

/// The mark of a barrier's event; above it is the barrier's number.
pub(crate) const EVENT: usize = 5;

/// `GASNET_BARRIERFLAG_*`.
const ANONYMOUS: c_int = 1;
const MISMATCH: c_int = 2;
const UNNAMED: c_int = 4;
const KNOWN: c_int = ANONYMOUS | MISMATCH | UNNAMED;

fn value(id: c_int, flags: c_int) -> Result<Value, Refusal> {
    if flags & !KNOWN != 0 {
        return Err(Refusal::bad(format_args!("barrier flags {flags:#x}")));
    }
    Ok(if flags & MISMATCH != 0 {
        Value::Mismatch(Calls::BARRIER)
    } else if flags & (ANONYMOUS | UNNAMED) != 0 {
        Value::Anonymous
    } else {
        Value::Named(id.cast_unsigned())
    })
}

fn outcome(outcome: BarrierOutcome) -> c_int {
    match outcome {
        BarrierOutcome::Match(_) => abi::OK,
        BarrierOutcome::Mismatch(_) => abi::BARRIER_MISMATCH,
    }
}

/// This rank has arrived. Stores before it are seen by all ranks after their wait.
#[unsafe(no_mangle)]
extern "C" fn gasnet_barrier_notify(id: c_int, flags: c_int) {
    const CALL: &str = "gasnet_barrier_notify";
    let value = sure(CALL, value(id, flags));
    sure(
        CALL,
        Job::of(CALL).engine().barriers().barrier_notify(value),
    );
}

/// Waits until all ranks have arrived: `GASNET_OK`, or `GASNET_ERR_BARRIER_MISMATCH`.
#[unsafe(no_mangle)]
extern "C" fn gasnet_barrier_wait(id: c_int, flags: c_int) -> c_int {
    const CALL: &str = "gasnet_barrier_wait";
    let value = sure(CALL, value(id, flags));
    outcome(sure(
        CALL,
        Job::of(CALL).engine().barriers().barrier_wait(value),
    ))
}

/// As [`gasnet_barrier_wait`] after one poll and without waiting: `GASNET_ERR_NOT_READY`, not all have arrived.
#[unsafe(no_mangle)]
extern "C" fn gasnet_barrier_try(id: c_int, flags: c_int) -> c_int {
    const CALL: &str = "gasnet_barrier_try";
    let value = sure(CALL, value(id, flags));
    sure(CALL, Job::of(CALL).engine().barriers().barrier_try(value)).map_or(abi::NOT_READY, outcome)
}

/// Notify and wait.
#[unsafe(no_mangle)]
extern "C" fn gasnet_barrier(id: c_int, flags: c_int) -> c_int {
    const CALL: &str = "gasnet_barrier";
    let value = sure(CALL, value(id, flags));
    outcome(sure(CALL, Job::of(CALL).engine().barriers().barrier(value)))
}

/// How the last barrier ended for all ranks: 0, and the id that they agreed on; otherwise it had none.
///
/// # Safety
/// `id` is valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnet_barrier_result(id: *mut c_int) -> c_int {
    const CALL: &str = "gasnet_barrier_result";
    let result = Job::of(CALL).engine().barriers().barrier_result();
    let Some(BarrierOutcome::Match(Some(named))) = result else {
        return 1;
    };
    if id.is_null() {
        return refuse(CALL, &Refusal::bad("the place for the id is null"));
    }
    // SAFETY: not null; the caller's promise.
    unsafe { id.write(named.cast_signed()) };
    0
}

/// Has the job's barrier of this event ended?
pub(crate) fn is_over(call: &str, job: &Job, event: usize) -> bool {
    let number = (event >> SHIFT) as u64;
    sure(call, job.engine().barriers().team_barrier_over(number))
}

/// Starts the barrier of a team. That of all ranks has a faster one than other teams.
#[unsafe(no_mangle)]
extern "C" fn conduit_gex_barrier(team: *const c_void, flags: u32) -> usize {
    const CALL: &str = "gex_Coll_BarrierNB";
    let (job, team) = team_without_flags(CALL, team, flags);
    if team.id() != TeamId::JOB {
        return event(Some(sure(
            CALL,
            job.engine().collectives().barrier_nb(team.id()),
        )));
    }
    let number = sure(CALL, job.engine().barriers().team_barrier_start());
    let event = (number as usize) << SHIFT | EVENT;
    if is_over(CALL, job, event) {
        events::INVALID
    } else {
        event
    }
}

/// The barrier of a team.
#[unsafe(no_mangle)]
extern "C" fn gex_Coll_BarrierBlocking(team: *const c_void, flags: u32) {
    const CALL: &str = "gex_Coll_BarrierBlocking";
    let (job, team) = team_without_flags(CALL, team, flags);
    sure(
        CALL,
        job.engine()
            .collectives()
            .team_meet("barrier_nb", team.id()),
    );
}

/// The job's barrier where a call of the interface contains one.
pub(crate) fn all(call: &'static str, job: &Job) -> c_int {
    code(call, job.engine().barriers().team_barrier())
}
