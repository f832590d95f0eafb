//! The daemons that this process has started, and the remote shells that connect it with them.

use std::ffi::OsString;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio, read};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde::Serialize;

use super::frame::{ALL, Frame};
use super::link::Link;
use super::message::{Below, Down, MAGIC, PROTOCOL, VERSION};
use crate::interest::Interest;
use crate::outcome::signal_text;

/// The maximum number of daemons that a process starts itself.
pub(crate) const FAN_OUT: usize = 32;
/// The maximum number of bytes that are kept of what a shell prints before its daemon starts.
const KEPT: usize = 8 << 10;
/// The time that a shell has to end after its channel, and a channel after its shell. It only
/// delays the message about a lost host.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time that all shells have to end at the end of the job before they are killed.
const FAREWELL: Duration = Duration::from_secs(10);

/// Something that has arrived from below.
#[derive(Debug)]
pub(crate) enum FromBelow {
    /// A message of a host.
    Frame(Frame),
    /// Hosts are lost, of which this process has started `named`.
    Lost {
        hosts: Range<usize>,
        named: usize,
        what: String,
    },
    /// A line that a remote shell has printed, once its daemon runs.
    Line(Vec<u8>),
}

/// A descriptor of a channel in the poll set.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    In,
    Out,
    Errors,
    Ended,
}

/// The daemons that this process has started. Dropping them closes their channels, which ends what
/// they run, and waits for their ends.
#[derive(Debug, Default)]
pub(crate) struct Children {
    channels: Vec<Channel>,
}

/// A daemon, with the remote shell that connects this process with it.
#[derive(Debug)]
struct Channel {
    /// The host, and those below it.
    hosts: Range<usize>,
    /// The hosts below it.
    below: Below,
    /// The command, for messages.
    command: String,
    process: Child,
    pidfd: OwnedFd,
    link: Link,
    /// The shell's standard error.
    errors: Option<OwnedFd>,
    /// The bytes that have arrived on standard output before the daemon's first line.
    start: Vec<u8>,
    /// The text that the shell printed on standard error before its daemon started. Later, the
    /// beginning of a line on standard error.
    printed: Vec<u8>,
    state: State,
    /// How the shell has ended.
    status: Option<ExitStatus>,
}

#[derive(Debug)]
enum State {
    /// The daemon has not sent its first line.
    Connecting {
        due: Instant,
    },
    Open,
    /// The channel or the shell has ended. The other has some time to end too, because its end says
    /// more.
    Ending {
        due: Instant,
        was_open: bool,
    },
    /// The channel is of no more use, because the host is lost or has left.
    Closed,
}

impl Children {
    /// Starts the daemons of hosts that consecutive numbers have, beginning with `first`. Hosts for
    /// which `is_here` returns true are started without a remote shell.
    ///
    /// # Errors
    /// A remote shell cannot be executed; returns the number of its host.
    pub(crate) fn start(
        below: &Below,
        is_here: impl Fn(&str) -> bool,
    ) -> Result<Self, (usize, String)> {
        let mut children = Children::default();
        for range in split(below.names.len()) {
            let name = &below.names[range.start];
            let hosts = below.first + range.start..below.first + range.end;
            let words = match is_here(name) {
                true => below.shell.own_command(),
                false => below.shell.command(name),
            };
            let rest = Below {
                first: hosts.start + 1,
                names: below.names[range.start + 1..range.end].to_vec(),
                shell: below.shell.clone(),
            };
            let first = hosts.start;
            let channel = Channel::start(hosts, rest, words, below.shell.limit);
            children
                .channels
                .push(channel.map_err(|what| (first, what))?);
        }
        Ok(children)
    }

    /// Sends a message to a host, or to [`ALL`].
    pub(crate) fn send<T: Serialize>(&mut self, host: u32, message: &T) {
        self.forward(&Frame::new(host, message));
    }

    /// Sends a frame on towards its host.
    pub(crate) fn forward(&mut self, frame: &Frame) {
        let host = frame.host;
        for channel in &mut self.channels {
            let goes = host == ALL || channel.hosts.contains(&(host as usize));
            if goes && matches!(channel.state, State::Open) {
                channel.link.forward(frame);
            }
        }
    }

    /// Writes what can be written at once.
    pub(crate) fn flush(&mut self) {
        self.channels
            .iter_mut()
            .for_each(|channel| channel.link.flush());
    }

