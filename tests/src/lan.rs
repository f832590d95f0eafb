//! Several hosts within one system. Each host is a network namespace, and a bridge in another
//! namespace joins them.
//!
//! A guard process removes the namespaces whatever happens to the test. It waits for the end of a
//! pipe whose other end is open only in the test's process.

use std::io::Read;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::job::Job;
use crate::pace;

/// Hosts on one network. Each has one interface, `eth0`.
#[derive(Debug)]
pub struct Lan {
    name: String,
    hosts: u32,
    guard: Child,
    /// The guard's input, which is held open while the test runs.
    alive: Option<ChildStdin>,
}

/// The guard's script. When its input ends, it kills the processes in the namespaces and removes
/// the namespaces, whose names are its arguments.
const GUARD: &str = "
    cat > /dev/null
    for name in \"$@\"; do
        for pid in $(ip netns pids \"$name\" 2> /dev/null); do kill -9 \"$pid\" 2> /dev/null; done
        ip netns del \"$name\" 2> /dev/null
    done
    exit 0
";

/// A script that runs a command on the host of the command's rank. Ranks are distributed in blocks.
/// The first argument is the prefix of the namespaces' names, the second is the number of hosts,
/// and the rest is the command.
const ON_HOST: &str = "
    name=$1 hosts=$2
    shift 2
    exec ip netns exec \"$name.$((PMI_RANK * hosts / PMI_SIZE))\" \"$@\"
";

/// Returns the reason why namespaces can't be created here, or `None` if they can be created.
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("network namespaces need root".to_owned());
    }
    static PROBES: AtomicU32 = AtomicU32::new(0);
    let number = PROBES.fetch_add(1, Ordering::Relaxed);
    let probe = format!("cdtp{}-{number}", std::process::id());
    let made = ip(&["netns", "add", &probe]);
    let _ = ip(&["netns", "del", &probe]);
    made.err()
        .map(|error| format!("no network namespaces can be made here with ip: {error:#}"))
}

fn run(command: &str, arguments: &[&str]) -> Result<()> {
    text_of(command, arguments).map(drop)
}

