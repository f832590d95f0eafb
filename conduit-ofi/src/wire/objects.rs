//! One rank's libfabric objects: the fabric, the domain, the address vector, the completion queue,
//! the endpoint and registered memory. They are opened together, and closed in the order that
//! libfabric requires.

use std::ffi::{c_int, c_void};
use std::ptr;

use libfabric_sys::{
    FI_ADDR_UNSPEC, FI_AV_TABLE, FI_AV_UNSPEC, FI_CQ_FORMAT_DATA, FI_EBUSY, FI_EIO, FI_ENOKEY,
    FI_MR_ALLOCATED, FI_MR_ENDPOINT, FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_OPT_ENDPOINT,
    FI_OPT_MIN_MULTI_RECV, FI_READ, FI_RECV, FI_REMOTE_WRITE, FI_SEND, FI_TRANSMIT, FI_WAIT_FD,
    FI_WAIT_NONE, FI_WAIT_POLLFD, Library, fi_addr_t, fi_av_attr, fi_av_insert, fi_av_open,
    fi_av_remove, fi_close, fi_cq_attr, fi_cq_open, fi_domain, fi_enable, fi_endpoint, fi_ep_bind,
    fi_getname, fi_mr_bind, fi_mr_desc, fi_mr_enable, fi_mr_key, fi_mr_reg, fi_setopt, fi_trywait,
    fi_version, fi_wait_obj, fid, fid_av, fid_cq, fid_domain, fid_ep, fid_fabric, fid_mr,
};

use crate::provider::Offer;
use crate::wire::wait;

/// The maximum length of an endpoint's address.
pub(crate) const MAX_ADDRESS: usize = 1024;

/// A call that the library refused, with the call's name, the (negative) error number, and the
/// number of bytes of memory that the call concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) operation: &'static str,
    pub(crate) error: i64,
    pub(crate) bytes: usize,
}

impl Refusal {
    /// Returns the reason as text, with advice if the call concerned memory.
    pub(crate) fn reason(self, library: &Library) -> String {
        let error = c_int::try_from(self.error).unwrap_or(c_int::MIN);
        let words = library.strerror(error);
        match self.bytes {
            0 => words,
            bytes => format!("{words} ({bytes} bytes{})", locked_limit()),
        }
    }
}

/// Returns the limit on locked memory as text, because this limit is the reason for most refused
/// registrations.
fn locked_limit() -> String {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
    let allowed = match limit.current {
        None => "unlimited".to_owned(),
        Some(bytes) => format!("{bytes} bytes"),
    };
    format!(
        "; limit on locked memory: {allowed}; raise it with ulimit -l, or use a smaller segment, smaller \
         CONDUIT_OFI_RECEIVE_BUFFERS or another CONDUIT_OFI_PROVIDER"
    )
}

/// Converts a result to a [`Refusal`] unless it is zero, which means success.
pub(crate) fn check(operation: &'static str, result: impl Into<i64>) -> Result<(), Refusal> {
    match result.into() {
        0 => Ok(()),
        error => Err(Refusal {
            operation,
            error,
            bytes: 0,
        }),
    }
}

/// Requests the system to allocate the memory's pages, which registration would pin anyway.
fn allocate(base: *mut u8, length: usize, is_written: bool) {
    use rustix::mm::{Advice, madvise};
    let page = rustix::param::page_size();
    let begin = base.addr() & !(page - 1);
    let length = base.addr() + length - begin;
    let advice = match is_written {
        true => Advice::LinuxPopulateWrite,
        false => Advice::LinuxPopulateRead,
    };
    // SAFETY: this advice changes no byte. Systems before Linux 5.14 refuse the advice, and if
    // memory is exhausted, the registration will fail.
    let _ = unsafe { madvise(base.with_addr(begin).cast(), length, advice) };
}

/// All objects of one endpoint.
pub(crate) struct Objects {
    pub(crate) offer: Offer,
    pub(crate) fabric: *mut fid_fabric,
    pub(crate) domain: *mut fid_domain,
    av: *mut fid_av,
    pub(crate) cq: *mut fid_cq,
    pub(crate) ep: *mut fid_ep,
    memory: Vec<*mut fid_mr>,
    /// The descriptors to sleep on. There may be none (see [`descriptors`]).
    pub(crate) descriptors: Vec<libc::pollfd>,
}

// SAFETY: the library permits any thread to use the objects, but only one at a time
// (`FI_THREAD_DOMAIN`).
unsafe impl Send for Objects {}

/// Registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registered {
    mr: *mut fid_mr,
    /// The descriptor for operations that use this memory as local memory.
    pub(crate) descriptor: *mut c_void,
    /// The key that peers use.
    pub(crate) key: u64,
    /// The address to which peers' offsets are relative.
    pub(crate) address: u64,
}

