//! Decides when a link sends acknowledgements.

use super::contract::Nanos;

/// The total weight of received segments at which an acknowledgement is due. A segment of the data
/// channel weighs 1, and a segment of the command channel half of `THRESHOLD`.
const THRESHOLD: u32 = 32;

/// The acknowledgement that a link still has to send.
#[derive(Debug, Default)]
pub(super) struct AckState {
    /// The total weight of the segments received since the last acknowledgement.
    weight: u32,
    /// When the newest segment was received for the first time.
    newest_at: Nanos,
    immediate: bool,
    /// When the acknowledgement becomes due, if `weight` is not 0.
    deadline: Nanos,
}

impl AckState {
    /// Records a segment received for the first time. A segment of the data channel weighs little,
    /// because its sender requests an immediate acknowledgement when it needs one.
    pub(super) fn on_segment(&mut self, now: Nanos, delay: Nanos, is_data: bool) {
        if self.weight == 0 {
            self.deadline = now + delay;
        }
        self.newest_at = now;
        self.weight += if is_data { 1 } else { THRESHOLD / 2 };
    }

    /// Requests an immediate acknowledgement.
    pub(super) fn request_immediate(&mut self) {
        self.immediate = true;
    }

    /// Returns the ack delay (RFC 9000, 13.2.5), which is the time since the newest segment was
    /// received.
    pub(super) fn delay(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.newest_at)
    }

    /// Returns whether an acknowledgement has to be sent even if there is no packet to carry it.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.immediate || self.weight >= THRESHOLD || (self.weight > 0 && now >= self.deadline)
    }

    /// Returns whether an immediate acknowledgement was requested.
    pub(super) fn is_immediate(&self) -> bool {
        self.immediate
    }

    /// Returns the time at which the acknowledgement is due, or `None` if there is nothing to
    /// acknowledge.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        (self.weight > 0).then_some(self.deadline)
    }

    /// Returns whether there is anything to acknowledge.
    pub(super) fn is_pending(&self) -> bool {
        self.immediate || self.weight > 0
    }

    /// Records that everything received has been acknowledged.
    pub(super) fn on_sent(&mut self) {
        self.weight = 0;
        self.immediate = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_segment_or_the_delay_makes_it_due() {
        let mut ack_state = AckState::default();
        assert!(
            !ack_state.is_pending() && !ack_state.is_due(1000) && ack_state.deadline().is_none()
        );
        ack_state.on_segment(10, 50, false);
        assert!(ack_state.is_pending() && !ack_state.is_due(59) && ack_state.is_due(60));
        assert_eq!((ack_state.deadline(), ack_state.delay(30)), (Some(60), 20));
        ack_state.on_segment(20, 50, false);
        assert!(ack_state.is_due(20) && !ack_state.is_immediate());
        assert_eq!((ack_state.deadline(), ack_state.delay(30)), (Some(60), 10));
        ack_state.on_sent();
        assert!(!ack_state.is_pending() && !ack_state.is_due(1000));
        ack_state.request_immediate();
        assert!(ack_state.is_due(30) && ack_state.is_immediate() && ack_state.deadline().is_none());
    }

    #[test]
    fn data_waits_to_be_asked_for() {
        let mut ack_state = AckState::default();
        for _ in 1..THRESHOLD {
            ack_state.on_segment(10, 50, true);
        }
        assert!(!ack_state.is_due(59) && ack_state.is_due(60));
        ack_state.on_segment(10, 50, true);
        assert!(ack_state.is_due(10));
        ack_state.on_sent();
        ack_state.on_segment(10, 50, true);
        ack_state.request_immediate();
        assert!(ack_state.is_due(10));
    }
}
