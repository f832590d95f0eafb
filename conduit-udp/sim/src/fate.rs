//! What has to become of a link, by what is done to it.

use conduit_core::ni::Rank;
use conduit_udp::protocol::{Failure, Nanos};

use crate::scenario::{Fault, Scenario};

/// What has to become of one rank's link to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Everything arrives, nobody is given up.
    Lives,
    /// Whatever; but not nothing.
    Either,
    /// The peer is given up if the link has been used before or is used later.
    Ends {
        /// From then on nothing comes back.
        begin: Nanos,
        /// But the peer may still be heard: it notices sooner, and only its silence ends an idle link.
        is_heard: bool,
    },
    /// The peer is given up because of the path's MTU, if more than tiny fragments are sent.
    TooLarge,
}

impl Fate {
    /// The worse of two.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Lives, fate) | (fate, Self::Lives) => fate,
            (Self::TooLarge, _) | (_, Self::TooLarge) => Self::TooLarge,
            (
                Self::Ends {
                    begin: a,
                    is_heard: c,
                },
                Self::Ends {
                    begin: b,
                    is_heard: d,
                },
            ) => Self::Ends {
                begin: a.min(b),
                is_heard: c && d,
            },
            (ends @ Self::Ends { .. }, Self::Either) | (Self::Either, ends @ Self::Ends { .. }) => {
                ends
            }
            (Self::Either, Self::Either) => Self::Either,
        }
    }
}

/// Of the link of `rank` to `peer`. `used`: when it was first used.
pub(crate) fn fate(scenario: &Scenario, rank: Rank, peer: Rank, used: Option<Nanos>) -> Fate {
    let dead = scenario.protocol.dead_time;
    let touches = |one: Rank| one == rank || one == peer;
    let outage = |begin: Nanos, end: Option<Nanos>| match end {
        None => Fate::Ends {
            begin,
            is_heard: false,
        },
        Some(end) if end - begin < dead => Fate::Lives,
        // In use before, it has been given up when the outage ends.
        Some(_) if used.is_some_and(|used| used <= begin) => Fate::Ends {
            begin,
            is_heard: false,
        },
        Some(_) => Fate::Either,
    };
    let of = |fault: &Fault| match *fault {
        Fault::BlackHole {
            from,
            to,
            begin,
            end,
        } if touches(from) && touches(to) => match outage(begin, end) {
            Fate::Ends { begin, .. } => Fate::Ends {
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
            Fate::Lives => Fate::Lives,
            _ => Fate::Either,
        },
        Fault::SmallMtu { from, to, .. } if from == rank && to == peer => Fate::TooLarge,
        // Given up by the other side, it hears nothing.
        Fault::SmallMtu { from, to, .. } if from == peer && to == rank => Fate::Either,
        Fault::Restart { rank: one, at } if touches(one) => Fate::Ends {
            begin: at,
            is_heard: false,
        },
        _ => Fate::Lives,
    };
    scenario.faults.iter().map(of).fold(Fate::Lives, Fate::and)
}

/// What is wrong with a failure, if something is. `used`: when the link was first used, and when its peer first used it.
pub(crate) fn judge(
    scenario: &Scenario,
    fate: Fate,
    used: [Option<Nanos>; 2],
    at: Nanos,
    failure: Failure,
) -> Option<String> {
    let dead = scenario.protocol.dead_time;
    let [used, used_by_peer] = used;
    // What is under way, or kept by somebody, when a path is cut, still arrives.
    let path = &scenario.path;
    let late = 2 * (path.latency + path.jitter) + path.replay_after + 50_000_000;
    let slack = dead / 20 + late;
    let (begin, is_heard) = match fate {
        Fate::Lives => return Some("is given up, though nothing lasted for long".into()),
        Fate::Either | Fate::TooLarge => (None, false),
        Fate::Ends { begin, is_heard } => (Some(begin), is_heard),
    };
    // Neither has heard of the other before the path was cut.
    let is_unknown = begin.is_some_and(|begin| {
        used.is_some_and(|used| used >= begin + late)
            && used_by_peer.is_none_or(|used| used >= begin + late)
    });
    let is_cause = match (fate, failure) {
        (_, Failure::Broken(_)) => false,
        (Fate::TooLarge, failure) => failure == Failure::Mtu(scenario.protocol.packet),
        // An answer that somebody has kept may come when full-sized packets have not been answered for long.
        (_, Failure::Mtu(_)) => path.replay > 0.0,
        (Fate::Ends { .. }, failure) if is_unknown => failure == Failure::Unreachable,
        _ => true,
    };
    if !is_cause {
        return Some("is given up for a wrong reason".into());
    }
    if let Failure::Silent(ms) = failure
        && ms + 1 < dead / 1_000_000
    {
        return Some("is given up too early".into());
    }
    // An idle link notices after the keep-alive time; that of its peer must have ended before, as long as it is heard.
    let bound = (if is_heard { 2 } else { 1 }) * (dead + dead / 4) + slack;
    let since = begin.map(|begin| begin.max(used.unwrap_or(0)));
    match since {
        // A link that was only heard of may have been opened at any time.
        Some(since) if used.is_some() && at > since + bound => Some(format!(
            "is given up late, {} ms after that",
            (at - since) / 1_000_000
        )),
        Some(since) if is_unknown && !is_heard && at + slack < since + dead => {
            Some("is given up too early".into())
        }
        _ => None,
    }
}
