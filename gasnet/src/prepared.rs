//! Active messages with negotiated payload. The client prepares the payload, writes it, and then
//! commits or cancels the message.
//!
//! If possible, the payload is written directly to the place from which it is sent or where it is
//! stored. A medium is written into a chunk of the engine, which a mapped peer reads. A long is
//! written into its destination if the prepare call has named the destination, and the destination
//! is mapped here and aligned to 16 bytes, as buffers are. Any other payload lies in the client's
//! buffer or in a buffer of the thread, and the commit sends it in the same way as a fixed payload.
//!
//! A thread has at most one request descriptor and one reply descriptor at a time, because it does
//! not poll between prepare and commit, so that no handler runs in between.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::ManuallyDrop;

use conduit::{Network, Rank};
use conduit_core::messages::{Prepared, PreparedReply};

use crate::Mode;
use crate::abi::{Flags, events};
use crate::fault::{Refusal, fatal, started, sure};
use crate::handlers::{Token, arguments, payload, token};
use crate::job::{Job, TheEngine};
use crate::request::{check_option, handled_here, long_offset, requested};

/// The kind of a prepared message: `conduit_gex_kind` in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) enum PreparedKind {
    RequestMedium = 0,
    RequestLong = 1,
    ReplyMedium = 2,
    ReplyLong = 3,
}

impl PreparedKind {
    fn from_c(kind: c_uint) -> Self {
        match kind {
            0 => Self::RequestMedium,
            1 => Self::RequestLong,
            2 => Self::ReplyMedium,
            3 => Self::ReplyLong,
            _ => fatal("gex_AM_Commit", &"unknown kind of message"),
        }
    }

    fn prepare(self) -> &'static str {
        match self {
            Self::RequestMedium => "gex_AM_PrepareRequestMedium",
            Self::RequestLong => "gex_AM_PrepareRequestLong",
            Self::ReplyMedium => "gex_AM_PrepareReplyMedium",
            Self::ReplyLong => "gex_AM_PrepareReplyLong",
        }
    }

    fn commit(self) -> &'static str {
        match self {
            Self::RequestMedium => "gex_AM_CommitRequestMedium",
            Self::RequestLong => "gex_AM_CommitRequestLong",
            Self::ReplyMedium => "gex_AM_CommitReplyMedium",
            Self::ReplyLong => "gex_AM_CommitReplyLong",
        }
    }

    fn cancel(self) -> &'static str {
        match self {
            Self::RequestMedium => "gex_AM_CancelRequestMedium",
            Self::RequestLong => "gex_AM_CancelRequestLong",
            Self::ReplyMedium => "gex_AM_CancelReplyMedium",
            Self::ReplyLong => "gex_AM_CancelReplyLong",
        }
    }

    fn is_reply(self) -> bool {
        matches!(self, Self::ReplyMedium | Self::ReplyLong)
    }

    fn is_long(self) -> bool {
        matches!(self, Self::RequestLong | Self::ReplyLong)
    }
}

