//! The combination of the results of several jobs.
//!
//! Two connections between the same two processes differ in speed for as long as they last, and by
//! more than the rounds of one connection do. Every job has new connections, so each job gives one
//! ratio. The result consists of the median and the spread of these ratios.

use crate::alternate::{median, median_deviation};
use crate::figure::Figure;

/// A figure that several jobs have measured. The value is that of the job with the median ratio.
pub(crate) struct Pooled {
    pub(crate) figure: Figure,
    /// The bounds between which the true median ratio lies with a probability of at least [`SURE`],
    /// or `None` if there are too few jobs.
    pub(crate) between: Option<(f64, f64)>,
}

/// The probability for [`Pooled::between`].
const SURE: f64 = 0.95;

/// Pools jobs that have the same figures in the same order.
pub(crate) fn pool(jobs: Vec<Vec<Figure>>) -> Vec<Pooled> {
    let mut jobs: Vec<_> = jobs.into_iter().map(Vec::into_iter).collect();
    let next = || {
        let mut same: Vec<_> = jobs.iter_mut().filter_map(Iterator::next).collect();
        same.sort_by(|one, other| one.ratio.total_cmp(&other.ratio));
        let ratios: Vec<_> = same.iter().map(|figure| figure.ratio).collect();
        let middle = median(&ratios)?;
        let (rounds, discarded) = same.iter().fold((0, 0), |(rounds, discarded), figure| {
            (rounds + figure.rounds, discarded + figure.discarded)
        });
        let mut figure = same.swap_remove((same.len() - 1) / 2);
        figure.ratio = middle;
        figure.spread = median_deviation(&ratios, middle)?;
        (figure.rounds, figure.discarded) = (rounds, discarded);
        let between = outermost(ratios.len())
            .map(|outside| (ratios[outside], ratios[ratios.len() - 1 - outside]));
        Some(Pooled { figure, between })
    };
    std::iter::from_fn(next).collect()
}

/// Returns the largest number of values that can be left out at each end of `count` sorted values
/// so that the median of their distribution lies between the remaining values with at least the
/// probability [`SURE`]. (The median is above or below each value with equal probability.) Returns
/// `None` if the probability is not reached even if no value is left out.
fn outermost(count: usize) -> Option<usize> {
    let mut outside = None;
    // `tail` is the probability that at most `left_out` values lie on one given side of the median,
    // and `exactly` is the probability of exactly that many.
    let (mut tail, mut exactly) = (0.0, 0.5_f64.powi(i32::try_from(count).ok()?));
    for left_out in 0..count / 2 {
        tail += exactly;
        if 1.0 - 2.0 * tail < SURE {
            break;
        }
        outside = Some(left_out);
        exactly *= (count - left_out) as f64 / (left_out + 1) as f64;
    }
    outside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::tests::figure;

    #[test]
    fn what_can_be_left_out_is_that_of_the_tables_for_the_sign_test() {
        let known = [
            (5, None),
            (6, Some(0)),
            (8, Some(0)),
            (9, Some(1)),
            (12, Some(2)),
            (20, Some(5)),
        ];
        for (count, outside) in known {
            assert_eq!(outermost(count), outside, "{count} values");
        }
    }

    #[test]
    fn jobs_are_pooled_by_figure() {
        let jobs = (0..9).map(|job| {
            let ratio = 1.0 + f64::from((job * 4) % 9) / 10.0;
            vec![figure(ratio, None, 3), figure(2.0, None, 1)]
        });
        let pooled = pool(jobs.collect());
        let [first, second] = &pooled[..] else {
            panic!("{} figures", pooled.len());
        };
        assert_eq!((first.figure.ratio, first.figure.rounds), (1.4, 27));
        assert_eq!(first.between, Some((1.1, 1.7)));
        assert!((first.figure.spread - 0.2).abs() < 1e-9);
        assert_eq!((second.figure.ratio, second.figure.spread), (2.0, 0.0));
        let few = pool(vec![vec![figure(1.0, None, 1)], vec![figure(2.0, None, 1)]]);
        assert_eq!((few[0].figure.ratio, few[0].between), (1.5, None));
        assert!(pool(vec![Vec::new(); 3]).is_empty());
    }
}
