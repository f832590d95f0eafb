//! The congestion control of a link, which consists of the congestion window and the pacing of
//! bursts.
//!
//! The control is delay-based, as in Swift (SIGCOMM 2020): once per round trip, the window is
//! adapted to the shortest RTT measured in that round. The shortest sample is used because a rank
//! that polls late lengthens single samples, which then say nothing about the path. Losses count
//! only if they exceed one in [`LOSS_RATIO`] of a round's segments, so a loss of one per cent does
//! not slow a link down.

use super::config::Config;
use super::contract::Nanos;
use super::rtt::RttEstimator;

/// The reciprocal of the fraction of lost segments above which losses count as congestion.
const LOSS_RATIO: u32 = 16;
/// The minimum number of lost segments in a round that counts as congestion.
const MIN_LOSSES: u32 = 4;
/// The longest allowed queue in bytes, on paths that drain this number of bytes in less than
/// [`Config::delay_target`].
const QUEUE_BYTES: u64 = 512 << 10;
/// The smallest window, in full packets.
const MIN_WINDOW: u64 = 4;
/// The additive increase per round, in full packets.
const INCREASE: u64 = 4;

/// The congestion state of one link.
#[derive(Debug)]
pub(super) struct Congestion {
    /// The congestion window in bytes.
    window: u64,
    /// Whether the link is in slow start, in which the window doubles each round until congestion
    /// is detected.
    in_slow_start: bool,
    /// Whether the window kept the link from sending in this round.
    is_cwnd_limited: bool,
    round_began: Nanos,
    min_rtt: Nanos,
    acknowledged: u32,
    acknowledged_bytes: u64,
    lost: u32,
    /// The earliest time of the next burst.
    paced_until: Nanos,
}

