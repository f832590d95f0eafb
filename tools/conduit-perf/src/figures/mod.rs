//! Conduit's figures and their limits, with a table of all figures and the jobs that measure them.

pub(crate) mod collective;
pub(crate) mod messages;
pub(crate) mod rma;

use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::compare::Comparison;
use crate::limits::{BULK_SIZES, MEDIUM_SIZES};

/// The jobs in which figures are measured. They are separate jobs because Conduit decides at start
/// how to wait, depending on whether ranks share cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Job {
    /// Two ranks on two cores.
    Pair,
    /// Two ranks on one core.
    OneCore,
    /// Eight ranks on two cores.
    Crowd,
}

impl Job {
    /// All jobs, in the order in which they run.
    pub const ALL: [Self; 3] = [Self::Pair, Self::OneCore, Self::Crowd];

    /// Returns the number of ranks.
    #[must_use]
    pub fn ranks(self) -> usize {
        match self {
            Self::Pair | Self::OneCore => 2,
            Self::Crowd => 8,
        }
    }

    /// Returns the maximum number of cores that the ranks use. They use fewer if the machine has
    /// fewer.
    #[must_use]
    pub fn cores(self) -> usize {
        match self {
            Self::Pair | Self::Crowd => 2,
            Self::OneCore => 1,
        }
    }
}

/// A function that builds a comparison for a size in bytes. It returns `None` if the settings do
/// not allow the size, or if the figure needs all ranks and some do not take part.
type Build = for<'b> fn(&'b Bench, usize) -> Option<Comparison<'b>>;

/// A line of the table.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) job: Job,
    /// The numbers of bytes per operation, each of which makes a separate figure.
    pub(crate) sizes: &'static [usize],
    pub(crate) build: Build,
}

const fn pair(name: &'static str, sizes: &'static [usize], build: Build) -> Entry {
    Entry {
        name,
        job: Job::Pair,
        sizes,
        build,
    }
}

const WORD: &[usize] = &[8];
const NONE: &[usize] = &[0];

/// All figures, in the order of measurement.
pub(crate) const ENTRIES: &[Entry] = &[
    pair("put", WORD, rma::put),
    pair("put-u64", WORD, rma::put_u64),
    pair("put-nb", WORD, rma::put_nb),
    pair("put-nbi", WORD, rma::put_nbi),
    pair("put-nbi-rate", WORD, rma::put_nbi_rate),
    pair("put-value", WORD, rma::put_value),
    pair("get", WORD, rma::get),
    pair("get-u64", WORD, rma::get_u64),
    pair("get-value", WORD, rma::get_value),
    pair("fetch-add", WORD, rma::fetch_add),
    pair("am-short-round-trip", NONE, messages::round_trip),
    pair("am-short-flood", NONE, messages::short_flood),
    pair("am-medium-flood", &MEDIUM_SIZES, messages::medium_flood),
    pair("am-long", &BULK_SIZES, messages::long_bandwidth),
    pair("put-bandwidth", &BULK_SIZES, rma::put_bandwidth),
    pair("get-bandwidth", &BULK_SIZES, rma::get_bandwidth),
    pair("barrier", NONE, collective::barrier),
    Entry {
        name: "one-core-am-round-trip",
        job: Job::OneCore,
        sizes: NONE,
        build: messages::one_core_round_trip,
    },
    Entry {
        name: "one-core-barrier",
        job: Job::OneCore,
        sizes: NONE,
        build: collective::one_core_barrier,
    },
    Entry {
        name: "crowd-barrier",
        job: Job::Crowd,
        sizes: NONE,
        build: collective::crowd_barrier,
    },
];

/// Returns the names of all figures.
pub fn names() -> impl Iterator<Item = &'static str> {
    ENTRIES.iter().map(|entry| entry.name)
}
