//! The benefit and the cost of flow control, measured in alternating jobs with dynamic credits,
//! with static credits, and without flow control.

pub mod cost;
pub mod patterns;

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::alternate;
use crate::job::{Order, run_ranks};

/// The kind of flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// No flow control, which is the baseline for the other kinds.
    Unlimited,
    /// Static credits, which are distributed once.
    Static,
    /// Dynamic credits, which move between peers.
    Dynamic,
}

impl Policy {
    const ALL: [Policy; 3] = [Policy::Unlimited, Policy::Static, Policy::Dynamic];

    fn settings(self) -> [(&'static str, &'static str); 2] {
        let (flow_control, dynamic) = match self {
            Policy::Unlimited => ("0", "0"),
            Policy::Static => ("1", "0"),
            Policy::Dynamic => ("1", "1"),
        };
        [
            ("GASNET_PORTAL_FLOW_CONTROL", flow_control),
            ("GASNET_PORTAL_DYNAMIC_CREDITS", dynamic),
        ]
    }
}

/// The distribution of the ratios of jobs' speeds to the speeds of neighbouring jobs without flow
/// control.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Ratios {
    /// The median of the ratios.
    pub(crate) ratio: f64,
    /// The first quartile.
    pub(crate) quarter: f64,
    /// The third quartile.
    pub(crate) three_quarters: f64,
}

impl Ratios {
    pub(crate) fn of(mut ratios: Vec<f64>) -> Self {
        ratios.sort_by(f64::total_cmp);
        // The quantile is NaN if there are no ratios.
        let quantile = |part: f64| {
            let at = (ratios.len() as f64 * part) as usize;
            ratios.get(at).copied().unwrap_or(f64::NAN)
        };
        Self {
            ratio: median(&ratios),
            quarter: quantile(0.25),
            three_quarters: quantile(0.75),
        }
    }
}

/// Runs one job and returns the result of its rank 0.
fn job<F: DeserializeOwned + Send + 'static>(
    ranks: u32,
    policy: Policy,
    order: &Order,
    settings: &[(&str, String)],
) -> anyhow::Result<F> {
    let mut found = None;
    let mut environment = policy.settings().to_vec();
    environment.extend(settings.iter().map(|(name, value)| (*name, &**value)));
    run_ranks(ranks as usize, usize::MAX, order, &environment, |word| {
        found = Some(word);
    })
    .with_context(|| format!("{policy:?}, {order:?}"))?;
    found.context("rank 0 reported nothing")
}

/// Returns the [median](alternate::median), or NaN if there are no values.
pub(crate) fn median(values: &[f64]) -> f64 {
    alternate::median(values).unwrap_or(f64::NAN)
}
