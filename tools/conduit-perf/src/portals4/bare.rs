//! Bare loops of calls of a libportals. There is one interface with two table entries over the same
//! memory, of which one causes events at the target and the other does not. A descriptor's
//! completions go to a queue.

use std::ffi::c_int;
use std::ptr;
use std::time::{Duration, Instant};

use portals4_sys::*;

use crate::Error;
use crate::bare::Endpoint;
use crate::exchange::Exchange;
use crate::piece::Piece;
use crate::side::Side;

/// The maximum number of operations under way at once, in loops with several.
const UNDER_WAY: u64 = 64;
/// The capacity of a queue. It exceeds the number of messages in a run, so that events fit even if
/// their target gets no processor time.
const EVENTS: u64 = 1 << 16;
/// The table entry whose messages cause events at the target.
const TOLD: ptl_pt_index_t = 3;
/// The table entry whose messages cause no events at the target.
const SILENT: ptl_pt_index_t = 4;

/// Returns an error with this text.
pub(super) fn failed(text: impl Into<String>) -> Error {
    Error::Figure {
        name: "bare libportals",
        source: text.into().into(),
    }
}

/// One side's open interface.
pub(super) struct Bare {
    library: Library,
    ni: ptl_handle_ni_t,
    most: u64,
    /// The queue for the events of messages to [`TOLD`].
    arrivals: ptl_handle_eq_t,
    completions: ptl_handle_eq_t,
    md: ptl_handle_md_t,
    /// The memory that is the source of puts and the destination of gets, and the memory that peers
    /// access.
    memory: [Box<[u8]>; 2],
    arrived: u64,
    /// The number of operations with completion events that have started.
    started: u64,
    /// The number of these operations that have ended.
    ended: u64,
}

impl Bare {
    /// Opens an interface with `bytes` bytes of memory, and connects it with the other side's
    /// interface.
    pub(super) fn open(side: &Side<'_>, library: Library, bytes: usize) -> Result<Self, Error> {
        let mut bare = Self {
            library,
            ni: PTL_INVALID_HANDLE,
            most: 0,
            arrivals: PTL_EQ_NONE,
            completions: PTL_EQ_NONE,
            md: PTL_INVALID_HANDLE,
            memory: [vec![1; bytes].into(), vec![0; bytes].into()],
            arrived: 0,
            started: 0,
            ended: 0,
        };
        bare.start()?;
        bare.meet(side)?;
        bare.expose()?;
        // The sides meet, so that no messages are sent before their target is ready.
        side.meet()?;
        Ok(bare)
    }

    fn check(&self, call: &'static str, returned: c_int) -> Result<(), Error> {
        match self.library.version().return_code(returned) {
            ReturnCode::Ok => Ok(()),
            code => Err(failed(format!("{call} returned {code}"))),
        }
    }

    fn start(&mut self) -> Result<(), Error> {
        let wanted = ptl_ni_limits_t {
            max_entries: 64,
            max_unexpected_headers: 64,
            max_mds: 64,
            max_eqs: 64,
            max_pt_index: 63,
            max_list_size: 64,
            max_msg_size: 1 << 30,
            ..ptl_ni_limits_t::default()
        };
        let mut granted = wanted;
        // SAFETY: `PtlInit` has no preconditions.
        self.check("PtlInit", unsafe { self.library.PtlInit() })?;
        let options = PTL_NI_MATCHING | PTL_NI_LOGICAL;
        // SAFETY: the library is initialised, and the pointers refer to variables that outlive the
        // call.
        let opened = unsafe {
            self.library.PtlNIInit(
                PTL_IFACE_DEFAULT,
                options,
                PTL_PID_ANY,
                &wanted,
                &mut granted,
                &mut self.ni,
            )
        };
        self.check("PtlNIInit", opened)?;
        self.most = granted.max_msg_size;
        Ok(())
    }

