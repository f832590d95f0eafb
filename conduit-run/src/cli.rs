//! The command line of `conduit-run`.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind as ClapErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use conduit::stderr;

use crate::daemon;
use crate::error::Error;
use crate::host::plan::{Bind, Readers};
use crate::hosts::{self, Want};
use crate::launch::{Launch, Several};
use crate::remote::{self, Remote};
use crate::settings::Report;

/// Starts the ranks of a job, on this host or on several, and ends when they have ended.
///
/// The exit code is 0 if all ranks exit with 0, 1 if other ranks had to be ended because one left
/// the job without finishing it, otherwise the code of the first failed rank (128 + signal if it
/// was killed). A message names that rank, and the other ranks are ended. Signals are forwarded to
/// all ranks.
#[derive(Debug, Parser)]
#[command(name = "conduit-run", version, after_help = AFTER_HELP)]
struct Options {
    /// Number of ranks; default with hosts: the sum of their slots
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,

    /// Hosts with their slots: node1,node2:4 or node[1-3,07]:2; default: those of the batch system
    /// (Slurm, PBS, LSF, Grid Engine, Flux), else this host
    #[arg(long, value_name = "LIST", help_heading = SEVERAL)]
    hosts: Option<String>,

    /// File with a host a line: node1, node1:4, node1 slots=4 max_slots=8, or node[1-3]
    #[arg(long, value_name = "FILE", conflicts_with = "hosts", help_heading = SEVERAL)]
    hostfile: Option<PathBuf>,

    /// Number of ranks on each host
    #[arg(
        short = 'N',
        long,
        value_name = "N",
        help_heading = SEVERAL,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    ppn: Option<u32>,

    /// Command that runs a command on {host}; without {host}, the host is appended [default:
    /// CONDUIT_REMOTE_SHELL, or ssh -o BatchMode=yes -o ConnectTimeout=10 {host}]
    #[arg(long, value_name = "COMMAND", help_heading = SEVERAL)]
    remote_shell: Option<String>,

    /// Path of conduit-run on the other hosts [default: that of this program]
    #[arg(long, value_name = "PATH", help_heading = SEVERAL)]
    remote_path: Option<OsString>,

    /// Time for each host to start its daemon, and then its ranks
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = seconds,
        default_value = "30",
        help_heading = SEVERAL
    )]
    start_timeout: Duration,

    /// Give ranks on other hosts only the variables of --env and those that start with CONDUIT_ or
    /// GASNET_; default: all except those of this session and host
    #[arg(long, help_heading = SEVERAL)]
    no_env: bool,

    /// Print the hosts with their ranks and the commands that would start their daemons, and start
    /// nothing
    #[arg(long, help_heading = SEVERAL)]
    dry_run: bool,

    /// Run the ranks of this host for a launcher
    #[arg(long, hide = true, exclusive = true)]
    daemon: bool,

    /// Which ranks read standard input: all, none, or the number of one
    #[arg(long, value_name = "RANKS", value_parser = readers, default_value = "0")]
    stdin: Readers,

    /// Put "[rank] " before each line of output and never mix lines; without this option only lines
    /// of standard error are kept whole
    #[arg(short = 'l', long)]
    prefix: bool,

    /// Where ranks run: on any processor; the i-th rank of a host on its i-th allowed processor
    /// (wrapping around); or in blocks on the processors of each socket or memory node
    #[arg(long, value_enum, default_value_t = BindTo::None)]
    bind: BindTo,

    /// Report the processors of each rank
    #[arg(long)]
    report_bindings: bool,

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
        required_unless_present_any = ["print_settings", "daemon"],
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

/// The heading of the options for several hosts.
const SEVERAL: &str = "Several hosts";

const AFTER_HELP: &str = "\
Exit codes: 0 all ranks succeeded · 2 bad usage, or the job cannot be started · 124 time limit · 126 program not \
executable · 127 program not found · else that of the first rank that failed.

Ranks find PMI_FD, PMI_RANK and PMI_SIZE (PMI-1), CONDUIT_LAUNCHER=1 and CONDUIT_JOB_ID in their environment, \
and FI_OFI_RXD_MAX_UNACKED=16 unless it is set.

On other hosts, a remote shell starts a daemon, which runs the ranks there; its standard input and output connect it \
with this program. Ranks are placed in blocks in the order of the hosts, up to their slots; without slots evenly.

A process that holds the descriptor PMI_FD acts as the rank. Programs that a rank starts after it has connected do not \
inherit it; programs started earlier by a wrapper script, or by a program that never connects, do.";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum BindTo {
    None,
    Core,
    Socket,
    Numa,
}

