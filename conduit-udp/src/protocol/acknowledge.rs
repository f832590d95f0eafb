//! When a link acknowledges.

use super::contract::Nanos;

/// What a link owes its peer by way of acknowledgement.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// Segments that came since the last packet to the peer.
    segments: u32,
    /// When the last segment that had not come before came.
    newest: Nanos,
    at_once: bool,
    /// Until when it may wait; of meaning if something is owed.
    until: Nanos,
}

impl Owed {
    /// A segment has come that had not. Whether its acknowledgement is due now.
    pub(super) fn segment(&mut self, now: Nanos, delay: Nanos) -> bool {
        self.segments += 1;
        self.newest = now;
        if self.segments == 1 {
            self.until = now + delay;
        }
        self.segments >= 2
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
        self.at_once || self.segments >= 2 || (self.segments == 1 && now >= self.until)
    }

    /// Whether one has been asked for at once.
    pub(super) fn is_at_once(&self) -> bool {
        self.at_once
    }

    /// When one will be due.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        (self.segments > 0).then_some(self.until)
    }

    /// Whether any is owed.
    pub(super) fn is_owed(&self) -> bool {
        self.at_once || self.segments > 0
    }

    /// All has been told.
    pub(super) fn told(&mut self) {
        self.segments = 0;
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
        assert!(!owed.segment(10, 50));
        assert!(owed.is_owed() && !owed.is_due(59) && owed.is_due(60));
        assert_eq!((owed.deadline(), owed.delay(30)), (Some(60), 20));
        assert!(owed.segment(20, 50));
        assert!(owed.is_due(20) && !owed.is_at_once());
        assert_eq!((owed.deadline(), owed.delay(30)), (Some(60), 10));
        owed.told();
        assert!(!owed.is_owed() && !owed.is_due(1000));
        owed.at_once();
        assert!(owed.is_due(30) && owed.is_at_once() && owed.deadline().is_none());
    }
}
