//! A key-value store over TCP, for ranks whose launcher states only their numbers and an address.
//!
//! The protocol is that of PyTorch's `TCPStore`, so the store may be the one that `torchrun`
//! provides. Otherwise rank 0 serves the store at the address.

mod protocol;
mod server;

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::bootstrap::{Bootstrap, BootstrapError, MAX_VALUE, check_put};
use protocol::{MAGIC, STOP_WAITING, operation};
use server::Server;

/// The first byte of every key, as PyTorch's clients write it.
const PREFIX: char = '/';
/// The pause between two attempts to reach a store that does not listen yet.
const RETRY: Duration = Duration::from_millis(50);

/// A rank's connection to the store.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    rank: u32,
    size: u32,
    fences: u64,
    /// The part of the keys that distinguishes this job from others that use the same store.
    job: String,
    /// The server, in the rank that provides it.
    server: Option<Server>,
    timeout: Duration,
}

/// The parameters of [`Connection::new`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// This rank.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// Host and port of the store.
    pub address: String,
    /// The part of the keys that distinguishes this job from others that use the same store.
    pub job: String,
    /// Whether rank 0 provides the store.
    pub serve: bool,
    /// The maximum time until the store can be reached, and for each later call.
    pub timeout: Duration,
}

impl Connection {
    /// Connects to the store, which rank 0 starts first if `config` says so.
    ///
    /// # Errors
    /// The address is taken or cannot be reached within the time limit.
    pub fn new(config: &Config) -> io::Result<Self> {
        let deadline = Instant::now() + config.timeout;
        let server = match config.serve && config.rank == 0 {
            true => Some(Server::start(listen(&config.address)?)?),
            false => None,
        };
        let stream = match &server {
            Some(server) => TcpStream::connect(server.address())?,
            None => reach(&config.address, deadline)?,
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(config.timeout))?;
        stream.set_write_timeout(Some(config.timeout))?;
        let mut hello = vec![operation::VALIDATE];
        hello.extend(MAGIC.to_ne_bytes());
        (&stream).write_all(&hello)?;
        Ok(Self {
            stream,
            rank: config.rank,
            size: config.size,
            fences: 0,
            job: config.job.clone(),
            server,
            timeout: config.timeout,
        })
    }

    fn key(&self, name: &str) -> String {
        format!("{PREFIX}{}/{name}", self.job)
    }

    fn set(&self, key: &str, value: &[u8]) -> io::Result<()> {
        let mut request = vec![operation::SET];
        text(&mut request, key.as_bytes());
        text(&mut request, value);
        (&self.stream).write_all(&request)
    }

    fn fetch(&self, key: &str) -> io::Result<Vec<u8>> {
        let mut request = vec![operation::GET];
        text(&mut request, key.as_bytes());
        (&self.stream).write_all(&request)?;
        let length = u64::from_ne_bytes(self.read()?);
        if length > MAX_VALUE as u64 {
            let reason = format!("the store announces a value of {length} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        // The cast is lossless, because the length is at most `MAX_VALUE`.
        let mut value = vec![0; length as usize];
        (&self.stream).read_exact(&mut value)?;
        Ok(value)
    }

    /// Adds to the number under a key, and returns the sum.
    fn add(&self, key: &str, number: i64) -> io::Result<i64> {
        let mut request = vec![operation::ADD];
        text(&mut request, key.as_bytes());
        request.extend(number.to_ne_bytes());
        (&self.stream).write_all(&request)?;
        Ok(i64::from_ne_bytes(self.read()?))
    }

    /// Waits until a key exists.
    fn wait(&self, key: &str) -> io::Result<()> {
        let mut request = vec![operation::WAIT];
        request.extend(1u64.to_ne_bytes());
        text(&mut request, key.as_bytes());
        (&self.stream).write_all(&request)?;
        match self.read()? {
            [STOP_WAITING] => Ok(()),
            [other] => {
                let reason = format!("the store answers {other} to a wait");
                Err(io::Error::new(io::ErrorKind::InvalidData, reason))
            }
        }
    }

    fn read<const N: usize>(&self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        (&self.stream).read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// The ranks count themselves under one key; the last one sets the key that all wait for.
    fn meet(&self, name: &str) -> io::Result<()> {
        let all = self.key(&format!("{name}.all"));
        if self.add(&self.key(name), 1)? == i64::from(self.size) {
            self.set(&all, b"1")?;
        }
        self.wait(&all)
    }

    fn failed(&self, operation: &'static str) -> impl Fn(io::Error) -> BootstrapError {
        let rank = self.rank;
        move |error| BootstrapError {
            rank,
            operation,
            reason: match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    "the other ranks or the store did not answer in time".to_owned()
                }
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                    "the store has closed the connection; has its process ended?".to_owned()
                }
                _ => error.to_string(),
            },
        }
    }
}

impl Bootstrap for Connection {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), BootstrapError> {
        check_put(self.rank, key, bytes)?;
        let set = self.set(&self.key(&format!("{}.{key}", self.rank)), bytes);
        set.map_err(self.failed("put"))
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Vec<u8>, BootstrapError> {
        let name = self.key(&format!("{rank}.{key}"));
        // A store answers a get of an absent key by closing the connection.
        let got = self.wait(&name).and_then(|()| self.fetch(&name));
        got.map_err(self.failed("get"))
    }

    fn fence(&mut self) -> Result<(), BootstrapError> {
        let met = self.meet(&format!("fence{}", self.fences));
        met.map_err(self.failed("fence"))?;
        self.fences += 1;
        Ok(())
    }

    fn fences(&self) -> u64 {
        self.fences
    }

    fn finalize(&mut self) -> Result<(), BootstrapError> {
        let left = match &self.server {
            // The store ends with its rank, so that rank leaves last.
            Some(server) => server.await_end_of_clients(self.timeout),
            None => self.stream.shutdown(Shutdown::Both),
        };
        left.map_err(self.failed("finalize"))
    }
}

/// Appends bytes, preceded by their length.
fn text(request: &mut Vec<u8>, bytes: &[u8]) {
    request.extend((bytes.len() as u64).to_ne_bytes());
    request.extend(bytes);
}

/// Listens at the port of an address, on all interfaces: the address may be that of another network
/// interface from the point of view of other hosts.
fn listen(address: &str) -> io::Result<TcpListener> {
    let port = address
        .to_socket_addrs()?
        .next()
        .map(|address| address.port());
    let port = port.ok_or(io::ErrorKind::AddrNotAvailable)?;
    TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)))
}

/// Connects to an address that may not listen yet.
fn reach(address: &str, deadline: Instant) -> io::Result<TcpStream> {
    loop {
        let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in address.to_socket_addrs()? {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(failure);
            }
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            }
        }
        if Instant::now() + RETRY >= deadline {
            return Err(failure);
        }
        std::thread::sleep(RETRY);
    }
}
