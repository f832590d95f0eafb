//! What flow control does for a job and what it costs: jobs with credits that move, with credits shared out once, and
//! without flow control, in turn.

pub mod cost;
pub mod patterns;

use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, ensure};
use conduit_run::{Launch, Stream};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::alternate;

/// The environment variable that makes a process a rank of such a job.
const ORDER: &str = "CREDITS_OF_CONDUIT_PERF";

/// Flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// None: what the others are compared with.
    Unlimited,
    /// Credits shared out once.
    Static,
    /// Credits that move.
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

/// What the ranks of a job do.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Order {
    Patterns(patterns::Work),
    Flood(cost::Flood),
}

/// What a rank of such a job does instead of `main`; `None` if this process is not one.
#[must_use]
pub fn rank_main() -> Option<anyhow::Result<()>> {
    let order = std::env::var_os(ORDER)?;
    Some(be_rank(&order.to_string_lossy()))
}

fn be_rank(order: &str) -> anyhow::Result<()> {
    let found = match serde_json::from_str(order).context(ORDER)? {
        Order::Patterns(work) => serde_json::to_string(&patterns::run_rank(&work)?)?,
        Order::Flood(flood) => serde_json::to_string(&cost::run_rank(&flood)?)?,
    };
    println!("{found}");
    Ok(())
}

/// Runs one job; what its rank 0 has found.
fn job<F: DeserializeOwned + Send + 'static>(
    ranks: u32,
    policy: Policy,
    order: &Order,
    settings: &[(&str, String)],
) -> anyhow::Result<F> {
    let (sender, receiver) = mpsc::channel();
    let mut launch = Launch::new(ranks as usize, std::env::current_exe()?)
        .env(ORDER, serde_json::to_string(order)?)
        .timeout(Some(Duration::from_secs(1200)))
        .quiet(true)
        .output(move |rank, stream, line| {
            match (stream, serde_json::from_slice::<Option<F>>(line)) {
                // The receiver is there as long as the job.
                (Stream::Stdout, Ok(Some(found))) => drop(sender.send(found)),
                (Stream::Stdout, Ok(None)) => {}
                _ => eprintln!("[{rank}] {}", String::from_utf8_lossy(line)),
            }
        });
    for (name, value) in policy.settings() {
        launch = launch.env(name, value);
    }
    for (name, value) in settings {
        launch = launch.env(name, value);
    }
    let outcome = launch.run()?;
    ensure!(
        outcome.exit_code == 0,
        "a job of {ranks} ranks ({policy:?}, {order:?}) failed: {}",
        outcome.how
    );
    receiver.try_recv().context("rank 0 said nothing")
}

/// The [median](alternate::median); not a number of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    alternate::median(values).unwrap_or(f64::NAN)
}

/// The value that a part of the values, which are sorted, is below; not a number of none.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = (sorted.len() as f64 * part) as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}
