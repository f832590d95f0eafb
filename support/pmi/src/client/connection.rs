//! A rank's blocking connection to its launcher.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::environment::{self, Address};
use super::mpi::Mpi;
use super::socket::{Failure, Socket};
use super::{Codec, CodecError, Error, Maxes, Request, Response};
use crate::ancestors::is_pmi1_taken;
use crate::wire::Line;

/// Whether a connection in this process has taken over the environment's descriptor.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A rank's connection to the launcher that started it.
///
/// Every call blocks until the launcher has replied or the time limit of
/// [`set_timeout`](Self::set_timeout) expires. Barriers are collective. Launchers take the end of a
/// process that has not called [`finalize`](Self::finalize) for a failure of the rank.
#[derive(Debug)]
pub struct Connection {
    codec: Codec,
    socket: Socket,
    rank: usize,
    size: usize,
    timeout: Option<Duration>,
    /// The number of barriers so far.
    barriers: u64,
}

impl Connection {
    /// Connects to the launcher named by the environment: `PMI_FD` with `PMI_RANK` and `PMI_SIZE`,
    /// or otherwise `PMI_PORT` (host:port) with `PMI_ID`. Returns `None` if these variables are not
    /// set, and in programs that a rank has started, because such
    /// programs are jobs of their own.
    ///
    /// The call marks the descriptor `PMI_FD` close-on-exec, so that programs started by the rank
    /// do not keep the connection open. The descriptor stays open until the process ends. The call
    /// succeeds only once in a process.
    ///
    /// # Errors
    /// Returns an error if a variable is unusable, if this process has called this before, if the
    /// launcher cannot be reached, or if it violates PMI-1.
    pub fn from_env() -> Result<Option<Self>, Error> {
        Self::from_env_within(None)
    }

    /// Connects like [`from_env`](Self::from_env), with a time limit for connecting and, as with
    /// [`set_timeout`](Self::set_timeout), for each later call. The limit does not cover looking up
    /// a host name, which takes as long as the system's resolver needs.
    ///
    /// # Errors
    /// The errors of [`from_env`](Self::from_env), and an error if the time limit expires.
    pub fn from_env_within(timeout: Option<Duration>) -> Result<Option<Self>, Error> {
        let lookup = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
        let Some(address) = environment::read(lookup)? else {
            return Ok(None);
        };
        if is_pmi1_taken() {
            return Ok(None);
        }
        if TAKEN.swap(true, Ordering::Relaxed) {
            return Err(Error::AlreadyConnected);
        }
        match address {
            Address::Inherited { fd, rank, size } => Self::new(inherited(fd)?, rank, size, timeout),
            Address::Port { address, id } => Self::connect(&address, id, timeout),
        }
        .map(Some)
    }

    /// Speaks PMI-1 over the caller's socket, as rank `rank` of `size`.
    ///
    /// # Errors
    /// `rank` is not below `size`, or the other end violates PMI-1.
    pub fn new(
        fd: OwnedFd,
        rank: usize,
        size: usize,
        timeout: Option<Duration>,
    ) -> Result<Self, Error> {
        environment::check(rank, size)?;
        Self::handshake(Socket::new(fd), rank, size, timeout, deadline(timeout))
    }

    fn connect(address: &str, id: usize, timeout: Option<Duration>) -> Result<Self, Error> {
        let failed = |source| Error::Connect {
            address: address.to_owned(),
            source,
        };
        let deadline = deadline(timeout);
        let stream = reach(address, deadline).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut socket = Socket::new(stream.into());
        let wrap = |failure| wrap(failure, id, "initack", timeout);
        socket
            .send(&format!("cmd=initack pmiid={id}\n"), deadline)
            .map_err(wrap)?;
        // The reply is four lines: the acknowledgement, then size, rank and a debug flag.
        let mut line = |command: &'static str, field: &'static str| {
            let text = socket.receive(deadline).map_err(wrap)?;
            let read = || {
                let line = Line::parse(&text)?;
                if line.command() != command {
                    let got = crate::wire::quoted(line.command());
                    return Err(CodecError::Unexpected {
                        expected: command,
                        got,
                    });
                }
                Ok(if field.is_empty() {
                    0
                } else {
                    line.number(field)?
                })
            };
            read().map_err(|source| Error::Request {
                rank: id,
                operation: "initack",
                source,
            })
        };
        line("initack", "")?;
        let size = line("set", "size")?;
        let rank = line("set", "rank")?;
        line("set", "debug")?;
        environment::check(rank, size)?;
        Self::handshake(socket, rank, size, timeout, deadline)
    }

