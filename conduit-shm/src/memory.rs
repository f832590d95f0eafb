//! The amount of memory that is available on the machine and in the control group by which a
//! container or batch system limits this process.
//!
//! The system allocates pages of shared memory at the first touch. A process that reserved more
//! than is available would be killed much later, in the middle of its work, so the available amount
//! is checked before each reservation.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

/// Memory that several processes share and draw from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// The number of bytes that are still available.
    pub available: u64,
    /// The number of bytes of shared memory in use, including the pages that ranks have already
    /// touched in the memory they reserved.
    pub shared: u64,
}

/// A pool without a limit.
const UNLIMITED: Pool = Pool {
    available: u64::MAX,
    shared: 0,
};

/// The pools that limit this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The machine's pool, or the pool of a control group around [`Memory::group`] if that pool has
    /// less [room](Pool::room).
    pub machine: Pool,
    /// The pool of the innermost control group that has a limit.
    pub group: Pool,
    /// The inode number of that control group, or 0 if no group has a limit.
    pub group_id: u64,
    /// The number of bytes of address space that this process can still map (`RLIMIT_AS`).
    pub addresses: u64,
    /// The size in bytes of the largest file that this process can create (`RLIMIT_FSIZE`).
    pub file: u64,
}

impl Memory {
    /// Reads the system's figures. A figure that cannot be read counts as unlimited.
    pub fn read() -> Self {
        let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let mut memory = Self {
            machine: Pool::of_machine(&text(Path::new("/proc/meminfo"))),
            group: UNLIMITED,
            group_id: 0,
            addresses: getrlimit(Resource::As).current.map_or(u64::MAX, |limit| {
                let mapped = text(Path::new("/proc/self/statm"));
                let pages = mapped.split(' ').next().and_then(|word| word.parse().ok());
                let page = rustix::param::page_size() as u64;
                limit.saturating_sub(pages.unwrap_or(0) * page)
            }),
            file: largest_file(),
        };
        for (group, version) in groups(&text(Path::new("/proc/self/cgroup"))) {
            let read = |name: &str| text(&group.join(name));
            let [limit, used] = version.files().map(read);
            let Some(pool) = version.pool(&limit, &used, &read("memory.stat")) else {
                continue;
            };
            match (memory.group_id, fs::metadata(&group)) {
                (0, Ok(metadata)) => {
                    memory.group = pool;
                    memory.group_id = metadata.ino();
                }
                _ if pool.room() < memory.machine.room() => memory.machine = pool,
                _ => {}
            }
        }
        memory
    }
}

/// Returns the size in bytes of the largest file that this process can create. Creating a larger
/// file would kill the process (`SIGXFSZ`).
pub(crate) fn largest_file() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

impl Pool {
    fn of_machine(meminfo: &str) -> Self {
        let field = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            kib.checked_mul(1024)
        };
        Self {
            available: field("MemAvailable:").unwrap_or(u64::MAX),
            shared: field("Shmem:").unwrap_or(0),
        }
    }

    /// Returns the maximum number of bytes of shared memory that the pool can hold, including those
    /// in use.
    pub fn room(&self) -> u64 {
        self.available.saturating_add(self.shared)
    }
}

/// A version of the control group interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// Returns the names of the files with the limit and the usage.
    fn files(self) -> [&'static str; 2] {
        match self {
            Self::One => ["memory.limit_in_bytes", "memory.usage_in_bytes"],
            Self::Two => ["memory.max", "memory.current"],
        }
    }

    /// Returns a group's pool from the contents of its limit, usage and statistics files, or `None`
    /// if the group has no limit.
    fn pool(self, limit: &str, used: &str, statistics: &str) -> Option<Pool> {
        let limit: u64 = limit.trim().parse().ok()?;
        let used: u64 = used.trim().parse().ok()?;
        let field = |name: &str| {
            let mut words = statistics.lines().filter_map(|line| line.split_once(' '));
            let found = words.find(|(word, _)| match self {
                Self::One => word.strip_prefix("total_") == Some(name),
                Self::Two => *word == name,
            });
            found.map_or(0, |(_, value)| value.trim().parse().unwrap_or(0))
        };
        // The kernel reclaims the page cache when needed, so the page cache counts as available. In
        // version 1, a number larger than any memory means no limit.
        let files: u64 = field("inactive_file") + field("active_file");
        (limit < 1 << 62).then(|| Pool {
            available: limit.saturating_sub(used.saturating_sub(files)),
            shared: field("shmem"),
        })
    }
}

/// Returns the directories of this process's memory control groups, innermost first. In a
/// container, these are the groups that are visible below the container's root.
fn groups(text: &str) -> Vec<(PathBuf, Version)> {
    let of = |root: &str, path: &str, version: Version| {
        let root = Path::new(root);
        let path = root.join(path.trim_start_matches('/'));
        let within = path
            .ancestors()
            .take_while(|folder| folder.starts_with(root));
        within
            .map(|f| (f.to_path_buf(), version))
            .collect::<Vec<_>>()
    };
    let mut fields = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    // The memory controller belongs to exactly one of the two versions.
    let one = (fields.clone()).find(|(names, _)| names.split(',').any(|name| name == "memory"));
    match (one, fields.find(|(names, _)| names.is_empty())) {
        (Some((_, path)), _) => of("/sys/fs/cgroup/memory", path, Version::One),
        (None, Some((_, path))) => of("/sys/fs/cgroup", path, Version::Two),
        (None, None) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_table() {
        let text = "MemTotal:       24000000 kB\nMemAvailable:   23000000 kB\nShmem:   500 kB\n";
        let expected = Pool {
            available: 23_000_000 * 1024,
            shared: 500 * 1024,
        };
        assert_eq!(Pool::of_machine(text), expected);
        assert_eq!(expected.room(), 23_000_500 * 1024);
        assert_eq!(Pool::of_machine(""), UNLIMITED);
    }

    #[test]
    fn a_group_has_its_limit_less_what_can_not_be_reclaimed() {
        let two = "anon 100\nfile 70\nshmem 40\ninactive_file 20\nactive_file 10\n";
        let one = "shmem 1\ninactive_file 2\ntotal_shmem 40\ntotal_inactive_file 20\n\
                   total_active_file 10\n";
        let expected = Some(Pool {
            available: 730,
            shared: 40,
        });
        assert_eq!(Version::Two.pool("900\n", "200\n", two), expected);
        assert_eq!(Version::One.pool("900\n", "200\n", one), expected);
        assert_eq!(Version::Two.pool("max\n", "200\n", two), None);
        assert_eq!(Version::One.pool("9223372036854771712", "200", one), None);
        assert_eq!(Version::Two.pool("", "", ""), None);
        let full = Version::Two.pool("5", "200", "").map(|pool| pool.available);
        assert_eq!(full, Some(0));
    }

    #[test]
    fn groups_go_up_to_the_root() {
        let names = |text: &str| {
            let groups = groups(text);
            let names = groups
                .iter()
                .map(|(group, version)| format!("{} {version:?}", group.to_string_lossy()));
            names.collect::<Vec<_>>()
        };
        assert_eq!(
            names("1:name=x:/y\n0::/job/step\n"),
            [
                "/sys/fs/cgroup/job/step Two",
                "/sys/fs/cgroup/job Two",
                "/sys/fs/cgroup Two"
            ]
        );
        assert_eq!(
            names("4:cpu,memory:/job\n0::/\n"),
            ["/sys/fs/cgroup/memory/job One", "/sys/fs/cgroup/memory One"]
        );
        assert!(names("garbage").is_empty());
    }
}
