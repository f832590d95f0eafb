//! The program on each host of a job on several hosts, `conduit-run --daemon`: runs the host's
//! ranks as the launcher says, and connects the launcher with further daemons.

use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::Instant;

use conduit::stderr;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdin, dup2_stdout};

use crate::error::Error;
use crate::event::{Command, Event, Report};
use crate::host::{Host, Watch};
use crate::interest::Interest;
use crate::outcome::code_of_signal;
use crate::output::Output;
use crate::signals::{self, Signals};
use crate::tree::children::{Children, FromBelow, Part};
use crate::tree::frame::{ALL, Frame};
use crate::tree::link::Link;
use crate::tree::message::{Below, Down, MAGIC, PROTOCOL, Start, Up, VERSION};
use crate::tree::start;

/// A daemon. Dropping it ends all that it has started.
#[derive(Debug)]
struct Daemon {
    /// The channel to the launcher, or to the daemon above.
    link: Link,
    /// This host's number; `None` before the first message.
    number: Option<u32>,
    host: Option<Host>,
    output: Output,
    /// The new pairs of a barrier of which more are to come.
    pairs: Vec<(String, String)>,
    /// Whether the launcher knows that no rank reads the input.
    told_closed: bool,
    children: Children,
    signals: Signals,
}

#[derive(Debug, Clone, Copy)]
enum Token {
    In,
    Out,
    Host(Watch),
    Child(usize, Part),
    Signal,
}

/// Runs a daemon until its channel ends. The exit code is 128 + signal if a signal ends it.
pub(crate) fn main() -> ExitCode {
    match Daemon::start().and_then(Daemon::run) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            stderr::write_line(format_args!("conduit-run: {error}"));
            ExitCode::from(2)
        }
    }
}

/// Takes standard input and output for the channel, and leaves `/dev/null` in their places.
fn channel() -> std::io::Result<Link> {
    let take =
        |fd: &dyn AsFd| -> std::io::Result<OwnedFd> { Ok(fcntl_dupfd_cloexec(fd.as_fd(), 3)?) };
    let link = Link::new(take(&std::io::stdin())?, take(&std::io::stdout())?)?;
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(link)
}

impl Daemon {
    fn start() -> Result<Self, Error> {
        signals::keep_exit_codes();
        let mut link = channel().map_err(Error::system("opening the channel"))?;
        link.write_bytes(format!("{MAGIC} {PROTOCOL} {VERSION}\n").as_bytes());
        link.flush();
        Ok(Daemon {
            link,
            number: None,
            host: None,
            output: Output::relayed(false),
            pairs: Vec::new(),
            told_closed: false,
            children: Children::default(),
            signals: Signals::catch().map_err(Error::system("catching signals"))?,
        })
    }

    fn run(mut self) -> Result<u8, Error> {
        loop {
            let ready = {
                let (interest, wake) = self.interest();
                interest.wait(wake)?
            };
            let (mut of_host, mut of_children) = (Vec::new(), Vec::new());
            let mut open = true;
            for (token, flags) in ready {
                match token {
                    Token::In => open = self.read(),
                    Token::Out => self.link.flush(),
                    Token::Host(watch) => of_host.push((watch, flags)),
                    Token::Child(at, part) => of_children.push((at, part)),
                    Token::Signal => {
                        if let Some(signal) = self.on_signals() {
                            return Ok(code_of_signal(signal));
                        }
                    }
                }
            }
            if !open {
                return Ok(0);
            }
            let now = Instant::now();
            if let Some(host) = &mut self.host {
                host.handle(&of_host, &mut self.output, now);
            }
            let mut from_below = Vec::new();
            self.children.handle(&of_children, now, &mut from_below);
            from_below.into_iter().for_each(|from| self.on_below(from));
            self.report();
            self.link.flush();
            self.children.flush();
        }
    }

