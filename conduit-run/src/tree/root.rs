//! The launcher's side of the tree: all hosts of a job.

use std::ops::Range;
use std::time::Instant;

use pmi::server::{Departure, Limits, Root};
use rustix::event::PollFlags;

use super::children::{Children, FromBelow, Part};
use super::frame::{ALL, Frame, FrameError};
use super::message::{Below, Down, Start, Up};
use crate::event::{Command, Event, Report, Stuck};
use crate::interest::Interest;
use crate::output::{Output, Stream};

/// The number of bytes of output that are acknowledged together. It is well below the window.
const ACKNOWLEDGED: usize = 64 << 10;
/// The maximum number of PMI's pairs in a message.
const PAIRS: usize = 256;

/// Something that has happened on the hosts.
#[derive(Debug)]
pub(crate) enum FromTree {
    /// An event of a host for the job.
    Event(usize, Event),
    /// A daemon has been started.
    Connected(usize),
    /// The ranks of a host cannot be started.
    Failed { host: usize, code: u8, what: String },
    /// Hosts are lost.
    Lost {
        hosts: Range<usize>,
        named: usize,
        what: String,
    },
    /// The ranks have taken so many bytes of the input.
    InputTaken(usize),
    /// No rank reads the input any more.
    InputClosed,
}

/// The hosts of a job.
#[derive(Debug)]
pub(crate) struct Tree {
    children: Children,
    hosts: Vec<Host>,
    root: Root,
    /// The number of bytes of the input that all ranks have taken.
    input_taken: usize,
    /// For each stream, whether the launcher has told the hosts that it has no reader.
    told_dead: [bool; 2],
    out: Vec<FromTree>,
}

#[derive(Debug, Clone, Default)]
struct Host {
    /// Set once the daemon has been started.
    processors: Option<usize>,
    /// Whether the launcher has ordered the host to start ranks.
    takes_part: bool,
    /// Whether all of the host's ranks have been started.
    ready: bool,
    /// Whether nothing is left of the job on the host, or the host is lost.
    done: bool,
    /// Whether the host has a rank that reads the input.
    reads: bool,
    input_taken: usize,
    /// The number of bytes of output that have not been acknowledged.
    owed: usize,
}

impl Tree {
    /// Starts the daemons of all hosts.
    ///
    /// # Errors
    /// A remote shell cannot be executed; returns the number of its host.
    pub(crate) fn start(
        below: &Below,
        is_here: impl Fn(&str) -> bool,
    ) -> Result<Self, (usize, String)> {
        Ok(Tree {
            children: Children::start(below, is_here)?,
            hosts: vec![Host::default(); below.names.len()],
            root: Root::new([], Limits::default()),
            input_taken: 0,
            told_dead: [false; 2],
            out: Vec::new(),
        })
    }

    /// Returns whether all daemons have been started.
    pub(crate) fn is_connected(&self) -> bool {
        self.hosts.iter().all(|host| host.processors.is_some())
    }

    /// Returns the first host whose daemon has not been started.
    pub(crate) fn not_connected(&self) -> Option<usize> {
        let mut hosts = self.hosts.iter();
        hosts.position(|host| host.processors.is_none())
    }

    /// Returns the number of processors of each host.
    pub(crate) fn processors(&self) -> Vec<usize> {
        let processors = |host: &Host| host.processors.unwrap_or(1);
        self.hosts.iter().map(processors).collect()
    }

    /// Has the hosts start their ranks; `None` for a host without ranks.
    pub(crate) fn start_ranks(&mut self, starts: impl Iterator<Item = Option<Start>>) {
        let mut firsts = Vec::new();
        for (number, start) in starts.enumerate() {
            let Some(start) = start else {
                // PMI's root does not wait for this host.
                continue;
            };
            let host = &mut self.hosts[number];
            host.takes_part = true;
            let mut ranks = start.plan.ranks.clone();
            firsts.push((number, ranks.start));
            host.reads = ranks.any(|rank| start.plan.readers.include(rank));
            self.children
                .send(number as u32, &Down::Start(Box::new(start)));
        }
        self.root = Root::new(firsts, Limits::default());
        self.children.flush();
    }

