//! Sends frames on connections.

use conduit_core::ni::Rank;
use conduit_portals::transport::fragment::{Fragment, FragmentHandler, Payload, Refused};
use libfabric_sys::{FI_ADDR_UNSPEC, fi_inject, fi_send};
use seal::TAG;

use crate::wire::frame::{Frame, FrameKind, HEADER, LONG_HEADER};
use crate::wire::link::Sending;
use crate::wire::scope::Scope;
use crate::wire::send::{NotSent, result_of, seal_frame};
use crate::wire::slots::Operation;
use crate::wire::{OfiEndpoint, SMALL};

use super::end::{End, Stage, Taken};
use super::{CONNECTED, Connected};

/// The maximum number of fragments queued for one peer.
const QUEUED: usize = 256;

/// Seals a frame if the job seals frames. A frame's number may be reused if no frame with this
/// number has been passed to the library.
fn seal(wire: &mut OfiEndpoint, end: &End, frame: &mut [u8]) {
    if let Some(seal) = &mut wire.seal {
        seal_frame(&mut **seal, end.peer, CONNECTED | end.next_out, frame);
    }
}

impl Connected {
    /// Accepts a fragment for a connection.
    #[inline]
    pub(super) fn send_by(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        // The wire checks that the peer is alive.
        let link = self.wire.open(peer)?;
        link.liveness.sent();
        let is_abandoned = link.abandoned;
        let place = self.place(peer).ok_or(Refused::Full)?;
        let Some(end) = &mut self.ends[place] else {
            return Err(Refused::Full);
        };
        match end.stage {
            Stage::Up => {}
            Stage::Gone | Stage::Failed => {
                self.lose(peer);
                return Err(Refused::Dead);
            }
            Stage::Expected | Stage::Asked(_) | Stage::Accepted => return Err(Refused::Full),
        }
        match fragment.payload {
            Payload::Copied(pieces) => {
                let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
                if fragment.header.len() + bytes > SMALL - HEADER - TAG {
                    return Err(Refused::TooLong);
                }
                if end.credit[0] == 0 {
                    return Err(Refused::Full);
                }
                let mut frame = [0; SMALL];
                let mut length = HEADER;
                for piece in std::iter::once(&fragment.header).chain(pieces) {
                    frame[length..length + piece.len()].copy_from_slice(piece);
                    length += piece.len();
                }
                // The cast is lossless, because a header has at most `MAX_HEADER` bytes.
                let header = fragment.header.len() as u8;
                self.send_small(place, FrameKind::Tiny, header, 0, &mut frame, length)?;
                if let Some(end) = &mut self.ends[place] {
                    end.credit[0] -= 1;
                    end.left[0] += 1;
                }
            }
            Payload::Read { token, length } => {
                let sending = Sending::new(token, length as usize, fragment.header);
                let sending = sending.ok_or(Refused::TooLong)?;
                if is_abandoned || end.queue.len() >= QUEUED {
                    return Err(Refused::Full);
                }
                end.queue.push_back(sending);
                end.left[1] += 1;
            }
        }
        Ok(())
    }

    /// Sends a frame that is complete except for its own header and its tag.
    pub(super) fn send_small(
        &mut self,
        place: usize,
        kind: FrameKind,
        header: u8,
        bits: u64,
        bytes: &mut [u8; SMALL],
        length: usize,
    ) -> Result<(), Refused> {
        let whole = length + self.wire.tag;
        self.own_frame(place, kind, header, bits).write(bytes);
        if let Some(end) = &self.ends[place] {
            seal(&mut self.wire, end, &mut bytes[..whole]);
        }
        let sent = self.post_bytes(place, &bytes[..whole]);
        self.is_sent(place, sent)
    }

    fn own_frame(&self, place: usize, kind: FrameKind, header: u8, bits: u64) -> Frame {
        let (rank, job) = self.wire.scope.names(&());
        let number = self.ends[place].as_ref().map_or(0, |end| end.next_out);
        Frame {
            kind,
            header,
            // The cast keeps the lower bits, which are the ones transmitted.
            number: number as u16,
            rank,
            job,
            length: bits,
        }
    }

    /// Evaluates the library's result for a frame, and counts the frame if it was sent.
    fn is_sent(&mut self, place: usize, sent: Result<(), NotSent>) -> Result<(), Refused> {
        match sent {
            Ok(()) => {
                self.counters.frames += 1;
                if let Some(end) = &mut self.ends[place] {
                    end.next_out += 1;
                }
                Ok(())
            }
            Err(NotSent::Again) => Err(Refused::Full),
            Err(NotSent::Failed(..)) => {
                self.over(place);
                Err(Refused::Full)
            }
        }
    }