/// The place where the payload is written.
enum Place {
    /// A chunk for a medium request.
    Chunk(Prepared<'static, Network<Mode>, Mode>),
    /// A chunk for a medium reply. The chunk must not be dropped once the request's handler has
    /// returned, because GASNet allows its use only while that handler runs.
    ReplyChunk(ManuallyDrop<PreparedReply<'static, Network<Mode>, Mode>>),
    /// A long's destination, mapped here.
    Destination(*mut c_void),
    /// The client's buffer.
    Client(*mut c_void),
    /// This thread's buffer, in its [`Descriptor`].
    Own,
}

/// A payload being written.
struct Open {
    kind: PreparedKind,
    /// The target of a request.
    rank: Rank,
    /// The token of the request being replied to.
    token: *const c_void,
    place: Place,
    /// The address at which the payload is written.
    address: *mut c_void,
    /// The largest length of the payload in bytes.
    size: usize,
    /// A long's destination, if the prepare call has named it.
    destination: *mut c_void,
    /// The client's `lc_opt`: one of the constants, or the address of its local-completion event.
    local: *mut usize,
}

/// The value that a `gex_AM_SrcDesc_t` points to. Each thread has one for requests and one for
/// replies.
#[derive(Default)]
struct Descriptor {
    open: Option<Open>,
    /// The thread's buffer. It consists of words so that it is aligned for any payload.
    buffer: Vec<u128>,
}

thread_local! {
    static REQUEST: RefCell<Box<Descriptor>> = RefCell::default();
    static REPLY: RefCell<Box<Descriptor>> = RefCell::default();
}

fn with<R>(kind: PreparedKind, f: impl FnOnce(&mut Descriptor) -> R) -> R {
    let key = if kind.is_reply() { &REPLY } else { &REQUEST };
    key.with_borrow_mut(|descriptor| f(descriptor))
}

fn handle(descriptor: &Descriptor) -> *const c_void {
    std::ptr::from_ref(descriptor).cast()
}

/// The arguments of a prepare call.
struct Wish {
    kind: PreparedKind,
    rank: Rank,
    token: *const c_void,
    client: *mut c_void,
    least: usize,
    most: usize,
    destination: *mut c_void,
    local: *mut usize,
    flags: Flags,
    /// The limit of the message, as returned by the limit functions.
    limit: usize,
}

impl Wish {
    /// Prepares the payload and returns its descriptor, or null if the call would have blocked.
    fn prepare(self) -> *const c_void {
        let call = self.kind.prepare();
        let refuse = |reason: &str| fatal(call, &reason);
        if self.least > self.most {
            refuse("the least payload length exceeds the most");
        }
        if self.least > self.limit {
            fatal(
                call,
                &format_args!(
                    "a payload of {} bytes exceeds the limit of {}",
                    self.least, self.limit
                ),
            );
        }
        let mut size = self.most.min(self.limit);
        if self.client.is_null() && !self.local.is_null() {
            refuse("a library buffer has no local completion; lc_opt must be null");
        }
        if !self.client.is_null() {
            check_option(call, self.local, !self.kind.is_reply());
        }
        let place = if !self.client.is_null() {
            Place::Client(self.client)
        } else if self.kind == PreparedKind::RequestMedium {
            let engine = Job::of(call).engine();
            let prepared = engine.messages().prepare_medium(
                self.rank,
                self.least,
                size,
                self.flags.blocking(),
            );
            match sure(call, prepared) {
                Some(prepared) => Place::Chunk(prepared),
                None => return std::ptr::null(),
            }
        } else if self.kind == PreparedKind::ReplyMedium {
            // SAFETY: the caller of the prepare call guarantees that the token is that of the
            // running request handler. GASNet requires the handler to commit or cancel the reply
            // before it returns.
            let message = unsafe { token(call, self.token) }.message;
            let prepared = sure(call, message.prepare_medium_reply(self.least, size));
            Place::ReplyChunk(ManuallyDrop::new(prepared))
        } else if let Some((here, room)) = self.mapped_destination() {
            size = room;
            Place::Destination(here)
        } else {
            Place::Own
        };
        if self.local.addr() > events::GROUP {
            // SAFETY: `local` is not one of the constants, so the caller of the prepare call
            // guarantees that it is valid for a write. The event is complete already, because the
            // commit sends or copies the payload before it returns.
            unsafe { self.local.write(events::INVALID) };
        }
        with(self.kind, |descriptor| {
            if descriptor.open.is_some() {
                refuse("this thread's last prepared payload is neither committed nor cancelled");
            }
            let mut place = place;
            let address = match &mut place {
                Place::Chunk(prepared) => prepared.payload().as_mut_ptr().cast(),
                Place::ReplyChunk(prepared) => prepared.payload().as_mut_ptr().cast(),
                Place::Client(base) | Place::Destination(base) => *base,
                Place::Own => {
                    let words = size.div_ceil(size_of::<u128>()).max(1);
                    if descriptor.buffer.len() < words {
                        descriptor.buffer.resize(words, 0);
                    }
                    descriptor.buffer.as_mut_ptr().cast()
                }
            };
            descriptor.open = Some(Open {
                kind: self.kind,
                rank: self.rank,
                token: self.token,
                place,
                address,
                size,
                destination: self.destination,
                local: self.local,
            });
            handle(descriptor)
        })
    }

    /// Returns the address at which a long's destination is mapped here, and the number of bytes
    /// that may be written there, which is at least the requested minimum. Returns `None` if the
    /// destination is not mapped here, is not aligned, or is too close to the end of the segment.
    fn mapped_destination(&self) -> Option<(*mut c_void, usize)> {
        if self.destination.is_null() {
            return None;
        }
        let (address, window, len) = Job::get()?.mapped_segment(self.rank)?;
        let offset = self.destination.addr().checked_sub(address)?;
        let room = len.checked_sub(offset)?.min(self.most);
        let here = window.wrapping_add(offset);
        let fits = room >= self.least.max(1) && here.addr().is_multiple_of(align_of::<u128>());
        fits.then_some((here.cast(), room))
    }
}

/// Limits a long's payload in a buffer of the thread to a medium's length, so that the buffer stays
/// small.
pub(crate) fn own_buffer_limit(engine: &TheEngine, long: usize) -> usize {
    long.min(engine.messages().max_medium(am::MAX_ARGS))
}

/// Returns the size of the largest payload that can be prepared. `long` is the limit of a fixed
/// long.
fn limit(engine: &TheEngine, kind: PreparedKind, client: *mut c_void, long: usize) -> usize {
    match (kind.is_long(), client.is_null()) {
        (false, _) => engine.messages().max_medium(am::MAX_ARGS),
        (true, false) => long,
        (true, true) => own_buffer_limit(engine, long),
    }
}

/// `gex_AM_PrepareRequest{Medium,Long}`.
///
/// # Safety
/// `client` must be null or valid for `most` bytes until local completion. `local` must be null,
/// one of the constants, or valid for writes until the commit.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_prepare_request(
    kind: c_uint,
    rank: Rank,
    client: *mut c_void,
    least: usize,
    most: usize,
    destination: *mut c_void,
    local: *mut usize,
    flags: Flags,
) -> *const c_void {
    let kind = PreparedKind::from_c(kind);
    let call = kind.prepare();
    let job = Job::of(call);
    job.check_rank(call, rank);
    let long = job.engine().messages().max_long_request(rank);
    let limit = limit(job.engine(), kind, client, long);
    Wish {
        kind,
        rank,
        token: std::ptr::null(),
        client,
        least,
        most,
        destination,
        local,
        flags,
        limit,
    }
    .prepare()
}

/// `gex_AM_PrepareReply{Medium,Long}`.
///
/// # Safety
/// Same as [`conduit_gex_prepare_request`]; in addition, `handle` must be the token of the running
/// request handler.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_prepare_reply(
    kind: c_uint,
    handle: *const c_void,
    client: *mut c_void,
    least: usize,
    most: usize,
    destination: *mut c_void,
    local: *mut usize,
    flags: Flags,
) -> *const c_void {
    let kind = PreparedKind::from_c(kind);
    // SAFETY: the caller guarantees that `handle` is the token of the running handler.
    let message = unsafe { token(kind.prepare(), handle) }.message;
    let engine = message.engine();
    let rank = message.source();
    let limit = limit(engine, kind, client, engine.messages().max_long_reply(rank));
    Wish {
        kind,
        rank,
        token: handle,
        client,
        least,
        most,
        destination,
        local,
        flags,
        limit,
    }
    .prepare()
}

