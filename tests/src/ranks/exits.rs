//! Every way in which the last rank can end, in every phase of a job: `exits WHEN HOW`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Context, Result, bail};
use conduit::{Conduit, Handlers, Par};
use rustix::process::{Signal, getpid, kill_process};

/// The phases of a job. The last rank ends when the others are in that phase.
pub const WHEN: [&str; 7] = [
    // The others wait for the last rank in their start.
    "start", // The same in attach.
    "attach", "barrier", // All ranks send shorts to all.
    "flood",
    // Rank 0 is in a handler that does not return; the others are in a barrier.
    "handler", // Rank 0 does not poll; the others are in a barrier.
    "compute", "finish",
];

/// The ways in which a rank ends, with the exit code of the job.
pub const HOW: [(&str, i32); 13] = [
    ("exit", CODE),
    // `exit` on another thread, while the main thread is in a barrier.
    ("exit_on_thread", CODE),
    // `exit` in a handler that another rank's request runs.
    ("exit_in_handler", CODE),
    ("panic", 101),
    // The other ranks have to be ended, because a rank has left them.
    ("return", 1),
    ("process_exit", CODE),
    ("_exit", CODE),
    ("abort", 128 + 6),
    ("SIGHUP", 128 + 1),
    ("SIGINT", 128 + 2),
    ("SIGKILL", 128 + 9),
    ("SIGSEGV", 128 + 11),
    ("SIGTERM", 128 + 15),
];

/// The exit code of ranks that choose one.
const CODE: i32 = 7;
/// The number of shorts of a flood, after which the last rank ends.
const FLOOD: u32 = 1000;

/// The job, for handlers and threads.
static CONDUIT: OnceLock<Conduit<Par>> = OnceLock::new();
/// Whether a short of the flood has arrived.
static ARRIVED: AtomicBool = AtomicBool::new(false);
/// Whether rank 0 is in the handler that does not return.
static STUCK: AtomicBool = AtomicBool::new(false);

/// Returns whether a rank can end in this way in this phase: a way of Conduit's needs a rank that
/// has attached.
pub fn is_possible(when: &str, how: &str) -> bool {
    let needs = match how {
        "exit_on_thread" | "exit_in_handler" => ["start", "attach"].contains(&when),
        "exit" => when == "start",
        _ => false,
    };
    !needs
}

/// Runs the program.
pub(super) fn exits(when: &str, how: &str) -> Result<()> {
    // The launcher states the rank to a process that has not joined.
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if when == "start" && number("PMI_RANK").map(|rank| rank + 1) == number("PMI_SIZE") {
        return leave(how, None);
    }
    let mut handlers = Handlers::<Par>::new();
    let arrive = handlers.short(|_, ()| ARRIVED.store(true, Relaxed));
    let end = handlers.short(|_, ()| {
        if let Some(conduit) = CONDUIT.get() {
            conduit.exit(CODE);
        }
    });
    let tell = handlers.short(|_, ()| STUCK.store(true, Relaxed));
    let stick = handlers.short(move |call, ()| {
        // An error of the reply ends the job too.
        let _ = call.reply(tell, ());
        compute();
    });
    let job = conduit::start_as::<Par>()?;
    let last = job.rank() + 1 == job.size();
    if when == "attach" && last {
        match how {
            "exit" => job.exit(CODE),
            how => return leave(how, None),
        }
    }
    let conduit = job.attach(handlers, 4096)?;
    let conduit = CONDUIT.get_or_init(|| conduit);
    let (rank, size) = (conduit.rank(), conduit.size());
    let ends_last = how == "exit_in_handler" && rank == size - 2;
    conduit.barrier()?;
    match when {
        "flood" => {
            for number in 0..if last { FLOOD } else { u32::MAX } {
                conduit.request(number % size, arrive, ())?;
                if number == FLOOD && ends_last {
                    conduit.request(size - 1, end, ())?;
                }
            }
        }
        "handler" if last => {
            conduit.request(0, stick, ())?;
            conduit.wait_until(|| STUCK.load(Relaxed))?;
        }
        "compute" if rank == 0 => compute(),
        _ => {}
    }
    if ends_last {
        conduit.request(size - 1, end, ())?;
    }
    if last {
        return leave(how, Some(conduit));
    }
    match when {
        "finish" => conduit.finish()?,
        _ => conduit.barrier()?,
    }
    bail!("the job continues without its last rank")
}

/// Neither polls nor returns.
fn compute() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

/// Ends this process.
fn leave(how: &str, conduit: Option<&'static Conduit<Par>>) -> Result<()> {
    let attached = || conduit.context("a job that has attached");
    match how {
        "exit" => attached()?.exit(CODE),
        "exit_on_thread" => {
            let conduit = attached()?;
            std::thread::spawn(move || conduit.exit(CODE));
            conduit.wait_until(|| false)?;
        }
        "exit_in_handler" => attached()?.wait_until(|| false)?,
        "panic" => panic!("a rank's last words"),
        "return" => {}
        "process_exit" => std::process::exit(CODE),
        // SAFETY: `_exit` has no preconditions.
        "_exit" => unsafe { libc::_exit(CODE) },
        "abort" => std::process::abort(),
        name => {
            let signal = match name {
                "SIGHUP" => Signal::HUP,
                "SIGINT" => Signal::INT,
                "SIGKILL" => Signal::KILL,
                "SIGSEGV" => Signal::SEGV,
                "SIGTERM" => Signal::TERM,
                _ => bail!("{name} is no way to end"),
            };
            // Rust's runtime handles the first SIGSEGV, and restores its default action.
            loop {
                kill_process(getpid(), signal)?;
            }
        }
    }
    Ok(())
}
