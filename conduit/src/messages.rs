//! Active messages: requests and prepared mediums.

use conduit_core::kernel::Blocking;
use conduit_core::messages::Prepared;
use conduit_core::ni::Rank;
use conduit_core::threads::{Mode, Seq};
use zerocopy::{Immutable, IntoBytes};

use crate::{Args, Conduit, Long, Medium, Network, Payload, Result, Short};

/// If there are no credits because the target is behind, requests poll until there are; the `try_`
/// forms return `false` or `None` instead.
impl<M: Mode> Conduit<M> {
    /// Returns the largest payload of a medium in bytes, for requests and replies with any number
    /// of arguments. The limit is exact.
    pub fn max_medium(&self) -> usize {
        self.member.engine().messages().max_medium(am::MAX_ARGS)
    }

    /// Returns the largest payload of a long request to `target` in bytes.
    ///
    /// # Errors
    /// Returns [`EngineError::NoSuchRank`](crate::EngineError::NoSuchRank) if the job has no rank
    /// `target`.
    pub fn max_long_request(&self, target: Rank) -> Result<usize> {
        const CALL: &str = "max_long_request";
        let engine = self.member.engine();
        self.done(CALL, engine.messages().check_rank(CALL, target))?;
        Ok(engine.messages().max_long_request(target))
    }

    /// Returns the largest payload of a long reply to `target` in bytes.
    ///
    /// # Errors
    /// Returns [`EngineError::NoSuchRank`](crate::EngineError::NoSuchRank) if the job has no rank
    /// `target`.
    pub fn max_long_reply(&self, target: Rank) -> Result<usize> {
        const CALL: &str = "max_long_reply";
        let engine = self.member.engine();
        self.done(CALL, engine.messages().check_rank(CALL, target))?;
        Ok(engine.messages().max_long_reply(target))
    }

    /// Sends a short request, which runs `handler` on `target`.
    ///
    /// # Errors
    /// Returns [`EngineError::NoSuchRank`](crate::EngineError::NoSuchRank) if the job has no rank
    /// `target`, [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler, which may
    /// only reply, and any [failure of the job](crate::Error#failure-of-the-job).
    #[inline]
    pub fn request<A: Args>(&self, target: Rank, handler: Short<A>, args: A) -> Result<()> {
        self.short("request", target, handler, args, Blocking::Wait)
            .map(drop)
    }

    /// Like [`Conduit::request`], but never waits. Returns whether the request was sent.
    ///
    /// # Errors
    /// As for [`Conduit::request`]. A lack of credits is not an error: the call returns `false`.
    #[inline]
    pub fn try_request<A: Args>(&self, target: Rank, handler: Short<A>, args: A) -> Result<bool> {
        self.short("try_request", target, handler, args, Blocking::Immediate)
    }

    #[inline]
    fn short<A: Args>(
        &self,
        call: &'static str,
        target: Rank,
        handler: Short<A>,
        args: A,
        blocking: Blocking,
    ) -> Result<bool> {
        let mut words = [0; am::MAX_ARGS];
        let (engine, words) = (self.member.engine(), args.write(&mut words));
        self.done(
            call,
            engine
                .messages()
                .request_short(target, handler.id, words, blocking),
        )
    }

    /// Sends a medium request, which runs `handler` on `target` with this payload of at most
    /// [`Conduit::max_medium`] bytes. The payload may be reused on return.
    ///
    /// # Errors
    /// As for [`Conduit::request`], and
    /// [`EngineError::PayloadTooLong`](crate::EngineError::PayloadTooLong) if the payload exceeds
    /// [`Conduit::max_medium`].
    #[inline]
    pub fn request_medium<A: Args, P: Payload + ?Sized>(
        &self,
        target: Rank,
        handler: Medium<A, P>,
        args: A,
        payload: &P,
    ) -> Result<()> {
        let blocking = Blocking::Wait;
        self.medium("request_medium", target, handler, args, payload, blocking)
            .map(drop)
    }

