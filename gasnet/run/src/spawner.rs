//! The hosts of a job, the remote shell that reaches them, and the commands of other launchers.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use conduit_run::Remote;

use crate::options::Job;
use crate::variables::{FILES, SERVERS, text};

/// The hosts of a job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hosts {
    /// The hosts in the notation of `conduit-run`; `None` for those of the batch system.
    pub(crate) list: Option<String>,
    /// The number of ranks on each host, if the list does not say it.
    pub(crate) per_host: Option<usize>,
}

/// The reason why hosts cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostsError {
    #[error("{variable}={path}: {source}")]
    File {
        variable: &'static str,
        path: String,
        source: io::Error,
    },
    #[error("-N {wanted}: {origin} names {found} hosts")]
    Few {
        wanted: usize,
        origin: &'static str,
        found: usize,
    },
}

impl Hosts {
    /// Finds the hosts by the variables of the environment.
    pub(crate) fn find(job: &Job) -> Result<Self, HostsError> {
        let variable = |name: &str| std::env::var_os(name);
        let of_file = |name: &&'static str| Some((*name, text(&variable, &[name])?));
        if let Some((name, path)) = FILES.iter().find_map(of_file) {
            let lines = std::fs::read_to_string(&path).map_err(|source| HostsError::File {
                variable: name,
                path,
                source,
            })?;
            let words = lines
                .lines()
                .filter_map(|line| line.split_whitespace().next());
            return Self::of(words.filter(|word| !word.starts_with('#')), name, job);
        }
        let of_list = |name: &&'static str| Some((*name, text(&variable, &[name])?));
        if let Some((name, list)) = SERVERS.iter().find_map(of_list) {
            let words = list.split([' ', ',', '\t', '\n']);
            return Self::of(words.filter(|word| !word.is_empty()), name, job);
        }
        Ok(Hosts {
            list: None,
            per_host: job.hosts.map(|hosts| job.ranks.div_ceil(hosts)),
        })
    }

    /// Returns as many of the first hosts as the job wants. Repetitions do not count, unless
    /// `GASNET_SSH_KEEPDUP` says so. Each host gets the same number of ranks, the first ones one
    /// more.
    fn of<'a>(
        words: impl Iterator<Item = &'a str>,
        origin: &'static str,
        job: &Job,
    ) -> Result<Self, HostsError> {
        let mut hosts: Vec<&str> = Vec::new();
        let keeps = std::env::var_os("GASNET_SSH_KEEPDUP").is_some_and(|value| value == "1");
        for word in words {
            if keeps || !hosts.contains(&word) {
                hosts.push(word);
            }
        }
        let found = hosts.len();
        let wanted = job.hosts.unwrap_or(found);
        if wanted > found {
            return Err(HostsError::Few {
                wanted,
                origin,
                found,
            });
        }
        hosts.truncate(wanted.min(job.ranks));
        Ok(Hosts {
            list: Some(hosts.join(",")),
            per_host: None,
        })
    }
}

/// Returns the remote shell of the environment's variables.
pub(crate) fn remote() -> Remote {
    let variable = |name: &str| std::env::var_os(name);
    let of = |what: &str| {
        let names = ["GASNET_", "AMUDP_", ""].map(|prefix| format!("{prefix}SSH_{what}"));
        text(&variable, &names.each_ref().map(String::as_str))
    };
    let mut remote = Remote::default();
    let (command, options) = (of("CMD"), of("OPTIONS"));
    if command.is_some() || options.is_some() {
        let command = command.unwrap_or_else(|| "ssh -o BatchMode=yes".to_owned());
        let options = options.unwrap_or_default();
        remote.shell = Some(format!("{command} {options} {{host}}"));
    }
    remote
}

/// Executes the command of another launcher in place of this program. Returns only if that fails.
pub(crate) fn execute(job: &Job, template: &str) -> io::Error {
    let command = expand(job, template);
    if job.verbose {
        eprintln!("{}", command.to_string_lossy());
    }
    Command::new("sh").arg("-c").arg(command).exec()
}

/// Replaces the placeholders of a template. Program and arguments are quoted for the shell.
fn expand(job: &Job, template: &str) -> OsString {
    let program = quoted(&job.program);
    let arguments: Vec<OsString> = job.arguments.iter().map(|word| quoted(word)).collect();
    let arguments = arguments.join(OsStr::new(" "));
    let mut command = OsString::new();
    let mut letters = template.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            command.push(letter.to_string());
            continue;
        }
        match letters.next() {
            Some('N') => command.push(job.ranks.to_string()),
            Some('P') => command.push(&program),
            Some('A') => command.push(&arguments),
            Some('C') => {
                command.push(&program);
                command.push(" ");
                command.push(&arguments);
            }
            Some('D') => command.push(quoted(
                std::env::current_dir().unwrap_or_default().as_os_str(),
            )),
            // `%%` is a percent sign; other letters are the command's own.
            Some('%') | None => command.push("%"),
            Some(other) => command.push(format!("%{other}")),
        }
    }
    command
}

/// Quotes a word for the shell.
fn quoted(word: &OsStr) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut quoted = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => quoted.extend(b"'\\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    OsString::from_vec(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Spawner;

    fn job(ranks: usize, hosts: Option<usize>) -> Job {
        Job {
            ranks,
            program: "a b/prog".into(),
            arguments: vec!["x".into(), "it's".into()],
            processors: None,
            verbose: false,
            test: false,
            hosts,
            spawner: Spawner::Ssh,
        }
    }

    #[test]
    fn templates_are_filled_in() {
        let filled = |template| expand(&job(4, None), template).into_string().unwrap();
        assert_eq!(
            filled("mpirun -np %N %C"),
            "mpirun -np 4 'a b/prog' 'x' 'it'\\''s'"
        );
        assert_eq!(
            filled("%P|%A|100%%|%x|%"),
            "'a b/prog'|'x' 'it'\\''s'|100%|%x|%"
        );
    }

    #[test]
    fn the_first_hosts_are_taken_once() {
        let list = |words: &[&'static str], job: &Job| {
            let hosts = Hosts::of(words.iter().copied(), "GASNET_SSH_SERVERS", job);
            hosts.map(|hosts| hosts.list.unwrap())
        };
        let words = ["a", "b", "a", "c"];
        assert_eq!(list(&words, &job(8, None)).unwrap(), "a,b,c");
        assert_eq!(list(&words, &job(8, Some(2))).unwrap(), "a,b");
        assert_eq!(list(&words, &job(2, Some(3))).unwrap(), "a,b");
        let error = list(&words, &job(8, Some(4))).unwrap_err();
        assert_eq!(error.to_string(), "-N 4: GASNET_SSH_SERVERS names 3 hosts");
    }
}
