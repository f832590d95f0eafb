//! The launchers' command lines, as documented in GASNet's READMEs.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;

use crate::variables::{FILES, SERVERS, Variable, text};

/// The name by which this launcher is called.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// `gasnetrun_<conduit>`, or `gasnetrun` for any conduit.
    Gasnetrun(Option<String>),
    /// `amudprun`, for conduit udp.
    Amudprun,
}

/// The requested action.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Job(Job),
    Help,
}

/// A job to be started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) ranks: usize,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// The number of processors per rank.
    pub(crate) processors: Option<usize>,
    pub(crate) verbose: bool,
    /// Whether to print the actions without performing them.
    pub(crate) test: bool,
    /// The number of hosts, if it is given.
    pub(crate) hosts: Option<usize>,
    pub(crate) spawner: Spawner,
}

/// The way in which the ranks are started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Spawner {
    /// On this host.
    Fork,
    /// On the hosts that the environment names.
    Ssh,
    /// By a command with `%` placeholders.
    Command(String),
}

/// An invalid command line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("the number of ranks is missing: use -n N (-h lists all options)")]
    NoRanks,
    #[error("the program is missing (-h lists all options)")]
    NoProgram,
    #[error("option {0} is unknown (-h lists all options)")]
    Unknown(String),
    #[error("option {0} requires a value")]
    NoValue(&'static str),
    #[error("{option} {value}: expected {accepted}")]
    Value {
        option: &'static str,
        value: String,
        accepted: &'static str,
    },
    #[error("-N {hosts}: {conduit} programs run on one host; accepted: 1")]
    OneHost { conduit: String, hosts: usize },
    #[error("{origin} {value}: expected {accepted}")]
    Spawner {
        origin: String,
        value: String,
        accepted: &'static str,
    },
    #[error(
        "{program:?} is compiled for conduit {conduit}; start it by gasnetrun_{conduit} or conduit-run"
    )]
    OtherConduit { program: OsString, conduit: String },
}

/// The accepted numbers of ranks and processors.
const NUMBER: &str = "a number from 1 to 65535";

impl Name {
    pub(crate) fn new(program: &OsStr) -> Self {
        let name = Path::new(program)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        match name.strip_prefix("gasnetrun_") {
            _ if name == "amudprun" => Name::Amudprun,
            Some(conduit) if !conduit.is_empty() => Name::Gasnetrun(Some(conduit.to_owned())),
            _ => Name::Gasnetrun(None),
        }
    }

    /// Returns the conduit whose programs this launcher starts, or `None` if it starts programs for
    /// any conduit.
    pub(crate) fn conduit(&self) -> Option<&str> {
        match self {
            Name::Amudprun => Some("udp"),
            Name::Gasnetrun(conduit) => conduit.as_deref().filter(|conduit| *conduit != "conduit"),
        }
    }

    pub(crate) fn help(&self) -> String {
        let options = match self {
            Name::Amudprun => AMUDPRUN,
            Name::Gasnetrun(_) => GASNETRUN,
        };
        format!(
            "Starts the ranks of a program; its exit code is the job's.\n\n\
             Usage: {self} -n N [options] [--] PROGRAM [ARGUMENTS]\n\n{options}\n\
             conduit-run has more options: prefixes for output, time limits, settings.\n"
        )
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Amudprun => f.write_str("amudprun"),
            Name::Gasnetrun(None) => f.write_str("gasnetrun"),
            Name::Gasnetrun(Some(conduit)) => write!(f, "gasnetrun_{conduit}"),
        }
    }
}

const GASNETRUN: &str = "  \
  -n N, -np N      number of ranks
  -N N             number of hosts, the first ones of the list
  -c N             bind each rank to the next N processors
  -E VAR,VAR...    variables to pass on; accepted, but all are passed on anyway
  -v               report each step, and each start and end of a rank
  -t               print the steps without performing them
  -k               same as -v (there are no temporary files to keep)
  -spawner=NAME    fork: on this host; ssh: on the hosts of GASNET_SSH_SERVERS, of the file that
                   GASNET_SSH_NODEFILE or GASNET_NODEFILE names, or of the batch system, by the
                   command of GASNET_SSH_CMD and GASNET_SSH_OPTIONS; mpi: by the command of
                   MPIRUN_CMD, or mpirun; pmi: by that of PMIRUN_CMD, or as fork. In a command, %N
                   stands for the number of ranks, %P for the program, %A for its arguments, %C for
                   both, %D for the working directory. Also GASNET_<CONDUIT>_SPAWNER. Default: ssh
                   if hosts are named or with -N, else fork
  -h               print this text