    fn post_bytes(&mut self, place: usize, bytes: &[u8]) -> Result<(), NotSent> {
        let ep = self.ends[place].as_ref().and_then(|end| end.ep);
        let ep = ep.ok_or(NotSent::Again)?;
        if bytes.len() <= self.inject {
            // SAFETY: the endpoint is open, and the library copies the bytes during the call.
            let result =
                unsafe { fi_inject(ep, bytes.as_ptr().cast(), bytes.len(), FI_ADDR_UNSPEC) };
            return result_of("fi_inject", result);
        }
        let buffer = self.small.take().ok_or(NotSent::Again)?;
        self.small.bytes(buffer)[..bytes.len()].copy_from_slice(bytes);
        self.post_buffer(place, false, buffer, bytes.len())
    }

    /// Sends a buffer, which is freed when the library completes it, or at once if the library
    /// refuses it.
    fn post_buffer(
        &mut self,
        place: usize,
        large: bool,
        buffer: u32,
        length: usize,
    ) -> Result<(), NotSent> {
        let operation = Operation::Frame {
            // The cast is lossless, because there are few places.
            peer: place as u32,
            large,
            buffer,
        };
        let ep = self.ends[place].as_ref().and_then(|end| end.ep);
        let taken = self.slots.take(operation);
        let buffers = if large {
            &mut self.large
        } else {
            &mut self.small
        };
        let sent = match (ep, taken) {
            (Some(ep), Some((slot, context))) => {
                // SAFETY: the endpoint is open. The library uses the buffer until the completion,
                // or until the endpoint is closed, and the pool outlives the endpoint.
                let result = unsafe {
                    fi_send(
                        ep,
                        buffers.place(buffer).cast(),
                        length,
                        buffers.descriptor,
                        FI_ADDR_UNSPEC,
                        context,
                    )
                };
                result_of("fi_send", result).inspect_err(|_| self.slots.give(slot))
            }
            (None, Some((slot, _))) => {
                self.slots.give(slot);
                Err(NotSent::Again)
            }
            (_, None) => Err(NotSent::Again),
        };
        match (&sent, &mut self.ends[place]) {
            (Ok(()), Some(end)) => end.pending += 1,
            _ => buffers.give(buffer),
        }
        sent
    }

    /// Sends pending reports and requests for reports as far as there is room.
    pub(super) fn say(&mut self, place: usize) {
        let Some(end) = &self.ends[place] else {
            return;
        };
        let (owed, is_due, to_ask) = (end.owed, end.owed.is_due(end.is_asked), end.to_ask);
        if end.stage != Stage::Up || !is_due && !to_ask {
            return;
        }
        let mut bytes = [0; SMALL];
        if is_due {
            let bits = owed.encode();
            if self
                .send_small(place, FrameKind::Taken, 0, bits, &mut bytes, LONG_HEADER)
                .is_ok()
                && let Some(end) = &mut self.ends[place]
            {
                end.owed = Taken::default();
            }
        }
        if to_ask
            && self
                .send_small(place, FrameKind::Ask, 0, 0, &mut bytes, HEADER)
                .is_ok()
            && let Some(end) = &mut self.ends[place]
        {
            end.to_ask = false;
        }
    }

    /// Sends frames of an end's queue as far as there are credits and room.
    pub(super) fn send_queued_by(&mut self, place: usize, handler: &mut impl FragmentHandler) {
        while let Some(end) = &mut self.ends[place]
            && end.stage == Stage::Up
            && end.credit[1] > 0
            && let Some(sending) = end.queue.front()
        {
            let (peer, token) = (end.peer, sending.token);
            let (next, length) = (sending.next, sending.length);
            let left = length - next;
            let header = match next {
                0 => sending.header(),
                _ => &[],
            };
            let kind = match next {
                0 if HEADER + header.len() + left + self.wire.tag <= self.frame => FrameKind::Whole,
                0 => FrameKind::First,
                _ => FrameKind::Chunk,
            };
            let begin = kind.header() + header.len();
            let bytes = left.min(self.frame - begin - self.wire.tag);
            let whole = begin + bytes + self.wire.tag;
            let Some(buffer) = self.large.take() else {
                return;
            };
            // The cast is lossless, because a header has at most `MAX_HEADER` bytes.
            let header_length = header.len() as u8;
            let memory = &mut self.large.bytes(buffer)[..whole];
            memory[kind.header()..begin].copy_from_slice(header);
            handler.read(peer, token, next, &mut memory[begin..begin + bytes]);
            let own = self.own_frame(place, kind, header_length, length as u64);
            let memory = &mut self.large.bytes(buffer)[..whole];
            own.write(memory);
            if let Some(end) = &self.ends[place] {
                seal(&mut self.wire, end, memory);
            }
            let sent = self.post_buffer(place, true, buffer, whole);
            if self.is_sent(place, sent).is_err() {
                return;
            }
            if let Some(link) = self.wire.links.get(peer) {
                link.liveness.sent();
            }
            let Some(end) = &mut self.ends[place] else {
                return;
            };
            end.credit[1] -= 1;
            if let Some(sending) = end.queue.front_mut() {
                sending.next += bytes;
            }
            if next + bytes == length {
                end.queue.pop_front();
                handler.sent(peer, token);
            }
        }
    }
}