// SAFETY: the fields refer to the library's objects, which may be used by any thread, but only by
// one at a time.
unsafe impl Send for Registered {}

impl Objects {
    /// Opens an endpoint for an offer. A receive for several messages ends when fewer than `least`
    /// bytes are left in its buffer (`FI_OPT_MIN_MULTI_RECV`).
    pub(crate) fn open(mut offer: Offer, least: usize) -> Result<Self, Refusal> {
        offer.name_endpoint();
        let kinds: &[fi_wait_obj] = match offer.has_several_descriptors() {
            true => &[FI_WAIT_POLLFD, FI_WAIT_FD, FI_WAIT_NONE],
            false => &[FI_WAIT_FD, FI_WAIT_NONE],
        };
        let (mut objects, wait) = Self::open_queue(offer, kinds)?;
        objects.open_endpoint(wait, least)?;
        Ok(objects)
    }

    /// Opens the objects that connected endpoints need, which are a domain with a queue, but no
    /// endpoint. A list of descriptors (`FI_WAIT_POLLFD`) is not used, because it would cover only
    /// the endpoints that exist now.
    pub(crate) fn open_without_endpoint(offer: Offer) -> Result<Self, Refusal> {
        let (mut objects, wait) = Self::open_queue(offer, &[FI_WAIT_FD, FI_WAIT_NONE])?;
        // SAFETY: the queue is open with this kind of wait, which has a single descriptor.
        objects.descriptors = unsafe { wait::descriptors(objects.cq, wait) };
        Ok(objects)
    }

    /// Opens the fabric, the domain and the completion queue. The queue uses the first kind of wait
    /// object that the provider supports. Also returns that kind.
    fn open_queue(offer: Offer, kinds: &[fi_wait_obj]) -> Result<(Self, fi_wait_obj), Refusal> {
        let info = offer.info();
        let mut objects = Self {
            fabric: ptr::null_mut(),
            domain: ptr::null_mut(),
            av: ptr::null_mut(),
            cq: ptr::null_mut(),
            ep: ptr::null_mut(),
            memory: Vec::new(),
            descriptors: Vec::new(),
            offer,
        };
        // SAFETY: the offer is complete and from this library. Each object is opened from objects
        // opened earlier, and `drop` closes the opened objects.
        unsafe {
            let library = objects.offer.library();
            let none = ptr::null_mut();
            check(
                "fi_fabric",
                library.fabric((*info).fabric_attr, &mut objects.fabric, none),
            )?;
            check(
                "fi_domain",
                fi_domain(objects.fabric, info, &mut objects.domain, none),
            )?;
        }
        let mut result = 0;
        for &wait_obj in kinds {
            let mut attr = fi_cq_attr {
                format: FI_CQ_FORMAT_DATA,
                wait_obj,
                ..fi_cq_attr::default()
            };
            // SAFETY: the domain is open, and `attr` and `objects.cq` are valid for writes.
            result =
                unsafe { fi_cq_open(objects.domain, &mut attr, &mut objects.cq, ptr::null_mut()) };
            if result == 0 {
                return Ok((objects, wait_obj));
            }
        }
        check("fi_cq_open", result).map(|()| (objects, FI_WAIT_NONE))
    }

    fn open_endpoint(&mut self, wait: fi_wait_obj, least: usize) -> Result<(), Refusal> {
        let objects = self;
        let info = objects.offer.info();
        let none = ptr::null_mut();
        // SAFETY: the offer is complete and from this library, and the domain and the queue are
        // open.
        unsafe {
            let mut attr = fi_av_attr {
                r#type: FI_AV_TABLE,
                ..fi_av_attr::default()
            };
            if fi_av_open(objects.domain, &mut attr, &mut objects.av, none) != 0 {
                attr.r#type = FI_AV_UNSPEC;
                check(
                    "fi_av_open",
                    fi_av_open(objects.domain, &mut attr, &mut objects.av, none),
                )?;
            }
            check(
                "fi_endpoint",
                fi_endpoint(objects.domain, info, &mut objects.ep, none),
            )?;
            let av = &raw mut (*objects.av).fid;
            check("fi_ep_bind (address vector)", fi_ep_bind(objects.ep, av, 0))?;
            let cq = &raw mut (*objects.cq).fid;
            check(
                "fi_ep_bind (completion queue)",
                fi_ep_bind(objects.ep, cq, FI_TRANSMIT | FI_RECV),
            )?;
            // `shm` of 2.x reads the option when the endpoint is enabled, and overruns a buffer if
            // the option is set later. `shm` before 2.0 crashes if the option is set earlier.
            if objects.offer.library().version() >= fi_version(2, 0) {
                objects.set_least(least);
            }
            check("fi_enable", fi_enable(objects.ep))?;
            objects.set_least(least);
            objects.descriptors = wait::descriptors(objects.cq, wait);
        }
        Ok(())
    }

