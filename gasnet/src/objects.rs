//! Client, endpoint, team and segment: what C knows them by, and the word that a client may keep with each.
//!
//! A job has one of each so far.

use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

use conduit::Rank;

use crate::abi::Location;
use crate::fault::fatal;
use crate::job::Job;

/// One object. Its address is its handle.
#[repr(C)]
pub(crate) struct Object {
    cdata: AtomicPtr<c_void>,
    flags: AtomicU32,
}

impl Object {
    fn new() -> Self {
        Self {
            cdata: AtomicPtr::new(std::ptr::null_mut()),
            flags: AtomicU32::new(0),
        }
    }

    pub(crate) fn handle(&self) -> *const c_void {
        std::ptr::from_ref(self).cast()
    }

    pub(crate) fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Relaxed);
    }

    /// The flags that the object was made with.
    pub(crate) fn flags(&self) -> u32 {
        self.flags.load(Relaxed)
    }
}

/// The objects of a job.
pub(crate) struct Objects {
    pub(crate) client: Object,
    pub(crate) endpoint: Object,
    pub(crate) team: Object,
    pub(crate) segment: Object,
    pub(crate) name: OnceLock<CString>,
}

impl Objects {
    pub(crate) fn new() -> Self {
        Self {
            client: Object::new(),
            endpoint: Object::new(),
            team: Object::new(),
            segment: Object::new(),
            name: OnceLock::new(),
        }
    }
}

/// The object of a handle from C.
pub(crate) fn check<'a>(
    call: &str,
    what: &str,
    object: &'a Object,
    handle: *const c_void,
) -> &'a Object {
    if handle != object.handle() {
        fatal(call, &format_args!("{handle:p} is no {what} of this job"));
    }
    object
}

/// A call's team that is not the job's: `CONDUIT_GEX_CHECK_TEAM`.
///
/// # Safety
/// `call` is a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_no_team(call: *const c_char, team: *const c_void) -> ! {
    // SAFETY: the caller's promise; a literal of the headers.
    let call = unsafe { CStr::from_ptr(call) }.to_string_lossy();
    // Before there is a job that is what is wrong.
    Job::of(&call);
    fatal(&call, &format_args!("{team:p} is no team of this job"))
}

/// The job, for a collective call of its team, which has no flags.
pub(crate) fn team_job(call: &str, team: *const c_void, flags: u32) -> &'static Job {
    let job = Job::of(call);
    check(call, "team", &job.objects.team, team);
    if flags != 0 {
        fatal(call, &format_args!("flags {flags:#x}, there are none"));
    }
    job
}

macro_rules! cdata {
    ($($kind:ident: $set:ident, $query:ident, $what:literal;)*) => {$(
        /// Keeps a word of the client's with the object.
        #[unsafe(no_mangle)]
        extern "C" fn $set(handle: *const c_void, value: *mut c_void) {
            let job = Job::of(stringify!($set));
            check(stringify!($set), $what, &job.objects.$kind, handle).cdata.store(value, Relaxed);
        }

        /// The word that the client keeps with the object; null at first.
        #[unsafe(no_mangle)]
        extern "C" fn $query(handle: *const c_void) -> *mut c_void {
            let job = Job::of(stringify!($query));
            check(stringify!($query), $what, &job.objects.$kind, handle).cdata.load(Relaxed)
        }
    )*};
}

cdata! {
    client: gex_Client_SetCData, gex_Client_QueryCData, "client";
    endpoint: gex_EP_SetCData, gex_EP_QueryCData, "endpoint";
    team: gex_TM_SetCData, gex_TM_QueryCData, "team";
    segment: gex_Segment_SetCData, gex_Segment_QueryCData, "segment";
}

macro_rules! relations {
    ($($name:ident($kind:ident, $what:literal) -> $other:ident;)*) => {$(
        /// Another object of the same job.
        #[unsafe(no_mangle)]
        extern "C" fn $name(handle: *const c_void) -> *const c_void {
            let job = Job::of(stringify!($name));
            check(stringify!($name), $what, &job.objects.$kind, handle);
            job.objects.$other.handle()
        }
    )*};
}

relations! {
    gex_EP_QueryClient(endpoint, "endpoint") -> client;
    gex_TM_QueryClient(team, "team") -> client;
    gex_TM_QueryEP(team, "team") -> endpoint;
    gex_Segment_QueryClient(segment, "segment") -> client;
}

