//! Queries about the job's ranks, the hosts, and the ranks that share memory.

use std::ffi::{c_int, c_uint, c_void};

use conduit::Rank;

use crate::abi::{self, DEFER_THREADS, NodeInfo, ProgressThread, RankInfo};
use crate::fault::{Refusal, code};
use crate::job::Job;
use crate::objects::check;

/// Returns this rank.
#[unsafe(no_mangle)]
extern "C" fn gex_System_QueryJobRank() -> Rank {
    Job::of("gex_System_QueryJobRank").rank()
}

/// Returns the number of ranks in the job.
#[unsafe(no_mangle)]
extern "C" fn gex_System_QueryJobSize() -> Rank {
    Job::of("gex_System_QueryJobSize").size()
}

/// Returns the number of client threads that may exist at a time.
#[unsafe(no_mangle)]
extern "C" fn gex_System_QueryMaxThreads() -> u64 {
    // PARSYNC allows any number of threads, which call the library one at a time.
    if cfg!(any(feature = "par", feature = "parsync")) {
        c_int::MAX as u64
    } else {
        1
    }
}

/// Returns 0, because handlers never run on threads of the library.
#[unsafe(no_mangle)]
extern "C" fn gex_System_QueryHiddenAMConcurrencyLevel() -> c_int {
    0
}

/// Writes the list of threads that a client with `GEX_FLAG_DEFER_THREADS` has to start for the
/// library. The list is empty, because a network starts its own thread during init.
///
/// # Safety
/// Each pointer must be null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_System_QueryProgressThreads(
    client: *const c_void,
    count: *mut c_uint,
    info: *mut *const ProgressThread,
    flags: u32,
) -> c_int {
    const CALL: &str = "gex_System_QueryProgressThreads";
    let allowed = Job::or_refusal().and_then(|job| {
        let client = check(CALL, "client", &job.objects.client, client);
        if count.is_null() || info.is_null() {
            Err(Refusal::bad(format_args!(
                "count is {count:p} and info is {info:p}; neither may be null"
            )))
        } else if flags != 0 {
            Err(Refusal::bad(format_args!(
                "flags {flags:#x} given, but this call accepts none"
            )))
        } else if client.flags() & DEFER_THREADS == 0 {
            let reason = "the client was initialised without GEX_FLAG_DEFER_THREADS";
            Err(Refusal::of(abi::RESOURCE, reason))
        } else {
            Ok(())
        }
    });
    if allowed.is_ok() {
        // SAFETY: neither pointer is null, so the caller guarantees that both are valid for a
        // write.
        unsafe {
            count.write(0);
            info.write(std::ptr::null());
        }
    }
    code(CALL, allowed)
}

/// Writes a list of ranks and this rank's index in it. Null pointers are skipped.
///
/// # Safety
/// Each pointer must be null or valid for a write.
unsafe fn list(
    list: &'static [RankInfo],
    rank: Rank,
    info: *mut *const RankInfo,
    count: *mut Rank,
    mine: *mut Rank,
) {
    let place = list
        .iter()
        .position(|entry| entry.rank == rank)
        .unwrap_or(0);
    // SAFETY: each pointer that is written is not null, so the caller guarantees that it is valid
    // for a write.
    unsafe {
        if !info.is_null() {
            info.write(list.as_ptr());
        }
        if !count.is_null() {
            count.write(list.len() as Rank);
        }
        if !mine.is_null() {
            mine.write(place as Rank);
        }
    }
}

/// Writes the ranks of this rank's neighbourhood, whose segments are mapped here. The library owns
/// the list.
///
/// # Safety
/// Each pointer must be null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_System_QueryNbrhdInfo(
    info: *mut *const RankInfo,
    count: *mut Rank,
    mine: *mut Rank,
) {
    let job = Job::of("gex_System_QueryNbrhdInfo");
    // SAFETY: the caller guarantees that each pointer is null or valid for a write.
    unsafe { list(&job.neighbours, job.rank(), info, count, mine) };
}

/// Writes the ranks on this rank's host. The library owns the list.
///
/// # Safety
/// Each pointer must be null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_System_QueryHostInfo(
    info: *mut *const RankInfo,
    count: *mut Rank,
    mine: *mut Rank,
) {
    let job = Job::of("gex_System_QueryHostInfo");
    // SAFETY: the caller guarantees that each pointer is null or valid for a write.
    unsafe { list(&job.of_host, job.rank(), info, count, mine) };
}

/// Writes the number of neighbourhoods and the number of hosts, and the indices of this rank's
/// neighbourhood and host. Null pointers are skipped.
///
/// # Safety
/// Each pointer must be null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_System_QueryMyPosition(
    neighbourhoods: *mut Rank,
    neighbourhood: *mut Rank,
    hosts: *mut Rank,
    host: *mut Rank,
) {
    let job = Job::of("gex_System_QueryMyPosition");
    let rank = job.rank();
    for (place, value) in [
        (neighbourhoods, job.neighbourhoods()),
        (neighbourhood, job.neighbourhood(rank)),
        (hosts, job.member.hosts()),
        (host, job.member.host_of(rank).unwrap_or(0)),
    ] {
        if !place.is_null() {
            // SAFETY: the pointer is not null, so the caller guarantees that it is valid for a
            // write.
            unsafe { place.write(value) };
        }
    }
}

/// Writes the host, neighbourhood and mapping of each of the first `count` ranks.
///
/// # Safety
/// `table` must be null or valid for writes of `count` entries.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnet_getNodeInfo(table: *mut NodeInfo, count: c_int) -> c_int {
    let found = Job::or_refusal().and_then(|job| {
        if table.is_null() || count < 0 {
            return Err(Refusal::bad(format_args!(
                "a table of {count} entries at {table:p} is not valid"
            )));
        }
        Ok(job)
    });
    let put = found.map(|job| {
        for rank in 0..job.size().min(count.unsigned_abs()) {
            let offset = job.mapped_segment(rank).map_or(0, |(address, window, _)| {
                window.addr().wrapping_sub(address)
            });
            let info = NodeInfo {
                host: job.member.host_of(rank).unwrap_or(0),
                supernode: job.neighbourhood(rank),
                offset,
            };
            // SAFETY: `rank` is below `count`, so the caller guarantees that the entry is valid for
            // a write.
            unsafe { table.add(rank as usize).write(info) };
        }
    });
    code("gasnet_getNodeInfo", put)
}
