//! The launcher's side of PMI-1: a state machine that takes the ranks' lines and returns actions.
//!
//! The state machine does no I/O and keeps no clock. The launcher reads lines of bounded length
//! from the ranks' sockets (with a [`crate::wire::LineBuffer`]), calls [`Server::on_line`] for each
//! line and carries out the [`Action`]s that the call returns. When a rank's process has ended, the
//! launcher calls [`Server::on_end`]. An [`Error`] names the rank that broke the protocol or waits
//! in vain; the job cannot continue after an error.
//!
//! # Several hosts
//! In a job on several hosts, each host has a server for its own ranks ([`Server::of_host`]), and
//! the launcher has a [`Root`]. Puts stay on their host until all ranks have entered a barrier:
//! when all ranks of a host have, the host passes its new pairs to the root ([`Action::Fence`]);
//! when all hosts have, each host gets the new pairs of all ([`Server::release`]). Gets never leave
//! the host. Hosts also report the first rank that waits in a barrier ([`Action::Waiting`]) and
//! each rank that finalizes ([`Action::Finalized`]) or ends, so that the root notices a barrier
//! that cannot complete.

mod error;
mod root;

use std::collections::HashMap;
use std::ops::Range;

pub use error::{Departure, Error};
pub use root::Root;

use crate::wire::{Line, MAX_KEY, MAX_KVSNAME, MAX_VALUE, carries, format, quoted};

/// The maximum amount of data that the server holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The maximum number of bytes of all keys and values in the key-value space, plus
    /// [`Limits::PAIR_OVERHEAD`] for each pair. The reply to a put that would exceed this limit is
    /// `rc=-1 msg=kvs_full`.
    pub kvs_bytes: usize,
}

impl Limits {
    /// The number of bytes charged for a pair in addition to its key and value.
    pub const PAIR_OVERHEAD: usize = 64;

    /// Returns the limits with another size of the key-value space.
    pub fn with_kvs_bytes(self, kvs_bytes: usize) -> Self {
        Limits { kvs_bytes }
    }
}

impl Default for Limits {
    /// Returns a limit of 64 MiB of keys and values.
    fn default() -> Self {
        Limits {
            kvs_bytes: 64 << 20,
        }
    }
}

/// An action for the launcher to carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Send a line to a rank.
    Send {
        /// The rank to send to.
        rank: usize,
        /// The line, which ends with a newline.
        line: String,
    },
    /// The rank has finished the job, so its process may now end.
    Finalized {
        /// The rank.
        rank: usize,
    },
    /// The rank is the first of its host to wait in a barrier of a job on several hosts.
    Waiting {
        /// The rank.
        rank: usize,
    },
    /// All ranks of this host wait in a barrier of a job on several hosts. Call [`Server::release`]
    /// when the ranks of all hosts do.
    Fence {
        /// The pairs that the host's ranks have put since the last barrier, in this order.
        pairs: Vec<(String, String)>,
    },
    /// The rank requests the end of the whole job.
    Abort {
        /// The requesting rank.
        rank: usize,
        /// The requested exit code for the job.
        code: i32,
        /// The reason, if the rank gave one.
        message: Option<String>,
    },
}

/// A rank's progress through the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RankState {
    /// The rank has not sent `init`: perhaps its program does not use PMI.
    Started,
    /// The rank is between `init` and `finalize`.
    Active,
    /// The rank is active and waits in a barrier.
    InBarrier,
    /// The rank has sent `finalize`.
    Finalized,
    /// The rank's process has ended.
    Ended,
}

/// The state of one job, or of the part of a job that runs on one host.
#[derive(Debug)]
pub struct Server {
    kvsname: String,
    limits: Limits,
    /// The number of ranks in the job.
    size: usize,
    /// The number of the first rank of this host.
    first: usize,
    /// The ranks of this host.
    ranks: Vec<RankState>,
    /// The number of this host's ranks that wait in a barrier.
    in_barrier: usize,
    /// Whether all ranks of this host wait for those of others.
    fenced: bool,
    /// The pairs put since the last barrier, if the job has other hosts.
    fresh: Vec<(String, String)>,
    /// The first rank that has finalized or ended, if any. Once there is one, no barrier can
    /// complete.
    departed: Option<(usize, Departure)>,
    kvs: HashMap<String, String>,
    kvs_bytes: usize,
}

