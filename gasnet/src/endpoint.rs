//! Endpoints besides the first, the segments that are bound to them, and memory kinds.
//!
//! A further endpoint is a number for memory: puts and gets reach what is bound to it. Messages, collectives and atomics are the
//! first endpoint's.

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

/// `GASNET_MAXEPS`.
pub(crate) const MOST: usize = 32;

/// `GEX_EP_CAPABILITY_RMA`.
const RMA: u32 = 1;

/// `GEX_MK_HOST`.
pub(crate) const HOST: usize = 1;

/// The lowest bits of the handle of a segment that was created.
const TAG: usize = 2;
const SHIFT: u32 = 3;

/// An endpoint besides the first.
pub(crate) struct Endpoint {
    object: Object,
    index: u16,
    segment: OnceLock<Arc<Created>>,
}

/// A segment that was created.
pub(crate) struct Created {
    object: Object,
    handle: usize,
    address: *mut c_void,
    bytes: usize,
    /// The library's own, to be unmapped.
    is_ours: bool,
}

// SAFETY: the address is only handed on: to the client, and to the engine, for which it is a number.
unsafe impl Send for Created {}
// SAFETY: as above.
unsafe impl Sync for Created {}

impl Drop for Created {
    fn drop(&mut self) {
        if self.is_ours {
            // SAFETY: mapped by `create`; nothing is bound to it, as endpoints hold what is bound to them for ever.
            let _ = unsafe { munmap(self.address, self.bytes) };
        }
    }
}

/// The further endpoints of a process, by index from 1 on, and the segments that were created. Handles are never given again.
pub(crate) struct Endpoints {
    endpoints: [OnceLock<Endpoint>; MOST - 1],
    made: AtomicUsize,
    segments: RwLock<HashMap<usize, Arc<Created>>>,
    given: AtomicUsize,
    /// What is bound to the first endpoint, if nothing was attached.
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

    /// The handle of the segment that is bound to it; null if there is none.
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

/// Makes one more endpoint, for puts and gets.
///
/// # Safety
/// `place` is null or valid for a write.
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
        let reason = format!("capabilities {capabilities:#x}, to be written to {place:p}");
        return refuse(CALL, &Refusal::bad(reason));
    }
    if capabilities & !RMA != 0 {
        let reason = format!(
            "capabilities {capabilities:#x}: further endpoints have GEX_EP_CAPABILITY_RMA only"
        );
        return refuse(CALL, &Refusal::of(abi::RESOURCE, reason));
    }
    let all = &job.objects.endpoints;
    let index = all.made.fetch_add(1, Relaxed);
    let Some(free) = all.endpoints.get(index) else {
        all.made.store(MOST - 1, Relaxed);
        let reason = format!("there are GASNET_MAXEPS ({MOST}) endpoints already");
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
    // SAFETY: not null; the caller's promise.
    unsafe { place.write(endpoint.object.handle()) };
    abi::OK
}

/// Makes a segment of memory of the client's, or of the library's if `address` is null.
///
/// # Safety
/// `place` is null or valid for a write.
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
            "{bytes} bytes at {address:p}, to be written to {place:p}"
        ))
    } else if kind.addr() != HOST {
        Some(format!("memory kind {kind:p} is not GEX_MK_HOST"))
    } else if flags != 0 {
        Some(format!("flags {flags:#x}, there are none"))
    } else {
        None
    };
    if let Some(reason) = refusal {
        return refuse(CALL, &Refusal::bad(reason));
    }
    let is_ours = address.is_null();
    let mapped = match is_ours {
        false => Ok(address),
        // SAFETY: a new mapping at a place of the system's choice.
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
            let reason = format!("no memory for {bytes} bytes: {error}");
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
    // SAFETY: not null; the caller's promise.
    unsafe { place.write(std::ptr::without_provenance(handle)) };
    abi::OK
}

