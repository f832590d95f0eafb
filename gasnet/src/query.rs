//! Who is in the job, and who shares a host or memory with whom.

use std::ffi::c_int;

use conduit::Rank;

use crate::abi::{NodeInfo, RankInfo};
use crate::fault::{Refusal, code};
use crate::job::Job;

/// This rank.
#[unsafe(no_mangle)]
extern "C" fn gex_System_QueryJobRank() -> Rank {
    Job::of("gex_System_QueryJobRank").rank()
}

/// Ranks of the job.
#[unsafe(no_mangle)]
extern "C" fn gex_System_QueryJobSize() -> Rank {
    Job::of("gex_System_QueryJobSize").size()
}

/// Threads of the client that may exist at a time.
#[unsafe(no_mangle)]
extern "C" fn gex_System_QueryMaxThreads() -> u64 {
    // In PARSYNC they may call one at a time.
    if cfg!(any(feature = "par", feature = "parsync")) {
        c_int::MAX as u64
    } else {
        1
    }
}

/// Whether handlers may run on threads of the library: they don't.
#[unsafe(no_mangle)]
extern "C" fn gex_System_QueryHiddenAMConcurrencyLevel() -> c_int {
    0
}

/// Writes a list of ranks and this rank's place in it. Null pointers are left out.
///
/// # Safety
/// Each pointer is null or valid for a write.
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
    // SAFETY: not null, so valid for a write: the caller's promise. So for all three.
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

/// The ranks whose segments are mapped here. The list is the library's.
///
/// # Safety
/// Each pointer is null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_System_QueryNbrhdInfo(
    info: *mut *const RankInfo,
    count: *mut Rank,
    mine: *mut Rank,
) {
    let job = Job::of("gex_System_QueryNbrhdInfo");
    // SAFETY: the caller's promise.
    unsafe { list(&job.neighbours, job.rank(), info, count, mine) };
}

/// The ranks of this host. The list is the library's.
///
/// # Safety
/// Each pointer is null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_System_QueryHostInfo(
    info: *mut *const RankInfo,
    count: *mut Rank,
    mine: *mut Rank,
) {
    let job = Job::of("gex_System_QueryHostInfo");
    // SAFETY: the caller's promise.
    unsafe { list(&job.of_host, job.rank(), info, count, mine) };
}

/// Which of how many neighbourhoods, and of how many hosts, this rank is in. Null pointers are left out.
///
/// # Safety
/// Each pointer is null or valid for a write.
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
            // SAFETY: not null; the caller's promise.
            unsafe { place.write(value) };
        }
    }
}

/// Hosts, neighbourhoods and mappings of the first `count` ranks.
///
/// # Safety
/// `table` is valid for `count` entries.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnet_getNodeInfo(table: *mut NodeInfo, count: c_int) -> c_int {
    let found = Job::or_refusal().and_then(|job| {
        if table.is_null() || count < 0 {
            return Err(Refusal::bad(format_args!(
                "a table of {count} entries at {table:p}"
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
            // SAFETY: below `count`; the caller's promise.
            unsafe { table.add(rank as usize).write(info) };
        }
    });
    code("gasnet_getNodeInfo", put)
}
