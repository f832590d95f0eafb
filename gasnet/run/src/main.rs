//! The launchers that programs written for GASNet expect, under the expected names:
//! `gasnetrun_smp`, `gasnetrun_udp`, `gasnetrun_ofi`, `gasnetrun_conduit` and AMUDP's `amudprun`.
//!
//! This single program acts according to the name by which it is called. It only reads the options
//! and variables that GASNet's READMEs document; [`conduit_run::Launch`] starts the ranks, as in
//! `conduit-run`, or another launcher does.

mod executable;
mod options;
mod spawner;
mod variables;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use conduit_run::{Bind, Launch};

use options::{Error, Job, Name, Request, Spawner};
use spawner::Hosts;

/// The exit code for invalid usage, as in `conduit-run`.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = Name::new(&arguments.next().unwrap_or_default());
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "--daemon")
    {
        // A launcher of this name has started this process on one of its job's hosts.
        return conduit_run::cli::main();
    }
    let request = options::parse(&name, arguments, |variable| std::env::var_os(variable));
    let job = match request {
        Ok(Request::Job(job)) => job,
        Ok(Request::Help) => {
            // Ignore an error, because the reader may have closed the pipe.
            let _ = write!(std::io::stdout(), "{}", name.help());
            return ExitCode::SUCCESS;
        }
        Err(error) => return complain(&name, &error, USAGE),
    };
    if let Err(error) = fits(&name, &job.program) {
        return complain(&name, &error, USAGE);
    }
    if job.verbose {
        tell(&name, &format_args!("{job}"));
    }
    if job.test {
        return ExitCode::SUCCESS;
    }
    let hosts = match &job.spawner {
        Spawner::Fork => None,
        Spawner::Command(template) => {
            return complain(&name, &spawner::execute(&job, template), USAGE);
        }
        Spawner::Ssh => match Hosts::find(&job) {
            Ok(hosts) => Some(hosts),
            Err(error) => return complain(&name, &error, USAGE),
        },
    };
    let launch = launch(job);
    let launch = match &hosts {
        None => Ok(launch),
        Some(hosts) => launch.on_hosts(hosts.list.as_deref(), hosts.per_host, spawner::remote()),
    };
    match launch.and_then(Launch::run) {
        Ok(outcome) => ExitCode::from(outcome.exit_code),
        Err(error) => complain(&name, &error, error.exit_code()),
    }
}

fn launch(job: Job) -> Launch {
    Launch::new(job.ranks, job.program)
        .args(job.arguments)
        .bind(
            job.processors
                .and_then(NonZeroUsize::new)
                .map_or(Bind::None, Bind::Cores),
        )
        .verbose(job.verbose)
        .inherit_stdin(true)
        .own_process(true)
}

/// Checks that the launcher is for the program's conduit. A program that names no conduit (a
/// script, or a program that uses GASNet only through a shared library) may use any launcher.
fn fits(name: &Name, program: &OsStr) -> Result<(), Error> {
    let Some(wanted) = name.conduit() else {
        return Ok(());
    };
    let found = executable::find(program, std::env::var_os("PATH").as_deref())
        .map(|file| executable::conduits(&file))
        .unwrap_or_default();
    match found.first() {
        Some(first) if !found.iter().any(|conduit| conduit == wanted) => Err(Error::OtherConduit {
            program: OsString::from(program),
            conduit: first.clone(),
        }),
        _ => Ok(()),
    }
}

fn complain(name: &Name, error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    tell(name, error);
    ExitCode::from(code)
}

fn tell(name: &Name, what: &dyn std::fmt::Display) {
    // There is no place to report a failure to write to standard error.
    let _ = writeln!(std::io::stderr(), "{name}: {what}");
}
