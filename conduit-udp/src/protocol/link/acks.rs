//! Writes a link's acknowledgements.

use super::UdpLink;
use super::burst::Burst;
use crate::protocol::config::{Config, MIN_PACKET};
use crate::protocol::contract::{Nanos, Seal};
use crate::protocol::packet::{
    ACKS, ACKS_BEGIN, CHANNEL_ACK, FLAG_COMMAND, FLAG_DATA, OVERHEAD, PacketKind, Writer,
};
use crate::protocol::sequence;

/// The acknowledgements written to a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    pub(super) length: usize,
    pub(super) flags: u8,
    credits: u16,
    /// Whether the acknowledgements cover everything received.
    is_complete: bool,
}

impl UdpLink {
    /// Sends an acknowledgement in a separate packet, if one is still due.
    pub(crate) fn send_acks<S: Seal>(&mut self, burst: &mut Burst<'_, '_, S>, config: &Config) {
        let now = burst.now;
        if !self.ack_state.is_due(now) {
            return;
        }
        let full = if self.liveness.is_mtu_validated() {
            config.packet
        } else {
            MIN_PACKET
        };
        let credits = burst.credits;
        let acks = self.write_acks(now, credits, full - OVERHEAD - ACKS, burst.body());
        if self.ack_state.is_immediate() {
            self.counters.acks_immediate += 1;
        } else {
            self.counters.acks_delayed += 1;
        }
        self.ack_state.on_sent();
        self.advertised_credits = credits;
        burst.finish(self, config, PacketKind::Nothing, acks.flags, acks.length);
    }

    /// Records that acknowledgements were sent with a segment or probe reply.
    pub(super) fn on_acks_sent(&mut self, acks: Written) {
        if acks.flags != 0 {
            self.advertised_credits = acks.credits;
        }
        if acks.is_complete && self.ack_state.is_pending() {
            self.counters.acks_with_segment += 1;
            self.ack_state.on_sent();
        }
    }

    /// Writes acknowledgements of the two channels, with at most `room` bytes of bitmap words.
    pub(super) fn write_acks(
        &self,
        now: Nanos,
        credits: u16,
        mut room: usize,
        into: &mut [u8],
    ) -> Written {
        let mut written = Written {
            length: 0,
            flags: 0,
            credits,
            is_complete: true,
        };
        let delay = (self.ack_state.delay(now) / 1000).min(u64::from(u16::MAX)) as u16;
        for (inbound, flag) in self.inbound.iter().zip([FLAG_COMMAND, FLAG_DATA]) {
            if !inbound.is_used() {
                continue;
            }
            if written.flags == 0 {
                let mut writer = Writer::new(into);
                writer.bytes(&delay.to_le_bytes());
                writer.u24(sequence::low(self.replay.newest()));
                written.length = ACKS_BEGIN;
            }
            written.flags |= flag;
            let all = inbound.words();
            let words = all.min(room / 8);
            room -= words * 8;
            written.is_complete &= words == all;
            let mut writer = Writer::new(&mut into[written.length..]);
            writer.u24(sequence::low(inbound.next()));
            writer.bytes(&credits.to_le_bytes());
            writer.bytes(&[words as u8]);
            for index in 0..words {
                writer.bytes(&inbound.word(index).to_le_bytes());
            }
            written.length += CHANNEL_ACK + words * 8;
        }
        written
    }
}
