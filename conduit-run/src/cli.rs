//! The command line of `conduit-run`.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind as ClapErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use conduit::stderr;

use crate::host::plan::Bind;
use crate::launch::Launch;
use crate::settings::Report;

/// Starts the ranks of a job on this host and ends when they have ended.
///
/// The exit code is 0 if all ranks exit with 0, 1 if other ranks had to be ended because one left
/// the job without finishing it, otherwise the code of the first failed rank (128 + signal if it
/// was killed). A message names that rank, and the other ranks are ended. Signals are forwarded to
/// all ranks.
#[derive(Debug, Parser)]
#[command(name = "conduit-run", version, after_help = AFTER_HELP)]
struct Options {
    /// Number of ranks
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        required_unless_present = "print_settings",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    ranks: Option<u32>,

    /// Put "[rank] " before each line of output and never mix lines; without this option only lines
    /// of standard error are kept whole
    #[arg(short = 'l', long)]
    prefix: bool,

    /// Where ranks run: on any processor, or rank i on the i-th allowed processor (wrapping around)
    #[arg(long, value_enum, default_value_t = BindTo::None)]
    bind: BindTo,

    /// End the job with exit code 124 if it takes longer
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,

    /// Time from SIGTERM to SIGKILL for ranks that have to end [default: 1; 3 after SIGINT or
    /// SIGTERM]. When a rank exits, the others have the same time to follow before they get
    /// SIGTERM; a rank that closes its connection has thirty times as long to report the reason
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    grace: Option<Duration>,

    /// Set a variable of the ranks' environment (may be repeated)
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,

    /// Start a node agent (conduit-hsta, beside this program or in PATH) for the ranks, which find
    /// its name in CONDUIT_AGENT
    #[arg(long)]
    agent: bool,

    /// Report each start and end of a rank
    #[arg(short, long)]
    verbose: bool,

    /// Print the settings that ranks would find, their origin and their meaning, and start nothing;
    /// with -n also the values that depend on the job's size
    #[arg(long, conflicts_with = "command")]
    print_settings: bool,

    /// Print the settings as JSON
    #[arg(long, requires = "print_settings", conflicts_with = "command")]
    json: bool,

    /// The program and its arguments
    #[arg(
        required_unless_present = "print_settings",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Exit codes: 0 all ranks succeeded · 2 bad usage, or the job cannot be started · 124 time limit · 126 program not \
executable · 127 program not found · else that of the first rank that failed.

Ranks find PMI_FD, PMI_RANK and PMI_SIZE (PMI-1), CONDUIT_LAUNCHER=1 and CONDUIT_JOB_ID in their environment, \
and FI_OFI_RXD_MAX_UNACKED=16 unless it is set. Standard input is rank 0's.

A process that holds the descriptor PMI_FD acts as the rank. Programs that a rank starts after it has connected do not \
inherit it; programs started earlier by a wrapper script, or by a program that never connects, do.";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum BindTo {
    None,
    Core,
}

