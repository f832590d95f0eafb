//! The durations of the model.

use clap::Args;
use serde::Serialize;

use crate::ConfigError;

/// The number of bytes of a message's header on the wire, with match bits, header data and
/// addresses.
const HEADER_BYTES: f64 = 64.0;

/// The network and the processors of the model. Times are in nanoseconds.
///
/// A rank does one thing at a time. While it sends, it polls every few requests. While it waits for
/// credits or has nothing to do, it polls constantly or at intervals. While it computes, it polls
/// only as often as `compute_polls` says. A message leaves through the rank's network interface,
/// which sends one at a time, and arrives after the latency. The model does not limit how fast
/// interfaces receive.
///
/// `safe_limit`, `am_limit` and `chunks` are the original's `GASNET_PORTAL_SAFE_LIMIT`,
/// `GASNET_PORTAL_AM_LIMIT` and `GASNET_PORTAL_SB_CHUNKS`.
#[derive(Clone, Debug, PartialEq, Serialize, Args)]
#[command(next_help_heading = "Network and processors (times in nanoseconds)")]
pub struct Timing {
    /// Latency from one network interface to another
    #[arg(long, value_name = "NS", default_value_t = Timing::default().latency)]
    pub latency: u64,
    /// Bandwidth of a network interface, in GB/s
    #[arg(long, value_name = "GB/S", default_value_t = Timing::default().bandwidth)]
    pub bandwidth: f64,
    /// Time to send a request
    #[arg(long, value_name = "NS", default_value_t = Timing::default().send)]
    pub send: u64,
    /// Time to serve a request and reply, independent of its size
    #[arg(long, value_name = "NS", default_value_t = Timing::default().serve)]
    pub serve: u64,
    /// Time to serve each 256 bytes of a request, in addition
    #[arg(long, value_name = "NS", default_value_t = Timing::default().serve_credit)]
    pub serve_credit: u64,
    /// Time to handle a reply
    #[arg(long, value_name = "NS", default_value_t = Timing::default().reply)]
    pub reply: u64,
    /// Time for a system message, on each side
    #[arg(long, value_name = "NS", default_value_t = Timing::default().system)]
    pub system: u64,
    /// Time for a poll
    #[arg(long, value_name = "NS", default_value_t = Timing::default().poll)]
    pub poll: u64,
    /// Requests sent between two polls
    #[arg(long, value_name = "N", default_value_t = Timing::default().poll_every)]
    pub poll_every: u32,
    /// Interval between polls of a waiting rank; 0 for constant polling
    #[arg(long, value_name = "NS", default_value_t = Timing::default().poll_gap)]
    pub poll_gap: u64,
    /// Replies taken by one poll
    #[arg(long, value_name = "N", default_value_t = Timing::default().safe_limit)]
    pub safe_limit: u8,
    /// Requests served by one poll
    #[arg(long, value_name = "N", default_value_t = Timing::default().am_limit)]
    pub am_limit: u8,
    /// Most requests of a rank without a reply
    #[arg(long, value_name = "N", default_value_t = Timing::default().chunks)]
    pub chunks: u32,
    /// Computing time at the start of each step, without polling
    #[arg(long, value_name = "NS", default_value_t = Timing::default().compute)]
    pub compute: u64,
    /// Random increase of the computing time, up to this fraction of it
    #[arg(long, value_name = "PART", default_value_t = Timing::default().skew)]
    pub skew: f64,
    /// Polls while computing
    #[arg(long, value_name = "N", default_value_t = Timing::default().compute_polls)]
    pub compute_polls: u32,
    /// Random delay of a rank's start of a step, up to this time
    #[arg(long, value_name = "NS", default_value_t = Timing::default().jitter)]
    pub jitter: u64,
}

impl Default for Timing {
    /// Returns the parameters of a network like InfiniBand, with a latency of 1.5 µs and a
    /// bandwidth of 10 GB/s. Serving a full medium of 1 KiB takes half a microsecond.
    fn default() -> Timing {
        Timing {
            latency: 1_500,
            bandwidth: 10.0,
            send: 200,
            serve: 300,
            serve_credit: 50,
            reply: 100,
            system: 100,
            poll: 30,
            poll_every: 1,
            poll_gap: 0,
            safe_limit: 12,
            am_limit: 8,
            chunks: 2048,
            compute: 0,
            skew: 0.0,
            compute_polls: 0,
            jitter: 500,
        }
    }
}

impl Timing {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let bad = |setting, value: f64, must| {
            Err(ConfigError::OutOfRange {
                setting,
                value,
                must,
            })
        };
        if self.latency == 0 {
            return bad("the latency", 0.0, "at least 1 ns");
        }
        // With at least this bandwidth, a message takes at most seconds, so sums are far below the
        // limit of 64 bits.
        if !(self.bandwidth >= 1e-6 && self.bandwidth.is_finite()) {
            return bad("the bandwidth", self.bandwidth, "at least 0.000001 GB/s");
        }
        if !(0.0..=1000.0).contains(&self.skew) {
            return bad("the skew", self.skew, "0 to 1000");
        }
        if self.poll_every == 0 {
            return bad("requests between polls", 0.0, "at least 1");
        }
        if self.safe_limit == 0 || self.am_limit == 0 {
            return bad("a poll limit", 0.0, "at least 1");
        }
        if self.compute_polls > 1_000_000 {
            return bad(
                "the number of polls while computing",
                self.compute_polls.into(),
                "at most 1000000",
            );
        }
        if self.chunks == 0 {
            return bad("the number of chunks", 0.0, "at least 1");
        }
        for (setting, value) in [
            ("the latency", self.latency),
            ("the time to send", self.send),
            ("the time to serve", self.serve),
            ("the time to serve a credit", self.serve_credit),
            ("the time for a reply", self.reply),
            ("the time for a system message", self.system),
            ("the time to poll", self.poll),
            ("the time between polls", self.poll_gap),
            ("the time to compute", self.compute),
            ("the jitter", self.jitter),
        ] {
            // With a limit of ten seconds, sums are far below the limit of 64 bits.
            if value > 10_000_000_000 {
                return bad(setting, value as f64, "at most 10 s");
            }
        }
        Ok(())
    }

    /// Returns the time at which a rank that has been waiting since `since` notices an arrival at
    /// `arrival`. `u64::MAX` means never.
    pub(crate) fn wake(&self, since: u64, arrival: u64) -> u64 {
        let waited = (arrival - since).checked_next_multiple_of(self.poll_gap.max(1));
        waited.map_or(u64::MAX, |waited| since.saturating_add(waited))
    }

    /// Returns the time for which a message with a body of `bytes` bytes occupies the interface.
    pub(crate) fn wire(&self, bytes: u32) -> u64 {
        ((f64::from(bytes) + HEADER_BYTES) / self.bandwidth).ceil() as u64
    }
}
