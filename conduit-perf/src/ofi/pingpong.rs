//! libfabric's own `fi_pingpong` beside the round trips of a job, where it is installed.

use std::path::PathBuf;

use crate::alternate::{Plan, Round, Tally};
use crate::figure::{Figure, Subject, Unit};
use crate::peers::tools::{fi_pingpong, on_path};
use crate::placement::{Cores, Placement};

use super::rows::MESSAGE;

/// Messages there and back in a reading.
const ROUND_TRIPS: u32 = 5000;

/// The program, and the cores of its two processes.
pub(super) struct Program {
    path: PathBuf,
    cores: [usize; 2],
}

impl Program {
    /// `None`, with a word, if it isn't installed.
    ///
    /// # Errors
    /// There are not two cores.
    pub(super) fn find() -> anyhow::Result<Option<Self>> {
        let Some(path) = on_path("fi_pingpong") else {
            eprintln!("fi_pingpong: not installed (Debian's package: libfabric-bin)");
            return Ok(None);
        };
        let allowed = Cores::allowed()?;
        let core = |rank| allowed.core(Placement::Apart, rank, 2);
        let cores = [core(0)?, core(1)?];
        Ok(Some(Self { path, cores }))
    }

    /// Seconds of a round trip with this provider.
    ///
    /// # Errors
    /// It fails.
    pub(super) fn seconds(&self, provider: &str) -> anyhow::Result<f64> {
        const LOOPBACK: &[(&str, &str)] = &[("FI_TCP_IFACE", "lo")];
        let kind = [provider, "rdm"];
        let one_way = fi_pingpong(&self.path, self.cores, kind, LOOPBACK, MESSAGE, ROUND_TRIPS)?;
        Ok(2e-6 * one_way)
    }
}

/// A job's round trip beside a round trip of so many seconds.
pub(super) fn beside(ours: &Figure, seconds: f64) -> Option<Figure> {
    let subject = Subject {
        // As many names as rows.
        name: ours.name.clone().leak(),
        size: ours.size,
        limit_name: "fi_pingpong",
        unit: Unit::Nanoseconds,
        target: None,
    };
    let mut tally = Tally::new(Plan {
        tolerance: f64::MAX,
        ..Plan::QUICK
    });
    tally.add(Round {
        before: seconds,
        figure: ours.value * 1e-9,
        after: seconds,
    });
    let outcome = tally.outcome(subject.unit)?;
    Some(Figure::new(&subject, ours.ranks, &outcome))
}
