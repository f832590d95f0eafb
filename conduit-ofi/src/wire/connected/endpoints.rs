//! libfabric's objects for connections. They are a passive endpoint on which peers request
//! connections, an event queue, a separate domain with one completion queue, and the connected
//! endpoints.

use std::ffi::c_void;
use std::ptr;

use libfabric_sys::{
    FI_CONNECTED, FI_CONNREQ, FI_EAVAIL, FI_OPT_CM_DATA_SIZE, FI_OPT_ENDPOINT, FI_RECV,
    FI_SHUTDOWN, FI_TRANSMIT, FI_WAIT_FD, FI_WAIT_NONE, fi_accept, fi_close, fi_connect,
    fi_control, fi_enable, fi_endpoint, fi_ep_bind, fi_eq_attr, fi_eq_cm_entry, fi_eq_err_entry,
    fi_eq_open, fi_eq_read, fi_eq_readerr, fi_getopt, fi_info, fi_listen, fi_passive_ep,
    fi_pep_bind, fi_reject, fi_trywait, fid, fid_ep, fid_eq, fid_pep,
};

use crate::provider::Offer;
use crate::wire::objects::{Objects, Refusal, check};

/// The maximum number of bytes sent with a request or its answer. `verbs` has no room for more.
pub(super) const MOST_DATA: usize = 56;

/// The data that are sent with a request or its answer.
pub(super) type Data = [u8; MOST_DATA];

/// A request for a connection, which must be granted or refused.
pub(super) struct Request(*mut fi_info);

/// An event of a connection.
pub(super) enum Event {
    /// A request for a connection, with its data and their length.
    Request(Request, Data, usize),
    /// An established connection. If this rank requested the connection, the peer's answer and its
    /// length follow.
    Connected(*mut fid_ep, Data, usize),
    /// A connection that has ended or was not established.
    Ended(*mut fid_ep),
}

/// The objects of a rank. See the [module](self).
pub(super) struct Endpoints {
    pub(super) objects: Objects,
    eq: *mut fid_eq,
    pep: *mut fid_pep,
    /// The open endpoints.
    open: Vec<*mut fid_ep>,
    /// The event queue's descriptor, if the queue has one.
    pub(super) descriptor: Option<libc::pollfd>,
}

// SAFETY: only one thread at a time uses the objects, in the same way as for `Objects`.
unsafe impl Send for Endpoints {}

impl Endpoints {
    /// Opens everything except connected endpoints, and starts to listen.
    pub(super) fn open(offer: Offer) -> Result<Self, Refusal> {
        let mut endpoints = Self {
            objects: Objects::open_without_endpoint(offer)?,
            eq: ptr::null_mut(),
            pep: ptr::null_mut(),
            open: Vec::new(),
            descriptor: None,
        };
        let (fabric, info) = (endpoints.objects.fabric, endpoints.objects.offer.info());
        let none = ptr::null_mut();
        // SAFETY: the fabric is open, and the offer is from the same library. Each object is opened
        // before it is used, and `drop` closes the opened objects.
        unsafe {
            let mut attr = fi_eq_attr {
                wait_obj: FI_WAIT_FD,
                ..fi_eq_attr::default()
            };
            if fi_eq_open(fabric, &mut attr, &mut endpoints.eq, none) == 0 {
                endpoints.descriptor = endpoints.find_descriptor();
            } else {
                attr.wait_obj = FI_WAIT_NONE;
                check(
                    "fi_eq_open",
                    fi_eq_open(fabric, &mut attr, &mut endpoints.eq, none),
                )?;
            }
            check(
                "fi_passive_ep",
                fi_passive_ep(fabric, info, &mut endpoints.pep, none),
            )?;
            let eq = &raw mut (*endpoints.eq).fid;
            check("fi_pep_bind", fi_pep_bind(endpoints.pep, eq, 0))?;
            check("fi_listen", fi_listen(endpoints.pep))?;
        }
        Ok(endpoints)
    }

