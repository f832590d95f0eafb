//! The hosts that a batch system has given to a job, found in the environment.

use super::list::parse_list;
use super::{Host, HostsError, MAX_SLOTS, Place, join, quoted};

/// Where a list of hosts is, beyond the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// The hosts.
    Hosts(Vec<Host>),
    /// A file of this kind; pass its text to [`Kind::parse`].
    File { path: String, kind: Kind },
    /// The output of `flux hostlist local`, to be parsed as a list.
    Flux,
}

/// The kinds of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `PBS_NODEFILE`: a line a slot.
    Pbs,
    /// `PE_HOSTFILE`: lines of a host, its slots, and fields that do not matter here.
    GridEngine,
}

const TASKS: &str = "expected numbers from 1 to 65536 for all hosts, as in 4(x2),3";
const PAIRS: &str = "expected hosts and their slots in turn, as in 'node1 4 node2 4'";
const ENGINE: &str =
    "expected lines of a host and its slots, as in 'node1 4 all.q@node1 UNDEFINED'";

/// Returns the hosts of the batch system whose variables are in the environment; `None` if there is
/// none.
pub(crate) fn from_environment(
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Source>, HostsError> {
    let set = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
    for name in ["SLURM_JOB_NODELIST", "SLURM_NODELIST"] {
        if let Some(list) = set(name) {
            let mut hosts = parse_list(&list, name)?;
            const TASKS_OF: &str = "SLURM_TASKS_PER_NODE";
            if let Some(counts) = set(TASKS_OF) {
                let counts = tasks(&counts, TASKS_OF, hosts.len())?;
                for (host, count) in hosts.iter_mut().zip(counts) {
                    host.slots = Some(count);
                }
            }
            return Ok(Some(Source::Hosts(hosts)));
        }
    }
    let file = |path, kind| Ok(Some(Source::File { path, kind }));
    if let Some(path) = set("PBS_NODEFILE") {
        return file(path, Kind::Pbs);
    }
    if let Some(path) = set("PE_HOSTFILE") {
        return file(path, Kind::GridEngine);
    }
    if let Some(pairs) = set("LSB_MCPU_HOSTS") {
        return lsf_pairs(&pairs).map(|hosts| Some(Source::Hosts(hosts)));
    }
    if let Some(words) = set("LSB_HOSTS") {
        let mut hosts = Vec::new();
        for word in words.split_ascii_whitespace() {
            hosts.extend(with_slots(parse_list(word, "LSB_HOSTS")?, 1));
        }
        return Ok(Some(Source::Hosts(join(hosts))));
    }
    if set("FLUX_URI").is_some() && set("FLUX_JOB_ID").is_some() {
        return Ok(Some(Source::Flux));
    }
    Ok(None)
}

impl Kind {
    /// Parses the text of a file.
    pub(crate) fn parse(self, text: &str, path: &str) -> Result<Vec<Host>, HostsError> {
        let mut hosts = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let at = |mut error: HostsError| {
                error.place.line = Some(number);
                error
            };
            let mut fields = line.split_ascii_whitespace();
            let Some(name) = fields.next() else { continue };
            let count = match self {
                Kind::Pbs => 1,
                Kind::GridEngine => {
                    let count = fields.next().unwrap_or_default();
                    slots(count).ok_or_else(|| {
                        let what = format!("{} has {} slots", quoted(line), quoted(count));
                        at(error(path, what, ENGINE))
                    })?
                }
            };
            let listed = parse_list(name, path).map_err(at)?;
            hosts.extend(with_slots(listed, count));
        }
        if hosts.is_empty() {
            let what = "the file names no host".to_owned();
            return Err(error(path, what, "expected a host a line"));
        }
        Ok(join(hosts))
    }
}

fn error(source: &str, what: String, accepted: &'static str) -> HostsError {
    let place = Place {
        source: source.to_owned(),
        line: None,
    };
    HostsError {
        place,
        what,
        accepted,
    }
}

fn with_slots(hosts: Vec<Host>, slots: usize) -> impl Iterator<Item = Host> {
    let one = move |host: Host| Host::new(host.name, Some(slots));
    hosts.into_iter().map(one)
}

fn slots(text: &str) -> Option<usize> {
    let number = text.parse().ok();
    number.filter(|number| (1..=MAX_SLOTS).contains(number))
}

/// Parses Slurm's notation for numbers of tasks, `2(x3),1`.
fn tasks(text: &str, source: &str, hosts: usize) -> Result<Vec<usize>, HostsError> {
    let mut counts = Vec::new();
    for word in text.split(',') {
        let (count, times) = match word.split_once("(x") {
            None => (word, Some(1)),
            Some((count, rest)) => (count, rest.strip_suffix(')').and_then(slots)),
        };
        let (Some(count), Some(times)) = (slots(count), times) else {
            let what = format!("{} contains {}", quoted(text), quoted(word));
            return Err(error(source, what, TASKS));
        };
        counts.extend(std::iter::repeat_n(count, times.min(hosts + 1)));
    }
    if counts.len() != hosts {
        let what = format!("{} is not for {hosts} hosts", quoted(text));
        return Err(error(source, what, TASKS));
    }
    Ok(counts)
}

fn lsf_pairs(text: &str) -> Result<Vec<Host>, HostsError> {
    const SOURCE: &str = "LSB_MCPU_HOSTS";
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let mut hosts = Vec::new();
    for pair in words.chunks(2) {
        let &[name, count] = pair else {
            let what = format!("{} has no slots", quoted(pair[0]));
            return Err(error(SOURCE, what, PAIRS));
        };
        let Some(count) = slots(count) else {
            let what = format!("{} has {} slots", quoted(name), quoted(count));
            return Err(error(SOURCE, what, PAIRS));
        };
        hosts.extend(with_slots(parse_list(name, SOURCE)?, count));
    }
    Ok(join(hosts))
}