    /// Returns the first host whose ranks have not been started.
    pub(crate) fn not_ready(&self) -> Option<usize> {
        let mut hosts = self.hosts.iter();
        hosts.position(|host| host.takes_part && !host.ready)
    }

    /// Has all hosts carry out a command.
    pub(crate) fn obey(&mut self, command: Command) {
        self.children.send(ALL, &Down::Command(command));
        self.children.flush();
    }

    /// Signals a rank of a host.
    pub(crate) fn kill_rank(&mut self, host: usize, rank: usize, signal: i32) {
        self.children
            .send(host as u32, &Down::KillRank { rank, signal });
        self.children.flush();
    }

    /// Passes input to the ranks that read it; nothing is its end.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for (number, host) in self.hosts.iter().enumerate() {
            if host.reads && !host.done {
                self.children
                    .send(number as u32, &Down::Input(bytes.to_vec()));
            }
        }
        self.children.flush();
    }

    /// Has all hosts end what the ranks have left. Call this once all ranks have ended.
    pub(crate) fn finish(&mut self) {
        self.children.send(ALL, &Down::Finish);
        self.children.flush();
    }

    /// Returns whether nothing is left of the job on any host, and all output has arrived.
    pub(crate) fn is_finished(&self) -> bool {
        self.hosts.iter().all(|host| host.done)
    }

    /// Ends all daemons and remote shells.
    pub(crate) fn close(&mut self) {
        self.children.close();
    }

    /// Adds the descriptors to wait for.
    pub(crate) fn watch<'a, T>(
        &'a self,
        output: &Output,
        interest: &mut Interest<'a, T>,
        token: impl Fn(usize, Part) -> T,
    ) {
        let accepts = output.accepts(Stream::Stderr);
        self.children.watch(accepts, interest, token);
    }

    /// Returns the time at which [`handle`](Self::handle) has to be called even if nothing is
    /// ready.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.children.due()
    }

    /// Handles descriptors that are ready, and expired deadlines. Returns what has happened.
    pub(crate) fn handle(
        &mut self,
        ready: &[((usize, Part), PollFlags)],
        output: &mut Output,
        now: Instant,
    ) -> Vec<FromTree> {
        let ready: Vec<_> = ready.iter().map(|(part, _)| *part).collect();
        let mut from_below = Vec::new();
        self.children.handle(&ready, now, &mut from_below);
        for from_below in from_below {
            match from_below {
                FromBelow::Frame(frame) => {
                    if let Err(error) = self.on_frame(&frame, output) {
                        let host = frame.host as usize;
                        self.lose(host..host + 1, host, format!("it sent garbage: {error}"));
                    }
                }
                FromBelow::Lost { hosts, named, what } => self.lose(hosts, named, what),
                FromBelow::Line(line) => output.foreign_line(&line),
            }
        }
        self.acknowledge(output);
        self.children.flush();
        std::mem::take(&mut self.out)
    }

    fn lose(&mut self, hosts: Range<usize>, named: usize, what: String) {
        let known = hosts.start.min(self.hosts.len())..hosts.end.min(self.hosts.len());
        let mut news = false;
        for host in &mut self.hosts[known.clone()] {
            news |= !std::mem::replace(&mut host.done, true);
            host.input_taken = usize::MAX;
        }
        if news {
            self.out.push(FromTree::Lost {
                hosts: known,
                named,
                what,
            });
            self.count_input();
        }
    }

    fn on_frame(&mut self, frame: &Frame, output: &mut Output) -> Result<(), FrameError> {
        let number = frame.host as usize;
        let message: Up = frame.decode()?;
        let host = self.hosts.get_mut(number).ok_or(FrameError::Malformed)?;
        match message {
            Up::Hello { processors } => {
                host.processors = Some(processors);
                self.out.push(FromTree::Connected(number));
            }
            Up::Ready => host.ready = true,
            Up::Failed { code, what } => self.out.push(FromTree::Failed {
                host: number,
                code,
                what,
            }),
            Up::Lost { hosts, named, what } => self.lose(hosts, named, what),
            Up::Report(report) => self.on_report(number, report),
            Up::Output(text) => {
                host.owed += text.charge();
                output.text(&text);
            }
            Up::InputTaken(bytes) => {
                host.input_taken = host.input_taken.saturating_add(bytes);
                self.count_input();
            }
            Up::InputClosed => {
                host.input_taken = usize::MAX;
                self.count_input();
            }
            Up::Done => host.done = true,
        }
        Ok(())
    }

    fn on_report(&mut self, host: usize, report: Report) {
        let result = match report {
            Report::Event(Event::Ended(mut ends)) => {
                for end in &mut ends {
                    let how = match end.joined {
                        true => Departure::Ended,
                        false => Departure::NeverJoined,
                    };
                    let stuck = self.root.on_departed(end.rank, how).err();
                    let stuck = stuck.as_ref().and_then(Stuck::from_error);
                    end.stuck = end.stuck.take().or(stuck);
                }
                return self.event(host, Event::Ended(ends));
            }
            Report::Event(event) => return self.event(host, event),
            Report::Waiting { rank } => self.root.on_waiting(host, rank),
            Report::Finalized { rank } => self.root.on_departed(rank, Departure::Finalized),
            Report::Pairs(pairs) => self.root.on_pairs(host, pairs),
            Report::Fence => {
                if let Some(pairs) = self.root.on_fence(host) {
                    self.release(pairs);
                }
                Ok(())
            }
        };
        if let Err(error) = result {
            let event = match Stuck::from_error(&error) {
                Some(stuck) => Event::Stuck(stuck),
                None => Event::Broken {
                    rank: error.rank(),
                    what: error.to_string(),
                },
            };
            self.event(host, event);
        }
    }

    fn event(&mut self, host: usize, event: Event) {
        self.out.push(FromTree::Event(host, event));
    }

    /// Completes PMI's barrier on all hosts.
    fn release(&mut self, pairs: Vec<(String, String)>) {
        let mut pairs = pairs.into_iter().peekable();
        loop {
            let chunk: Vec<_> = pairs.by_ref().take(PAIRS).collect();
            let last = pairs.peek().is_none();
            let message = Down::Release { pairs: chunk, last };
            self.children.send(ALL, &message);
            if last {
                return;
            }
        }
    }

    /// Acknowledges output once the launcher's own output accepts more, and tells hosts about
    /// streams that have no reader.
    fn acknowledge(&mut self, output: &Output) {
        let accepts = Stream::BOTH
            .into_iter()
            .all(|stream| output.accepts(stream));
        for (number, host) in self.hosts.iter_mut().enumerate() {
            if accepts && host.owed >= ACKNOWLEDGED {
                let taken = Down::Taken(std::mem::take(&mut host.owed));
                self.children.send(number as u32, &taken);
            }
        }
        for stream in Stream::BOTH {
            if output.dead(stream) && !self.told_dead[stream as usize] {
                self.told_dead[stream as usize] = true;
                self.children.send(ALL, &Down::NoReader(stream));
            }
        }
    }

    /// Finds out how much of the input all hosts have taken.
    fn count_input(&mut self) {
        let reading = self.hosts.iter().filter(|host| host.reads);
        let Some(taken) = reading.map(|host| host.input_taken).min() else {
            return;
        };
        if taken == usize::MAX {
            self.out.push(FromTree::InputClosed);
        } else if taken > self.input_taken {
            let bytes = taken - self.input_taken;
            self.input_taken = taken;
            self.out.push(FromTree::InputTaken(bytes));
        }
    }
}
