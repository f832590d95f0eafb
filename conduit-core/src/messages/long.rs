//! Long requests. Their data goes to the target's segment, and then the handler runs.

use am::{Category, DataHeader, Flags, Long, Role as AmRole, limits, select};
use credits::Scale;

use crate::engine::report::Awaits;
use crate::engine::{Calls, subject};
use crate::kernel::error::{Error, Result};
use crate::kernel::options::Blocking;
use crate::memory::{Remote, Source};
use crate::messages::request::Request;
use crate::ni::{Exchange, Ni, Rank};
use crate::shared;
use crate::threads::{Lock, Mode};

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Messages> {
    /// Sends a request as [`Calls::request_short`] does, once the payload has been placed at
    /// `offset` in the target's segment. The payload may be reused when this call returns. If the
    /// payload is empty, any `offset` is valid, and the handler receives `offset` unchanged.
    #[inline]
    pub fn request_long(
        self,
        target: Rank,
        handler: u8,
        args: &[u32],
        payload: &[u8],
        offset: usize,
        blocking: Blocking,
    ) -> Result<bool> {
        const OPERATION: &str = "request_long";
        let mapped = self.check_request(OPERATION, target, args)?;
        let category = Category::Long;
        let request = Request::new(OPERATION, category, target, handler, args, mapped, blocking);
        // SAFETY: the borrow keeps the payload valid and unchanged until this call returns. `wait`
        // is true, so the call does not return before the bytes have been read.
        unsafe { self.long(request, Source::of(payload), offset, true) }
    }

    /// Sends a request as [`Calls::request_long`] does, for `length` bytes that the caller has
    /// already placed at `offset` in the target's segment. That segment must be mapped here.
    pub fn request_long_in_place(
        self,
        target: Rank,
        handler: u8,
        args: &[u32],
        length: usize,
        offset: usize,
        blocking: Blocking,
    ) -> Result<bool> {
        const OPERATION: &str = "request_long_in_place";
        let mapped = self.check_request(OPERATION, target, args)?;
        let category = Category::Long;
        let request = Request::new(OPERATION, category, target, handler, args, mapped, blocking);
        if length > 0 {
            self.engine
                .memory
                .remote(self.kernel(), OPERATION, target, offset, length)?;
        }
        self.request(in_place(request, offset, length), Scale::SHORT_COST)
    }

    /// Sends a request as [`Calls::request_long`] does, but may return before the payload has been
    /// read.
    ///
    /// # Safety
    /// `[base, base + len)` must be valid for reads, and must not be written, until the reply to
    /// the request has arrived. The request's handler must therefore send a reply.
    pub unsafe fn request_long_async(
        self,
        target: Rank,
        handler: u8,
        args: &[u32],
        (base, len): (*const u8, usize),
        offset: usize,
        blocking: Blocking,
    ) -> Result<bool> {
        const OPERATION: &str = "request_long_async";
        let mapped = self.check_request(OPERATION, target, args)?;
        let category = Category::Long;
        let request = Request::new(OPERATION, category, target, handler, args, mapped, blocking);
        // SAFETY: the caller guarantees that the source is valid and unchanged until the reply has
        // arrived.
        unsafe { self.long(request, Source { base, len }, offset, false) }
    }

    /// # Safety
    /// The source must be valid and unchanged until this call returns (if `wait` is true) or until
    /// the reply has arrived (otherwise).
    #[inline]
    pub(crate) unsafe fn long(
        self,
        request: Request<'_>,
        source: Source,
        offset: usize,
        wait: bool,
    ) -> Result<bool> {
        let Request {
            operation,
            target,
            blocking,
            ..
        } = request;
        let placed = in_place(request, offset, source.len);
        if source.len == 0 {
            // An empty long places nothing, so it needs no segment. The handler receives the offset
            // unchanged.
            return self.request(placed, Scale::SHORT_COST);
        }
        if source.len > limits::MAX_LONG {
            return Err(Error::PayloadTooLong {
                operation,
                rank: target,
                length: source.len,
                limit: limits::MAX_LONG,
            });
        }
        let segment =
            self.engine
                .memory
                .remote(self.kernel(), operation, target, offset, source.len)?;
        if !segment.window.0.is_null() {
            // The bytes must not be copied before the credits are taken, because a request that is
            // refused for lack of credits must have no effect. If a request that may not wait gets
            // credits but finds no room in the queue, its bytes have been placed nevertheless.
            let Some(byte) = self.take_credits(operation, target, Scale::SHORT_COST, blocking)?
            else {
                return Ok(false);
            };
            // SAFETY: `remote` has checked that the range lies in the window, which is valid for
            // writes. The caller guarantees that the source is valid. Overlaps and races are the
            // program's own, as in a put.
            unsafe { shared::copy(source.base, segment.window.0.add(offset), source.len) };
            return self.send(placed, byte, Exchange::ExpectsReply);
        }
        // SAFETY: the caller guarantees that the source is valid and unchanged for as long as
        // `wait` requires.
        unsafe { self.long_by_messages(placed, source, offset, wait) }
    }

    /// Sends a long to a segment that is not mapped.
    ///
    /// # Safety
    /// Same as [`Calls::long`].
    #[inline(never)]
    unsafe fn long_by_messages(
        self,
        placed: Request<'_>,
        source: Source,
        offset: usize,
        wait: bool,
    ) -> Result<bool> {
        let Request {
            operation,
            target,
            args,
            blocking,
            ..
        } = placed;
        let packs = source.len <= limits::max_packed_long(self.job().chunk, args.len());
        // If segments are process memory, there is no match entry for data that travels separately.
        let is_process = self.engine.memory.is_process();
        if packs && (self.job().settings.packed_long || is_process) {
            let packed = Request {
                // SAFETY: the caller guarantees that the source is valid until this call returns,
                // and the bytes of the message are copied before that.
                payload: unsafe { source.slice() },
                long: Some((long_at(offset, source.len), Flags::PACKED)),
                ..placed
            };
            return self.request(
                packed,
                self.engine.messages.credits.scale.cost(packed.length()),
            );
        }
        if is_process || source.len > self.job().ni.reach(target).max_message {
            let at_once = self
                .engine
                .memory
                .address_at_once(Remote::segment(target, offset));
            if at_once.is_none() {
                self.engine
                    .check_outside(operation, am::Operation::Request)?;
            }
            // The data takes more than one put, or the put may find no memory. The data is
            // therefore sent first, by a put that this call waits for, and the message states that
            // the data is in place.
            let cost = Scale::SHORT_COST;
            let Some(byte) = self.take_credits(operation, target, cost, blocking)? else {
                return Ok(false);
            };
            // SAFETY: the caller guarantees that the source is valid. If the range is in this
            // process, the program guarantees that it is valid memory. The range was checked when
            // `segment` was found.
            let stored = unsafe {
                match at_once {
                    Some(address) => self.engine.memory.store_anywhere(
                        self.kernel(),
                        target,
                        address,
                        source.base,
                        source.len,
                    ),
                    None => self
                        .engine
                        .rma()
                        .put_pieces_and_wait(operation, target, offset, source),
                }
            };
            if stored.is_err() {
                self.engine.messages.credits.flow.give_back(target, byte);
            }
            stored?;
            return self.send(placed, byte, Exchange::ExpectsReply);
        }
        // SAFETY: the caller guarantees that the source is valid and unchanged for as long as
        // `wait` requires.
        unsafe { self.long_in_two(placed, source, offset, wait) }
    }

    /// Sends a long whose data travels separately: a put to the target's segment, and a header. The
    /// target pairs the two by their LID.
    ///
    /// # Safety
    /// Same as [`Calls::long`].
    unsafe fn long_in_two(
        self,
        placed: Request<'_>,
        source: Source,
        offset: usize,
        wait: bool,
    ) -> Result<bool> {
        let Request {
            operation,
            target,
            blocking,
            ..
        } = placed;
        self.engine
            .check_outside(operation, am::Operation::Request)?;
        let Some(byte) = self.take_credits(operation, target, Scale::LONG_COST, blocking)? else {
            return Ok(false);
        };
        let lid = self.engine.messages.lids.lock().generate();
        let data = DataHeader {
            role: AmRole::Request,
            lid,
        };
        let group = (!wait).then_some(self.kernel().operations.detached);
        // SAFETY: the caller guarantees that the source is valid and unchanged until the operation
        // has ended.
        let op = unsafe {
            self.engine.rma().send_long_data(
                operation,
                target,
                source,
                offset as u64,
                data.encode(select::RARAM),
                group,
            )
        };
        let op = match op {
            Ok(op) => op,
            Err(error) => {
                self.engine.messages.credits.flow.give_back(target, byte);
                return Err(error);
            }
        };
        let request = Request {
            long: Some((long_at(offset, source.len), Flags::empty())),
            lid,
            blocking: Blocking::Wait,
            ..placed
        };
        if let Err(error) = self.send(request, byte, Exchange::OneWay) {
            // The data is in flight, and no call waits for it.
            self.job().fail(error.clone());
            self.engine.check_fault()?;
            return Err(error);
        }
        if wait {
            self.engine
                .wait_for(operation, Awaits::Operation(op), |engine| {
                    engine.kernel.take(operation, op)
                })?;
        }
        Ok(true)
    }
}

/// Returns the request for a long whose `length` bytes will already be at `offset` in the target's
/// segment when the message arrives.
#[inline(always)]
fn in_place(request: Request<'_>, offset: usize, length: usize) -> Request<'_> {
    Request {
        long: Some((long_at(offset, length), Flags::DEST_IN_PLACE)),
        ..request
    }
}

#[inline(always)]
fn long_at(offset: usize, length: usize) -> Long {
    Long {
        dest: offset as u64,
        length: length as u64,
    }
}