impl Server {
    /// Creates a server for ranks `0..size` with a key-value space called `kvsname`. Characters
    /// that PMI cannot carry become `_`, and the name is truncated to [`MAX_KVSNAME`] bytes.
    pub fn new(size: usize, kvsname: &str, limits: Limits) -> Self {
        Self::of_host(size, 0..size, kvsname, limits)
    }

    /// Creates a server for the ranks `local` of a job of `size` ranks; other hosts have the other
    /// ranks.
    pub fn of_host(size: usize, local: Range<usize>, kvsname: &str, limits: Limits) -> Self {
        let kvsname = kvsname
            .chars()
            .map(|c| if c.is_ascii_graphic() { c } else { '_' })
            .take(MAX_KVSNAME)
            .collect();
        Server {
            kvsname,
            limits,
            size,
            first: local.start,
            ranks: vec![RankState::Started; local.len()],
            in_barrier: 0,
            fenced: false,
            fresh: Vec::new(),
            departed: None,
            kvs: HashMap::new(),
            kvs_bytes: 0,
        }
    }

    /// Stores a pair that every rank can get, such as `PMI_process_mapping`. Returns `false` if the
    /// pair exceeds a limit or the key exists already.
    pub fn preset(&mut self, key: &str, value: &str) -> bool {
        self.store(key, value).is_ok()
    }

    /// Returns a rank's state, or `None` if this server has no such rank.
    pub fn state(&self, rank: usize) -> Option<RankState> {
        let index = rank.checked_sub(self.first)?;
        self.ranks.get(index).copied()
    }

    fn set_state(&mut self, rank: usize, state: RankState) {
        let index = rank.checked_sub(self.first);
        if let Some(known) = index.and_then(|index| self.ranks.get_mut(index)) {
            *known = state;
        }
    }

    /// Returns whether other hosts have ranks of the job.
    fn is_part(&self) -> bool {
        self.ranks.len() < self.size
    }

    /// Processes one line from `rank`, with or without its newline.
    ///
    /// # Errors
    /// The line is not a PMI-1 request, comes at the wrong time, or enters a barrier that cannot
    /// complete. A well-formed request that cannot be met (unknown key, full key-value space, value
    /// too long) is not an error: its reply has `rc=-1`.
    pub fn on_line(&mut self, rank: usize, line: &str) -> Result<Vec<Action>, Error> {
        let state = self.state(rank).ok_or(Error::NoSuchRank {
            rank,
            size: self.size,
        })?;
        let line = Line::parse(line).map_err(|source| Error::Line { rank, source })?;
        if line.command() == "abort" {
            return self.abort(rank, &line);
        }
        if line.command() == "init" {
            return match state {
                // MPI and Conduit in one process share its connection, so each of `init` and
                // `finalize` may come twice.
                RankState::Started | RankState::Active => self.init(rank, &line),
                _ => Err(Error::OutOfOrder {
                    rank,
                    command: "init",
                    when: "in a barrier or after finalize",
                }),
            };
        }
        if line.command() == "finalize" && state == RankState::Finalized {
            return answer(rank, "finalize_ack", &[("rc", "0")]);
        }
        let command = COMMANDS
            .iter()
            .find(|(name, _)| *name == line.command())
            .ok_or_else(|| Error::UnknownCommand {
                rank,
                command: quoted(line.command()),
            })?;
        let when = match state {
            RankState::Active => return command.1(self, rank, &line),
            RankState::Started => "before init",
            RankState::InBarrier => "while it waits in a barrier",
            RankState::Finalized => "after finalize",
            RankState::Ended => "after its end",
        };
        Err(Error::OutOfOrder {
            rank,
            command: command.0,
            when,
        })
    }

    /// Records that the process of `rank` has ended. Repeated calls have no effect.
    ///
    /// # Errors
    /// Another rank waits in a barrier that can no longer complete, or there is no such rank.
    pub fn on_end(&mut self, rank: usize) -> Result<(), Error> {
        let state = self.state(rank).ok_or(Error::NoSuchRank {
            rank,
            size: self.size,
        })?;
        if state == RankState::InBarrier {
            self.in_barrier -= 1;
        }
        self.set_state(rank, RankState::Ended);
        let how = match state {
            RankState::Started => Departure::NeverJoined,
            _ => Departure::Ended,
        };
        self.departed.get_or_insert((rank, how));
        self.check_barrier()
    }

