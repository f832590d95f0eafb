//! The description of a job to start.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::time::Duration;

use crate::error::Error;
use crate::host::plan::{Bind, Readers};
use crate::hosts::{Host, Want, is_here, parse_list, place};
use crate::output::{LineSink, Stream};
use crate::remote::{self, Remote};
use crate::tree::shell::Shell;

/// Variables that the launcher sets for each rank.
const RESERVED: [&str; 5] = [
    "PMI_FD",
    "PMI_RANK",
    "PMI_SIZE",
    "CONDUIT_LAUNCHER",
    "CONDUIT_JOB_ID",
];

/// Hosts for a job, and how to reach them.
#[derive(Debug, Clone)]
pub(crate) struct Several {
    pub(crate) hosts: Vec<Host>,
    pub(crate) want: Want,
    pub(crate) shell: Shell,
    /// Whether ranks get all of the launcher's variables that do not belong to its session, or only
    /// settings.
    pub(crate) all_env: bool,
}

/// A job to be started. See the [crate's documentation](crate) for a rank's environment and the
/// ways a job ends.
#[must_use = "a job starts with run or spawn"]
pub struct Launch {
    pub(crate) ranks: usize,
    pub(crate) program: OsString,
    pub(crate) arg0: Option<OsString>,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) bind: Bind,
    pub(crate) report_bindings: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) signal_grace: Duration,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
    pub(crate) readers: Readers,
    pub(crate) own_process: bool,
    pub(crate) agent: Option<OsString>,
    pub(crate) several: Option<Several>,
    pub(crate) prefix_output: bool,
    pub(crate) sink: Option<LineSink>,
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("ranks", &self.ranks)
            .field("program", &self.program)
            .field("args", &self.args)
            .finish_non_exhaustive()
    }
}

impl Launch {
    /// Describes a job of `ranks` processes of `program`, which is looked up in `PATH` if it has no
    /// slash.
    pub fn new(ranks: usize, program: impl AsRef<OsStr>) -> Self {
        Launch {
            ranks,
            program: program.as_ref().to_owned(),
            arg0: None,
            args: Vec::new(),
            env: Vec::new(),
            bind: Bind::None,
            report_bindings: false,
            timeout: None,
            grace: Duration::from_secs(1),
            signal_grace: Duration::from_secs(3),
            quiet: false,
            verbose: false,
            readers: Readers::None,
            own_process: false,
            agent: None,
            several: None,
            prefix_output: false,
            sink: None,
        }
    }

    /// Sets the program's `argv[0]`, which is separate from [`args`](Self::args). Default: the
    /// program as given to [`new`](Self::new).
    pub fn arg0(mut self, name: impl AsRef<OsStr>) -> Self {
        self.arg0 = Some(name.as_ref().to_owned());
        self
    }

    /// Adds arguments for the program.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable in the ranks' environment. Ranks inherit all other variables from the
    /// launcher.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets several variables in the ranks' environment.
    pub fn envs<N: AsRef<OsStr>, V: AsRef<OsStr>>(
        self,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let set = |launch: Self, (name, value)| launch.env(name, value);
        variables.into_iter().fold(self, set)
    }

    /// Sets whether each line of the ranks' output gets the prefix `[rank] `. Then no line contains
    /// output of two ranks. By default, the ranks write to the launcher's standard output directly,
    /// and the launcher forwards standard error in whole lines.
    pub fn prefix_output(mut self, prefix: bool) -> Self {
        self.prefix_output = prefix;
        self
    }

    /// Passes each line of the ranks' output to a function instead of writing it to the launcher's
    /// streams. The function's arguments are the rank, the stream and the line without its newline.
    /// The thread that waits for the job calls the function. Lines longer than 64 KiB arrive in
    /// pieces.
    pub fn output(mut self, sink: impl FnMut(usize, Stream, &[u8]) + Send + 'static) -> Self {
        self.sink = Some(Box::new(sink));
        self
    }

    /// Sets where ranks may run.
    pub fn bind(mut self, bind: Bind) -> Self {
        self.bind = bind;
        self
    }

