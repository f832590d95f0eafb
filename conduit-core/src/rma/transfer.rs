//! Puts and gets by messages. Each piece takes a send ticket and a source role. All pieces of a
//! transfer share one operation id.
//!
//! The local memory gets the same role as in GASNet's portals-conduit: RARSRC if it lies in this
//! rank's segment, a ReqSB chunk if it fits in one, and otherwise, or if no chunk is free, a
//! temporary descriptor (TMPMD).

use crate::engine::report::Awaits;
use crate::engine::{Calls, subject};
use crate::kernel::chunks::Bounce;
use crate::kernel::error::Result;
use crate::kernel::handle::{Handle, OpId};
use crate::kernel::options::Blocking;
use crate::kernel::portal_table::index;
use crate::kernel::token::{Role, Token};
use crate::memory::{Local, Remote, Source};
use crate::ni::{Ack, Get, MdId, Ni, NiError, Put, Rank, Submit};
use crate::threads::Mode;

/// The outcome of starting a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// The transfer would have blocked.
    NotStarted,
    /// The transfer is in flight. `copied` is whether its local memory is no longer used, as after
    /// a put from chunks.
    Started { op: OpId, copied: bool },
    /// The transfer is in flight as a member of a group, or is already complete. The caller need
    /// not wait for it separately.
    Member,
}

impl Transfer {
    pub(crate) fn handle(self) -> Option<Handle> {
        match self {
            Self::NotStarted => None,
            Self::Started { op, .. } => Some(Handle::from_bits(op.bits())),
            Self::Member => Some(Handle::DONE),
        }
    }
}

