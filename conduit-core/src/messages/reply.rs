//! Replies. They are sent with reserved resources, so that sending them never waits.

use am::{Body, Category, Flags, Header, Long, MAX_ARGS, NO_LID, Role as AmRole};

use crate::engine::Call;
use crate::kernel::error::{Error, Result};
use crate::memory::Remote;
use crate::messages::head::{MOST_HEAD, head_in};
use crate::messages::reserve::ReplyReserve;
use crate::ni::Ni;
use crate::shared;
use crate::threads::Mode;

impl<'a, N: Ni, M: Mode> Call<'a, N, M> {
    /// Replies with a short. May be called once, in the handler of a request.
    #[inline]
    pub fn reply_short(&self, handler: u8, args: &[u32]) -> Result<()> {
        const OPERATION: &str = "reply_short";
        self.check_args(OPERATION, args)?;
        let how = Flags::empty();
        let (header, reserve) = self.open_reply(OPERATION, Category::Short, handler, args, how)?;
        let head = Body::of_short(args);
        self.engine.messages.replies.send(
            &self.engine.kernel,
            self.token.source,
            &header,
            head,
            &[],
            reserve,
        )
    }

    /// Replies with a medium of at most [`Calls::max_medium`](crate::engine::Calls::max_medium)
    /// bytes.
    #[inline]
    pub fn reply_medium(&self, handler: u8, args: &[u32], payload: &[u8]) -> Result<()> {
        let limit = self.engine.messages().max_medium(args.len());
        self.check_payload("reply_medium", payload, limit)?;
        self.reply(
            "reply_medium",
            Category::Medium,
            handler,
            args,
            payload,
            None,
        )
    }

    /// Replies with a long of at most
    /// [`Calls::max_long_reply`](crate::engine::Calls::max_long_reply) bytes to `offset` in the
    /// requester's segment. If the payload is empty, any offset is valid, and the handler receives
    /// the offset unchanged.
    pub fn reply_long(
        &self,
        handler: u8,
        args: &[u32],
        payload: &[u8],
        offset: usize,
    ) -> Result<()> {
        const OPERATION: &str = "reply_long";
        let (engine, source) = (self.engine, self.token.source);
        let long = Long {
            dest: offset as u64,
            length: payload.len() as u64,
        };
        if payload.is_empty() {
            return self.reply_in_place(OPERATION, handler, args, long);
        }
        if let Some(place) = engine.memory.place_for(source, offset, payload.len()) {
            // A refused reply must have no effect, so all checks precede the copy.
            self.check_args(OPERATION, args)?;
            self.may_reply(OPERATION)?;
            // SAFETY: `Memory::place_for` has checked that the payload's range lies in the mapped
            // segment, so `place` is valid for the write.
            unsafe { shared::copy(payload.as_ptr(), place, payload.len()) };
            return self.reply_in_place(OPERATION, handler, args, long);
        }
        self.check_payload(OPERATION, payload, engine.messages().max_long_reply(source))?;
        engine
            .memory
            .remote(&engine.kernel, OPERATION, source, offset, payload.len())?;
        let packs = payload.len() <= am::limits::max_packed_long(engine.kernel.job.chunk, MAX_ARGS);
        let at_once = engine
            .memory
            .address_at_once(Remote::segment(source, offset));
        let Some(address) = at_once.filter(|_| !packs) else {
            return self.reply(
                OPERATION,
                Category::Long,
                handler,
                args,
                payload,
                Some((long, Flags::PACKED)),
            );
        };
        self.check_args(OPERATION, args)?;
        self.may_reply(OPERATION)?;
        // SAFETY: the payload is borrowed and therefore valid for reads. If the requester is this
        // process, the program guarantees that the range at `address` is valid for writes.
        unsafe {
            engine.memory.store_anywhere(
                &engine.kernel,
                source,
                address,
                payload.as_ptr(),
                payload.len(),
            )?
        };
        self.reply_in_place(OPERATION, handler, args, long)
    }