/// Runs the command line of this process. A custom launcher is
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     conduit_run::cli::main()
/// }
/// ```
pub fn main() -> ExitCode {
    let in_batch = !matches!(hosts::from_environment(&remote::variable), Ok(None));
    let options = parse(std::env::args_os(), in_batch).unwrap_or_else(|error| error.exit());
    if options.daemon {
        return daemon::main();
    }
    if options.print_settings {
        return print_settings(&options);
    }
    match start(options) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            stderr::write_line(format_args!("conduit-run: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}

/// Runs the job. Returns its exit code.
fn start(options: Options) -> Result<u8, Error> {
    let several = several(&options)?;
    if options.dry_run {
        print_plan(&options, several.as_ref())?;
        return Ok(0);
    }
    let launch = match several {
        None => launch(options),
        Some(several) => launch(options).several(several)?,
    };
    Ok(launch.run()?.exit_code)
}

/// Returns the hosts of the options or of the batch system, and how to reach them; `None` if there
/// are none.
fn several(options: &Options) -> Result<Option<Several>, Error> {
    let hosts = if let Some(list) = &options.hosts {
        Some(hosts::parse_list(list, "--hosts")?)
    } else if let Some(path) = &options.hostfile {
        Some(remote::from_file(path)?)
    } else {
        remote::from_batch_system()?
    };
    let Some(hosts) = hosts else { return Ok(None) };
    let number = |number: Option<u32>| number.map(|number| number as usize);
    let shell = Remote {
        shell: options.remote_shell.clone(),
        path: options.remote_path.clone(),
        start_timeout: options.start_timeout,
        ..Remote::default()
    };
    Ok(Some(Several {
        hosts,
        want: Want {
            ranks: number(options.ranks),
            per_host: number(options.ppn),
        },
        shell: shell.parse()?,
        all_env: !options.no_env,
    }))
}

/// Prints what would be started.
fn print_plan(options: &Options, several: Option<&Several>) -> Result<(), Error> {
    use std::fmt::Write as _;
    let mut text = String::new();
    let words = options.command.iter().map(|word| word.to_string_lossy());
    let program = words.collect::<Vec<_>>().join(" ");
    match several {
        None => {
            let last = options.ranks.unwrap_or(1) - 1;
            let _ = writeln!(text, "this host: ranks 0 to {last}");
        }
        Some(several) => {
            let known = !hosts::needs_processors(&several.hosts, several.want);
            let counts = match known {
                true => hosts::place(&several.hosts, &[], several.want)?,
                false => Vec::new(),
            };
            let mut first = 0;
            for (at, host) in several.hosts.iter().enumerate() {
                let ranks = match counts.get(at) {
                    Some(0) => continue,
                    Some(1) => format!("rank {first}"),
                    Some(count) => format!("ranks {first} to {}", first + count - 1),
                    None => "ranks that depend on the number of processors".to_owned(),
                };
                first += counts.get(at).unwrap_or(&0);
                let command = match hosts::is_here(&host.name) {
                    true => "this host".to_owned(),
                    false => several
                        .shell
                        .command(&host.name)
                        .join(OsStr::new(" "))
                        .to_string_lossy()
                        .into_owned(),
                };
                let _ = writeln!(text, "{}: {ranks}: {command}", host.name);
            }
        }
    }
    let _ = writeln!(text, "program: {program}");
    let mut stdout = std::io::stdout().lock();
    std::io::Write::write_all(&mut stdout, text.as_bytes())
        .or_else(|error| match error.kind() {
            ErrorKind::BrokenPipe => Ok(()),
            _ => Err(error),
        })
        .map_err(Error::system("writing the plan"))
}

/// Parses the command line. Also accepts `-np` for `-n`, because other launchers do. The number of
/// ranks is optional if there are hosts, such as those of a batch system.
fn parse(
    words: impl IntoIterator<Item = OsString>,
    in_batch: bool,
) -> Result<Options, clap::Error> {
    let options = parse_words(words)?;
    let has_hosts = in_batch || options.hosts.is_some() || options.hostfile.is_some();
    let needs_none = options.print_settings || options.daemon;
    if options.ranks.is_none() && !has_hosts && !needs_none {
        return Err(Options::command().error(
            ClapErrorKind::MissingRequiredArgument,
            "the number of ranks is missing: give --ranks (-n), or hosts with --hosts or --hostfile",
        ));
    }
    Ok(options)
}

fn parse_words(words: impl IntoIterator<Item = OsString>) -> Result<Options, clap::Error> {
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
    // The number of ranks is known unless the hosts decide it.
    let mut launch = Launch::new(options.ranks.unwrap_or(0) as usize, program)
        .args(command)
        .prefix_output(options.prefix)
        .bind(match options.bind {
            BindTo::None => Bind::None,
            BindTo::Core => Bind::Core,
            BindTo::Socket => Bind::Socket,
            BindTo::Numa => Bind::Numa,
        })
        .report_bindings(options.report_bindings)
        .timeout(options.timeout)
        .verbose(options.verbose)
        .agent(options.agent.then(agent_program))
        .readers(options.stdin)
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

fn readers(text: &str) -> Result<Readers, String> {
    match (text, text.parse()) {
        ("all", _) => Ok(Readers::All),
        ("none", _) => Ok(Readers::None),
        (_, Ok(rank)) => Ok(Readers::Rank(rank)),
        _ => Err("expected all, none or the number of a rank".to_owned()),
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
            false,
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
            &["-n", "1", "--hosts", "a", "--hostfile", "f", "prog"],
            &["-n", "1", "--daemon"],
            &["--daemon", "prog"],
            &["-n", "1", "--stdin", "some", "prog"],
            &["--hosts", "a", "-N", "0", "prog"],
            &["--ppn", "1", "prog"],
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
    fn hosts_may_decide_the_number_of_ranks() {
        for args in [
            &["--hosts", "a:2", "prog"][..],
            &["--hostfile", "f", "-N", "2", "prog"],
            &["--daemon"],
        ] {
            assert_eq!(parse(args).unwrap().ranks, None, "{args:?}");
        }
        let words = ["conduit-run", "prog"].map(OsString::from);
        assert!(super::parse(words.clone(), true).is_ok());
        let error = super::parse(words, false).unwrap_err();
        assert!(
            error.to_string().contains("--ranks (-n), or hosts"),
            "{error}"
        );
    }

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }
}
