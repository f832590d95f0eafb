//! Programs whose ranks wait in vain, because of mismatched barrier calls or a stopped rank.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use anyhow::{Result, bail, ensure};
use conduit::{AtomicOp, Conduit, Error, Handlers, Par, Seq, stderr, threads::Mode};
use rustix::process::{Signal, getpid, kill_process};

use super::ends::compute;
use super::{SHARE, attached};

/// Rank 0 makes one call and the other ranks make another. `calls` names the two, as in
/// `barrier:finish`. All ranks get an error. Unless one of the calls is `finish`, the job continues
/// normally.
pub(super) fn meet<M: Mode>(calls: &str) -> Result<()> {
    let Some((first, second)) = calls.split_once(':') else {
        bail!("not two calls: {calls}");
    };
    let conduit = attached(Handlers::<M>::new())?;
    conduit.quiesce()?;
    let (rank, call) = match conduit.rank() {
        0 => (0, first),
        rank => (rank, second),
    };
    if call == "finish" {
        tell(rank, conduit.finish());
        forever();
    }
    let met = match call {
        "barrier" => conduit.barrier(),
        "barrier_named" => conduit.barrier_named(7),
        "split" => conduit
            .barrier_notify(None)
            .and_then(|()| conduit.barrier_wait(None)),
        "quiesce" => conduit.quiesce(),
        other => bail!("unknown call {other}"),
    };
    ensure!(
        matches!(&met, Err(Error::BarrierMismatch { .. })),
        "{call}: {met:?}"
    );
    tell(rank, met);
    if first == "finish" || second == "finish" {
        forever();
    }
    conduit.barrier_notify(None)?;
    let between = conduit.quiesce();
    ensure!(
        between.is_err(),
        "quiesce succeeded between notify and wait"
    );
    stderr::write_line(format_args!("between: {between:?}"));
    conduit.barrier_wait(None)?;
    conduit.barrier()?;
    conduit.quiesce()?;
    Ok(conduit.finish()?)
}

fn tell(rank: u32, result: conduit::Result<()>) {
    stderr::write_line(format_args!("met on {rank}: {result:?}"));
}

fn forever() -> ! {
    loop {
        std::thread::park();
    }
}

/// The last rank stops making calls, by computing or by stopping its process, while the others wait
/// for it in a call. Before that, each rank prints a line.
pub(super) fn wait<M: Mode>(call: &str) -> Result<()> {
    let mut handlers = Handlers::<M>::new();
    let ignore = handlers.any_mode().short(|_, ()| {});
    if call == "attach" {
        let job = conduit::start_as::<M>()?;
        if job.rank() + 1 == job.size() {
            stderr::write_line("ready");
            compute();
        }
        stderr::write_line("ready");
        job.attach(handlers, SHARE)?;
        bail!("attached");
    }
    let conduit = attached(handlers)?;
    let last = conduit.size() - 1;
    conduit.barrier()?;
    stderr::write_line("ready");
    if conduit.rank() == last {
        if ["get", "handle", "atomic", "compare_swap", "wait_puts"].contains(&call) {
            // A thread of the network may serve a rank that computes, so this rank stops its
            // process.
            kill_process(getpid(), Signal::STOP)?;
        }
        compute();
    }
    let mut bytes = [0_u8; 8];
    // Repeats the call, because the last rank may have served some calls before it stopped.
    loop {
        match call {
            "get" => conduit.get(&mut bytes[..], last, 0)?,
            "handle" => conduit.scope(|scope| scope.get(&mut bytes[..], last, 0))?,
            "atomic" => drop(conduit.atomic_get::<u64>(last, 0)?),
            "compare_swap" => drop(conduit.compare_swap(last, 0, 1u64, 2)?),
            "wait_puts" => {
                conduit.put_nbi(last, 0, &bytes[..])?;
                conduit.wait_puts()?;
            }
            "put_signal" => conduit.put_signal(last, 0, &1u8, 8, AtomicOp::Add, 1u64)?,
            "barrier" => conduit.barrier()?,
            "broadcast" => conduit.broadcast(last, &mut bytes[..])?,
            "quiesce" => {
                conduit.request(last, ignore, ())?;
                conduit.quiesce()?;
            }
            "finish" => return Ok(conduit.finish()?),
            "request" => conduit.request(last, ignore, ())?,
            "wait_until" => conduit.wait_until(|| false)?,
            "poll" => conduit.poll()?,
            other => bail!("unknown call {other}"),
        }
    }
}

/// Rank 0 waits in a barrier for the last rank, which sleeps. Meanwhile the other ranks keep
/// sending to rank 0.
pub(super) fn wait_in_traffic() -> Result<()> {
    let mut handlers = Handlers::<Seq>::new();
    let ignore = handlers.short(|_, ()| {});
    let conduit = attached(handlers)?;
    conduit.barrier()?;
    stderr::write_line("ready");
    if conduit.rank() == 0 {
        conduit.barrier()?;
        bail!("the barrier ended");
    }
    if conduit.rank() + 1 == conduit.size() {
        forever();
    }
    loop {
        conduit.request(0, ignore, ())?;
    }
}

/// Two threads of each rank wait, each for a condition of its own.
pub(super) fn wait_threads() -> Result<()> {
    static ENDED: AtomicU32 = AtomicU32::new(0);
    let conduit = &attached(Handlers::<Par>::new())?;
    let wait = |wait: fn(&Conduit<Par>) -> conduit::Result<()>| {
        let ended = wait(conduit);
        ENDED.fetch_add(1, Relaxed);
        ended
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| wait(|conduit| conduit.wait_until(|| ENDED.load(Relaxed) > 0)));
        if conduit.rank() + 1 == conduit.size() {
            compute();
        }
        wait(|conduit| conduit.barrier())?;
        other.join().unwrap_or(Ok(()))
    })?;
    bail!("no thread waits any more");
}
