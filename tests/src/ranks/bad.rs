//! Programs that make invalid calls and check the errors.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use anyhow::{Context, Result, ensure};
use conduit::threads::Mode;
use conduit::{AtomicOp, Conduit, Error, Handlers, Par, ReduceOp, Seq, Short};

use super::{SHARE, attached};

/// Requires that the result is an error whose text contains all of these words.
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, words: &[&str]) -> Result<()> {
    let error = match result {
        Err(error) => error.to_string(),
        Ok(value) => anyhow::bail!("not refused: {value:?} (expected: {words:?})"),
    };
    for word in words {
        ensure!(error.contains(word), "no {word:?} in {error:?}");
    }
    Ok(())
}

/// Requires that a rank's call is refused, with an error that begins with the names of the call and
/// of the calling rank.
macro_rules! refused {
    ($rank:ident.$call:ident$(::<$of:ty>)?($($argument:expr),* $(,)?), $words:expr $(,)?) => {{
        let begins = format!("{} on rank {}: ", stringify!($call), $rank.rank());
        let result = $rank.$call$(::<$of>)?($($argument),*);
        let begin = result.as_ref().err().map(|error| error.to_string());
        ensure!(begin.as_ref().is_none_or(|text| text.starts_with(&begins)), "{begins}: {begin:?}");
        refused(result, $words)
    }};
}

