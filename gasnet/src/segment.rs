//! Segments: attach, and where everybody's is.

use std::ffi::{c_int, c_void};

use conduit::Rank;
use conduit_core::collectives::TeamId;
use conduit_core::memory::Segment;

use crate::abi::{self, SegmentInfo, events};
use crate::barrier;
use crate::client;
use crate::fault::{Refusal, code, refuse};
use crate::job::Job;
use crate::objects::{AnySegment, segment};
use crate::team::{named_rank, rank_in, remote_index};

/// Attaches and lets the headers see the segments. Collective, with a barrier before: ranks that wait for a message's
/// answer are not left alone.
pub(crate) fn attach(call: &'static str, job: &'static Job, bytes: usize) -> Result<(), Refusal> {
    if !job.everything && (bytes == 0 || !bytes.is_multiple_of(rustix::param::page_size())) {
        return Err(Refusal::bad(format_args!(
            "a segment of {bytes} bytes, which is no multiple (at least 1) of the page size {}",
            rustix::param::page_size()
        )));
    }
    let at_once = barrier::all(call, job);
    if at_once != abi::OK {
        return Err(Refusal::of(at_once, "the barrier before it has failed"));
    }
    if !job.everything {
        let prepare = &mut client::attached;
        job.member.attach_prepared(&mut [], bytes, prepare)?;
        job.show_segments()?;
    }
    Ok(())
}

/// Attaches a segment to all ranks of the team. Collective.
///
/// # Safety
/// `segment` is null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_Segment_Attach(
    segment: *mut *const c_void,
    team: *const c_void,
    bytes: usize,
) -> c_int {
    const CALL: &str = "gex_Segment_Attach";
    let (job, team) = crate::team::team(CALL, team);
    if team.id() != TeamId::JOB {
        return refuse(CALL, &Refusal::bad("not the team of all ranks"));
    }
    if let Err(refusal) = attach(CALL, job, bytes) {
        return refuse(CALL, &refusal);
    }
    if !segment.is_null() {
        // SAFETY: not null; the caller's promise.
        unsafe { segment.write(job.bound_segment()) };
    }
    abi::OK
}

/// Everything is as large as can be said.
fn most(job: &Job) -> usize {
    if job.everything {
        usize::MAX
    } else {
        job.member.max_segment()
    }
}

/// Bytes of the largest segment that this rank can attach.
#[unsafe(no_mangle)]
extern "C" fn gasnet_getMaxLocalSegmentSize() -> usize {
    most(Job::of("gasnet_getMaxLocalSegmentSize"))
}

/// Bytes of the largest segment that every rank can attach.
#[unsafe(no_mangle)]
extern "C" fn gasnet_getMaxGlobalSegmentSize() -> usize {
    most(Job::of("gasnet_getMaxGlobalSegmentSize"))
}

/// Where a segment of this rank is, and its bytes.
fn place(call: &str, handle: *const c_void) -> (*mut c_void, usize) {
    let (job, segment) = segment(call, handle);
    match segment {
        AnySegment::Attached(_) => {
            let attached = job.engine().memory().segment();
            attached.map_or((std::ptr::null_mut(), 0), |(base, len)| (base.cast(), len))
        }
        AnySegment::Created(created) => created.place(),
    }
}

/// First byte of this rank's segment.
#[unsafe(no_mangle)]
extern "C" fn gex_Segment_QueryAddr(segment: *const c_void) -> *mut c_void {
    const CALL: &str = "gex_Segment_QueryAddr";
    place(CALL, segment).0
}

/// Bytes of this rank's segment.
#[unsafe(no_mangle)]
extern "C" fn gex_Segment_QuerySize(segment: *const c_void) -> usize {
    const CALL: &str = "gex_Segment_QuerySize";
    place(CALL, segment).1
}