/// Finds the payload of a descriptor passed by C. Descriptors are compared by address, so any other
/// value is harmless.
fn opened<R>(call: &str, descriptor: *const c_void, look: impl Fn(&Open) -> R) -> R {
    for key in [&REQUEST, &REPLY] {
        let found = key.with_borrow(|own| {
            let open = own.open.as_ref().filter(|_| handle(own) == descriptor);
            open.map(&look)
        });
        if let Some(found) = found {
            return found;
        }
    }
    fatal(
        call,
        &format_args!("{descriptor:p} is not a descriptor of a payload prepared on this thread"),
    )
}

/// Returns the address where the payload is to be written.
#[unsafe(no_mangle)]
extern "C" fn gex_AM_SrcDescAddr(descriptor: *const c_void) -> *mut c_void {
    opened("gex_AM_SrcDescAddr", descriptor, |open| open.address)
}

/// Returns the length of the payload's buffer in bytes.
#[unsafe(no_mangle)]
extern "C" fn gex_AM_SrcDescSize(descriptor: *const c_void) -> usize {
    opened("gex_AM_SrcDescSize", descriptor, |open| open.size)
}

/// Takes the payload out of its descriptor. Ends the job if the descriptor holds no payload of this
/// kind.
fn take(call: &'static str, kind: PreparedKind, descriptor: *const c_void) -> Open {
    let open = with(kind, |own| {
        if handle(own) != descriptor {
            fatal(
                call,
                &"the descriptor does not belong to this thread and kind of message",
            );
        }
        own.open.take()
    });
    match open {
        Some(open) if open.kind == kind => open,
        _ => fatal(call, &"no payload of this kind is prepared"),
    }
}

