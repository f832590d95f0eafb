//! Is a peer alive? A rank that has sent something to a peer wants to hear from it within a bounded time, if only the answer to a
//! ping. libfabric itself tells of a dead peer in some providers, late or never in others.

/// Time since some moment, in nanoseconds. Never goes back.
pub(crate) type Nanos = u64;

/// Looks at a peer in each so many parts of the time after which it is taken for dead.
pub(crate) const LOOKS: u64 = 8;

/// What a look at a peer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fine,
    /// It has something to answer: ask it.
    Ping,
    /// It has been silent for too long.
    Dead,
}

/// What is known of a peer's presence. Looked at now and then; between two looks only two flags change.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Liveness {
    /// Something was sent to it since the last look.
    sent: bool,
    /// Something has come from it since the last look.
    heard: bool,
    /// Something has ever come from it.
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

    /// Whether it has ever been heard of.
    pub(crate) fn is_known(&self) -> bool {
        self.known
    }

    /// Of a peer that something has come from, and that owes nothing.
    pub(crate) fn of_known() -> Self {
        Self {
            known: true,
            ..Self::default()
        }
    }

    /// Nothing has gone to it or come from it since the last look, and it owes nothing.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.sent && !self.heard && self.since.is_none()
    }

    /// A look.
    pub(crate) fn look(&mut self, now: Nanos, dead_time: Nanos) -> Verdict {
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
    const STEP: Nanos = DEAD / LOOKS;

    #[test]
    fn a_peer_that_owes_nothing_may_be_silent() {
        let mut peer = Liveness::default();
        assert!((0..100).all(|turn| peer.look(turn * STEP, DEAD) == Verdict::Fine));
        peer.sent();
        assert_eq!(peer.look(100 * STEP, DEAD), Verdict::Ping);
        peer.heard();
        assert!((101..200).all(|turn| peer.look(turn * STEP, DEAD) == Verdict::Fine));
    }

    #[test]
    fn a_silent_peer_is_asked_and_then_dead_in_bounded_time() {
        let mut peer = Liveness::default();
        peer.sent();
        let verdicts: Vec<_> = (0..=LOOKS)
            .map(|turn| peer.look(turn * STEP, DEAD))
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
            assert_ne!(peer.look(turn * STEP, DEAD), Verdict::Dead);
        }
        assert!(peer.is_known());
    }
}
