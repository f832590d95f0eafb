//! Long requests: the data goes to the target's segment, then the handler runs.

use am::{Category, DataHeader, Flags, Header, Long, NO_CHUNK, Role as AmRole, limits, select};
use credits::Scale;

use super::head::{MOST_HEAD, head_in};
use super::memory::Segment;
use super::memory::Source;
use super::request::Request;
use super::request_plain::Plain;
use super::rma::Blocking;
use super::table::index;
use super::{Engine, Result};
use crate::ni::{Exchange, Ni, Rank, Reach};
use crate::shared;
use crate::threads::{Lock, Mode};

impl<N: Ni, M: Mode> Engine<N, M> {
    /// As [`Engine::request_short`], after placing the payload at `offset` of the target's segment. The payload may be
    /// reused on return. Where it is empty, any `offset` will do: the handler gets it as it is.
    #[inline]
    pub fn request_long(
        &self,
        target: Rank,
        handler: u8,
        args: &[u32],
        payload: &[u8],
        offset: usize,
        blocking: Blocking,
    ) -> Result<bool> {
        const OPERATION: &str = "request_long";
        if self.is_plain_way(target, args) {
            let dest = (offset, payload.len());
            let plain = || Plain::of_long(OPERATION, target, handler, args, dest, blocking);
            if payload.is_empty() {
                return self.request_plain(plain(), Scale::SHORT_COST);
            }
            if let Some(place) = self.memory.place_for(target, offset, payload.len()) {
                return self.request_plain_long(plain(), payload, place);
            }
        }
        let request = Request {
            operation: OPERATION,
            target,
            handler,
            args,
            blocking,
        };
        // SAFETY: the borrow keeps the payload valid and unchanged until this call returns; `wait` makes the call last
        // until the bytes have been read.
        unsafe { self.long(&request, Source::of(payload), offset, true) }
    }

    /// The common case by itself.
    #[inline(never)]
    fn request_plain_long(&self, plain: Plain<'_>, payload: &[u8], place: *mut u8) -> Result<bool> {
        let (target, cost) = (plain.target, Scale::SHORT_COST);
        // The copy must not be seen before the credits are there: a refused request has no effect.
        let Some(byte) = self.take_credits(plain.operation, target, cost, plain.blocking)? else {
            return Ok(false);
        };
        // SAFETY: there is room for the payload at `place`, see `place_for`. Overlap and races are the program's own, as for a put.
        unsafe { shared::copy(payload.as_ptr(), place, payload.len()) };
        // The payload is still being stored, which a store into the message's line would have to wait for, too.
        self.job.ni.anticipate(target, index::AM, Exchange::Alone);
        self.send_plain(plain, byte, Exchange::Asks)
    }

    /// As [`Engine::request_long`], for `length` bytes that the caller has placed at `offset` of the target's segment by
    /// itself: where that is mapped here.
    pub fn request_long_in_place(
        &self,
        target: Rank,
        handler: u8,
        args: &[u32],
        length: usize,
        offset: usize,
        blocking: Blocking,
    ) -> Result<bool> {
        const OPERATION: &str = "request_long_in_place";
        if self.is_plain_way(target, args)
            && (length == 0 || self.memory.place_for(target, offset, length).is_some())
        {
            let dest = (offset, length);
            let plain = Plain::of_long(OPERATION, target, handler, args, dest, blocking);
            return self.request_plain(plain, Scale::SHORT_COST);
        }
        let request = Request {
            operation: OPERATION,
            target,
            handler,
            args,
            blocking,
        };
        self.check_request(&request)?;
        if length > 0 {
            self.memory
                .remote(&self.job, request.operation, target, offset, length)?;
        }
        let long = Long {
            dest: offset as u64,
            length: length as u64,
        };
        let Some(byte) = self.credits(&request, Scale::SHORT_COST)? else {
            return Ok(false);
        };
        self.send(
            &request,
            Flags::DEST_IN_PLACE,
            Category::Long,
            Some(long),
            Source::EMPTY,
            byte,
            self.job.ni.reach(target),
        )
    }

    /// As [`Engine::request_long`], returning before the payload has been read.
    ///
    /// # Safety
    /// `[base, base + len)` is valid for reads and not written until the request's reply has arrived (which its handler
    /// therefore has to send).
    pub unsafe fn request_long_async(
        &self,
        target: Rank,
        handler: u8,
        args: &[u32],
        (base, len): (*const u8, usize),
        offset: usize,
        blocking: Blocking,
    ) -> Result<bool> {
        let request = Request {
            operation: "request_long_async",
            target,
            handler,
            args,
            blocking,
        };
        // SAFETY: the caller's promise.
        unsafe { self.long(&request, Source { base, len }, offset, false) }
    }

