//! Endpoints other than the first, created segments and their binding to endpoints, and memory
//! kinds.
//!
//! An additional endpoint only identifies memory: puts and gets reach the segment bound to it.
//! Messages, collectives and atomics always use the first endpoint.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use conduit_core::memory::Bound;
use parking_lot::RwLock;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::abi;
use crate::fault::{Refusal, code, fatal, refuse};
use crate::job::Job;
use crate::objects::{Object, check};
use crate::team::team_without_flags;

/// `GASNET_MAXEPS`: the largest number of endpoints of a process, including the first.
pub(crate) const MOST: usize = 32;

/// `GEX_EP_CAPABILITY_RMA`.
const RMA: u32 = 1;

/// `GEX_MK_HOST`.
pub(crate) const HOST: usize = 1;

/// The lowest three bits of the handle of a created segment.
const TAG: usize = 2;
/// The position of the segment's number in its handle, above the tag.
const SHIFT: u32 = 3;

/// An endpoint other than the first.
pub(crate) struct Endpoint {
    object: Object,
    index: u16,
    segment: OnceLock<Arc<Created>>,
}

/// A segment made by `gex_Segment_Create`.
pub(crate) struct Created {
    object: Object,
    handle: usize,
    address: *mut c_void,
    bytes: usize,
    /// Whether the library has mapped the memory and must unmap it.
    is_ours: bool,
}

// SAFETY: the address is never dereferenced here. It is passed to the client; to the engine, which
// treats it as a number; and, when the segment is dropped and nothing else uses it, to `munmap`.
unsafe impl Send for Created {}
// SAFETY: sharing is sound for the same reason: the address is never dereferenced.
unsafe impl Sync for Created {}

impl Drop for Created {
    fn drop(&mut self) {
        if self.is_ours {
            // SAFETY: `gex_Segment_Create` mapped this memory. The segment is not bound to an
            // endpoint, because a bound endpoint keeps a reference to its segment forever.
            let _ = unsafe { munmap(self.address, self.bytes) };
        }
    }
}

/// The additional endpoints of a process, and the created segments. Handles are never reused.
pub(crate) struct Endpoints {
    /// The endpoints in the order of their indices, beginning with index 1.
    endpoints: [OnceLock<Endpoint>; MOST - 1],
    /// The number of additional endpoints created so far.
    made: AtomicUsize,
    /// The created segments by handle.
    segments: RwLock<HashMap<usize, Arc<Created>>>,
    /// The number of segment handles issued so far.
    given: AtomicUsize,
    /// The created segment bound to the first endpoint, which then has no attached segment.
    of_first: OnceLock<Arc<Created>>,
}

impl Endpoints {
    pub(crate) fn new() -> Self {
        Self {
            endpoints: [const { OnceLock::new() }; MOST - 1],
            made: AtomicUsize::new(0),
            segments: RwLock::default(),
            given: AtomicUsize::new(0),
            of_first: OnceLock::new(),
        }
    }

    pub(crate) fn of_first(&self) -> Option<&Created> {
        self.of_first.get().map(|segment| &**segment)
    }

    pub(crate) fn find(&self, handle: *const c_void) -> Option<&Endpoint> {
        let mut made = self.endpoints.iter().map_while(OnceLock::get);
        made.find(|endpoint| endpoint.object.handle() == handle)
    }

    pub(crate) fn segment(&self, handle: *const c_void) -> Option<Arc<Created>> {
        self.segments.read().get(&handle.addr()).cloned()
    }
}

impl Endpoint {
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    /// Returns the handle of the endpoint's segment, or null if none is bound.
    pub(crate) fn bound(&self) -> *const c_void {
        let segment = self.segment.get();
        segment.map_or(std::ptr::null(), |segment| segment.handle())
    }
}

impl Created {
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) fn handle(&self) -> *const c_void {
        std::ptr::without_provenance(self.handle)
    }

    pub(crate) fn place(&self) -> (*mut c_void, usize) {
        (self.address, self.bytes)
    }
}