    fn interest(&self) -> (Interest<'_, Token>, Option<Instant>) {
        let mut interest = Interest::new();
        interest.add(Token::In, self.link.incoming());
        if let Some(fd) = self.link.outgoing() {
            interest.add(Token::Out, fd);
        }
        let signals = PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN);
        interest.add(Token::Signal, signals);
        let mut wake = self.children.due();
        if let Some(host) = &self.host {
            host.watch(&self.output, &mut interest, Token::Host);
            wake = [wake, host.due(&self.output)].into_iter().flatten().min();
        }
        self.children.watch(true, &mut interest, Token::Child);
        (interest, wake)
    }

    /// Handles signals. Returns one that ends the daemon.
    fn on_signals(&mut self) -> Option<i32> {
        let mut end = None;
        for signal in self.signals.take() {
            match signal {
                libc::SIGCHLD => self.host.iter().for_each(Host::reap_strays),
                libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => end = Some(signal),
                _ => {}
            }
        }
        end
    }

    /// Handles messages from above. Returns `false` at the end of the channel.
    fn read(&mut self) -> bool {
        let open = self.link.read(|decoder, bytes| decoder.push(bytes));
        loop {
            match self.link.decoder.next() {
                Ok(Some(frame)) => {
                    if !self.on_frame(&frame) {
                        return false;
                    }
                }
                Ok(None) => return open,
                Err(error) => return complain(&error),
            }
        }
    }

    /// Handles a message, or passes it on. Returns `false` if it cannot be understood.
    fn on_frame(&mut self, frame: &Frame) -> bool {
        let is_mine = self.number.is_none_or(|number| frame.host == number);
        if !is_mine {
            self.children.forward(frame);
        }
        if is_mine || frame.host == ALL {
            match frame.decode() {
                Ok(message) => self.on_message(message),
                Err(error) => return complain(&error),
            }
        }
        true
    }

    fn on_message(&mut self, message: Down) {
        match message {
            Down::Welcome { host, below } => self.on_welcome(host, &below),
            Down::Start(start) => self.on_start(*start),
            Down::Command(command) => match &mut self.host {
                Some(host) => host.obey(command),
                None if command == Command::Probe => {
                    self.send(&Up::Report(Report::Event(Event::Stopped(Vec::new()))));
                }
                None => {}
            },
            Down::KillRank { rank, signal } => {
                let host = self.host.iter();
                host.for_each(|host| host.kill_rank(rank, signal));
            }
            Down::Release { pairs, last } => {
                self.pairs.extend(pairs);
                if last && let Some(host) = &mut self.host {
                    host.release(std::mem::take(&mut self.pairs));
                }
            }
            Down::Taken(bytes) => self.output.taken(bytes),
            Down::NoReader(stream) => {
                self.output.lose_reader(stream);
                if let Some(host) = &mut self.host {
                    host.drop_dead_sources(&self.output);
                }
            }
            Down::Input(bytes) => self.host.iter_mut().for_each(|host| host.feed(&bytes)),
            Down::Finish => {
                if let Some(host) = &mut self.host {
                    host.end_strays();
                    host.finish_output(&mut self.output);
                }
                self.report();
                self.send(&Up::Done);
            }
        }
    }

    fn on_welcome(&mut self, number: u32, below: &Below) {
        self.number = Some(number);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        self.send(&Up::Hello { processors });
        match Children::start(below, |_| false) {
            Ok(children) => self.children = children,
            Err((named, what)) => {
                let hosts = below.first..below.first + below.names.len();
                self.send(&Up::Lost { hosts, named, what });
            }
        }
    }

    fn on_start(&mut self, plan: Start) {
        self.output = Output::relayed(plan.hold_lines);
        match start::start(plan, &self.output) {
            Ok(host) => {
                self.host = Some(host);
                self.report();
                self.send(&Up::Ready);
            }
            Err(error) => self.send(&Up::Failed {
                code: error.exit_code(),
                what: error.to_string(),
            }),
        }
    }

    fn on_below(&mut self, from: FromBelow) {
        match from {
            FromBelow::Frame(frame) => self.link.forward(&frame),
            FromBelow::Lost { hosts, named, what } => {
                self.send(&Up::Lost { hosts, named, what });
            }
            FromBelow::Line(line) => {
                // A line is lost if nobody reads it now, because nothing may stop a daemon.
                let errors = std::io::stderr();
                let now = Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                if matches!(
                    poll(&mut [PollFd::new(&errors, PollFlags::OUT)], Some(&now)),
                    Ok(1)
                ) {
                    stderr::write_line(format_args!("{}", String::from_utf8_lossy(&line)));
                }
            }
        }
    }

    /// Sends what the host has to report, and its output.
    fn report(&mut self) {
        for text in self.output.take_texts() {
            self.send(&Up::Output(text));
        }
        let Some(host) = &mut self.host else { return };
        let reports = host.take_reports();
        let (taken, reads) = host.take_fed();
        for report in reports {
            self.send(&Up::Report(report));
        }
        if taken > 0 {
            self.send(&Up::InputTaken(taken));
        }
        if !reads && !std::mem::replace(&mut self.told_closed, true) {
            self.send(&Up::InputClosed);
        }
    }

    fn send(&mut self, message: &Up) {
        if let Some(number) = self.number {
            self.link.send(number, message);
        }
    }
}

fn complain(error: &dyn std::fmt::Display) -> bool {
    stderr::write_line(format_args!(
        "conduit-run: the launcher sent garbage: {error}"
    ));
    false
}