/// Runs a command, requires that it succeeds, and returns its standard output.
fn text_of(command: &str, arguments: &[&str]) -> Result<String> {
    let shown = || format!("{command} {}", arguments.join(" "));
    let output = Command::new(command)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(shown)?;
    ensure!(
        output.status.success(),
        "{}: {}",
        shown(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn ip(arguments: &[&str]) -> Result<()> {
    run("ip", arguments)
}

impl Lan {
    /// Creates this many hosts, joined by a bridge.
    ///
    /// # Errors
    /// The system refused a step. Everything created before that is removed.
    pub fn of(hosts: u32) -> Result<Self> {
        static LANS: AtomicU32 = AtomicU32::new(0);
        let number = LANS.fetch_add(1, Ordering::Relaxed);
        let name = format!("cdt{}-{number}", std::process::id());
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "guard"]);
        guard.args((0..hosts).map(|host| format!("{name}.{host}")));
        guard.arg(format!("{name}.lan"));
        // The guard leaves the test's process group, so that a signal to the group doesn't end the
        // guard.
        std::os::unix::process::CommandExt::process_group(&mut guard, 0);
        let mut guard = guard
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start sh")?;
        let alive = guard.stdin.take();
        let lan = Self {
            name,
            hosts,
            guard,
            alive,
        };
        lan.make()?;
        Ok(lan)
    }

    fn make(&self) -> Result<()> {
        let bridge = format!("{}.lan", self.name);
        ip(&["netns", "add", &bridge])?;
        ip(&["-n", &bridge, "link", "add", "lan", "type", "bridge"])?;
        ip(&["-n", &bridge, "link", "set", "lan", "up"])?;
        for host in 0..self.hosts {
            let (name, port) = (self.host(host), format!("port{host}"));
            ip(&["netns", "add", &name])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
            // The interfaces are created within the namespaces, so that their names can't collide.
            ip(&[
                "-n", &bridge, "link", "add", &port, "type", "veth", "peer", "name", "eth0",
                "netns", &name,
            ])?;
            ip(&["-n", &bridge, "link", "set", &port, "master", "lan", "up"])?;
            let address = format!("10.78.0.{}/24", host + 1);
            ip(&["-n", &name, "addr", "add", &address, "dev", "eth0"])?;
            let address = format!("fd78::{:x}/64", host + 1);
            ip(&["-n", &name, "addr", "add", &address, "dev", "eth0", "nodad"])?;
            ip(&["-n", &name, "link", "set", "eth0", "up"])?;
        }
        Ok(())
    }

    /// Returns the name of a host's namespace.
    pub fn host(&self, host: u32) -> String {
        format!("{}.{host}", self.name)
    }

    /// Returns a job on these hosts. Consecutive ranks are on the same host.
    pub fn job(&self, launcher: &str, ranks: u32, program: &str, arguments: &[&str]) -> Job {
        let wrapper = self.on_host(program);
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        Job::new(launcher, ranks, "sh", &[&wrapper, arguments].concat())
    }

    /// Returns the arguments with which `sh` runs a program on the host of its rank.
    pub fn on_host(&self, program: &str) -> Vec<String> {
        let hosts = self.hosts.to_string();
        ["-c", ON_HOST, "on_host", &self.name, &hosts, program]
            .map(str::to_owned)
            .into()
    }

    /// Makes iproute2's `tc` disturb a host's outgoing packets as the words `how` tell `netem`. If
    /// there are no words, the disturbance ends.
    ///
    /// # Errors
    /// The system has no `netem`, or `netem` rejects the words.
    pub fn disturb(&self, host: u32, how: &[&str]) -> Result<()> {
        let name = self.host(host);
        let device = ["dev", "eth0", "root"];
        if how.is_empty() {
            return run(
                "tc",
                &[&["-n", &name, "qdisc", "del"], &device[..]].concat(),
            );
        }
        let replace = ["-n", name.as_str(), "qdisc", "replace"];
        run("tc", &[&replace[..], &device, &["netem"], how].concat())
    }

    /// Pulls a host's cable, or plugs it in again.
    ///
    /// # Errors
    /// The system refused to change the state of the host's port.
    pub fn plug(&self, host: u32, plugged: bool) -> Result<()> {
        let (bridge, port) = (format!("{}.lan", self.name), format!("port{host}"));
        let state = if plugged { "up" } else { "down" };
        ip(&["-n", &bridge, "link", "set", &port, state])
    }

    /// Gives a host a bridge like those of container engines, which has the same address on every
    /// host, and leaves `eth0` only its IPv6 address.
    ///
    /// # Errors
    /// The system refused a step.
    pub fn add_container_bridge(&self, host: u32) -> Result<()> {
        let name = self.host(host);
        let address = format!("10.78.0.{}/24", host + 1);
        for command in [
            &["link", "add", "docker0", "type", "bridge"][..],
            &[
                "link",
                "add",
                "container",
                "type",
                "veth",
                "peer",
                "name",
                "inside",
            ],
            &["link", "set", "inside", "up"],
            &["link", "set", "container", "master", "docker0", "up"],
            &["addr", "add", "172.17.0.1/16", "dev", "docker0"],
            &["link", "set", "docker0", "up"],
            &["addr", "del", &address, "dev", "eth0"],
        ] {
            ip(&[&["-n", &name], command].concat())?;
        }
        // The bridge comes up once its port is up.
        let end = Instant::now() + pace::HANG;
        let show = ["-n", &name, "-o", "link", "show", "docker0"];
        while !text_of("ip", &show)?.contains("state UP") {
            ensure!(Instant::now() < end, "docker0 didn't come up");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Deletes a host's interface permanently.
    ///
    /// # Errors
    /// The system refused to delete the interface.
    pub fn delete_interface(&self, host: u32) -> Result<()> {
        ip(&["-n", &self.host(host), "link", "delete", "eth0"])
    }

    /// Kills all processes of a host.
    ///
    /// # Errors
    /// The system refused to list or kill the processes, or the host has none.
    pub fn crash(&self, host: u32) -> Result<()> {
        let name = self.host(host);
        let output = Command::new("ip").args(["netns", "pids", &name]).output()?;
        let pids: Vec<i32> = String::from_utf8_lossy(&output.stdout)
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect();
        if pids.is_empty() {
            bail!("no process on {name}");
        }
        for pid in pids.into_iter().filter_map(rustix::process::Pid::from_raw) {
            // The error is ignored, because the process may have ended already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        Ok(())
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        // When its input is closed, the guard cleans up and exits.
        drop(self.alive.take());
        let _ = self.guard.wait();
    }
}

/// Returns the names of all namespaces with this prefix. Tests of the guard use them.
///
/// # Errors
/// The namespaces can't be listed.
pub fn namespaces(prefix: &str) -> Result<Vec<String>> {
    let mut child = Command::new("ip")
        .args(["netns", "list"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut text = String::new();
    if let Some(stdout) = &mut child.stdout {
        stdout.read_to_string(&mut text)?;
    }
    child.wait()?;
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    Ok(names
        .filter(|name| name.starts_with(prefix))
        .map(str::to_owned)
        .collect())
}
