//! Client, endpoint and segment: what C knows them by, and the word that a client may keep with each. Teams are in `team`.
//!
//! A job has one of each so far.

use std::ffi::{CString, c_char, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

use conduit::Rank;

use crate::fault::fatal;
use crate::job::Job;
use crate::team::{Named, Teams};

/// One object. Its address is its handle.
#[repr(C)]
pub(crate) struct Object {
    cdata: AtomicPtr<c_void>,
    flags: AtomicU32,
}

impl Object {
    pub(crate) fn new() -> Self {
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

    pub(crate) fn set_cdata(&self, value: *mut c_void) {
        self.cdata.store(value, Relaxed);
    }

    pub(crate) fn cdata(&self) -> *mut c_void {
        self.cdata.load(Relaxed)
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
    /// That of all ranks.
    pub(crate) team: Named,
    pub(crate) teams: Teams,
    pub(crate) segment: Object,
    pub(crate) name: OnceLock<CString>,
}

impl Objects {
    pub(crate) fn new(rank: Rank, size: u32) -> Self {
        Self {
            client: Object::new(),
            endpoint: Object::new(),
            team: Named::of_job(rank, size),
            teams: Teams::default(),
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

macro_rules! cdata {
    ($($kind:ident: $set:ident, $query:ident, $what:literal;)*) => {$(
        /// Keeps a word of the client's with the object.
        #[unsafe(no_mangle)]
        extern "C" fn $set(handle: *const c_void, value: *mut c_void) {
            let job = Job::of(stringify!($set));
            check(stringify!($set), $what, &job.objects.$kind, handle).set_cdata(value);
        }

        /// The word that the client keeps with the object; null at first.
        #[unsafe(no_mangle)]
        extern "C" fn $query(handle: *const c_void) -> *mut c_void {
            let job = Job::of(stringify!($query));
            check(stringify!($query), $what, &job.objects.$kind, handle).cdata()
        }
    )*};
}

cdata! {
    client: gex_Client_SetCData, gex_Client_QueryCData, "client";
    endpoint: gex_EP_SetCData, gex_EP_QueryCData, "endpoint";
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
        (team, objects.team.object.handle()),
        (segment, job.bound_segment()),
    ] {
        if !place.is_null() {
            // SAFETY: not null, so valid for a write: the caller's promise.
            unsafe { place.write(handle) };
        }
    }
}
