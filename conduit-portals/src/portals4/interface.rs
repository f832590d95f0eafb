//! An open interface of libportals. Its methods make the library's calls, and convert their return
//! codes to results.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use conduit_core::ni::{MatchEntry, MeOptions, NiError, Rank, Submit, Unlink};
use portals4_sys::*;

/// The destination of an entry's messages.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// Memory that is filled in order of arrival.
    Managed {
        base: *mut u8,
        len: usize,
        min_free: usize,
    },
    /// Memory accessed at the initiator's offset.
    Region { base: *mut u8, len: usize },
    /// No memory.
    Nothing,
}

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    Put,
    Get,
    /// An atomic that the library performs. The memory at this rank holds the operand, followed at
    /// [`FETCHED`] by room for the old value.
    Atomic(NativeAtomic),
}

/// An atomic in the library's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NativeAtomic {
    pub(super) op: ptl_op_t,
    pub(super) ty: ptl_datatype_t,
    /// Comparand of [`PTL_CSWAP`]. The library reads only the first bytes, as many as the type has.
    pub(super) comparand: [u8; 8],
    pub(super) fetch: bool,
}

impl EntryKind {
    /// Returns whether the target sends data back. For a swap it always does.
    fn replies(self) -> bool {
        match self {
            Self::Put => false,
            Self::Get => true,
            Self::Atomic(atomic) => atomic.fetch || atomic.op >= PTL_SWAP,
        }
    }

    /// Returns the name of the library's call.
    fn call(self) -> &'static str {
        match self {
            Self::Put => "PtlPut",
            Self::Get => "PtlGet",
            Self::Atomic(_) if !self.replies() => "PtlAtomic",
            Self::Atomic(atomic) if atomic.op >= PTL_SWAP => "PtlSwap",
            Self::Atomic(_) => "PtlFetchAtomic",
        }
    }
}

/// Offset of the fetched old value from the start of an atomic's operand, in bytes.
pub(super) const FETCHED: usize = 8;

/// An operation in the library's form.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer {
    pub(super) kind: EntryKind,
    /// The memory descriptor that covers all memory of the process and delivers completions to the
    /// operation's queue.
    pub(super) md: ptl_handle_md_t,
    /// Address of the memory at this rank.
    pub(super) address: usize,
    pub(super) length: usize,
    pub(super) target: Rank,
    pub(super) index: u8,
    pub(super) match_bits: u64,
    pub(super) remote_offset: u64,
    pub(super) hdr_data: u64,
    /// Value passed back in the event.
    pub(super) user: usize,
}

/// An open interface of a library. Any number of threads may call the library at once.
#[derive(Debug)]
pub(super) struct Interface {
    library: Library,
    ni: ptl_handle_ni_t,
    pub(super) limits: ptl_ni_limits_t,
    rank: Rank,
    closed: AtomicBool,
    /// Number of threads that wait for an event.
    waiting: AtomicU32,
    /// Whether an event queue has overflowed, so that events are lost.
    overrun: AtomicBool,
}

impl Interface {
    /// Opens an interface with matching and logical addresses. `rank` is for error texts.
    pub(super) fn open(
        library: Library,
        rank: Rank,
        most: ptl_ni_limits_t,
    ) -> Result<Self, NiError> {
        let mut this = Self {
            library,
            ni: PTL_INVALID_HANDLE,
            limits: most,
            rank,
            closed: AtomicBool::new(true),
            waiting: AtomicU32::new(0),
            overrun: AtomicBool::new(false),
        };
        // SAFETY: `PtlInit` may be called at any time.
        this.check("PtlInit", unsafe { this.library.PtlInit() })?;
        let options = PTL_NI_MATCHING | PTL_NI_LOGICAL;
        // SAFETY: all pointers are to live local variables.
        let opened = unsafe {
            this.library.PtlNIInit(
                PTL_IFACE_DEFAULT,
                options,
                PTL_PID_ANY,
                &most,
                &mut this.limits,
                &mut this.ni,
            )
        };
        this.check("PtlNIInit", opened)?;
        *this.closed.get_mut() = false;
        Ok(this)
    }

    /// Returns this process's physical id.
    pub(super) fn place(&self) -> Result<ptl_process_phys_t, NiError> {
        let mut id = ptl_process_t::from_rank(0);
        // SAFETY: `id` is a live local variable.
        let found = unsafe { self.library.PtlGetPhysId(self.ni, &mut id) };
        self.check("PtlGetPhysId", found)?;
        // SAFETY: all bytes of `id` are initialised, and the call returns a physical id.
        Ok(unsafe { id.phys })
    }

