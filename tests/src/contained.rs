//! Ranks as containers and batch systems run them: in namespaces of their own, and in a control
//! group that limits their memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Returns whether util-linux's `unshare` can create these namespaces here. Prints a message if it
/// can't.
pub fn can_unshare(flags: &[&str]) -> bool {
    let mut unshare = Command::new("unshare");
    let unshare = unshare.args(flags).arg("true").stdin(Stdio::null());
    let made = unshare.status().is_ok_and(|status| status.success());
    if !made {
        eprintln!("not tested: unshare {flags:?} is refused here");
    }
    made
}

/// A control group that limits memory. Dropping a value of this type ends the group's processes and
/// removes the group.
#[derive(Debug)]
pub struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Creates a control group whose processes may use `bytes` bytes of memory. If that is
    /// impossible here, prints a message and returns `None`.
    pub fn new(bytes: u64) -> Option<Self> {
        static GROUPS: AtomicU32 = AtomicU32::new(0);
        let number = GROUPS.fetch_add(1, Ordering::Relaxed);
        let name = format!("conduit-test-{}-{number}", std::process::id());
        let made = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ]
        .into_iter()
        .find_map(|(root, limit)| {
            let group = Path::new(root).join(&name);
            // On other file systems, the path would be an ordinary folder.
            fs::metadata(Path::new(root).join("cgroup.procs")).ok()?;
            fs::create_dir(&group).ok()?;
            let group = Self(group);
            fs::write(group.0.join(limit), bytes.to_string()).ok()?;
            Some(group)
        });
        if made.is_none() {
            eprintln!("not tested: no control group that limits memory can be created here");
        }
        made
    }

    /// Returns the arguments with which `sh` runs a program in this group.
    pub fn within(&self, program: &str) -> Vec<String> {
        let script = "echo $$ > \"$1/cgroup.procs\" && shift && exec \"$@\"";
        let group = self.0.to_string_lossy();
        ["-c", script, "within", &group, program]
            .map(str::to_owned)
            .into()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A group can be removed only once its last process has ended, which may be a moment after
        // the end of the job.
        let begun = Instant::now();
        while fs::remove_dir(&self.0).is_err() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
