//! Samples of large sets of cases, for runs that have to be short.

use std::hash::{DefaultHasher, Hash, Hasher as _};

/// The variable whose value is the seed of a sample. Without it every case is run.
pub const SEED: &str = "CONDUIT_TEST_SAMPLE";

/// How many of random cases are run: one of so many `parts` where samples are drawn.
pub fn share(cases: u32, parts: u32) -> u32 {
    match std::env::var_os(SEED) {
        Some(_) => cases.div_ceil(parts),
        None => cases,
    }
}

/// Whether a case is run: one of so many `parts` is drawn. The same seed draws the same cases.
pub fn draws(case: impl Hash, parts: u64) -> bool {
    let Ok(seed) = std::env::var(SEED) else {
        return true;
    };
    let mut hasher = DefaultHasher::new();
    (seed, case).hash(&mut hasher);
    hasher.finish().is_multiple_of(parts)
}
