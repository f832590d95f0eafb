//! The configuration of a simulation.

use credits::{
    Dynamic, FlowControl, Growth, Overrides, Peer, Plan, Scale, Sparse, Static, Tuning, defaults,
};
use serde::{Serialize, Serializer};

use crate::{Load, Pattern, Timing};

/// The maximum number of ranks in a simulated job.
pub const MAX_RANKS: u32 = 1_000_000;

/// The number of bytes of the original's chunk, which is the body of a full medium.
pub const CHUNK: u32 = 1024;

/// The default number of steps of each rotation that are simulated without flow control.
pub const REFERENCE_STEPS: u32 = 3;

/// The scheme by which credits are lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "name", rename_all = "lowercase")]
pub enum Scheme {
    /// No flow control.
    Unlimited,
    /// The same number of credits for all peers, for the whole job.
    Static {
        /// The number of credits lent to each rank.
        credits: u16,
    },
    /// Credits that move with demand.
    Dynamic {
        /// The number of credits lent to each rank at the start.
        credits: u16,
        /// The number of credits banked at the start.
        banked: u32,
        /// The parameters of the dynamic algorithm.
        #[serde(with = "TuningFields")]
        tuning: Tuning,
    },
}

#[derive(Serialize)]
#[serde(remote = "Tuning")]
struct TuningFields {
    minimum: u16,
    max_per_peer: u16,
    epoch: u32,
    revoke_limit: u16,
    lender_limit: u16,
    scavenge: u32,
    revokes_per_epoch: u32,
    #[serde(with = "GrowthNames")]
    growth: Growth,
    hold: bool,
}

#[derive(Serialize)]
#[serde(remote = "Growth", rename_all = "lowercase")]
enum GrowthNames {
    Missing,
    Doubling,
}

impl Scheme {
    /// Returns the number of credits lent to each rank at the start, or `None` without flow
    /// control.
    #[must_use]
    pub fn credits(&self) -> Option<u16> {
        match *self {
            Scheme::Unlimited => None,
            Scheme::Static { credits } | Scheme::Dynamic { credits, .. } => Some(credits),
        }
    }

    pub(crate) fn tuning(&self) -> Tuning {
        match *self {
            Scheme::Dynamic { tuning, .. } => tuning,
            _ => Tuning::default(),
        }
    }

    /// Returns the total number of a rank's credits in a job of `ranks` ranks, or `None` without
    /// flow control.
    #[must_use]
    pub fn total(&self, ranks: u32) -> Option<u64> {
        match *self {
            Scheme::Unlimited => None,
            Scheme::Static { credits } => Some(u64::from(credits) * u64::from(ranks)),
            Scheme::Dynamic {
                credits, banked, ..
            } => Some(u64::from(credits) * u64::from(ranks) + u64::from(banked)),
        }
    }
}

/// The configuration of a run of the simulator. The same configuration gives the same result with
/// any number of threads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    /// The number of ranks in the job.
    pub ranks: u32,
    /// The cost of messages.
    #[serde(rename = "chunk", serialize_with = "chunk")]
    pub scale: Scale,
    /// The scheme by which credits are lent.
    pub scheme: Scheme,
    /// The pattern of the traffic.
    pub pattern: Pattern,
    /// The amount of traffic.
    pub load: Load,
    /// The durations of all actions.
    pub timing: Timing,
    /// The number of sets of partners, which follow one another.
    pub rotations: u32,
    /// The number of steps with each set of partners.
    pub steps: u32,
    /// The seed of all random choices.
    pub seed: u64,
    /// The number of steps of each rotation that are also simulated without flow control, for
    /// comparison. (These steps differ only by chance.) With 0, there is no comparison.
    pub reference: u32,
    /// The number of threads of the simulation.
    #[serde(skip)]
    pub threads: usize,
}

fn chunk<S: Serializer>(scale: &Scale, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u32(scale.chunk())
}

/// A configuration that cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A number is out of its range.
    #[error("{setting} is {value}, must be {must}")]
    OutOfRange {
        /// The setting.
        setting: &'static str,
        /// The setting's value.
        value: f64,
        /// The accepted values.
        must: &'static str,
    },
    /// A peer is lent fewer credits than a request needs, so such a request could never be sent.
    #[error(
        "{credits} credits per peer are too few: a request of this pattern needs {cost}, a full medium {full}"
    )]
    TooFewCredits {
        /// The number of credits lent to each rank.
        credits: u16,
        /// The number of credits for a request.
        cost: u8,
        /// The number of credits for a full medium.
        full: u8,
    },
    /// There are more credits than can be counted.
    #[error("a rank has {total} credits, at most {} can be counted", u32::MAX)]
    TooManyCredits {
        /// The total number of a rank's credits.
        total: u64,
    },
    /// The credits do not result in a plan of buffers.
    #[error(transparent)]
    Plan(#[from] credits::PlanError),
}

impl Config {
    /// Creates the default configuration of a pattern, with chunks of [`CHUNK`] and the default
    /// credits for a job of this size.
    #[must_use]
    pub fn new(ranks: u32, pattern: Pattern) -> Config {
        let scale = Scale::for_chunk(CHUNK).expect("the original's chunk makes a scale");
        Config::with_scale(ranks, pattern, scale)
    }

    /// Creates the default configuration of a pattern with the chunks of a scale.
    #[must_use]
    pub fn with_scale(ranks: u32, pattern: Pattern, scale: Scale) -> Config {
        let default = defaults::credits(ranks, scale);
        // The cast is lossless, because the number is at most 8,192.
        let credits = default.per_peer as u16;
        Config {
            ranks,
            scale,
            scheme: Scheme::Dynamic {
                credits,
                banked: default.banked,
                tuning: Tuning {
                    minimum: scale.full_cost().into(),
                    max_per_peer: defaults::max_per_peer(default.banked).max(credits),
                    ..Tuning::SHIPPED
                },
            },
            pattern,
            load: Load::default_for(pattern, ranks),
            timing: Timing::default(),
            rotations: 2,
            steps: 10,
            seed: 1,
            reference: REFERENCE_STEPS,
            threads: 1,
        }
    }

