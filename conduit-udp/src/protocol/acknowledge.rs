//! When a link acknowledges.

use super::contract::Nanos;

/// Segments of the data channel whose acknowledgement is due; half as much is one of the command channel.
const DUE: u32 = 32;

/// What a link owes its peer by way of acknowledgement.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// Of the segments that came since the last packet to the peer.
    weight: u32,
    /// When the last segment that had not come before came.
    newest: Nanos,
    at_once: bool,
    /// Until when it may wait; of meaning if something is owed.
    until: Nanos,
}

impl Owed {
    /// A segment has come that had not. One of the data channel counts little: its sender asks for an acknowledgement at once
    /// where it needs one, and the rest wait for that.
    pub(super) fn segment(&mut self, now: Nanos, delay: Nanos, is_data: bool) {
        if self.weight == 0 {
            self.until = now + delay;
        }
        self.newest = now;
        self.weight += if is_data { 1 } else { DUE / 2 };
    }

    /// Something has come that wants an acknowledgement at once.
    pub(super) fn at_once(&mut self) {
        self.at_once = true;
    }

    /// How long ago the newest segment came.
    pub(super) fn delay(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.newest)
    }

    /// Whether an acknowledgement of its own is due.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.at_once || self.weight >= DUE || (self.weight > 0 && now >= self.until)
    }

    /// Whether one has been asked for at once.
    pub(super) fn is_at_once(&self) -> bool {
        self.at_once
    }

    /// When one will be due.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        (self.weight > 0).then_some(self.until)
    }

    /// Whether any is owed.
    pub(super) fn is_owed(&self) -> bool {
        self.at_once || self.weight > 0
    }

    /// All has been told.
    pub(super) fn told(&mut self) {
        self.weight = 0;
        self.at_once = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_segment_or_the_delay_makes_it_due() {
        let mut owed = Owed::default();
        assert!(!owed.is_owed() && !owed.is_due(1000) && owed.deadline().is_none());
        owed.segment(10, 50, false);
        assert!(owed.is_owed() && !owed.is_due(59) && owed.is_due(60));
        assert_eq!((owed.deadline(), owed.delay(30)), (Some(60), 20));
        owed.segment(20, 50, false);
        assert!(owed.is_due(20) && !owed.is_at_once());
        assert_eq!((owed.deadline(), owed.delay(30)), (Some(60), 10));
        owed.told();
        assert!(!owed.is_owed() && !owed.is_due(1000));
        owed.at_once();
        assert!(owed.is_due(30) && owed.is_at_once() && owed.deadline().is_none());
    }

    #[test]
    fn data_waits_to_be_asked_for() {
        let mut owed = Owed::default();
        for _ in 1..DUE {
            owed.segment(10, 50, true);
        }
        assert!(!owed.is_due(59) && owed.is_due(60));
        owed.segment(10, 50, true);
        assert!(owed.is_due(10));
        owed.told();
        owed.segment(10, 50, true);
        owed.at_once();
        assert!(owed.is_due(10));
    }
}
