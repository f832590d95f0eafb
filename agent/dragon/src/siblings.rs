//! Messages between the agents of a node, over Unix sockets. There is one sequenced-packet
//! connection between each two agents. Its end shows an agent that the other one has ended the
//! exchange or is dead. The sockets have abstract names, so nothing is left behind in a file
//! system.
//!
//! The system closes a process's sockets once none of its threads runs any more. A peer that has
//! seen the end of the connection therefore knows that the process no longer writes to any memory.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use agent::host::{MAX_SIBLING_MESSAGE, SiblingEvent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recv, send, shutdown, socket_with,
};

/// The start of each side's first message. The sender's number follows in four bytes.
const HELLO: &[u8; 8] = b"hsta 01\n";
/// The pause between two attempts to connect to agents that are missing.
const LOOK: Duration = Duration::from_millis(20);
/// The maximum number of messages taken from one sibling at a time.
const BATCH: usize = 16;

/// The other agents of this node. All `count` agents, including this one, are numbered from 0.
#[derive(Debug)]
pub(crate) struct Siblings {
    own: u32,
    /// The common prefix of the socket names. The agent's number follows it.
    name: String,
    listener: OwnedFd,
    /// The sessions with the other agents, by number.
    sessions: Vec<Option<Session>>,
    /// The accepted connections on which no hello has arrived yet.
    strangers: VecDeque<OwnedFd>,
    /// When to try again to connect to missing agents.
    look_at: Option<Instant>,
    events: VecDeque<(u32, SiblingEvent)>,
}

#[derive(Debug)]
struct Session {
    socket: OwnedFd,
    /// Whether the other agent's hello has arrived. This agent has sent its own.
    has_joined: bool,
    /// Whether this agent has ended the exchange.
    has_said: bool,
    /// Whether the other agent has ended the exchange.
    has_heard: bool,
}

/// The result of reading from a socket.
enum Incoming {
    Message(Vec<u8>),
    Nothing,
    End,
}

fn flags() -> SocketFlags {
    SocketFlags::CLOEXEC | SocketFlags::NONBLOCK
}

fn create() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags(), None)
}

impl Siblings {
    /// Opens the listening socket of agent `own` on this node, for the job that uses this port.
    ///
    /// # Errors
    /// Returns an error if the name of the socket is taken, or if the system refuses the socket.
    pub(crate) fn open(node: u64, port: u16, own: u32, count: u32) -> io::Result<Self> {
        let name = format!("conduit-hsta/{node:016x}/{port}/");
        let listener = create()?;
        let address = format!("{name}{own}");
        bind(
            &listener,
            &SocketAddrUnix::new_abstract_name(address.as_bytes())?,
        )?;
        // The cast is lossless: the number of agents is small.
        listen(&listener, count as i32)?;
        Ok(Self {
            own,
            name,
            listener,
            sessions: (0..count).map(|_| None).collect(),
            strangers: VecDeque::new(),
            look_at: None,
            events: VecDeque::new(),
        })
    }

    /// Tries to connect to the agents with lower numbers that are not connected, if the pause since
    /// the last attempt is over.
    fn connect(&mut self) {
        let now = Instant::now();
        if self.look_at.is_some_and(|at| now < at) {
            return;
        }
        self.look_at = Some(now + LOOK);
        for number in 0..self.own {
            if self.sessions[number as usize].is_none() {
                self.sessions[number as usize] = self.connect_to(number).ok();
            }
        }
    }

    fn connect_to(&self, number: u32) -> rustix::io::Result<Session> {
        let socket = create()?;
        let name = format!("{}{number}", self.name);
        connect(
            &socket,
            &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        )?;
        check_user(&socket)?;
        send(&socket, &hello(self.own), SendFlags::NOSIGNAL)?;
        Ok(Session::new(socket))
    }

    /// Handles pending input: connections, hellos and messages.
    fn look(&mut self) {
        self.connect();
        let (is_connected, heard, said) = self.ready();
        if is_connected && let Ok(socket) = accept_with(&self.listener, flags()) {
            // Drops the oldest connection without a hello if there are as many as agents, because
            // they cannot all be genuine.
            if self.strangers.len() >= self.sessions.len() {
                self.strangers.pop_front();
            }
            if check_user(&socket).is_ok() {
                self.strangers.push_back(socket);
            }
        }
        if said {
            for socket in std::mem::take(&mut self.strangers) {
                self.meet(socket);
            }
        }
        for number in heard {
            self.hear(number);
        }
    }