    /// Sets whether to report the processors of each rank on standard error. Default: no.
    pub fn report_bindings(mut self, report: bool) -> Self {
        self.report_bindings = report;
        self
    }

    /// Sets the time limit, after which the job is ended with exit code 124. Default: no limit.
    pub fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the time between `SIGTERM` and `SIGKILL` for ranks that have to end because another has
    /// failed. Default: 1 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the time between a forwarded `SIGINT` or `SIGTERM` and `SIGKILL`. Default: 3 s.
    pub fn signal_grace(mut self, grace: Duration) -> Self {
        self.signal_grace = grace;
        self
    }

    /// Sets whether to suppress the message that names a failed rank;
    /// [`Outcome::how`](crate::Outcome::how) has the same information. Default: no.
    pub fn quiet(mut self, quiet: bool) -> Self {
        self.quiet = quiet;
        self
    }

    /// Sets whether to report each start and end of a rank on standard error. Default: no.
    pub fn verbose(mut self, verbose: bool) -> Self {
        self.verbose = verbose;
        self
    }

    /// Sets whether rank 0 reads the launcher's standard input. Default: no; it reads `/dev/null`
    /// like the others.
    pub fn inherit_stdin(mut self, inherit: bool) -> Self {
        self.readers = match inherit {
            true => Readers::Rank(0),
            false => Readers::None,
        };
        self
    }

    /// Sets whether the launcher may take over this process, which should then do nothing else: the
    /// launcher catches signals and forwards them to the ranks, adopts descendants that have left
    /// their rank's process group and ends them with the job, and raises the limit of open files to
    /// the hard limit if the ranks need more. Default: no.
    pub fn own_process(mut self, own: bool) -> Self {
        self.own_process = own;
        self
    }

    /// Sets the program of the node's agent, `conduit-hsta`, which is looked up in the same way as
    /// the ranks' program. The agent starts before the ranks and ends after them. The ranks find
    /// the agent's name in `CONDUIT_AGENT`. Default: no agent.
    pub fn agent(mut self, program: Option<impl AsRef<OsStr>>) -> Self {
        self.agent = program.map(|program| program.as_ref().to_owned());
        self
    }

    /// Sets the hosts on which the ranks run, a list in the notation of `conduit-run --hosts`, or
    /// the hosts of the batch system if `list` is `None`. With `per_host`, each host gets that many
    /// ranks. Default: this host.
    ///
    /// # Errors
    /// The list is not one of hosts, the ranks do not fit on them, there is no batch system, or the
    /// remote shell is not a command.
    pub fn on_hosts(
        self,
        list: Option<&str>,
        per_host: Option<usize>,
        remote: Remote,
    ) -> Result<Self, Error> {
        let hosts = match list {
            Some(list) => Some(parse_list(list, "the list of hosts")?),
            None => remote::from_batch_system()?,
        };
        let several = Several {
            hosts: hosts.ok_or(Error::NoHosts)?,
            want: Want {
                ranks: Some(self.ranks),
                per_host,
            },
            shell: remote.parse()?,
            all_env: true,
        };
        self.several(several)
    }

    /// Sets the hosts on which the ranks run. Then the hosts decide the number of ranks.
    pub(crate) fn several(mut self, several: Several) -> Result<Self, Error> {
        if several.hosts.iter().all(|host| is_here(&host.name)) {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            let processors = vec![processors; several.hosts.len()];
            self.ranks = place(&several.hosts, &processors, several.want)?
                .iter()
                .sum();
        } else {
            self.several = Some(several);
        }
        Ok(self)
    }

    /// Sets which ranks read the launcher's standard input.
    pub(crate) fn readers(mut self, readers: Readers) -> Self {
        self.readers = readers;
        self
    }

    /// Checks the description as far as that is possible without the hosts.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.ranks == 0 && self.several.is_none() {
            return Err(Error::NoRanks);
        }
        let reserved = |name: &OsStr| RESERVED.iter().any(|reserved| *reserved == name);
        if let Some((name, _)) = self.env.iter().find(|(name, _)| reserved(name)) {
            return Err(Error::ReservedVariable {
                name: name.to_string_lossy().into_owned(),
            });
        }
        Ok(())
    }
}