    /// Like [`Conduit::request_medium`], but never waits. Returns whether the request was sent.
    ///
    /// # Errors
    /// As for [`Conduit::request_medium`].
    #[inline]
    pub fn try_request_medium<A: Args, P: Payload + ?Sized>(
        &self,
        target: Rank,
        handler: Medium<A, P>,
        args: A,
        payload: &P,
    ) -> Result<bool> {
        let blocking = Blocking::Immediate;
        let call = "try_request_medium";
        self.medium(call, target, handler, args, payload, blocking)
    }

    #[inline]
    fn medium<A: Args, P: Payload + ?Sized>(
        &self,
        call: &'static str,
        target: Rank,
        handler: Medium<A, P>,
        args: A,
        payload: &P,
        blocking: Blocking,
    ) -> Result<bool> {
        let mut words = [0; am::MAX_ARGS];
        let (words, bytes) = (args.write(&mut words), payload.as_bytes());
        let engine = self.member.engine();
        self.done(call, engine.messages().check_medium(target, bytes.len()))?;
        self.done(
            call,
            engine
                .messages()
                .request_medium(target, handler.id, words, bytes, blocking),
        )
    }

    /// Sends a long request, which stores the payload at `offset` of `target`'s segment and then
    /// runs `handler` there. The payload may be reused on return.
    ///
    /// # Errors
    /// As for [`Conduit::request`]. Also
    /// [`EngineError::PayloadTooLong`](crate::EngineError::PayloadTooLong) if the payload exceeds
    /// [`Conduit::max_long_request`],
    /// [`EngineError::OutOfSegment`](crate::EngineError::OutOfSegment) if its destination is not
    /// inside the target's segment, and [`EngineError::Exhausted`](crate::EngineError::Exhausted)
    /// if all operation ids are in use.
    #[inline]
    pub fn request_long<A: Args, P: IntoBytes + Immutable + ?Sized>(
        &self,
        target: Rank,
        handler: Long<A>,
        args: A,
        payload: &P,
        offset: usize,
    ) -> Result<()> {
        let mut words = [0; am::MAX_ARGS];
        let (words, bytes) = (args.write(&mut words), payload.as_bytes());
        let engine = self.member.engine();
        let sent = engine.messages().request_long(
            target,
            handler.id,
            words,
            bytes,
            offset,
            Blocking::Wait,
        );
        self.done("request_long", sent).map(drop)
    }

    /// Like [`Conduit::request_long`], but may return before the payload has been read.
    ///
    /// # Errors
    /// As for [`Conduit::request_long`].
    ///
    /// # Safety
    /// `[base, base + len)` must stay valid and unwritten until the handler of the request's reply
    /// has run on this rank. The request's handler must therefore reply.
    #[inline]
    pub unsafe fn request_long_async<A: Args>(
        &self,
        target: Rank,
        handler: Long<A>,
        args: A,
        base: *const u8,
        len: usize,
        offset: usize,
    ) -> Result<()> {
        let mut words = [0; am::MAX_ARGS];
        let words = args.write(&mut words);
        // SAFETY: the caller's promise.
        let sent = unsafe {
            self.member.engine().messages().request_long_async(
                target,
                handler.id,
                words,
                (base, len),
                offset,
                Blocking::Wait,
            )
        };
        self.done("request_long_async", sent).map(drop)
    }

