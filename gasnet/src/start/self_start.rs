//! The start of a job by a program that was run without a launcher and becomes the launcher of its
//! own job.
//!
//! GASNet's conduits smp and udp need no launcher: a program run by itself starts its ranks when it
//! initialises GASNet. This library does the same. The process becomes the launcher
//! (`conduit_run::Launch`): it passes its standard input to rank 0, forwards signals, waits, and
//! exits with the job's code. The ranks are new processes of the same program with the same command
//! line.
//!
//! **Each rank repeats everything that the program did before its initialisation**, because it
//! begins at `main`. (GASNet's smp conduit forks instead.) Standard output that the launcher still
//! buffers at initialisation is discarded, so that it does not appear twice.
//!
//! | conduit | the number of ranks |
//! |---|---|
//! | `smp`, `ofi`, `conduit` | `GASNET_PSHM_NODES`; a job of one rank if it is not set |
//! | `udp` | the first argument, removed for the ranks; `GASNET_SPAWNFN`: `L` (this host) or unset |

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::fmt;
use std::fs;
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use conduit_run::{How, Launch};

/// The largest number of ranks in a job that starts itself.
const MOST_RANKS: usize = 65_535;
/// The launcher of jobs on several hosts, which is looked up in `PATH`.
const AMUDPRUN: &str = "amudprun";

/// The reason why a program cannot start its job.
#[derive(Debug)]
pub(crate) enum SelfStartError {
    /// A variable or an argument has a value that is not supported.
    Value {
        /// The name of the variable or argument.
        name: String,
        value: String,
        accepted: String,
    },
    /// A variable cannot be read. The text names the variable.
    Variable(String),
    /// The environment says that this process is one of several. The text gives details.
    Alone(String),
    /// A udp program lacks its first argument.
    NoRanks,
    /// The launcher failed.
    Launch(conduit_run::Error),
    /// The launcher of several hosts cannot be executed.
    Exec(std::io::Error),
}

impl fmt::Display for SelfStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value { name, value, accepted } => write!(f, "{name} is {value:?}; accepted: {accepted}"),
            Self::Variable(reason) | Self::Alone(reason) => f.write_str(reason),
            Self::NoRanks => f.write_str(
                "the first argument of a conduit udp program run without a launcher must be the number of \
                 ranks, from 1 to 65535: PROGRAM N ARGUMENTS..., or amudprun -np N PROGRAM ARGUMENTS...",
            ),
            Self::Launch(error) => write!(f, "cannot start the ranks: {error}"),
            Self::Exec(error) => write!(
                f,
                "cannot execute {AMUDPRUN}, which starts ranks on several hosts: {error}; add the folder \
                 of the installed launchers to PATH"
            ),
        }
    }
}

impl From<conduit_run::Error> for SelfStartError {
    fn from(error: conduit_run::Error) -> Self {
        Self::Launch(error)
    }
}

/// A job to be started.
#[derive(Debug, PartialEq, Eq)]
struct Job {
    ranks: usize,
    /// The ranks' command line, beginning with the program's name.
    command: Vec<OsString>,
    /// A note for the user about an unexpected choice, if any.
    note: Option<&'static str>,
    spawner: Spawner,
}

