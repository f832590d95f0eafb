//! Bare libfabric between two processes. Each has an endpoint with posted receives, and polls its
//! queue for completions, like libfabric's own `fi_pingpong`. The queue has no descriptor for
//! sleeping, because such queues are the fastest kind.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering::*;

use libfabric_sys::*;

use crate::Error;
use crate::limits::alone::Private;
use crate::side::Side;

use super::UNDER_WAY;
use crate::bare::Endpoint;
use crate::exchange::Exchange;

/// The number of posted receives.
const RECEIVES: usize = 16;
/// The number of bytes of each receive.
const RECEIVE: usize = 8 << 10;
/// The maximum number of completions read at once.
const BATCH: usize = 8;

/// Returns an error with this text.
pub(super) fn failed(text: impl Into<String>) -> Error {
    Error::Figure {
        name: "bare libfabric",
        source: text.into().into(),
    }
}

/// The library's use of locks for data shared between calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Locks {
    /// The library's default locks, which `fi_pingpong` and fabtests measure.
    Usual,
    /// No locks, because the application promises to serialise all calls. Conduit makes this
    /// promise with libfabric 1.21 and later.
    None,
}

/// `FI_PROGRESS_CONTROL_UNIFIED`.
const UNIFIED: fi_progress = 3;

/// The point at which a write counts as ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The write has ended when its source may be reused (`fi_write` without further flags).
    Sent,
    /// The write has ended when the peer can see its bytes (`fi_writemsg` with
    /// `FI_DELIVERY_COMPLETE`).
    Seen,
}

/// The peer's memory to which this side can write.
#[derive(Clone, Copy, Debug)]
struct There {
    key: u64,
    address: u64,
}

/// One side's endpoint.
pub(super) struct Bare {
    library: Library,
    info: *mut fi_info,
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    av: *mut fid_av,
    cq: *mut fid_cq,
    ep: *mut fid_ep,
    memory: Vec<*mut fid_mr>,
    peer: fi_addr_t,
    there: There,
    /// The contexts of the receives, followed by those of the operations under way.
    contexts: Box<[fi_context2]>,
    buffers: Box<[u8]>,
    buffers_desc: *mut c_void,
    pub(super) source: Private,
    source_desc: *mut c_void,
    next: usize,
    received: u64,
    /// The number of sends and writes whose completions are outstanding.
    pending: u64,
}

macro_rules! check {
    ($library:expr, $call:expr) => {{
        let result = $call;
        if result != 0 {
            let reason = $library.strerror(result as c_int);
            let call = stringify!($call).split('(').next().unwrap_or_default();
            return Err(failed(format!("{call}: {reason}")));
        }
    }};
}