    /// Checks the barrier. Call this after [`Action::Finalized`], which may leave other ranks in a
    /// barrier that can no longer complete.
    ///
    /// # Errors
    /// A rank waits in a barrier that another rank can no longer enter.
    pub fn check_barrier(&self) -> Result<(), Error> {
        let waiting = self
            .ranks
            .iter()
            .position(|state| *state == RankState::InBarrier);
        match (waiting, self.departed) {
            (Some(waiting), Some((missing, how))) => Err(Error::BrokenBarrier {
                waiting: self.first + waiting,
                missing,
                how,
            }),
            _ => Ok(()),
        }
    }

    /// Ends a barrier that the ranks of all hosts have entered: stores the new pairs of all hosts
    /// and releases the ranks of this host. Has no effect unless all ranks of this host wait.
    pub fn release(&mut self, pairs: impl IntoIterator<Item = (String, String)>) -> Vec<Action> {
        if !std::mem::take(&mut self.fenced) {
            return Vec::new();
        }
        for (key, value) in pairs {
            // The root has checked the limits, and its pairs take precedence, so that all hosts
            // have the same.
            self.kvs_bytes += pair_bytes(&key, &value);
            if let Some(own) = self.kvs.get(&key) {
                self.kvs_bytes -= pair_bytes(&key, own);
            }
            self.kvs.insert(key, value);
        }
        self.in_barrier = 0;
        let mut actions = Vec::with_capacity(self.ranks.len());
        for (index, state) in self.ranks.iter_mut().enumerate() {
            // A rank may have been killed while it waited.
            if *state == RankState::InBarrier {
                *state = RankState::Active;
                actions.push(Action::Send {
                    rank: self.first + index,
                    line: "cmd=barrier_out\n".to_owned(),
                });
            }
        }
        actions
    }

    fn init(&mut self, rank: usize, line: &Line<'_>) -> Result<Vec<Action>, Error> {
        let number = |field| {
            line.number::<u32>(field)
                .map_err(|source| Error::Line { rank, source })
        };
        let (version, _subversion) = (number("pmi_version")?, number("pmi_subversion")?);
        // Minor versions only add commands, so reply with this server's version and let the client
        // decide.
        let rc = if version == 1 { "0" } else { "-1" };
        if version == 1 {
            self.set_state(rank, RankState::Active);
        }
        let fields = [("pmi_version", "1"), ("pmi_subversion", "1"), ("rc", rc)];
        answer(rank, "response_to_init", &fields)
    }

    fn abort(&mut self, rank: usize, line: &Line<'_>) -> Result<Vec<Action>, Error> {
        let code = match line.get("exitcode") {
            Some(_) => line
                .number("exitcode")
                .map_err(|source| Error::Line { rank, source })?,
            None => 1,
        };
        let message = line
            .get("message")
            .filter(|text| !text.is_empty())
            .map(str::to_owned);
        Ok(vec![Action::Abort {
            rank,
            code,
            message,
        }])
    }

    fn maxes(&mut self, rank: usize, _line: &Line<'_>) -> Result<Vec<Action>, Error> {
        let (kvsname, key, value) = (
            MAX_KVSNAME.to_string(),
            MAX_KEY.to_string(),
            MAX_VALUE.to_string(),
        );
        let fields = [
            ("kvsname_max", &*kvsname),
            ("keylen_max", &*key),
            ("vallen_max", &*value),
        ];
        answer(rank, "maxes", &fields)
    }

    fn appnum(&mut self, rank: usize, _line: &Line<'_>) -> Result<Vec<Action>, Error> {
        answer(rank, "appnum", &[("appnum", "0")])
    }

    fn my_kvsname(&mut self, rank: usize, _line: &Line<'_>) -> Result<Vec<Action>, Error> {
        answer(rank, "my_kvsname", &[("kvsname", &self.kvsname)])
    }

    fn universe_size(&mut self, rank: usize, _line: &Line<'_>) -> Result<Vec<Action>, Error> {
        answer(rank, "universe_size", &[("size", &self.size.to_string())])
    }

