//! Active messages: requests and prepared mediums.

use conduit_core::kernel::Blocking;
use conduit_core::messages::Prepared;
use conduit_core::ni::Rank;
use conduit_core::threads::{Mode, Seq};
use zerocopy::{Immutable, IntoBytes};

use crate::{Args, Conduit, Long, Medium, Network, Payload, Result, Short};

/// Each request takes credits, which are returned when the target has handled the request. If too
/// few credits are left, a request polls until there are enough. The `try_` forms return `false` or
/// `None` instead.
impl<M: Mode> Conduit<M> {
    /// Returns the maximum size in bytes of a medium's payload. It is the same for requests and
    /// replies, and for any number of arguments. A longer payload is refused.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// # let count = handlers.medium(|_, (), bytes: &[u8]| println!("{} bytes", bytes.len()));
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// let limit = conduit.max_medium();
    /// conduit.request_medium(peer, count, (), &vec![1; limit][..])?;
    /// assert!(conduit.request_medium(peer, count, (), &vec![1; limit + 1][..]).is_err());
    /// # conduit.finish()
    /// # }
    /// ```
    pub fn max_medium(&self) -> usize {
        self.member.engine().messages().max_medium(am::MAX_ARGS)
    }

    /// Returns the maximum size in bytes of the payload of a long request to `target`.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// # let arrived = handlers.long(|_, (), piece| assert_eq!(piece.offset % 8, 0));
    /// # let conduit = conduit::start()?.attach(handlers, 8192)?;
    /// # let peer = conduit.rank();
    /// let (data, most) = ([9u8; 8000], conduit.max_long_request(peer)?);
    /// for (index, piece) in data.chunks(most).enumerate() {
    ///     conduit.request_long(peer, arrived, (), piece, index * most)?;
    /// }
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.get_value(peer, 7999, 1)?, 9);
    /// # conduit.finish()
    /// # }
    /// ```
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

    /// Returns the maximum size in bytes of the payload of a long reply to `target`.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// let fill = handlers.long(|_, (), landed| assert_eq!(landed.length, 4096));
    /// let ask = handlers.short(move |call, (most,): (usize,)| {
    ///     call.reply_long(fill, (), &vec![6u8; most.min(4096)][..], 0).expect("the first reply");
    /// });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.request(peer, ask, (conduit.max_long_reply(peer)?,))?;
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.get_value(peer, 0, 1)?, 6);
    /// # conduit.finish()
    /// # }
    /// ```
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
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// let store = handlers.short(|call, (place, value): (usize, f64)| {
    ///     call.segment().put(place, &value).expect("a place in the segment");
    /// });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.request(peer, store, (24, 0.75))?;
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.segment().atomic_get::<f64>(24)?, 0.75);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::NoSuchRank`](crate::EngineError::NoSuchRank) if the job has no rank
    /// `target`, [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler, because a
    /// handler may only reply, and any [failure of the job](crate::Error#failure-of-the-job).
    #[inline]
    pub fn request<A: Args>(&self, target: Rank, handler: Short<A>, args: A) -> Result<()> {
        self.short("request", target, handler, args, Blocking::Wait)
            .map(drop)
    }

    /// Like [`Conduit::request`], but never waits. If the request would have to wait, sends nothing
    /// and returns `false`.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// # let add = handlers.short(|call, (number,): (u32,)| {
    /// #     call.segment().atomic(0, conduit::AtomicOp::Add, number).expect("the sum");
    /// # });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// for number in 1..=10 {
    ///     while !conduit.try_request(peer, add, (number,))? {
    ///         conduit.poll()?; // the target is behind
    ///     }
    /// }
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.segment().atomic_get::<u32>(0)?, 55);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::request`].
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
    /// [`Conduit::max_medium`] bytes. The payload may be reused when this call returns.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// let keep = handlers.medium(|call, (place,): (usize,), words: &[u16]| {
    ///     call.segment().put(place, words).expect("room in the segment");
    /// });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.request_medium(peer, keep, (64,), &[1, 2, 3][..])?;
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.get_value(peer, 68, 2)?, 3);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::request`], plus
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

    /// Like [`Conduit::request_medium`], but never waits. If the request would have to wait, sends
    /// nothing and returns `false`.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// let log = handlers.medium(|call, (), line: &[u8]| {
    ///     call.segment().put(0, line).expect("a line in the segment");
    /// });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// let sent = conduit.try_request_medium(peer, log, (), b"step 1 done".as_slice())?;
    /// if sent {
    ///     conduit.quiesce()?;
    ///     assert_eq!(conduit.get_value(peer, 5, 1)?, u64::from(b'1'));
    /// }
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::request_medium`].
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

    /// Sends a long request, which stores the payload at `offset` in `target`'s segment and then
    /// runs `handler` there. The payload may be reused when this call returns.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// let sum = handlers.long(|call, (result,): (usize,), landed| {
    ///     let numbers: Vec<u32> = landed.to_vec().expect("whole numbers");
    ///     call.segment().put(result, &numbers.iter().sum::<u32>()).expect("a result");
    /// });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.request_long(peer, sum, (8,), &[10u32, 20, 30], 1024)?;
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.get_value(peer, 8, 4)?, 60);
    /// assert_eq!(conduit.get_value(peer, 1024, 4)?, 10);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::request`], plus
    /// [`EngineError::PayloadTooLong`](crate::EngineError::PayloadTooLong) if the payload exceeds
    /// [`Conduit::max_long_request`],
    /// [`EngineError::OutOfSegment`](crate::EngineError::OutOfSegment) if the payload's destination
    /// is not inside the target's segment, and
    /// [`EngineError::Exhausted`](crate::EngineError::Exhausted) if all operation ids are in use.
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
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// let done = handlers.short(|call, ()| call.segment().put(4088, &1u64).expect("the flag"));
    /// let ask = handlers.long(move |call, (), _| call.reply(done, ()).expect("the first reply"));
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// let data = [3u8; 256];
    /// // SAFETY: the data stays unchanged until the reply's handler has run.
    /// unsafe { conduit.request_long_async(peer, ask, (), data.as_ptr(), data.len(), 0)? };
    /// conduit.wait_until(|| Ok(conduit.segment().atomic_get::<u64>(4088)? == 1))?;
    /// assert_eq!(conduit.get_value(peer, 255, 1)?, 3);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::request_long`].
    ///
    /// # Safety
    /// `[base, base + len)` must remain valid, and must not be written, until the handler of the
    /// reply has run on this rank. The handler of the request must therefore reply.
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
        // SAFETY: the caller guarantees that the payload remains valid and is not written until the
        // handler of the reply has run.
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

    /// Prepares a medium whose payload the caller writes in place. The buffer for the payload has
    /// at least `least` and at most `most` bytes.
    ///
    /// Until the medium has been committed or dropped, this thread must not communicate. Debug
    /// builds refuse all communication. Release builds refuse the same calls as in
    /// [handlers](crate::Handlers).
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// use std::sync::{Arc, atomic::{AtomicUsize, Ordering::Relaxed}};
    /// let got = Arc::new(AtomicUsize::new(0));
    /// let mut handlers = conduit::Handlers::new();
    /// let count = handlers.medium({
    ///     let got = got.clone();
    ///     move |_, (), bytes: &[u8]| {
    ///         got.store(bytes.iter().filter(|&&byte| byte == 5).count(), Relaxed);
    ///     }
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
    /// Same as [`Conduit::request`], plus
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
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// # let keep = handlers.medium(|call, (), bytes: &[u8]| {
    /// #     call.segment().put(32, bytes).expect("room in the segment");
    /// # });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// if let Some(mut medium) = conduit.try_prepare_medium(peer, 4, 4)? {
    ///     medium.payload().copy_from_slice(b"wave");
    ///     medium.commit(keep, (), 4)?;
    ///     conduit.quiesce()?;
    ///     assert_eq!(conduit.get_value(peer, 35, 1)?, u64::from(b'e'));
    /// }
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::prepare_medium`].
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

/// A medium whose payload is being written. Dropping a `PreparedMedium` cancels the medium.
#[must_use = "a prepared medium is sent by commit"]
#[derive(Debug)]
pub struct PreparedMedium<'a, M: Mode = Seq> {
    /// Always `Some`, because an immediate prepare that fails creates no `PreparedMedium`.
    prepared: Option<Prepared<'a, Network<M>, M>>,
    conduit: &'a Conduit<M>,
}

impl<M: Mode> PreparedMedium<'_, M> {
    /// Returns the buffer for the payload. The buffer is aligned to 16 bytes, and its initial
    /// contents are unspecified.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// # let peer = conduit.rank();
    /// let mut medium = conduit.prepare_medium(peer, 16, 64)?;
    /// let buffer = medium.payload();
    /// assert!((16..=64).contains(&buffer.len()));
    /// for (index, byte) in buffer.iter_mut().enumerate() {
    ///     *byte = index as u8;
    /// }
    /// # medium.cancel();
    /// # conduit.finish()
    /// # }
    /// ```
    pub fn payload(&mut self) -> &mut [u8] {
        self.prepared.as_mut().map_or(&mut [], Prepared::payload)
    }

    /// Sends the first `len` bytes of the payload to a handler that takes a payload of bytes.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// let keep = handlers.medium(|call, (place,): (usize,), bytes: &[u8]| {
    ///     call.segment().put(place, bytes).expect("room in the segment");
    /// });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// let mut medium = conduit.prepare_medium(peer, 3, 100)?;
    /// medium.payload()[..3].copy_from_slice(&[20, 30, 50]);
    /// medium.commit(keep, (16,), 2)?; // the first 2 bytes only
    /// conduit.quiesce()?;
    /// assert_eq!((conduit.get_value(peer, 17, 1)?, conduit.get_value(peer, 18, 1)?), (30, 0));
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::PayloadTooLong`](crate::EngineError::PayloadTooLong) if `len` exceeds
    /// the length of [`PreparedMedium::payload`], and any [failure of the
    /// job](crate::Error#failure-of-the-job). Nothing has been sent in these cases.
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
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// let mut medium = conduit.prepare_medium(peer, 8, 8)?;
    /// medium.payload().fill(1);
    /// medium.cancel();
    /// // This thread may communicate again.
    /// conduit.put(peer, 0, &5u8)?;
    /// assert_eq!(conduit.get_value(peer, 0, 1)?, 5);
    /// # conduit.finish()
    /// # }
    /// ```
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