    /// Returns the number of credits that a request costs.
    pub(crate) fn cost(&self) -> u8 {
        let bytes = u32::from(self.load.cost) * Scale::LEAST_BYTES;
        // The cast is lossless: a larger credit never makes the number larger, so it is at most
        // `load.cost`, a `u8`.
        bytes.div_ceil(self.scale.bytes_per_credit()) as u8
    }

    /// Returns the memory that a rank needs for its credits, or `None` without flow control.
    #[must_use]
    pub fn space(&self) -> Option<Space> {
        let banked = match self.scheme {
            Scheme::Dynamic { banked, .. } => banked,
            _ => 0,
        };
        let credits = self.scheme.credits()?;
        Some(Space::new(self.ranks, self.scale, credits, banked))
    }

    /// Checks that the configuration can be simulated.
    ///
    /// # Errors
    /// Returns an error for the first value that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let in_range = |setting, value: u64, most: u64, must| {
            if (1..=most).contains(&value) {
                return Ok(());
            }
            Err(ConfigError::OutOfRange {
                setting,
                value: value as f64,
                must,
            })
        };
        in_range(
            "the number of ranks",
            self.ranks.into(),
            MAX_RANKS.into(),
            "1 to 1000000",
        )?;
        in_range(
            "the number of rotations",
            self.rotations.into(),
            10_000,
            "1 to 10000",
        )?;
        in_range(
            "the number of steps",
            self.steps.into(),
            100_000,
            "1 to 100000",
        )?;
        in_range(
            "the number of threads",
            self.threads as u64,
            1024,
            "1 to 1024",
        )?;
        self.timing.check()?;
        self.load.check(self.ranks)?;
        let Some(credits) = self.scheme.credits() else {
            return Ok(());
        };
        let (full, cost) = (self.scale.full_cost(), self.cost());
        if credits < u16::from(full.max(cost)) {
            return Err(ConfigError::TooFewCredits {
                credits,
                cost,
                full,
            });
        }
        if let Scheme::Dynamic { tuning, .. } = self.scheme {
            let least = u16::from(full.max(cost));
            in_range(
                "the epoch",
                tuning.epoch.into(),
                u32::MAX.into(),
                "at least 1 request",
            )?;
            if tuning.minimum < least || tuning.minimum > credits {
                return Err(ConfigError::OutOfRange {
                    setting: "the minimum per peer",
                    value: tuning.minimum.into(),
                    must: "what a request costs to what is lent at the start",
                });
            }
            if tuning.max_per_peer < credits {
                return Err(ConfigError::OutOfRange {
                    setting: "the maximum per peer",
                    value: tuning.max_per_peer.into(),
                    must: "at least what is lent at the start",
                });
            }
        }
        let total = self.scheme.total(self.ranks).unwrap_or(0);
        if total > u64::from(u32::MAX) {
            return Err(ConfigError::TooManyCredits { total });
        }
        Ok(())
    }
}

/// The memory of the request buffers and events for which credits stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Space {
    /// The number of all credits of a rank.
    pub credits: u64,
    /// The number of bytes of buffers for these credits, plus an event of 128 bytes for each
    /// credit.
    pub bytes: u64,
    /// The number of bytes if the buffers are rounded up to whole ones and the one without credits
    /// is included, or `None` if a job cannot have that many credits.
    pub allocated: Option<u64>,
}

impl Space {
    /// Computes the space of a rank in a job of `ranks` ranks that lends `per_peer` and banks
    /// `banked`.
    #[must_use]
    pub fn new(ranks: u32, scale: Scale, per_peer: u16, banked: u32) -> Space {
        let credits = u64::from(per_peer) * u64::from(ranks) + u64::from(banked);
        let overrides = Overrides {
            credits_per_peer: Some(per_peer.into()),
            banked: Some(banked),
            max_per_peer: Some(u16::MAX.into()),
            dynamic: true,
            ..Overrides::default()
        };
        Space {
            credits,
            bytes: credits * u64::from(scale.space_per_credit()),
            allocated: Plan::new(ranks, scale, &overrides)
                .ok()
                .map(|plan| plan.bytes()),
        }
    }
}

/// A flow control that can be simulated, because it reports its loans.
pub(crate) trait Subject: FlowControl + Send {
    /// Returns the number of credits lent to a peer, or `None` without flow control.
    fn loan(&self, peer: u32) -> Option<u32>;

    /// Returns the number of peers whose state the flow control keeps, or `None` if it is unknown.
    fn peers_kept(&self) -> Option<u64>;
}

impl Subject for credits::Unlimited {
    fn loan(&self, _peer: u32) -> Option<u32> {
        None
    }

    fn peers_kept(&self) -> Option<u64> {
        Some(0)
    }
}

impl Subject for Static<Sparse<credits::Loan>> {
    fn loan(&self, peer: u32) -> Option<u32> {
        // A loan is the same for all peers and in both directions.
        Some(self.available(peer) + self.in_flight(peer))
    }

    fn peers_kept(&self) -> Option<u64> {
        None
    }
}

impl Subject for Dynamic<Sparse<Peer>> {
    fn loan(&self, peer: u32) -> Option<u32> {
        Some(self.peer_state(peer).loan.into())
    }

    fn peers_kept(&self) -> Option<u64> {
        Some(self.store().used() as u64)
    }
}
