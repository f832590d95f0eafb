//! Handles the packets that a link receives.

use super::inbound::{Arrival, Budget};
use super::outbound::LossTrigger;
use super::{COMMAND, DATA, UdpLink, UnansweredProbe};
use crate::protocol::bundle::Bundle;
use crate::protocol::config::Config;
use crate::protocol::contract::{FragmentHandler, Nanos};
use crate::protocol::packet::{
    Acks, Data, FLAG_COMMAND, FLAG_DATA, FLAG_IMMEDIATE_ACK, Header, OVERHEAD, PROBE, PacketKind,
    Reader,
};
use crate::protocol::sequence;

/// The number of bytes of the longest packet that counts as a tiny probe.
const TINY_PROBE: usize = OVERHEAD + PROBE + 32;

/// The content of a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Whether the packet had a segment, whether or not the segment was new.
    pub(crate) segment: bool,
    /// Whether the packet had acknowledgements or a probe reply, so that more may be sent.
    pub(crate) news: bool,
}

impl UdpLink {
    /// Handles the body of a packet with a valid tag.
    ///
    /// # Errors
    /// Returns an error if the peer has violated the protocol.
    pub(crate) fn receive(
        &mut self,
        now: Nanos,
        header: Header,
        body: &[u8],
        config: &Config,
        budget: &mut Budget,
        handler: &mut impl FragmentHandler,
    ) -> Result<Contents, &'static str> {
        const SHORT: &str = "a packet too short for its content";
        self.counters.packets_received += 1;
        self.counters.bytes_received += (body.len() + OVERHEAD) as u64;
        self.liveness.on_received(now);
        let mut contents = Contents::default();
        let mut reader = Reader(body);
        if header.flags & (FLAG_COMMAND | FLAG_DATA) != 0 {
            let acks = Acks::read(header.flags, &mut reader).ok_or(SHORT)?;
            self.acknowledged(now, header.number, acks, config, handler)?;
            contents.news = true;
        }
        let channel = match header.kind {
            PacketKind::Nothing => return Ok(contents),
            PacketKind::Probe => {
                let stamp = reader.u64().ok_or(SHORT)?;
                let size = body.len() + OVERHEAD;
                self.unanswered_probes[usize::from(size > TINY_PROBE)] = Some(UnansweredProbe {
                    stamp,
                    size: size as u16,
                });
                return Ok(contents);
            }
            PacketKind::ProbeReply => {
                let (stamp, size) = (reader.u64().ok_or(SHORT)?, reader.u16().ok_or(SHORT)?);
                if let Some(elapsed) = now.checked_sub(stamp) {
                    self.rtt.sample(now, elapsed, 0);
                }
                let expects_answer = self.expects_answer();
                self.liveness
                    .on_answer(now, usize::from(size) >= config.packet, expects_answer);
                contents.news = true;
                return Ok(contents);
            }
            PacketKind::Bundle => COMMAND,
            PacketKind::Fragment | PacketKind::First | PacketKind::Chunk => DATA,
        };
        let low = reader.u24().ok_or(SHORT)?;
        contents.segment = true;
        self.active_at = now;
        let Some(sequence) = sequence::expand(low, self.inbound[channel].next()) else {
            self.counters.out_of_window += 1;
            self.ack_state.request_immediate();
            return Ok(contents);
        };
        match self.inbound[channel].classify(sequence) {
            Arrival::Duplicate => {
                self.counters.duplicates += 1;
                self.ack_state.request_immediate();
            }
            Arrival::Outside => {
                self.counters.out_of_window += 1;
                self.ack_state.request_immediate();
            }
            Arrival::Next | Arrival::Early => {
                let had_gaps = self.inbound[channel].has_gaps();
                if self.segment(channel, sequence, header.kind, reader.0, budget, handler)? {
                    self.counters.segments_received += 1;
                    self.ack_state
                        .on_segment(now, config.ack_delay, channel == DATA);
                    if had_gaps
                        || self.inbound[channel].has_gaps()
                        || header.flags & FLAG_IMMEDIATE_ACK != 0
                    {
                        self.ack_state.request_immediate();
                    }
                } else {
                    self.counters.no_room += 1;
                    self.ack_state.request_immediate();
                }
            }
        }
        Ok(contents)
    }

    fn acknowledged(
        &mut self,
        now: Nanos,
        number: u64,
        acks: Acks<'_>,
        config: &Config,
        handler: &mut impl FragmentHandler,
    ) -> Result<(), &'static str> {
        let is_newest = number >= self.credits_from;
        if is_newest {
            self.credits_from = number + 1;
        }
        let newest = sequence::expand(acks.newest, self.number).unwrap_or(0);
        let mut any = false;
        for (channel, ack) in acks.channels.into_iter().enumerate() {
            let Some(ack) = ack else { continue };
            let (outgoing, peer) = (&mut self.outgoing, self.peer);
            let progress = self.outbound[channel].acknowledge(
                now,
                ack,
                is_newest,
                config.window,
                newest,
                |content| {
                    if channel == DATA {
                        outgoing.acknowledged(content.at, peer, handler);
                    }
                },
            )?;
            if progress.segments > 0 {
                any = true;
                if let Some(elapsed) = progress.sample {
                    self.rtt.sample(now, elapsed, acks.delay);
                }
                let sample = progress.sample.map(|_| self.rtt.latest());
                let (segments, bytes) = (progress.segments, progress.bytes);
                self.congestion
                    .on_acknowledged(now, segments, bytes, sample, &self.rtt, config);
            }
            if channel == COMMAND
                && let Some(last) = progress.released
            {
                self.commands.release(
                    last.at
                        .wrapping_add(u32::from(last.length) - super::send::BUNDLE as u32),
                );
            }
        }
        if any {
            self.active_at = now;
            self.detect_lost(now);
            let expects_answer = self.expects_answer();
            self.liveness.on_progress(now, expects_answer);
        }
        Ok(())
    }

    /// Detects lost segments on both channels.
    pub(crate) fn detect_lost(&mut self, now: Nanos) {
        let (counters, congestion) = (&mut self.counters, &mut self.congestion);
        for outbound in &mut self.outbound {
            outbound.detect_lost(now, &self.rtt, |trigger| {
                congestion.on_lost();
                match trigger {
                    LossTrigger::PacketThreshold => counters.resent_packet_threshold += 1,
                    LossTrigger::TimeThreshold => counters.resent_time_threshold += 1,
                }
            });
        }
    }

    /// Returns whether the peer has to acknowledge something or give credits.
    pub(crate) fn expects_answer(&self) -> bool {
        self.outbound
            .iter()
            .any(|outbound| outbound.outstanding() > 0)
            || self.is_blocked()
    }

    /// Handles a segment received for the first time. Returns whether there was room for it.
    fn segment(
        &mut self,
        channel: usize,
        sequence: u64,
        kind: PacketKind,
        bytes: &[u8],
        budget: &mut Budget,
        handler: &mut impl FragmentHandler,
    ) -> Result<bool, &'static str> {
        if sequence == self.inbound[channel].delivered() {
            if self.deliver(channel, sequence, kind, bytes, handler)? {
                self.inbound[channel].mark(sequence);
                self.inbound[channel].deliver();
            } else {
                self.is_refused = true;
                return Ok(self.keep(channel, sequence, kind, bytes, budget));
            }
        } else {
            let placed =
                channel == DATA && self.place_early(sequence, Data::read(kind, bytes)?, handler)?;
            if !placed && !self.keep(channel, sequence, kind, bytes, budget) {
                return Ok(false);
            }
        }
        if self.inbound[channel].is_behind() && !self.is_refused {
            self.drain(channel, budget, handler)?;
        }
        Ok(true)
    }

    /// Buffers a segment until it can be delivered. Returns `false` if there is no room.
    fn keep(
        &mut self,
        channel: usize,
        sequence: u64,
        kind: PacketKind,
        bytes: &[u8],
        budget: &mut Budget,
    ) -> bool {
        let held = self.kept_bytes();
        let kept = self.inbound[channel].keep(sequence, kind, bytes, held, budget);
        if kept {
            self.inbound[channel].mark(sequence);
        }
        kept
    }

    /// Retries the delivery of segments for which the fragment handler had no room.
    pub(crate) fn retry(
        &mut self,
        budget: &mut Budget,
        handler: &mut impl FragmentHandler,
    ) -> Result<(), &'static str> {
        self.is_refused = false;
        self.drain(COMMAND, budget, handler)?;
        self.drain(DATA, budget, handler)
    }

    /// Delivers the buffered segments that are next in order.
    fn drain(
        &mut self,
        channel: usize,
        budget: &mut Budget,
        handler: &mut impl FragmentHandler,
    ) -> Result<(), &'static str> {
        while self.inbound[channel].is_behind() {
            let sequence = self.inbound[channel].delivered();
            if let Some(kept) = self.inbound[channel].take_kept(sequence, budget) {
                if !self.deliver(channel, sequence, kept.kind, &kept.bytes, handler)? {
                    self.inbound[channel].put_back(sequence, kept, budget);
                    self.is_refused = true;
                    return Ok(());
                }
            } else {
                self.pass(sequence, handler);
            }
            self.inbound[channel].deliver();
        }
        Ok(())
    }

    /// Delivers the next segment in order. Returns `false` if the fragment handler has no room.
    fn deliver(
        &mut self,
        channel: usize,
        sequence: u64,
        kind: PacketKind,
        bytes: &[u8],
        handler: &mut impl FragmentHandler,
    ) -> Result<bool, &'static str> {
        if channel == COMMAND {
            for (index, entry) in (0..).zip(Bundle::new(bytes)) {
                let (header, payload) = entry?;
                if index >= self.taken && !handler.fragment(self.peer, header, payload) {
                    self.taken = index;
                    return Ok(false);
                }
            }
            self.taken = 0;
            return Ok(true);
        }
        let segment = Data::read(kind, bytes)?;
        if let Data::Whole { header, payload } = segment {
            if self.assembly.target(sequence, segment)?.is_some() {
                return Err("a fragment inside another");
            }
            return Ok(handler.fragment(self.peer, header, payload));
        }
        if !self.place(sequence, segment, true, handler)? {
            return Ok(false);
        }
        self.pass(sequence, handler);
        Ok(true)
    }

    /// Places a segment of a larger fragment, even out of order. Returns `false` if the segment
    /// cannot be placed yet. `is_turn` says whether all segments before it have been delivered.
    fn place(
        &mut self,
        sequence: u64,
        segment: Data<'_>,
        is_turn: bool,
        handler: &mut impl FragmentHandler,
    ) -> Result<bool, &'static str> {
        let target = self.assembly.target(sequence, segment)?;
        match (target, segment) {
            (Some(target), Data::Chunk(bytes)) => {
                handler.place(target.place, target.offset, bytes);
                Ok(true)
            }
            (
                None,
                Data::First {
                    header,
                    length,
                    chunk,
                    bytes,
                },
            ) if is_turn || self.is_at_frontier(sequence) => {
                let Some(place) = handler.begin(self.peer, header, length as usize) else {
                    return Ok(false);
                };
                self.assembly
                    .begin(sequence, place, length, chunk, bytes.len());
                handler.place(place, 0, bytes);
                Ok(true)
            }
            (None, Data::Chunk(_)) if is_turn => Err("a chunk without a fragment"),
            _ => Ok(false),
        }
    }

    fn place_early(
        &mut self,
        sequence: u64,
        segment: Data<'_>,
        handler: &mut impl FragmentHandler,
    ) -> Result<bool, &'static str> {
        let placed = self.place(sequence, segment, false, handler)?;
        if placed {
            self.inbound[DATA].mark(sequence);
        }
        Ok(placed)
    }

    /// Returns whether all segments before this one belong to fragments that have been delivered or
    /// have begun.
    fn is_at_frontier(&self, sequence: u64) -> bool {
        self.assembly.frontier(self.inbound[DATA].delivered()) == sequence
    }

    /// Handles the turn of a segment of the data channel that has already been placed. If the
    /// segment completes its fragment, the fragment handler is notified.
    fn pass(&mut self, sequence: u64, handler: &mut impl FragmentHandler) {
        if let Some(place) = self.assembly.ends(sequence) {
            handler.end(place);
        }
    }
}