/// Makes calls with invalid arguments. The job continues after each of them.
pub(super) fn calls() -> Result<()> {
    let mut handlers = Handlers::<Seq>::new();
    let short = handlers.short(|_, ()| {});
    let medium = handlers.medium(|_, (), _: &[u8]| {});
    let long = handlers.long(|_, (), _| {});
    let conduit = attached(handlers)?;
    let (rank, size) = (conduit.rank(), conduit.size());
    let nobody = size.to_string();
    let len = conduit.segment_len(rank)?;
    let end = len.to_string();

    for wrong in [size, u32::MAX] {
        let name = wrong.to_string();
        let words = ["rank", name.as_str(), nobody.as_str()];
        refused!(conduit.put(wrong, 0, &1u8), &words)?;
        refused!(conduit.get(&mut 1u8, wrong, 0), &words)?;
        refused!(conduit.put_nb(wrong, 0, &1u8), &words)?;
        refused!(conduit.put_nbi(wrong, 0, &1u8), &words)?;
        refused!(conduit.memset(wrong, 0, 0, 1), &words)?;
        refused!(conduit.put_value(wrong, 0, 0, 1), &words)?;
        refused!(conduit.get_value(wrong, 0, 1), &words)?;
        refused!(conduit.atomic(wrong, 0, AtomicOp::Add, 1u64), &words)?;
        refused!(conduit.request(wrong, short, ()), &words)?;
        refused!(conduit.request_medium(wrong, medium, (), &[]), &words)?;
        refused!(conduit.request_long(wrong, long, (), &[0u8; 0], 0), &words)?;
        refused!(conduit.prepare_medium(wrong, 0, 1), &words)?;
        refused!(conduit.send_credits(wrong), &words)?;
        refused!(conduit.credit_stalls(wrong), &words)?;
        refused!(conduit.revoked_credits(wrong), &words)?;
        refused!(conduit.segment_len(wrong), &words)?;
        refused!(conduit.window(wrong), &words)?;
        refused!(conduit.max_long_reply(wrong), &words)?;
        refused!(conduit.max_long_request(wrong), &words)?;
        refused!(conduit.put_nb_immediate(wrong, 0, &1u8), &words)?;
        refused!(conduit.put_value_nb(wrong, 0, 0, 1), &words)?;
        refused!(conduit.put_value_nbi(wrong, 0, 0, 1), &words)?;
        refused!(conduit.memset_nb(wrong, 0, 0, 1), &words)?;
        refused!(conduit.memset_nbi(wrong, 0, 0, 1), &words)?;
        refused!(
            conduit.put_signal(wrong, 0, &1u8, 0, AtomicOp::Add, 1u64),
            &words
        )?;
        refused!(conduit.atomic_fetch(wrong, 0, AtomicOp::Add, 1u64), &words)?;
        refused!(conduit.atomic_get::<u64>(wrong, 0), &words)?;
        refused!(conduit.atomic_nb(wrong, 0, AtomicOp::Add, 1u64), &words)?;
        refused!(conduit.compare_swap(wrong, 0, 1u64, 2), &words)?;
        refused!(conduit.try_request(wrong, short, ()), &words)?;
        refused!(conduit.try_request_medium(wrong, medium, (), &[]), &words)?;
        refused!(conduit.try_prepare_medium(wrong, 0, 1), &words)?;
        refused!(conduit.broadcast(wrong, &mut 1u8), &words)?;
        refused!(conduit.reduce(wrong, ReduceOp::Add, &mut [1u64]), &words)?;
        refused!(conduit.segment_address(wrong), &words)?;
        refused!(conduit.host_of(wrong), &words)?;
        refused!(conduit.neighbourhood_of(wrong), &words)?;
        refused!(conduit.lent_credits(wrong), &words)?;
    }
    for to in 0..size {
        for offset in [len, len - 7, len + 1, usize::MAX, usize::MAX - 7] {
            let at = offset.to_string();
            let words = ["segment", &at, &end];
            refused!(conduit.put(to, offset, &1u64), &words)?;
            refused!(conduit.get(&mut 1u64, to, offset), &words)?;
            refused!(conduit.put_nb(to, offset, &1u64), &words)?;
            refused!(conduit.put_nbi(to, offset, &1u64), &words)?;
            refused!(conduit.put_value_nb(to, offset, 1, 8), &words)?;
            refused!(conduit.memset_nb(to, offset, 0, 8), &words)?;
            refused!(
                conduit.atomic_fetch(to, offset, AtomicOp::Add, 1u64),
                &words,
            )?;
            refused!(
                conduit.request_long(to, long, (), &[0u8; 8], offset),
                &words,
            )?;
        }
        refused!(conduit.memset(to, 1, 0, usize::MAX), &["segment"])?;
        refused!(
            conduit.memset(to, len, 0, usize::MAX - len + 1),
            &["segment"],
        )?;
        refused!(
            conduit.atomic(to, 4, AtomicOp::Add, 1u64),
            &["multiple of 8"],
        )?;
        refused!(
            conduit.atomic(to, 2, AtomicOp::Add, 1u32),
            &["multiple of 4"],
        )?;
        for bytes in [0, 9, usize::MAX] {
            refused!(conduit.put_value(to, 0, 0, bytes), &["1 to 8"])?;
            refused!(conduit.get_value(to, 0, bytes), &["1 to 8"])?;
        }
        let most = conduit.max_medium();
        let limit = most.to_string();
        let long_one = vec![0; most + 200];
        refused!(
            conduit.request_medium(to, medium, (), &long_one),
            &["payload"],
        )?;
        refused!(
            conduit.prepare_medium(to, most + 1, most + 1),
            &["payload", &limit],
        )?;
        let prepared = conduit.prepare_medium(to, 1, 10)?;
        refused(prepared.commit(medium, (), 11), &["payload", "10"])?;
    }
    let own = conduit.segment();
    // SAFETY: every call in this block is refused, so no slice is created.
    unsafe {
        refused(own.slice::<u64>(4, 1), &["aligned"])?;
        refused(own.slice::<u64>(0, usize::MAX), &["segment"])?;
        refused(own.slice::<u8>(usize::MAX, 1), &["segment"])?;
    }
    for offset in [len, len - 7, usize::MAX] {
        refused(own.get(&mut 1u64, offset), &["Segment::get", &end])?;
        refused(own.put(offset, &1u64), &["Segment::put", &end])?;
    }
    refused(own.atomic(len, AtomicOp::Add, 1u64), &["segment", &end])?;
    refused(
        own.atomic_get::<u64>(4),
        &["Segment::atomic_get", "multiple of 8"],
    )?;
    refused!(conduit.end_region(), &["region"])?;
    // The refused calls above have not disturbed the job: valid calls still succeed.
    conduit.put(0, rank as usize * SHARE, &1u64)?;
    conduit.barrier()?;
    Ok(conduit.finish()?)
}

