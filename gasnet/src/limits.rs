//! Limits of active messages.

use std::ffi::{c_uint, c_void};

use am::limits;
use conduit::Rank;
use conduit::settings::{Groups as _, Settings};

use crate::abi::{self, Flags};
use crate::fault::fatal;
use crate::handlers::token;
use crate::job::{Job, TheEngine};
use crate::prepared::own_buffer_limit;
use crate::team::team_rank;

/// Returns the largest number of arguments of an active message.
#[unsafe(no_mangle)]
extern "C" fn gex_AM_MaxArgs() -> c_uint {
    am::MAX_ARGS as c_uint
}

/// Returns the largest medium in bytes, request or reply, to any rank, with any argument count and
/// options.
fn medium(call: &str) -> usize {
    // The limit at the largest argument count: clients can rely on a limit that is the same for all
    // counts.
    match Job::get() {
        Some(job) => job.engine().messages().max_medium(am::MAX_ARGS),
        None => limits::max_medium(chunk_to_be(call), am::MAX_ARGS),
    }
}

/// Returns the chunk size of the job that this process is going to join. Clients also ask for the
/// limits to any rank before init, because they are constants in most GASNet conduits. Settings
/// that init would refuse end the process.
fn chunk_to_be(call: &str) -> usize {
    match Settings::from_env() {
        Ok((settings, _)) => settings.engine.chunk,
        Err(error) => fatal(call, &error),
    }
}

/// Returns the largest long reply in bytes to any rank. Before init, returns the limit for a rank
/// whose memory is not mapped.
fn long_reply(call: &str) -> usize {
    let Some(job) = Job::get() else {
        return limits::max_packed_long(chunk_to_be(call), am::MAX_ARGS);
    };
    let engine = job.engine();
    (0..engine.size())
        .map(|rank| engine.messages().max_long_reply(rank))
        .min()
        .unwrap_or(0)
}

fn long_request() -> usize {
    match Job::get() {
        Some(job) => job.engine().messages().max_long_request(job.rank()),
        None => limits::MAX_LONG,
    }
}

/// Returns the largest medium request in bytes to any rank.
#[unsafe(no_mangle)]
extern "C" fn gex_AM_LUBRequestMedium() -> usize {
    medium("gex_AM_LUBRequestMedium")
}

/// Returns the largest medium reply in bytes to any rank.
#[unsafe(no_mangle)]
extern "C" fn gex_AM_LUBReplyMedium() -> usize {
    medium("gex_AM_LUBReplyMedium")
}

/// Returns the largest long request in bytes to any rank.
#[unsafe(no_mangle)]
extern "C" fn gex_AM_LUBRequestLong() -> usize {
    long_request()
}

/// Returns the largest long reply in bytes to any rank.
#[unsafe(no_mangle)]
extern "C" fn gex_AM_LUBReplyLong() -> usize {
    long_reply("gex_AM_LUBReplyLong")
}

/// Returns the engine and the job's rank, for the limit to a rank of a team, or to any rank if it
/// is `GEX_RANK_INVALID`.
fn engine_for(call: &str, team: *const c_void, rank: Rank) -> (&'static TheEngine, Option<Rank>) {
    let first = if rank == abi::NO_RANK { 0 } else { rank };
    let first = team_rank(call, team, first);
    let engine = Job::of(call).engine();
    (engine, (rank != abi::NO_RANK).then_some(first))
}

/// Reduces a long's limit for a payload to be prepared in a buffer of the library, which is
/// smaller.
fn prepared(engine: &TheEngine, long: usize, flags: Flags) -> usize {
    if flags.contains(Flags::PREPARE_LEAST_ALLOC) {
        own_buffer_limit(engine, long)
    } else {
        long
    }
}

/// Returns the largest medium request in bytes, the same for all ranks, counts and options.
#[unsafe(no_mangle)]
extern "C" fn gex_AM_MaxRequestMedium(
    team: *const c_void,
    rank: Rank,
    _local: *const c_void,
    _flags: Flags,
    _nargs: c_uint,
) -> usize {
    const CALL: &str = "gex_AM_MaxRequestMedium";
    engine_for(CALL, team, rank);
    medium(CALL)
}

/// Returns the largest medium reply in bytes, the same for all ranks, counts and options.
#[unsafe(no_mangle)]
extern "C" fn gex_AM_MaxReplyMedium(
    team: *const c_void,
    rank: Rank,
    _local: *const c_void,
    _flags: Flags,
    _nargs: c_uint,
) -> usize {
    const CALL: &str = "gex_AM_MaxReplyMedium";
    engine_for(CALL, team, rank);
    medium(CALL)
}

/// Returns the largest long request in bytes, the same for all ranks and counts.
#[unsafe(no_mangle)]
extern "C" fn gex_AM_MaxRequestLong(
    team: *const c_void,
    rank: Rank,
    _local: *const c_void,
    flags: Flags,
    _nargs: c_uint,
) -> usize {
    const CALL: &str = "gex_AM_MaxRequestLong";
    let (engine, _) = engine_for(CALL, team, rank);
    prepared(engine, long_request(), flags)
}

/// Returns the largest long reply in bytes to a rank, or to any rank if it is `GEX_RANK_INVALID`.
#[unsafe(no_mangle)]
extern "C" fn gex_AM_MaxReplyLong(
    team: *const c_void,
    rank: Rank,
    _local: *const c_void,
    flags: Flags,
    _nargs: c_uint,
) -> usize {
    const CALL: &str = "gex_AM_MaxReplyLong";
    let (engine, rank) = engine_for(CALL, team, rank);
    let long = rank.map_or_else(
        || long_reply(CALL),
        |rank| engine.messages().max_long_reply(rank),
    );
    prepared(engine, long, flags)
}

/// Returns the largest medium reply in bytes to the sender of a request.
#[unsafe(no_mangle)]
extern "C" fn gex_Token_MaxReplyMedium(
    _token: *const c_void,
    _local: *const c_void,
    _flags: u32,
    _nargs: c_uint,
) -> usize {
    medium("gex_Token_MaxReplyMedium")
}

/// Returns the largest long reply in bytes to the sender of a request.
///
/// # Safety
/// `handle` is the token of the handler that is running.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_Token_MaxReplyLong(
    handle: *const c_void,
    _local: *const c_void,
    flags: Flags,
    _nargs: c_uint,
) -> usize {
    // SAFETY: the caller's promise.
    let message = unsafe { token("gex_Token_MaxReplyLong", handle) }.message;
    let engine = message.engine();
    prepared(
        engine,
        engine.messages().max_long_reply(message.source()),
        flags,
    )
}