/// Creates an additional endpoint, for puts and gets only.
///
/// # Safety
/// `place` must be null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_EP_Create(
    place: *mut *const c_void,
    client: *const c_void,
    capabilities: u32,
    flags: u32,
) -> c_int {
    const CALL: &str = "gex_EP_Create";
    let job = Job::of(CALL);
    check(CALL, "client", &job.objects.client, client);
    if place.is_null() || capabilities == 0 {
        let reason = format!(
            "capabilities {capabilities:#x} with result pointer {place:p}: neither may be 0"
        );
        return refuse(CALL, &Refusal::bad(reason));
    }
    if capabilities & !RMA != 0 {
        let reason = format!(
            "capabilities {capabilities:#x} are not supported: additional endpoints have GEX_EP_CAPABILITY_RMA only"
        );
        return refuse(CALL, &Refusal::of(abi::RESOURCE, reason));
    }
    let all = &job.objects.endpoints;
    let index = all.made.fetch_add(1, Relaxed);
    let Some(free) = all.endpoints.get(index) else {
        all.made.store(MOST - 1, Relaxed);
        let reason = format!("all GASNET_MAXEPS ({MOST}) endpoints are in use");
        return refuse(CALL, &Refusal::of(abi::RESOURCE, reason));
    };
    let endpoint = free.get_or_init(|| {
        let object = Object::new();
        object.set_flags(flags);
        Endpoint {
            object,
            index: index as u16 + 1,
            segment: OnceLock::new(),
        }
    });
    // SAFETY: `place` is not null, so the caller guarantees that it is valid for a write.
    unsafe { place.write(endpoint.object.handle()) };
    abi::OK
}

/// Creates a segment from the client's memory at `address` or, if `address` is null, from memory
/// that the library maps.
///
/// # Safety
/// `place` must be null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_Segment_Create(
    place: *mut *const c_void,
    client: *const c_void,
    address: *mut c_void,
    bytes: usize,
    kind: *const c_void,
    flags: u32,
) -> c_int {
    const CALL: &str = "gex_Segment_Create";
    let job = Job::of(CALL);
    check(CALL, "client", &job.objects.client, client);
    let end = address.addr().checked_add(bytes);
    let refusal = if place.is_null() || bytes == 0 || end.is_none() {
        Some(format!(
            "{bytes} bytes at {address:p} with result pointer {place:p} are not a valid segment"
        ))
    } else if kind.addr() != HOST {
        Some(format!("memory kind {kind:p} is not GEX_MK_HOST"))
    } else if flags != 0 {
        Some(format!(
            "flags {flags:#x} given, but this call accepts none"
        ))
    } else {
        None
    };
    if let Some(reason) = refusal {
        return refuse(CALL, &Refusal::bad(reason));
    }
    let is_ours = address.is_null();
    let mapped = match is_ours {
        false => Ok(address),
        // SAFETY: the system chooses the address, so the mapping replaces no other.
        true => unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        },
    };
    let address = match mapped {
        Ok(address) => address,
        Err(error) => {
            let reason = format!("cannot map {bytes} bytes: {error}");
            return refuse(CALL, &Refusal::of(abi::RESOURCE, reason));
        }
    };
    let all = &job.objects.endpoints;
    let handle = (all.given.fetch_add(1, Relaxed) + 1) << SHIFT | TAG;
    let created = Created {
        object: Object::new(),
        handle,
        address,
        bytes,
        is_ours,
    };
    all.segments.write().insert(handle, Arc::new(created));
    // SAFETY: `place` is not null, so the caller guarantees that it is valid for a write.
    unsafe { place.write(std::ptr::without_provenance(handle)) };
    abi::OK
}

/// Destroys a created segment, which must not be bound to an endpoint.
#[unsafe(no_mangle)]
extern "C" fn gex_Segment_Destroy(handle: *const c_void, _flags: u32) {
    const CALL: &str = "gex_Segment_Destroy";
    let job = Job::of(CALL);
    let all = &job.objects.endpoints;
    if handle == job.objects.segment.handle() {
        fatal(CALL, &"an attached segment cannot be destroyed");
    }
    let mut made = all.endpoints.iter().map_while(OnceLock::get);
    let of_first = all.of_first().map(Created::handle);
    if of_first == Some(handle) || made.any(|endpoint| endpoint.bound() == handle) {
        fatal(CALL, &"the segment is bound to an endpoint");
    }
    if all.segments.write().remove(&handle.addr()).is_none() {
        fatal(
            CALL,
            &format_args!("{handle:p} is not a valid segment handle"),
        );
    }
}