/// How the ranks of a job are started.
#[derive(Debug, PartialEq, Eq)]
enum Spawner {
    /// On this host (`L`).
    Local,
    /// By `amudprun`, which knows hosts and commands (`S` and `C`).
    Amudprun(&'static str),
}

/// Returns the arguments that the client passes to the initialisation call, or `None` if it passes
/// none.
///
/// # Safety
/// `count` and `values` must be null or point to the arguments of C's `main`.
pub(crate) unsafe fn words(
    count: *const c_int,
    values: *const *const *const c_char,
) -> Option<Vec<OsString>> {
    if count.is_null() || values.is_null() {
        return None;
    }
    // SAFETY: neither pointer is null, so the caller guarantees that both point to the arguments of
    // `main`.
    let (count, values) = unsafe { (usize::try_from(*count).ok()?, *values) };
    if values.is_null() || count == 0 {
        return None;
    }
    // SAFETY: the caller guarantees that the array holds `count` pointers.
    let words = (0..count).map(|number| unsafe { *values.add(number) });
    let words = words.take_while(|word| !word.is_null());
    // SAFETY: the caller guarantees that each word is a C string.
    let words =
        words.map(|word| OsStr::from_bytes(unsafe { CStr::from_ptr(word) }.to_bytes()).to_owned());
    Some(words.collect())
}

/// Returns `Ok` if this process should continue as a rank, because a launcher has started it or
/// because it is a job of one rank. Otherwise starts the job, waits for its end, and exits with its
/// code.
///
/// # Errors
/// Fails if a variable or the first argument is out of range, or if the ranks cannot be started. No
/// rank is then left running.
pub(crate) fn self_start(
    conduit: &str,
    arguments: Option<&[OsString]>,
) -> Result<(), SelfStartError> {
    conduit_core::descriptors::occupy_standard_streams();
    if conduit::has_launcher() {
        return Ok(());
    }
    let variable = |name: &str| std::env::var_os(name);
    match plan(conduit, arguments, &command_line(), variable)? {
        Some(job) => {
            conduit::check_alone().map_err(|error| SelfStartError::Alone(error.to_string()))?;
            run(job)
        }
        None => Ok(()),
    }
}

fn run(job: Job) -> Result<(), SelfStartError> {
    let verbose = super::environment::yes(c"GASNET_SPAWN_VERBOSE", false)
        .map_err(|refusal| SelfStartError::Variable(refusal.reason))?;
    if let Some(note) = job.note {
        conduit::stderr::write_line(format_args!("conduit: {note}"));
    }
    if let Spawner::Amudprun(spawn) = job.spawner {
        return Err(exec(spawn, job.ranks, &job.command));
    }
    let mut command = job.command.into_iter();
    let outcome = Launch::new(job.ranks, program())
        .arg0(command.next().unwrap_or_default())
        .args(command)
        .verbose(verbose)
        .quiet(!verbose)
        .inherit_stdin(true)
        .own_process(true)
        .run()?;
    // The job looks like a single program to the user, so its exit code suffices, unless the ranks
    // may have been unable to report why they ended.
    let is_told = matches!(
        outcome.how,
        How::Completed | How::Exited { .. } | How::Aborted { .. } | How::Signalled { .. }
    );
    if !is_told && !verbose {
        conduit::stderr::write_line(format_args!("conduit: {}", outcome.how));
    }
    // SAFETY: `_exit` has no precondition. It runs no exit handlers and writes no buffered streams
    // of the client, which is left to the ranks.
    unsafe { libc::_exit(outcome.exit_code.into()) }
}

/// Executes `amudprun` in place of this program. Returns only if that fails.
fn exec(spawn: &'static str, ranks: usize, command: &[OsString]) -> SelfStartError {
    let error = Command::new(AMUDPRUN)
        .args(["-np", &ranks.to_string(), "-spawn", spawn, "--"])
        .arg(program())
        .args(command.iter().skip(1))
        .exec();
    SelfStartError::Exec(error)
}

/// Returns the job to start, or `None` if this process continues as a rank.
fn plan(
    conduit: &str,
    given: Option<&[OsString]>,
    line: &[OsString],
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<Job>, SelfStartError> {
    if conduit == "udp" {
        return udp(given, line, variable).map(Some);
    }
    const RANKS: &str = "GASNET_PSHM_NODES";
    let Some(value) = variable(RANKS).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let ranks = ranks(RANKS, &value)?;
    let command = match (line, given) {
        ([], Some(given)) => given.to_owned(),
        _ => line.to_owned(),
    };
    Ok((ranks > 1).then_some(Job {
        ranks,
        command,
        note: None,
        spawner: Spawner::Local,
    }))
}

fn udp(
    given: Option<&[OsString]>,
    line: &[OsString],
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Job, SelfStartError> {
    let spawner = ["GASNET_SPAWNFN", "AMUDP_SPAWNFN", "SPAWNFN"]
        .into_iter()
        .find_map(|name| Some((name, variable(name).filter(|value| !value.is_empty())?)));
    let (note, spawner) = match spawner {
        None => (
            Some("GASNET_SPAWNFN is not set; the ranks are started on this host, as if it were L"),
            Spawner::Local,
        ),
        Some((_, value)) if value.eq_ignore_ascii_case("L") => (None, Spawner::Local),
        Some((_, value)) if value.eq_ignore_ascii_case("S") => (None, Spawner::Amudprun("S")),
        Some((_, value)) if value.eq_ignore_ascii_case("C") => (None, Spawner::Amudprun("C")),
        Some((name, value)) => {
            return Err(SelfStartError::Value {
                name: name.to_owned(),
                value: value.to_string_lossy().into_owned(),
                accepted:
                    "L (ranks on this host), S (on the hosts of GASNET_SSH_SERVERS) or C (by \
                           the command of GASNET_CSPAWN_CMD)"
                        .to_owned(),
            });
        }
    };
    let (command, number) = without_ranks(given, line).ok_or(SelfStartError::NoRanks)?;
    let ranks = ranks(
        "the first argument (the number of ranks of a conduit udp program)",
        &number,
    )?;
    Ok(Job {
        ranks,
        command,
        note,
        spawner,
    })
}

/// Returns whether `words` are the last words of `line`. A word counts as equal if it is a prefix
/// of the line's word, because the program may have cut words while parsing them.
fn ends_with(line: &[OsString], words: &[OsString]) -> bool {
    let last = &line[line.len().saturating_sub(words.len())..];
    last.len() == words.len()
        && last
            .iter()
            .zip(words)
            .all(|(word, left)| word.as_bytes().starts_with(left.as_bytes()))
}

/// Returns the ranks' command line without the argument that gives the number of ranks, and that
/// argument.
///
/// That argument is the first one passed by the client. The ranks begin at `main`, so they get the
/// process's command line, whose last words are the client's arguments. If the client passes other
/// arguments than these, the ranks get the client's.
fn without_ranks(
    given: Option<&[OsString]>,
    line: &[OsString],
) -> Option<(Vec<OsString>, OsString)> {
    let mut command = line.to_owned();
    let Some(given) = given else {
        return (command.len() > 1)
            .then(|| command.remove(1))
            .map(|number| (command, number));
    };
    let arguments = given.get(1..).filter(|arguments| !arguments.is_empty())?;
    if line.len() > arguments.len() && ends_with(line, arguments) {
        let number = command.remove(line.len() - arguments.len());
        return Some((command, number));
    }
    let mut command = given.to_owned();
    let number = command.remove(1);
    Some((command, number))
}

fn ranks(name: &str, value: &OsStr) -> Result<usize, SelfStartError> {
    match value.to_string_lossy().trim().parse() {
        Ok(ranks @ 1..=MOST_RANKS) => Ok(ranks),
        _ => Err(SelfStartError::Value {
            name: name.to_owned(),
            value: value.to_string_lossy().into_owned(),
            accepted: format!("a number from 1 to {MOST_RANKS}"),
        }),
    }
}

/// The command line as read when the library is loaded, before `main`: programs write into their
/// arguments while they parse them, and the kernel shows that memory.
static AT_LOAD: OnceLock<Vec<OsString>> = OnceLock::new();

extern "C" fn keep_command_line() {
    AT_LOAD.get_or_init(read_command_line);
}

// SAFETY: the section holds pointers to C functions, each of which the loader calls once. This
// function needs nothing that is prepared before `main`, and does not unwind.
#[used]
#[unsafe(link_section = ".init_array")]
static KEEP: extern "C" fn() = keep_command_line;

/// Returns the words that this process was started with. The client's arguments cannot be used for
/// this, because a client may pass none, or different ones.
fn command_line() -> Vec<OsString> {
    // Refer to `KEEP`, so that the linker keeps it.
    black_box(&raw const KEEP);
    AT_LOAD.get_or_init(read_command_line).clone()
}

fn read_command_line() -> Vec<OsString> {
    let bytes = fs::read("/proc/self/cmdline").unwrap_or_default();
    match bytes.strip_suffix(b"\0") {
        Some(bytes) => bytes
            .split(|byte| *byte == 0)
            .map(|word| OsStr::from_bytes(word).to_owned())
            .collect(),
        None => Vec::new(),
    }
}

/// Returns the path of the program that runs in this process. Returns the program's own name if
/// that still refers to the same file, so that the ranks also have that name, and otherwise
/// `/proc/self/exe`.
fn program() -> PathBuf {
    let this = PathBuf::from("/proc/self/exe");
    let identity = |path: &PathBuf| {
        fs::metadata(path)
            .ok()
            .map(|metadata| (metadata.dev(), metadata.ino()))
    };
    match fs::read_link(&this) {
        Ok(path) if identity(&path).is_some() && identity(&path) == identity(&this) => path,
        _ => this,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    /// Plans with these variables, given as pairs in one text.
    fn plan_with(
        conduit: &str,
        given: Option<&str>,
        line: &str,
        variables: &str,
    ) -> Result<Option<Job>, SelfStartError> {
        let pairs: Vec<_> = variables
            .split_whitespace()
            .filter_map(|pair| pair.split_once('='))
            .collect();
        let given = given.map(list);
        plan(conduit, given.as_deref(), &list(line), |name| {
            pairs
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.into())
        })
    }

    fn job(conduit: &str, given: Option<&str>, line: &str, variables: &str) -> Job {
        plan_with(conduit, given, line, variables).unwrap().unwrap()
    }

    #[test]
    fn the_variable_says_how_many() {
        for conduit in ["smp", "ofi", "conduit"] {
            let got = job(conduit, None, "prog a b", "GASNET_PSHM_NODES=4");
            assert_eq!(
                (got.ranks, got.command, got.note),
                (4, list("prog a b"), None)
            );
            for one in ["", "GASNET_PSHM_NODES=1", "GASNET_PSHM_NODES="] {
                assert_eq!(plan_with(conduit, None, "prog 4", one).unwrap(), None);
            }
        }
        // The client has removed an option that it has handled; it will do so again in the ranks.
        let got = job("smp", Some("prog b"), "prog a b", "GASNET_PSHM_NODES=2");
        assert_eq!(got.command, list("prog a b"));
        assert_eq!(
            job("smp", Some("prog b"), "", "GASNET_PSHM_NODES=2").command,
            list("prog b")
        );
    }

    #[test]
    fn values_out_of_range_are_named() {
        for value in ["0", "-1", "x", "65536", "4.0", "99999999999999999999"] {
            let error =
                plan_with("smp", None, "prog", &format!("GASNET_PSHM_NODES={value}")).unwrap_err();
            let wanted =
                format!("GASNET_PSHM_NODES is {value:?}; accepted: a number from 1 to 65535");
            assert_eq!(error.to_string(), wanted);
            let error = plan_with("udp", None, &format!("prog {value}"), "SPAWNFN=L")
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("the first argument") && error.contains(value),
                "{error}"
            );
        }
        for line in ["prog", ""] {
            for given in [None, Some("prog")] {
                let error = plan_with("udp", given, line, "GASNET_SPAWNFN=L").unwrap_err();
                assert!(matches!(error, SelfStartError::NoRanks), "{line}: {error}");
            }
        }
    }

    #[test]
    fn a_udp_program_has_the_number_first_and_its_ranks_do_not() {
        for (given, line, command) in [
            (None, "prog 4 a b", "prog a b"),
            (Some("prog 4 a b"), "prog 4 a b", "prog a b"),
            (None, "prog 4", "prog"),
            (Some("prog 4 4"), "prog 4 4", "prog 4"),
            // Options that the client handles before it initialises stay in place.
            (Some("prog 4 x"), "prog -t 3 4 x", "prog -t 3 x"),
            // The client has cut a word while parsing it; the ranks get the whole word.
            (Some("prog 4 1 x"), "prog 4 1:2 x", "prog 1:2 x"),
            // Under a dynamic linker that is called by name.
            (Some("prog 4 x"), "ld.so prog 4 x", "ld.so prog x"),
            // A client with a command line of its own.
            (Some("prog 4 mine"), "prog theirs", "prog mine"),
        ] {
            let got = job("udp", given, line, "GASNET_SPAWNFN=l");
            assert_eq!(
                (got.ranks, got.command, got.note),
                (4, list(command), None),
                "{given:?} {line}"
            );
        }
    }

    #[test]
    fn udp_ranks_are_started_on_this_host() {
        let note = job("udp", None, "prog 2", "").note.unwrap();
        assert!(note.starts_with("GASNET_SPAWNFN is not set"), "{note}");
        assert_eq!(job("udp", None, "prog 2", "AMUDP_SPAWNFN=L").note, None);
        for (value, spawn) in [("S", "S"), ("c", "C")] {
            let job = job("udp", None, "prog 2", &format!("AMUDP_SPAWNFN={value}"));
            assert_eq!(job.spawner, Spawner::Amudprun(spawn));
        }
        for (name, value) in [("GASNET_SPAWNFN", "M"), ("SPAWNFN", "x")] {
            let error = plan_with("udp", None, "prog 2", &format!("{name}={value}")).unwrap_err();
            let wanted = format!("{name} is {value:?}; accepted: L");
            assert!(error.to_string().starts_with(&wanted), "{error}");
        }
    }

    #[test]
    fn this_process_is_found() {
        assert_eq!(command_line(), std::env::args_os().collect::<Vec<_>>());
        assert_eq!(
            fs::canonicalize(program()).unwrap(),
            std::env::current_exe().unwrap()
        );
    }

    #[test]
    fn arguments_of_c_are_read() {
        let strings = [c"prog", c"", c"x y"];
        let mut values: Vec<*const c_char> = strings.iter().map(|string| string.as_ptr()).collect();
        values.push(std::ptr::null());
        let (count, values) = (3, values.as_ptr());
        // SAFETY: as `main` gets them.
        let got = unsafe { words(&raw const count, &raw const values) };
        assert_eq!(got.unwrap(), ["prog", "", "x y"]);
        let none: *const *const c_char = std::ptr::null();
        let negative = -1;
        // SAFETY: null is allowed everywhere.
        unsafe {
            assert_eq!(words(std::ptr::null(), &raw const values), None);
            assert_eq!(words(&raw const count, std::ptr::null()), None);
            assert_eq!(words(&raw const count, &raw const none), None);
            assert_eq!(words(&raw const negative, &raw const values), None);
        }
    }
}
