//! Detects whether a peer receives this rank's packets. Sends probes, validates the MTU, and
//! enforces the dead time.

use conduit_core::ni::Rank;

use super::config::Config;
use super::contract::{Failure, Nanos};
use super::mix::mixed;

/// The first interval between full-sized probes. The interval doubles after each probe.
const FIRST_INTERVAL: Nanos = 5_000_000;
/// The number of consecutive probe time-outs after which a tiny probe accompanies the
/// retransmission.
const PROBE_AFTER: u8 = 2;
/// The number of consecutive probe time-outs that means persistent congestion.
const PERSISTENT_CONGESTION_AFTER: u8 = 3;
/// The number of consecutive probe time-outs after which the path's MTU is validated again.
const MTU_PROBE_AFTER: u8 = 4;

/// The kinds of probes to send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Probes {
    pub(super) tiny: bool,
    pub(super) full: bool,
}

impl Probes {
    pub(super) fn any(self) -> bool {
        self.tiny || self.full
    }
}

/// A validation of the path's MTU in progress, by full-sized probes (cf. RFC 8899).
#[derive(Debug, Clone, Copy)]
struct MtuProbe {
    since: Nanos,
    next: Nanos,
    interval: Nanos,
    /// The number of probes sent.
    tries: u32,
}

impl MtuProbe {
    fn new(now: Nanos, seed: u64) -> Self {
        let mut mtu_probe = Self {
            since: now,
            next: now,
            interval: FIRST_INTERVAL,
            tries: 0,
        };
        mtu_probe.wait(now, seed);
        mtu_probe
    }

    /// Schedules the next probe after 0.5 to 1.5 intervals. Full-sized probes to many peers may
    /// have been sent together and have overflowed a queue on the way. The random intervals keep
    /// that from recurring.
    fn wait(&mut self, now: Nanos, seed: u64) {
        self.tries += 1;
        let part = mixed(seed ^ u64::from(self.tries)) % 1024;
        self.next = now + self.interval / 2 + (self.interval >> 10) * part;
    }
}

/// The known state of a peer's liveness.
#[derive(Debug)]
pub(super) struct Liveness {
    /// When the last packet was received.
    received_at: Nanos,
    /// When the peer last acknowledged something new or replied to a probe.
    answered_at: Nanos,
    has_answered: bool,
    /// When the wait for an answer began.
    waiting_since: Option<Nanos>,
    /// When a packet that expects an answer was last sent.
    sent_at: Nanos,
    /// The number of consecutive probe time-outs (`pto_count` of RFC 9002).
    pto_count: u8,
    /// Whether full-sized packets get through.
    is_mtu_validated: bool,
    mtu_probe: Option<MtuProbe>,
    /// A hash of the two ranks, which spreads the probes of different links over time.
    seed: u64,
    /// The probes that are still to be sent.
    pub(super) wanted: Probes,
}

/// The effect of a probe time-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timeout {
    /// Whether the time-out means persistent congestion.
    pub(super) is_persistent_congestion: bool,
}

impl Liveness {
    pub(super) fn new(now: Nanos, own: Rank, peer: Rank) -> Self {
        Self {
            received_at: now,
            answered_at: now,
            has_answered: false,
            waiting_since: None,
            sent_at: now,
            pto_count: 0,
            is_mtu_validated: false,
            mtu_probe: None,
            seed: mixed(u64::from(own) << 32 | u64::from(peer)),
            wanted: Probes::default(),
        }
    }

    /// Restores the state that an idle link keeps.
    pub(super) fn restore(&mut self, is_mtu_validated: bool, has_answered: bool) {
        self.is_mtu_validated = is_mtu_validated;
        self.has_answered = has_answered;
    }

    /// Returns whether no answer is awaited and no probe is pending.
    pub(super) fn is_quiet(&self) -> bool {
        self.waiting_since.is_none() && self.mtu_probe.is_none() && !self.wanted.any()
    }