";

const AMUDPRUN: &str = "  \
  -n N, -np N      number of ranks
  -spawn L|S|C     how to start the ranks: on this host; on the hosts of SSH_SERVERS, by the command
                   of SSH_CMD and SSH_OPTIONS; by the command of CSPAWN_CMD, with %N, %C, %D. Each
                   variable may begin with GASNET_ or AMUDP_. Also GASNET_SPAWNFN. Default: S if
                   hosts are named, else L
  -v               report each step, and each start and end of a rank
  -h               print this text
";

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ranks of {:?}", self.ranks, self.program)?;
        self.arguments
            .iter()
            .try_for_each(|argument| write!(f, " {argument:?}"))?;
        match self.processors {
            Some(each) => write!(
                f,
                ", each bound to {each} processors of its own if there are enough"
            ),
            None => Ok(()),
        }
    }
}

/// Parses a command line without its first word. `variable` looks up the environment.
pub(crate) fn parse(
    name: &Name,
    arguments: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Request, Error> {
    let gasnetrun = matches!(name, Name::Gasnetrun(_));
    let mut arguments = arguments.into_iter();
    let (mut ranks, mut processors, mut verbose, mut test) = (None, None, false, false);
    let (mut hosts, mut spawner) = (None, None);
    let program = loop {
        let Some(word) = arguments.next() else {
            return Err(if ranks.is_none() {
                Error::NoRanks
            } else {
                Error::NoProgram
            });
        };
        let mut value = |option| arguments.next().ok_or(Error::NoValue(option));
        match &*word.to_string_lossy() {
            "--" => break value("--").map_err(|_| Error::NoProgram)?,
            "-h" | "-help" | "--help" => return Ok(Request::Help),
            "-v" => verbose = true,
            "-n" | "-np" => ranks = Some(number("-n", &value("-n")?)?),
            "-spawn" if !gasnetrun => spawner = Some(("-spawn".to_owned(), value("-spawn")?)),
            "-N" if gasnetrun => hosts = Some(number("-N", &value("-N")?)?),
            "-c" if gasnetrun => processors = Some(number("-c", &value("-c")?)?),
            "-E" if gasnetrun => names(&value("-E")?)?,
            "-k" if gasnetrun => verbose = true,
            "-t" if gasnetrun => (verbose, test) = (true, true),
            "-spawner" if gasnetrun => spawner = Some(("-spawner".to_owned(), value("-spawner")?)),
            option if gasnetrun && option.starts_with("-spawner=") => {
                spawner = Some(("-spawner".to_owned(), option["-spawner=".len()..].into()));
            }
            option if option.starts_with('-') => return Err(Error::Unknown(option.to_owned())),
            _ => break word,
        }
    };
    // The command line overrides the environment.
    let spawner = spawner.or_else(|| {
        let origin = match name {
            Name::Amudprun => "GASNET_SPAWNFN".to_owned(),
            Name::Gasnetrun(conduit) => {
                format!("GASNET_{}_SPAWNER", conduit.as_ref()?.to_uppercase())
            }
        };
        let value = variable(&origin).filter(|value| !value.is_empty())?;
        Some((origin + "=", value))
    });
    let spawner = match spawner {
        Some((origin, value)) => Spawner::named(name, &value.to_string_lossy(), &variable)
            .map_err(|accepted| Error::Spawner {
                origin,
                value: value.to_string_lossy().into_owned(),
                accepted,
            })?,
        None => Spawner::by_default(name, hosts, &variable),
    };
    let several = hosts.filter(|hosts| *hosts > 1);
    if let (Some(hosts), Some("smp")) = (several, name.conduit()) {
        let conduit = "smp".to_owned();
        return Err(Error::OneHost { conduit, hosts });
    }
    Ok(Request::Job(Job {
        ranks: ranks.ok_or(Error::NoRanks)?,
        program,
        arguments: arguments.collect(),
        processors,
        verbose,
        test,
        hosts,
        spawner,
    }))
}

impl Spawner {
    /// Returns the spawner with this name. An error is the accepted names.
    pub(crate) fn named(
        name: &Name,
        value: &str,
        variable: Variable<'_>,
    ) -> Result<Self, &'static str> {
        let command = |names: &[&str]| text(variable, names).map(Spawner::Command);
        let value = value.to_lowercase();
        match (name, &*value) {
            (Name::Amudprun, "l") => Ok(Spawner::Fork),
            (Name::Amudprun, "s") => Ok(Spawner::Ssh),
            (Name::Amudprun, "c") => {
                let names = ["GASNET_CSPAWN_CMD", "AMUDP_CSPAWN_CMD", "CSPAWN_CMD"];
                command(&names).ok_or("a command in GASNET_CSPAWN_CMD beside C")
            }
            (Name::Amudprun, _) => Err("L, S or C"),
            (Name::Gasnetrun(_), "fork") => Ok(Spawner::Fork),
            (Name::Gasnetrun(_), _) if name.conduit() == Some("smp") => match &*value {
                "pmi" => Ok(Spawner::Fork),
                _ => Err("fork or pmi"),
            },
            (Name::Gasnetrun(_), "ssh") => Ok(Spawner::Ssh),
            (Name::Gasnetrun(_), "pmi") => Ok(command(&["PMIRUN_CMD"]).unwrap_or(Spawner::Fork)),
            (Name::Gasnetrun(_), "mpi") => Ok(command(&["MPIRUN_CMD"])
                .unwrap_or_else(|| Spawner::Command("mpirun -np %N %C".to_owned()))),
            (Name::Gasnetrun(_), _) => Err("fork, ssh, mpi or pmi"),
        }
    }

    /// Returns the spawner of a job that names none.
    pub(crate) fn by_default(name: &Name, hosts: Option<usize>, variable: Variable<'_>) -> Self {
        let named = [&SERVERS[..], &FILES].concat();
        let is_several = hosts.is_some_and(|hosts| hosts > 1) || text(variable, &named).is_some();
        match is_several && name.conduit() != Some("smp") {
            true => Spawner::Ssh,
            false => Spawner::Fork,
        }
    }
}

