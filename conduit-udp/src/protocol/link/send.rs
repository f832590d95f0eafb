//! Writes the packets that a link sends.

use super::acks::Written;
use super::burst::{Burst, ZeroCopySource};
use super::outbound::Content;
use super::outgoing::Geometry;
use super::{COMMAND, DATA, UdpLink};
use crate::protocol::bundle::{END, ENTRY};
use crate::protocol::config::{Config, MIN_PACKET};
use crate::protocol::contract::{
    Fragment, FragmentHandler, MAX_HEADER, MAX_TINY, Nanos, Payload, Refused, Seal,
};
use crate::protocol::packet::{
    ACKS, CHUNK, FLAG_IMMEDIATE_ACK, OVERHEAD, PROBE, PROBE_REPLY, PacketKind, Writer,
};
use crate::protocol::sequence;

/// The number of bytes of a bundle's header.
pub(super) const BUNDLE: usize = 3;
/// The number of bytes of a packet that bitmap words of acknowledgements must leave to a bundle, so
/// that any tiny fragment fits.
const LEFT_TO_BUNDLE: usize = OVERHEAD + ACKS + BUNDLE + ENTRY + MAX_TINY;
/// The number of bytes of waiting tiny fragments above which full-sized packets are worthwhile.
const MANY_COMMANDS: usize = MIN_PACKET - OVERHEAD - ACKS - BUNDLE;

/// The smallest packet size with which each chunk is sent in a separate packet and without a copy.
const ZERO_COPY_PACKET: usize = 16 << 10;

/// The number of segments of the data channel after which the sender requests an immediate
/// acknowledgement at the latest.
const MAX_SINCE_REQUEST: u64 = 8;

const _: () = assert!(LEFT_TO_BUNDLE <= MIN_PACKET);

impl UdpLink {
    /// Queues a fragment.
    pub(crate) fn push(
        &mut self,
        now: Nanos,
        fragment: &Fragment<'_>,
        geometry: Geometry,
        config: &Config,
    ) -> Result<(), Refused> {
        let header = fragment.header;
        if header.len() > MAX_HEADER {
            return Err(Refused::TooLong);
        }
        self.active_at = now;
        match fragment.payload {
            Payload::Copied(pieces) => {
                let payload = pieces
                    .iter()
                    .fold(0usize, |sum, piece| sum.saturating_add(piece.len()));
                if payload > MAX_TINY - header.len() {
                    return Err(Refused::TooLong);
                }
                if !self
                    .commands
                    .fits(header.len() + payload, config.link_commands)
                {
                    return Err(Refused::Full);
                }
                self.commands.push(header, pieces, payload);
                if self.commands.waiting() > MANY_COMMANDS {
                    self.liveness.validate_mtu(now);
                }
            }
            Payload::Read { token, length } => {
                if self.abandoned || self.outgoing.held() >= config.link_fragments {
                    return Err(Refused::Full);
                }
                self.outgoing.push(geometry, header, token, length);
                self.liveness.validate_mtu(now);
            }
        }
        Ok(())
    }

    /// Returns whether tiny fragments may be sent now.
    pub(crate) fn commands_ready(&mut self, config: &Config) -> bool {
        if self.commands.waiting() == 0 || !self.outbound[COMMAND].is_open(config.window) {
            return false;
        }
        self.is_admitted(COMMAND)
    }

    /// Returns the time at which retransmissions or new data may be sent. Returns `None` if nothing
    /// waits or the windows are closed.
    pub(crate) fn data_at(&mut self, config: &Config) -> Option<Nanos> {
        let has_lost = (self.outbound[DATA].peek_lost().is_some()
            && (self.urgent > 0 || self.is_admitted(DATA)))
            || (self.outbound[COMMAND].peek_lost().is_some()
                && (self.urgent > 0 || self.is_admitted(COMMAND)));
        if has_lost && self.urgent > 0 {
            return Some(0);
        }
        (has_lost || self.data_ready(config)).then(|| self.congestion.paced_until())
    }

