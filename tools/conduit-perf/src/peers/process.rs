//! The execution of peers' programs. Each program runs as a job of one rank, so it has a time limit
//! and its descendants end with it.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use conduit_run::{Launch, RunningJob, Stream};
use rustix::process::Signal;

use super::output::listens;
use crate::placement::Cores;

/// The time limit of a peer's program.
const LIMIT: Duration = Duration::from_secs(300);
/// The time limit for a server to start listening.
const START: Duration = Duration::from_secs(100);

/// A program to run.
pub(super) struct Program {
    path: PathBuf,
    launch: Launch,
    core: Option<usize>,
}

impl Program {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            launch: Launch::new(1, path).timeout(Some(LIMIT)).quiet(true),
            core: None,
        }
    }

    pub(super) fn arguments<A: AsRef<OsStr>>(
        mut self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        self.launch = self.launch.args(arguments);
        self
    }

    pub(super) fn environment(mut self, variables: &[(&str, &str)]) -> Self {
        self.launch = self.launch.envs(variables.iter().copied());
        self
    }

    /// Restricts the program to the core `core`.
    pub(super) fn on(mut self, core: usize) -> Self {
        self.core = Some(core);
        self
    }

    /// Runs the program to its end and returns its standard output.
    pub(super) fn run(self) -> anyhow::Result<String> {
        self.follow(|_| {})
    }

    /// Runs the program like [`run`](Self::run) and calls `started` with the job.
    fn follow(self, started: impl FnOnce(&RunningJob) + Send) -> anyhow::Result<String> {
        let Self { path, launch, core } = self;
        let (sender, lines) = mpsc::channel();
        let launch = launch.output(move |_, stream, line| {
            // The result is ignored, because the receiver lives as long as the job.
            let _ = sender.send((stream, String::from_utf8_lossy(line).into_owned()));
        });
        // A separate thread launches the program, which inherits that thread's core.
        let outcome = thread::scope(|scope| {
            let job = scope.spawn(move || -> anyhow::Result<_> {
                if let Some(core) = core {
                    Cores::allowed()?.pin(core)?;
                }
                let job = launch.spawn()?;
                started(&job);
                Ok(job.wait()?)
            });
            job.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
        .with_context(|| path.display().to_string())?;
        let (mut output, mut errors) = (String::new(), String::new());
        for (stream, line) in lines {
            let text = match stream {
                Stream::Stdout => &mut output,
                Stream::Stderr => &mut errors,
            };
            text.push_str(&line);
            text.push('\n');
        }
        if outcome.exit_code != 0 {
            bail!("{}: {}\n{output}{errors}", path.display(), outcome.how);
        }
        Ok(output)
    }

    /// Runs the program as a server, and runs `client` once the server listens on `port`. Returns
    /// the client's standard output.
    pub(super) fn serve(self, port: u16, client: Self) -> anyhow::Result<String> {
        thread::scope(|scope| {
            let (sender, killers) = mpsc::channel();
            let server = scope.spawn(move || {
                self.follow(|job| {
                    // The result is ignored, because the receiver lives as long as the server.
                    let _ = sender.send(job.killer());
                })
            });
            let deadline = Instant::now() + START;
            let output = loop {
                if listening(port) {
                    break client.run();
                }
                if server.is_finished() || Instant::now() > deadline {
                    break Err(anyhow::anyhow!("no process listens on port {port}"));
                }
                thread::sleep(Duration::from_millis(2));
            };
            if let (Err(_), Ok(killer)) = (&output, killers.recv()) {
                // The result is ignored, because the server may have ended by itself.
                killer.kill_rank(0, Signal::KILL.as_raw());
            }
            let served = server
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match (output, served) {
                (Ok(output), Ok(_)) => Ok(output),
                (Err(error), Err(server)) => Err(error.context(format!("server: {server:#}"))),
                (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
            }
        })
    }
}

fn listening(port: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .any(|table| listens(&table, port))
}

/// Returns a port that is currently unused.
pub(super) fn free_port() -> anyhow::Result<u16> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a free port")?;
    Ok(socket.local_addr().context("a free port")?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program::new(Path::new("sh")).arguments(["-c", script])
    }

    #[test]
    fn what_a_program_prints_is_given_and_what_it_complains_of_is_in_the_error() {
        let output = shell("echo one; echo two >&2; echo $WORD")
            .environment(&[("WORD", "three")])
            .run();
        assert_eq!(output.expect("output"), "one\nthree\n");
        let error = shell("echo why >&2; exit 3").run().expect_err("a failure");
        let text = format!("{error:#}");
        assert!(text.contains("why") && text.contains('3'), "{text}");
        let error = Program::new(Path::new("/no/such/program")).run();
        assert!(format!("{:#}", error.expect_err("none")).contains("/no/such/program"));
    }

    #[test]
    fn a_server_that_ends_or_whose_client_fails_is_an_error_that_says_so() {
        let port = free_port().expect("a port");
        let error = shell("echo no >&2; exit 1").serve(port, shell("echo never"));
        let text = format!("{:#}", error.expect_err("a failure"));
        assert!(text.contains("no\n") && text.contains("listens"), "{text}");
        // The test itself listens on the port, so the client is run although the server does not
        // listen. The server would not end by itself.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen");
        let port = listener.local_addr().expect("address").port();
        let error = shell("sleep 1000").serve(port, shell("echo badly >&2; exit 1"));
        let text = format!("{:#}", error.expect_err("a failure"));
        assert!(text.contains("badly"), "{text}");
    }
}
