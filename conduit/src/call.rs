//! A message as its handler receives it.

use conduit_core::ni::Rank;
use conduit_core::threads::{Mode, Seq};
use conduit_core::{engine, kernel, messages};
use zerocopy::{Immutable, IntoBytes};

use crate::{Args, Error, Landed, Long, Medium, Network, Payload, Result, Segment, Short};

/// A message as passed to its handler. It gives access to the message's source and to this rank and
/// its segment, and allows the handler to reply.
#[repr(transparent)]
pub struct Call<'a, M: Mode = Seq>(engine::Call<'a, Network<M>, M>);

impl<M: Mode> std::fmt::Debug for Call<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<'a, M: Mode> Call<'a, M> {
    #[inline]
    pub(crate) fn new<'b>(call: &'b engine::Call<'a, Network<M>, M>) -> &'b Self {
        // SAFETY: `Call` is a transparent wrapper of exactly the type to which the reference
        // points, so both references have the same layout, validity and lifetime.
        unsafe { &*std::ptr::from_ref(call).cast::<Self>() }
    }

    #[inline]
    pub(crate) fn payload(&self) -> messages::Payload<'a> {
        self.0.payload()
    }

    #[inline]
    pub(crate) fn landed(&self, offset: usize, length: usize) -> Landed<'a, M> {
        Landed::new(self.segment(), offset, length)
    }

    /// Ends the job because the payload's length does not match the handler's payload type.
    #[cold]
    pub(crate) fn malformed(&self, wanted: &str, length: usize) {
        let reason =
            format!("a payload of {length} bytes does not fit the handler's payload type {wanted}");
        self.0.engine().job().fail_by_message(self.source(), reason);
    }

    /// Returns this rank, on which the handler runs.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// let mark = handlers.short(|call, ()| {
    ///     call.segment().put(0, &(call.rank() + 1)).expect("the mark");
    /// });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.request(peer, mark, ())?;
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.get_value(peer, 0, 4)?, u64::from(peer + 1));
    /// # conduit.finish()
    /// # }
    /// ```
    #[inline]
    pub fn rank(&self) -> Rank {
        self.0.engine().rank()
    }

    /// Returns the number of ranks in the job.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// let insert = handlers.short(|call, (key,): (u32,)| {
    ///     // The key belongs to this rank.
    ///     assert_eq!(key % call.size(), call.rank());
    ///     call.segment().put(0, &key).expect("a slot");
    /// });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// conduit.request(1234 % conduit.size(), insert, (1234,))?;
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.get_value(1234 % conduit.size(), 0, 4)?, 1234);
    /// # conduit.finish()
    /// # }
    /// ```
    #[inline]
    pub fn size(&self) -> u32 {
        self.0.engine().size()
    }

    /// Returns this rank's segment, which the handler may access by atomics and copies.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// use conduit::AtomicOp;
    /// # let mut handlers = conduit::Handlers::new();
    /// let raise = handlers.short(|call, (level,): (i32,)| {
    ///     call.segment().atomic(0, AtomicOp::Max, level).expect("an aligned offset");
    /// });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.request(peer, raise, (3,))?;
    /// conduit.request(peer, raise, (2,))?;
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.segment().atomic_get::<i32>(0)?, 3);
    /// # conduit.finish()
    /// # }
    /// ```
    #[inline]
    pub fn segment(&self) -> Segment<'a, M> {
        Segment::new(self.0.engine())
    }

    #[inline]
    fn done(&self, call: &'static str, result: kernel::Result<()>) -> Result<()> {
        result.map_err(|error| Error::of(call, self.rank(), error))
    }

    /// Returns the rank that sent the message.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// // Counts the requests of each rank.
    /// let count = handlers.short(|call, ()| {
    ///     let counter = call.source() as usize * 8;
    ///     call.segment().atomic(counter, conduit::AtomicOp::Add, 1u64).expect("a counter");
    /// });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.request(peer, count, ())?;
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.segment().atomic_get::<u64>(peer as usize * 8)?, 1);
    /// # conduit.finish()
    /// # }
    /// ```
    #[inline]
    pub fn source(&self) -> Rank {
        self.0.source()
    }

    /// Returns whether the message is a request. If not, it is a reply, to which a handler may not
    /// reply.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// let seen = handlers.short(|call, ()| {
    ///     call.segment().put(usize::from(call.is_request()), &1u8).expect("a flag");
    /// });
    /// let ask = handlers.short(move |call, ()| call.reply(seen, ()).expect("the first reply"));
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.request(peer, ask, ())?;
    /// conduit.quiesce()?;
    /// // Only the reply ran `seen`.
    /// assert_eq!([conduit.get_value(peer, 0, 1)?, conduit.get_value(peer, 1, 1)?], [1, 0]);
    /// # conduit.finish()
    /// # }
    /// ```
    #[inline]
    pub fn is_request(&self) -> bool {
        self.0.is_request()
    }

    /// Replies with a short.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// # let answer = handlers.short(|call, (sum,): (u64,)| {
    /// #     call.segment().put(0, &sum).expect("the answer");
    /// # });
    /// let add = handlers.short(move |call, (one, other): (u64, u64)| {
    ///     // `answer` stores the sum at the start of the requester's segment.
    ///     call.reply(answer, (one + other,)).expect("the first reply");
    /// });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.request(peer, add, (30, 12))?;
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.get_value(peer, 0, 8)?, 42);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::Context`](crate::EngineError::Context) for a second reply and for a
    /// reply to a reply, and any [failure of the job](crate::Error#failure-of-the-job).
    #[inline]
    pub fn reply<A: Args>(&self, handler: Short<A>, args: A) -> Result<()> {
        let mut words = [0; am::MAX_ARGS];
        let sent = self.0.reply_short(handler.id, args.write(&mut words));
        self.done("reply", sent)
    }

    /// Replies with a medium of at most [`crate::Conduit::max_medium`] bytes.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// # let store = handlers.medium(|call, (place,): (usize,), words: &[u32]| {
    /// #     call.segment().put(place, words).expect("room for the answer");
    /// # });
    /// let ask = handlers.short(move |call, (place, count): (usize, u32)| {
    ///     let words: Vec<u32> = (1..=count).collect();
    ///     call.reply_medium(store, (place,), &words[..]).expect("the first reply");
    /// });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.request(peer, ask, (64, 5))?;
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.get_value(peer, 64 + 16, 4)?, 5);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Call::reply`], plus
    /// [`EngineError::PayloadTooLong`](crate::EngineError::PayloadTooLong) if the payload exceeds
    /// this limit.
    #[inline]
    pub fn reply_medium<A: Args, P: Payload + ?Sized>(
        &self,
        handler: Medium<A, P>,
        args: A,
        payload: &P,
    ) -> Result<()> {
        let mut words = [0; am::MAX_ARGS];
        let bytes = payload.as_bytes();
        let checked = self
            .0
            .engine()
            .messages()
            .check_medium(self.source(), bytes.len());
        let sent = checked.and_then(|()| {
            self.0
                .reply_medium(handler.id, args.write(&mut words), bytes)
        });
        self.done("reply_medium", sent)
    }

    /// Replies with a long, whose payload is stored at `offset` in the requester's segment. The
    /// payload may have at most [`crate::Conduit::max_long_reply`] bytes.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// let filled = handlers.long(|_, (), landed| assert_eq!(landed.length, 100));
    /// let fetch = handlers.short(move |call, (place,): (usize,)| {
    ///     call.reply_long(filled, (), &[7u8; 100], place).expect("the first reply");
    /// });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.request(peer, fetch, (2048,))?;
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.get_value(peer, 2147, 1)?, 7);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Call::reply_medium`], plus
    /// [`EngineError::OutOfSegment`](crate::EngineError::OutOfSegment) if the destination is not
    /// inside the requester's segment.
    #[inline]
    pub fn reply_long<A: Args, P: IntoBytes + Immutable + ?Sized>(
        &self,
        handler: Long<A>,
        args: A,
        payload: &P,
        offset: usize,
    ) -> Result<()> {
        let mut words = [0; am::MAX_ARGS];
        let (words, bytes) = (args.write(&mut words), payload.as_bytes());
        let sent = self.0.reply_long(handler.id, words, bytes, offset);
        self.done("reply_long", sent)
    }
}
