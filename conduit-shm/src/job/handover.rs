//! Handover of a rank's memory to its peers. Each peer asks the rank over a socket for the file
//! descriptor of that memory.
//!
//! The alternative would be to open another process's file through `/proc`, but this requires
//! permission to inspect that process. Processes lack that permission between sibling user
//! namespaces (unprivileged containers, one for each rank) and where tracing is forbidden. Handing
//! over a descriptor (`SCM_RIGHTS`) requires no such permission.
//!
//! The socket has an abstract name, which leaves no file behind. Any process in the network
//! namespace can use such a name, so a connection proves nothing about the peer. Therefore both
//! sides send a secret from the bootstrap information, which only the job's ranks know. User ids
//! are compared as well, unless the peer's user is unknown in this user namespace.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, socket_with,
};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::peer_credentials::credentials;

use super::failure::Process;

/// How long to keep asking a peer that does not answer. If the peer has ended, the connection is
/// refused at once.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// How long one connection may keep the others waiting. An honest peer that was too slow connects
/// again.
const REQUEST: Duration = Duration::from_secs(1);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(1);
const WORD: usize = 16;
/// The user id that stands for users who have no id in this namespace, unless the system is
/// configured otherwise.
const UNKNOWN_USER: u32 = 65534;

/// The socket name of a rank and the secrets for the request and the answer. All three are random
/// and known only to the job's ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    name: [u8; WORD],
    request: [u8; WORD],
    answer: [u8; WORD],
}

impl Address {
    fn random() -> io::Result<Self> {
        let mut words = [[0; WORD]; 3];
        getrandom::fill(words.as_flattened_mut())?;
        let [name, request, answer] = words;
        Ok(Self {
            name,
            request,
            answer,
        })
    }

    pub(super) fn to_text(self) -> String {
        let words = [self.name, self.request, self.answer];
        let words = words.map(|word| format!("{:032x}", u128::from_be_bytes(word)));
        words.join(".")
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split('.').map(|word| {
            let word = u128::from_str_radix(word, 16).ok()?;
            Some(word.to_be_bytes())
        });
        let mut word = || words.next()?;
        Some(Self {
            name: word()?,
            request: word()?,
            answer: word()?,
        })
    }

    fn name(&self) -> Vec<u8> {
        [b"conduit-", &self.name[..]].concat()
    }

    fn socket(&self) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(self.name())
    }
}

/// A server that hands over this rank's memory to all peers that know the secret. The server runs
/// in its own thread until it is dropped.
#[derive(Debug)]
pub(super) struct Server {
    listener: Arc<UnixListener>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(memory: OwnedFd) -> io::Result<(Self, Address)> {
        // If there is no descriptor, the rank continues without it, because valgrind and system
        // call filters may not support process descriptors.
        let process = pidfd_open(getpid(), PidfdFlags::empty())
            .inspect_err(|error| tracing::warn!(%error, "cannot open a process descriptor; peers will not notice the end of this rank"));
        Self::handing_over(memory, process.ok())
    }