/// Destroys a segment that was created and is bound to no endpoint.
#[unsafe(no_mangle)]
extern "C" fn gex_Segment_Destroy(handle: *const c_void, _flags: u32) {
    const CALL: &str = "gex_Segment_Destroy";
    let job = Job::of(CALL);
    let all = &job.objects.endpoints;
    if handle == job.objects.segment.handle() {
        fatal(CALL, &"the segment that was attached stays");
    }
    let mut made = all.endpoints.iter().map_while(OnceLock::get);
    let of_first = all.of_first().map(Created::handle);
    if of_first == Some(handle) || made.any(|endpoint| endpoint.bound() == handle) {
        fatal(CALL, &"the segment is bound to an endpoint");
    }
    if all.segments.write().remove(&handle.addr()).is_none() {
        fatal(CALL, &format_args!("{handle:p} is no segment of this job"));
    }
}

/// Binds a segment to an endpoint, from which on puts and gets may reach it, once it has been published. Where nothing was attached,
/// and not everything is, a segment of the first endpoint is what all other calls reach as well.
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
            let reason = format!("{endpoint:p} is no endpoint of this job");
            return refuse(CALL, &Refusal::bad(reason));
        }
    };
    let Some(segment) = all.segment(segment) else {
        let reason = format!("{segment:p} is no segment that was created");
        return refuse(CALL, &Refusal::bad(reason));
    };
    let reason = match () {
        () if flags != 0 => format!("flags {flags:#x}, there are none"),
        () if is_first && job.everything => {
            "the first endpoint has all memory for its segment".to_owned()
        }
        () if place.get().is_some() || is_first && !job.bound_segment().is_null() => {
            "the endpoint has a segment already".to_owned()
        }
        () => {
            // SAFETY: the client has made it a segment, which is memory that peers write, as long as it is bound.
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

/// Tells the ranks of a team which segments are bound to endpoints of this rank, and learns theirs. Collective.
///
/// # Safety
/// `endpoints` is valid for `count` entries.
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
        let reason = format!("{count} endpoints at {endpoints:p}");
        return refuse(CALL, &Refusal::bad(reason));
    }
    let given = (0..count).map(|at| {
        // SAFETY: not null, and below `count`; the caller's promise.
        unsafe { *endpoints.add(at) }
    });
    let mut all = Vec::new();
    for handle in given {
        if handle == job.objects.endpoint.handle() {
            // What was attached is known since then.
            all.extend(job.objects.endpoints.of_first().map(|of| bound(0, of)));
            continue;
        }
        let Some(endpoint) = job.objects.endpoints.find(handle) else {
            fatal(CALL, &format_args!("{handle:p} is no endpoint of this job"));
        };
        let segment = endpoint.segment.get();
        all.extend(segment.map(|segment| bound(endpoint.index, segment)));
    }
    job.knows_unmapped();
    code(CALL, job.engine().memory().publish_bound(team.id(), &all))
}

/// `gex_MK_Class_t`, as messages name them.
const CLASSES: [&str; 4] = ["HOST", "CUDA_UVA", "HIP", "ZE"];

/// Makes a memory kind, for memory of a device: there is none.
///
/// # Safety
/// `arguments` is null or valid for a read.
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
        return refuse(CALL, &Refusal::bad("no arguments"));
    }
    // SAFETY: not null; the caller's promise.
    let class = unsafe { (*arguments).class };
    let refusal = match CLASSES.get(class as usize) {
        None => Refusal::bad(format!("class {class} is none of gex_MK_Class_t")),
        Some(name) => Refusal::of(
            abi::RESOURCE,
            format!("this library has no memory kind of class GEX_MK_CLASS_{name} to create"),
        ),
    };
    refuse(CALL, &refusal)
}

/// Destroys a memory kind: none could have been created.
#[unsafe(no_mangle)]
extern "C" fn gex_MK_Destroy(kind: *const c_void, _flags: u32) {
    const CALL: &str = "gex_MK_Destroy";
    Job::of(CALL);
    fatal(
        CALL,
        &format_args!("{kind:p} is no memory kind that was created"),
    )
}
