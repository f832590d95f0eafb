//! A message in its handler's hands.

use conduit_core::engine::{self, Payload};
use conduit_core::ni::Rank;
use conduit_core::threads::{Mode, Seq};

use crate::Network;
use crate::{Args, Long, Medium, Result, Short};

/// What a handler knows of the message that runs it, and its chance to reply.
#[repr(transparent)]
pub struct Call<'a, M: Mode = Seq>(engine::Call<'a, Network<M>, M>);

/// Where a long's payload has landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Landed {
    /// First byte, from the start of this rank's segment.
    pub offset: usize,
    /// Bytes.
    pub length: usize,
}

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
    pub(crate) fn payload(&self) -> Payload<'a> {
        self.0.payload()
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
        Ok(self.0.reply_short(handler.id, args.write(&mut words))?)
    }

    /// Replies with a medium of at most [`crate::Conduit::max_medium`] bytes.
    ///
    /// # Errors
    /// Payload too long, second reply, reply to a reply.
    #[inline]
    pub fn reply_medium<A: Args>(&self, handler: Medium<A>, args: A, payload: &[u8]) -> Result<()> {
        let mut words = [0; am::MAX_ARGS];
        Ok(self
            .0
            .reply_medium(handler.id, args.write(&mut words), payload)?)
    }

    /// Replies with a long to `offset` of the requester's segment, of at most [`crate::Conduit::max_long_reply`] bytes.
    ///
    /// # Errors
    /// As [`Call::reply_medium`], and a destination outside of the segment.
    #[inline]
    pub fn reply_long<A: Args>(
        &self,
        handler: Long<A>,
        args: A,
        payload: &[u8],
        offset: usize,
    ) -> Result<()> {
        let mut words = [0; am::MAX_ARGS];
        Ok(self
            .0
            .reply_long(handler.id, args.write(&mut words), payload, offset)?)
    }
}