/// `gex_AM_Commit{Request,Reply}{Medium,Long}N` and their forms with flags. Returns 0, or
/// [`crate::abi::NO_OP`] if the commit would have blocked. In the latter case the descriptor stays
/// valid.
///
/// # Safety
/// `descriptor` must have been returned by a prepare call on this thread. `words` must be valid for
/// reads of `count` words, and `count` must be at most 16.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_commit(
    kind: c_uint,
    descriptor: *const c_void,
    handler: u8,
    bytes: usize,
    destination: *mut c_void,
    flags: Flags,
    count: u32,
    words: *const u32,
) -> c_int {
    let kind = PreparedKind::from_c(kind);
    let call = kind.commit();
    // SAFETY: the caller guarantees that `words` is valid for `count` words.
    let words = unsafe { arguments(count, words) };
    let mut open = take(call, kind, descriptor);
    if bytes > open.size {
        fatal(
            call,
            &format_args!("{bytes} bytes exceed the prepared length of {}", open.size),
        );
    }
    if !open.destination.is_null() && open.destination != destination {
        fatal(
            call,
            &format_args!(
                "the destination {destination:p} is not the prepared destination {:p}",
                open.destination
            ),
        );
    }
    match std::mem::replace(&mut open.place, Place::Own) {
        Place::Chunk(prepared) => {
            let sent = prepared.commit(handler, words, bytes).map(|()| true);
            let engine = Job::of(call).engine();
            return requested(call, flags, engine, open.rank, sent);
        }
        Place::ReplyChunk(prepared) => {
            let prepared = ManuallyDrop::into_inner(prepared);
            let sent = prepared.commit(handler, words, bytes).map(|()| true);
            return started(call, flags, sent);
        }
        other => open.place = other,
    }
    // SAFETY: `bytes` is at most the prepared length. The address is valid for that length: the
    // caller of the prepare call guarantees that for the client's buffer, and `prepare` has ensured
    // it for the mapped destination and for this thread's buffer.
    let sent = unsafe { payload(open.address, bytes) }
        .and_then(|payload| open.send(handler, words, payload, destination, flags));
    if matches!(sent, Ok(false)) {
        with(kind, |own| own.open = Some(open));
    } else if open.local.addr() > events::GROUP {
        // SAFETY: `local` is not one of the constants, so the caller of the prepare call guarantees
        // that it is valid for a write.
        unsafe { open.local.write(events::INVALID) };
    }
    started(call, flags, sent)
}

impl Open {
    fn send(
        &self,
        handler: u8,
        words: &[u32],
        payload: &[u8],
        destination: *mut c_void,
        flags: Flags,
    ) -> Result<bool, Refusal> {
        let call = self.kind.commit();
        let engine = Job::of(call).engine();
        let offset = || long_offset(engine, self.rank, destination, payload.len());
        // SAFETY: the token is that of the request's handler, which is still running, because
        // GASNet requires a handler to commit its reply before it returns.
        let token = |token| -> &Token<'_> { unsafe { crate::handlers::token(call, token) } };
        let blocking = flags.blocking();
        let sent = match self.kind {
            PreparedKind::RequestMedium => engine
                .messages()
                .request_medium(self.rank, handler, words, payload, blocking)?,
            PreparedKind::RequestLong if matches!(self.place, Place::Destination(_)) => {
                engine.messages().request_long_in_place(
                    self.rank,
                    handler,
                    words,
                    payload.len(),
                    offset()?,
                    blocking,
                )?
            }
            PreparedKind::ReplyLong if matches!(self.place, Place::Destination(_)) => {
                let offset = offset()?;
                token(self.token).message.reply_long_in_place(
                    handler,
                    words,
                    payload.len(),
                    offset,
                )?;
                true
            }
            PreparedKind::RequestLong => engine.messages().request_long(
                self.rank,
                handler,
                words,
                payload,
                offset()?,
                blocking,
            )?,
            PreparedKind::ReplyMedium => {
                token(self.token)
                    .message
                    .reply_medium(handler, words, payload)?;
                true
            }
            PreparedKind::ReplyLong => {
                let offset = offset()?;
                token(self.token)
                    .message
                    .reply_long(handler, words, payload, offset)?;
                true
            }
        };
        if self.kind.is_reply() {
            return Ok(sent);
        }
        handled_here(engine, self.rank, Ok(sent))
    }
}

/// `gex_AM_Cancel{Request,Reply}{Medium,Long}`.
///
/// # Safety
/// `descriptor` must have been returned by a prepare call on this thread.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_cancel(kind: c_uint, descriptor: *const c_void) -> c_int {
    let kind = PreparedKind::from_c(kind);
    if let Place::ReplyChunk(prepared) = take(kind.cancel(), kind, descriptor).place {
        ManuallyDrop::into_inner(prepared).cancel();
    }
    crate::abi::OK
}
