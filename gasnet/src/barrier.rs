//! Barriers: GASNet-1's split-phase barriers with ids, and GASNet-EX's barriers of teams.

use std::ffi::{c_int, c_void};

use conduit_core::barrier::BarrierOutcome;
use conduit_core::barrier::{Calls, Value};
use conduit_core::collectives::TeamId;

use crate::abi::{self, events};
use crate::event::{SHIFT, event};
use crate::fault::{Refusal, code, refuse, sure};
use crate::job::Job;
use crate::team::team_without_flags;

/// The tag of an event that stands for a barrier of the job's team. The bits above the tag hold the
/// barrier's number.
pub(crate) const EVENT: usize = 5;

/// `GASNET_BARRIERFLAG_*`.
const ANONYMOUS: c_int = 1;
const MISMATCH: c_int = 2;
const UNNAMED: c_int = 4;
const KNOWN: c_int = ANONYMOUS | MISMATCH | UNNAMED;

fn value(id: c_int, flags: c_int) -> Result<Value, Refusal> {
    if flags & !KNOWN != 0 {
        return Err(Refusal::bad(format_args!(
            "barrier flags {flags:#x} are not valid"
        )));
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

/// Announces that this rank has arrived. Once [`gasnet_barrier_wait`] has returned on a rank, that
/// rank sees all stores that other ranks made before they called this function.
#[unsafe(no_mangle)]
extern "C" fn gasnet_barrier_notify(id: c_int, flags: c_int) {
    const CALL: &str = "gasnet_barrier_notify";
    let value = sure(CALL, value(id, flags));
    sure(
        CALL,
        Job::of(CALL).engine().barriers().barrier_notify(value),
    );
}

/// Waits until all ranks have arrived. Returns `GASNET_OK` or `GASNET_ERR_BARRIER_MISMATCH`.
#[unsafe(no_mangle)]
extern "C" fn gasnet_barrier_wait(id: c_int, flags: c_int) -> c_int {
    const CALL: &str = "gasnet_barrier_wait";
    let value = sure(CALL, value(id, flags));
    outcome(sure(
        CALL,
        Job::of(CALL).engine().barriers().barrier_wait(value),
    ))
}

/// Like [`gasnet_barrier_wait`], but polls once instead of waiting. Returns `GASNET_ERR_NOT_READY`
/// if some ranks have not arrived yet.
#[unsafe(no_mangle)]
extern "C" fn gasnet_barrier_try(id: c_int, flags: c_int) -> c_int {
    const CALL: &str = "gasnet_barrier_try";
    let value = sure(CALL, value(id, flags));
    sure(CALL, Job::of(CALL).engine().barriers().barrier_try(value)).map_or(abi::NOT_READY, outcome)
}

/// Announces that this rank has arrived, and waits until all ranks have arrived.
#[unsafe(no_mangle)]
extern "C" fn gasnet_barrier(id: c_int, flags: c_int) -> c_int {
    const CALL: &str = "gasnet_barrier";
    let value = sure(CALL, value(id, flags));
    outcome(sure(CALL, Job::of(CALL).engine().barriers().barrier(value)))
}

/// Returns 0 if the ranks of the last barrier agreed on an id, and writes that id to `id`. Returns
/// a nonzero value otherwise.
///
/// # Safety
/// `id` must be null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnet_barrier_result(id: *mut c_int) -> c_int {
    const CALL: &str = "gasnet_barrier_result";
    let result = Job::of(CALL).engine().barriers().barrier_result();
    let Some(BarrierOutcome::Match(Some(named))) = result else {
        return 1;
    };
    if id.is_null() {
        return refuse(CALL, &Refusal::bad("the pointer for the id is null"));
    }
    // SAFETY: `id` is not null, so the caller guarantees that it is valid for a write.
    unsafe { id.write(named.cast_signed()) };
    0
}

/// Returns whether the job barrier that this event stands for is complete.
pub(crate) fn is_over(call: &str, job: &Job, event: usize) -> bool {
    let number = (event >> SHIFT) as u64;
    sure(call, job.engine().barriers().team_barrier_over(number))
}

/// Starts a team's barrier. The barrier of the job's team is faster than those of other teams.
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

/// Enters a team's barrier and waits until all ranks of the team have entered it.
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

/// Enters the job's barrier and waits for it as part of the call named `call`. Returns `GASNET_OK`
/// or an error code.
pub(crate) fn all(call: &'static str, job: &Job) -> c_int {
    code(call, job.engine().barriers().team_barrier())
}