    /// Prepares a medium whose payload is written in place, in a buffer of at least `least` and at
    /// most `most` bytes.
    ///
    /// Until the medium is committed or dropped, this thread may not communicate. Debug builds
    /// refuse all communication; release builds refuse the calls that they refuse in
    /// [handlers](crate::Handlers).
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// use std::sync::{Arc, atomic::{AtomicUsize, Ordering::Relaxed}};
    /// let got = Arc::new(AtomicUsize::new(0));
    /// let mut handlers = conduit::Handlers::new();
    /// let count = handlers.medium({
    ///     let got = got.clone();
    ///     move |_, (), bytes: &[u8]| got.store(bytes.iter().filter(|&&byte| byte == 5).count(), Relaxed)
    /// });
    /// let conduit = conduit::start()?.attach(handlers, 0)?;
    /// let mut medium = conduit.prepare_medium(conduit.rank(), 10, 1000)?;
    /// medium.payload()[..10].fill(5);
    /// medium.commit(count, (), 10)?;
    /// conduit.wait_until(|| got.load(Relaxed) == 10)?;
    /// conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Conduit::request`], and
    /// [`EngineError::PayloadTooLong`](crate::EngineError::PayloadTooLong) if `least` exceeds
    /// [`Conduit::max_medium`].
    pub fn prepare_medium(
        &self,
        target: Rank,
        least: usize,
        most: usize,
    ) -> Result<PreparedMedium<'_, M>> {
        let engine = self.member.engine();
        let prepared = engine
            .messages()
            .prepare_medium(target, least, most, Blocking::Wait);
        let prepared = self.done("prepare_medium", prepared)?;
        Ok(PreparedMedium {
            prepared,
            conduit: self,
        })
    }

    /// Like [`Conduit::prepare_medium`], but returns `None` instead of waiting.
    ///
    /// # Errors
    /// As for [`Conduit::prepare_medium`].
    pub fn try_prepare_medium(
        &self,
        target: Rank,
        least: usize,
        most: usize,
    ) -> Result<Option<PreparedMedium<'_, M>>> {
        let engine = self.member.engine();
        let prepared = engine
            .messages()
            .prepare_medium(target, least, most, Blocking::Immediate);
        let prepared = self.done("try_prepare_medium", prepared)?;
        Ok(prepared.is_some().then_some(PreparedMedium {
            prepared,
            conduit: self,
        }))
    }
}

/// A medium whose payload is being written. Dropping it cancels the medium.
#[must_use = "a prepared medium is sent by commit"]
#[derive(Debug)]
pub struct PreparedMedium<'a, M: Mode = Seq> {
    /// Always `Some`: an immediate prepare that fails creates no `PreparedMedium`.
    prepared: Option<Prepared<'a, Network<M>, M>>,
    conduit: &'a Conduit<M>,
}

impl<M: Mode> PreparedMedium<'_, M> {
    /// Returns the payload's buffer, aligned to 16 bytes. Its initial content is unspecified.
    pub fn payload(&mut self) -> &mut [u8] {
        self.prepared.as_mut().map_or(&mut [], Prepared::payload)
    }

    /// Sends the first `len` bytes to a handler that takes a payload of bytes.
    ///
    /// # Errors
    /// Returns [`EngineError::PayloadTooLong`](crate::EngineError::PayloadTooLong) if `len` exceeds
    /// the length of [`PreparedMedium::payload`], and any [failure of the
    /// job](crate::Error#failure-of-the-job). Nothing is sent in these cases.
    pub fn commit<A: Args>(self, handler: Medium<A>, args: A, len: usize) -> Result<()> {
        let mut words = [0; am::MAX_ARGS];
        let words = args.write(&mut words);
        match self.prepared {
            Some(prepared) => {
                let sent = prepared.commit(handler.id, words, len);
                self.conduit.done("commit", sent)
            }
            None => Ok(()),
        }
    }

    /// Cancels the medium.
    pub fn cancel(self) {}
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use crate::{Handlers, start};

    #[test]
    fn no_reply_of_the_largest_size_is_lost_in_a_flood() {
        let got = Arc::new(AtomicUsize::new(0));
        let mut handlers = Handlers::new();
        let answer = handlers.medium({
            let got = got.clone();
            move |_, (), bytes: &[u8]| {
                got.fetch_add(bytes.len(), Relaxed);
            }
        });
        let ask = handlers.short(move |call, (bytes,): (usize,)| {
            call.reply_medium(answer, (), &vec![7; bytes][..])
                .expect("first reply to a request");
        });
        let conduit = start().unwrap().attach(handlers, 0).unwrap();
        let bytes = conduit.max_medium();
        for _ in 0..200 {
            conduit.request(0, ask, (bytes,)).unwrap();
        }
        conduit
            .wait_until(|| got.load(Relaxed) == 200 * bytes)
            .unwrap();
        conduit.finish().unwrap();
    }
}
