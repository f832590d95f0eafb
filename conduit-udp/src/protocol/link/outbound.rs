//! The sender's side of a channel, which manages the send window, acknowledgements, and loss
//! detection (RFC 9002, 6.1).
//!
//! A segment is in one of four states. An unused segment has no slot. A sent segment has a slot,
//! and the link's timer runs. An acknowledged segment frees its slot once all segments before it
//! have been acknowledged, too. A lost segment is marked for retransmission, and is sent again.

use crate::protocol::config::MAX_WINDOW;
use crate::protocol::contract::Nanos;
use crate::protocol::packet::Ack;
use crate::protocol::rtt::RttEstimator;
use crate::protocol::sequence;

/// The number of slots of the ring at first use.
const FIRST_SIZE: usize = 8;
/// The packet threshold (RFC 9002, 6.1.1: `kPacketThreshold`). A transmission is lost if one at
/// least this number of transmissions later is acknowledged.
const PACKET_THRESHOLD: u64 = 3;
const WORDS: usize = MAX_WINDOW as usize / 64;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum SegmentState {
    #[default]
    Sent,
    Lost,
    Acknowledged,
}

/// The content of a segment, which suffices to write the segment again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// The position of the bundle or the number of the fragment.
    pub(crate) at: u32,
    /// The index of the segment in the fragment.
    pub(crate) index: u32,
    /// The length in bytes.
    pub(crate) length: u16,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    sent_at: Nanos,
    /// The low bits of the log position of the segment's last transmission.
    order: u32,
    /// The low bits of the number of the packet in which the segment was last sent.
    number: u32,
    at: u32,
    index: u32,
    length: u16,
    state: SegmentState,
    /// The number of transmissions, at most 255.
    sends: u8,
}

impl Slot {
    fn content(&self) -> Content {
        Content {
            at: self.at,
            index: self.index,
            length: self.length,
        }
    }
}

/// The rule by which a segment was declared lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LossTrigger {
    /// The packet threshold: a segment sent at least three transmissions later has been
    /// acknowledged.
    PacketThreshold,
    /// The time threshold: a segment sent later has been acknowledged, and enough time has passed.
    TimeThreshold,
}

/// The effect of an acknowledgement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The number of segments newly acknowledged.
    pub(crate) segments: u32,
    /// The number of bytes in the segments newly acknowledged.
    pub(crate) bytes: u32,
    /// The RTT sample, which is the time since the newest of these segments was sent. There is none
    /// if that segment was sent more than once (Karn's algorithm).
    pub(crate) sample: Option<Nanos>,
    /// The last segment of the acknowledged prefix, if the prefix has grown.
    pub(crate) released: Option<Content>,
}

/// Bitmaps of the segments from the first unacknowledged one on, by number modulo the window.
#[derive(Debug)]
struct Marks {
    acknowledged: [u64; WORDS],
    lost: [u64; WORDS],
}

impl Marks {
    #[cold]
    fn new() -> Box<Self> {
        Box::new(Self {
            acknowledged: [0; WORDS],
            lost: [0; WORDS],
        })
    }
}

/// Returns the word and bit of a segment.
fn place(sequence: u64) -> (usize, u64) {
    ((sequence / 64) as usize % WORDS, 1 << (sequence % 64))
}

/// The sender's side of a channel.
#[derive(Debug)]
pub(crate) struct Outbound {
    /// The number before which all segments have been acknowledged.
    base: u64,
    /// The number of the next new segment.
    next: u64,
    /// The number before which the peer has room for all segments.
    limit: u64,
    /// The slots, indexed by sequence number modulo the number of slots, which is a power of two.
    slots: Box<[Slot]>,
    /// The log of transmissions in their order. Each entry holds the low bits of a sequence number.
    /// The log is a ring whose length is a power of two.
    log: Box<[u32]>,
    /// The log position before which all transmissions are settled. A transmission is settled if it
    /// was acknowledged or lost, or was followed by a retransmission.
    log_front: u64,
    log_next: u64,
    /// One more than the log position of the newest acknowledged transmission, or 0 if there is
    /// none.
    newest: u64,
    /// The bitmaps of segments, which are allocated when needed.
    marks: Option<Box<Marks>>,
    /// The number of segments marked as lost.
    lost: u32,
    /// The number of bytes sent, not acknowledged and not lost.
    in_flight: u32,
    /// The start of the probe time-out. This is the latest of the times at which the first
    /// outstanding segment was last sent, a segment was acknowledged, or a time-out expired.
    timed_from: Nanos,
}

