//! The processors on which a rank runs.

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::error::Error;

/// Returns the processors that this process may use, in ascending order.
pub(crate) fn allowed() -> Result<Vec<usize>, Error> {
    let set = sched_getaffinity(None).map_err(Error::system("reading the allowed processors"))?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect())
}

/// Returns the `each` processors of a rank. Processors are dealt to the ranks in turn, starting
/// again at the first allowed one when all are used.
pub(crate) fn of_rank(allowed: &[usize], rank: usize, each: usize) -> Option<CpuSet> {
    if allowed.is_empty() {
        return None;
    }
    let mut set = CpuSet::new();
    // `each` may exceed the number of allowed processors.
    for number in 0..each.min(allowed.len()) {
        let turn = rank.wrapping_mul(each).wrapping_add(number);
        set.set(allowed[turn % allowed.len()]);
    }
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processors(rank: usize, each: usize) -> Vec<usize> {
        let set = of_rank(&[2, 5, 7], rank, each).unwrap();
        (0..CpuSet::MAX_CPU)
            .filter(|cpu| set.is_set(*cpu))
            .collect()
    }

    #[test]
    fn ranks_take_turns_over_the_allowed_processors() {
        let cpus: Vec<_> = (0..5).map(|rank| processors(rank, 1)).collect();
        assert_eq!(cpus, [[2], [5], [7], [2], [5]]);
        assert!(of_rank(&[], 0, 1).is_none());
        assert!(!allowed().unwrap().is_empty());
    }

    #[test]
    fn a_rank_may_have_several() {
        assert_eq!(processors(0, 2), [2, 5]);
        assert_eq!(processors(1, 2), [2, 7]);
        assert_eq!(processors(1, 3), [2, 5, 7]);
        assert_eq!(processors(7, usize::MAX), [2, 5, 7]);
    }
}
