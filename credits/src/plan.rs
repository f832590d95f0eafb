//! The plan, which says what a rank lends, banks and allocates.

use crate::{EVENT_BYTES, Scale, Tuning, defaults};

/// The settings that replace defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overrides {
    /// Whether there is flow control at all (`GASNET_PORTAL_FLOW_CONTROL`). There is by default.
    pub flow_control: bool,
    /// The number of credits lent to each rank at the start (`GASNET_PORTAL_CRED_PER_NODE`).
    pub credits_per_peer: Option<u32>,
    /// The number of credits banked at the start (`GASNET_PORTAL_BANKED_CREDITS`).
    pub banked: Option<u32>,
    /// The number of bytes for all request buffers (`GASNET_PORTAL_AMRECV_SPACE`). Bytes that do
    /// not form a whole buffer are unused, and so are buffers whose credits could not be counted.
    pub receive_space: Option<u64>,
    /// The maximum number of credits lent to one rank (`GASNET_PORTAL_MAX_CRED_PER_NODE`). The
    /// default for dynamic credits is the larger of [`defaults::max_per_peer`] and the loan at the
    /// start. For static credits, there is no limit.
    pub max_per_peer: Option<u32>,
    /// Whether credits are dynamic (`GASNET_PORTAL_DYNAMIC_CREDITS`). If not, they are
    /// [static](crate::Static), and the bank is shared out evenly.
    pub dynamic: bool,
    /// The number of chunks in a request buffer.
    pub buffer_chunks: u32,
    /// The parameters of the dynamic algorithm. Its minimum and its maximum per peer are ignored:
    /// the minimum is the cost of a full medium, and the maximum follows from
    /// [`Overrides::max_per_peer`].
    pub tuning: Tuning,
    /// The number of request buffers that no credits cover. There must be one for each thread that
    /// may run request handlers concurrently. (The original has one, because only one thread at a
    /// time handles its queue of requests.)
    pub uncovered_buffers: u32,
}

impl Default for Overrides {
    fn default() -> Overrides {
        Overrides {
            flow_control: true,
            credits_per_peer: None,
            banked: None,
            receive_space: None,
            max_per_peer: None,
            dynamic: false,
            buffer_chunks: defaults::BUFFER_CHUNKS,
            tuning: Tuning::default(),
            uncovered_buffers: 1,
        }
    }
}

/// The credits that a rank lends and banks at the start, and the request buffers that they stand
/// for.
///
/// Credits stand for only `n − 1` chunks of a buffer of `n` chunks, because a buffer is unlinked as
/// soon as less than a chunk is left. A buffer is recycled only when all of its requests have been
/// processed, but the credits of the first ones may be back at their senders long before. Therefore
/// the plan adds buffers that no credits cover, one for each buffer that may be in processing.
///
/// A rank also lends credits to itself, because its requests to itself use the same buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    scale: Scale,
    ranks: u32,
    flow_control: bool,
    dynamic: bool,
    credits_per_peer: u16,
    tuning: Tuning,
    banked: u32,
    buffers: u32,
    buffer_chunks: u32,
}

/// The reason why the settings do not result in a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The job has no ranks.
    #[error("the job has no ranks")]
    NoRanks,
    /// A setting is outside of its range.
    #[error("{setting} is {value}, must be {min} to {max}")]
    OutOfRange {
        /// The name of the setting.
        setting: &'static str,
        /// The setting's value.
        value: u64,
        /// The smallest accepted value.
        min: u64,
        /// The largest accepted value.
        max: u64,
    },
    /// The receive space is too small for the credits to be lent and banked.
    #[error(
        "GASNET_PORTAL_AMRECV_SPACE is {given} bytes, the credits of {ranks} ranks need {needed}"
    )]
    SpaceTooSmall {
        /// The number of bytes given.
        given: u64,
        /// The number of bytes needed.
        needed: u64,
        /// The number of ranks in the job.
        ranks: u32,
    },
    /// There are more credits than can be counted.
    #[error("{ranks} ranks need {credits} credits, at most {max} can be counted")]
    TooManyCredits {
        /// The total number of credits.
        credits: u64,
        /// The number of ranks in the job.
        ranks: u32,
        /// The maximum number of credits.
        max: u64,
    },
}