/// Binds a created segment to an endpoint. Puts and gets can reach the segment once
/// `gex_EP_PublishBoundSegment` has published it. The first endpoint accepts a created segment only
/// if it has no attached segment and the job does not use segment everything; the created segment
/// then serves all calls, not only puts and gets.
#[unsafe(no_mangle)]
extern "C" fn gex_EP_BindSegment(
    endpoint: *const c_void,
    segment: *const c_void,
    flags: u32,
) -> c_int {
    const CALL: &str = "gex_EP_BindSegment";
    let job = Job::of(CALL);
    let all = &job.objects.endpoints;
    let is_first = endpoint == job.objects.endpoint.handle();
    let (index, place) = match all.find(endpoint) {
        _ if is_first => (0, &all.of_first),
        Some(endpoint) => (endpoint.index, &endpoint.segment),
        None => {
            let reason = format!("{endpoint:p} is not a valid endpoint handle");
            return refuse(CALL, &Refusal::bad(reason));
        }
    };
    let Some(segment) = all.segment(segment) else {
        let reason = format!("{segment:p} is not the handle of a created segment");
        return refuse(CALL, &Refusal::bad(reason));
    };
    let reason = match () {
        () if flags != 0 => format!("flags {flags:#x} given, but this call accepts none"),
        () if is_first && job.everything => {
            "the first endpoint's segment is all memory of the process".to_owned()
        }
        () if place.get().is_some() || is_first && !job.bound_segment().is_null() => {
            "the endpoint already has a segment".to_owned()
        }
        () => {
            // SAFETY: by making this memory a segment, the client allows peers to read and write it
            // as long as the segment is bound.
            let done = unsafe { job.engine().memory().bind(bound(index, &segment)) };
            if done.is_ok() {
                let _ = place.set(segment);
            }
            return code(CALL, done);
        }
    };
    refuse(CALL, &Refusal::bad(reason))
}

fn bound(index: u16, segment: &Created) -> Bound {
    let address = segment.address.expose_provenance() as u64;
    Bound {
        index,
        address,
        len: segment.bytes,
    }
}

/// Publishes the segments bound to the given endpoints to the ranks of a team, and records which
/// segments the other ranks publish. Collective over the team.
///
/// # Safety
/// `endpoints` must be null or valid for reads of `count` entries.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_EP_PublishBoundSegment(
    team: *const c_void,
    endpoints: *const *const c_void,
    count: usize,
    flags: u32,
) -> c_int {
    const CALL: &str = "gex_EP_PublishBoundSegment";
    let (job, team) = team_without_flags(CALL, team, flags);
    if count > MOST || count > 0 && endpoints.is_null() {
        let reason = format!("a list of {count} endpoints at {endpoints:p} is not valid");
        return refuse(CALL, &Refusal::bad(reason));
    }
    let given = (0..count).map(|at| {
        // SAFETY: the list is not null and `at` is below `count`, so the caller guarantees that the
        // entry is valid.
        unsafe { *endpoints.add(at) }
    });
    let mut all = Vec::new();
    for handle in given {
        if handle == job.objects.endpoint.handle() {
            // Every rank has known this rank's attached segment since attach, so only a bound
            // segment is published.
            all.extend(job.objects.endpoints.of_first().map(|of| bound(0, of)));
            continue;
        }
        let Some(endpoint) = job.objects.endpoints.find(handle) else {
            fatal(
                CALL,
                &format_args!("{handle:p} is not a valid endpoint handle"),
            );
        };
        let segment = endpoint.segment.get();
        all.extend(segment.map(|segment| bound(endpoint.index, segment)));
    }
    job.knows_unmapped();
    code(CALL, job.engine().memory().publish_bound(team.id(), &all))
}

/// The names of the values of `gex_MK_Class_t`, for error messages.
const CLASSES: [&str; 4] = ["HOST", "CUDA_UVA", "HIP", "ZE"];

/// Always fails, because this library supports no device memory kinds.
///
/// # Safety
/// `arguments` must be null or valid for a read.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_MK_Create(
    _place: *mut *const c_void,
    client: *const c_void,
    arguments: *const abi::KindArguments,
    _flags: u32,
) -> c_int {
    const CALL: &str = "gex_MK_Create";
    let job = Job::of(CALL);
    check(CALL, "client", &job.objects.client, client);
    if arguments.is_null() {
        return refuse(CALL, &Refusal::bad("args is null"));
    }
    // SAFETY: `arguments` is not null, so the caller guarantees that it is valid for a read.
    let class = unsafe { (*arguments).class };
    let refusal = match CLASSES.get(class as usize) {
        None => Refusal::bad(format!("class {class} is not a value of gex_MK_Class_t")),
        Some(name) => Refusal::of(
            abi::RESOURCE,
            format!(
                "memory kinds of class GEX_MK_CLASS_{name} cannot be created with this library"
            ),
        ),
    };
    refuse(CALL, &refusal)
}

/// Always ends the job, because no memory kind can have been created.
#[unsafe(no_mangle)]
extern "C" fn gex_MK_Destroy(kind: *const c_void, _flags: u32) {
    const CALL: &str = "gex_MK_Destroy";
    Job::of(CALL);
    fatal(
        CALL,
        &format_args!("{kind:p} is not the handle of a created memory kind"),
    )
}