    /// Sets `FI_OPT_MIN_MULTI_RECV`. If a provider does not support the option, a buffer holds one
    /// message.
    fn set_least(&self, least: usize) {
        // SAFETY: the endpoint is open, and the option is a `size_t`, in the same way as `least`.
        let _ = unsafe {
            fi_setopt(
                self.ep_fid(),
                FI_OPT_ENDPOINT,
                FI_OPT_MIN_MULTI_RECV,
                (&raw const least).cast(),
                size_of::<usize>(),
            )
        };
    }

    /// Closes the endpoint, which ends all operations in flight. Registrations bound to the
    /// endpoint may also end.
    pub(crate) fn close_endpoint(&mut self) {
        let ep = std::mem::replace(&mut self.ep, ptr::null_mut());
        if ep.is_null() {
            return;
        }
        // SAFETY: the endpoint is open. Nothing uses it after this, because `self.ep` is null and
        // `OfiEndpoint` checks its field `broken`.
        let close = || unsafe { fi_close(&raw mut (*ep).fid) };
        // According to the manual pages, the endpoint is closed before the registrations bound to
        // it. `cxi` requires the opposite order.
        if close() == -FI_EBUSY {
            self.close_memory();
            close();
        }
    }

    /// Closes all registrations.
    fn close_memory(&mut self) {
        for mr in std::mem::take(&mut self.memory) {
            // SAFETY: the registration is open, and no operation uses it any more.
            unsafe { fi_close(&raw mut (*mr).fid) };
        }
    }

    fn ep_fid(&self) -> *mut fid {
        // SAFETY: the endpoint is open, so the field lies within a live object.
        unsafe { &raw mut (*self.ep).fid }
    }

    /// Returns whether a thread may sleep on the descriptors now, because the queue is empty
    /// (`fi_trywait`).
    pub(crate) fn may_wait(&self) -> bool {
        if self.descriptors.is_empty() {
            return true;
        }
        // SAFETY: the fabric and the queue are open, and `queues` holds one pointer.
        unsafe {
            let mut queues = [&raw mut (*self.cq).fid];
            fi_trywait(self.fabric, queues.as_mut_ptr(), 1) == 0
        }
    }

    /// Returns the endpoint's address.
    pub(crate) fn address(&self) -> Result<Vec<u8>, Refusal> {
        // SAFETY: the endpoint is open.
        unsafe { Self::address_of(self.ep_fid()) }
    }

    /// Returns the address of an endpoint or a passive endpoint.
    ///
    /// # Safety
    ///
    /// The endpoint must be open.
    pub(crate) unsafe fn address_of(fid: *mut fid) -> Result<Vec<u8>, Refusal> {
        let mut address = vec![0; MAX_ADDRESS];
        let mut length = address.len();
        // SAFETY: the caller guarantees that the endpoint is open, and the buffer has `length`
        // bytes.
        let result = unsafe { fi_getname(fid, address.as_mut_ptr().cast(), &mut length) };
        check("fi_getname", result)?;
        address.truncate(length);
        Ok(address)
    }

    /// Inserts a peer's address and returns its handle.
    pub(crate) fn insert(&self, address: &[u8]) -> Result<fi_addr_t, Refusal> {
        let mut handle = FI_ADDR_UNSPEC;
        // SAFETY: the address vector is open. The same provider made the address. It is
        // zero-terminated if it is text, and otherwise as long as this rank's own address
        // (`start::parse_all`).
        let count = unsafe {
            fi_av_insert(
                self.av,
                address.as_ptr().cast(),
                1,
                &mut handle,
                0,
                ptr::null_mut(),
            )
        };
        match count {
            1 => Ok(handle),
            error => Err(Refusal {
                operation: "fi_av_insert",
                error: i64::from(error.min(-1)),
                bytes: 0,
            }),
        }
    }

    /// Removes the address of a peer to which nothing is sent any more.
    pub(crate) fn remove(&self, mut handle: fi_addr_t) {
        // SAFETY: the address vector is open. Some providers refuse to remove an address while
        // operations are in flight, so the address is then kept.
        let _ = unsafe { fi_av_remove(self.av, &mut handle, 1, 0) };
    }

    /// Returns the `mr_mode` bits that the provider requires.
    fn mr_mode(&self) -> c_int {
        // SAFETY: every offer has domain attributes, which it owns.
        unsafe { (*(*self.offer.info()).domain_attr).mr_mode }
    }

