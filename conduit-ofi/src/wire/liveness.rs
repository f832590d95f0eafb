//! Whether a peer is alive. A peer that was sent something has to send something within a bounded
//! time, if only the answer to a ping. Some providers of libfabric report a dead peer, others late
//! or never.

/// Monotonic time in nanoseconds, from an arbitrary start.
pub(crate) type Nanos = u64;

/// Checks of a peer in one dead time.
pub(crate) const CHECKS: u64 = 8;

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fine,
    /// It owes an answer: ping it.
    Ping,
    /// It was silent for the dead time.
    Dead,
}

/// What is known of a peer's liveness. Between two checks only two flags change.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Liveness {
    /// Something was sent to it since the last check.
    sent: bool,
    /// Something was received from it since the last check.
    heard: bool,
    /// Something was ever received from it.
    known: bool,
    /// Since when it owes an answer.
    since: Option<Nanos>,
}

impl Liveness {
    /// Something was sent to it, or should have been.
    #[inline]
    pub(crate) fn sent(&mut self) {
        self.sent = true;
    }

    /// Something has come from it.
    #[inline]
    pub(crate) fn heard(&mut self) {
        self.heard = true;
        self.known = true;
    }

    /// Whether something was ever received from it.
    pub(crate) fn is_known(&self) -> bool {
        self.known
    }

    /// Of a peer that something was received from, and that owes no answer.
    pub(crate) fn of_known() -> Self {
        Self {
            known: true,
            ..Self::default()
        }
    }

    /// Whether nothing was sent to it or received from it since the last check, and it owes no
    /// answer.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.sent && !self.heard && self.since.is_none()
    }

    /// Checks the peer.
    pub(crate) fn check(&mut self, now: Nanos, dead_time: Nanos) -> Verdict {
        if std::mem::take(&mut self.heard) {
            self.since = None;
        }
        if std::mem::take(&mut self.sent) {
            self.since.get_or_insert(now);
        }
        match self.since {
            None => Verdict::Fine,
            Some(since) if now.saturating_sub(since) >= dead_time => Verdict::Dead,
            Some(_) => Verdict::Ping,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEAD: Nanos = 800;
    const STEP: Nanos = DEAD / CHECKS;

    #[test]
    fn a_peer_that_owes_nothing_may_be_silent() {
        let mut peer = Liveness::default();
        assert!((0..100).all(|turn| peer.check(turn * STEP, DEAD) == Verdict::Fine));
        peer.sent();
        assert_eq!(peer.check(100 * STEP, DEAD), Verdict::Ping);
        peer.heard();
        assert!((101..200).all(|turn| peer.check(turn * STEP, DEAD) == Verdict::Fine));
    }

    #[test]
    fn a_silent_peer_is_asked_and_then_dead_in_bounded_time() {
        let mut peer = Liveness::default();
        peer.sent();
        let verdicts: Vec<_> = (0..=CHECKS)
            .map(|turn| peer.check(turn * STEP, DEAD))
            .collect();
        let (last, before) = verdicts.split_last().unwrap();
        assert_eq!(*last, Verdict::Dead);
        assert!(before.iter().all(|verdict| *verdict == Verdict::Ping));
        assert!(!peer.is_known());
    }

    #[test]
    fn one_that_answers_lives_however_much_is_sent() {
        let mut peer = Liveness::default();
        for turn in 0..100 {
            peer.sent();
            if turn % 7 == 6 {
                peer.heard();
            }
            assert_ne!(peer.check(turn * STEP, DEAD), Verdict::Dead);
        }
        assert!(peer.is_known());
    }
}
