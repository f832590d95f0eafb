//! Programs that end their job in different ways.

use std::cell::OnceCell;
use std::io::{Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use conduit::threads::Mode;
use conduit::{Conduit, Handlers, Par, Seq};
use rustix::process::{Signal, getpid, kill_process};

use super::attached;

/// Rank 1 ends the job with the given code while rank 0 computes and the other ranks wait for it.
/// Rank 4 also waits for a reply.
pub(super) fn exit(code: &str) -> Result<()> {
    let code = code.parse().context("an exit code")?;
    let mut handlers = Handlers::<Seq>::new();
    let ignore = handlers.short(|_, ()| {});
    let conduit = attached(handlers)?;
    conduit.barrier()?;
    match conduit.rank() {
        1 => conduit.exit(code),
        0 => compute(),
        4 => {
            conduit.request(0, ignore, ())?;
            conduit.quiesce()?;
        }
        rank if rank % 2 == 0 => conduit.barrier()?,
        _ => conduit.wait_until(|| false)?,
    }
    Ok(())
}

/// Computes forever, without polling.
pub(super) fn compute() {
    let mut number = 1u64;
    while std::hint::black_box(number) != 0 {
        number = number.wrapping_mul(6_364_136_223_846_793_005) | 1;
    }
}

/// A request's handler, which runs on the waiting thread, ends the job with code 9.
pub(super) fn exit_in_handler<M: Mode>() -> Result<()> {
    thread_local! {
        static EXIT: OnceCell<Box<dyn Fn(i32)>> = const { OnceCell::new() };
    }
    let mut handlers = Handlers::<M>::new();
    let end = handlers.any_mode().short(|_, (code,): (i32,)| {
        EXIT.with(|exit| exit.get().map(|exit| exit(code)));
    });
    let conduit: &Conduit<M> = Box::leak(Box::new(attached(handlers)?));
    EXIT.with(|exit| exit.set(Box::new(|code| conduit.exit(code))).is_ok());
    conduit.barrier()?;
    if conduit.rank() == 0 {
        conduit.request(conduit.size() - 1, end, (9,))?;
    }
    conduit.wait_until(|| false)?;
    Ok(())
}

/// The connection to the launcher is closed before `finish` needs an answer over it.
pub(super) fn launcher_gone() -> Result<()> {
    let conduit = attached(Handlers::<Seq>::new())?;
    let number = std::env::var("PMI_FD")?.parse()?;
    // SAFETY: `number` is the descriptor of the launcher's socket, which this process keeps open
    // until it ends.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    let socket = UnixStream::from(socket.try_clone_to_owned()?);
    socket.shutdown(std::net::Shutdown::Read)?;
    Ok(conduit.finish()?)
}

/// Rank 1, or every rank, leaves without `finish`: it returns from `main` or calls `exit`. The
/// other ranks, if there are any, wait.
pub(super) fn leave(how: &str) -> Result<()> {
    let conduit = attached(Handlers::<Seq>::new())?;
    conduit.barrier()?;
    if conduit.rank() == 1 || how == "all" {
        if how == "exit" {
            std::process::exit(0);
        }
        return Ok(());
    }
    conduit.barrier()?;
    Ok(conduit.finish()?)
}

/// Each rank communicates with all others, sends its process id to the listener at the socket
/// `socket`, and then keeps running until that connection is closed.
pub(super) fn stay(socket: &str) -> Result<()> {
    let conduit = attached(Handlers::<Seq>::new())?;
    for peer in 0..conduit.size() {
        conduit.put(peer, 0, &[1u8; 64][..])?;
    }
    conduit.barrier()?;
    let mut socket = UnixStream::connect(socket)?;
    writeln!(socket, "{}", std::process::id())?;
    socket.read_to_end(&mut Vec::new())?;
    conduit.barrier()?;
    Ok(conduit.finish()?)
}

/// Rank 0 gets from and puts to rank 1, a megabyte at a time, while rank 2 is killed. When rank 0
/// gets the error, its buffers are overwritten by another owner (`reused`) or freed (`freed`). From
/// then on the network must neither write to that memory nor send bytes from it.
pub(super) fn killed_meanwhile(how: &str) -> Result<()> {
    const BYTES: usize = 1 << 20;
    /// The number of rounds, each a get and a put, before rank 2 is killed.
    const ROUNDS: u32 = 3;
    /// The byte that the memory's next owner writes.
    const OTHERS: u8 = 0xA5;
    /// How long rank 0 watches its memory for late messages.
    const WHILE: Duration = Duration::from_secs(1);
    /// How long rank 1 keeps receiving. A death is noticed after about a second.
    const ALL: Duration = Duration::from_secs(4);
    static SOON: AtomicBool = AtomicBool::new(false);
    /// Whether rank 1 has left the barrier. It can't leave the barrier before rank 2 has entered
    /// it.
    static READY: AtomicBool = AtomicBool::new(false);
    let mut handlers = Handlers::<Seq>::new();
    let ready = handlers.short(|_, ()| READY.store(true, Relaxed));
    let soon = handlers.short(|_, ()| SOON.store(true, Relaxed));
    let die = handlers.short(|_, ()| {
        // The call doesn't return, because the signal kills this process.
        let _ = kill_process(getpid(), Signal::KILL);
    });
    let conduit = conduit::start()?.attach(handlers, 2 * BYTES)?;
    conduit.barrier()?;
    match conduit.rank() {
        0 => {
            let mut rounds = 0;
            let (mut source, mut destination) = (vec![1_u8; BYTES], vec![0_u8; BYTES]);
            let error = loop {
                // Only the first call waits. On a busy system, a rank may also be given up during
                // that wait.
                if let Err(error) = conduit.wait_until(|| READY.load(Relaxed)) {
                    break error;
                }
                let moved = conduit.scope(|scope| {
                    scope.get(&mut destination[..], 1, 0)?;
                    scope.put(1, BYTES, &source[..])?;
                    if rounds == ROUNDS {
                        conduit.request(1, soon, ())?;
                        conduit.request(2, die, ())?;
                    }
                    Ok(())
                });
                if let Err(error) = moved {
                    break error;
                }
                rounds += 1;
            };
            if how == "freed" {
                (source, destination) = (Vec::new(), Vec::new());
            }
            source.fill(OTHERS);
            destination.fill(OTHERS);
            let others = [source, destination, vec![OTHERS; BYTES]];
            let failed = Instant::now();
            while failed.elapsed() < WHILE {
                // The call returns the same error again, so its result is ignored.
                let _ = conduit.poll();
            }
            drop(conduit);
            ensure!(
                others.iter().flatten().all(|byte| *byte == OTHERS),
                "the memory in the buffers' place was changed after: {error}"
            );
            println!("left alone after: {error}");
        }
        1 => {
            // On a busy system, rank 0 may have been given up, so both calls may fail.
            let _ = conduit.request(0, ready, ());
            let _ = conduit.wait_until(|| SOON.load(Relaxed));
            let soon = Instant::now();
            while soon.elapsed() < ALL {
                let _ = conduit.poll();
            }
            let mut bytes = vec![0_u8; BYTES];
            let base = conduit.segment().as_ptr().wrapping_add(BYTES);
            // SAFETY: the source is the second half of this rank's segment, which is valid for
            // `BYTES` bytes.
            unsafe { base.copy_to(bytes.as_mut_ptr(), BYTES) };
            ensure!(
                !bytes.contains(&OTHERS),
                "bytes written by the memory's next owner were sent"
            );
            println!("got nothing of others");
        }
        _ => conduit.wait_until(|| false)?,
    }
    Ok(())
}

/// A handler panics, either on the main thread or on one of several threads.
pub(super) fn panic_in_handler(who: &str) -> Result<()> {
    let mut handlers = Handlers::<Par>::new();
    let panics = handlers.short(|_, ()| panic!("a handler's last words"));
    let conduit = attached(handlers)?;
    conduit.barrier()?;
    if conduit.rank() == 0 {
        conduit.request(1, panics, ())?;
    }
    if who == "threads" {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                // One of the threads runs the panicking handler. All of them wait for a condition
                // that never becomes true.
                scope.spawn(|| {
                    if let Err(error) = conduit.wait_until(|| false) {
                        conduit::stderr::write_line(error);
                    }
                });
            }
        });
    }
    conduit.wait_until(|| false)?;
    Ok(())
}

/// All ranks finish and then exit with this code.
pub(super) fn exit_after_finish(code: &str) -> Result<()> {
    let conduit = attached(Handlers::<Seq>::new())?;
    conduit.finish()?;
    conduit.exit(code.parse()?)
}

/// Rank 1 ends the job as soon as it has attached, while other ranks may still be attaching.
pub(super) fn exit_at_once(code: &str) -> Result<()> {
    let conduit = attached(Handlers::<Seq>::new())?;
    if conduit.rank() == 1 {
        conduit.exit(code.parse()?);
    }
    conduit.wait_until(|| false)?;
    Ok(())
}