    /// Gives the library the addresses of all sides.
    fn meet(&self, side: &Side<'_>) -> Result<(), Error> {
        let mut own = ptl_process_t::from_rank(0);
        // SAFETY: here and below, the interface is open, and the pointer refers to a variable that
        // outlives the call.
        let found = unsafe { self.library.PtlGetPhysId(self.ni, &mut own) };
        self.check("PtlGetPhysId", found)?;
        // SAFETY: all bytes of `own` are initialised, and the call has stored a physical address in
        // it.
        let ptl_process_phys_t { nid, pid } = unsafe { own.phys };
        let own = [nid.to_le_bytes(), pid.to_le_bytes()];
        let mut map = Vec::new();
        for said in Exchange::new(side).all(own.as_flattened())? {
            let [nid, pid] = *said.as_chunks().0 else {
                return Err(failed("a side reported no valid address"));
            };
            let (nid, pid) = (u32::from_le_bytes(nid), u32::from_le_bytes(pid));
            map.push(ptl_process_t::from_phys(nid, pid));
        }
        // SAFETY: `map` has the length that is passed, and outlives the call.
        let set = unsafe {
            self.library
                .PtlSetMap(self.ni, map.len() as u64, map.as_ptr())
        };
        self.check("PtlSetMap", set)
    }

    /// Exposes the memory to peers and binds the memory to send from.
    fn expose(&mut self) -> Result<(), Error> {
        let mut queues = [PTL_EQ_NONE; 2];
        for queue in &mut queues {
            // SAFETY: the interface is open, and the pointer refers to a variable that outlives the
            // call.
            let made = unsafe { self.library.PtlEQAlloc(self.ni, EVENTS, queue) };
            self.check("PtlEQAlloc", made)?;
        }
        [self.arrivals, self.completions] = queues;
        let [source, target] = &mut self.memory;
        let entry = ptl_me_t {
            start: target.as_mut_ptr().cast(),
            length: target.len() as u64,
            ct_handle: PTL_CT_NONE,
            uid: PTL_UID_ANY,
            options: PTL_ME_OP_PUT
                | PTL_ME_OP_GET
                | self.library.constants().PTL_ME_EVENT_LINK_DISABLE,
            match_id: ptl_process_t::from_rank(PTL_RANK_ANY),
            match_bits: 0,
            ignore_bits: 0,
            min_free: 0,
        };
        let md = ptl_md_t {
            start: source.as_mut_ptr().cast(),
            length: source.len() as u64,
            options: PTL_MD_EVENT_SEND_DISABLE,
            eq_handle: self.completions,
            ct_handle: PTL_CT_NONE,
        };
        for (index, queue) in [(TOLD, self.arrivals), (SILENT, PTL_EQ_NONE)] {
            let (mut got, mut handle) = (0, PTL_INVALID_HANDLE);
            // SAFETY: the queue belongs to this open interface, and the pointer refers to a
            // variable that outlives the call.
            let made = unsafe { (self.library).PtlPTAlloc(self.ni, 0, queue, index, &mut got) };
            self.check("PtlPTAlloc", made)?;
            let (list, user) = (PTL_PRIORITY_LIST, ptr::null_mut());
            // SAFETY: the interface is open, and the pointers refer to variables that outlive the
            // call. The memory that `entry` describes stays valid until `drop` closes the
            // interface.
            let made = unsafe {
                (self.library).PtlMEAppend(self.ni, index, &entry, list, user, &mut handle)
            };
            self.check("PtlMEAppend", made)?;
        }
        // SAFETY: the interface is open, and the pointers refer to variables that outlive the call.
        // The memory that `md` describes stays valid until `drop` closes the interface.
        let made = unsafe { self.library.PtlMDBind(self.ni, &md, &mut self.md) };
        self.check("PtlMDBind", made)
    }

    /// Returns whether messages of `size` bytes can be sent.
    pub(super) fn takes(&self, size: usize) -> bool {
        size as u64 <= self.most && size <= self.memory[0].len()
    }

    /// Puts the first `size` bytes of the source to the peer. If `acknowledged` is set, the put is
    /// acknowledged and counts as started.
    fn put(&mut self, peer: u32, index: u32, size: usize, acknowledged: bool) -> Result<(), Error> {
        let ack = if acknowledged {
            PTL_ACK_REQ
        } else {
            PTL_NO_ACK_REQ
        };
        let (peer, user) = (ptl_process_t::from_rank(peer), ptr::null_mut());
        let size = size as u64;
        // SAFETY: the descriptor belongs to this open interface. Its memory stays valid until
        // `drop`, and only gets write to it.
        let put =
            unsafe { (self.library).PtlPut(self.md, 0, size, ack, peer, index, 0, 0, user, 0) };
        self.check("PtlPut", put)?;
        self.started += u64::from(acknowledged);
        Ok(())
    }

