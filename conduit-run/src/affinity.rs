//! Which processor a rank runs on.

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::Error;

/// The processors that this process may use, in ascending order.
pub(crate) fn allowed() -> Result<Vec<usize>, Error> {
    let set = sched_getaffinity(None).map_err(Error::system("reading the allowed processors"))?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect())
}

/// The one processor for a rank: ranks take turns over the allowed ones.
pub(crate) fn of_rank(allowed: &[usize], rank: usize) -> Option<usize> {
    (!allowed.is_empty()).then(|| allowed[rank % allowed.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_take_turns_over_the_allowed_processors() {
        let cpus: Vec<_> = (0..5).map(|rank| of_rank(&[2, 5, 7], rank)).collect();
        assert_eq!(cpus, [Some(2), Some(5), Some(7), Some(2), Some(5)]);
        assert_eq!(of_rank(&[], 0), None);
        assert!(!allowed().unwrap().is_empty());
    }
}
