//! The other ranks of this host, and the detection of their deaths.

use std::sync::Arc;

use conduit_core::ni::Rank;
use conduit_core::process_memory::Pid;
use rustix::io::Errno;
use rustix::process::{Pid as Process, test_kill_process};

/// The other ranks of this host, with their process ids.
#[derive(Debug, Clone, Default)]
pub(crate) struct Neighbours(Arc<[(Rank, Pid)]>);

impl FromIterator<(Rank, Pid)> for Neighbours {
    fn from_iter<I: IntoIterator<Item = (Rank, Pid)>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

impl Neighbours {
    /// Names the ranks whose processes have ended, as text for the end of a message. A rank that
    /// died may have left a lock of the provider held, which makes other ranks unreachable, too.
    pub(crate) fn gone(&self) -> String {
        let gone = self.0.iter().filter(|(_, pid)| is_gone(*pid));
        gone.map(|(rank, pid)| format!("; rank {rank} (process {pid}) has died"))
            .collect()
    }

    /// Returns the number of bytes of memory used.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.0)
    }
}

fn is_gone(pid: Pid) -> bool {
    Process::from_raw(pid).is_some_and(|process| test_kill_process(process) == Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use conduit_core::process_memory::this;

    use super::*;

    #[test]
    fn the_dead_are_named() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id().cast_signed();
        child.wait().unwrap();
        let neighbours = Neighbours::from_iter([(0, this()), (7, dead)]);
        let text = format!("; rank 7 (process {dead}) has died");
        assert_eq!(neighbours.gone(), text);
    }
}
