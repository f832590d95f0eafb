//! The launchers that programs written for GASNet expect, by the names that they expect: `gasnetrun_smp`, `gasnetrun_udp`,
//! `gasnetrun_ofi`, `gasnetrun_conduit` and AMUDP's `amudprun`.
//!
//! It is one program that goes by the name that it is called by. All that it does is to read the options that GASNet's READMEs
//! document; the ranks are started by [`conduit_run::Launch`], as `conduit-run` does it.

mod executable;
mod options;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use conduit_run::{Bind, Launch};

use options::{Error, Job, Name, Request};

/// Bad usage, as `conduit-run` has it.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = Name::new(&arguments.next().unwrap_or_default());
    let request = options::parse(&name, arguments, |variable| std::env::var_os(variable));
    let job = match request {
        Ok(Request::Job(job)) => job,
        Ok(Request::Help) => {
            // Whoever reads it may have seen enough.
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
    match launch(job).run() {
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

/// Whether the launcher's conduit is the program's. A program that doesn't say (a script, or one whose headers were used by
/// a shared library only) may be anything.
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
    // Nowhere to complain about a standard error that can't be written.
    let _ = writeln!(std::io::stderr(), "{name}: {what}");
}
