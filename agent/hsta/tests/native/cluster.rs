//! Processes of agents and clients, which are killed when the test ends.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use conduit_channels::Client;

use super::LIMIT;

/// The agent's program.
pub(super) const PROGRAM: &str = env!("CARGO_BIN_EXE_conduit-hsta");
/// The variable that selects the part that another process of this program plays.
pub(super) const PART: &str = "CONDUIT_TEST_PART";

/// A process that is killed when its `Process` is dropped.
pub(super) struct Child(std::process::Child);

impl Child {
    fn spawn(mut command: Command) -> Self {
        Self(command.spawn().expect("the program starts"))
    }

    pub(super) fn kill(&mut self) {
        self.0.kill().expect("the child is this test's");
        self.0.wait().expect("the child is this test's");
    }

    /// Waits for the process to end, at most [`LIMIT`].
    fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + LIMIT;
        loop {
            match self.0.try_wait().expect("the child is this test's") {
                Some(status) => return status,
                None if Instant::now() > end => panic!("a process does not end in time"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    pub(super) fn succeed(&mut self) {
        let status = self.wait();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a command that starts an agent without authentication.
pub(super) fn agent() -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .env("CONDUIT_NA_UNAUTHENTICATED", "1")
        .stdin(Stdio::piped());
    command
}

/// Runs a program until it exits. Returns its exit code and its output.
pub(super) fn run_to_end(mut command: Command) -> (i32, String) {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = Child::spawn(command);
    let mut streams: [Box<dyn Read + Send>; 2] = [
        Box::new(child.0.stdout.take().expect("piped")),
        Box::new(child.0.stderr.take().expect("piped")),
    ];
    std::thread::scope(|scope| {
        let texts = streams.each_mut().map(|stream| {
            scope.spawn(|| {
                let mut text = String::new();
                stream.read_to_string(&mut text).map(|_| text)
            })
        });
        let status = child.wait();
        let text = texts.map(|text| text.join().expect("no panic").unwrap_or_default());
        (status.code().unwrap_or(-1), text.concat())
    })
}

/// A cluster of nodes on the loopback interface.
pub(super) struct Cluster {
    agents: Vec<Child>,
    start: Box<dyn Fn(usize) -> Child>,
    names: Vec<String>,
}

impl Cluster {
    pub(super) fn start(nodes: usize) -> Self {
        Self::start_with(nodes, |_, _| ())
    }

    /// Starts a cluster with additional settings for each node.
    pub(super) fn start_with(nodes: usize, set: impl Fn(usize, &mut Command) + 'static) -> Self {
        // Only this cluster uses these addresses, so the ports are free.
        let address = |number: u32, node| {
            let process = std::process::id();
            let (high, low) = (1 + process / 250 % 250, process % 250);
            format!("127.{high}.{low}.{}:7575", 1 + number * 4 + node)
        };
        Self::start_at(nodes, address, set)
    }

    /// Starts a cluster over libfabric, which only accepts addresses of interfaces.
    pub(super) fn over_libfabric(nodes: usize) -> Self {
        let free = |_, _| {
            let socket = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
            socket.expect("a free port").to_string()
        };
        let folder = libfabric();
        Self::start_at(nodes, free, move |_, agent| {
            agent.env("DRAGON_HSTA_FABRIC_BACKEND", "ofi");
            agent.env("LD_LIBRARY_PATH", &folder);
        })
    }

    fn start_at(
        nodes: usize,
        address: impl Fn(u32, u32) -> String,
        set: impl Fn(usize, &mut Command) + 'static,
    ) -> Self {
        static CLUSTERS: AtomicU32 = AtomicU32::new(0);
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let addresses: Vec<String> = (0..nodes as u32)
            .map(|node| address(number, node))
            .collect();
        let names: Vec<String> = (0..nodes)
            .map(|node| format!("test-{process}-{number}-{node}"))
            .collect();
        let known = names.clone();
        let start = move |node: usize| {
            let mut command = agent();
            command
                .args(["--native", "--until-eof", "--nodes", &addresses.join(",")])
                .args(["--node", &node.to_string(), "--name", &known[node]])
                .stdout(Stdio::piped());
            set(node, &mut command);
            let mut child = Child::spawn(command);
            let mut line = String::new();
            BufReader::new(child.0.stdout.take().expect("piped"))
                .read_line(&mut line)
                .expect("the agent reports that it is ready");
            assert_eq!(line.trim_end(), format!("CONDUIT_AGENT={}", known[node]));
            child
        };
        Self {
            agents: (0..nodes).map(&start).collect(),
            start: Box::new(start),
            names,
        }
    }

    pub(super) fn name(&self, node: usize) -> &str {
        &self.names[node]
    }

    pub(super) fn client(&self, node: usize) -> Client {
        Client::to(&self.names[node]).expect("an agent")
    }

    /// Starts a client process that plays the given part at a node.
    pub(super) fn spawn(&self, node: usize, part: &str) -> Child {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "native::client", "--nocapture"])
            .env(PART, part)
            .env("CONDUIT_AGENT", &self.names[node])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Child::spawn(command)
    }

    pub(super) fn kill(&mut self, node: usize) {
        self.agents[node].kill();
    }

    /// Starts a new agent in place of one that was killed.
    pub(super) fn restart(&mut self, node: usize) {
        self.agents[node] = (self.start)(node);
    }

    /// Ends an agent with SIGTERM.
    pub(super) fn terminate(&mut self, node: usize) -> ExitStatus {
        let agent = &mut self.agents[node];
        let pid = rustix::process::Pid::from_child(&agent.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .expect("the child is this test's");
        agent.wait()
    }
}

/// Returns a folder with a libfabric under the name by which agents load it, because not every host
/// has one.
fn libfabric() -> PathBuf {
    let library = xtask::library("refusing-fabric", xtask::Library::Shared);
    let library = library.expect("cargo builds it");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libfabric");
    fs::create_dir_all(&folder).expect("a folder");
    let link = folder.join("libfabric.so.1");
    // Another run of these tests may be using the existing link.
    if fs::read_link(&link).ok().as_ref() != Some(&library) {
        let _ = fs::remove_file(&link);
        symlink(&library, &link).expect("a link to the library");
    }
    folder
}
