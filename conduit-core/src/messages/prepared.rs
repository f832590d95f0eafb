//! Negotiated payload (GASNet-EX). The client writes the payload of a medium in the place from
//! which it will be sent, and then commits or cancels the message.
//!
//! The payload of a request lies in a ReqSB chunk, that of a reply in a RplSB chunk. A mapped peer
//! reads it there without any copy. From prepare to commit or cancel, the thread may make only the
//! calls that a reply handler may make.

use std::marker::PhantomData;

use am::{Body, Category, Context, Flags, Header, MAX_ARGS, NO_LID, Role as AmRole};
use credits::CreditByte;

use crate::engine::Call;
use crate::engine::report::Awaits;
use crate::engine::{Calls, Engine, subject};
use crate::kernel::context::Entered;
use crate::kernel::error::{Error, Result};
use crate::kernel::options::Blocking;
use crate::messages::reserve::ReplyReserve;
use crate::ni::{Ni, Rank};
use crate::threads::Mode;

/// The space before the payload for the arguments, whose number is known only at commit.
const ROOM: usize = Body::args_len(MAX_ARGS);

/// The payload of a medium request that has not been committed. Dropping a `Prepared` cancels the
/// request.
#[must_use = "a prepared payload is sent by commit"]
pub struct Prepared<'a, N: Ni, M: Mode> {
    engine: &'a Engine<N, M>,
    target: Rank,
    chunk: u32,
    size: usize,
    byte: CreditByte,
    ended: bool,
    entered: Option<Entered>,
    /// Keeps the prepared request on its thread, whose calls are restricted until commit or cancel.
    thread: PhantomData<*const ()>,
}

impl<N: Ni, M: Mode> std::fmt::Debug for Prepared<'_, N, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("target", &self.target)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Messages> {
    /// Prepares a medium request of at least `least` and at most `most` bytes. The granted size
    /// lies between the two.
    ///
    /// Returns `None` if the call would have blocked ([`Blocking::Immediate`]).
    pub fn prepare_medium(
        self,
        target: Rank,
        least: usize,
        most: usize,
        blocking: Blocking,
    ) -> Result<Option<Prepared<'e, N, M>>> {
        self.prepare("prepare_medium", target, least, most, blocking)
    }

    /// Prepares a medium request as a part of another call. Errors and reports name that call.
    pub(crate) fn prepare(
        self,
        operation: &'static str,
        target: Rank,
        least: usize,
        most: usize,
        blocking: Blocking,
    ) -> Result<Option<Prepared<'e, N, M>>> {
        self.job()
            .check_context(operation, am::Operation::Request)?;
        self.job().check_rank(operation, target)?;
        self.engine.check_fault()?;
        let limit = self.max_medium(MAX_ARGS);
        if least > limit {
            return Err(Error::PayloadTooLong {
                operation,
                rank: target,
                length: least,
                limit,
            });
        }
        let size = most.clamp(least, limit.max(least));
        let cost = self.engine.messages.credits.scale.cost(ROOM + size);
        let Some(byte) = self.take_credits(operation, target, cost, blocking)? else {
            return Ok(None);
        };
        let chunk = self.kernel().chunks.take();
        let chunk = match (chunk, blocking) {
            (Some(chunk), _) => chunk,
            (None, Blocking::Immediate) => {
                self.engine.messages.credits.flow.give_back(target, byte);
                return Ok(None);
            }
            (None, Blocking::Wait) => self.engine.wait_for(operation, Awaits::Chunk, |engine| {
                Ok(engine.kernel.chunks.take())
            })?,
        };
        let entered = Some(Entered::new(Context::Prepared));
        Ok(Some(Prepared {
            engine: self.engine,
            target,
            chunk,
            size,
            byte,
            ended: false,
            entered,
            thread: PhantomData,
        }))
    }
}

impl<N: Ni, M: Mode> Prepared<'_, N, M> {
    /// Returns the buffer for the payload. The buffer is aligned to 16 bytes; its contents are
    /// unspecified but initialised.
    pub fn payload(&mut self) -> &mut [u8] {
        // SAFETY: only `self` holds the chunk, and `ROOM + size` bytes fit in it (`max_medium`
        // ensures this). The chunk is network memory that was zeroed, so it is initialised. Peers
        // read it only after commit.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.engine.kernel.chunks.at(self.chunk).add(ROOM),
                self.size,
            )
        }
    }

    /// Sends the first `len` bytes of the payload to `handler`.
    pub fn commit(mut self, handler: u8, args: &[u32], len: usize) -> Result<()> {
        const OPERATION: &str = "commit_medium";
        let (engine, target) = (self.engine, self.target);
        if args.len() > MAX_ARGS {
            return Err(Error::TooManyArgs {
                operation: OPERATION,
                count: args.len(),
                limit: MAX_ARGS,
            });
        }
        if len > self.size {
            let (length, limit) = (len, self.size);
            return Err(Error::PayloadTooLong {
                operation: OPERATION,
                rank: target,
                length,
                limit,
            });
        }
        engine.job().check_process()?;
        self.entered = None;
        let mut head = [0; ROOM];
        let head_len = Body::write_args(args, &mut head);
        let start = ROOM - head_len;
        // SAFETY: the bytes lie before the payload and within the chunk that `self` holds. `head`
        // is a local variable, so the two do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(
                head.as_ptr(),
                engine.kernel.chunks.at(self.chunk).add(start),
                head_len,
            );
        }
        let header = Header {
            flags: Flags::of(Category::Medium, AmRole::Request),
            handler,
            nargs: args.len() as u8,
            credit: self.byte.bits(),
            chunk: engine.kernel.chunks.units(self.chunk),
            arg0: args.first().copied().unwrap_or(0),
            lid: NO_LID,
        };
        // From here on the chunk belongs to the request, whose reply frees it.
        self.ended = true;
        engine.messages().put_request(
            OPERATION,
            target,
            &header,
            self.chunk,
            start,
            head_len + len,
        )
    }

    /// Returns the chunk and the credits without sending the request.
    pub fn cancel(self) {}
}