/// Registers a second handler on rank 1 that differs from the other ranks' second handler. `what`
/// selects the difference.
pub(super) fn handlers_differ(what: &str) -> Result<()> {
    let job = conduit::start()?;
    let mut handlers = Handlers::<Seq>::new();
    handlers.named("first").short(|_, ()| {});
    match (job.rank() == 1, what) {
        (false, _) => drop(
            handlers
                .named("add")
                .medium(|_, (_,): (u64,), _: &[u32]| {}),
        ),
        (true, "id") => drop(
            handlers
                .named("add")
                .next_id(200)
                .medium(|_, (_,): (u64,), _: &[u32]| {}),
        ),
        (true, "name") => drop(
            handlers
                .named("sum")
                .medium(|_, (_,): (u64,), _: &[u32]| {}),
        ),
        (true, "kind") => drop(handlers.named("add").short(|_, (_,): (u64,)| {})),
        // The handlers take different arguments that occupy the same number of words.
        (true, "arguments") => drop(
            handlers
                .named("add")
                .medium(|_, (_,): (i64,), _: &[u32]| {}),
        ),
        (true, "payload") => drop(
            handlers
                .named("add")
                .medium(|_, (_,): (u64,), _: &[i32]| {}),
        ),
        (true, "number") => {}
        (true, other) => anyhow::bail!("unknown difference {other}"),
    }
    job.attach(handlers, 0)?;
    Ok(())
}

/// Attaches a segment larger than the maximum, either on all ranks or only on the last one.
pub(super) fn too_large(who: &str) -> Result<()> {
    let job = conduit::start()?;
    let most = job.max_segment();
    let too_large = job.rank() == job.size() - 1 || who == "all";
    let bytes = match (too_large, job.settings().job.max_segment) {
        (false, _) => 4096,
        // This is the largest segment that the setting allows.
        (true, Some(_)) => most,
        (true, None) => most + 1,
    };
    job.attach(Handlers::<Seq>::new(), bytes)
        .context("the segment must be refused")?;
    Ok(())
}

/// Attaches the largest possible segment and touches every page of it.
pub(super) fn largest() -> Result<()> {
    let job = conduit::start()?;
    let bytes = job.max_segment();
    let conduit = job.attach(Handlers::<Seq>::new(), bytes)?;
    let piece = vec![1_u8; 1 << 20];
    for start in (0..bytes).step_by(piece.len()) {
        let length = piece.len().min(bytes - start);
        conduit.put(conduit.rank(), start, &piece[..length])?;
    }
    println!("{bytes}");
    conduit.barrier()?;
    Ok(conduit.finish()?)
}

/// Starts a second job in the same process.
pub(super) fn start_twice() -> Result<()> {
    let conduit = attached(Handlers::<Seq>::new())?;
    refused(conduit::start(), &["start"])?;
    conduit.barrier()?;
    Ok(conduit.finish()?)
}

/// A call to make within a handler, on the thread that polls.
type Act = Box<dyn Fn() -> Result<(), Error>>;

thread_local! {
    static ACT: RefCell<Option<Act>> = const { RefCell::new(None) };
}

/// Makes a call that polls or may wait.
fn wait_in<M: Mode>(what: &str, conduit: &Conduit<M>, ignore: Short<()>) -> conduit::Result<()> {
    let right = (conduit.rank() + 1) % conduit.size();
    match what {
        "poll" => conduit.poll(),
        "wait" => conduit.wait_until(|| false),
        "barrier" => conduit.barrier(),
        "quiesce" => conduit.quiesce(),
        "get" => conduit.get(&mut [0u8; SHARE][..], right, 0),
        "flood" => loop {
            conduit.request(right, ignore, ())?;
        },
        other => panic!("unknown call {other}"),
    }
}

