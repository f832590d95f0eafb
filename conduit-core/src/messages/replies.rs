//! Outgoing replies. A reply is injected or sent from a chunk of the RplSB; sending it never waits.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use am::{Flags, Header, NO_LID, select};
use credits::CreditByte;

use crate::kernel::Kernel;
use crate::kernel::chunks::SendBuffer;
use crate::kernel::error::Result;
use crate::kernel::portal_table::{SELECT_RPL_RB, index};
use crate::kernel::token::{Role, Token};
use crate::messages::head::MOST_HEAD;
use crate::messages::reserve::{Deferred, MOST_RESERVED, ReplyReserve};
use crate::ni::{Ack, Exchange, Inject, Ni, NiError, Put, Rank, Submit};
use crate::threads::Mode;

/// Bodies up to this size are injected for every peer, because the copy costs less than a
/// completion would. Larger bodies for an unmapped peer are read from the replier's chunk, which
/// the completion frees. For a mapped peer, injecting always costs less, because the bytes are
/// copied only once, as they would be into a chunk.
const INLINE: usize = MOST_HEAD + 1024;

/// The replies of a rank.
pub(crate) struct Replies<M: Mode> {
    /// RplSB: the buffer that holds replies that are not injected, until they have been sent.
    pub(crate) buffer: SendBuffer<M>,
    /// Whether a reply that the network refused is waiting in the reserve.
    waiting: AtomicBool,
}

impl<M: Mode> Replies<M> {
    pub(crate) fn new(buffer: SendBuffer<M>) -> Self {
        Self {
            buffer,
            waiting: AtomicBool::new(false),
        }
    }