impl Outbound {
    pub(crate) fn new(first: u64, initial_window: u32) -> Self {
        Self {
            base: first,
            next: first,
            limit: first + u64::from(initial_window),
            slots: Box::default(),
            log: Box::default(),
            log_front: 0,
            log_next: 0,
            newest: 0,
            marks: None,
            lost: 0,
            in_flight: 0,
            timed_from: 0,
        }
    }

    /// Returns the number of the next new segment.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns whether the window and the credits allow another new segment.
    pub(crate) fn is_open(&self, window: u32) -> bool {
        self.next < self.limit && self.next - self.base < u64::from(window)
    }

    /// Returns the number of segments that may be outstanding according to the window and the
    /// credits.
    pub(crate) fn window(&self, window: u32) -> u32 {
        (self.limit.saturating_sub(self.base).min(window.into())) as u32
    }

    /// Returns whether nothing is outstanding and the peer has granted no credits.
    pub(crate) fn is_starved(&self) -> bool {
        self.base == self.next && self.next >= self.limit
    }

    /// Returns the number of segments sent and not acknowledged.
    pub(crate) fn outstanding(&self) -> u32 {
        (self.next - self.base) as u32
    }

    /// Returns the number of new segments that the peer's credits allow.
    pub(crate) fn credits(&self) -> u32 {
        self.limit.saturating_sub(self.next) as u32
    }

    /// Returns the number of bytes sent, not acknowledged and not lost.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the time at which a probe time-out of `time` expires, if a segment is outstanding.
    pub(crate) fn timeout_at(&self, time: Nanos) -> Option<Nanos> {
        (self.base < self.next).then(|| self.timed_from.saturating_add(time))
    }

    /// Records that a new segment is sent in packet `number`. Returns its sequence number.
    pub(crate) fn send(&mut self, now: Nanos, number: u64, content: Content) -> u64 {
        let sequence = self.next;
        if (self.next - self.base) as usize == self.slots.len() {
            self.grow_slots();
        }
        if self.base == self.next {
            self.timed_from = now;
        }
        self.next += 1;
        let order = self.log(sequence);
        let slot = self.slot_mut(sequence);
        *slot = Slot {
            sent_at: now,
            order,
            number: number as u32,
            at: content.at,
            index: content.index,
            length: content.length,
            state: SegmentState::Sent,
            sends: 1,
        };
        self.in_flight += u32::from(content.length);
        sequence
    }

    /// Returns the first lost segment. It is retransmitted first, because the peer cannot deliver
    /// any segment after it.
    pub(crate) fn peek_lost(&self) -> Option<(u64, Content)> {
        if self.lost == 0 {
            return None;
        }
        let marks = self.marks.as_ref()?;
        // The window's first and last word are stored in the same place, so bits of the other word
        // are cleared.
        let first = self.base & !63;
        for begin in (first..self.next).step_by(64) {
            let mut word = marks.lost[place(begin).0];
            if begin < self.base {
                word &= u64::MAX << (self.base - begin);
            }
            if word != 0 {
                let sequence = begin + u64::from(word.trailing_zeros());
                return Some((sequence, self.slot(sequence).content()));
            }
        }
        None
    }

    /// Records that the segment returned by [`peek_lost`](Self::peek_lost) is sent again in packet
    /// `number`.
    pub(crate) fn resend(&mut self, now: Nanos, number: u64, sequence: u64) {
        self.unmark_lost(sequence);
        if sequence == self.base {
            self.timed_from = now;
        }
        let order = self.log(sequence);
        let slot = self.slot_mut(sequence);
        slot.sent_at = now;
        slot.order = order;
        slot.number = number as u32;
        slot.state = SegmentState::Sent;
        slot.sends = slot.sends.saturating_add(1);
        let length = slot.length;
        self.in_flight += u32::from(length);
    }