    /// Returns whether new segments of the data channel may be sent, apart from pacing.
    fn data_ready(&mut self, config: &Config) -> bool {
        if !self.outgoing.is_waiting()
            || !self.liveness.is_mtu_validated()
            || !self.outbound[DATA].is_open(config.window)
        {
            return false;
        }
        self.is_admitted(DATA)
    }

    /// Returns whether the congestion window admits another segment.
    fn is_admitted(&mut self, channel: usize) -> bool {
        let admits = u64::from(self.outbound[channel].in_flight()) < self.congestion.window();
        if !admits {
            self.congestion.note_cwnd_limited();
        }
        admits
    }

    /// Returns whether data wait for credits and no outstanding acknowledgement could bring
    /// credits.
    pub(crate) fn is_blocked(&self) -> bool {
        (self.commands.waiting() > 0 && self.outbound[COMMAND].is_starved())
            || (self.outgoing.is_waiting()
                && self.liveness.is_mtu_validated()
                && self.outbound[DATA].is_starved())
    }

    /// Returns whether probes or probe replies are to be sent.
    pub(crate) fn control_ready(&self) -> bool {
        self.liveness.wanted.any() || self.unanswered_probes.iter().any(Option::is_some)
    }

    /// Returns the time at which the link is due.
    pub(crate) fn due(&mut self, now: Nanos, config: &Config) -> Nanos {
        let mut at = self.liveness.due_at(config);
        if let Some(timeout) = self.timeout_at(config) {
            at = at.min(timeout);
        }
        if let Some(deadline) = self.ack_state.deadline() {
            at = at.min(deadline);
        }
        for outbound in &mut self.outbound {
            if let Some(late) = outbound.loss_time(&self.rtt) {
                at = at.min(late);
            }
        }
        if let Some(paced) = self.data_at(config) {
            at = at.min(paced);
        }
        if self.is_refused {
            at = at.min(now + config.min_timeout);
        }
        if let Some(idle) = self.idle_at(now, config) {
            at = at.min(idle);
        }
        at
    }

    /// Returns the time at which the probe time-out expires, if an answer is expected. Each channel
    /// has its own time-out, so that a loss on one channel does not wait until the other has no
    /// traffic.
    pub(crate) fn timeout_at(&self, config: &Config) -> Option<Nanos> {
        let timeout = self.probe_timeout(config);
        let channels = self.outbound.iter();
        channels
            .filter_map(|outbound| outbound.timeout_at(timeout))
            .min()
            .or_else(|| self.liveness.timeout_at(self.answer_time(config), config))
    }

    /// Returns the time that an answer may take.
    fn answer_time(&self, config: &Config) -> Nanos {
        self.rtt.timeout() + config.ack_delay
    }

    fn probe_timeout(&self, config: &Config) -> Nanos {
        self.liveness.timeout(self.answer_time(config), config)
    }

    /// Handles expired probe time-outs by sending the first segment of each affected channel again.
    pub(crate) fn on_timeout(&mut self, now: Nanos, config: &Config) {
        let timeout = self.probe_timeout(config);
        self.urgent = 0;
        for outbound in &mut self.outbound {
            let is_due = outbound.timeout_at(timeout).is_some_and(|at| at <= now);
            if is_due && outbound.on_timeout(now) {
                self.urgent += 1;
                self.counters.resent_pto += 1;
            }
        }
        let has_segments = self
            .outbound
            .iter()
            .any(|outbound| outbound.outstanding() > 0);
        if self
            .liveness
            .on_timeout(now, has_segments)
            .is_persistent_congestion
        {
            self.congestion.on_persistent_congestion(config);
        }
    }

    /// Handles the keep-alive time without any activity on the link.
    pub(crate) fn on_idle(&mut self) {
        self.shrink();
    }