impl Bare {
    /// Opens an endpoint and connects it with the other side's endpoint. The peer can write to
    /// `segment`. This side's writes read from `source`.
    ///
    /// # Safety
    /// `segment` must stay valid for as long as the endpoint exists, and no other code may rely on
    /// its contents.
    pub(super) unsafe fn open(
        side: &Side<'_>,
        library: Library,
        provider: &str,
        domain: &str,
        locks: Locks,
        segment: (*mut u8, usize),
        source: Private,
    ) -> Result<Self, Error> {
        let info = offer(&library, provider, domain, locks)?;
        let null = ptr::null_mut();
        let mut bare = Self {
            library,
            info,
            fabric: ptr::null_mut(),
            domain: ptr::null_mut(),
            av: ptr::null_mut(),
            cq: ptr::null_mut(),
            ep: ptr::null_mut(),
            memory: Vec::new(),
            peer: FI_ADDR_UNSPEC,
            there: There { key: 0, address: 0 },
            contexts: vec![fi_context2::default(); RECEIVES + UNDER_WAY as usize].into(),
            buffers: vec![0; (RECEIVES + 1) * RECEIVE].into(),
            buffers_desc: null,
            source,
            source_desc: null,
            next: 0,
            received: 0,
            pending: 0,
        };
        // SAFETY: the offer is from this library, and each object is opened from those opened
        // before, which `drop` closes only after it. The registered memory stays valid while the
        // endpoint is open: the boxes belong to the same structure, the structure holds a share of
        // the private memory, and the caller guarantees that the segment is valid.
        unsafe {
            let library = &bare.library;
            check!(
                library,
                library.fabric((*info).fabric_attr, &mut bare.fabric, null)
            );
            check!(
                library,
                fi_domain(bare.fabric, info, &mut bare.domain, null)
            );
            let mut queue = fi_cq_attr {
                format: FI_CQ_FORMAT_DATA,
                wait_obj: FI_WAIT_NONE,
                ..fi_cq_attr::default()
            };
            check!(
                library,
                fi_cq_open(bare.domain, &mut queue, &mut bare.cq, null)
            );
            let mut vector = fi_av_attr {
                r#type: FI_AV_TABLE,
                ..fi_av_attr::default()
            };
            check!(
                library,
                fi_av_open(bare.domain, &mut vector, &mut bare.av, null)
            );
            check!(library, fi_endpoint(bare.domain, info, &mut bare.ep, null));
            check!(library, fi_ep_bind(bare.ep, &raw mut (*bare.av).fid, 0));
            check!(
                library,
                fi_ep_bind(bare.ep, &raw mut (*bare.cq).fid, FI_TRANSMIT | FI_RECV)
            );
            check!(library, fi_enable(bare.ep));
            let buffers = (bare.buffers.as_mut_ptr(), bare.buffers.len());
            let source = bare
                .source
                .with(|source| (source.as_mut_ptr(), source.len()));
            let buffers = bare.register(buffers, 1)?;
            let source = bare.register(source, 2)?;
            let open = bare.register(segment, 3)?;
            bare.buffers_desc = fi_mr_desc(buffers);
            bare.source_desc = fi_mr_desc(source);
            let address = match bare.mr_mode() & FI_MR_VIRT_ADDR {
                0 => 0,
                _ => segment.0.addr() as u64,
            };
            bare.meet(side, fi_mr_key(open), address)?;
            for number in 0..RECEIVES {
                bare.post(number)?;
            }
        }
        // The first send establishes a connection.
        side.meet()?;
        bare.send(side, 1)?;
        bare.until(side, |bare| bare.received > 0)?;
        bare.rest(side)?;
        Ok(bare)
    }

    fn mr_mode(&self) -> c_int {
        // SAFETY: the library sets the domain attributes of every offer, and `self` keeps the
        // offer.
        unsafe { (*(*self.info).domain_attr).mr_mode }
    }

    unsafe fn register(
        &mut self,
        (base, length): (*mut u8, usize),
        key: u64,
    ) -> Result<*mut fid_mr, Error> {
        let access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        let mut mr = ptr::null_mut();
        // SAFETY: the domain is open, and the caller guarantees that the memory stays valid while
        // it is registered.
        unsafe {
            check!(
                self.library,
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
            );
            self.memory.push(mr);
            if self.mr_mode() & FI_MR_ENDPOINT != 0 {
                check!(self.library, fi_mr_bind(mr, &raw mut (*self.ep).fid, 0));
                check!(self.library, fi_mr_enable(mr));
            }
        }
        Ok(mr)
    }

    /// Exchanges addresses with the other side and adds its address to the address vector.
    fn meet(&mut self, side: &Side<'_>, key: u64, address: u64) -> Result<(), Error> {
        let mut name = vec![0; 1024];
        let mut length = name.len();
        // SAFETY: the endpoint is open, and the buffer has `length` bytes.
        unsafe {
            let named = fi_getname(
                &raw mut (*self.ep).fid,
                name.as_mut_ptr().cast(),
                &mut length,
            );
            check!(self.library, named);
        }
        let mut card = [key.to_le_bytes(), address.to_le_bytes()].concat();
        card.extend_from_slice(&name[..length]);
        let mut all = Exchange::new(side).all(&card)?;
        let mut card = all.swap_remove(1 - side.rank());
        let mut name = card.split_off(card.len().min(16));
        // A zero byte is appended to terminate addresses that are strings.
        name.push(0);
        let word = |at: usize| card.get(at..at + 8).and_then(|word| word.try_into().ok());
        let (Some(key), Some(address)) = (word(0), word(8)) else {
            return Err(failed("the other side's address is malformed"));
        };
        self.there = There {
            key: u64::from_le_bytes(key),
            address: u64::from_le_bytes(address),
        };
        // SAFETY: the address vector is open, and `name` contains an address from the same
        // provider, so it has the provider's format and length.
        let count = unsafe {
            fi_av_insert(
                self.av,
                name.as_ptr().cast(),
                1,
                &mut self.peer,
                0,
                ptr::null_mut(),
            )
        };
        match count {
            1 => Ok(()),
            _ => Err(failed("fi_av_insert rejected the address")),
        }
    }