    fn find_descriptor(&self) -> Option<libc::pollfd> {
        let mut found = libc::pollfd {
            fd: -1,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the queue is open with `FI_WAIT_FD`, so the library writes one descriptor, for
        // which `found.fd` has room.
        let result = unsafe {
            let place = (&raw mut found.fd).cast();
            fi_control(&raw mut (*self.eq).fid, libfabric_sys::FI_GETWAIT, place)
        };
        (result == 0 && found.fd >= 0).then_some(found)
    }

    /// Returns the address of the passive endpoint.
    pub(super) fn address(&self) -> Result<Vec<u8>, Refusal> {
        // SAFETY: the passive endpoint is open.
        unsafe { Objects::address_of(&raw mut (*self.pep).fid) }
    }

    /// Returns the number of bytes that the provider can send with a request, or `None` if the
    /// provider does not report it.
    pub(super) fn data_size(&self) -> Option<usize> {
        let (mut size, mut length) = (0_usize, size_of::<usize>());
        // SAFETY: the passive endpoint is open and has the same table of operations as an endpoint.
        // The option is a `size_t`, for which `size` has room.
        let result = unsafe {
            fi_getopt(
                &raw mut (*self.pep).fid,
                FI_OPT_ENDPOINT,
                FI_OPT_CM_DATA_SIZE,
                (&raw mut size).cast(),
                &mut length,
            )
        };
        (result == 0).then_some(size)
    }

    /// Returns whether a thread may sleep on the descriptors now.
    pub(super) fn may_wait(&self) -> bool {
        // SAFETY: the fabric and both queues are open, and `queues` holds the number of pointers
        // that is passed.
        unsafe {
            let mut queues = [&raw mut (*self.objects.cq).fid, &raw mut (*self.eq).fid];
            fi_trywait(
                self.objects.fabric,
                queues.as_mut_ptr(),
                queues.len() as i32,
            ) == 0
        }
    }

    /// Returns the next event, or `None` if there is none.
    pub(super) fn event(&mut self) -> Result<Option<Event>, Refusal> {
        /// The number of bytes of data for which the buffer has room. Attackers may send as much
        /// data as the provider permits (`tcp`: 256 bytes), and an event longer than the buffer
        /// would never leave the queue.
        const ROOM: usize = 4096;
        #[repr(C)]
        struct Entry {
            entry: fi_eq_cm_entry,
            data: [u8; ROOM],
        }
        const LEAST: usize = size_of::<fi_eq_cm_entry>();
        loop {
            let mut kind = 0;
            let mut entry = Entry {
                entry: fi_eq_cm_entry::default(),
                data: [0; ROOM],
            };
            // SAFETY: the queue is open, and `entry` has room for the number of bytes that is
            // passed.
            let read = unsafe {
                let place = (&raw mut entry).cast();
                fi_eq_read(self.eq, &mut kind, place, size_of::<Entry>(), 0)
            };
            if read == -(FI_EAVAIL as isize) {
                let mut failed = fi_eq_err_entry::default();
                // SAFETY: the queue is open, and `failed` is valid for writes.
                let read = unsafe { fi_eq_readerr(self.eq, &mut failed, 0) };
                let ep: *mut fid_ep = failed.fid.cast();
                if read > 0 && self.open.contains(&ep) {
                    return Ok(Some(Event::Ended(ep)));
                }
                // The peer has withdrawn its request, which the library reports as an error.
                match read > 0 {
                    true => continue,
                    false => return Ok(None),
                }
            }
            let Ok(read) = usize::try_from(read) else {
                return match read == -(libfabric_sys::FI_EAGAIN as isize) {
                    true => Ok(None),
                    false => Err(Refusal {
                        operation: "fi_eq_read",
                        error: read as i64,
                        bytes: 0,
                    }),
                };
            };
            if read < LEAST {
                return Ok(None);
            }
            let length = (read - LEAST).min(MOST_DATA);
            let mut data = [0; MOST_DATA];
            data[..length].copy_from_slice(&entry.data[..length]);
            let ep: *mut fid_ep = entry.entry.fid.cast();
            let is_open = self.open.contains(&ep);
            return Ok(Some(match kind {
                FI_CONNREQ if !entry.entry.info.is_null() => {
                    Event::Request(Request(entry.entry.info), data, length)
                }
                FI_CONNECTED if is_open => Event::Connected(ep, data, length),
                FI_SHUTDOWN if is_open => Event::Ended(ep),
                _ => continue,
            }));
        }
    }

    /// Opens an endpoint for this offer and binds it to the queues.
    fn endpoint(&mut self, info: *mut fi_info) -> Result<*mut fid_ep, Refusal> {
        let mut ep = ptr::null_mut();
        // SAFETY: the domain is open, the offer is from the same library, and `ep` is valid for
        // writes.
        unsafe {
            check(
                "fi_endpoint",
                fi_endpoint(self.objects.domain, info, &mut ep, ptr::null_mut()),
            )?;
        }
        self.open.push(ep);
        // SAFETY: the endpoint and the two queues are open.
        let result = unsafe {
            let cq = &raw mut (*self.objects.cq).fid;
            check("fi_ep_bind", fi_ep_bind(ep, cq, FI_TRANSMIT | FI_RECV))
                .and_then(|()| {
                    let eq = &raw mut (*self.eq).fid;
                    check("fi_ep_bind", fi_ep_bind(ep, eq, 0))
                })
                .and_then(|()| check("fi_enable", fi_enable(ep)))
        };
        match result {
            Ok(()) => Ok(ep),
            Err(refusal) => {
                self.close(ep);
                Err(refusal)
            }
        }
    }

    /// Opens an endpoint to be [connected](Self::connect) with this address.
    pub(super) fn towards(&mut self, address: &[u8]) -> Result<*mut fid_ep, Refusal> {
        let offer = self.objects.offer.towards(address).ok_or(Refusal {
            operation: "fi_dupinfo",
            error: -i64::from(libfabric_sys::FI_ENOMEM),
            bytes: 0,
        })?;
        self.endpoint(offer.info())
    }

    /// Requests a connection with the peer at this address. `data` is sent with the request.
    pub(super) fn connect(
        &self,
        ep: *mut fid_ep,
        address: &[u8],
        data: &[u8],
    ) -> Result<(), Refusal> {
        // SAFETY: the endpoint is open, the address was made by the same provider, and `data` has
        // the length that is passed.
        let result = unsafe {
            let (address, data_at) = (address.as_ptr().cast(), data.as_ptr().cast());
            fi_connect(ep, address, data_at, data.len())
        };
        check("fi_connect", result)
    }

    /// Opens an endpoint for a request, to be [accepted](Self::accept).
    pub(super) fn grant(&mut self, request: Request) -> Result<*mut fid_ep, Refusal> {
        let ep = self.endpoint(request.0);
        match ep {
            // SAFETY: the request is from the library, and nothing uses it after this call, because
            // the endpoint has copied what it needs.
            Ok(_) => unsafe { self.objects.offer.library().freeinfo(request.0) },
            Err(_) => self.refuse(request),
        }
        ep
    }

    /// Accepts the request for which the endpoint `ep` was opened. `data` is sent with the answer.
    pub(super) fn accept(&self, ep: *mut fid_ep, data: &[u8]) -> Result<(), Refusal> {
        // SAFETY: the endpoint is open, and `data` has the length that is passed.
        let result = unsafe { fi_accept(ep, data.as_ptr().cast(), data.len()) };
        check("fi_accept", result)
    }

    /// Refuses a request.
    pub(super) fn refuse(&self, request: Request) {
        // SAFETY: the passive endpoint is open, the request is from the library, and nothing uses
        // the request after this.
        unsafe {
            fi_reject(self.pep, (*request.0).handle, ptr::null::<c_void>(), 0);
            self.objects.offer.library().freeinfo(request.0);
        }
    }

    /// Closes an endpoint. Afterwards, no completions of the endpoint are added to the queue.
    pub(super) fn close(&mut self, ep: *mut fid_ep) {
        if let Some(at) = self.open.iter().position(|open| *open == ep) {
            self.open.swap_remove(at);
            // SAFETY: the endpoint is open, and nothing uses it after this.
            unsafe { fi_close(&raw mut (*ep).fid) };
        }
    }
}

impl Drop for Endpoints {
    fn drop(&mut self) {
        for ep in std::mem::take(&mut self.open) {
            // SAFETY: the endpoint is open, and nothing uses it after this.
            unsafe { fi_close(&raw mut (*ep).fid) };
        }
        let objects: [*mut fid; 2] = [self.pep.cast(), self.eq.cast()];
        for object in objects.into_iter().filter(|object| !object.is_null()) {
            // SAFETY: the object is open, and the objects that depend on it are closed. The domain
            // and the fabric are closed after it.
            unsafe { fi_close(object) };
        }
    }
}