/// The segment bound to an endpoint; null (`GEX_SEGMENT_INVALID`) if there is none.
#[unsafe(no_mangle)]
extern "C" fn gex_EP_QuerySegment(handle: *const c_void) -> *const c_void {
    let job = Job::of("gex_EP_QuerySegment");
    check(
        "gex_EP_QuerySegment",
        "endpoint",
        &job.objects.endpoint,
        handle,
    );
    job.bound_segment()
}

macro_rules! flags {
    ($($name:ident($kind:ident, $what:literal);)*) => {$(
        /// The flags that the object was made with.
        #[unsafe(no_mangle)]
        extern "C" fn $name(handle: *const c_void) -> u32 {
            let job = Job::of(stringify!($name));
            check(stringify!($name), $what, &job.objects.$kind, handle).flags()
        }
    )*};
}

flags! {
    gex_Client_QueryFlags(client, "client");
    gex_EP_QueryFlags(endpoint, "endpoint");
    gex_TM_QueryFlags(team, "team");
    gex_Segment_QueryFlags(segment, "segment");
}

/// The name that the client gave itself.
#[unsafe(no_mangle)]
extern "C" fn gex_Client_QueryName(handle: *const c_void) -> *const c_char {
    let job = Job::of("gex_Client_QueryName");
    check(
        "gex_Client_QueryName",
        "client",
        &job.objects.client,
        handle,
    );
    job.objects
        .name
        .get()
        .map_or(c"".as_ptr(), |name| name.as_ptr())
}

/// The index of an endpoint: that of the first one is 0.
#[unsafe(no_mangle)]
extern "C" fn gex_EP_QueryIndex(handle: *const c_void) -> u16 {
    let job = Job::of("gex_EP_QueryIndex");
    check(
        "gex_EP_QueryIndex",
        "endpoint",
        &job.objects.endpoint,
        handle,
    );
    0
}

/// This rank in a team.
#[unsafe(no_mangle)]
extern "C" fn gex_TM_QueryRank(handle: *const c_void) -> c_uint {
    let job = Job::of("gex_TM_QueryRank");
    check("gex_TM_QueryRank", "team", &job.objects.team, handle);
    job.rank()
}

/// Ranks of a team.
#[unsafe(no_mangle)]
extern "C" fn gex_TM_QuerySize(handle: *const c_void) -> c_uint {
    let job = Job::of("gex_TM_QuerySize");
    check("gex_TM_QuerySize", "team", &job.objects.team, handle);
    job.size()
}

/// A rank of the job's team, which is a rank of the job.
fn team_rank(call: &str, team: *const c_void, rank: Rank) -> Rank {
    let job = Job::of(call);
    check(call, "team", &job.objects.team, team);
    job.check_rank(call, rank);
    rank
}

/// The rank in the job of a team's rank.
#[unsafe(no_mangle)]
extern "C" fn gex_TM_TranslateRankToJobrank(team: *const c_void, rank: Rank) -> Rank {
    team_rank("gex_TM_TranslateRankToJobrank", team, rank)
}

/// The rank in a team of a rank of the job. All are in the job's team.
#[unsafe(no_mangle)]
extern "C" fn gex_TM_TranslateJobrankToRank(team: *const c_void, rank: Rank) -> Rank {
    team_rank("gex_TM_TranslateJobrankToRank", team, rank)
}

/// The endpoint of a team's rank.
#[unsafe(no_mangle)]
extern "C" fn gex_TM_TranslateRankToEP(team: *const c_void, rank: Rank, flags: u32) -> Location {
    const CALL: &str = "gex_TM_TranslateRankToEP";
    let rank = team_rank(CALL, team, rank);
    if flags != 0 {
        fatal(CALL, &format_args!("flags {flags:#x}, there are none"));
    }
    Location { rank, endpoint: 0 }
}

/// The objects of a job that was joined by `gasnet_init`. Null pointers are left out.
///
/// # Safety
/// Each pointer is null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnet_QueryGexObjects(
    client: *mut *const c_void,
    endpoint: *mut *const c_void,
    team: *mut *const c_void,
    segment: *mut *const c_void,
) {
    let job = Job::of("gasnet_QueryGexObjects");
    let objects = &job.objects;
    for (place, handle) in [
        (client, objects.client.handle()),
        (endpoint, objects.endpoint.handle()),
        (team, objects.team.handle()),
        (segment, job.bound_segment()),
    ] {
        if !place.is_null() {
            // SAFETY: not null, so valid for a write: the caller's promise.
            unsafe { place.write(handle) };
        }
    }
}
