//! How a job reaches other hosts, and which hosts a batch system has given to it.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::error::Error;
use crate::hosts::{Host, Source, from_environment, parse_file, parse_list};
use crate::tree::shell::{self, Shell};

/// The variable with the default of [`Remote::shell`].
const REMOTE_SHELL: &str = "CONDUIT_REMOTE_SHELL";

/// How to start the daemons of other hosts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Remote {
    /// The command that runs a command on `{host}`. Default: the variable `CONDUIT_REMOTE_SHELL`,
    /// or `ssh` without questions.
    pub shell: Option<String>,
    /// The path of `conduit-run` on the other hosts. Default: that of this program, which then must
    /// call [`cli::main`](crate::cli::main) if its first argument is `--daemon`.
    pub path: Option<OsString>,
    /// The program that is the daemon of this host. Default: this program.
    pub own_path: Option<OsString>,
    /// The time in which each host has to start its daemon, and then its ranks.
    pub start_timeout: Duration,
}

impl Default for Remote {
    fn default() -> Self {
        Remote {
            shell: None,
            path: None,
            own_path: None,
            start_timeout: Duration::from_secs(30),
        }
    }
}

impl Remote {
    pub(crate) fn parse(self) -> Result<Shell, Error> {
        let template = self.shell.or_else(|| variable(REMOTE_SHELL));
        let template = template.as_deref().unwrap_or(shell::DEFAULT);
        let own = match self.own_path {
            Some(path) => path,
            None => std::env::current_exe()
                .map_err(Error::system("finding the path of this program"))?
                .into(),
        };
        let path = self.path.unwrap_or_else(|| own.clone());
        Ok(Shell::parse(template, &path, &own, self.start_timeout)?)
    }
}

/// Returns a variable's value; bytes that are not UTF-8 become U+FFFD, which no list accepts.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::HostFile {
        path: path.to_owned(),
        source,
    })
}

/// Reads a host file.
pub(crate) fn from_file(path: &Path) -> Result<Vec<Host>, Error> {
    Ok(parse_file(&read(path)?, &path.to_string_lossy())?)
}

/// Returns the hosts of the batch system, if this process runs in one of its jobs.
pub(crate) fn from_batch_system() -> Result<Option<Vec<Host>>, Error> {
    Ok(match from_environment(&variable)? {
        None => None,
        Some(Source::Hosts(hosts)) => Some(hosts),
        Some(Source::File { path, kind }) => Some(kind.parse(&read(path.as_ref())?, &path)?),
        Some(Source::Flux) => {
            const COMMAND: &str = "flux hostlist local";
            let output = Command::new("flux").args(["hostlist", "local"]).output();
            let output = output.map_err(Error::system("running flux hostlist local"))?;
            let list = String::from_utf8_lossy(&output.stdout).into_owned();
            Some(parse_list(list.trim(), COMMAND)?)
        }
    })
}
