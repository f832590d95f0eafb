//! Whether memory that is about to be promised exists.
//!
//! Pages of shared memory are found when they are first touched; a rank that asks for more than there is would be killed
//! much later, in the middle of its work. So a region is refused when it is larger than what is available now, or when the
//! regions of all ranks together exceed the machine.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that this process may still use, and that the machine (or the control group) has at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) available: u64,
    pub(super) total: u64,
}

/// Reads the system's figures. What can't be read limits nothing.
pub(super) fn memory() -> Memory {
    let mut memory = Memory {
        available: u64::MAX,
        total: u64::MAX,
    };
    if let Ok(text) = fs::read_to_string("/proc/meminfo") {
        memory = from_meminfo(&text);
    }
    if let Ok(text) = fs::read_to_string("/proc/self/cgroup") {
        for group in groups(&text) {
            let read = |name: &str| fs::read_to_string(group.join(name)).ok();
            if let (Some(limit), Some(used)) = (read("memory.max"), read("memory.current")) {
                memory = memory.limited(&limit, &used);
            }
        }
    }
    memory
}

fn from_meminfo(text: &str) -> Memory {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Memory {
        available: field("MemAvailable:").unwrap_or(u64::MAX),
        total: field("MemTotal:").unwrap_or(u64::MAX),
    }
}

/// The folders of this process's control group and of all above it (version 2: the line that begins with `0::`).
fn groups(text: &str) -> Vec<PathBuf> {
    let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::")) else {
        return Vec::new();
    };
    let path = Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/'));
    path.ancestors()
        .take_while(|ancestor| ancestor.starts_with("/sys/fs/cgroup"))
        .map(Path::to_path_buf)
        .collect()
}

impl Memory {
    /// With a control group's limit ("max" or bytes) and use.
    fn limited(self, limit: &str, used: &str) -> Self {
        let (Ok(limit), Ok(used)) = (limit.trim().parse::<u64>(), used.trim().parse::<u64>())
        else {
            return self;
        };
        Self {
            available: self.available.min(limit.saturating_sub(used)),
            total: self.total.min(limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_table() {
        let text = "MemTotal:       24000000 kB\nMemFree:  1 kB\nMemAvailable:   23000000 kB\n";
        let expected = Memory {
            available: 23_000_000 * 1024,
            total: 24_000_000 * 1024,
        };
        assert_eq!(from_meminfo(text), expected);
        assert_eq!(from_meminfo("").available, u64::MAX);
    }

    #[test]
    fn a_group_limits_what_is_above_it() {
        let memory = Memory {
            available: 1000,
            total: 2000,
        };
        let limited = memory.limited("900\n", "200\n");
        assert_eq!((limited.available, limited.total), (700, 900));
        assert_eq!(memory.limited("max\n", "200\n"), memory);
        assert_eq!(memory.limited("5", "200").available, 0);
    }

    #[test]
    fn groups_go_up_to_the_root() {
        let groups = groups("1:name=x:/y\n0::/job/step\n");
        let names: Vec<_> = groups.iter().map(|g| g.to_string_lossy()).collect();
        assert_eq!(
            names,
            [
                "/sys/fs/cgroup/job/step",
                "/sys/fs/cgroup/job",
                "/sys/fs/cgroup"
            ]
        );
        assert!(super::groups("garbage").is_empty());
    }
}