fn number(option: &'static str, value: &OsStr) -> Result<usize, Error> {
    match value.to_string_lossy().parse() {
        Ok(number @ 1..=0xffff) => Ok(number),
        _ => Err(Error::Value {
            option,
            value: value.to_string_lossy().into_owned(),
            accepted: NUMBER,
        }),
    }
}

/// Checks a list of variables to pass on. All variables are passed on anyway, but a malformed list
/// is an error.
fn names(value: &OsStr) -> Result<(), Error> {
    let value = value.to_string_lossy();
    if value
        .split(',')
        .all(|name| !name.is_empty() && !name.contains(['=', ' ']))
    {
        return Ok(());
    }
    Err(Error::Value {
        option: "-E",
        value: value.into_owned(),
        accepted: "a list of variable names separated by commas",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn smp() -> Name {
        Name::new(OsStr::new("/usr/bin/gasnetrun_smp"))
    }

    fn amudprun() -> Name {
        Name::new(OsStr::new("amudprun"))
    }

    fn line(name: &Name, line: &str) -> Result<Request, Error> {
        parse(name, line.split_whitespace().map(OsString::from), |_| None)
    }

    fn job(name: &Name, text: &str) -> Job {
        match line(name, text) {
            Ok(Request::Job(job)) => job,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn the_name_says_which_launcher_it_is() {
        assert_eq!(
            (smp().to_string().as_str(), smp().conduit()),
            ("gasnetrun_smp", Some("smp"))
        );
        assert_eq!(
            (amudprun().to_string().as_str(), amudprun().conduit()),
            ("amudprun", Some("udp"))
        );
        for (name, shown) in [
            ("gasnetrun", "gasnetrun"),
            ("gasnetrun_", "gasnetrun"),
            ("", "gasnetrun"),
            ("x", "gasnetrun"),
            ("gasnetrun_conduit", "gasnetrun_conduit"),
        ] {
            let name = Name::new(OsStr::new(name));
            assert_eq!((name.to_string().as_str(), name.conduit()), (shown, None));
        }
    }

    #[test]
    fn options_end_at_the_program() {
        let got = job(&smp(), "-n 4 -v prog -n 7 -t -- x");
        assert_eq!((got.ranks, got.verbose, got.test), (4, true, false));
        assert_eq!(got.program, "prog");
        assert_eq!(got.arguments, ["-n", "7", "-t", "--", "x"]);
        let got = job(&smp(), "-np 2 -- -prog x");
        assert_eq!(
            (got.ranks, got.program, got.arguments),
            (2, "-prog".into(), vec!["x".into()])
        );
    }

    #[test]
    fn all_documented_options_are_taken() {
        let got = job(&smp(), "-N 1 -n 3 -c 2 -E A,B -k -t -spawner=fork prog");
        assert_eq!(
            (got.ranks, got.processors, got.verbose, got.test),
            (3, Some(2), true, true)
        );
        assert_eq!(job(&smp(), "-spawner PMI -n 1 prog").ranks, 1);
        let got = job(&amudprun(), "-np 5 -spawn L -v prog x");
        assert_eq!(
            (got.ranks, got.verbose, got.arguments),
            (5, true, vec!["x".into()])
        );
        for help in ["-h", "-help", "-n 3 --help prog"] {
            assert_eq!(line(&smp(), help), Ok(Request::Help));
            assert_eq!(line(&amudprun(), help), Ok(Request::Help));
        }
        for name in [smp(), amudprun()] {
            assert!(name.help().contains(&format!("{name} -n N")));
        }
    }

    #[test]
    fn wrong_values_are_refused_and_named() {
        for (text, part) in [
            ("", "number of ranks is missing"),
            ("prog", "number of ranks is missing"),
            ("-n 4", "program is missing"),
            ("-n 4 --", "program is missing"),
            ("-n", "-n requires a value"),
            ("-n 0 prog", "-n 0: expected a number"),
            ("-n -3 prog", "-n -3: expected a number"),
            ("-n four prog", "-n four: expected a number"),
            ("-n 65536 prog", "-n 65536: expected a number"),
            ("-n 4 -N 2 prog", "-N 2: smp programs run on one host"),
            ("-n 4 -c 0 prog", "-c 0: expected a number"),
            ("-n 4 -E A,,B prog", "-E A,,B: expected a list"),
            ("-n 4 -E A=B prog", "-E A=B: expected a list"),
            (
                "-n 4 -spawner=ssh prog",
                "-spawner ssh: expected fork or pmi",
            ),
            ("-n 4 -x prog", "option -x is unknown"),
            ("-n 4 -spawn L prog", "option -spawn is unknown"),
        ] {
            let error = line(&smp(), text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let error = line(&amudprun(), "-np 2 -spawn M prog").unwrap_err();
        assert_eq!(error.to_string(), "-spawn M: expected L, S or C");
        assert!(line(&amudprun(), "-np 2 -t prog").is_err());
    }

    #[test]
    fn the_environment_may_ask_for_a_spawner() {
        let with = |name: &Name, line: &str, variable: &'static str, value: &'static str| {
            let words = line.split_whitespace().map(OsString::from);
            parse(name, words, move |asked| {
                (asked == variable).then(|| value.into())
            })
        };
        let error = with(&smp(), "-n 2 prog", "GASNET_SMP_SPAWNER", "mpi").unwrap_err();
        assert!(
            error.to_string().starts_with("GASNET_SMP_SPAWNER= mpi: "),
            "{error}"
        );
        assert!(
            with(
                &smp(),
                "-n 2 -spawner=fork prog",
                "GASNET_SMP_SPAWNER",
                "mpi"
            )
            .is_ok()
        );
        assert!(with(&smp(), "-n 2 prog", "GASNET_SMP_SPAWNER", "").is_ok());
        assert!(with(&smp(), "-n 2 prog", "GASNET_OFI_SPAWNER", "ssh").is_ok());
        assert!(with(&amudprun(), "-n 2 prog", "GASNET_SPAWNFN", "M").is_err());
        assert!(with(&amudprun(), "-n 2 prog", "GASNET_SPAWNFN", "L").is_ok());
    }

    #[test]
    fn hosts_that_are_named_are_used() {
        let named = |asked: &str| (asked == "GASNET_SSH_SERVERS").then(|| "a b".into());
        let none = |_: &str| None;
        let ofi = Name::new(OsStr::new("gasnetrun_ofi"));
        let smp = Name::new(OsStr::new("gasnetrun_smp"));
        assert_eq!(Spawner::by_default(&ofi, None, &named), Spawner::Ssh);
        assert_eq!(Spawner::by_default(&ofi, Some(2), &none), Spawner::Ssh);
        assert_eq!(Spawner::by_default(&ofi, Some(1), &none), Spawner::Fork);
        assert_eq!(Spawner::by_default(&smp, None, &named), Spawner::Fork);
        let mpi = Spawner::named(&ofi, "MPI", &none);
        assert_eq!(mpi, Ok(Spawner::Command("mpirun -np %N %C".to_owned())));
    }
}
