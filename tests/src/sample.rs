//! Samples of large sets of test cases, for runs that must be short.

use std::hash::{DefaultHasher, Hash, Hasher as _};

/// The environment variable that holds the seed of a sample. If it isn't set, every case runs.
pub const SEED: &str = "CONDUIT_TEST_SAMPLE";

/// The environment variable that selects a sample of the conformance suite's tests. Its value has
/// the form `COUNT,SEED`.
pub const CASES: &str = "CONDUIT_TEST_CASES";

/// Keeps only as many of these cases as [`CASES`] says, if that variable is set.
///
/// # Panics
/// If the variable's value isn't two numbers.
pub fn draw<T>(cases: &mut Vec<T>) {
    let Ok(text) = std::env::var(CASES) else {
        return;
    };
    let (count, seed) = text.split_once(',').expect("COUNT,SEED");
    fastrand::Rng::with_seed(seed.parse().expect("a seed")).shuffle(cases);
    cases.truncate(count.parse().expect("a count"));
}

/// Returns how many random cases to run: `cases`, or one `parts`-th of it if samples are drawn.
pub fn share(cases: u32, parts: u32) -> u32 {
    match std::env::var_os(SEED) {
        Some(_) => cases.div_ceil(parts),
        None => cases,
    }
}

/// Returns whether a case runs. If samples are drawn, one in `parts` cases does. The same seed
/// draws the same cases.
pub fn draws(case: impl Hash, parts: u64) -> bool {
    let Ok(seed) = std::env::var(SEED) else {
        return true;
    };
    let mut hasher = DefaultHasher::new();
    (seed, case).hash(&mut hasher);
    hasher.finish().is_multiple_of(parts)
}