    fn handshake(
        socket: Socket,
        rank: usize,
        size: usize,
        timeout: Option<Duration>,
        deadline: Option<Instant>,
    ) -> Result<Self, Error> {
        let codec = Codec::new();
        let mut connection = Connection {
            codec,
            socket,
            rank,
            size,
            timeout,
            barriers: 0,
        };
        for request in [Request::Init, Request::Maxes, Request::KvsName] {
            connection.call(request, deadline)?;
        }
        Ok(connection)
    }

    /// Returns this process's rank in `0..size`.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of ranks in the job.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the launcher's limits for keys and values, which never exceed those of
    /// [`crate::wire`].
    pub fn maxes(&self) -> Maxes {
        self.codec.maxes()
    }

    /// Limits the total time of each later call. With `None`, calls wait forever. After a call has
    /// timed out, only [`abort`](Self::abort) may be called.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Stores a pair, which other ranks can [get](Self::get_value) after a
    /// [`barrier`](Self::barrier). A key must have at most 63 bytes and be used only once in a job.
    /// A value must have at most 1023 bytes and contain no blanks. (Launchers may have lower
    /// limits, see [`maxes`](Self::maxes).)
    ///
    /// # Errors
    /// The pair exceeds a limit, the launcher refuses it (the key is in use or the key-value space
    /// is full), or the connection fails.
    pub fn put_value(&mut self, key: &str, value: &str) -> Result<(), Error> {
        self.call(Request::Put { key, value }, self.deadline())
            .map(drop)
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Returns an error if no rank has put the key, or the connection fails.
    pub fn get_value(&mut self, key: &str) -> Result<String, Error> {
        match self.call(Request::Get { key }, self.deadline())? {
            Response::Value(value) => Ok(value),
            other => Err(self.unexpected("get", "get_result", &other)),
        }
    }

    /// Waits until all ranks have called `barrier`.
    ///
    /// # Errors
    /// Returns an error if the connection fails.
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.call(Request::Barrier, self.deadline())?;
        self.barriers += 1;
        Ok(())
    }

    pub(super) fn barriers(&self) -> u64 {
        self.barriers
    }

    /// Returns the maximum number of processes that could run according to the launcher; `None` if
    /// the launcher does not know.
    ///
    /// # Errors
    /// Returns an error if the connection fails.
    pub fn universe_size(&mut self) -> Result<Option<usize>, Error> {
        match self.call(Request::UniverseSize, self.deadline())? {
            Response::Number(number) => Ok(usize::try_from(number).ok()),
            other => Err(self.unexpected("get_universe_size", "universe_size", &other)),
        }
    }

    /// Leaves the job. From now on this process may exit without ending the job, and every other
    /// call fails. While MPI is in use in this process, the call does nothing, because launchers
    /// close the connection that both share: MPI leaves the job later. After `MPI_Finalize` the
    /// call may find the connection closed, which is no error.
    ///
    /// # Errors
    /// Returns an error if the connection fails.
    pub fn finalize(&mut self) -> Result<(), Error> {
        let mpi = Mpi::of_process();
        if mpi == Mpi::InUse {
            return Ok(());
        }
        match self.call(Request::Finalize, self.deadline()) {
            Err(_) if mpi == Mpi::Finalized => Ok(()),
            finalized => finalized.map(drop),
        }
    }

    /// Asks the launcher to end the whole job with exit code `code`. The call does not end this
    /// process, so the caller still has to exit. Blanks in `message` become `_`.
    ///
    /// # Errors
    /// Returns an error if the connection fails; the caller should exit anyway.
    pub fn abort(&mut self, code: i32, message: &str) -> Result<(), Error> {
        let line = self.codec.abort(code, message);
        let sent = self.socket.send(&line, self.deadline());
        sent.map_err(|failure| wrap(failure, self.rank, "abort", self.timeout))
    }

    pub(super) fn longest_value(&self) -> usize {
        self.codec.longest_value()
    }

    fn deadline(&self) -> Option<Instant> {
        deadline(self.timeout)
    }

