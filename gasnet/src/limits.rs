//! The limits of active messages: the number of arguments and the payload sizes.

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

/// Returns the size in bytes of the largest medium that can be sent, as a request or a reply, to
/// any rank with any argument count and options.
fn medium(call: &str) -> usize {
    // Use the limit for the largest argument count, so that the limit is the same for all counts.
    match Job::get() {
        Some(job) => job.engine().messages().max_medium(am::MAX_ARGS),
        None => limits::max_medium(chunk_to_be(call), am::MAX_ARGS),
    }
}

/// Returns the chunk size of the job that this process is going to join. Clients may ask for the
/// limits before init, because these are constants in most GASNet conduits. Ends the process if
/// init would refuse the settings.
fn chunk_to_be(call: &str) -> usize {
    match Settings::from_env() {
        Ok((settings, _)) => settings.engine.chunk,
        Err(error) => fatal(call, &error),
    }
}

/// Returns the size in bytes of the largest long reply that can be sent to every rank. Before init,
/// returns the limit for a rank whose memory is not mapped.
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

/// Returns the size in bytes of the largest medium request that can be sent to every rank.
#[unsafe(no_mangle)]
extern "C" fn gex_AM_LUBRequestMedium() -> usize {
    medium("gex_AM_LUBRequestMedium")
}

/// Returns the size in bytes of the largest medium reply that can be sent to every rank.
#[unsafe(no_mangle)]
extern "C" fn gex_AM_LUBReplyMedium() -> usize {
    medium("gex_AM_LUBReplyMedium")
}

/// Returns the size in bytes of the largest long request that can be sent to every rank.
#[unsafe(no_mangle)]
extern "C" fn gex_AM_LUBRequestLong() -> usize {
    long_request()
}

/// Returns the size in bytes of the largest long reply that can be sent to every rank.
#[unsafe(no_mangle)]
extern "C" fn gex_AM_LUBReplyLong() -> usize {
    long_reply("gex_AM_LUBReplyLong")
}

/// Returns the engine, and the job rank of a team's rank. The rank is `None` if `rank` is
/// `GEX_RANK_INVALID`, with which a client asks for the limit that holds for every rank.
fn engine_for(call: &str, team: *const c_void, rank: Rank) -> (&'static TheEngine, Option<Rank>) {
    let first = if rank == abi::NO_RANK { 0 } else { rank };
    let first = team_rank(call, team, first);
    let engine = Job::of(call).engine();
    (engine, (rank != abi::NO_RANK).then_some(first))
}

/// Returns the limit for a prepared long. If the library is to provide the payload's buffer, the
/// limit is at most that of a medium.
fn prepared(engine: &TheEngine, long: usize, flags: Flags) -> usize {
    if flags.contains(Flags::PREPARE_LEAST_ALLOC) {
        own_buffer_limit(engine, long)
    } else {
        long
    }
}

/// Returns the size of the largest medium request in bytes. It is the same for all ranks, argument
/// counts and options.
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

/// Returns the size of the largest medium reply in bytes. It is the same for all ranks, argument
/// counts and options.
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

/// Returns the size of the largest long request in bytes. It is the same for all ranks and argument
/// counts.
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

/// Returns the size in bytes of the largest long reply that can be sent to a rank, or to every rank
/// if `rank` is `GEX_RANK_INVALID`.
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

/// Returns the size in bytes of the largest medium reply to the sender of a request.
#[unsafe(no_mangle)]
extern "C" fn gex_Token_MaxReplyMedium(
    _token: *const c_void,
    _local: *const c_void,
    _flags: u32,
    _nargs: c_uint,
) -> usize {
    medium("gex_Token_MaxReplyMedium")
}

/// Returns the size in bytes of the largest long reply to the sender of a request.
///
/// # Safety
/// `handle` must be the token of the handler that is running.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_Token_MaxReplyLong(
    handle: *const c_void,
    _local: *const c_void,
    flags: Flags,
    _nargs: c_uint,
) -> usize {
    // SAFETY: the caller guarantees that `handle` is the running handler's token.
    let message = unsafe { token("gex_Token_MaxReplyLong", handle) }.message;
    let engine = message.engine();
    prepared(
        engine,
        engine.messages().max_long_reply(message.source()),
        flags,
    )
}
