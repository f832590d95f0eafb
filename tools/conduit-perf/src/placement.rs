//! The placement of sides on cores.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

use crate::Error;

/// The distribution of a measurement's sides over cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Each side runs on a core of its own.
    Apart,
    /// All sides run on one core.
    OneCore,
    /// The sides are dealt out to the cores. Cores get several sides each if there are more sides
    /// than cores.
    Dealt,
}

/// The cores that this process may use, as they were before any pinning.
#[derive(Clone, Debug)]
pub struct Cores(Vec<usize>);

impl Cores {
    /// Queries the cores that the calling thread may use.
    ///
    /// # Errors
    /// Fails if the query fails.
    pub fn allowed() -> Result<Self, Error> {
        let set = sched_getaffinity(None).map_err(Error::system("sched_getaffinity"))?;
        Ok(Self(
            (0..CpuSet::MAX_CPU)
                .filter(|&core| set.is_set(core))
                .collect(),
        ))
    }

    /// Restricts the set to at most the first `most` cores.
    #[must_use]
    pub fn first(mut self, most: usize) -> Self {
        self.0.truncate(most);
        self
    }

    /// Returns the number of cores.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the core for side `rank` of `sides`.
    ///
    /// # Errors
    /// Returns [`Error::TooFewCores`] for [`Placement::Apart`] with more sides than cores.
    pub fn core(&self, placement: Placement, rank: usize, sides: usize) -> Result<usize, Error> {
        let cores = self.count();
        let index = match placement {
            Placement::Apart if sides > cores => return Err(Error::TooFewCores { sides, cores }),
            Placement::Apart | Placement::Dealt => rank % cores.max(1),
            Placement::OneCore => 0,
        };
        self.0
            .get(index)
            .copied()
            .ok_or(Error::TooFewCores { sides: 1, cores })
    }

    /// Restricts the calling thread, and the processes it starts, to these cores.
    ///
    /// # Errors
    /// Fails if the system refuses.
    pub fn confine(&self) -> Result<(), Error> {
        let mut set = CpuSet::new();
        for &core in &self.0 {
            set.set(core);
        }
        sched_setaffinity(None, &set).map_err(Error::system("sched_setaffinity"))
    }

    /// Pins the calling thread to one core.
    ///
    /// # Errors
    /// Fails if the system refuses the core.
    pub fn pin(&self, core: usize) -> Result<(), Error> {
        Self(vec![core]).confine()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_dealt_over_the_cores() {
        let cores = Cores(vec![2, 5]);
        let at = |placement, sides| -> Vec<_> {
            (0..sides)
                .map(|rank| cores.core(placement, rank, sides).ok())
                .collect()
        };
        assert_eq!(at(Placement::Apart, 2), [Some(2), Some(5)]);
        assert_eq!(at(Placement::Apart, 3), [None, None, None]);
        assert_eq!(at(Placement::OneCore, 3), [Some(2); 3]);
        assert_eq!(at(Placement::Dealt, 3), [Some(2), Some(5), Some(2)]);
    }
}
