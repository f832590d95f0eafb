//! The client, endpoint and segment objects: their handles in C, and the word that a client may
//! keep with each. Teams are in `team`.
//!
//! The first endpoint and the segment attached to it are here; other endpoints and segments are in
//! `endpoint`.

use std::ffi::{CString, c_char, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use conduit::Rank;

use crate::endpoint::{Created, Endpoint, Endpoints, HOST};
use crate::fault::fatal;
use crate::job::Job;
use crate::team::{Named, Teams};

/// An object. Its address is its handle.
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

    fn object(&self) -> &Self {
        self
    }

    /// Returns the flags that the object was created with.
    pub(crate) fn flags(&self) -> u32 {
        self.flags.load(Relaxed)
    }
}

/// The objects of a job.
pub(crate) struct Objects {
    pub(crate) client: Object,
    /// The first endpoint.
    pub(crate) endpoint: Object,
    /// The other endpoints, and the created segments.
    pub(crate) endpoints: Endpoints,
    /// The team of all ranks.
    pub(crate) team: Named,
    pub(crate) teams: Teams,
    pub(crate) segment: Object,
    /// The memory kind of host memory, which is the only supported kind.
    kind: Object,
    /// The name that the client passed to `gex_Client_Init`.
    pub(crate) name: OnceLock<CString>,
}

impl Objects {
    pub(crate) fn new(rank: Rank, size: u32) -> Self {
        Self {
            client: Object::new(),
            endpoint: Object::new(),
            endpoints: Endpoints::new(),
            team: Named::of_job(rank, size),
            teams: Teams::default(),
            segment: Object::new(),
            kind: Object::new(),
            name: OnceLock::new(),
        }
    }
}

/// Returns `object` if `handle` is its handle. Otherwise ends the job with a message that names the
/// object as `what`.
pub(crate) fn check<'a>(
    call: &str,
    what: &str,
    object: &'a Object,
    handle: *const c_void,
) -> &'a Object {
    if handle != object.handle() {
        fatal(
            call,
            &format_args!("{handle:p} is not a valid {what} handle"),
        );
    }
    object
}

/// An endpoint of this job.
enum AnyEndpoint<'a> {
    First(&'a Object),
    Other(&'a Endpoint),
}

impl AnyEndpoint<'_> {
    fn object(&self) -> &Object {
        match self {
            Self::First(object) => object,
            Self::Other(endpoint) => endpoint.object(),
        }
    }
}

fn endpoint(call: &str, handle: *const c_void) -> (&'static Job, AnyEndpoint<'static>) {
    let job = Job::of(call);
    match job.objects.endpoints.find(handle) {
        Some(endpoint) => (job, AnyEndpoint::Other(endpoint)),
        None => {
            let first = check(call, "endpoint", &job.objects.endpoint, handle);
            (job, AnyEndpoint::First(first))
        }
    }
}

/// Returns the index of an endpoint. The first endpoint has index 0.
pub(crate) fn endpoint_index(call: &str, handle: *const c_void) -> u16 {
    match endpoint(call, handle).1 {
        AnyEndpoint::First(_) => 0,
        AnyEndpoint::Other(endpoint) => endpoint.index(),
    }
}

/// A segment of this job.
pub(crate) enum AnySegment<'a> {
    Attached(&'a Object),
    Created(Arc<Created>),
}

impl AnySegment<'_> {
    fn object(&self) -> &Object {
        match self {
            Self::Attached(object) => object,
            Self::Created(segment) => segment.object(),
        }
    }
}

pub(crate) fn segment(call: &str, handle: *const c_void) -> (&'static Job, AnySegment<'static>) {
    let job = Job::of(call);
    match job.objects.endpoints.segment(handle) {
        Some(created) => (job, AnySegment::Created(created)),
        None => {
            let attached = check(call, "segment", &job.objects.segment, handle);
            (job, AnySegment::Attached(attached))
        }
    }
}

fn client<'a>(call: &str, handle: *const c_void) -> (&'a Job, &'a Object) {
    let job = Job::of(call);
    (job, check(call, "client", &job.objects.client, handle))
}

