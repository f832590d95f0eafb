//! One turn of the launcher's loop: waits for events, then handles all of them.

use std::os::fd::AsFd;
use std::time::Instant;

use pmi::server::Action;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, waitid};

use super::RunningJob;
use crate::control::Incoming;
use crate::output::Stream;
use crate::{Error, Status, process, strays};

/// The kind of a descriptor in the poll set.
#[derive(Debug, Clone, Copy)]
enum Event {
    Control(usize),
    Output(usize, Stream),
    Ended(usize),
    Signal,
    Terminal,
    Drain(usize),
}

impl RunningJob {
    /// Waits for events, at most until `until`, and handles them.
    pub(super) fn turn(&mut self, until: Option<Instant>) -> Result<(), Error> {
        let sources = self
            .ranks
            .iter()
            .flat_map(|rank| rank.sources.iter().flatten());
        let pieces = sources.filter_map(|source| self.output.due(source)).min();
        let wake = [until, self.next_deadline(), pieces];
        let wake = wake.into_iter().flatten().min();
        let ready = self.poll(wake)?;
        // Handle signals first: they must have an effect whatever else is going on.
        if ready
            .iter()
            .any(|(event, _)| matches!(event, Event::Signal))
        {
            let came = self.signals.as_mut().map(|signals| signals.take());
            for signal in came.unwrap_or_default() {
                self.on_signal(signal);
            }
        }
        let mut ended = Vec::new();
        for (event, flags) in ready {
            match event {
                Event::Control(rank) => {
                    if flags.contains(PollFlags::OUT) {
                        self.ranks[rank].control.flush();
                    }
                    self.on_control(rank);
                }
                Event::Output(rank, stream) => {
                    self.read_output(rank, stream);
                }
                Event::Drain(index) => {
                    if let Some(drain) = self.output.drains_mut().get_mut(index) {
                        drain.advance();
                    }
                    self.drop_dead_sources();
                }
                Event::Terminal => self.terminal.iter_mut().for_each(|pump| pump.advance()),
                Event::Ended(rank) => ended.push(rank),
                Event::Signal => {}
            }
        }
        self.on_ended(&ended);
        let now = Instant::now();
        self.hand_on_pieces(now);
        self.on_time(now);
        Ok(())
    }