/// The location from which a piece is sent, or into which it is received.
enum Place {
    /// A descriptor over the caller's memory, and the offset of that memory in the descriptor.
    Direct(MdId, usize),
    Chunk(u32),
}

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Rma> {
    /// Starts a put, a get or a fill of a remote range that has been checked.
    ///
    /// # Safety
    /// The local memory must be valid until the operation (or its group) has been synchronised.
    /// Until then, a source must not be written, and a destination must be neither read nor
    /// written.
    pub(crate) unsafe fn transfer(
        self,
        operation: &'static str,
        remote: Remote,
        local: Local,
        group: Option<OpId>,
        blocking: Blocking,
    ) -> Result<Transfer> {
        let target = remote.target;
        self.engine
            .check_outside(operation, am::Operation::Request)?;
        self.engine.check_fault()?;
        if local.len() == 0 {
            // There is nothing to move. Besides, a rank without a segment has no entry that would
            // accept an empty transfer.
            return Ok(Transfer::Member);
        }
        if let Some(address) = self.engine.memory.address_at_once(remote) {
            // SAFETY: the caller guarantees that the local memory is valid. For a range of this
            // process, the program guarantees that it is valid memory.
            unsafe {
                self.engine
                    .memory
                    .transfer_anywhere(self.kernel(), target, address, local)?
            };
            return Ok(Transfer::Member);
        }
        let piece = self.job().ni.reach(target).max_message.min(match local {
            Local::Fill { .. } => self.job().chunk,
            _ => usize::MAX,
        });
        let pieces = local.len().div_ceil(piece.max(1));
        if blocking == Blocking::Immediate {
            // Requires that as many tickets be free as the transfer needs or, if it needs more than
            // exist, as many as exist. In the latter case the transfer polls until it gets the
            // rest.
            let needed = u32::try_from(pieces)
                .unwrap_or(u32::MAX)
                .min(self.most_tickets());
            self.engine.poll_for(1);
            if self.job().tickets.free() < needed {
                return Ok(Transfer::NotStarted);
            }
        }
        let op = self.kernel().begin(operation, group, Some(target))?;
        self.engine.memory.note_asked(op, remote, local.len());
        let posted =
            // SAFETY: the caller guarantees that the local memory is valid until the operation has
            // been synchronised.
            unsafe { self.post_pieces(operation, remote, &local, piece, pieces, op) };
        let copied = match posted {
            Ok(copied) => copied,
            Err(error) => {
                // The caller gets the error, so it does not wait for the pieces that are in flight.
                // From now on nothing may access the caller's memory, which the fault ensures.
                self.job().fail(error.clone());
                self.engine.check_fault()?;
                return Err(error);
            }
        };
        // The initiation itself counted as a piece, so that the operation could not end before all
        // other pieces had been counted.
        self.kernel().finish(op);
        Ok(match group {
            Some(_) if copied => Transfer::Member,
            _ => Transfer::Started { op, copied },
        })
    }

    /// Posts all pieces of a transfer in order. Returns whether the local memory is no longer used.
    ///
    /// # Safety
    /// Same as [`Calls::transfer`].
    unsafe fn post_pieces(
        self,
        operation: &'static str,
        remote: Remote,
        local: &Local,
        piece: usize,
        pieces: usize,
        op: OpId,
    ) -> Result<bool> {
        let mut copied = true;
        let mut start = 0;
        let mut md = None;
        for _ in 0..pieces {
            let length = piece.min(local.len() - start);
            let place = self.place(operation, local, start, length, &mut md, op)?;
            copied &= matches!(place, Place::Chunk(_));
            // SAFETY: the caller guarantees that the local memory is valid, and the piece lies
            // within it.
            unsafe {
                self.post_piece(
                    operation,
                    Remote {
                        offset: remote.offset + start,
                        ..remote
                    },
                    length,
                    local,
                    start,
                    &place,
                    op,
                )?
            };
            start += length;
        }
        Ok(copied)
    }

    fn most_tickets(self) -> u32 {
        match self.job().settings.msg_limit {
            0 => u32::MAX,
            // Some tickets are always reserved for replies.
            limit => (limit.saturating_sub(crate::messages::reserve::MOST_RESERVED) / 2).max(1),
        }
    }

    pub(crate) fn take_ticket(self, operation: &'static str) -> Result<()> {
        if self.job().tickets.take(1) {
            return Ok(());
        }
        self.engine.wait_for(operation, Awaits::Ticket, |engine| {
            Ok(engine.job().tickets.take(1).then_some(()))
        })
    }

    /// Selects the role of a piece's local memory, and takes the piece's ticket.
    fn place(
        self,
        operation: &'static str,
        local: &Local,
        start: usize,
        length: usize,
        md: &mut Option<MdId>,
        op: OpId,
    ) -> Result<Place> {
        self.take_ticket(operation)?;
        let Some(base) = local.base() else {
            let chunk = self.engine.wait_for(operation, Awaits::Chunk, |engine| {
                Ok(engine.kernel.chunks.take())
            })?;
            return Ok(Place::Chunk(chunk));
        };
        let own = self
            .engine
            .memory
            .own_descriptor(self.job().rank, base, local.len());
        if let Some((rarsrc, within)) = own {
            return Ok(Place::Direct(rarsrc, within + start));
        }
        if let Some(md) = *md {
            return Ok(Place::Direct(md, start));
        }
        if length <= self.job().chunk
            && let Some(chunk) = self.kernel().chunks.take()
        {
            return Ok(Place::Chunk(chunk));
        }
        self.engine
            .wait_for(operation, Awaits::Descriptor, |engine| {
                Ok(engine.kernel.descriptors.tickets.take(1).then_some(()))
            })?;
        // One descriptor over all of the local memory serves every piece. It is released when the
        // operation ends. SAFETY: the caller of `transfer` guarantees that the memory is valid
        // until the operation is synchronised. That is possible only after the last piece, at which
        // the descriptor is released.
        let bound = self
            .engine
            .wait_for(operation, Awaits::Descriptor, |engine| unsafe {
                match engine
                    .job()
                    .ni
                    .md_bind(base, local.len(), engine.kernel.queues.safe)
                {
                    Ok(bound) => Ok(Some(bound)),
                    Err(NiError::Exhausted { .. }) => Ok(None),
                    Err(error) => Err(error.into()),
                }
            })?;
        self.kernel().operations.set_md(op, bound);
        *md = Some(bound);
        Ok(Place::Direct(bound, start))
    }

    /// Submits one piece again and again until the network accepts it.
    ///
    /// # Safety
    /// Same as [`Calls::transfer`].
    #[expect(clippy::too_many_arguments, reason = "a piece needs all of these")]
    unsafe fn post_piece(
        self,
        operation: &'static str,
        remote: Remote,
        length: usize,
        local: &Local,
        start: usize,
        place: &Place,
        op: OpId,
    ) -> Result<()> {
        self.kernel().operations.add(op);
        let (md, local_offset) = match *place {
            Place::Direct(md, offset) => (md, offset),
            Place::Chunk(chunk) => (self.kernel().chunks.md, chunk as usize * self.job().chunk),
        };
        let Remote {
            target,
            match_bits,
            offset,
        } = remote;
        match *local {
            Local::Destination { base, .. } => {
                let role = match *place {
                    Place::Direct(..) => Role::Direct,
                    Place::Chunk(chunk) => {
                        // In bounds: the piece lies within the destination.
                        let destination = base.wrapping_add(start);
                        self.kernel().chunks.set_bounce(
                            chunk,
                            Bounce {
                                destination,
                                length,
                            },
                        );
                        Role::BouncedGet(chunk)
                    }
                };
                let get = Get {
                    md,
                    local_offset,
                    length,
                    target,
                    index: index::RAR,
                    match_bits,
                    remote_offset: offset as u64,
                    token: Token::new(role, Some(op)).bits(),
                };
                // SAFETY: the destination is a chunk that the operation holds, or memory that the
                // caller guarantees to be valid until the operation has been synchronised.
                self.engine
                    .wait_for(operation, Awaits::Room(target), |engine| unsafe {
                        Ok((engine.job().ni.get(&get)? == Submit::Posted).then_some(()))
                    })
            }
            Local::Source(_) | Local::Fill { .. } => {
                let role = match *place {
                    Place::Direct(..) => Role::Direct,
                    Place::Chunk(chunk) => {
                        let at = self.kernel().chunks.at(chunk);
                        // SAFETY: the chunk is held, and `length` is at most the size of a chunk.
                        // The caller guarantees that the source is valid.
                        unsafe {
                            match *local {
                                Local::Source(source) => {
                                    std::ptr::copy_nonoverlapping(
                                        source.base.add(start),
                                        at,
                                        length,
                                    );
                                }
                                Local::Fill { byte, .. } => std::ptr::write_bytes(at, byte, length),
                                Local::Destination { .. } => {}
                            }
                        }
                        Role::BouncedPut(chunk)
                    }
                };
                self.engine.messages().post_put(
                    operation,
                    &Put {
                        md,
                        local_offset,
                        length,
                        ack: Ack::Remote,
                        target,
                        index: index::RAR,
                        match_bits,
                        remote_offset: offset as u64,
                        hdr_data: 0,
                        token: Token::new(role, Some(op)).bits(),
                    },
                )
            }
        }
    }

    /// Waits for a transfer that was started without a group. This function is not inlined, so that
    /// calls that need not wait remain small.
    #[inline(never)]
    pub(crate) fn wait_transfer(self, operation: &'static str, started: Transfer) -> Result<()> {
        match started {
            Transfer::Started { op, .. } => self.wait_op(operation, op).map(drop),
            Transfer::NotStarted | Transfer::Member => Ok(()),
        }
    }

    /// Performs a put by messages and waits for it.
    ///
    /// # Safety
    /// The source must be valid and unchanged until this call returns.
    pub(crate) unsafe fn put_pieces_and_wait(
        self,
        operation: &'static str,
        target: Rank,
        offset: usize,
        source: Source,
    ) -> Result<()> {
        self.job()
            .check_context(operation, am::Operation::Request)?;
        // SAFETY: the caller guarantees that the source is valid until this call returns, and this
        // call waits for the put.
        let started = unsafe {
            self.transfer(
                operation,
                Remote::segment(target, offset),
                Local::Source(source),
                None,
                Blocking::Wait,
            )?
        };
        self.wait_transfer(operation, started)
    }

    /// Sends the data of a long to the target's RARAM. The operation ends once the source may be
    /// reused.
    ///
    /// # Safety
    /// The source must be valid and unchanged until the operation has ended.
    pub(crate) unsafe fn send_long_data(
        self,
        operation: &'static str,
        target: Rank,
        source: Source,
        remote_offset: u64,
        (match_bits, hdr_data): (u64, u64),
        group: Option<OpId>,
    ) -> Result<OpId> {
        let op = self.kernel().begin(operation, group, Some(target))?;
        let local = Local::Source(source);
        let place = self.place(operation, &local, 0, source.len, &mut None, op)?;
        self.kernel().operations.add(op);
        let (md, local_offset, role) = match place {
            Place::Direct(md, offset) => (md, offset, Role::Direct),
            Place::Chunk(chunk) => {
                // SAFETY: the chunk is held, the length fits in it (`place` ensures this), and the
                // caller guarantees that the source is valid.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        source.base,
                        self.kernel().chunks.at(chunk),
                        source.len,
                    )
                };
                (
                    self.kernel().chunks.md,
                    chunk as usize * self.job().chunk,
                    Role::BouncedPut(chunk),
                )
            }
        };
        let put = Put {
            md,
            local_offset,
            length: source.len,
            ack: Ack::Local,
            target,
            index: index::AM,
            match_bits,
            remote_offset,
            hdr_data,
            token: Token::new(role, Some(op)).bits(),
        };
        self.engine.messages().post_put(operation, &put)?;
        self.kernel().finish(op);
        Ok(op)
    }
}