    /// Adds the descriptors to wait for. Standard error of the shells is read only if
    /// `accepts_lines`.
    pub(crate) fn watch<'a, T>(
        &'a self,
        accepts_lines: bool,
        interest: &mut Interest<'a, T>,
        token: impl Fn(usize, Part) -> T,
    ) {
        for (at, channel) in self.channels.iter().enumerate() {
            if matches!(channel.state, State::Closed) {
                continue;
            }
            if channel.reads() {
                interest.add(token(at, Part::In), channel.link.incoming());
            }
            if let Some(fd) = channel.link.outgoing() {
                interest.add(token(at, Part::Out), fd);
            }
            if let Some(errors) = &channel.errors
                && accepts_lines
            {
                interest.add(token(at, Part::Errors), PollFd::new(errors, PollFlags::IN));
            }
            if channel.status.is_none() {
                let fd = PollFd::new(&channel.pidfd, PollFlags::IN);
                interest.add(token(at, Part::Ended), fd);
            }
        }
    }

    /// Returns the time at which [`handle`](Self::handle) has to be called even if nothing is
    /// ready.
    pub(crate) fn due(&self) -> Option<Instant> {
        let due = |channel: &Channel| match channel.state {
            State::Connecting { due } | State::Ending { due, .. } => Some(due),
            State::Open | State::Closed => None,
        };
        self.channels.iter().filter_map(due).min()
    }

    /// Handles descriptors that are ready, and expired deadlines.
    pub(crate) fn handle(
        &mut self,
        ready: &[(usize, Part)],
        now: Instant,
        out: &mut Vec<FromBelow>,
    ) {
        for &(at, part) in ready {
            let Some(channel) = self.channels.get_mut(at) else {
                continue;
            };
            match part {
                Part::In => channel.on_readable(now, out),
                Part::Out => channel.link.flush(),
                Part::Errors => channel.read_errors(out),
                Part::Ended => channel.on_ended(now, out),
            }
        }
        for channel in &mut self.channels {
            channel.on_time(now, out);
        }
    }

    /// Closes the channels of all daemons, which ends them and what they run, and waits for their
    /// ends. Shells that do not end are killed.
    pub(crate) fn close(&mut self) {
        for channel in &mut self.channels {
            let connecting = matches!(channel.state, State::Connecting { .. });
            channel.state = State::Closed;
            channel.link.close();
            if connecting {
                // A daemon that starts nevertheless finds its channel closed.
                channel.kill();
            }
        }
        let deadline = Instant::now() + FAREWELL;
        for channel in &mut self.channels {
            channel.await_end(deadline);
            channel.kill();
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.close();
    }
}

/// Splits `0..count` into at most [`FAN_OUT`] ranges of about the same length.
fn split(count: usize) -> impl Iterator<Item = Range<usize>> {
    let parts = count.min(FAN_OUT);
    (0..parts).map(move |part| part * count / parts..(part + 1) * count / parts)
}

impl Channel {
    fn start(
        hosts: Range<usize>,
        below: Below,
        words: Vec<OsString>,
        limit: Duration,
    ) -> Result<Self, String> {
        let command = shown(&words);
        let failed = |what: &dyn std::fmt::Display| format!("cannot execute '{command}': {what}");
        let (program, args) = words.split_first().ok_or_else(|| failed(&"no command"))?;
        let mut process = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A terminal's signals reach the launcher alone, which decides what becomes of the job.
            .process_group(0)
            .spawn()
            .map_err(|error| failed(&error))?;
        let pidfd = pidfd_open(Pid::from_child(&process), PidfdFlags::empty());
        let ends = (
            process.stdin.take(),
            process.stdout.take(),
            process.stderr.take(),
        );
        let (Ok(pidfd), (Some(input), Some(output), Some(errors))) = (pidfd, ends) else {
            let _ = (process.kill(), process.wait());
            return Err(failed(&"no descriptor is left"));
        };
        let errors = OwnedFd::from(errors);
        let link = Link::new(output.into(), input.into());
        let link = link.and_then(|link| Ok((ioctl_fionbio(&errors, true)?, link)));
        let (_, link) = match link {
            Ok(link) => link,
            Err(error) => {
                let _ = (process.kill(), process.wait());
                return Err(failed(&error));
            }
        };
        Ok(Channel {
            hosts,
            below,
            command,
            process,
            pidfd,
            link,
            errors: Some(errors),
            start: Vec::new(),
            printed: Vec::new(),
            state: State::Connecting {
                due: Instant::now() + limit,
            },
            status: None,
        })
    }

    /// Returns whether the channel may still have something to read.
    fn reads(&self) -> bool {
        match self.state {
            State::Connecting { .. } | State::Open => true,
            // Only if the shell has ended first.
            State::Ending { .. } => self.status.is_some(),
            State::Closed => false,
        }
    }