    /// Posts a receive.
    #[inline]
    fn post(&mut self, number: usize) -> Result<(), Error> {
        // SAFETY: the endpoint is open. The buffer of this receive is registered and not posted,
        // and no other operation uses its context.
        let result = unsafe {
            fi_recv(
                self.ep,
                self.buffers.as_mut_ptr().add(number * RECEIVE).cast(),
                RECEIVE,
                self.buffers_desc,
                FI_ADDR_UNSPEC,
                (&raw mut self.contexts[number]).cast(),
            )
        };
        check!(self.library, result);
        Ok(())
    }

    #[cold]
    fn failure(&self, count: isize) -> Error {
        let mut entry = fi_cq_err_entry::default();
        // SAFETY: the queue is open, and the pointer refers to a variable.
        unsafe { fi_cq_readerr(self.cq, &mut entry, 0) };
        failed(format!("fi_cq_read: {count}: {entry:?}"))
    }

    /// Returns a context for an operation. At least one is always free, because at most
    /// [`UNDER_WAY`] operations are under way.
    #[inline]
    fn context(&mut self) -> *mut c_void {
        self.next = (self.next + 1) % UNDER_WAY as usize;
        (&raw mut self.contexts[RECEIVES + self.next]).cast()
    }

    /// Submits an operation repeatedly until the provider accepts it.
    #[inline]
    fn submit(
        &mut self,
        side: &Side<'_>,
        mut operation: impl FnMut(&mut Self) -> isize,
    ) -> Result<(), Error> {
        const AGAIN: isize = -(FI_EAGAIN as isize);
        let mut result = operation(self);
        if result == AGAIN {
            side.spin_until("space in the queue", || {
                if self.poll().is_err() {
                    return true;
                }
                result = operation(self);
                result != AGAIN
            })?;
        }
        check!(self.library, result);
        Ok(())
    }

    /// Writes the first bytes of the source to the start of the peer's segment.
    #[inline]
    pub(super) fn write(
        &mut self,
        side: &Side<'_>,
        source: *mut u8,
        size: usize,
        end: End,
    ) -> Result<(), Error> {
        let context = self.context();
        if end == End::Sent {
            // SAFETY: the endpoint is open. `source` points to the bytes of `self.source`, which
            // stay valid until the completion because they live as long as the endpoint.
            self.submit(side, |bare| unsafe {
                fi_write(
                    bare.ep,
                    source.cast(),
                    size,
                    bare.source_desc,
                    bare.peer,
                    bare.there.address,
                    bare.there.key,
                    context,
                )
            })?;
            self.pending += 1;
            return Ok(());
        }
        let piece = iovec {
            iov_base: source.cast(),
            iov_len: size,
        };
        let there = fi_rma_iov {
            addr: self.there.address,
            len: size,
            key: self.there.key,
        };
        let mut desc = self.source_desc;
        let message = fi_msg_rma {
            msg_iov: &piece,
            desc: &mut desc,
            iov_count: 1,
            addr: self.peer,
            rma_iov: &there,
            rma_iov_count: 1,
            context,
            data: 0,
        };
        // SAFETY: the endpoint is open. `source` points to the bytes of `self.source`, which stay
        // valid until the completion because they live as long as the endpoint.
        self.submit(side, |bare| unsafe {
            fi_writemsg(bare.ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION)
        })?;
        self.pending += 1;
        Ok(())
    }
}

impl Endpoint for Bare {
    const NAME: &'static str = "libfabric";

    /// Sends `size` bytes. If they are few enough, they are injected.
    #[inline]
    fn send(&mut self, side: &Side<'_>, size: usize) -> Result<(), Error> {
        // SAFETY: the library sets the transmit attributes of every offer, and `self` keeps the
        // offer.
        let inject = unsafe { (*(*self.info).tx_attr).inject_size };
        // SAFETY: `buffers` contains one more buffer after those of the receives.
        let from = unsafe { self.buffers.as_ptr().add(RECEIVES * RECEIVE) };
        if size <= inject {
            // SAFETY: the endpoint is open, and the bytes at `from` are valid. `fi_inject` copies
            // them before it returns.
            return self.submit(side, |bare| unsafe {
                fi_inject(bare.ep, from.cast(), size, bare.peer)
            });
        }
        self.until(side, |bare| bare.pending < UNDER_WAY)?;
        let context = self.context();
        // SAFETY: the endpoint is open, and the bytes at `from` stay valid, because `buffers` lives
        // as long as the endpoint.
        self.submit(side, |bare| unsafe {
            fi_send(
                bare.ep,
                from.cast(),
                size,
                bare.buffers_desc,
                bare.peer,
                context,
            )
        })?;
        self.pending += 1;
        Ok(())
    }

