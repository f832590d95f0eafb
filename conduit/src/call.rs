//! A message in its handler's hands.

use conduit_core::ni::Rank;
use conduit_core::threads::{Mode, Seq};
use conduit_core::{engine, kernel, messages};
use zerocopy::{Immutable, IntoBytes};

use crate::{Args, Error, Landed, Long, Medium, Network, Payload, Result, Segment, Short};

/// What a handler knows of the message that runs it and of its rank, and its chance to reply.
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
        // SAFETY: `Call` is a transparent wrapper of exactly this type, so the reference has the same layout and lifetime.
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

    /// Ends the job: the payload is not what its handler takes.
    #[cold]
    pub(crate) fn malformed(&self, wanted: &str, length: usize) {
        let reason = format!("a payload of {length} bytes is no {wanted}");
        self.0.engine().job().fail_by_message(self.source(), reason);
    }

    /// This rank, on which the handler runs.
    #[inline]
    pub fn rank(&self) -> Rank {
        self.0.engine().rank()
    }

    /// Ranks in the job.
    #[inline]
    pub fn size(&self) -> u32 {
        self.0.engine().size()
    }

    /// This rank's segment, with the atomics and copies that a handler may do there.
    #[inline]
    pub fn segment(&self) -> Segment<'a, M> {
        Segment::new(self.0.engine())
    }

    #[inline]
    fn done(&self, call: &'static str, result: kernel::Result<()>) -> Result<()> {
        result.map_err(|error| Error::of(call, self.rank(), error))
    }

    /// The rank that sent the message.
    #[inline]
    pub fn source(&self) -> Rank {
        self.0.source()
    }

    /// Whether it is a request; otherwise it is a reply, and may not be replied to.
    #[inline]
    pub fn is_request(&self) -> bool {
        self.0.is_request()
    }

    /// Replies with a short.
    ///
    /// # Errors
    /// A second reply, a reply to a reply.
    #[inline]
    pub fn reply<A: Args>(&self, handler: Short<A>, args: A) -> Result<()> {
        let mut words = [0; am::MAX_ARGS];
        let sent = self.0.reply_short(handler.id, args.write(&mut words));
        self.done("reply", sent)
    }

    /// Replies with a medium of at most [`crate::Conduit::max_medium`] bytes.
    ///
    /// # Errors
    /// Payload too long, second reply, reply to a reply.
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

    /// Replies with a long to `offset` of the requester's segment, of at most [`crate::Conduit::max_long_reply`] bytes.
    ///
    /// # Errors
    /// As [`Call::reply_medium`], and a destination outside of the segment.
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
