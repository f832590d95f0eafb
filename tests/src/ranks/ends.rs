//! How jobs end.

use std::sync::OnceLock;

use anyhow::{Context, Result};
use conduit::{Conduit, Handlers, Par, Seq};

use super::attached;

/// Rank 1 ends the job with the code given, while rank 0 computes and the others wait for it.
pub(super) fn exit(code: &str) -> Result<()> {
    let code = code.parse().context("an exit code")?;
    let conduit = attached(Handlers::<Seq>::new())?;
    conduit.barrier()?;
    match conduit.rank() {
        1 => conduit.exit(code),
        0 => compute(),
        rank if rank % 2 == 0 => conduit.barrier()?,
        _ => conduit.wait_until(|| false)?,
    }
    Ok(())
}

/// Never polls again.
fn compute() {
    let mut number = 1u64;
    while std::hint::black_box(number) != 0 {
        number = number.wrapping_mul(6_364_136_223_846_793_005) | 1;
    }
}

/// A request makes its handler end the job with code 9.
pub(super) fn exit_in_handler() -> Result<()> {
    static CONDUIT: OnceLock<Conduit<Par>> = OnceLock::new();
    let mut handlers = Handlers::<Par>::new();
    let end = handlers.short(|_, (code,): (i32,)| {
        if let Some(conduit) = CONDUIT.get() {
            conduit.exit(code);
        }
    });
    let conduit =
        CONDUIT.get_or_init(|| attached(handlers).unwrap_or_else(|error| panic!("start: {error}")));
    conduit.barrier()?;
    if conduit.rank() == 0 {
        conduit.request(conduit.size() - 1, end, (9,))?;
    }
    conduit.wait_until(|| false)?;
    Ok(())
}

/// Rank 1, or all, leave without a word: by returning from `main`, or by `exit`. The others wait for it.
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

/// A handler panics: on the main thread, or on one of several.
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
                // One of them meets the panic; all wait for what never comes.
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