    /// # Safety
    /// The source is valid and unchanged: until return if `wait`, otherwise until the reply.
    #[inline]
    unsafe fn long(
        &self,
        request: &Request<'_>,
        source: Source,
        offset: usize,
        wait: bool,
    ) -> Result<bool> {
        self.check_request(request)?;
        self.check_payload(request, source.len, self.max_long_request(request.target))?;
        let long = Long {
            dest: offset as u64,
            length: source.len as u64,
        };
        if source.len == 0 {
            // Places nothing, so it needs no segment: the handler gets the offset as it is.
            let Some(byte) = self.credits(request, Scale::SHORT_COST)? else {
                return Ok(false);
            };
            let reach = self.job.ni.reach(request.target);
            let flags = Flags::DEST_IN_PLACE;
            let long = Some(long);
            return self.send(request, flags, Category::Long, long, source, byte, reach);
        }
        let segment = self.memory.remote(
            &self.job,
            request.operation,
            request.target,
            offset,
            source.len,
        )?;
        if !segment.window.0.is_null() {
            // The copy must not be seen before the credits are there: a refused request has no effect.
            let reach = self.job.ni.reach(request.target);
            let Some(byte) = self.credits(request, Scale::SHORT_COST)? else {
                return Ok(false);
            };
            // SAFETY: `remote` has checked the range against the window, which is valid for writes; the source is
            // the caller's promise. Overlap and races are the program's own, as for a put.
            unsafe { shared::copy(source.base, segment.window.0.add(offset), source.len) };
            // As for a plain one.
            self.job
                .ni
                .anticipate(request.target, index::AM, Exchange::Alone);
            return self.send(
                request,
                Flags::DEST_IN_PLACE,
                Category::Long,
                Some(long),
                Source::EMPTY,
                byte,
                reach,
            );
        }
        let packs = source.len <= limits::max_packed_long(self.job.chunk, request.args.len());
        let everything = self.memory.is_everything();
        if everything && !packs && self.memory.reaches(&self.job, request.target) {
            let Some(byte) = self.credits(request, Scale::SHORT_COST)? else {
                return Ok(false);
            };
            let reach = self.job.ni.reach(request.target);
            // SAFETY: the caller's promise; a range of this process is memory by the program's word.
            unsafe {
                self.memory.store_anywhere(
                    &self.job,
                    request.target,
                    offset,
                    source.base,
                    source.len,
                )?
            };
            let (flags, long) = (Flags::DEST_IN_PLACE, Some(long));
            let none = Source::EMPTY;
            return self.send(request, flags, Category::Long, long, none, byte, reach);
        }
        if packs && (self.job.settings.packed_long || everything) {
            return self.send_request(request, Category::Long, Some(long), source);
        }
        // SAFETY: the caller's promise.
        unsafe { self.long_in_two(request, segment, source, long, wait) }
    }

    /// A long whose data travels by itself: a put to the target's segment and a header, paired there by their LID.
    ///
    /// # Safety
    /// As for [`Engine::long`].
    unsafe fn long_in_two(
        &self,
        request: &Request<'_>,
        segment: &Segment,
        source: Source,
        long: Long,
        wait: bool,
    ) -> Result<bool> {
        self.check_outside(request.operation, am::Operation::Request)?;
        let reach = self.job.ni.reach(request.target);
        let everything = self.memory.is_everything();
        if everything || source.len > reach.max_message {
            // More than one put, or one that may find no memory: the data goes first, as a put that is waited for, and the
            // message says that it is there.
            // SAFETY: the caller's promise; waiting makes it hold for either kind.
            return unsafe { self.long_after_put(request, segment, source, long, reach) };
        }
        let Some(byte) = self.credits(request, Scale::LONG_COST)? else {
            return Ok(false);
        };
        let lid = self.lids.lock().generate();
        let (match_bits, hdr_data) = DataHeader {
            role: AmRole::Request,
            lid,
        }
        .encode(select::RARAM);
        let group = (!wait).then_some(self.operations.detached);
        // SAFETY: the caller's promise.
        let op = unsafe {
            self.send_long_data(
                request.operation,
                request.target,
                source,
                long.dest,
                (match_bits, hdr_data),
                group,
            )
        };
        let op = match op {
            Ok(op) => op,
            Err(error) => {
                self.credits.flow.give_back(request.target, byte);
                return Err(error);
            }
        };
        let mut space = [0; MOST_HEAD];
        let head = head_in(&mut space, request.args, Some(long));
        let header = Header {
            flags: Flags::of(Category::Long, AmRole::Request),
            handler: request.handler,
            nargs: request.args.len() as u8,
            credit: byte.bits(),
            chunk: NO_CHUNK,
            arg0: request.args.first().copied().unwrap_or(0),
            lid,
        };
        if let Err(error) = self.send_from_chunk(request, header, head, Source::EMPTY, reach) {
            // The data is under way, and nobody waits for it.
            self.job.fail(error.clone());
            self.check_fault()?;
            return Err(error);
        }
        if wait {
            self.wait_for(request.operation, |engine| {
                engine.operations.take(&engine.job, request.operation, op)
            })?;
        }
        Ok(true)
    }

    /// # Safety
    /// The source is valid and unchanged until return.
    unsafe fn long_after_put(
        &self,
        request: &Request<'_>,
        segment: &Segment,
        source: Source,
        long: Long,
        reach: &Reach,
    ) -> Result<bool> {
        let Some(byte) = self.credits(request, 1)? else {
            return Ok(false);
        };
        // SAFETY: the caller's promise; the range was checked when `segment` was found.
        unsafe {
            self.put_pieces_and_wait(
                request.operation,
                request.target,
                segment,
                long.dest as usize,
                source,
            )?
        };
        self.send(
            request,
            Flags::DEST_IN_PLACE,
            Category::Long,
            Some(long),
            Source::EMPTY,
            byte,
            reach,
        )
    }
}