    /// Sends the reply of a long whose data is already in place.
    #[inline(always)]
    fn reply_in_place(
        &self,
        operation: &'static str,
        handler: u8,
        args: &[u32],
        long: Long,
    ) -> Result<()> {
        let long = Some((long, Flags::DEST_IN_PLACE));
        self.reply(operation, Category::Long, handler, args, &[], long)
    }

    /// Replies with a long whose `length` bytes the caller has already written at `offset` in the
    /// requester's segment. That segment must be mapped here.
    pub fn reply_long_in_place(
        &self,
        handler: u8,
        args: &[u32],
        length: usize,
        offset: usize,
    ) -> Result<()> {
        const OPERATION: &str = "reply_long_in_place";
        let (engine, source) = (self.engine, self.token.source);
        if length > 0 {
            engine
                .memory
                .remote(&engine.kernel, OPERATION, source, offset, length)?;
        }
        let long = Long {
            dest: offset as u64,
            length: length as u64,
        };
        self.reply_in_place(OPERATION, handler, args, long)
    }

    fn check_payload(&self, operation: &'static str, payload: &[u8], limit: usize) -> Result<()> {
        let length = payload.len();
        if length > limit {
            return Err(Error::PayloadTooLong {
                operation,
                rank: self.token.source,
                length,
                limit,
            });
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn check_args(&self, operation: &'static str, args: &[u32]) -> Result<()> {
        let count = args.len();
        if count > MAX_ARGS {
            return Err(Error::TooManyArgs {
                operation,
                count,
                limit: MAX_ARGS,
            });
        }
        Ok(())
    }

    pub(crate) fn may_reply(&self, operation: &'static str) -> Result<()> {
        let rank = self.engine.kernel.job.rank;
        self.token.may_reply().map_err(|reason| Error::Context {
            operation,
            rank,
            reason,
        })
    }

    #[inline]
    fn reply(
        &self,
        operation: &'static str,
        category: Category,
        handler: u8,
        args: &[u32],
        payload: &[u8],
        long: Option<(Long, Flags)>,
    ) -> Result<()> {
        self.check_args(operation, args)?;
        let how = long.map_or(Flags::empty(), |(_, how)| how);
        let (header, reserve) = self.open_reply(operation, category, handler, args, how)?;
        let mut space = [0; MOST_HEAD];
        let head = head_in(&mut space, args, long.map(|(long, _)| long));
        self.engine.messages.replies.send(
            &self.engine.kernel,
            self.token.source,
            &header,
            head,
            payload,
            reserve,
        )
    }

    /// Claims the only reply that this request may have. Returns the reply's header and the reserve
    /// for it. The caller must have checked the number of arguments.
    #[inline(always)]
    pub(crate) fn open_reply(
        &self,
        operation: &'static str,
        category: Category,
        handler: u8,
        args: &[u32],
        how: Flags,
    ) -> Result<(Header, &'a ReplyReserve)> {
        let (engine, token) = (self.engine, self.token);
        engine.kernel.job.check_process()?;
        let reserve = self.reserve(operation)?;
        token.replied.set(true);
        let back = engine
            .messages
            .credits
            .grant(&engine.kernel, token.source, token.credit);
        let flags = Flags::of(category, AmRole::Reply) | how;
        let header = Header {
            flags: flags | token.flags.intersection(Flags::NO_CHUNK),
            handler,
            nargs: args.len() as u8,
            credit: back.bits(),
            chunk: token.chunk,
            arg0: args.first().copied().unwrap_or(0),
            lid: NO_LID,
        };
        Ok((header, reserve))
    }

    /// Returns the reserve for the reply, or an error if no reply may be sent.
    #[inline]
    pub(crate) fn reserve(&self, operation: &'static str) -> Result<&'a ReplyReserve> {
        self.may_reply(operation)?;
        let rank = self.engine.kernel.job.rank;
        // `ok_or` is not used, because constructing and dropping an error would slow down every
        // reply.
        match self.reserve {
            Some(reserve) => Ok(reserve),
            None => Err(Error::Context {
                operation,
                rank,
                // Only reply handlers run without a reserve, and `may_reply` has already refused
                // them.
                reason: am::ContextError::NotAllowed {
                    operation: am::Operation::Reply,
                    context: am::Context::ReplyHandler,
                },
            }),
        }
    }
}
