//! Ranks that create children by `fork`. The children can't use the job and don't disturb the
//! ranks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use anyhow::{Context, Result, bail, ensure};
use conduit::threads::Mode;
use conduit::{AtomicOp, Conduit, Handlers, Short};
use rustix::process::{Pid, WaitOptions, waitpid};

use super::{SHARE, attached};

/// How a child ends once it has tried all calls.
const ENDS: [&str; 5] = ["drops", "finishes", "exits", "ends the job", "ends at once"];
/// The exit code of a child, except in the cases that choose another one.
const RIGHT: i32 = 5;
const WRONG: i32 = 6;

/// The number of requests, and also of puts, that each rank sends to the next one.
const FLOOD: u32 = 3000;

/// Every rank floods the next one and meanwhile creates children, which try to use the network and
/// then end in every possible way. Each message must still arrive exactly once.
pub(super) fn children<M: Mode>() -> Result<()> {
    let (asked, answered) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut handlers = Handlers::<M>::new();
    let answer = handlers.any_mode().short({
        let answered = Arc::clone(&answered);
        move |_, (number,): (u32,)| {
            answered.fetch_add(number, Relaxed);
        }
    });
    let ask = handlers.any_mode().short({
        let asked = Arc::clone(&asked);
        move |call, (number,): (u32,)| {
            asked.fetch_add(number, Relaxed);
            // If the reply fails, the job ends, and the next call reports that.
            let _ = call.reply(answer, (number,));
        }
    });
    let conduit = attached(handlers)?;
    let next = (conduit.rank() + 1) % conduit.size();
    let at = conduit.rank() as usize * SHARE;
    let mut children = Vec::new();
    for number in 0..FLOOD {
        conduit.request(next, ask, (number,))?;
        conduit.put(next, at, &number.to_le_bytes())?;
        let turn = number.wrapping_sub(FLOOD / 10) / (FLOOD / 10);
        if number % (FLOOD / 10) == 0
            && let Some(end) = ENDS.get(turn as usize)
        {
            let child = fork()?;
            let Some(child) = child else {
                let code = match try_all(&conduit, next, ask) {
                    Ok(()) => RIGHT,
                    Err(error) => {
                        eprintln!("the child that {end} failed: {error:?}");
                        WRONG
                    }
                };
                end_as(conduit, end, code)
            };
            children.push((*end, child));
        }
    }
    for (end, child) in children {
        let ended = waitpid(Some(child), WaitOptions::empty())?;
        let status = ended.and_then(|(_, status)| status.exit_status());
        ensure!(status == Some(RIGHT), "a child that {end}: {ended:?}");
    }
    conduit.quiesce()?;
    let sum = FLOOD * (FLOOD - 1) / 2;
    let sums = [asked.load(Relaxed), answered.load(Relaxed)];
    ensure!(sums == [sum, sum], "{sums:?}, not twice {sum}");
    let mut last = [0; 4];
    conduit.get(&mut last, next, at)?;
    ensure!(u32::from_le_bytes(last) == FLOOD - 1, "{last:?}");
    Ok(conduit.finish()?)
}

/// Forks the process. Returns the child's process id in the rank, and `None` in the child.
fn fork() -> Result<Option<Pid>> {
    // SAFETY: the child may allocate, because glibc and musl permit that even if other threads of
    // the rank held the allocator's locks at the fork. The child takes no other lock that those
    // threads may have held.
    let child = unsafe { libc::fork() };
    match Pid::from_raw(child) {
        None if child == 0 => Ok(None),
        Some(child) if child.as_raw_pid() > 0 => Ok(Some(child)),
        _ => Err(std::io::Error::last_os_error()).context("fork"),
    }
}

/// Requires that every use of the network is refused with an error that names the fork.
fn try_all<M: Mode>(conduit: &Conduit<M>, next: u32, ask: Short<(u32,)>) -> Result<()> {
    let (rank, process) = (conduit.rank(), std::process::id());
    let named = format!(" on rank {rank}: process {process} is a child of rank {rank} (fork)");
    let refused = |call: &str, result: conduit::Result<()>| match result {
        Err(error) if error.to_string().starts_with(&format!("{call}{named}")) => Ok(()),
        Err(error) => bail!("{call}: {error}"),
        Ok(()) => bail!("{call} was not refused"),
    };
    let mut bytes = [0u8; 8];
    for to in [conduit.rank(), next] {
        refused("request", conduit.request(to, ask, (1,)))?;
        refused("put", conduit.put(to, 0, &bytes))?;
        refused("get", conduit.get(&mut bytes, to, 0))?;
        refused("atomic", conduit.atomic(to, 0, AtomicOp::Add, 1u64))?;
        refused(
            "Scope::put",
            conduit.scope(|scope| scope.put(to, 0, &bytes)),
        )?;
        refused("window", conduit.window(to).map(drop))?;
    }
    refused("Segment::get", conduit.segment().get(&mut 0u8, 0))?;
    refused("poll", conduit.poll())?;
    refused("wait_until", conduit.wait_until(|| false))?;
    refused("barrier", conduit.barrier())?;
    refused("barrier_notify", conduit.barrier_notify(None))?;
    refused("barrier_wait", conduit.barrier_wait(None))?;
    refused("barrier_try", conduit.barrier_try(None).map(drop))?;
    refused("quiesce", conduit.quiesce())
}

fn end_as<M: Mode>(conduit: Conduit<M>, end: &str, code: i32) -> ! {
    match end {
        "drops" => drop(conduit),
        "finishes" => {
            let finished = conduit.finish();
            std::process::exit(if finished.is_ok() { WRONG } else { code })
        }
        "exits" => std::process::exit(code),
        "ends the job" => conduit.exit(code),
        _ => {}
    }
    // SAFETY: `_exit` has no preconditions, and it ends only the child.
    unsafe { libc::_exit(code) }
}
