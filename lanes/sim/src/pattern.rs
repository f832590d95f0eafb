//! Traffic patterns.

use clap::ValueEnum;
use sim::random::Rng;

use crate::DETAILED;

/// The traffic pattern of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// 8 partners have 90 % of the traffic; the rest goes to random ranks.
    FewHot,
    /// 8 partners have 90 % of the traffic; the rest is one message to each idle rank in turn, as
    /// in osu_mbw_mr.
    FewHotAndEachIdle,
    /// All ranks send to all others, round-robin.
    AllInTurn,
    /// All ranks send to all others, at random.
    AllAtRandom,
    /// 32 partners have 90 % of the traffic, and all ranks are equally fast.
    ManyEqual,
    /// 32 partners have 90 % of the traffic.
    Many,
    /// Half of all traffic goes to rank 0; 8 partners have 90 % of the rest.
    Hub,
    /// 8 partners have 90 % of the traffic, and change from time to time.
    Changing,
    /// As many partners as there are lanes have 90 % of the traffic, and change from time to time.
    AllChanging,
}

impl Pattern {
    /// Returns the pattern's name in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FewHot => "8 hot",
            Self::FewHotAndEachIdle => "8 hot, each idle one in turn",
            Self::AllInTurn => "all to all, in turn",
            Self::AllAtRandom => "all to all, at random",
            Self::ManyEqual => "32 equally hot",
            Self::Many => "32 hot",
            Self::Hub => "half to one rank, 8 hot",
            Self::Changing => "8 hot that change",
            Self::AllChanging => "16 hot that change",
        }
    }

    /// Returns the factor by which the slowest rank is slower than the fastest.
    pub(crate) fn slowest(self) -> u64 {
        match self {
            Self::ManyEqual => 1,
            _ => 8,
        }
    }

    /// Returns the share of traffic that 16 lanes per rank could carry if all ranks were equally
    /// fast.
    #[must_use]
    pub fn possible(self) -> f64 {
        match self {
            Self::FewHot | Self::FewHotAndEachIdle | Self::Changing | Self::AllChanging => 0.9,
            Self::AllInTurn | Self::AllAtRandom => 0.0,
            Self::ManyEqual | Self::Many | Self::Hub => 0.45,
        }
    }

    /// Returns whether partners change.
    pub(crate) fn changes(self) -> bool {
        matches!(self, Self::Changing | Self::AllChanging)
    }

    /// Returns the receiver of message number `message` of a rank. The rank's partners depend on
    /// `phase`.
    pub(crate) fn receiver(
        self,
        random: &mut Rng,
        rank: u32,
        ranks: u32,
        message: u64,
        phase: u32,
    ) -> u32 {
        let to = match self {
            Self::AllInTurn => return in_turn(rank, ranks, message),
            Self::AllAtRandom => return anyone(random, rank, ranks),
            Self::Hub if rank != 0 && random.bool() => return 0,
            _ if random.u32(..10) == 0 => match self {
                // About every tenth message gets here.
                Self::FewHotAndEachIdle => in_turn(rank, ranks, message / 10),
                _ => anyone(random, rank, ranks),
            },
            Self::ManyEqual | Self::Many => partner(random, rank, 16, 0),
            Self::AllChanging => partner(random, rank, 8, phase),
            _ => partner(random, rank, 4, phase),
        };
        if to == rank { (to + 1) % ranks } else { to }
    }
}

fn in_turn(rank: u32, ranks: u32, message: u64) -> u32 {
    // The cast is lossless, because the remainder is below `ranks`.
    (rank + 1 + (message % u64::from(ranks - 1)) as u32) % ranks
}

fn anyone(random: &mut Rng, rank: u32, ranks: u32) -> u32 {
    (rank + random.u32(1..ranks)) % ranks
}

/// Returns a random partner of a rank: one of `each` consecutive ranks on either side of it in a
/// ring of the simulated ranks. Eight successive phases have different partners.
fn partner(random: &mut Rng, rank: u32, each: u32, phase: u32) -> u32 {
    let distance = 1 + phase % 8 * each + random.u32(..each);
    let distance = match random.bool() {
        true => distance,
        false => DETAILED - distance,
    };
    (rank + distance) % DETAILED
}
