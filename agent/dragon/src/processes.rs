//! Checks whether processes are alive.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The processes that have made requests.
#[derive(Default)]
pub(crate) struct Processes {
    /// The processes' file descriptors, by process id. A descriptor identifies its process even
    /// after the process has ended and its id is reused.
    known: BTreeMap<u64, OwnedFd>,
    last_looked_at: u64,
}

impl Processes {
    /// Returns whether the process is alive. If the system does not tell, it counts as alive.
    pub(crate) fn lives(&mut self, process: u64) -> bool {
        match self.known.entry(process) {
            Entry::Occupied(known) => !has_ended(known.get()),
            Entry::Vacant(new) => {
                let Some(id) = i32::try_from(process).ok().and_then(Pid::from_raw) else {
                    return false;
                };
                match pidfd_open(id, PidfdFlags::empty()) {
                    Ok(descriptor) => !has_ended(new.insert(descriptor)),
                    Err(error) => error != Errno::SRCH,
                }
            }
        }
    }

    /// Checks the next process in round-robin order. If the process has ended, forgets it and
    /// returns it.
    pub(crate) fn ended(&mut self) -> Option<u64> {
        let next = self.known.range(self.last_looked_at + 1..).next();
        let Some((&process, descriptor)) = next else {
            self.last_looked_at = 0;
            return None;
        };
        self.last_looked_at = process;
        has_ended(descriptor).then(|| {
            self.known.remove(&process);
            process
        })
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut wanted = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    poll(&mut wanted, Some(&Timespec::default())) == Ok(1)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_lives_until_it_has_ended() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let id = u64::from(child.id());
        let mut processes = Processes::default();
        assert!(processes.lives(id));
        assert_eq!(processes.ended(), None);
        drop(child.stdin.take());
        // The child has not been waited for yet.
        while processes.lives(id) {
            std::thread::yield_now();
        }
        assert_eq!((0..2).find_map(|_| processes.ended()), Some(id));
        assert!(!processes.lives(id));
        child.wait().unwrap();
        assert!(!processes.lives(0));
        assert!(!processes.lives(u64::MAX));
    }
}