    /// Returns whether a reply is waiting for the network to accept it.
    #[inline(always)]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Relaxed)
    }

    /// Returns whether the resources for the next request's reply are reserved.
    #[inline(always)]
    pub(crate) fn can_reply(&self, reserve: &ReplyReserve) -> bool {
        !self.waiting.load(Relaxed) && reserve.replies() > 0
    }

    /// Fills the reserve with chunks and tickets that are free. Returns whether a reply can now be
    /// sent without waiting.
    #[inline]
    pub(crate) fn fill<N: Ni>(&self, kernel: &Kernel<N, M>, reserve: &ReplyReserve) -> bool {
        (reserve.replies() >= MOST_RESERVED && !self.waiting.load(Relaxed))
            || self.refill(kernel, reserve)
    }

    #[cold]
    fn refill<N: Ni>(&self, kernel: &Kernel<N, M>, reserve: &ReplyReserve) -> bool {
        if self.waiting.load(Relaxed) && !self.send_all_deferred(kernel, reserve) {
            return false;
        }
        let missing = MOST_RESERVED - reserve.count.get();
        if missing > 0 {
            self.buffer
                .take_up_to(missing, |chunk| reserve.add_chunk(chunk));
        }
        while reserve.tickets.get() < MOST_RESERVED && kernel.job.tickets.take(1) {
            reserve.give_ticket();
        }
        reserve.replies() > 0
    }

    /// Sends the deferred replies. Returns false if the network does not accept them all yet.
    fn send_all_deferred<N: Ni>(&self, kernel: &Kernel<N, M>, reserve: &ReplyReserve) -> bool {
        loop {
            let Some(reply) = reserve.deferred.borrow_mut().pop() else {
                self.waiting.store(false, Relaxed);
                return true;
            };
            if !self.send_deferred(kernel, reply, reserve) {
                return false;
            }
        }
    }

    /// Sends the implied reply to a request that had these flags and this chunk.
    pub(crate) fn send_implied<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        target: Rank,
        flags: Flags,
        chunk: u32,
        back: CreditByte,
        reserve: &ReplyReserve,
    ) {
        let header = Header {
            flags: Flags::SHORT | Flags::IMPLIED | flags.intersection(Flags::NO_CHUNK),
            handler: 0,
            nargs: 0,
            credit: back.bits(),
            chunk,
            arg0: 0,
            lid: NO_LID,
        };
        if let Err(error) = self.send(kernel, target, &header, &[], &[], reserve) {
            kernel.job.fail(error);
        }
    }

    /// Injects a reply, or sends it from the reserved chunk; see [`INLINE`]. If the network accepts
    /// neither now, the reply waits in the chunk, and no further request is handled until the reply
    /// has been sent.
    #[inline(always)]
    pub(crate) fn send<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        target: Rank,
        header: &Header,
        head: &[u8],
        payload: &[u8],
        reserve: &ReplyReserve,
    ) -> Result<()> {
        if self.inject(kernel, target, header, head, payload)? {
            return Ok(());
        }
        self.send_from_chunk(kernel, target, header, head, payload, reserve)
    }

    /// Injects a reply if its size allows that (see [`INLINE`]). Returns whether the network
    /// accepted it.
    #[inline(always)]
    pub(crate) fn inject<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        target: Rank,
        header: &Header,
        head: &[u8],
        payload: &[u8],
    ) -> Result<bool> {
        let reach = kernel.job.ni.reach(target);
        let (length, most) = (head.len() + payload.len(), reach.inject_size);
        if most == 0 || length > most || (length > INLINE && !kernel.job.is_mapped(reach)) {
            return Ok(false);
        }
        let (match_bits, hdr_data) = header.encode(SELECT_RPL_RB);
        let inject = Inject {
            target,
            index: index::SAFE,
            exchange: Exchange::IsReply,
            match_bits,
            hdr_data,
            head,
            body: payload,
        };
        Ok(kernel.job.ni.inject(&inject)? == Submit::Posted)
    }

    #[inline(never)]
    fn send_from_chunk<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        target: Rank,
        header: &Header,
        head: &[u8],
        payload: &[u8],
        reserve: &ReplyReserve,
    ) -> Result<()> {
        let Some(chunk) = reserve.take_chunk() else {
            // Cannot happen: each request has at most one reply, and the reserve is filled before
            // each request.
            return Err(self.no_chunk().into());
        };
        let length = head.len() + payload.len();
        debug_assert!(
            length <= kernel.job.chunk,
            "the limit functions keep replies within a chunk"
        );
        // SAFETY: this call holds the chunk, and `length` bytes fit in it (the limits of mediums
        // and packed longs ensure this). Neither `head` nor `payload` lies in a free RplSB chunk,
        // so they do not overlap it.
        unsafe {
            let at = self.buffer.at(chunk);
            std::ptr::copy_nonoverlapping(head.as_ptr(), at, head.len());
            std::ptr::copy_nonoverlapping(payload.as_ptr(), at.add(head.len()), payload.len());
        }
        self.send_in_chunk(kernel, target, header, (chunk, 0, length), reserve);
        Ok(())
    }

    #[cold]
    pub(crate) fn no_chunk(&self) -> NiError {
        NiError::Exhausted {
            operation: "reply",
            what: "RplSB chunks",
            limit: self.buffer.count().into(),
            setting: "GASNET_PORTAL_RPL_CHUNKS",
        }
    }

    /// Sends `length` bytes from offset `start` of a chunk.
    pub(crate) fn send_in_chunk<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        target: Rank,
        header: &Header,
        (chunk, start, length): (u32, usize, usize),
        reserve: &ReplyReserve,
    ) {
        let deferred = Deferred {
            target,
            header: *header,
            chunk,
            start,
            length,
        };
        self.send_deferred(kernel, deferred, reserve);
    }

    fn defer(&self, reply: Deferred, reserve: &ReplyReserve) {
        reserve.defer(reply);
        self.waiting.store(true, Relaxed);
    }

    /// Puts a reply from its chunk. Returns `false` if the network did not accept the reply yet;
    /// the reply is then deferred again.
    fn send_deferred<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        reply: Deferred,
        reserve: &ReplyReserve,
    ) -> bool {
        let Deferred {
            target,
            ref header,
            chunk,
            start,
            length,
        } = reply;
        if !reserve.take_ticket() && !kernel.job.tickets.take(1) {
            self.defer(reply, reserve);
            return false;
        }
        let to_buffer = header.flags.contains(Flags::NO_CHUNK);
        let (match_bits, hdr_data) = header.encode(if to_buffer {
            SELECT_RPL_RB
        } else {
            select::REQ_SB
        });
        let put = Put {
            md: self.buffer.md,
            local_offset: self.buffer.offset(chunk) + start,
            length,
            ack: Ack::Local,
            target,
            index: index::SAFE,
            match_bits,
            remote_offset: if to_buffer {
                0
            } else {
                u64::from(header.chunk) * 64
            },
            hdr_data,
            token: Token::new(Role::Reply(chunk), None).bits(),
        };
        // SAFETY: the chunk is held until the put's event arrives, and nothing writes to a RplSB
        // chunk while it is held.
        match unsafe { kernel.job.ni.put(&put) } {
            Ok(Submit::Posted) => true,
            Ok(Submit::Again) => {
                reserve.give_ticket();
                self.defer(reply, reserve);
                false
            }
            Err(error) => {
                kernel.job.fail(error.into());
                false
            }
        }
    }
}