    /// Sends bundles of tiny fragments.
    pub(crate) fn send_commands<S: Seal>(&mut self, burst: &mut Burst<'_, '_, S>, config: &Config) {
        let full = if self.liveness.is_mtu_validated() {
            config.packet
        } else {
            MIN_PACKET
        };
        let now = burst.now;
        while self.commands_ready(config) {
            let limit = if burst.packets == 0 {
                full
            } else {
                burst.segment
            };
            if !burst.admits(limit) {
                break;
            }
            let credits = burst.credits;
            let words = if burst.packets == 0 {
                limit - LEFT_TO_BUNDLE
            } else {
                0
            };
            let body = burst.body();
            let acks = self.write_acks(now, credits, words, body);
            // The bundle is limited so that a retransmission of it can carry acknowledgements of
            // both channels.
            let capacity = limit.saturating_sub(OVERHEAD + acks.length.max(ACKS) + BUNDLE);
            let (at, length) = self.commands.bundle(capacity);
            if length == 0 {
                break;
            }
            let content = Content {
                at,
                index: 0,
                length: (BUNDLE + length) as u16,
            };
            let sequence = self.outbound[COMMAND].send(now, self.number, content);
            let mut writer = Writer::new(&mut body[acks.length..]);
            writer.u24(sequence::low(sequence));
            self.commands.copy(at, writer.space(length));
            let mut body_length = acks.length + BUNDLE + length;
            // Pad the packet to the length of the others, if more packets follow and little is
            // wasted.
            let spare = limit - OVERHEAD - body_length;
            if burst.packets > 0 && spare > 0 && spare < limit / 4 && self.commands.waiting() > 0 {
                burst.body()[body_length..][..spare].fill(END);
                body_length += spare;
            }
            self.counters.segments_sent += 1;
            self.on_acks_sent(acks);
            if !burst.finish(self, config, PacketKind::Bundle, acks.flags, body_length) {
                break;
            }
        }
        if burst.packets > 0 {
            self.liveness.on_sent(now);
        }
    }

    /// Sends retransmissions, and new segments of the data channel.
    pub(crate) fn send_data<S: Seal>(
        &mut self,
        burst: &mut Burst<'_, '_, S>,
        geometry: Geometry,
        config: &Config,
        handler: &mut impl FragmentHandler,
    ) {
        let now = burst.now;
        let mut block = [0; ACKS];
        let acks = self.write_acks(now, burst.credits, 0, &mut block);
        let mut urgent_only = now < self.congestion.paced_until();
        // The sender requests several acknowledgements per window, so that it does not use up its
        // window while it waits for one.
        let window = self.congestion.window() / config.packet as u64;
        let window = window.min(self.outbound[DATA].window(config.window).into());
        let request_after = (window / 4).clamp(1, MAX_SINCE_REQUEST);
        let may_zero_copy = config.packet >= ZERO_COPY_PACKET;
        loop {
            // Retransmissions go first.
            let mut lost = None;
            for channel in [DATA, COMMAND] {
                if lost.is_none()
                    && let Some((sequence, content)) = self.outbound[channel].peek_lost()
                    && (self.urgent > 0 || (!urgent_only && self.is_admitted(channel)))
                {
                    lost = Some((channel, sequence, content));
                }
            }
            let is_new = lost.is_none();
            let (channel, sequence, content, is_last) =
                if let Some((channel, sequence, content)) = lost {
                    if !burst.admits(OVERHEAD + acks.length + usize::from(content.length)) {
                        break;
                    }
                    self.outbound[channel].resend(now, self.number, sequence);
                    self.urgent = self.urgent.saturating_sub(1);
                    (channel, sequence, content, false)
                } else {
                    if urgent_only || !self.data_ready(config) {
                        break;
                    }
                    let Some(piece) = self.outgoing.peek(geometry) else {
                        break;
                    };
                    if !burst.admits(OVERHEAD + acks.length + usize::from(piece.length)) {
                        break;
                    }
                    self.outgoing.advance(piece);
                    let content = Content {
                        at: piece.fragment,
                        index: piece.index,
                        length: piece.length,
                    };
                    let sequence = self.outbound[DATA].send(now, self.number, content);
                    self.counters.segments_sent += 1;
                    let is_last = piece.last
                        && !self.outgoing.is_waiting()
                        && self
                            .outgoing
                            .token(piece.fragment)
                            .is_some_and(|token| handler.is_awaited(self.peer, token));
                    (DATA, sequence, content, is_last)
                };
            self.since_request += 1;
            let requests_ack = is_last || u64::from(self.since_request) >= request_after;
            let flag = if requests_ack { FLAG_IMMEDIATE_ACK } else { 0 };
            if requests_ack {
                self.since_request = 0;
            }
            let body = burst.body();
            body[..acks.length].copy_from_slice(&block[..acks.length]);
            // The bytes of retransmissions are copied, so that the tag is valid even if the
            // fragment handler changes the bytes meanwhile, which it must not do.
            if is_new
                && may_zero_copy
                && self.send_zero_copy(
                    burst,
                    geometry,
                    config,
                    handler,
                    (content, sequence),
                    acks,
                    flag,
                )
            {
                self.on_acks_sent(acks);
                break;
            }
            let body = burst.body();
            let segment = &mut body[acks.length..][..content.length.into()];
            let kind = if channel == DATA {
                let piece = (content.at, content.index);
                self.outgoing
                    .write(geometry, piece, sequence, segment, self.peer, handler)
            } else {
                let mut writer = Writer::new(segment);
                writer.u24(sequence::low(sequence));
                self.commands.copy(
                    content.at,
                    writer.space(usize::from(content.length) - BUNDLE),
                );
                PacketKind::Bundle
            };
            if burst.packets == 0 {
                self.on_acks_sent(acks);
            }
            let body = acks.length + usize::from(content.length);
            if !burst.finish(self, config, kind, acks.flags | flag, body) {
                break;
            }
            urgent_only &= self.urgent > 0;
        }
        if burst.packets > 0 {
            self.liveness.on_sent(now);
            self.congestion.on_burst(now, burst.bytes(), &self.rtt);
        }
    }