    fn put(&mut self, rank: usize, line: &Line<'_>) -> Result<Vec<Action>, Error> {
        let field = |name| {
            line.require(name)
                .map_err(|source| Error::Line { rank, source })
        };
        let (kvsname, key) = (field("kvsname")?, field("key")?);
        let stored = if kvsname == self.kvsname {
            let value = line.get("value").unwrap_or_default();
            let stored = self.store(key, value);
            if stored.is_ok() && self.is_part() {
                self.fresh.push((key.to_owned(), value.to_owned()));
            }
            stored
        } else {
            Err("unknown_kvsname")
        };
        match stored {
            Ok(()) => answer(rank, "put_result", &[("rc", "0"), ("msg", "success")]),
            Err(reason) => answer(rank, "put_result", &[("rc", "-1"), ("msg", reason)]),
        }
    }

    fn get(&mut self, rank: usize, line: &Line<'_>) -> Result<Vec<Action>, Error> {
        let field = |name| {
            line.require(name)
                .map_err(|source| Error::Line { rank, source })
        };
        let (kvsname, key) = (field("kvsname")?, field("key")?);
        let reason = if kvsname == self.kvsname {
            "key_not_found"
        } else {
            "unknown_kvsname"
        };
        match self.kvs.get(key).filter(|_| kvsname == self.kvsname) {
            Some(value) => answer(
                rank,
                "get_result",
                &[("rc", "0"), ("msg", "success"), ("value", value)],
            ),
            None => answer(
                rank,
                "get_result",
                &[("rc", "-1"), ("msg", reason), ("value", "unknown")],
            ),
        }
    }

    fn barrier_in(&mut self, rank: usize, _line: &Line<'_>) -> Result<Vec<Action>, Error> {
        self.set_state(rank, RankState::InBarrier);
        self.in_barrier += 1;
        self.check_barrier()?;
        let mut actions = Vec::new();
        if self.is_part() && self.in_barrier == 1 {
            actions.push(Action::Waiting { rank });
        }
        if self.in_barrier == self.ranks.len() {
            self.fenced = true;
            if self.is_part() {
                let pairs = std::mem::take(&mut self.fresh);
                actions.push(Action::Fence { pairs });
            } else {
                actions = self.release([]);
            }
        }
        Ok(actions)
    }

    fn finalize(&mut self, rank: usize, _line: &Line<'_>) -> Result<Vec<Action>, Error> {
        self.set_state(rank, RankState::Finalized);
        self.departed.get_or_insert((rank, Departure::Finalized));
        let mut actions = answer(rank, "finalize_ack", &[("rc", "0")])?;
        actions.push(Action::Finalized { rank });
        Ok(actions)
    }

    /// Stores a pair. If that is impossible, returns the reason as a word that can be the value of
    /// `msg`.
    fn store(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        let bytes = pair_bytes(key, value);
        if key.is_empty() || !carries(key) || !carries(value) {
            Err("bad_key_or_value")
        } else if key.len() > MAX_KEY {
            Err("key_too_long")
        } else if value.len() > MAX_VALUE {
            Err("value_too_long")
        } else if self.kvs.contains_key(key) {
            Err("duplicate_key")
        } else if self.limits.kvs_bytes.saturating_sub(self.kvs_bytes) < bytes {
            Err("kvs_full")
        } else {
            self.kvs_bytes += bytes;
            self.kvs.insert(key.to_owned(), value.to_owned());
            Ok(())
        }
    }
}

/// Returns the number of bytes that a pair is charged with.
fn pair_bytes(key: &str, value: &str) -> usize {
    key.len() + value.len() + Limits::PAIR_OVERHEAD
}

type Handler = fn(&mut Server, usize, &Line<'_>) -> Result<Vec<Action>, Error>;

/// The commands that an active rank may send.
const COMMANDS: [(&str, Handler); 8] = [
    ("get_maxes", Server::maxes),
    ("get_appnum", Server::appnum),
    ("get_my_kvsname", Server::my_kvsname),
    ("get_universe_size", Server::universe_size),
    ("put", Server::put),
    ("get", Server::get),
    ("barrier_in", Server::barrier_in),
    ("finalize", Server::finalize),
];

fn answer(rank: usize, command: &str, fields: &[(&str, &str)]) -> Result<Vec<Action>, Error> {
    let line = format(command, fields).map_err(|source| Error::Line { rank, source })?;
    Ok(vec![Action::Send { rank, line }])
}

#[cfg(test)]
mod tests;
