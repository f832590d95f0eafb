//! Detects dead peers. Whatever is sent to a peer, the peer must send something back within a
//! bounded time (the dead time), even if only the answer to a ping. Some providers of libfabric
//! report a dead peer, but others report it late or never.

/// Monotonic time in nanoseconds, from an arbitrary start.
pub(crate) type Nanos = u64;

/// The number of times that each peer is checked in the dead time.
pub(crate) const CHECKS: u64 = 8;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fine,
    /// The peer owes an answer, so it must be pinged.
    Ping,
    /// The peer has been silent for the dead time.
    Dead,
}

/// The liveness of a peer. Between two checks, only flags change, so that sending and receiving
/// cost little.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Liveness {
    /// Whether something has been sent to the peer since the last check.
    sent: bool,
    /// Whether something has been received from the peer since the last check.
    heard: bool,
    /// Whether something has ever been received from the peer.
    known: bool,
    /// The time at which the peer began to owe an answer, if it owes one.
    since: Option<Nanos>,
}

impl Liveness {
    /// Records that something was sent to the peer, or would have been sent if there were room.
    #[inline]
    pub(crate) fn sent(&mut self) {
        self.sent = true;
    }

    /// Records that something was received from the peer.
    #[inline]
    pub(crate) fn heard(&mut self) {
        self.heard = true;
        self.known = true;
    }

    /// Returns whether something has ever been received from the peer.
    pub(crate) fn is_known(&self) -> bool {
        self.known
    }

    /// Creates the liveness of a peer that has sent something and owes no answer.
    pub(crate) fn of_known() -> Self {
        Self {
            known: true,
            ..Self::default()
        }
    }

    /// Returns whether there has been no traffic with the peer since the last check and the peer
    /// owes no answer.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.sent && !self.heard && self.since.is_none()
    }

    /// Checks the peer at the time `now`.
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
