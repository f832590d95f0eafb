//! Random numbers that are derived from a seed and are the same in every run on every machine.

pub use fastrand::Rng;

/// Mixes a number so that every bit of the result depends on every bit of the input (SplitMix64's
/// output function). Consecutive seeds mixed this way yield unrelated generators.
pub fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns an element of `of`. Every element is equally likely, so a value that is listed more than
/// once is likelier.
///
/// # Panics
/// Panics if `of` is empty.
pub fn pick<T: Copy>(random: &mut Rng, of: &[T]) -> T {
    of[random.usize(..of.len())]
}

/// Returns a number from `low` to `high`, where every order of magnitude is equally likely. `low`
/// must be at least 1.
pub fn magnitude(random: &mut Rng, low: u64, high: u64) -> u64 {
    let (low, high) = ((low as f64).ln(), (high as f64).ln());
    (low + random.f64() * (high - low)).exp() as u64
}

/// Returns `true` with probability `part`. Draws no random number if the probability is 0.
pub fn chance(random: &mut Rng, part: f64) -> bool {
    part > 0.0 && random.f64() < part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_within_their_bounds_and_follow_from_the_seed() {
        let draw = |seed| {
            let random = &mut Rng::with_seed(mix(seed));
            let each = || (pick(random, &[1, 2, 3]), magnitude(random, 10, 1_000_000));
            std::iter::repeat_with(each).take(100).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        for (picked, magnitude) in draw(1) {
            assert!((1..=3).contains(&picked) && (9..=1_000_000).contains(&magnitude));
        }
        let small = draw(3).iter().filter(|draw| draw.1 < 3_162).count();
        assert!((30..70).contains(&small), "{small} of 100 below the middle");
    }
}
