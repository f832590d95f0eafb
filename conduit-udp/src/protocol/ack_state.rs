//! When a link acknowledges.

use super::contract::Nanos;

/// Segments of the data channel whose acknowledgement is due; half as much is one of the command
/// channel.
const THRESHOLD: u32 = 32;

/// What a link owes its peer by way of acknowledgement.
#[derive(Debug, Default)]
pub(super) struct AckState {
    /// Of the segments that came since the last packet to the peer.
    weight: u32,
    /// When the last segment that had not come before came.
    newest_at: Nanos,
    immediate: bool,
    /// Until when it may wait; of meaning if something is ack_state.
    deadline: Nanos,
}

impl AckState {
    /// A segment has come that had not. One of the data channel counts little: its sender asks for
    /// an acknowledgement at once where it needs one, and the rest wait for that.
    pub(super) fn on_segment(&mut self, now: Nanos, delay: Nanos, is_data: bool) {
        if self.weight == 0 {
            self.deadline = now + delay;
        }
        self.newest_at = now;
        self.weight += if is_data { 1 } else { THRESHOLD / 2 };
    }

    /// Something has come that wants an acknowledgement at once.
    pub(super) fn request_immediate(&mut self) {
        self.immediate = true;
    }

    /// How long ago the newest_at segment came.
    pub(super) fn delay(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.newest_at)
    }

    /// Whether an acknowledgement of its own is due.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.immediate || self.weight >= THRESHOLD || (self.weight > 0 && now >= self.deadline)
    }

    /// Whether one has been asked for at once.
    pub(super) fn is_immediate(&self) -> bool {
        self.immediate
    }

    /// When one will be due.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        (self.weight > 0).then_some(self.deadline)
    }

    /// Whether any is ack_state.
    pub(super) fn is_pending(&self) -> bool {
        self.immediate || self.weight > 0
    }

    /// All has been told.
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