    /// Returns whether a connection is pending, which sessions have input, and whether a connection
    /// without a hello has input.
    fn ready(&self) -> (bool, Vec<u32>, bool) {
        let sessions = (0..).zip(&self.sessions);
        let sessions = sessions.filter_map(|(number, session)| Some((number, session.as_ref()?)));
        let open: Vec<_> = sessions.filter(|(_, session)| !session.has_heard).collect();
        let strangers = self.strangers.iter();
        let sockets = open.iter().map(|(_, session)| &session.socket);
        let sockets = std::iter::once(&self.listener)
            .chain(sockets)
            .chain(strangers);
        let mut polled: Vec<_> = sockets
            .map(|socket| PollFd::new(socket, PollFlags::IN))
            .collect();
        if !poll(&mut polled, Some(&Timespec::default())).is_ok_and(|count| count > 0) {
            return (false, Vec::new(), false);
        }
        let mut ready = polled.iter().map(|polled| !polled.revents().is_empty());
        let is_connected = ready.next() == Some(true);
        let heard = open.iter().zip(&mut ready).filter(|(_, ready)| *ready);
        let heard = heard.map(|((number, _), _)| *number).collect();
        (is_connected, heard, ready.any(|ready| ready))
    }

    /// Reads the hello of an accepted connection, if it has arrived.
    fn meet(&mut self, socket: OwnedFd) {
        match receive(&socket) {
            Incoming::Nothing => self.strangers.push_back(socket),
            Incoming::End => {}
            Incoming::Message(message) => {
                let number = number(&message).filter(|number| *number > self.own);
                let Some(number) = number else { return };
                // If an earlier session under this number has not ended, the connection is dropped.
                // The new agent tries again.
                if let Some(none @ None) = self.sessions.get_mut(number as usize)
                    && send(&socket, &hello(self.own), SendFlags::NOSIGNAL).is_ok()
                {
                    let session = none.insert(Session::new(socket));
                    session.has_joined = true;
                    self.events.push_back((number, SiblingEvent::Joined));
                }
            }
        }
    }

    /// Reads the messages of a sibling.
    fn hear(&mut self, sibling: u32) {
        for _ in 0..BATCH {
            let slot = &mut self.sessions[sibling as usize];
            let Some(session) = slot else { return };
            let event = match receive(&session.socket) {
                Incoming::Nothing => return,
                Incoming::Message(message) if session.has_joined => SiblingEvent::Message(message),
                Incoming::Message(message) if number(&message) == Some(sibling) => {
                    session.has_joined = true;
                    SiblingEvent::Joined
                }
                Incoming::End if session.has_joined => {
                    session.has_heard = true;
                    SiblingEvent::Ended
                }
                // The session is dropped, because the other side has sent no valid hello.
                Incoming::Message(_) | Incoming::End => {
                    *slot = None;
                    return;
                }
            };
            let is_end = event == SiblingEvent::Ended;
            self.events.push_back((sibling, event));
            if is_end {
                return;
            }
        }
    }
}

impl Session {
    fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            has_joined: false,
            has_said: false,
            has_heard: false,
        }
    }
}

impl agent::host::Siblings for Siblings {
    fn next(&mut self) -> Option<(u32, SiblingEvent)> {
        if self.events.is_empty() {
            self.look();
        }
        self.events.pop_front()
    }

    fn send(&mut self, sibling: u32, message: &[u8]) -> bool {
        let session = self.sessions.get(sibling as usize).and_then(Option::as_ref);
        let Some(session) = session.filter(|session| session.has_joined && !session.has_said)
        else {
            return true;
        };
        // SYNC: this process's writes to the sibling's memory precede the message that reports
        // them, and `recv` in the other process follows the message.
        match send(&session.socket, message, SendFlags::NOSIGNAL) {
            Ok(_) => true,
            Err(error) => ![Errno::AGAIN, Errno::NOBUFS, Errno::INTR].contains(&error),
        }
    }

    fn end(&mut self, sibling: u32) {
        let Some(slot) = self.sessions.get_mut(sibling as usize) else {
            return;
        };
        let Some(session) = slot else { return };
        if session.has_heard {
            *slot = None;
        } else if !std::mem::replace(&mut session.has_said, true) {
            // Ignores the result: if the other agent is gone by now, its end is reported later.
            let _ = shutdown(&session.socket, Shutdown::Write);
        }
    }
}

fn hello(own: u32) -> Vec<u8> {
    [&HELLO[..], &own.to_le_bytes()].concat()
}

/// Returns the sender's number in a hello, or `None` if the message is no hello.
fn number(message: &[u8]) -> Option<u32> {
    let number = message.strip_prefix(HELLO)?;
    number.try_into().ok().map(u32::from_le_bytes)
}

/// Returns an error if the process at the other end belongs to another user.
fn check_user(socket: impl AsFd) -> rustix::io::Result<()> {
    match socket_peercred(socket)?.uid == rustix::process::geteuid() {
        true => Ok(()),
        false => Err(Errno::PERM),
    }
}

