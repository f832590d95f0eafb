//! Samples of large sets of cases, for runs that have to be short.

use std::hash::{DefaultHasher, Hash, Hasher as _};

/// The variable whose value is the seed of a sample. Without it every case is run.
pub const SEED: &str = "CONDUIT_TEST_SAMPLE";

/// The variable by which tests of the conformance suite are drawn: `COUNT,SEED`.
pub const CASES: &str = "CONDUIT_TEST_CASES";

/// Leaves as many of these as the variable says, if it is set.
///
/// # Panics
/// It is not two numbers.
pub fn draw<T>(cases: &mut Vec<T>) {
    let Ok(text) = std::env::var(CASES) else {
        return;
    };
    let (count, seed) = text.split_once(',').expect("COUNT,SEED");
    fastrand::Rng::with_seed(seed.parse().expect("a seed")).shuffle(cases);
    cases.truncate(count.parse().expect("a count"));
}

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
