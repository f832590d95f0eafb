//! Samples of large sets of cases, for runs that have to be short.

use std::hash::{DefaultHasher, Hash, Hasher as _};

/// The variable that holds the seed of a sample. Without it every case runs.
pub const SEED: &str = "CONDUIT_TEST_SAMPLE";

/// The variable that selects a sample of the conformance suite's tests: `COUNT,SEED`.
pub const CASES: &str = "CONDUIT_TEST_CASES";

/// Keeps as many of these cases as the variable says, if it is set.
///
/// # Panics
/// If its value isn't two numbers.
pub fn draw<T>(cases: &mut Vec<T>) {
    let Ok(text) = std::env::var(CASES) else {
        return;
    };
    let (count, seed) = text.split_once(',').expect("COUNT,SEED");
    fastrand::Rng::with_seed(seed.parse().expect("a seed")).shuffle(cases);
    cases.truncate(count.parse().expect("a count"));
}

/// Returns how many random cases to run: one `parts`-th of them if samples are drawn.
pub fn share(cases: u32, parts: u32) -> u32 {
    match std::env::var_os(SEED) {
        Some(_) => cases.div_ceil(parts),
        None => cases,
    }
}

/// Returns whether a case is to run: one in `parts` is drawn. The same seed draws the same cases.
pub fn draws(case: impl Hash, parts: u64) -> bool {
    let Ok(seed) = std::env::var(SEED) else {
        return true;
    };
    let mut hasher = DefaultHasher::new();
    (seed, case).hash(&mut hasher);
    hasher.finish().is_multiple_of(parts)
}