fn receive(socket: impl AsFd) -> Incoming {
    // The buffer is one byte longer than any valid message, so a message that is too long is
    // noticed.
    let mut bytes = [0; MAX_SIBLING_MESSAGE + 1];
    let mut was_reset = false;
    loop {
        // SYNC: this call follows the message that `send` sent, so it also follows the writes that
        // the message reports.
        match recv(&socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Incoming::End,
            Ok((length, _)) => return Incoming::Message(bytes[..length].to_vec()),
            Err(Errno::INTR) => {}
            // The other end is closed. The system reports this error once, before it hands out data
            // that arrived earlier.
            Err(Errno::CONNRESET) if !was_reset => was_reset = true,
            Err(Errno::CONNRESET) => return Incoming::End,
            Err(Errno::AGAIN) if was_reset => return Incoming::End,
            // Other errors do not mean that the other end is closed.
            Err(_) => return Incoming::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use agent::host::Siblings as _;

    use super::*;

    /// Returns a port that no other test of this or another process uses.
    fn port(test: u16) -> u16 {
        (std::process::id() as u16).wrapping_mul(8) + test
    }

    fn open(port: u16, own: u32) -> Siblings {
        let node = std::process::id().into();
        Siblings::open(node, port, own, 3).unwrap()
    }

    /// Returns the next event of one agent while the others make progress.
    fn next(all: &mut [Option<Siblings>], to: usize) -> (u32, SiblingEvent) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(event) = all[to].as_mut().and_then(Siblings::next) {
                return event;
            }
            for one in all.iter_mut().flatten().filter(|one| one.own != to as u32) {
                one.look();
            }
            assert!(Instant::now() < end, "no event for {to}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn agents_meet_tell_end_and_meet_again() {
        use SiblingEvent::{Ended, Joined, Message};
        let port = port(0);
        let mut all: Vec<_> = (0..3).rev().map(|own| Some(open(port, own))).collect();
        all.reverse();
        for to in 0..3u32 {
            let mut met = [next(&mut all, to as usize), next(&mut all, to as usize)];
            met.sort_by_key(|met| met.0);
            let others = (0..3).filter(|other| *other != to);
            assert!(met.into_iter().eq(others.map(|other| (other, Joined))));
        }
        let say = |all: &mut [Option<Siblings>], from: usize, to, bytes: &[u8]| {
            assert!(all[from].as_mut().unwrap().send(to, bytes));
        };
        say(&mut all, 2, 0, b"a");
        say(&mut all, 2, 0, b"bc");
        say(&mut all, 0, 2, b"d");
        assert_eq!(next(&mut all, 0), (2, Message(b"a".into())));
        assert_eq!(next(&mut all, 0), (2, Message(b"bc".into())));
        // Agent 0 ends the exchange, and agent 2 may still send.
        all[0].as_mut().unwrap().end(2);
        assert_eq!(next(&mut all, 2), (0, Message(b"d".into())));
        assert_eq!(next(&mut all, 2), (0, Ended));
        say(&mut all, 2, 0, b"e");
        assert_eq!(next(&mut all, 0), (2, Message(b"e".into())));
        all[2].as_mut().unwrap().end(0);
        assert_eq!(next(&mut all, 0), (2, Ended));
        all[0].as_mut().unwrap().end(2);
        assert_eq!(next(&mut all, 0), (2, Joined));
        assert_eq!(next(&mut all, 2), (0, Joined));
        // Agent 1 dies with unread data, and returns.
        say(&mut all, 0, 1, b"f");
        say(&mut all, 1, 0, b"g");
        all[1] = None;
        assert_eq!(next(&mut all, 0), (1, Message(b"g".into())));
        assert_eq!(next(&mut all, 0), (1, Ended));
        all[1] = Some(open(port, 1));
        // The others accept agent 1 again once they have noticed that it was dead.
        all[0].as_mut().unwrap().end(1);
        assert_eq!(next(&mut all, 0), (1, Joined));
        assert_eq!(next(&mut all, 2), (1, Ended));
        all[2].as_mut().unwrap().end(1);
        assert_eq!(next(&mut all, 2), (1, Joined));
    }

    #[test]
    fn strangers_are_not_met_and_a_name_is_taken_once() {
        let port = port(1);
        let mut one = open(port, 0);
        let node = std::process::id().into();
        assert!(Siblings::open(node, port, 0, 3).is_err());
        let name = format!("{}0", one.name);
        let strangers: Vec<_> = [&b"x"[..], b"hsta 01\n\x07\0\0\0", b"hsta 01\n\0\0\0\0", b""]
            .into_iter()
            .cycle()
            .take(12)
            .map(|says| {
                let socket = create().unwrap();
                let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
                while connect(&socket, &name).is_err() {
                    assert_eq!(one.next(), None);
                }
                if !says.is_empty() {
                    send(&socket, says, SendFlags::NOSIGNAL).unwrap();
                }
                socket
            })
            .collect();
        for _ in 0..50 {
            assert_eq!(one.next(), None);
        }
        assert!(one.strangers.len() <= 3);
        drop(strangers);
        let mut all = [Some(one), None, Some(open(port, 2))];
        assert_eq!(next(&mut all, 0), (2, SiblingEvent::Joined));
    }
}