    /// Sets the physical id of each rank. May wait for the other ranks of this host.
    pub(super) fn set_map(&self, places: &[ptl_process_phys_t]) -> Result<(), NiError> {
        let map: Vec<_> = places
            .iter()
            .map(|place| ptl_process_t::from_phys(place.nid, place.pid))
            .collect();
        // SAFETY: `map` has as many elements as the length passed with it.
        let set = unsafe {
            self.library
                .PtlSetMap(self.ni, map.len() as u64, map.as_ptr())
        };
        self.check("PtlSetMap", set)
    }

    /// Checks that the library's constants are those of its assumed version.
    pub(super) fn self_test(&self) -> Result<(), SelfTestError> {
        // SAFETY: `self.ni` is an open interface of this library, with matching and a map.
        unsafe { self.library.self_test(self.ni) }
    }

    fn constants(&self) -> &'static Constants {
        self.library.constants()
    }

    #[inline]
    fn check(&self, operation: &'static str, returned: c_int) -> Result<(), NiError> {
        match returned {
            PTL_OK => Ok(()),
            code => Err(self.refused(operation, code)),
        }
    }

    #[cold]
    fn refused(&self, operation: &'static str, code: c_int) -> NiError {
        let code = self.library.version().return_code(code);
        self.error(
            operation,
            format!("{} returned {code}", self.library.path().display()),
        )
    }

    #[cold]
    pub(super) fn error(&self, operation: &'static str, reason: String) -> NiError {
        NiError::System {
            operation,
            rank: self.rank,
            reason,
        }
    }

    pub(super) fn eq_alloc(&self, slots: usize) -> Result<ptl_handle_eq_t, NiError> {
        let mut queue = PTL_EQ_NONE;
        // SAFETY: `queue` is a live local variable.
        let made = unsafe { self.library.PtlEQAlloc(self.ni, slots as u64, &mut queue) };
        self.check("PtlEQAlloc", made).map(|()| queue)
    }

    /// Returns the next event of a queue.
    #[inline]
    pub(super) fn eq_get(&self, queue: ptl_handle_eq_t) -> Option<ptl_event_t> {
        let mut event = ptl_event_t::default();
        // SAFETY: `queue` belongs to this open interface, and `event` is a live local variable.
        match unsafe { self.library.PtlEQGet(queue, &mut event) } {
            PTL_OK => Some(event),
            PTL_EQ_DROPPED => {
                self.overrun.store(true, Ordering::Relaxed);
                Some(event)
            }
            _ => None,
        }
    }

    /// Waits up to `milliseconds` for an event of one of these queues; returns the queue's index
    /// and the event. This is the only call that other threads may make during [`Self::close`].
    pub(super) fn eq_poll(
        &self,
        queues: &[ptl_handle_eq_t],
        milliseconds: u32,
    ) -> Option<(usize, ptl_event_t)> {
        let mut event = ptl_event_t::default();
        let mut which = 0;
        // SYNC: `eq_poll` increments `waiting` before it reads `closed`; `close` sets `closed`
        // before it reads `waiting`.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let polled = match self.closed.load(Ordering::SeqCst) {
            true => PTL_EQ_EMPTY,
            // SAFETY: the queues belong to this open interface, and the pointers are to live local
            // variables.
            false => unsafe {
                self.library.PtlEQPoll(
                    queues.as_ptr(),
                    queues.len() as c_uint,
                    milliseconds,
                    &mut event,
                    &mut which,
                )
            },
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        if polled == PTL_EQ_DROPPED {
            self.overrun.store(true, Ordering::Relaxed);
        }
        matches!(polled, PTL_OK | PTL_EQ_DROPPED).then_some((which as usize, event))
    }

    /// Opens a table entry. An entry with a queue has flow control.
    pub(super) fn pt_alloc(
        &self,
        index: u8,
        queue: Option<ptl_handle_eq_t>,
    ) -> Result<(), NiError> {
        let options = if queue.is_some() { PTL_PT_FLOWCTRL } else { 0 };
        let queue = queue.unwrap_or(PTL_EQ_NONE);
        let mut got = 0;
        // SAFETY: `queue` belongs to this interface, and `got` is a live local variable.
        let made =
            unsafe { (self.library).PtlPTAlloc(self.ni, options, queue, index.into(), &mut got) };
        self.check("PtlPTAlloc", made)
    }

    pub(super) fn pt_enable(&self, index: u8) {
        // SAFETY: `self.ni` is an open interface, which is all that the call requires. The call
        // can't fail, because the index is open.
        unsafe { self.library.PtlPTEnable(self.ni, index.into()) };
    }

    /// Appends an entry. With `tells`, operations on the entry raise events.
    ///
    /// # Safety
    /// The target's memory must stay valid until the entry is unlinked or the interface is closed.
    pub(super) unsafe fn me_append(
        &self,
        index: u8,
        entry: &MatchEntry,
        target: Target,
        tells: bool,
        user: usize,
    ) -> Result<ptl_handle_me_t, NiError> {
        let constants = self.constants();
        let (base, len, min_free, managed) = match target {
            Target::Managed {
                base,
                len,
                min_free,
            } => (base, len, min_free, true),
            Target::Region { base, len } => (base, len, 0, false),
            // Marked as locally managed, because the library then ignores the initiator's offset.
            Target::Nothing => (ptr::null_mut(), 0, 0, true),
        };
        let mut options = constants.PTL_ME_EVENT_LINK_DISABLE
            | constants.PTL_ME_EVENT_OVER_DISABLE
            | constants.PTL_ME_UNEXPECTED_HDR_DISABLE;
        for (set, option) in [
            (entry.options.contains(MeOptions::PUT), PTL_ME_OP_PUT),
            (entry.options.contains(MeOptions::GET), PTL_ME_OP_GET),
            (entry.options.contains(MeOptions::USE_ONCE), PTL_ME_USE_ONCE),
            (
                !entry.options.contains(MeOptions::TRUNCATE),
                constants.PTL_ME_NO_TRUNCATE,
            ),
            (managed, constants.PTL_ME_MANAGE_LOCAL),
            (!tells, constants.PTL_ME_EVENT_COMM_DISABLE),
        ] {
            options |= if set { option } else { 0 };
        }
        let me = ptl_me_t {
            start: base.cast(),
            length: len as u64,
            ct_handle: PTL_CT_NONE,
            uid: PTL_UID_ANY,
            options,
            match_id: ptl_process_t::from_rank(entry.source.unwrap_or(PTL_RANK_ANY)),
            match_bits: entry.match_bits,
            ignore_bits: entry.ignore_bits,
            min_free: min_free as u64,
        };
        let list = match entry.options.contains(MeOptions::OVERFLOW) {
            true => PTL_OVERFLOW_LIST,
            false => PTL_PRIORITY_LIST,
        };
        let user = ptr::without_provenance_mut::<c_void>(user);
        let mut handle = PTL_INVALID_HANDLE;
        // SAFETY: the pointers are to live local variables, and the caller guarantees that the
        // target's memory stays valid.
        let made = unsafe {
            (self.library).PtlMEAppend(self.ni, index.into(), &me, list, user, &mut handle)
        };
        self.check("PtlMEAppend", made).map(|()| handle)
    }

    pub(super) fn me_unlink(&self, handle: ptl_handle_me_t) -> Result<Unlink, NiError> {
        // SAFETY: `handle` is an entry of this interface.
        match unsafe { self.library.PtlMEUnlink(handle) } {
            PTL_OK => Ok(Unlink::Done),
            // The library returns `PTL_ARG_INVALID` for an entry that unlinks itself at this
            // moment.
            PTL_IN_USE | PTL_ARG_INVALID => Ok(Unlink::InUse),
            code => Err(self.refused("PtlMEUnlink", code)),
        }
    }

    /// Binds a memory descriptor that covers all memory of this process and delivers completions to
    /// `queue`.
    pub(super) fn md_bind(&self, queue: ptl_handle_eq_t) -> Result<ptl_handle_md_t, NiError> {
        let md = ptl_md_t {
            start: ptr::null_mut(),
            length: PTL_SIZE_MAX,
            options: PTL_MD_EVENT_SEND_DISABLE,
            eq_handle: queue,
            ct_handle: PTL_CT_NONE,
        };
        let mut handle = PTL_INVALID_HANDLE;
        // SAFETY: `queue` belongs to this interface, and the pointers are to live local variables.
        // Binding accesses no memory: each operation specifies which memory is accessed.
        let made = unsafe { self.library.PtlMDBind(self.ni, &md, &mut handle) };
        self.check("PtlMDBind", made).map(|()| handle)
    }

    /// Starts an operation.
    ///
    /// # Safety
    /// Until the operation's event, the memory that is sent must not be written, and the memory
    /// that receives data must be neither read nor written.
    #[inline]
    pub(super) unsafe fn start(&self, transfer: &Transfer) -> Result<Submit, NiError> {
        let Transfer {
            md,
            address,
            length,
            match_bits,
            remote_offset,
            hdr_data,
            ..
        } = *transfer;
        let (address, length) = (address as u64, length as u64);
        let target = ptl_process_t::from_rank(transfer.target);
        let index = transfer.index.into();
        let user = ptr::without_provenance_mut::<c_void>(transfer.user);
        let returned = match transfer.kind {
            // SAFETY: `md` is a descriptor of this interface, and the caller guarantees that the
            // memory is not accessed otherwise until the event.
            EntryKind::Get => unsafe {
                self.library.PtlGet(
                    md,
                    address,
                    length,
                    target,
                    index,
                    match_bits,
                    remote_offset,
                    user,
                )
            },
            // SAFETY: `md` is a descriptor of this interface, and the caller keeps the conditions
            // for access to the memory until the event.
            EntryKind::Put => unsafe {
                self.library.PtlPut(
                    md,
                    address,
                    length,
                    PTL_ACK_REQ,
                    target,
                    index,
                    match_bits,
                    remote_offset,
                    user,
                    hdr_data,
                )
            },
            EntryKind::Atomic(NativeAtomic { op, ty, .. }) if !transfer.kind.replies() => {
                // SAFETY: `md` is a descriptor of this interface, and the caller keeps the
                // conditions for access to the memory until the event.
                unsafe {
                    self.library.PtlAtomic(
                        md,
                        address,
                        length,
                        PTL_ACK_REQ,
                        target,
                        index,
                        match_bits,
                        remote_offset,
                        user,
                        hdr_data,
                        op,
                        ty,
                    )
                }
            }
            EntryKind::Atomic(NativeAtomic {
                op, ty, comparand, ..
            }) if op >= PTL_SWAP => {
                // SAFETY: `md` is a descriptor of this interface, and the caller keeps the
                // conditions for access to the memory until the event. The library reads the
                // comparand only during the call.
                unsafe {
                    self.library.PtlSwap(
                        md,
                        address + FETCHED as u64,
                        md,
                        address,
                        length,
                        target,
                        index,
                        match_bits,
                        remote_offset,
                        user,
                        hdr_data,
                        comparand.as_ptr().cast(),
                        op,
                        ty,
                    )
                }
            }
            EntryKind::Atomic(NativeAtomic { op, ty, .. }) => {
                // SAFETY: `md` is a descriptor of this interface, and the caller keeps the
                // conditions for access to the memory until the event.
                unsafe {
                    self.library.PtlFetchAtomic(
                        md,
                        address + FETCHED as u64,
                        md,
                        address,
                        length,
                        target,
                        index,
                        match_bits,
                        remote_offset,
                        user,
                        hdr_data,
                        op,
                        ty,
                    )
                }
            }
        };
        match returned {
            PTL_OK => Ok(Submit::Posted),
            code if code == self.constants().PTL_NO_SPACE => Ok(Submit::Again),
            code => Err(self.refused(transfer.kind.call(), code)),
        }
    }

    /// Returns the reason if the interface can't be used, because events are lost or the interface
    /// is closed. Otherwise returns `None`.
    pub(super) fn is_broken(&self) -> Option<&'static str> {
        if self.closed.load(Ordering::Relaxed) {
            Some("the interface was closed to give up operations that did not end")
        } else if self.overrun.load(Ordering::Relaxed) {
            Some("an event queue of libportals overflowed (setting CONDUIT_PORTALS4_OPERATIONS)")
        } else {
            None
        }
    }

    /// Closes the interface, after which the library accesses no memory. No other call may be in
    /// progress or follow, except [`Self::eq_poll`].
    pub(super) fn close(&self) {
        // SYNC: `closed` is set before `waiting` is read; `eq_poll` increments `waiting` before it
        // reads `closed`.
        if !self.closed.swap(true, Ordering::SeqCst) {
            while self.waiting.load(Ordering::SeqCst) != 0 {
                std::thread::yield_now();
            }
            // SAFETY: the interface is open, and `closed` ensures that it is closed only once.
            // `PtlFini` is not called, because after that call this process could not initialise
            // the reference library again.
            unsafe { self.library.PtlNIFini(self.ni) };
        }
    }

    /// Marks the interface as closed in a child process, where the library's threads do not exist.
    pub(super) fn forget(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        self.close();
    }
}