    fn call(&mut self, request: Request<'_>, deadline: Option<Instant>) -> Result<Response, Error> {
        let (rank, operation) = (self.rank, request.name());
        let refused = |source| Error::Request {
            rank,
            operation,
            source,
        };
        let line = self.codec.request(request).map_err(refused)?;
        let answer = match self.socket.send(&line, deadline) {
            Ok(()) => self.socket.receive(deadline),
            Err(failure) => Err(failure),
        }
        .map_err(|failure| wrap(failure, rank, operation, self.timeout))?;
        self.codec.response(&answer).map_err(refused)
    }

    fn unexpected(&self, operation: &'static str, expected: &'static str, got: &Response) -> Error {
        let source = CodecError::Unexpected {
            expected,
            got: format!("{got:?}"),
        };
        Error::Request {
            rank: self.rank,
            operation,
            source,
        }
    }
}

impl AsFd for Connection {
    /// Returns the socket. Between calls the launcher sends nothing, so if the socket is readable
    /// or reports `POLLHUP` or `POLLRDHUP`, the launcher has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.fd.as_fd()
    }
}

fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// Connects to the first of a host's addresses that can be reached. Each attempt gets an equal
/// share of the remaining time.
fn reach(address: &str, deadline: Option<Instant>) -> io::Result<TcpStream> {
    let mut addresses: Vec<_> = address.to_socket_addrs()?.rev().collect();
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    while let Some(address) = addresses.pop() {
        let reached = match deadline {
            None => TcpStream::connect(address),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                match left / (addresses.len() as u32 + 1) {
                    Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
                    share => TcpStream::connect_timeout(&address, share),
                }
            }
        };
        match reached {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn wrap(
    failure: Failure,
    rank: usize,
    operation: &'static str,
    timeout: Option<Duration>,
) -> Error {
    match failure {
        Failure::Closed => Error::LauncherGone { rank, operation },
        Failure::TimedOut => Error::TimedOut {
            rank,
            operation,
            limit: timeout.unwrap_or_default(),
        },
        Failure::Io(source) => Error::Io {
            rank,
            operation,
            source,
        },
        Failure::Line(source) => Error::Request {
            rank,
            operation,
            source: source.into(),
        },
    }
}

/// Returns a copy of the descriptor that the launcher left open, and marks both close-on-exec. The
/// descriptor itself stays open, because an MPI library in this process uses it too.
fn inherited(fd: RawFd) -> Result<OwnedFd, Error> {
    let unusable = || Error::Variable {
        name: "PMI_FD",
        value: fd.to_string(),
        accepted: "the number of an open socket, other than standard input, output and error",
    };
    if fd <= 2 {
        return Err(unusable());
    }
    // SAFETY: the borrowed descriptor is only passed to system calls. If the number is not open,
    // they return EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::net::sockopt::socket_type(borrowed).map_err(|_| unusable())?;
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC).map_err(|_| unusable())?;
    rustix::io::fcntl_dupfd_cloexec(borrowed, 3).map_err(|_| unusable())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn an_address_that_answers_nothing_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // With a backlog of 0 and one connection waiting, the system drops further connection
        // requests.
        rustix::net::listen(&listener, 0).unwrap();
        let _waiting = TcpStream::connect(address).unwrap();
        let limit = Some(Duration::from_millis(100));
        let error = Connection::connect(&address.to_string(), 0, limit).unwrap_err();
        // The error is not due to the system's own limit, which is minutes.
        assert!(
            matches!(&error, Error::Connect { source, .. }
                if source.kind() == io::ErrorKind::TimedOut && source.raw_os_error().is_none()),
            "{error}"
        );
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }

    #[test]
    fn every_address_of_a_host_is_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // Where localhost has two addresses, the first is an IPv6 address.
        let limit = deadline(Some(Duration::from_secs(300)));
        assert!(reach(&format!("localhost:{port}"), limit).is_ok());
        assert!(reach(&format!("localhost:{port}"), None).is_ok());
    }

    #[test]
    fn the_inherited_descriptor_is_not_handed_on() {
        let (socket, _launcher) = std::os::unix::net::UnixStream::pair().unwrap();
        // The descriptor must be inheritable, as a launcher leaves it.
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::empty()).unwrap();
        let copy = inherited(socket.as_raw_fd()).unwrap();
        for fd in [copy.as_fd(), socket.as_fd()] {
            let flags = rustix::io::fcntl_getfd(fd).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
    }
}