    fn received(&self) -> u64 {
        self.received
    }

    fn under_way(&self) -> u64 {
        self.pending
    }

    #[inline]
    fn poll(&mut self) -> Result<(), Error> {
        const AGAIN: isize = -(FI_EAGAIN as isize);
        let mut entries = [fi_cq_data_entry::default(); BATCH];
        // SAFETY: the queue is open, its entries have the type `fi_cq_data_entry`, and `entries`
        // has space for `BATCH` of them.
        let count = unsafe { fi_cq_read(self.cq, entries.as_mut_ptr().cast(), BATCH) };
        if count == AGAIN {
            return Ok(());
        }
        if count < 0 {
            return Err(self.failure(count));
        }
        for entry in &entries[..count.unsigned_abs()] {
            if entry.flags & FI_RECV == 0 {
                self.pending -= 1;
                continue;
            }
            self.received += 1;
            let offset = entry.op_context.addr() - self.contexts.as_ptr().addr();
            self.post(offset / size_of::<fi_context2>())?;
        }
        Ok(())
    }

    fn rest(&mut self, side: &Side<'_>) -> Result<(), Error> {
        let own = side.area().word(8 + side.rank())?;
        let other = side.area().word(9 - side.rank())?;
        own.store(0, Relaxed);
        side.meet()?;
        self.drain(side)?;
        own.store(1, Release);
        self.until(side, |_| other.load(Acquire) == 1)?;
        side.meet()
    }
}

/// Returns the offer of exactly this provider on this domain.
fn offer(
    library: &Library,
    provider: &str,
    domain: &str,
    locks: Locks,
) -> Result<*mut fi_info, Error> {
    let name =
        CString::new(provider).map_err(|_| failed("the provider's name contains a zero byte"))?;
    let place =
        CString::new(domain).map_err(|_| failed("the domain's name contains a zero byte"))?;
    let hints = library.allocinfo();
    if hints.is_null() {
        return Err(failed("fi_allocinfo"));
    }
    // SAFETY: `allocinfo` sets all attributes of the empty offer `hints`. The library frees its
    // strings, which are allocated with `malloc`. The hints and the list of offers are freed here,
    // once each.
    unsafe {
        let info = &mut *hints;
        info.caps = FI_MSG | FI_RMA;
        info.mode = FI_CONTEXT | FI_CONTEXT2;
        (*info.ep_attr).r#type = FI_EP_RDM;
        let attr = &mut *info.domain_attr;
        attr.mr_mode =
            FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
        attr.threading = FI_THREAD_DOMAIN;
        if locks == Locks::None {
            attr.control_progress = UNIFIED;
        }
        (*info.fabric_attr).prov_name = libc::strdup(name.as_ptr());
        let mut first = ptr::null_mut();
        let result = library.getinfo(API_VERSION, ptr::null(), ptr::null(), 0, hints, &mut first);
        library.freeinfo(hints);
        check!(library, result);
        let mut next = first;
        let mut found = ptr::null_mut();
        while let Some(info) = next.as_ref() {
            let is = |text: *const c_char, name: &CString| {
                !text.is_null() && CStr::from_ptr(text) == name.as_c_str()
            };
            if is((*info.fabric_attr).prov_name, &name) && is((*info.domain_attr).name, &place) {
                found = library.dupinfo(next);
                break;
            }
            next = info.next;
        }
        library.freeinfo(first);
        match found.is_null() {
            true => Err(failed(format!(
                "no offer of provider {provider} on {domain}"
            ))),
            false => Ok(found),
        }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let memory = self.memory.iter().map(|mr| mr.cast::<fid>());
        let objects = [self.ep.cast::<fid>()].into_iter().chain(memory).chain([
            self.cq.cast(),
            self.av.cast(),
            self.domain.cast(),
            self.fabric.cast(),
        ]);
        for object in objects.filter(|object| !object.is_null()) {
            // SAFETY: the object is open, and the objects that depend on it have been closed before
            // it.
            unsafe { fi_close(object) };
        }
        // SAFETY: the offer is from this library and has no other user.
        unsafe { self.library.freeinfo(self.info) }
    }
}