    /// Returns whether local memory has to be registered (`FI_MR_LOCAL`).
    pub(crate) fn wants_local(&self) -> bool {
        self.mr_mode() & FI_MR_LOCAL != 0
    }

    /// Registers memory for those kinds of `access` that the offer supports.
    ///
    /// # Safety
    ///
    /// `[base, base + length)` must be valid for reads and writes until the registration is
    /// [released](Self::release) or these objects are dropped.
    pub(crate) unsafe fn register(
        &mut self,
        base: *mut u8,
        length: usize,
        access: u64,
    ) -> Result<Registered, Refusal> {
        let access = match self.offer.has_rma() {
            true => access,
            false => access & (FI_SEND | FI_RECV),
        };
        if self.mr_mode() & FI_MR_ALLOCATED != 0 {
            let written = FI_RECV | FI_READ | FI_REMOTE_WRITE;
            allocate(base, length, access & written != 0);
        }
        // SAFETY: the caller guarantees that the memory is valid until the registration is
        // released.
        let mr = unsafe { self.register_by_a_key(base, length, access) }?;
        self.memory.push(mr);
        // SAFETY: the memory has just been registered, and the endpoint is open.
        unsafe {
            if self.mr_mode() & FI_MR_ENDPOINT != 0 {
                check("fi_mr_bind", fi_mr_bind(mr, self.ep_fid(), 0))?;
                check("fi_mr_enable", fi_mr_enable(mr))?;
            }
            Ok(Registered {
                mr,
                descriptor: fi_mr_desc(mr),
                key: fi_mr_key(mr),
                address: match self.mr_mode() & FI_MR_VIRT_ADDR {
                    0 => 0,
                    _ => base.addr() as u64,
                },
            })
        }
    }

    /// Registers memory. If the provider lets the user choose keys, the key is random.
    ///
    /// # Safety
    ///
    /// Same as for [`Self::register`].
    unsafe fn register_by_a_key(
        &self,
        base: *mut u8,
        length: usize,
        access: u64,
    ) -> Result<*mut fid_mr, Refusal> {
        /// The number of attempts to find an unused key, which matters if keys have few bits.
        const ATTEMPTS: u32 = 16;
        let mut result = -FI_ENOKEY;
        for _ in 0..ATTEMPTS {
            let key = self.new_key()?;
            let mut mr = ptr::null_mut();
            // SAFETY: the domain is open. The caller guarantees that the memory is valid, and the
            // registration is closed before the domain.
            result = unsafe {
                fi_mr_reg(
                    self.domain,
                    base.cast(),
                    length,
                    access,
                    0,
                    key,
                    0,
                    &mut mr,
                    ptr::null_mut(),
                )
            };
            match result {
                0 => return Ok(mr),
                error if error == -FI_ENOKEY => {}
                _ => break,
            }
        }
        Err(Refusal {
            operation: "fi_mr_reg",
            error: result.into(),
            bytes: length,
        })
    }

    /// Returns a key with as many random bits as the provider accepts, or 0 if the provider chooses
    /// keys.
    fn new_key(&self) -> Result<u64, Refusal> {
        if self.mr_mode() & FI_MR_PROV_KEY != 0 {
            return Ok(0);
        }
        // SAFETY: every offer has domain attributes, which it owns.
        let bytes = unsafe { (*(*self.offer.info()).domain_attr).mr_key_size };
        let unused = size_of::<u64>().saturating_sub(bytes) * 8;
        let random = getrandom::u64().map_err(|_| Refusal {
            operation: "random numbers",
            error: -i64::from(FI_EIO),
            bytes: 0,
        })?;
        // The cast is lossless, because the number of bits is at most 64.
        Ok(random.checked_shr(unused as u32).unwrap_or(0))
    }

    /// Closes a registration that no operation uses.
    pub(crate) fn release(&mut self, registered: Registered) {
        if let Some(at) = self.memory.iter().position(|mr| *mr == registered.mr) {
            // SAFETY: the registration is open, and no operation uses it any more.
            let result = unsafe { fi_close(&raw mut (*registered.mr).fid) };
            // A registration that cannot be closed yet, because it is bound to the endpoint, is
            // closed after the endpoint.
            if result == 0 {
                self.memory.swap_remove(at);
            }
        }
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        // The endpoint is closed first, because operations on the registrations end with it.
        self.close_endpoint();
        self.close_memory();
        let objects: [*mut fid; 4] = [
            self.cq.cast(),
            self.av.cast(),
            self.domain.cast(),
            self.fabric.cast(),
        ];
        for object in objects.into_iter().filter(|object| !object.is_null()) {
            // SAFETY: the object is open, and the objects that depend on it are closed. The result
            // of closing does not matter here.
            unsafe { fi_close(object) };
        }
    }
}