    fn get(&mut self, peer: u32, size: usize) -> Result<(), Error> {
        let (peer, user) = (ptl_process_t::from_rank(peer), ptr::null_mut());
        // SAFETY: the descriptor belongs to this open interface. Its memory stays valid until
        // `drop` closes the interface, and is not read before the get has ended.
        let got =
            unsafe { (self.library).PtlGet(self.md, 0, size as u64, peer, SILENT, 0, 0, user) };
        self.check("PtlGet", got)?;
        self.started += 1;
        Ok(())
    }
}

impl Endpoint for Bare {
    const NAME: &'static str = "libportals";

    fn send(&mut self, side: &Side<'_>, size: usize) -> Result<(), Error> {
        self.put(1 - side.rank() as u32, TOLD, size, false)
    }

    fn received(&self) -> u64 {
        self.arrived
    }

    fn under_way(&self) -> u64 {
        self.started - self.ended
    }

    /// Takes one event from each queue, if there is one.
    fn poll(&mut self) -> Result<(), Error> {
        for (queue, count) in [
            (self.arrivals, &mut self.arrived),
            (self.completions, &mut self.ended),
        ] {
            let mut event = ptl_event_t::default();
            // SAFETY: the queue belongs to this open interface, and the pointer refers to a
            // variable that outlives the call.
            match unsafe { self.library.PtlEQGet(queue, &mut event) } {
                PTL_OK if event.ni_fail_type == PTL_NI_OK => *count += 1,
                PTL_OK => {
                    let kind = event.ni_fail_type;
                    return Err(failed(format!("an event with failure {kind}")));
                }
                PTL_EQ_EMPTY => {}
                code => {
                    let code = self.library.version().return_code(code);
                    return Err(failed(format!("PtlEQGet returned {code}")));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // SAFETY: either the interface is open, or the handle is invalid and the library refuses
        // it.
        unsafe { self.library.PtlNIFini(self.ni) };
    }
}

/// The loops of operations on a bare interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loop {
    /// Puts go back and forth, each with an event at its target. An operation is a round trip.
    ToAndFro,
    /// Each put starts after the acknowledgement of the previous one.
    Put,
    /// Each get starts after the previous one has ended.
    Get,
    /// Several acknowledged puts are under way at once.
    Puts,
    /// Several acknowledged puts are under way at once. They cause events at the target, which
    /// replies to the last one.
    Stream,
}

impl Loop {
    /// Returns the name printed with a figure.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ToAndFro => "put-to-and-fro",
            Self::Put => "put-and-acknowledgement",
            Self::Get => "get-and-reply",
            Self::Puts => "puts-acknowledged",
            Self::Stream => "puts-told",
        }
    }

    /// Returns the piece that runs the loop with messages of `size` bytes.
    pub(super) fn piece(self, bare: &mut Bare, size: usize) -> impl Piece + '_ {
        move |side: &Side<'_>, count| self.run(bare, side, size, count)
    }

    fn run(
        self,
        bare: &mut Bare,
        side: &Side<'_>,
        size: usize,
        count: u64,
    ) -> Result<Duration, Error> {
        if self == Self::ToAndFro {
            return bare.round_trips(side, size, count);
        }
        let first = bare.arrived;
        side.meet()?;
        let start = Instant::now();
        if side.rank() == 0 {
            let most = match self {
                Self::Put | Self::Get => 1,
                _ => UNDER_WAY,
            };
            bare.stream(side, count, most, |bare| match self {
                Self::Get => bare.get(1, size),
                Self::Stream => bare.put(1, TOLD, size, true),
                _ => bare.put(1, SILENT, size, true),
            })?;
            bare.drain(side)?;
        }
        if self == Self::Stream {
            // Side 1 replies to the last message.
            let awaited = first + if side.rank() == 0 { 1 } else { count };
            bare.until(side, |bare| bare.arrived == awaited)?;
            if side.rank() == 1 {
                bare.send(side, 8)?;
            }
        }
        Ok(start.elapsed())
    }
}
