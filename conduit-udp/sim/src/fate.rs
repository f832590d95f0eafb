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
            (Self::Ends { begin: a }, Self::Ends { begin: b }) => Self::Ends { begin: a.min(b) },
            (Self::Ends { begin }, Self::Either) | (Self::Either, Self::Ends { begin }) => Self::Ends { begin },
            (Self::Either, Self::Either) => Self::Either,
        }
    }
}

/// Of the link of `rank` to `peer`. `used`: when it was first used.
pub(crate) fn fate(scenario: &Scenario, rank: Rank, peer: Rank, used: Option<Nanos>) -> Fate {
    let dead = scenario.protocol.dead_time;
    let touches = |one: Rank| one == rank || one == peer;
    let outage = |begin: Nanos, end: Option<Nanos>| match end {
        None => Fate::Ends { begin },
        Some(end) if end - begin < dead => Fate::Lives,
        // In use before, it has been given up when the outage ends.
        Some(_) if used.is_some_and(|used| used <= begin) => Fate::Ends { begin },
        Some(_) => Fate::Either,
    };
    let of = |fault: &Fault| match *fault {
        Fault::BlackHole { from, to, begin, end } if touches(from) && touches(to) => outage(begin, end),
        Fault::LinkDown { rank: one, begin, end } if touches(one) => outage(begin, end),
        Fault::Asleep { rank: one, begin, end } if one == peer => outage(begin, end),
        Fault::Asleep { rank: one, begin, end } if one == rank => match outage(begin, end) {
            Fate::Lives => Fate::Lives,
            _ => Fate::Either,
        },
        Fault::SmallMtu { from, to, .. } if from == rank && to == peer => Fate::TooLarge,
        // Given up by the other side, it hears nothing.
        Fault::SmallMtu { from, to, .. } if from == peer && to == rank => Fate::Either,
        Fault::Restart { rank: one, at } if one == peer => Fate::Ends { begin: at },
        Fault::Restart { rank: one, at } if one == rank => Fate::Ends { begin: at },
        _ => Fate::Lives,
    };
    scenario.faults.iter().map(of).fold(Fate::Lives, Fate::and)
}

/// What is wrong with a failure, if something is. `used`, `used_data`: when the link was first used, and its data channel.
pub(crate) fn judge(
    scenario: &Scenario,
    fate: Fate,
    used: Option<Nanos>,
    at: Nanos,
    failure: Failure,
) -> Option<String> {
    let dead = scenario.protocol.dead_time;
    let slack = dead / 20 + 5_000_000;
    let begin = match fate {
        Fate::Lives => return Some("is given up, though nothing lasted for long".into()),
        Fate::Either | Fate::TooLarge => None,
        Fate::Ends { begin } => Some(begin),
    };
    let is_cause = match (fate, failure) {
        (_, Failure::Broken(_)) => false,
        (Fate::TooLarge, failure) => failure == Failure::Mtu(scenario.protocol.packet),
        (_, Failure::Mtu(_)) => false,
        // It cannot have been heard if the path was cut before; it may or may not have been if that was later.
        (Fate::Ends { begin }, failure) if used.is_some_and(|used| begin <= used) => failure == Failure::Unreachable,
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
    // An idle link notices after the keep-alive time.
    let since = begin.map(|begin| begin.max(used.unwrap_or(0)));
    match since {
        Some(since) if at > since + dead + dead / 4 + slack => Some(format!("is given up late, {} ms after that", (at - since) / 1_000_000)),
        Some(since) if at + slack < since + dead && used.is_some_and(|used| used >= since) => Some("is given up too early".into()),
        _ => None,
    }
}