    /// Sends a new chunk in a separate packet without copying its payload. Returns `false`, without
    /// any effect, if that is not possible.
    #[allow(clippy::too_many_arguments)]
    fn send_zero_copy<S: Seal>(
        &mut self,
        burst: &mut Burst<'_, '_, S>,
        geometry: Geometry,
        config: &Config,
        handler: &impl FragmentHandler,
        (content, sequence): (Content, u64),
        acks: Written,
        flag: u8,
    ) -> bool {
        if burst.packets > 0 {
            return false;
        }
        let piece = (content.at, content.index);
        let length = usize::from(content.length);
        let Some((token, offset)) = self.outgoing.chunk(geometry, piece) else {
            return false;
        };
        let length = length - CHUNK;
        let Some(bytes) = handler.source(self.peer, token, offset, length) else {
            return false;
        };
        let mut writer = Writer::new(&mut burst.body()[acks.length..]);
        writer.u24(sequence::low(sequence));
        let source = ZeroCopySource {
            token,
            offset,
            length,
            at: 0,
        };
        let kind = (PacketKind::Chunk, acks.flags | flag);
        burst.finish_zero_copy(self, config, kind, acks.length + CHUNK, source, bytes)
    }

    /// Sends one probe or one probe reply.
    pub(crate) fn send_control<S: Seal>(&mut self, burst: &mut Burst<'_, '_, S>, config: &Config) {
        let now = burst.now;
        if let Some(probe) = self.unanswered_probes.iter_mut().find_map(Option::take) {
            // A peer without credits sends probes to find out whether there are credits now.
            let credits = burst.credits;
            let acks = self.write_acks(now, credits, 0, burst.body());
            let mut writer = Writer::new(&mut burst.body()[acks.length..]);
            writer.bytes(&probe.stamp.to_le_bytes());
            writer.bytes(&probe.size.to_le_bytes());
            self.on_acks_sent(acks);
            burst.finish(
                self,
                config,
                PacketKind::ProbeReply,
                acks.flags,
                acks.length + PROBE_REPLY,
            );
            return;
        }
        let wanted = &mut self.liveness.wanted;
        let length = if std::mem::take(&mut wanted.tiny) {
            PROBE
        } else if std::mem::take(&mut wanted.full) {
            config.packet - OVERHEAD
        } else {
            return;
        };
        let body = &mut burst.body()[..length];
        body[..PROBE].copy_from_slice(&now.to_le_bytes());
        body[PROBE..].fill(0);
        burst.finish(self, config, PacketKind::Probe, 0, length);
        self.counters.probes += 1;
        self.liveness.on_sent(now);
    }
}