    fn handing_over(memory: OwnedFd, process: Option<OwnedFd>) -> io::Result<(Self, Address)> {
        let address = Address::random()?;
        let listener = Arc::new(UnixListener::bind_addr(&address.socket()?)?);
        let serve = {
            let listener = listener.clone();
            move || {
                loop {
                    let served = match listener.accept() {
                        Ok((peer, _)) => answer(&peer, &address, &memory, process.as_ref()),
                        // The error means that the listener was shut down.
                        Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
                        Err(error) => {
                            thread::sleep(PAUSE);
                            Err(error)
                        }
                    };
                    if let Err(error) = served {
                        tracing::debug!(%error, "refused a request for this rank's memory");
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("conduit-start".to_owned());
        let thread = Some(thread.spawn(serve)?);
        Ok((Self { listener, thread }, address))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // This also fails the connections that are still pending.
        let stopped = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        if let (Ok(()), Some(thread)) = (stopped, self.thread.take()) {
            // An error means that the thread has panicked, so in that case it has ended as well.
            let _ = thread.join();
        }
    }
}

fn answer(
    peer: &UnixStream,
    address: &Address,
    memory: &OwnedFd,
    process: Option<&OwnedFd>,
) -> io::Result<()> {
    let user = credentials(peer)?.uid;
    if user != rustix::process::geteuid().as_raw() && user != UNKNOWN_USER {
        return Err(io::Error::other(format!("the peer is user {user}")));
    }
    let mut request = [0; WORD];
    peer.set_read_timeout(Some(REQUEST))?;
    (&*peer).read_exact(&mut request)?;
    if request != address.request {
        return Err(io::Error::other(
            "the peer does not know the secret of the job",
        ));
    }
    let descriptors: Vec<_> = [Some(memory), process]
        .into_iter()
        .flatten()
        .map(AsFd::as_fd)
        .collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    loop {
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let answer = [IoSlice::new(&address.answer)];
        match rustix::net::sendmsg(peer, &answer, &mut control, SendFlags::NOSIGNAL) {
            // Too many of this user's descriptors are in flight. Try again, because peers are about
            // to receive them.
            Err(rustix::io::Errno::TOOMANYREFS) => thread::sleep(PAUSE),
            Err(rustix::io::Errno::INTR) => {}
            sent => return sent.map(drop).map_err(io::Error::from),
        }
    }
}

/// The descriptors that a peer has handed over.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) memory: OwnedFd,
    pub(super) process: Process,
}

/// Asks a peer for its memory. Each step may take up to `patience`.
pub(super) fn ask(address: &Address, patience: Duration) -> io::Result<Handed> {
    let begun = Instant::now();
    loop {
        match ask_once(address, patience) {
            // This process was too slow, so the peer has moved on to another rank. Ask again.
            Err(error) if is_passing(&error) && begun.elapsed() < patience => thread::sleep(PAUSE),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::Error::other(format!(
                    "the peer did not answer within {patience:?}"
                )));
            }
            done => return done,
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, Interrupted, UnexpectedEof};
    [BrokenPipe, ConnectionReset, Interrupted, UnexpectedEof].contains(&error.kind())
}

fn ask_once(address: &Address, patience: Duration) -> io::Result<Handed> {
    let peer = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // The send timeout also covers connecting, which blocks if a stopped peer has a full backlog.
    for timeout in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&peer, timeout, Some(patience))?;
    }
    rustix::net::connect(&peer, &SocketAddrUnix::new_abstract_name(&address.name())?)?;
    let mut peer = UnixStream::from(peer);
    peer.write_all(&address.request)?;
    let mut answer = [0; WORD];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut answer)];
    let received = rustix::net::recvmsg(&peer, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let messages = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let mut descriptors = messages.flatten();
    match descriptors.next() {
        Some(memory) if answer == address.answer => Ok(Handed {
            memory,
            process: Process {
                number: credentials(&peer)?.pid,
                descriptor: descriptors.next(),
            },
        }),
        _ => Err(io::Error::other("another process answered")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::Shutdown;

    use super::*;

    fn server() -> (Server, Address) {
        let file = file_of(b"memory");
        Server::start(file.into()).unwrap()
    }

    fn file_of(bytes: &[u8]) -> File {
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(file);
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn an_address_survives_the_exchange() {
        let address = Address::random().unwrap();
        assert_eq!(Address::parse(&address.to_text()), Some(address));
        for text in ["", "1.2", "1.2.x", "1.2.100000000000000000000000000000000"] {
            assert_eq!(Address::parse(text), None, "{text}");
        }
    }

    #[test]
    fn who_knows_the_word_is_handed_the_memory() {
        let (_server, address) = server();
        for _ in 0..3 {
            let handed = ask(&address, PATIENCE).unwrap();
            assert_eq!(rustix::fs::fstat(&handed.memory).unwrap().st_size, 6);
            assert_eq!(handed.process.number, std::process::id().cast_signed());
            assert!(handed.process.descriptor.is_some());
        }
    }

    /// Checks that memory is handed over if the process descriptor is missing, as it is under
    /// valgrind.
    #[test]
    fn memory_is_handed_over_also_without_a_descriptor_of_the_process() {
        let memory = file_of(b"memory").into();
        let (_server, address) = Server::handing_over(memory, None).unwrap();
        let handed = ask(&address, PATIENCE).unwrap();
        assert_eq!(rustix::fs::fstat(&handed.memory).unwrap().st_size, 6);
        assert!(handed.process.descriptor.is_none());
    }

    #[test]
    fn strangers_are_given_nothing_and_stop_nobody() {
        let (server, address) = server();
        // One peer sends nothing, one sends the wrong secret, and one disconnects.
        let _silent = UnixStream::connect_addr(&address.socket().unwrap()).unwrap();
        let mut liar = UnixStream::connect_addr(&address.socket().unwrap()).unwrap();
        liar.write_all(&address.answer).unwrap();
        drop(UnixStream::connect_addr(&address.socket().unwrap()).unwrap());
        assert!(ask(&address, PATIENCE).is_ok());
        assert_eq!(liar.read(&mut [0; WORD]).unwrap(), 0);
        drop(server);
        let gone = ask(&address, PATIENCE).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn who_has_taken_the_name_is_not_believed() {
        let address = Address::random().unwrap();
        let listener = UnixListener::bind_addr(&address.socket().unwrap()).unwrap();
        let impostor = thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            peer.read_exact(&mut [0; WORD]).unwrap();
            peer.write_all(&[0; WORD]).unwrap();
            peer.shutdown(Shutdown::Both).unwrap();
        });
        assert!(ask(&address, PATIENCE).is_err());
        impostor.join().unwrap();
    }

    #[test]
    fn who_takes_no_connections_is_given_up() {
        let address = Address::random().unwrap();
        let listener = UnixListener::bind_addr(&address.socket().unwrap()).unwrap();
        // Even a backlog of length 0 has room for one connection.
        rustix::net::listen(&listener, 0).unwrap();
        let _waiting = UnixStream::connect_addr(&address.socket().unwrap()).unwrap();
        let error = ask(&address, Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.to_string(), "the peer did not answer within 1ms");
    }
}