/// A rank's segment, if ranks have segments and there is such a rank. Everything is no segment that could be asked for:
/// GASNet's rule.
fn segment_of(job: &Job, rank: Rank) -> Option<Segment> {
    if job.everything {
        return None;
    }
    let segment = job.engine().memory().segment_of(rank).ok();
    segment.filter(|segment| segment.len > 0)
}

/// A segment as C wants it: at its owner, here (null where it is not mapped), bytes.
fn told(job: &Job, rank: Rank, segment: Segment) -> (*mut c_void, *mut c_void, usize) {
    let owner = std::ptr::without_provenance_mut(segment.address as usize);
    (owner, job.window(rank, &segment).cast(), segment.len)
}

/// Writes what was found to where C wants it; null pointers are left out.
///
/// # Safety
/// Each pointer is null or valid for a write.
unsafe fn tell(
    found: (*mut c_void, *mut c_void, usize),
    owner: *mut *mut c_void,
    local: *mut *mut c_void,
    size: *mut usize,
) {
    // SAFETY: not null, so valid for a write: the caller's promise. So for all three.
    unsafe {
        if !owner.is_null() {
            owner.write(found.0);
        }
        if !local.is_null() {
            local.write(found.1);
        }
        if !size.is_null() {
            size.write(found.2);
        }
    }
}

/// A rank's segment: not 0 where it has none.
///
/// # Safety
/// Each pointer is null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_Segment_QueryBound(
    team: *const c_void,
    rank: Rank,
    owner: *mut *mut c_void,
    local: *mut *mut c_void,
    size: *mut usize,
) -> c_int {
    const CALL: &str = "gex_Segment_QueryBound";
    let job = Job::of(CALL);
    let rank = match rank_in(CALL, team, rank) {
        Ok(rank) => rank,
        Err(reason) => return refuse(CALL, &Refusal::bad(reason)),
    };
    match segment_of(job, rank) {
        // SAFETY: the caller's promise.
        Some(segment) => unsafe { tell(told(job, rank, segment), owner, local, size) },
        None => return 1,
    }
    0
}

/// A rank's segment; all zero where it has none. All is known since attach, so the event is over.
///
/// # Safety
/// Each pointer is null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_query_bound_nb(
    team: *const c_void,
    rank: Rank,
    owner: *mut *mut c_void,
    local: *mut *mut c_void,
    size: *mut usize,
    _flags: u32,
) -> usize {
    const CALL: &str = "gex_EP_QueryBoundSegmentNB";
    let job = Job::of(CALL);
    let rank = named_rank(CALL, team, rank);
    let none = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
    let found = match remote_index(team) {
        0 => segment_of(job, rank).map(|segment| told(job, rank, segment)),
        index => job.engine().memory().bound(rank, index).map(|bound| {
            let owner = std::ptr::without_provenance_mut(bound.address as usize);
            let here = if rank == job.rank() {
                owner
            } else {
                std::ptr::null_mut()
            };
            (owner, here, bound.len)
        }),
    };
    let found = found.unwrap_or(none);
    // SAFETY: the caller's promise.
    unsafe { tell(found, owner, local, size) };
    events::INVALID
}

/// The segments of the first `count` ranks.
///
/// # Safety
/// `table` is valid for `count` entries.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnet_getSegmentInfo(table: *mut SegmentInfo, count: c_int) -> c_int {
    const CALL: &str = "gasnet_getSegmentInfo";
    let put = Job::or_refusal().and_then(|job| {
        if table.is_null() || count < 0 {
            return Err(Refusal::bad(format_args!(
                "a table of {count} entries at {table:p}"
            )));
        }
        for rank in 0..job.size().min(count.cast_unsigned()) {
            let segment = job.engine().memory().segment_of(rank)?;
            let address = std::ptr::without_provenance_mut(segment.address as usize);
            let size = segment.len;
            // SAFETY: below `count`; the caller's promise.
            unsafe {
                table
                    .add(rank as usize)
                    .write(SegmentInfo { address, size })
            };
        }
        Ok(())
    });
    code(CALL, put)
}
