//! The values that settings have in a job of a given size.

use std::time::Duration;

use credits::{Growth, Overrides, Plan, PlanError, Scale, Tuning};
use settings::{Groups as _, Value};

use super::Settings;

/// Minimum number of chunks in a request buffer.
const LEAST_CHUNKS: u32 = 8;
/// Maximum number of request buffers. If there are more credits, the buffers are larger instead.
/// Networks have 4,096 match entries, of which each buffer needs one.
const MOST_BUFFERS: u32 = 2048;
/// Minimum number of request buffers in a given space, if the space allows it. One of the buffers
/// is not covered by credits.
const FEW_BUFFERS: usize = 8;

/// The values, in a job of a given size, of the settings that depend on the size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InJob {
    /// The credits that each rank lends and banks, and the buffers that it allocates.
    pub plan: Plan,
    /// The time for which an exiting rank waits for the others.
    pub exit_wait: Duration,
}

/// The error for settings that are valid in themselves but with which a job of this size can't run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("setting {name}: {reason} (in a job of {ranks} ranks)")]
pub struct InJobError {
    /// The invalid setting, or the first one that the user should check.
    pub name: &'static str,
    /// The number of ranks in the job.
    pub ranks: u32,
    /// The reason.
    pub reason: String,
}

impl Settings {
    /// Returns the values of the settings in a job of `ranks` ranks.
    ///
    /// # Errors
    /// Same as [`credit_plan`](Self::credit_plan).
    pub fn in_job(&self, ranks: u32) -> Result<InJob, InJobError> {
        Ok(InJob {
            plan: self.credit_plan(ranks)?,
            exit_wait: self.exit_wait(ranks),
        })
    }

    /// Returns the credits and buffers of each rank in a job of `ranks` ranks. All ranks compute
    /// the same plan, because it depends only on settings that are the same on all ranks.
    ///
    /// # Errors
    /// If there are no ranks, the chunk size yields no credits, or credit settings contradict each
    /// other in a job of this size.
    pub fn credit_plan(&self, ranks: u32) -> Result<Plan, InJobError> {
        let refused = |name, reason| InJobError {
            name,
            ranks,
            reason,
        };
        let scale = u32::try_from(self.chunk_bytes())
            .map_err(|_| "larger than 4 GiB".to_owned())
            .and_then(|chunk| Scale::for_chunk(chunk).map_err(|error| error.to_string()))
            .map_err(|reason| refused("CONDUIT_CHUNK", reason))?;
        // With fewer credits, a rank could not send a full medium.
        let sendable = |credits: u32| credits.max(scale.full_cost().into());
        let mut overrides = Overrides {
            flow_control: self.flow_control,
            credits_per_peer: self.cred_per_node.map(sendable),
            banked: self.banked_credits,
            receive_space: self.amrecv_space.map(|bytes| bytes as u64),
            max_per_peer: self.max_cred_per_node.map(sendable),
            buffer_chunks: self.buffer_chunks(scale.chunk()),
            dynamic: self.dynamic_credits,
            tuning: Tuning {
                epoch: self.epoch_duration,
                // The casts are lossless: both values are within the ranges in the settings table.
                revoke_limit: self.revoke_limit as u16,
                lender_limit: self.lender_limit as u16,
                scavenge: self.num_scavenge,
                revokes_per_epoch: match self.credit_revokes {
                    0 => u32::MAX,
                    most => most,
                },
                growth: match self.credit_doubling {
                    true => Growth::Doubling,
                    false => Growth::Missing,
                },
                hold: self.credit_hold,
                ..Tuning::default()
            },
            ..Overrides::default()
        };
        let mut plan = Plan::new(ranks, scale, &overrides);
        let buffers = plan.as_ref().map_or(0, Plan::buffers);
        if buffers > MOST_BUFFERS {
            overrides.buffer_chunks *= buffers.div_ceil(MOST_BUFFERS);
            plan = Plan::new(ranks, scale, &overrides);
        }
        plan.map_err(|error| {
            let mut reason = error.to_string();
            let name = match error {
                PlanError::OutOfRange { setting, .. } if setting.starts_with("GASNET_") => setting,
                PlanError::SpaceTooSmall { .. } => {
                    let credits = [
                        "GASNET_PORTAL_CRED_PER_NODE",
                        "GASNET_PORTAL_BANKED_CREDITS",
                    ];
                    for name in credits.into_iter().filter(|name| self.is_set(name)) {
                        reason = format!("{reason}, by {name}");
                    }
                    "GASNET_PORTAL_AMRECV_SPACE"
                }
                _ => "GASNET_PORTAL_CRED_PER_NODE",
            };
            refused(name, reason)
        })
    }

    /// Returns the size of a ReqSB or RplSB chunk in bytes: [`chunk`](Self::chunk) rounded up to
    /// whole cache lines.
    #[must_use]
    pub fn chunk_bytes(&self) -> usize {
        self.chunk.next_multiple_of(64)
    }

    /// Returns the maximum number of requests that a poll takes.
    #[inline]
    pub(crate) fn most_requests(&self) -> u32 {
        unless_zero(self.am_limit)
    }

    /// Returns the maximum number of completions and replies that a poll takes.
    #[inline]
    pub(crate) fn most_completions(&self) -> u32 {
        unless_zero(self.safe_limit)
    }

    /// Returns the maximum number of system messages that a poll takes.
    #[inline]
    pub(crate) fn most_system_messages(&self) -> u32 {
        unless_zero(self.sys_limit)
    }

    /// Returns the number of chunks of `chunk` bytes in a request buffer. If a receive space is set
    /// but no buffer size, the number is small enough for the space to hold several buffers.
    fn buffer_chunks(&self, chunk: u32) -> u32 {
        let bytes = match self.amrecv_space {
            Some(space) if !self.is_set("CONDUIT_REQUEST_BUFFER") => {
                self.request_buffer.min(space / FEW_BUFFERS)
            }
            _ => self.request_buffer,
        };
        // The cast is lossless: the value is within the range in the settings table.
        (bytes as u32 / chunk).clamp(LEAST_CHUNKS, credits::defaults::BUFFER_CHUNKS)
    }
}

impl InJob {
    /// Returns the value that a setting has in the job, or `None` if the setting does not depend on
    /// the job's size.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<Value> {
        let plan = &self.plan;
        let value = match name {
            "GASNET_PORTAL_CRED_PER_NODE" => Value::Integer(plan.credits_per_peer().into()),
            "GASNET_PORTAL_MAX_CRED_PER_NODE" => Value::Integer(plan.max_per_peer().into()),
            "GASNET_PORTAL_BANKED_CREDITS" => Value::Integer(plan.banked()),
            "GASNET_PORTAL_AMRECV_SPACE" => {
                Value::Bytes(u64::from(plan.buffers()).saturating_mul(plan.buffer_bytes()))
            }
            // The setting is in whole seconds, so fractions are rounded up.
            "CONDUIT_EXIT_TIMEOUT" => {
                let seconds = self.exit_wait.as_millis().div_ceil(1000);
                Value::Integer(u32::try_from(seconds).unwrap_or(u32::MAX))
            }
            _ => return None,
        };
        Some(value)
    }
}

/// Returns a limit, in which 0 stands for no limit.
#[inline]
fn unless_zero(limit: u32) -> u32 {
    match limit {
        0 => u32::MAX,
        limit => limit,
    }
}