    /// Returns the ready descriptors with their flags.
    fn poll(&self, wake: Option<Instant>) -> Result<Vec<(Event, PollFlags)>, Error> {
        let mut events = Vec::new();
        let mut fds = Vec::new();
        for (number, rank) in self.ranks.iter().enumerate() {
            if let Some((socket, flags)) = rank.control.interest() {
                events.push(Event::Control(number));
                fds.push(PollFd::new(socket, flags));
            }
            for stream in Stream::BOTH {
                if let Some(source) = &rank.sources[stream as usize]
                    && self.output.accepts(stream)
                {
                    events.push(Event::Output(number, stream));
                    fds.push(PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN));
                }
            }
            if rank.status.is_none() {
                events.push(Event::Ended(number));
                fds.push(PollFd::new(&self.pidfds[number], PollFlags::IN));
            }
        }
        if let Some(signals) = &self.signals {
            events.push(Event::Signal);
            fds.push(PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN));
        }
        if let Some(fd) = self.terminal.as_ref().and_then(|pump| pump.poll_fd()) {
            events.push(Event::Terminal);
            fds.push(fd);
        }
        for (index, drain) in self.output.drains().iter().enumerate() {
            if !drain.is_empty() {
                events.push(Event::Drain(index));
                fds.push(PollFd::from_borrowed_fd(drain.fd(), PollFlags::OUT));
            }
        }
        let left = wake.map(|wake| wake.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::system("waiting for the ranks")(error)),
        }
        let flags = fds.iter().map(PollFd::revents);
        Ok(events
            .into_iter()
            .zip(flags)
            .filter(|(_, flags)| !flags.is_empty())
            .collect())
    }

    /// Handles everything that a rank has sent over PMI.
    fn on_control(&mut self, rank: usize) {
        loop {
            match self.ranks[rank].control.next() {
                Incoming::Line(line) => self.on_line(rank, &line),
                Incoming::Nothing => return,
                Incoming::Closed => {
                    if self.is_active(rank) {
                        // The rank is probably about to report a reason and exit, which says more
                        // than the closed connection.
                        self.suspect_closed(rank);
                    }
                    return;
                }
                Incoming::Broken(error) => return self.fail_protocol(rank, &error.to_string()),
            }
        }
    }

    fn on_line(&mut self, rank: usize, line: &str) {
        if !self.is_active(rank) {
            self.ranks[rank].program = process::program(self.ranks[rank].pid);
        }
        let actions = match self.server.on_line(rank, line) {
            Ok(actions) => actions,
            Err(error @ pmi::server::Error::BrokenBarrier { .. }) => {
                return self.suspect_barrier(&error);
            }
            Err(error) => {
                self.ranks[rank].control.close();
                return self.fail_protocol(error.rank(), &error.to_string());
            }
        };
        for action in actions {
            match action {
                Action::Send { rank, line } => {
                    let keeps_up = self.ranks[rank].control.send(&line);
                    if !keeps_up {
                        self.ranks[rank].control.close();
                        self.fail_protocol(rank, "it does not read the answers to its requests");
                    }
                }
                Action::Abort {
                    rank,
                    code,
                    message,
                } => self.fail_abort(rank, code, message),
                // The server remembers that the rank has called `finalize`; it is asked for the
                // rank's state when the rank ends.
                Action::Finalized { .. } => {
                    if let Err(error) = self.server.check_barrier() {
                        self.suspect_barrier(&error);
                    }
                }
                _ => {}
            }
        }
    }

    /// Forwards partial lines that have waited long enough for their end.
    pub(super) fn hand_on_pieces(&mut self, now: Instant) {
        for rank in &mut self.ranks {
            for (stream, source) in Stream::BOTH.into_iter().zip(&mut rank.sources) {
                if let Some(source) = source
                    && self.output.due(source).is_some_and(|due| due <= now)
                {
                    self.output.piece(stream, source);
                }
            }
        }
    }

    /// Reads a chunk of a rank's output. Returns whether there may be more.
    pub(super) fn read_output(&mut self, rank: usize, stream: Stream) -> bool {
        let Some(source) = &mut self.ranks[rank].sources[stream as usize] else {
            return false;
        };
        match source.read(|line| self.output.line(rank, stream, line)) {
            Ok(more) => more,
            Err(()) => {
                self.close_output(rank, stream);
                false
            }
        }
    }

    pub(super) fn close_output(&mut self, rank: usize, stream: Stream) {
        self.end_line(rank, stream);
        self.ranks[rank].sources[stream as usize] = None;
    }

    /// Forwards the last line of a stream that will get no more input.
    fn end_line(&mut self, rank: usize, stream: Stream) {
        if let Some(source) = &mut self.ranks[rank].sources[stream as usize] {
            source.end_line(|line| self.output.line(rank, stream, line));
        }
    }

    /// Closes the pipes of streams whose reader is gone, so that the ranks get SIGPIPE as they
    /// would without the launcher in between.
    fn drop_dead_sources(&mut self) {
        for stream in Stream::BOTH {
            if self.output.dead(stream) {
                self.ranks
                    .iter_mut()
                    .for_each(|rank| rank.sources[stream as usize] = None);
            }
        }
    }

    /// Reaps the ranks whose processes have ended in this turn, and judges them only once all of
    /// them are known.
    fn on_ended(&mut self, ended: &[usize]) {
        let mut found = Vec::new();
        for &rank in ended {
            // The rank may have sent something before it ended, such as an abort.
            self.on_control(rank);
            self.ranks[rank].control.close();
            self.clear_protocol(rank);
            let pid = self.ranks[rank].pid;
            // Kill the group before reaping the process: until then, neither the process's number
            // nor its group's can be reused.
            self.ranks[rank].kill_group(Signal::KILL);
            // The rank's output is printed before the message about the rank.
            for stream in Stream::BOTH {
                while self.read_output(rank, stream) {}
                self.end_line(rank, stream);
            }
            self.guard.retire(pid);
            let Ok(Some(status)) = waitid(
                WaitId::Pid(pid),
                WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
            ) else {
                // Other code in this process has reaped the rank, so its exit code is unknown.
                self.ranks[rank].status = Some(Status::Exited(1));
                found.push((rank, Status::Exited(1)));
                continue;
            };
            let status = Status::from_wait(&status);
            self.ranks[rank].status = Some(status);
            found.push((rank, status));
        }
        self.judge(found);
    }

    /// Reaps adopted processes that have ended.
    pub(super) fn reap_strays(&self) {
        let Some(spared) = &self.spared else { return };
        while let Some(child) = strays::peek_ended() {
            // Ranks are reaped when their pidfds become ready, and the guard is reaped when its
            // handle is dropped. Until then `peek_ended` keeps returning that child, so other
            // strays have to wait.
            if spared.contains(&child) || self.ranks.iter().any(|rank| rank.pid == child) {
                return;
            }
            strays::reap(child);
        }
    }
}
