//! The expected state of a link at the end of a run, which depends on the faults of its scenario.

use conduit_core::ni::Rank;
use conduit_udp::protocol::{Failure, Nanos};

use crate::scenario::{Fault, Scenario};

/// The expected state of one rank's link to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Everything arrives, and the peer is not given up.
    Survives,
    /// Either everything arrives, or the peer is given up.
    Undetermined,
    /// The peer is given up if the link was used before the fault or is used later.
    Fails {
        /// The time from which neither side receives from the other.
        begin: Nanos,
        /// Whether packets of the peer are still received. The peer then notices the fault sooner
        /// than this rank, whose idle link ends only after the peer's link has ended.
        is_heard: bool,
    },
    /// The peer is given up because of the path's MTU, if more than tiny fragments are sent.
    MtuTooSmall,
}

impl Expected {
    /// Returns the worse of two expectations.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Survives, expected) | (expected, Self::Survives) => expected,
            (Self::MtuTooSmall, _) | (_, Self::MtuTooSmall) => Self::MtuTooSmall,
            (
                Self::Fails {
                    begin: a,
                    is_heard: c,
                },
                Self::Fails {
                    begin: b,
                    is_heard: d,
                },
            ) => Self::Fails {
                begin: a.min(b),
                is_heard: c && d,
            },
            (ends @ Self::Fails { .. }, Self::Undetermined)
            | (Self::Undetermined, ends @ Self::Fails { .. }) => ends,
            (Self::Undetermined, Self::Undetermined) => Self::Undetermined,
        }
    }
}

/// Returns the expected state of the link of `rank` to `peer`. `used` is the time at which the link
/// was first used.
pub(crate) fn expected(
    scenario: &Scenario,
    rank: Rank,
    peer: Rank,
    used: Option<Nanos>,
) -> Expected {
    let dead = scenario.protocol.dead_time;
    let touches = |one: Rank| one == rank || one == peer;
    let outage = |begin: Nanos, end: Option<Nanos>| match end {
        None => Expected::Fails {
            begin,
            is_heard: false,
        },
        Some(end) if end - begin < dead => Expected::Survives,
        // A link that is in use is given up before the outage ends.
        Some(_) if used.is_some_and(|used| used <= begin) => Expected::Fails {
            begin,
            is_heard: false,
        },
        Some(_) => Expected::Undetermined,
    };
    let of = |fault: &Fault| match *fault {
        Fault::BlackHole {
            from,
            to,
            begin,
            end,
        } if touches(from) && touches(to) => match outage(begin, end) {
            Expected::Fails { begin, .. } => Expected::Fails {
                begin,
                is_heard: from == rank,
            },
            other => other,
        },
        Fault::LinkDown {
            rank: one,
            begin,
            end,
        } if touches(one) => outage(begin, end),
        Fault::Asleep {
            rank: one,
            begin,
            end,
        } if one == peer => outage(begin, end),
        Fault::Asleep {
            rank: one,
            begin,
            end,
        } if one == rank => match outage(begin, end) {
            Expected::Survives => Expected::Survives,
            _ => Expected::Undetermined,
        },
        Fault::SmallMtu { from, to, .. } if from == rank && to == peer => Expected::MtuTooSmall,
        // If the other rank has given up this rank, this rank receives nothing.
        Fault::SmallMtu { from, to, .. } if from == peer && to == rank => Expected::Undetermined,
        Fault::Restart { rank: one, at } if touches(one) => Expected::Fails {
            begin: at,
            is_heard: false,
        },
        _ => Expected::Survives,
    };
    scenario
        .faults
        .iter()
        .map(of)
        .fold(Expected::Survives, Expected::and)
}

/// Returns a description of what is wrong with a failure, or `None` if nothing is. `used` holds the
/// times at which this rank and the peer first used the link.
pub(crate) fn judge(
    scenario: &Scenario,
    expected: Expected,
    used: [Option<Nanos>; 2],
    at: Nanos,
    failure: Failure,
) -> Option<String> {
    let dead = scenario.protocol.dead_time;
    let [used, used_by_peer] = used;
    // Packets that are in flight or held by an attacker when a path is cut still arrive.
    let path = &scenario.path;
    let late = 2 * (path.latency + path.jitter) + path.replay_after + 50_000_000;
    let slack = dead / 20 + late;
    let (begin, is_heard) = match expected {
        Expected::Survives => return Some("is given up although no fault lasts long".into()),
        Expected::Undetermined | Expected::MtuTooSmall => (None, false),
        Expected::Fails { begin, is_heard } => (Some(begin), is_heard),
    };
    // Whether neither side received from the other before the path was cut.
    let is_unknown = begin.is_some_and(|begin| {
        used.is_some_and(|used| used >= begin + late)
            && used_by_peer.is_none_or(|used| used >= begin + late)
    });
    let is_cause = match (expected, failure) {
        (_, Failure::Broken(_) | Failure::Left) => false,
        (Expected::MtuTooSmall, failure) => failure == Failure::Mtu(scenario.protocol.packet),
        // A replayed reply may arrive after full-sized packets have been unanswered for a long
        // time.
        (_, Failure::Mtu(_)) => path.replay > 0.0,
        (Expected::Fails { .. }, failure) if is_unknown => failure == Failure::Unreachable,
        _ => true,
    };
    if !is_cause {
        return Some("is given up for the wrong reason".into());
    }
    if let Failure::Silent(ms) = failure
        && ms + 1 < dead / 1_000_000
    {
        return Some("is given up too early".into());
    }
    // An idle link notices the fault after the keep-alive time. If its peer is still heard, the
    // peer's link has to end first.
    let bound = (if is_heard { 2 } else { 1 }) * (dead + dead / 4) + slack;
    let since = begin.map(|begin| begin.max(used.unwrap_or(0)));
    match since {
        // A link on which this rank has only received may have been opened at any time.
        Some(since) if used.is_some() && at > since + bound => Some(format!(
            "is given up {} ms too late",
            (at - since) / 1_000_000
        )),
        Some(since) if is_unknown && !is_heard && at + slack < since + dead => {
            Some("is given up too early".into())
        }
        _ => None,
    }
}