    fn on_readable(&mut self, now: Instant, out: &mut Vec<FromBelow>) {
        let mut start = Vec::new();
        let connecting = matches!(self.state, State::Connecting { .. });
        let open = self.link.read(|decoder, bytes| match connecting {
            true => start.extend_from_slice(bytes),
            false => decoder.push(bytes),
        });
        if connecting && !start.is_empty() {
            self.on_start(&start, out);
        }
        if matches!(
            self.state,
            State::Open | State::Ending { was_open: true, .. }
        ) {
            self.take_frames(out);
        }
        if !open {
            self.on_end_of_channel(now, out);
        }
    }

    /// Looks for the daemon's first line.
    fn on_start(&mut self, bytes: &[u8], out: &mut Vec<FromBelow>) {
        let start = &mut self.start;
        start.extend_from_slice(bytes);
        let found = start
            .windows(MAGIC.len())
            .position(|window| window == MAGIC.as_bytes());
        let line = found.and_then(|at| {
            let length = start[at..].iter().position(|byte| *byte == b'\n')?;
            Some(at..at + length)
        });
        let Some(line) = line else {
            // Keep the end, because it may be the beginning of the line.
            let excess = start.len().saturating_sub(KEPT);
            start.drain(..excess);
            return;
        };
        let rest = start.split_off(line.end + 1);
        let text = String::from_utf8_lossy(&start[line]).into_owned();
        let own = format!("{MAGIC} {PROTOCOL} {VERSION}");
        if text != own {
            let mut words = text.split(' ').skip(1).map(|word| word.chars().take(40));
            let mut word = || words.next().map_or("?".to_owned(), Iterator::collect);
            let (protocol, version): (String, String) = (word(), word());
            let what = format!(
                "conduit-run there has version {version} (protocol {protocol}), and this one has \
                 version {VERSION} (protocol {PROTOCOL}); the command was '{}' (--remote-path)",
                self.command
            );
            return self.lose(what, out);
        }
        self.state = State::Open;
        self.link.decoder.push(&rest);
        let welcome = Down::Welcome {
            host: self.hosts.start as u32,
            below: self.below.clone(),
        };
        self.link.send(self.hosts.start as u32, &welcome);
        self.link.flush();
        self.take_frames(out);
        // The text that the shell has printed so far counts as a line from now on.
        let printed = std::mem::take(&mut self.printed);
        self.forward_errors(&printed, out);
    }

    fn take_frames(&mut self, out: &mut Vec<FromBelow>) {
        loop {
            match self.link.decoder.next() {
                Ok(Some(frame)) if self.hosts.contains(&(frame.host as usize)) => {
                    out.push(FromBelow::Frame(frame));
                }
                Ok(Some(frame)) => {
                    let what = format!("it sent a message as host number {}", frame.host);
                    return self.lose(what, out);
                }
                Ok(None) => return,
                Err(error) => return self.lose(format!("it sent garbage: {error}"), out),
            }
        }
    }

    fn on_end_of_channel(&mut self, now: Instant, out: &mut Vec<FromBelow>) {
        match self.state {
            State::Closed => {}
            State::Ending { .. } => self.lose_by_end(out),
            _ if self.status.is_some() => self.lose_by_end(out),
            _ => self.start_ending(now),
        }
    }

    /// Handles the end of the shell's process.
    fn on_ended(&mut self, now: Instant, out: &mut Vec<FromBelow>) {
        let Ok(Some(status)) = self.process.try_wait() else {
            return;
        };
        self.status = Some(status);
        match self.state {
            State::Closed => {}
            // The channel has ended before.
            State::Ending { .. } => self.lose_by_end(out),
            State::Connecting { .. } | State::Open => {
                self.on_readable(now, out);
                if !matches!(self.state, State::Closed) {
                    self.start_ending(now);
                }
            }
        }
    }

    fn start_ending(&mut self, now: Instant) {
        self.state = State::Ending {
            due: now + PATIENCE,
            was_open: matches!(self.state, State::Open),
        };
        self.link.close();
    }

    fn on_time(&mut self, now: Instant, out: &mut Vec<FromBelow>) {
        match self.state {
            State::Connecting { due } if due <= now => {
                let limit = self.below.shell.limit.as_secs_f64();
                let what = format!(
                    "its daemon has not started within {limit} s (--start-timeout); the command \
                     was '{}'{}",
                    self.command,
                    self.shown_print()
                );
                self.lose(what, out);
            }
            State::Ending { due, .. } if due <= now => self.lose_by_end(out),
            _ => {}
        }
    }