/// Makes a call that would poll or wait from within a handler, and returns the call's error. `what`
/// is `call:request` or `call:reply`, where the second word names the kind of handler.
pub(super) fn refused_in_handler<M: Mode>(what: &str) -> Result<()> {
    let (what, place) = what.split_once(':').context("what:place")?;
    let (said, in_reply) = (Arc::new(OnceLock::new()), place == "reply");
    let act = {
        let said = said.clone();
        move || {
            let result = ACT.with_borrow(|act| act.as_ref().map_or(Ok(()), |act| act()));
            let _ = said.set(result.map_err(|error| error.to_string()));
        }
    };
    let mut handlers = Handlers::<M>::new();
    let ignore = handlers.any_mode().short(|_, ()| {});
    let reply = handlers.any_mode().short({
        let act = act.clone();
        move |_, ()| act()
    });
    let request = handlers.any_mode().short(move |call, ()| match in_reply {
        true => call.reply(reply, ()).expect("the first reply"),
        false => act(),
    });
    let conduit: &Conduit<M> = Box::leak(Box::new(attached(handlers)?));
    let right = (conduit.rank() + 1) % conduit.size();
    let what = what.to_owned();
    let act: Act = Box::new(move || wait_in(&what, conduit, ignore));
    ACT.set(Some(act));
    conduit.barrier()?;
    conduit.request(right, request, ())?;
    conduit.wait_until(|| said.get().is_some())?;
    if let Some(Err(said)) = said.get() {
        anyhow::bail!("{said}");
    }
    Ok(conduit.finish()?)
}

/// Makes a call that polls or waits while a payload is prepared, and returns the call's error.
pub(super) fn refused_while_prepared<M: Mode>(what: &str) -> Result<()> {
    let mut handlers = Handlers::<M>::new();
    let ignore = handlers.any_mode().short(|_, ()| {});
    let conduit = attached(handlers)?;
    conduit.barrier()?;
    let prepared = conduit.prepare_medium(conduit.rank(), 1, 1)?;
    wait_in(what, &conduit, ignore)?;
    drop(prepared);
    Ok(conduit.finish()?)
}

/// Makes the calls that are forbidden in handlers from within handlers.
pub(super) fn in_handlers() -> Result<()> {
    static CONDUIT: OnceLock<Conduit<Par>> = OnceLock::new();
    let mut handlers = Handlers::<Par>::new();
    let tried = Arc::new(AtomicU32::new(0));
    let wrong = Arc::new(OnceLock::new());
    let reply = handlers.short(|_, ()| {});
    let request = handlers.short({
        let (tried, wrong) = (tried.clone(), wrong.clone());
        move |call, ()| {
            let Some(conduit) = CONDUIT.get() else { return };
            let handler = ["handler"];
            let all = [
                refused(conduit.request(0, reply, ()), &handler),
                refused(conduit.poll(), &handler),
                refused(conduit.barrier(), &handler),
                refused(conduit.wait_until(|| false), &handler),
                refused(conduit.prepare_medium(0, 0, 1), &handler),
                refused(conduit.put(0, 0, &1u8), &handler),
                refused(conduit.put_nb(0, 0, &1u8), &handler),
                refused(conduit.get(&mut 1u8, 0, 0), &handler),
                refused(conduit.memset(0, 0, 1, 1), &handler),
                refused(conduit.atomic(0, 0, AtomicOp::Add, 1u64), &handler),
                call.reply(reply, ()).map_err(Into::into),
                refused(call.reply(reply, ()), &["repl"]),
            ];
            if let Err(error) = all.into_iter().collect::<Result<()>>() {
                let _ = wrong.set(error.to_string());
            }
            tried.fetch_add(1, Relaxed);
        }
    });
    let conduit =
        CONDUIT.get_or_init(|| attached(handlers).unwrap_or_else(|error| panic!("start: {error}")));
    conduit.barrier()?;
    for to in 0..conduit.size() {
        conduit.request(to, request, ())?;
    }
    conduit.wait_until(|| tried.load(Relaxed) == conduit.size())?;
    ensure!(wrong.get().is_none(), "{wrong:?}");
    conduit.barrier()?;
    Ok(())
}