impl Plan {
    /// Plans for a job of `ranks` ranks.
    ///
    /// The numbers of credits to lend and to bank come from [`defaults`] unless overridden. No peer
    /// is lent fewer than a full medium costs. If no receive space is given, the total is rounded
    /// up to whole buffers. If one is given, the total is the number of credits that the buffers in
    /// it hold. Defaults shrink to fit that total, but overrides do not. The rest of the total goes
    /// to the bank. With static credits, the bank is finally shared out evenly.
    ///
    /// # Errors
    /// Fails if a setting is out of range, or if the settings contradict each other.
    pub fn new(ranks: u32, scale: Scale, overrides: &Overrides) -> Result<Plan, PlanError> {
        if ranks == 0 {
            return Err(PlanError::NoRanks);
        }
        let least = u64::from(scale.full_cost());
        let most = u64::from(u16::MAX);
        in_range(
            "GASNET_PORTAL_MAX_CRED_PER_NODE",
            overrides.max_per_peer,
            least,
            most,
        )?;
        let limit = overrides.max_per_peer.map_or(most, u64::from);
        in_range(
            "GASNET_PORTAL_CRED_PER_NODE",
            overrides.credits_per_peer,
            least,
            limit,
        )?;
        in_range(
            "chunks per request buffer",
            Some(overrides.buffer_chunks),
            2,
            u64::from(u32::MAX),
        )?;
        in_range(
            "uncovered request buffers",
            Some(overrides.uncovered_buffers),
            1,
            most,
        )?;

        in_range(
            "GASNET_PORTAL_EPOCH_DURATION",
            Some(overrides.tuning.epoch),
            1,
            u64::from(u32::MAX),
        )?;

        let default = defaults::credits(ranks, scale);
        let mut per_peer =
            u64::from(overrides.credits_per_peer.unwrap_or(default.per_peer)).min(limit);
        let mut banked = u64::from(overrides.banked.unwrap_or(default.banked));
        let everyone = u64::from(ranks);

        let per_buffer = covered(scale, overrides.buffer_chunks);
        let uncovered = u64::from(overrides.uncovered_buffers);
        let buffer_bytes = u64::from(overrides.buffer_chunks) * u64::from(scale.chunk());
        let buffers = match overrides.receive_space {
            None => (per_peer * everyone + banked).div_ceil(per_buffer) + uncovered,
            Some(given) => {
                // The number of buffers is limited, so that their credits can be counted.
                let most = u64::from(u32::MAX) / per_buffer + uncovered;
                let buffers = (given / buffer_bytes).min(most);
                let total = buffers.saturating_sub(uncovered).saturating_mul(per_buffer);
                // Defaults shrink to fit the available space. The bank shrinks first.
                if overrides.banked.is_none() {
                    banked = banked.min(total.saturating_sub(per_peer * everyone));
                }
                if overrides.credits_per_peer.is_none() {
                    per_peer = per_peer
                        .min(total.saturating_sub(banked) / everyone)
                        .max(least);
                }
                let wanted = per_peer * everyone + banked;
                if wanted > total {
                    let needed =
                        (wanted.div_ceil(per_buffer) + uncovered).saturating_mul(buffer_bytes);
                    return Err(PlanError::SpaceTooSmall {
                        given,
                        needed,
                        ranks,
                    });
                }
                buffers
            }
        };

        let total = (buffers - uncovered).saturating_mul(per_buffer);
        let max = u64::from(u32::MAX);
        if total > max || buffers > max {
            return Err(PlanError::TooManyCredits {
                credits: total,
                ranks,
                max,
            });
        }
        if !overrides.dynamic {
            per_peer = (total / everyone).min(limit);
        }
        // The cast is lossless, because the result is at most `total`.
        let banked = (total - per_peer * everyone) as u32;
        let max_per_peer = match overrides.max_per_peer {
            None if overrides.dynamic => per_peer.max(defaults::max_per_peer(banked).into()),
            _ => limit,
        };
        Ok(Plan {
            scale,
            ranks,
            flow_control: overrides.flow_control,
            dynamic: overrides.dynamic,
            // The casts are lossless, because the checks above have bounded all values.
            credits_per_peer: per_peer as u16,
            tuning: Tuning {
                minimum: scale.full_cost().into(),
                max_per_peer: max_per_peer as u16,
                ..overrides.tuning
            },
            banked,
            buffers: buffers as u32,
            buffer_chunks: overrides.buffer_chunks,
        })
    }

    /// Returns the scale, which gives the cost of messages.
    #[must_use]
    pub const fn scale(&self) -> Scale {
        self.scale
    }

    /// Returns the number of ranks in the job.
    #[must_use]
    pub const fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns whether requests need credits at all.
    #[must_use]
    pub const fn flow_control(&self) -> bool {
        self.flow_control
    }

    /// Returns whether credits move with demand.
    #[must_use]
    pub const fn dynamic(&self) -> bool {
        self.dynamic
    }

    /// Returns the number of credits lent to each rank at the start.
    #[must_use]
    pub const fn credits_per_peer(&self) -> u16 {
        self.credits_per_peer
    }

    /// Returns the maximum number of credits that may be lent to one rank.
    #[must_use]
    pub const fn max_per_peer(&self) -> u16 {
        self.tuning.max_per_peer
    }

    /// Returns the parameters of the dynamic algorithm.
    #[must_use]
    pub const fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// Returns the number of credits in the bank at the start.
    #[must_use]
    pub const fn banked(&self) -> u32 {
        self.banked
    }

    /// Returns the total number of credits, lent and banked.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.credits_per_peer as u32 * self.ranks + self.banked
    }

    /// Returns the number of request buffers (ReqRB).
    #[must_use]
    pub const fn buffers(&self) -> u32 {
        self.buffers
    }

    /// Returns the number of bytes of one request buffer.
    #[must_use]
    pub const fn buffer_bytes(&self) -> u64 {
        self.buffer_chunks as u64 * self.scale.chunk() as u64
    }

    /// Returns the total number of bytes of all request buffers and of the events that the credits
    /// stand for.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        let events = self.total() as u64 * EVENT_BYTES as u64;
        (self.buffers as u64)
            .saturating_mul(self.buffer_bytes())
            .saturating_add(events)
    }
}

/// Returns the number of credits that one buffer of `chunks` chunks covers.
fn covered(scale: Scale, chunks: u32) -> u64 {
    u64::from(chunks - 1) * u64::from(scale.chunk()) / u64::from(scale.bytes_per_credit())
}

fn in_range(
    setting: &'static str,
    value: Option<u32>,
    min: u64,
    max: u64,
) -> Result<(), PlanError> {
    match value.map(u64::from) {
        Some(value) if !(min..=max).contains(&value) => Err(PlanError::OutOfRange {
            setting,
            value,
            min,
            max,
        }),
        _ => Ok(()),
    }
}