    /// Handles an acknowledgement. Calls `each` for every newly acknowledged segment. Takes credits
    /// only from the newest acknowledgement (`is_newest`). `newest_packet` is the highest packet
    /// number that the peer had received.
    ///
    /// # Errors
    /// Returns an error if the acknowledgement covers segments that were not sent.
    pub(crate) fn acknowledge(
        &mut self,
        now: Nanos,
        ack: Ack<'_>,
        is_newest: bool,
        window: u32,
        newest_packet: u64,
        mut each: impl FnMut(Content),
    ) -> Result<Progress, &'static str> {
        const UNSENT: &str = "an acknowledgement of segments that were not sent";
        let Some(next) = sequence::expand(ack.next, self.base) else {
            return Err(UNSENT);
        };
        if next > self.next {
            return Err(UNSENT);
        }
        let mut progress = Progress::default();
        // The log position (plus one), the time and the number of transmissions of the newest
        // segment that this acknowledgement covers.
        let mut newest = (0, 0, 0);
        while self.base < next {
            let sequence = self.base;
            self.base += 1;
            let slot = *self.slot(sequence);
            progress.released = Some(slot.content());
            if slot.state == SegmentState::Acknowledged {
                self.clear_bit(sequence);
            } else {
                self.take(sequence, slot, newest_packet, &mut progress, &mut newest);
                each(slot.content());
            }
        }
        if ack.words().len() > 0 {
            let first = next & !63;
            for (index, word) in ack.words().enumerate() {
                let begin = first + index as u64 * 64;
                let mut bits = word;
                if begin + 64 <= self.base {
                    continue;
                }
                if begin < self.base {
                    bits &= u64::MAX << (self.base - begin);
                }
                if bits == 0 {
                    continue;
                }
                if begin + 63 - u64::from(bits.leading_zeros()) >= self.next {
                    return Err(UNSENT);
                }
                let marks = self.marks.get_or_insert_with(Marks::new);
                let place = &mut marks.acknowledged[place(begin).0];
                bits &= !*place;
                *place |= bits;
                while bits != 0 {
                    let sequence = begin + u64::from(bits.trailing_zeros());
                    bits &= bits - 1;
                    let slot = *self.slot(sequence);
                    self.take(sequence, slot, newest_packet, &mut progress, &mut newest);
                    self.slot_mut(sequence).state = SegmentState::Acknowledged;
                    each(slot.content());
                }
            }
            // The acknowledgement of an earlier packet may already have covered the first missing
            // segment.
            while self.base < self.next && self.slot(self.base).state == SegmentState::Acknowledged
            {
                let sequence = self.base;
                progress.released = Some(self.slot(sequence).content());
                self.base += 1;
                self.clear_bit(sequence);
            }
        }
        if is_newest {
            self.limit = next + u64::from(ack.credits).min(u64::from(window));
        }
        let (order, sent_at, sends) = newest;
        let elapsed = now.saturating_sub(sent_at);
        if sends == 1 {
            progress.sample = Some(elapsed);
        }
        self.newest = self.newest.max(order);
        if progress.segments > 0 {
            self.timed_from = now;
        }
        Ok(progress)
    }

    /// Marks segments as lost by packet or time threshold. Calls `each` for every such segment.
    pub(crate) fn detect_lost(
        &mut self,
        now: Nanos,
        rtt: &RttEstimator,
        mut each: impl FnMut(LossTrigger),
    ) {
        while self.skip_settled() && self.log_front + 1 < self.newest {
            let sequence = self.front_sequence();
            let trigger = if self.newest - 1 - self.log_front >= PACKET_THRESHOLD {
                LossTrigger::PacketThreshold
            } else if now >= self.slot(sequence).sent_at + rtt.loss_delay() {
                LossTrigger::TimeThreshold
            } else {
                break;
            };
            self.lose(sequence);
            each(trigger);
        }
    }

    /// Returns the time at which [`detect_lost`](Self::detect_lost) will find a loss by time
    /// threshold (`loss_time` of RFC 9002, A.3).
    pub(crate) fn loss_time(&mut self, rtt: &RttEstimator) -> Option<Nanos> {
        if self.skip_settled() && self.log_front + 1 < self.newest {
            Some(self.slot(self.front_sequence()).sent_at + rtt.loss_delay())
        } else {
            None
        }
    }

    /// Handles an expired probe time-out. Marks the first unacknowledged segment for
    /// retransmission, because the peer may have no room for any other. Returns whether there is
    /// such a segment.
    pub(crate) fn on_timeout(&mut self, now: Nanos) -> bool {
        if self.base == self.next {
            return false;
        }
        self.timed_from = now;
        if self.slot(self.base).state == SegmentState::Sent {
            self.lose(self.base);
        }
        true
    }

    /// Drops all outstanding segments, as if they had been acknowledged.
    pub(crate) fn forget(&mut self) {
        self.base = self.next;
        self.lost = 0;
        self.in_flight = 0;
        self.log_front = self.log_next;
        self.shrink();
    }

    /// Frees memory if nothing is outstanding.
    pub(crate) fn shrink(&mut self) {
        if self.base == self.next {
            self.slots = Box::default();
            self.log = Box::default();
            self.log_front = self.log_next;
            self.marks = None;
        }
    }

    /// Returns the memory used, in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.slots)
            + size_of_val(&*self.log)
            + self.marks.as_ref().map_or(0, |marks| size_of_val(&**marks))
    }

    fn take(
        &mut self,
        sequence: u64,
        slot: Slot,
        newest_packet: u64,
        progress: &mut Progress,
        newest: &mut (u64, Nanos, u8),
    ) {
        progress.segments += 1;
        progress.bytes += u32::from(slot.length);
        if slot.state == SegmentState::Sent {
            self.in_flight -= u32::from(slot.length);
        } else {
            self.unmark_lost(sequence);
        }
        // If the packet of the last transmission was not received, an earlier transmission was
        // acknowledged. This acknowledgement says nothing about the packets sent between the two
        // transmissions.
        if slot.sends > 1 && ((newest_packet as u32).wrapping_sub(slot.number) as i32) < 0 {
            return;
        }
        // Restores the high bits of the position, which is at most two windows before `log_next`.
        let behind = (self.log_next as u32).wrapping_sub(slot.order);
        let order = self.log_next - u64::from(behind) + 1;
        if order > newest.0 {
            *newest = (order, slot.sent_at, slot.sends);
        }
    }

    fn lose(&mut self, sequence: u64) {
        let slot = self.slot_mut(sequence);
        slot.state = SegmentState::Lost;
        let length = slot.length;
        self.in_flight -= u32::from(length);
        let (word, bit) = place(sequence);
        self.marks.get_or_insert_with(Marks::new).lost[word] |= bit;
        self.lost += 1;
    }

    fn unmark_lost(&mut self, sequence: u64) {
        if let Some(marks) = &mut self.marks {
            let (word, bit) = place(sequence);
            marks.lost[word] &= !bit;
            self.lost -= 1;
        }
    }

    /// Advances `log_front` to the first transmission in flight. Returns whether there is such a
    /// transmission.
    fn skip_settled(&mut self) -> bool {
        while self.log_front < self.log_next {
            let low = self.log[self.log_front as usize & (self.log.len() - 1)];
            if let Some(sequence) = self.under_way(low) {
                let slot = self.slot(sequence);
                if slot.state == SegmentState::Sent && slot.order == self.log_front as u32 {
                    return true;
                }
            }
            self.log_front += 1;
        }
        false
    }

    fn front_sequence(&self) -> u64 {
        let low = self.log[self.log_front as usize & (self.log.len() - 1)];
        self.base + u64::from(low.wrapping_sub(self.base as u32))
    }

    /// Returns the outstanding sequence number with these low bits, if there is one.
    fn under_way(&self, low: u32) -> Option<u64> {
        let ahead = u64::from(low.wrapping_sub(self.base as u32));
        (ahead < self.next - self.base).then_some(self.base + ahead)
    }

    fn log(&mut self, sequence: u64) -> u32 {
        if (self.log_next - self.log_front) as usize == self.log.len() {
            self.skip_settled();
            if (self.log_next - self.log_front) as usize == self.log.len() {
                self.grow_log();
            }
        }
        let order = self.log_next;
        let mask = self.log.len() - 1;
        self.log[order as usize & mask] = sequence as u32;
        self.log_next += 1;
        order as u32
    }

    fn slot(&self, sequence: u64) -> &Slot {
        &self.slots[sequence as usize & (self.slots.len() - 1)]
    }

    fn slot_mut(&mut self, sequence: u64) -> &mut Slot {
        let mask = self.slots.len() - 1;
        &mut self.slots[sequence as usize & mask]
    }

    fn clear_bit(&mut self, sequence: u64) {
        if let Some(marks) = &mut self.marks {
            let (word, bit) = place(sequence);
            marks.acknowledged[word] &= !bit;
        }
    }

    #[cold]
    fn grow_slots(&mut self) {
        let size = (self.slots.len() * 2).max(FIRST_SIZE);
        let mut slots = vec![Slot::default(); size].into_boxed_slice();
        for sequence in self.base..self.next {
            slots[sequence as usize & (size - 1)] = *self.slot(sequence);
        }
        self.slots = slots;
    }

    #[cold]
    fn grow_log(&mut self) {
        let size = (self.log.len() * 2).max(FIRST_SIZE);
        let mut log = vec![0; size].into_boxed_slice();
        for order in self.log_front..self.log_next {
            log[order as usize & (size - 1)] = self.log[order as usize & (self.log.len() - 1)];
        }
        self.log = log;
    }
}

#[cfg(test)]
mod tests;