/// Runs the command line of this process. A custom launcher is
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     conduit_run::cli::main()
/// }
/// ```
pub fn main() -> ExitCode {
    let options = parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    if options.print_settings {
        return print_settings(&options);
    }
    match launch(options).run() {
        Ok(outcome) => ExitCode::from(outcome.exit_code),
        Err(error) => {
            stderr::write_line(format_args!("conduit-run: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}

/// Parses the command line. Also accepts `-np` for `-n`, because other launchers do.
fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Options, clap::Error> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let names_ranks = |word: &&mut OsString| {
        let word = word.as_encoded_bytes();
        word.starts_with(b"-n") || word.starts_with(b"--ranks")
    };
    if let Some(word) = words.iter_mut().find(names_ranks)
        && word == "-np"
    {
        *word = "-n".into();
    }
    // A word with a hyphen may follow the program as one of its arguments but cannot be the program
    // itself. Clap has one switch for both cases, so parse with hyphens forbidden first.
    let mut strict = Options::command().mut_arg("command", |arg| arg.allow_hyphen_values(false));
    if let Err(error) = strict.try_get_matches_from_mut(&words)
        && error.kind() == ClapErrorKind::UnknownArgument
    {
        let options = Options::try_parse_from(&words)?;
        let first = options.command.first();
        if first.is_some_and(|program| program.as_encoded_bytes().starts_with(b"-")) {
            return Err(error);
        }
    }
    Options::try_parse_from(words)
}

/// Prints the settings. Returns exit code 2 if a setting is invalid or the settings cannot be
/// written.
fn print_settings(options: &Options) -> ExitCode {
    // Decode the variables as a rank does: bytes that are not UTF-8 become U+FFFD, which no setting
    // accepts.
    let environment = std::env::vars_os().map(|(name, value)| {
        let text = |text: OsString| text.to_string_lossy().into_owned();
        (text(name), text(value))
    });
    let complain = |what: &dyn std::fmt::Display| {
        stderr::write_line(format_args!("conduit-run: {what}"));
    };
    let report = match Report::new(environment, &options.env, options.ranks) {
        Ok(report) => report,
        Err(error) => {
            complain(&error);
            return ExitCode::from(2);
        }
    };
    for warning in report.warnings() {
        complain(&format_args!("warning: {warning}"));
    }
    match report.print(options.json) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the pipe because it needs no more output.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format_args!("cannot write the settings: {error}"));
            ExitCode::from(2)
        }
    }
}

fn launch(options: Options) -> Launch {
    let mut command = options.command.into_iter();
    let program = command.next().unwrap_or_default();
    // Clap requires the number of ranks unless only settings are printed.
    let mut launch = Launch::new(options.ranks.unwrap_or(0) as usize, program)
        .args(command)
        .prefix_output(options.prefix)
        .bind(match options.bind {
            BindTo::None => Bind::None,
            BindTo::Core => Bind::Core,
        })
        .timeout(options.timeout)
        .verbose(options.verbose)
        .agent(options.agent.then(agent_program))
        .inherit_stdin(true)
        .own_process(true);
    if let Some(grace) = options.grace {
        launch = launch.grace(grace).signal_grace(grace);
    }
    launch.envs(options.env)
}

/// Returns the agent's program: the file beside this program if there is one, or else the name, to
/// be looked up in `PATH`.
fn agent_program() -> OsString {
    const NAME: &str = "conduit-hsta";
    let beside = std::env::current_exe().map(|own| own.with_file_name(NAME));
    match beside {
        Ok(beside) if beside.is_file() => beside.into(),
        _ => NAME.into(),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    const MOST: f64 = 1e9;
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=MOST).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a number of seconds from 0 to 1e9".to_owned()),
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, clap::Error> {
        super::parse(
            std::iter::once(&"conduit-run")
                .chain(args)
                .map(OsString::from),
        )
    }

    #[test]
    fn the_programs_own_options_are_left_alone() {
        let options = parse(&["-n", "4", "-l", "prog", "-n", "--verbose", "--", "x"]).unwrap();
        assert_eq!(
            (options.ranks, options.prefix, options.verbose),
            (Some(4), true, false)
        );
        assert_eq!(options.command, ["prog", "-n", "--verbose", "--", "x"]);
    }

    #[test]
    fn bad_input_is_refused() {
        for args in [
            &["-n", "0", "prog"][..],
            &["-n", "-1", "prog"],
            &["-n", "x", "prog"],
            &["prog"],
            &["-n", "1"],
            &["-n", "1", "--timeout", "-1", "prog"],
            &["-n", "1", "--timeout", "nan", "prog"],
            &["-n", "1", "--grace", "1e99", "prog"],
            &["-n", "1", "--env", "=x", "prog"],
            &["-n", "1", "--env", "x", "prog"],
            &["-n", "1", "--bind", "moon", "prog"],
            &["-n", "0", "--print-settings"],
            &["-n", "1", "--print-settings", "prog"],
            &["-n", "1", "--json", "prog"],
            &["-n", "1", "--json"],
            &["-n", "1", "--hosts", "a,b", "prog"],
            &["-np", "x", "prog"],
        ] {
            assert_eq!(parse(args).unwrap_err().exit_code(), 2, "{args:?}");
        }
    }

    #[test]
    fn unknown_options_are_named_with_the_nearest_one() {
        for (option, nearest) in [("--time", "--timeout"), ("--envs", "--env")] {
            let error = parse(&["-n", "2", option, "9", "prog"]).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&format!("'{option}'")), "{text}");
            assert!(text.contains(&format!("'{nearest}'")), "{text}");
        }
        // After `--`, the next word is the program.
        let options = parse(&["-n", "2", "--", "--time", "-x"]).unwrap();
        assert_eq!(options.command, ["--time", "-x"]);
    }

    #[test]
    fn np_is_n() {
        let options = parse(&["-l", "-np", "2", "prog", "-np", "3"]).unwrap();
        assert_eq!(options.ranks, Some(2));
        assert_eq!(options.command, ["prog", "-np", "3"]);
        let options = parse(&["-n", "2", "prog", "-np", "3", "--hosts"]).unwrap();
        assert_eq!(options.command, ["prog", "-np", "3", "--hosts"]);
    }

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }
}