impl Congestion {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            window: u64::from(config.initial_window) * config.packet as u64,
            in_slow_start: true,
            is_cwnd_limited: false,
            round_began: 0,
            min_rtt: Nanos::MAX,
            acknowledged: 0,
            acknowledged_bytes: 0,
            lost: 0,
            paced_until: 0,
        }
    }

    /// Returns the number of bytes that may be in flight on a channel.
    pub(super) fn window(&self) -> u64 {
        self.window
    }

    /// Records that a segment waits because the window is full.
    pub(super) fn note_cwnd_limited(&mut self) {
        self.is_cwnd_limited = true;
    }

    /// Records that segments were acknowledged. `sample` is an RTT, if one was measured.
    pub(super) fn on_acknowledged(
        &mut self,
        now: Nanos,
        segments: u32,
        bytes: u32,
        sample: Option<Nanos>,
        rtt: &RttEstimator,
        config: &Config,
    ) {
        self.acknowledged += segments;
        self.acknowledged_bytes += u64::from(bytes);
        if let Some(sample) = sample {
            self.min_rtt = self.min_rtt.min(sample);
        }
        if now.saturating_sub(self.round_began) >= rtt.smoothed() && self.min_rtt != Nanos::MAX {
            self.end_round(now, rtt, config);
        }
    }

    pub(super) fn on_lost(&mut self) {
        self.lost += 1;
    }

    /// Handles persistent congestion (RFC 9002, 7.6). The window starts anew, because nothing is
    /// known about the path any more.
    pub(super) fn on_persistent_congestion(&mut self, config: &Config) {
        self.window = MIN_WINDOW * config.packet as u64;
        self.in_slow_start = true;
    }

    fn end_round(&mut self, now: Nanos, rtt: &RttEstimator, config: &Config) {
        let packet = config.packet as u64;
        // On a fast path, even a queue that drains in less than `delay_target` may exceed the
        // caches, so the queue's length in bytes is limited, too.
        let elapsed = now.saturating_sub(self.round_began);
        let queue = QUEUE_BYTES * elapsed / self.acknowledged_bytes.max(1);
        let target = 2 * rtt.min() + queue.min(config.delay_target);
        if self.lost >= MIN_LOSSES && self.lost * LOSS_RATIO > self.acknowledged + self.lost {
            self.window = self.window * 7 / 10;
            self.in_slow_start = false;
        } else if self.min_rtt > target {
            // The window shrinks in proportion to the excess, at most by a third (Swift, SIGCOMM
            // 2020).
            let excess = self.min_rtt - target;
            self.window -= (self.window * excess / self.min_rtt).min(self.window / 3);
            self.in_slow_start = false;
        } else if self.is_cwnd_limited {
            self.window += if self.in_slow_start {
                self.acknowledged_bytes
            } else if self.min_rtt < target / 2 {
                self.window / 8 + INCREASE * packet
            } else {
                INCREASE * packet
            };
        }
        let most = u64::from(config.window) * packet;
        self.window = self.window.min(most).max(MIN_WINDOW * packet);
        self.is_cwnd_limited = false;
        self.round_began = now;
        self.min_rtt = Nanos::MAX;
        self.acknowledged = 0;
        self.acknowledged_bytes = 0;
        self.lost = 0;
    }

    /// Returns the earliest time of the next burst.
    pub(super) fn paced_until(&self) -> Nanos {
        self.paced_until
    }

    /// Records that a burst was sent.
    pub(super) fn on_burst(&mut self, now: Nanos, bytes: usize, rtt: &RttEstimator) {
        // The pace is a quarter more than the window per round trip, or twice the window in slow
        // start. In the long run, acknowledgements bound the rate.
        let gain = if self.in_slow_start { 8 } else { 5 };
        let time = bytes as u64 * rtt.smoothed() * 4 / (self.window * gain);
        // The bytes that could have been sent in the last quarter of a round trip may be sent at
        // once.
        self.paced_until = self.paced_until.max(now.saturating_sub(rtt.smoothed() / 4)) + time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Nanos = 100_000;

    /// A link that runs rounds whose RTT exceeds the shortest one by `queue`.
    struct Path {
        congestion: Congestion,
        rtt: RttEstimator,
        config: Config,
        now: Nanos,
    }

    impl Path {
        fn new() -> Self {
            let config = Config::default();
            let mut rtt = RttEstimator::default();
            rtt.sample(1, RTT, 0);
            Self {
                congestion: Congestion::new(&config),
                rtt,
                config,
                now: 1,
            }
        }

        fn round(&mut self, queue: Nanos, lost: u32) -> u64 {
            let segments = (self.congestion.window() / self.config.packet as u64) as u32;
            self.congestion.note_cwnd_limited();
            for _ in 0..lost {
                self.congestion.on_lost();
            }
            self.now += self.rtt.smoothed().max(RTT + queue);
            let bytes = segments * self.config.packet as u32;
            self.rtt.sample(self.now, RTT + queue, 0);
            self.congestion.on_acknowledged(
                self.now,
                segments,
                bytes,
                Some(RTT + queue),
                &self.rtt,
                &self.config,
            );
            self.congestion.window() / self.config.packet as u64
        }
    }

    #[test]
    fn it_doubles_until_the_window_is_full() {
        let mut path = Path::new();
        let windows: Vec<u64> = (0..7).map(|_| path.round(0, 0)).collect();
        assert_eq!(windows, [128, 256, 512, 1024, 2048, 4096, 4096]);
    }

    #[test]
    fn one_per_cent_of_loss_is_not_congestion_but_ten_are() {
        let mut path = Path::new();
        for _ in 0..4 {
            path.round(0, 0);
        }
        assert!(path.round(0, 10) > 1024);
        let before = path.round(0, 20);
        assert!(path.round(0, before as u32 / 8) < before);
    }

    #[test]
    fn longer_queues_shrink_it_down_to_the_least() {
        let mut path = Path::new();
        for _ in 0..4 {
            path.round(0, 0);
        }
        let full = path.round(0, 0);
        let before = path.round(100_000, 0);
        assert!(before >= full, "twice the min RTT is within the target");
        assert!(path.round(5_000_000, 0) < before);
        for _ in 0..30 {
            path.round(5_000_000, 0);
        }
        assert_eq!(path.round(5_000_000, 0), MIN_WINDOW);
        assert!(path.round(0, 0) > MIN_WINDOW);
    }

    #[test]
    fn a_slow_path_may_have_a_queue_of_half_a_millisecond_a_fast_one_of_so_many_bytes() {
        // A round of 600 µs carries 64 packets, so half a millisecond of that traffic is less than
        // [`QUEUE_BYTES`].
        let mut slow = Path::new();
        let before = slow.congestion.window() / 1472;
        assert!(slow.round(500_000, 0) > before);
        let mut fast = Path::new();
        while fast.congestion.window() < 4096 * 1472 {
            fast.round(0, 0);
        }
        assert!(fast.round(500_000, 0) < 4096);
    }

    #[test]
    fn who_sends_less_than_the_window_gets_no_larger_one() {
        let mut path = Path::new();
        path.now += 2 * RTT;
        path.congestion
            .on_acknowledged(path.now, 3, 3000, Some(RTT), &path.rtt, &path.config);
        assert_eq!(path.congestion.window(), 64 * 1472);
    }

    #[test]
    fn bursts_are_paced_over_the_round_trip() {
        let mut path = Path::new();
        path.congestion.in_slow_start = false;
        let (smoothed, window) = (path.rtt.smoothed(), path.congestion.window());
        let mut now = 10 * RTT;
        let mut sent = 0;
        while now < 20 * RTT {
            path.congestion.on_burst(now, 16 * 1472, &path.rtt);
            sent += 16 * 1472;
            now = now.max(path.congestion.paced_until());
        }
        let rate = sent as f64 / (10 * RTT) as f64 * smoothed as f64 / window as f64;
        assert!((1.2..1.35).contains(&rate), "{rate}");
    }
}
