//! Segments: attach, and the locations of all ranks' segments.

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

/// Attaches a segment and makes all segments visible to the headers' inline functions. Collective.
/// The call begins with a barrier, so that a rank that is still waiting for the reply to a message
/// receives it.
pub(crate) fn attach(call: &'static str, job: &'static Job, bytes: usize) -> Result<(), Refusal> {
    if !job.everything && (bytes == 0 || !bytes.is_multiple_of(rustix::param::page_size())) {
        return Err(Refusal::bad(format_args!(
            "a segment of {bytes} bytes is not a positive multiple of the page size {}",
            rustix::param::page_size()
        )));
    }
    let at_once = barrier::all(call, job);
    if at_once != abi::OK {
        return Err(Refusal::of(at_once, "the barrier before attach failed"));
    }
    if !job.everything {
        let prepare = &mut client::attached;
        job.member.attach_prepared(&mut [], bytes, prepare)?;
        job.show_segments()?;
    }
    Ok(())
}

/// Attaches a segment on every rank of the team, which must be the job's. Collective.
///
/// # Safety
/// `segment` must be null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_Segment_Attach(
    segment: *mut *const c_void,
    team: *const c_void,
    bytes: usize,
) -> c_int {
    const CALL: &str = "gex_Segment_Attach";
    let (job, team) = crate::team::team(CALL, team);
    if team.id() != TeamId::JOB {
        return refuse(CALL, &Refusal::bad("the team must be that of all ranks"));
    }
    if let Err(refusal) = attach(CALL, job, bytes) {
        return refuse(CALL, &refusal);
    }
    if !segment.is_null() {
        // SAFETY: `segment` is not null, so the caller guarantees that it is valid for a write.
        unsafe { segment.write(job.bound_segment()) };
    }
    abi::OK
}

/// Returns the size in bytes of the largest segment that can be attached. With segment everything,
/// returns the largest `usize`.
fn most(job: &Job) -> usize {
    if job.everything {
        usize::MAX
    } else {
        job.member.max_segment()
    }
}

/// Returns the size of the largest segment that this rank can attach, in bytes.
#[unsafe(no_mangle)]
extern "C" fn gasnet_getMaxLocalSegmentSize() -> usize {
    most(Job::of("gasnet_getMaxLocalSegmentSize"))
}

/// Returns the size of the largest segment that every rank can attach, in bytes.
#[unsafe(no_mangle)]
extern "C" fn gasnet_getMaxGlobalSegmentSize() -> usize {
    most(Job::of("gasnet_getMaxGlobalSegmentSize"))
}

/// Returns the address and length of a segment of this rank.
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

/// Returns the address of this rank's segment.
#[unsafe(no_mangle)]
extern "C" fn gex_Segment_QueryAddr(segment: *const c_void) -> *mut c_void {
    const CALL: &str = "gex_Segment_QueryAddr";
    place(CALL, segment).0
}

/// Returns the length of this rank's segment in bytes.
#[unsafe(no_mangle)]
extern "C" fn gex_Segment_QuerySize(segment: *const c_void) -> usize {
    const CALL: &str = "gex_Segment_QuerySize";
    place(CALL, segment).1
}

/// Returns a rank's segment, or `None` if the rank has no segment or does not exist. With segment
/// everything, always returns `None`, because GASNet then defines no segment to query.
fn segment_of(job: &Job, rank: Rank) -> Option<Segment> {
    if job.everything {
        return None;
    }
    let segment = job.engine().memory().segment_of(rank).ok();
    segment.filter(|segment| segment.len > 0)
}

/// Returns what C's queries report about a segment: its address at the owner, its address here
/// (null if it is not mapped), and its length.
fn told(job: &Job, rank: Rank, segment: Segment) -> (*mut c_void, *mut c_void, usize) {
    let owner = std::ptr::without_provenance_mut(segment.address as usize);
    (owner, job.window(rank, &segment).cast(), segment.len)
}

/// Writes the values that [`told`] returns to pointers from C. Null pointers are skipped.
///
/// # Safety
/// Each pointer must be null or valid for a write.
unsafe fn tell(
    found: (*mut c_void, *mut c_void, usize),
    owner: *mut *mut c_void,
    local: *mut *mut c_void,
    size: *mut usize,
) {
    // SAFETY: each pointer that is written is not null, so the caller guarantees that it is valid
    // for a write.
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

/// Writes the addresses and length of a rank's segment and returns 0. Returns a nonzero value if
/// the rank has no segment.
///
/// # Safety
/// Each pointer must be null or valid for a write.
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
        // SAFETY: the caller guarantees that each pointer is null or valid for a write.
        Some(segment) => unsafe { tell(told(job, rank, segment), owner, local, size) },
        None => return 1,
    }
    0
}

/// `gex_EP_QueryBoundSegmentNB`: writes the addresses and length of a rank's segment, or zeros if
/// it has none. Every rank has known all segments since they were attached or published, so the
/// returned event is complete.
///
/// # Safety
/// Each pointer must be null or valid for a write.
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
    // SAFETY: the caller guarantees that each pointer is null or valid for a write.
    unsafe { tell(found, owner, local, size) };
    events::INVALID
}

/// Writes the address and size of the segment of each of the first `count` ranks.
///
/// # Safety
/// `table` must be null or valid for writes of `count` entries.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnet_getSegmentInfo(table: *mut SegmentInfo, count: c_int) -> c_int {
    const CALL: &str = "gasnet_getSegmentInfo";
    let put = Job::or_refusal().and_then(|job| {
        if table.is_null() || count < 0 {
            return Err(Refusal::bad(format_args!(
                "a table of {count} entries at {table:p} is not valid"
            )));
        }
        for rank in 0..job.size().min(count.cast_unsigned()) {
            let segment = job.engine().memory().segment_of(rank)?;
            let address = std::ptr::without_provenance_mut(segment.address as usize);
            let size = segment.len;
            // SAFETY: `rank` is below `count`, so the caller guarantees that the entry is valid for
            // a write.
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