impl<N: Ni, M: Mode> Drop for Prepared<'_, N, M> {
    fn drop(&mut self) {
        if !self.ended {
            self.engine.kernel.give_chunk(self.chunk);
            self.engine
                .messages
                .credits
                .flow
                .give_back(self.target, self.byte);
        }
    }
}

/// The payload of a medium reply that has not been committed. Dropping a `PreparedReply` cancels
/// the reply.
#[must_use = "a prepared payload is sent by commit"]
pub struct PreparedReply<'a, N: Ni, M: Mode> {
    call: &'a Call<'a, N, M>,
    reserve: &'a ReplyReserve,
    chunk: u32,
    size: usize,
    ended: bool,
}

impl<N: Ni, M: Mode> std::fmt::Debug for PreparedReply<'_, N, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedReply")
            .field("call", self.call)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl<N: Ni, M: Mode> Call<'_, N, M> {
    /// Prepares a medium reply of at least `least` and at most `most` bytes. The granted size lies
    /// between the two. The call uses the chunk reserved for the reply, so it never waits.
    pub fn prepare_medium_reply(
        &self,
        least: usize,
        most: usize,
    ) -> Result<PreparedReply<'_, N, M>> {
        const OPERATION: &str = "prepare_medium_reply";
        let reserve = self.reserve(OPERATION)?;
        let limit = self.engine.messages().max_medium(MAX_ARGS);
        if least > limit {
            return Err(Error::PayloadTooLong {
                operation: OPERATION,
                rank: self.token.source,
                length: least,
                limit,
            });
        }
        // Preparing a second reply fails here while the first is not committed, because the chunk
        // is taken.
        let Some(chunk) = reserve.take_chunk() else {
            return Err(self.engine.messages.replies.no_chunk().into());
        };
        Ok(PreparedReply {
            call: self,
            reserve,
            chunk,
            size: most.clamp(least, limit),
            ended: false,
        })
    }
}

impl<N: Ni, M: Mode> PreparedReply<'_, N, M> {
    /// Returns the buffer for the payload. The buffer is aligned to 16 bytes; its contents are
    /// unspecified but initialised.
    pub fn payload(&mut self) -> &mut [u8] {
        let at = self.call.engine.messages.replies.buffer.at(self.chunk);
        // SAFETY: only `self` holds the chunk, and `ROOM + size` bytes fit in it (`max_medium`
        // ensures this). The chunk is network memory that was zeroed, so it is initialised. Peers
        // read it only after commit.
        unsafe { std::slice::from_raw_parts_mut(at.add(ROOM), self.size) }
    }

    /// Replies with the first `len` bytes of the payload.
    pub fn commit(mut self, handler: u8, args: &[u32], len: usize) -> Result<()> {
        const OPERATION: &str = "commit_medium_reply";
        let call = self.call;
        let (engine, target) = (call.engine, call.token.source);
        call.check_args(OPERATION, args)?;
        if len > self.size {
            let (length, limit) = (len, self.size);
            return Err(Error::PayloadTooLong {
                operation: OPERATION,
                rank: target,
                length,
                limit,
            });
        }
        let category = Category::Medium;
        let (header, _) = call.open_reply(OPERATION, category, handler, args, Flags::empty())?;
        let mut head = [0; ROOM];
        let head_len = Body::write_args(args, &mut head);
        let head = &head[..head_len];
        if engine.messages.replies.inject(
            &engine.kernel,
            target,
            &header,
            head,
            &self.payload()[..len],
        )? {
            // A copy has been injected, so dropping `self` returns the chunk.
            return Ok(());
        }
        let start = ROOM - head_len;
        // SAFETY: the bytes lie before the payload and within the chunk that `self` holds. `head`
        // is a local variable, so the two do not overlap.
        unsafe {
            let at = engine.messages.replies.buffer.at(self.chunk).add(start);
            std::ptr::copy_nonoverlapping(head.as_ptr(), at, head_len);
        }
        // From here on the chunk belongs to the reply, whose completion frees it.
        self.ended = true;
        engine.messages.replies.send_in_chunk(
            &engine.kernel,
            target,
            &header,
            (self.chunk, start, head_len + len),
            self.reserve,
        );
        Ok(())
    }

    /// Returns the chunk without sending the reply.
    pub fn cancel(self) {}
}

impl<N: Ni, M: Mode> Drop for PreparedReply<'_, N, M> {
    fn drop(&mut self) {
        if !self.ended {
            self.reserve.add_chunk(self.chunk);
        }
    }
}