/// Returns the object of a memory kind's handle. GASNet-EX does not define the `gex_MK_*` calls for
/// `GEX_MK_HOST`; here that kind behaves like any other.
fn kind<'a>(call: &str, handle: *const c_void) -> (&'a Job, &'a Object) {
    let job = Job::of(call);
    if handle.addr() != HOST {
        fatal(
            call,
            &format_args!("{handle:p} is not a valid memory kind handle"),
        );
    }
    (job, &job.objects.kind)
}

macro_rules! words {
    ($($find:ident: $set:ident, $query:ident, $flags:ident;)*) => {$(
        /// Stores a word of the client with the object.
        #[unsafe(no_mangle)]
        extern "C" fn $set(handle: *const c_void, value: *mut c_void) {
            let found = $find(stringify!($set), handle);
            found.1.object().set_cdata(value);
        }

        /// Returns the word that the client has stored with the object, or null if it has stored
        /// none.
        #[unsafe(no_mangle)]
        extern "C" fn $query(handle: *const c_void) -> *mut c_void {
            let found = $find(stringify!($query), handle);
            found.1.object().cdata()
        }

        /// Returns the flags that the object was created with.
        #[unsafe(no_mangle)]
        extern "C" fn $flags(handle: *const c_void) -> u32 {
            let found = $find(stringify!($flags), handle);
            found.1.object().flags()
        }
    )*};
}

words! {
    client: gex_Client_SetCData, gex_Client_QueryCData, gex_Client_QueryFlags;
    endpoint: gex_EP_SetCData, gex_EP_QueryCData, gex_EP_QueryFlags;
    segment: gex_Segment_SetCData, gex_Segment_QueryCData, gex_Segment_QueryFlags;
    kind: gex_MK_SetCData, gex_MK_QueryCData, gex_MK_QueryFlags;
}

/// Returns the client of an endpoint.
#[unsafe(no_mangle)]
extern "C" fn gex_EP_QueryClient(handle: *const c_void) -> *const c_void {
    let (job, _) = endpoint("gex_EP_QueryClient", handle);
    job.objects.client.handle()
}

/// Returns the client of a segment.
#[unsafe(no_mangle)]
extern "C" fn gex_Segment_QueryClient(handle: *const c_void) -> *const c_void {
    let (job, _) = segment("gex_Segment_QueryClient", handle);
    job.objects.client.handle()
}

/// Returns the client of a memory kind.
#[unsafe(no_mangle)]
extern "C" fn gex_MK_QueryClient(handle: *const c_void) -> *const c_void {
    let (job, _) = kind("gex_MK_QueryClient", handle);
    job.objects.client.handle()
}

/// Returns the class of a memory kind: always `GEX_MK_CLASS_HOST`.
#[unsafe(no_mangle)]
extern "C" fn gex_MK_QueryClass(handle: *const c_void) -> c_uint {
    kind("gex_MK_QueryClass", handle);
    0
}

/// Returns the segment bound to an endpoint, or null (`GEX_SEGMENT_INVALID`) if none is bound.
#[unsafe(no_mangle)]
extern "C" fn gex_EP_QuerySegment(handle: *const c_void) -> *const c_void {
    let (job, endpoint) = endpoint("gex_EP_QuerySegment", handle);
    match endpoint {
        AnyEndpoint::First(_) => job.bound_segment(),
        AnyEndpoint::Other(endpoint) => endpoint.bound(),
    }
}

/// Returns the name that the client passed to `gex_Client_Init`, or an empty string.
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

/// Returns the index of an endpoint. The first endpoint has index 0.
#[unsafe(no_mangle)]
extern "C" fn gex_EP_QueryIndex(handle: *const c_void) -> u16 {
    endpoint_index("gex_EP_QueryIndex", handle)
}

/// Writes the handles of the job's objects through the pointers that are not null, for a job joined
/// with `gasnet_init`.
///
/// # Safety
/// Each pointer must be null or valid for a write.
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
            // SAFETY: the pointer is not null, so the caller guarantees that it is valid for a
            // write.
            unsafe { place.write(handle) };
        }
    }
}