    /// Returns when the last packet was received.
    pub(super) fn received_at(&self) -> Nanos {
        self.received_at
    }

    /// Requests a tiny probe.
    pub(super) fn probe(&mut self, now: Nanos) {
        self.wanted.tiny = true;
        self.waiting_since = Some(now);
        self.sent_at = now;
    }

    /// Returns whether full-sized packets get through.
    pub(super) fn is_mtu_validated(&self) -> bool {
        self.is_mtu_validated
    }

    /// Returns whether the peer has ever answered.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered
    }

    pub(super) fn on_received(&mut self, now: Nanos) {
        self.received_at = now;
    }

    /// Starts validation of the path's MTU.
    fn probe_mtu(&mut self, now: Nanos) {
        self.mtu_probe = Some(MtuProbe::new(now, self.seed));
        self.wanted = Probes {
            tiny: true,
            full: true,
        };
    }

    /// Starts validation of the path's MTU, unless it has been validated or its validation is in
    /// progress.
    pub(super) fn validate_mtu(&mut self, now: Nanos) {
        if !self.is_mtu_validated && self.mtu_probe.is_none() {
            self.probe_mtu(now);
        }
    }

    /// Records that a segment or probe is sent. Returns whether no answer was awaited before the
    /// call.
    pub(super) fn on_sent(&mut self, now: Nanos) -> bool {
        self.sent_at = now;
        if self.waiting_since.is_none() {
            self.waiting_since = Some(now);
            return true;
        }
        false
    }

    /// Records that the peer acknowledged something new. `waits` says whether other data are
    /// unacknowledged.
    pub(super) fn on_progress(&mut self, now: Nanos, waits: bool) {
        self.pto_count = 0;
        self.answered(now, waits);
    }

    /// Records that the peer replied to a probe. `full` says whether the probe was full-sized, and
    /// `waits` whether data are unacknowledged.
    pub(super) fn on_answer(&mut self, now: Nanos, full: bool, waits: bool) {
        if !waits {
            self.pto_count = 0;
        }
        if full {
            self.is_mtu_validated = true;
            self.mtu_probe = None;
            self.wanted.full = false;
        }
        self.answered(now, waits);
    }

    fn answered(&mut self, now: Nanos, waits: bool) {
        self.has_answered = true;
        self.answered_at = now;
        self.waiting_since = (waits || self.mtu_probe.is_some()).then_some(now);
    }

    /// Records that data wait for the peer's credits.
    pub(super) fn on_blocked(&mut self, now: Nanos) {
        if self.waiting_since.is_none() {
            self.waiting_since = Some(now);
            self.sent_at = now;
        }
    }

    /// Returns the time at which the probe time-out expires, if an answer is awaited. `timeout` is
    /// the time that an answer may take.
    pub(super) fn timeout_at(&self, timeout: Nanos, config: &Config) -> Option<Nanos> {
        self.waiting_since?;
        Some(self.sent_at.max(self.answered_at) + self.timeout(timeout, config))
    }

    /// Returns the probe time-out, which is the time that an answer may take, doubled for each
    /// consecutive time-out.
    pub(super) fn timeout(&self, answer: Nanos, config: &Config) -> Nanos {
        answer
            .max(config.min_timeout)
            .saturating_mul(1 << self.pto_count.min(20))
            .min(config.probe_interval)
    }

    /// Returns the time at which anything other than the probe time-out is due.
    pub(super) fn due_at(&self, config: &Config) -> Nanos {
        let mut at = match self.waiting_since {
            Some(since) => since + config.dead_time,
            None => self.received_at + config.keep_alive(),
        };
        if let Some(mtu_probe) = self.mtu_probe {
            at = at
                .min(mtu_probe.next)
                .min(mtu_probe.since + config.mtu_timeout);
        }
        at
    }

    /// Handles an expired probe time-out. `has_segments` says whether segments are outstanding.
    pub(super) fn on_timeout(&mut self, now: Nanos, has_segments: bool) -> Timeout {
        self.pto_count = self.pto_count.saturating_add(1);
        self.sent_at = now;
        if !has_segments || self.pto_count >= PROBE_AFTER {
            self.wanted.tiny = true;
        }
        if has_segments && self.pto_count >= MTU_PROBE_AFTER && self.mtu_probe.is_none() {
            self.probe_mtu(now);
        }
        Timeout {
            is_persistent_congestion: self.pto_count == PERSISTENT_CONGESTION_AFTER,
        }
    }

    /// Handles everything other than the probe time-out that is due. `resumed` is the end of this
    /// rank's last long pause. Silence before that time does not count. Returns whether nothing has
    /// happened for the keep-alive time.
    ///
    /// # Errors
    /// Returns the failure if the peer has to be given up.
    pub(super) fn on_due(
        &mut self,
        now: Nanos,
        resumed: Nanos,
        config: &Config,
    ) -> Result<bool, Failure> {
        if let Some(since) = &mut self.waiting_since {
            *since = resumed.max(*since);
        }
        if let Some(mtu_probe) = &mut self.mtu_probe {
            mtu_probe.since = resumed.max(mtu_probe.since);
        }
        if let Some(since) = self.waiting_since
            && now >= since + config.dead_time
        {
            return Err(if self.has_answered {
                Failure::Silent(now.saturating_sub(self.answered_at) / 1_000_000)
            } else {
                Failure::Unreachable
            });
        }
        if let Some(mtu_probe) = &mut self.mtu_probe {
            if now >= mtu_probe.since + config.mtu_timeout {
                if !self.has_answered {
                    return Err(Failure::Unreachable);
                }
                // The peer answers tiny probes, but no full-sized ones. A peer that answers neither
                // kind fails after the dead time instead.
                if now.saturating_sub(self.answered_at) <= config.mtu_timeout / 4 {
                    return Err(Failure::Mtu(config.packet));
                }
                mtu_probe.since = now.saturating_sub(config.mtu_timeout - config.mtu_timeout / 8);
            }
            if now >= mtu_probe.next {
                mtu_probe.interval = (mtu_probe.interval * 2).min(config.probe_interval);
                mtu_probe.wait(now, self.seed);
                self.wanted = Probes {
                    tiny: true,
                    full: true,
                };
            }
        }
        if self.waiting_since.is_none() && now >= self.received_at + config.keep_alive() {
            self.probe(now);
            return Ok(true);
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn config() -> Config {
        Config {
            dead_time: 1000 * MS,
            mtu_timeout: 400 * MS,
            probe_interval: 50 * MS,
            ..Config::default()
        }
    }

    #[test]
    fn full_sized_probes_back_off() {
        let (config, mut liveness) = (config(), Liveness::new(0, 0, 1));
        liveness.validate_mtu(0);
        let mut times = Vec::new();
        for ms in 0..300 {
            assert_eq!(liveness.on_due(ms * MS, 0, &config), Ok(false));
            if std::mem::take(&mut liveness.wanted).full {
                times.push(ms);
                liveness.on_sent(ms * MS);
            }
        }
        let pauses: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let expected = [5, 10, 20, 40, 50, 50];
        assert!(pauses.len() >= expected.len() - 1, "{times:?}");
        for (pause, expected) in pauses.into_iter().zip(expected) {
            assert!(
                (expected / 2..=expected * 3 / 2 + 1).contains(&pause),
                "{times:?}"
            );
        }
        liveness.on_answer(300 * MS, false, false);
        assert!(!liveness.is_mtu_validated());
        assert_eq!(
            liveness.on_due(400 * MS, 0, &config),
            Err(Failure::Mtu(config.packet))
        );
        // The path's MTU is not named as the reason if the path is completely silent.
        let mut silent = liveness;
        silent.on_answer(310 * MS, false, false);
        assert_eq!(silent.on_due(500 * MS, 0, &config), Ok(false));
        assert_eq!(
            silent.on_due(1311 * MS, 0, &config),
            Err(Failure::Silent(1001))
        );
        let mut liveness = Liveness::new(0, 0, 1);
        liveness.validate_mtu(0);
        liveness.on_received(400 * MS);
        liveness.on_answer(400 * MS, true, false);
        assert!(liveness.is_mtu_validated());
        assert_eq!(liveness.on_due(401 * MS, 0, &config), Ok(false));
    }

    /// Opens a thousand links together. Only a small part of their second probes is sent at any
    /// time, and two probes that coincide once do not coincide again.
    #[test]
    fn full_sized_probes_of_many_peers_do_not_leave_together_twice() {
        let config = config();
        let times = |peer| {
            let mut liveness = Liveness::new(0, 7, peer);
            liveness.validate_mtu(0);
            (0..3)
                .map(|_| {
                    let now = liveness.due_at(&config);
                    assert_eq!(liveness.on_due(now, 0, &config), Ok(false));
                    now
                })
                .collect::<Vec<_>>()
        };
        let all: Vec<_> = (0..1000).filter(|&peer| peer != 7).map(times).collect();
        for attempt in 0..3 {
            let first = all.iter().map(|times| times[attempt]).min().unwrap_or(0);
            let interval = FIRST_INTERVAL << attempt;
            for begin in (0..10).map(|tenth| first + tenth * interval / 10) {
                let count = all
                    .iter()
                    .filter(|times| (begin..begin + interval / 10).contains(&times[attempt]))
                    .count();
                assert!(count < 200, "{count} of 999 within a tenth of the interval");
            }
        }
        let mut neighbours: Vec<_> = all.iter().collect();
        neighbours.sort();
        let together = neighbours
            .windows(2)
            .filter(|pair| (0..3).all(|n| pair[0][n].abs_diff(pair[1][n]) < FIRST_INTERVAL / 100))
            .count();
        assert!(together < 5, "{together} pairs");
    }

    #[test]
    fn time_outs_double_up_to_the_probe_interval() {
        let (config, mut liveness) = (config(), Liveness::new(0, 0, 1));
        assert_eq!(liveness.timeout_at(2 * MS, &config), None);
        liveness.on_sent(0);
        let mut now = 0;
        let mut pauses = Vec::new();
        while pauses.len() < 8 {
            let at = liveness.timeout_at(2 * MS, &config).unwrap();
            pauses.push((at - now) / MS);
            now = at;
            liveness.on_timeout(now, true);
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 50, 50, 50]);
        liveness.on_progress(now, true);
        assert_eq!(liveness.timeout_at(2 * MS, &config), Some(now + 2 * MS));
        // After this number of time-outs, the MTU may be the cause, so the MTU is probed until a
        // full-sized probe is answered.
        liveness.on_progress(now, false);
        assert_eq!(liveness.timeout_at(2 * MS, &config), Some(now + 2 * MS));
        liveness.on_answer(now, true, false);
        assert_eq!(liveness.timeout_at(2 * MS, &config), None);
    }

    #[test]
    fn silence_counts_from_the_first_unanswered_packet() {
        let (config, mut liveness) = (config(), Liveness::new(0, 0, 1));
        liveness.on_sent(0);
        liveness.on_progress(MS, false);
        assert_eq!(liveness.on_due(200 * MS, 0, &config), Ok(false));
        // Nothing was received for a quarter of the dead time, so a probe is sent.
        assert_eq!(liveness.on_due(260 * MS, 0, &config), Ok(true));
        assert!(liveness.wanted.tiny);
        assert_eq!(liveness.on_due(1259 * MS, 0, &config), Ok(false));
        // This rank was stopped until this time, so the silence proves nothing.
        assert_eq!(liveness.on_due(1300 * MS, 1290 * MS, &config), Ok(false));
        assert_eq!(
            liveness.on_due(2291 * MS, 1290 * MS, &config),
            Err(Failure::Silent(2290))
        );
    }
}