    /// Reports the host as lost because its channel or its shell has ended.
    fn lose_by_end(&mut self, out: &mut Vec<FromBelow>) {
        self.read_errors(out);
        let how = match self.status {
            None => "closed its connection".to_owned(),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exited with code {code}"),
                (None, signal) => format!("was killed by {}", signal_text(signal.unwrap_or(0))),
            },
        };
        let what = match self.state {
            State::Ending { was_open: true, .. } | State::Open => {
                format!("its remote shell '{}' {how}", self.command)
            }
            _ => {
                let path = match self.status.and_then(|status| status.code()) {
                    Some(126 | 127) => "; --remote-path names conduit-run on other hosts",
                    _ => "",
                };
                let print = self.shown_print();
                format!(
                    "its daemon has not started: '{}' {how}{path}{print}",
                    self.command
                )
            }
        };
        self.lose(what, out);
    }

    fn lose(&mut self, what: String, out: &mut Vec<FromBelow>) {
        self.state = State::Closed;
        self.link.close();
        self.kill();
        out.push(FromBelow::Lost {
            hosts: self.hosts.clone(),
            named: self.hosts.start,
            what,
        });
    }

    /// Returns what the shell has printed before the daemon started, for a message.
    fn shown_print(&self) -> String {
        let all = [&self.start[..], b"\n", &self.printed].concat();
        let text = String::from_utf8_lossy(&all);
        let lines = text
            .lines()
            .map(str::trim_end)
            .filter(|line| !line.is_empty());
        let lines: Vec<String> = lines.map(|line| format!("\n    {line}")).collect();
        match lines.is_empty() {
            true => "; it printed nothing".to_owned(),
            false => format!("; it printed:{}", lines.concat()),
        }
    }

    /// Reads what the shell prints on standard error.
    fn read_errors(&mut self, out: &mut Vec<FromBelow>) {
        let mut chunk = [0; 4096];
        // Not everything at once, because a shell may print without end.
        for _ in 0..16 {
            let Some(errors) = &self.errors else { return };
            match read(errors, &mut chunk) {
                Ok(count @ 1..) => {
                    if self.was_open() {
                        self.forward_errors(&chunk[..count], out);
                    } else {
                        self.printed.extend_from_slice(&chunk[..count]);
                        let excess = self.printed.len().saturating_sub(KEPT);
                        self.printed.drain(..excess);
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => return,
                Ok(0) | Err(_) => self.errors = None,
            }
        }
    }

    fn was_open(&self) -> bool {
        matches!(
            self.state,
            State::Open | State::Ending { was_open: true, .. }
        )
    }

    /// Forwards whole lines of standard error.
    fn forward_errors(&mut self, bytes: &[u8], out: &mut Vec<FromBelow>) {
        self.printed.extend_from_slice(bytes);
        while let Some(length) = self.printed.iter().position(|byte| *byte == b'\n') {
            let mut line: Vec<u8> = self.printed.drain(..=length).collect();
            line.pop();
            out.push(FromBelow::Line(line));
        }
        if self.printed.len() > KEPT {
            out.push(FromBelow::Line(std::mem::take(&mut self.printed)));
        }
    }

    fn await_end(&mut self, deadline: Instant) {
        while self.status.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).unwrap_or_default();
            // Discard what arrives, because the daemon may wait for room.
            let mut fds = vec![PollFd::new(&self.pidfd, PollFlags::IN)];
            if let Some(errors) = &self.errors {
                fds.push(PollFd::new(errors, PollFlags::IN));
            }
            let incoming = self.link.incoming();
            fds.push(incoming);
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            let ended = !fds[0].revents().is_empty();
            drop(fds);
            if ended {
                self.status = self.process.try_wait().ok().flatten();
                return;
            }
            self.read_errors(&mut Vec::new());
            if !self.link.read(|_, _| {}) {
                // Nothing more arrives: wait for the process alone.
                let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
                let _ = poll(&mut fds, Some(&timeout));
                self.status = self.process.try_wait().ok().flatten();
                return;
            }
        }
    }

    /// Kills and reaps the shell's process group, unless the shell has been reaped.
    fn kill(&mut self) {
        if self.status.is_none() {
            let _ = kill_process_group(Pid::from_child(&self.process), Signal::KILL);
            // Only the kernel can delay its end.
            let timeout = Timespec::try_from(PATIENCE).ok();
            let _ = poll(
                &mut [PollFd::new(&self.pidfd, PollFlags::IN)],
                timeout.as_ref(),
            );
            self.status = self.process.try_wait().ok().flatten();
        }
    }
}

/// Returns a command in a form that a shell accepts, for messages.
fn shown(words: &[OsString]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_split_evenly_and_in_order() {
        assert_eq!(split(3).collect::<Vec<_>>(), [0..1, 1..2, 2..3]);
        for count in [0, 1, 31, 32, 33, 40, 1000] {
            let ranges: Vec<_> = split(count).collect();
            assert!(ranges.len() <= FAN_OUT);
            let mut next = 0;
            for range in &ranges {
                assert_eq!(range.start, next);
                assert!(!range.is_empty() && range.len() <= count.div_ceil(FAN_OUT));
                next = range.end;
            }
            assert_eq!(next, count);
        }
    }
}
