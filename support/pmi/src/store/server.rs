//! The store that rank 0 provides: a thread that serves all ranks.

mod requests;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use requests::{Client, Store};

/// A running store. Dropping it ends the store.
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    clients: Arc<Clients>,
    /// The thread ends when this end closes.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// The number of open connections.
#[derive(Debug, Default)]
struct Clients {
    number: Mutex<usize>,
    changed: Condvar,
}

impl Clients {
    fn number(&self) -> MutexGuard<'_, usize> {
        self.number.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, number: usize) {
        *self.number() = number;
        self.changed.notify_all();
    }
}

impl Server {
    /// Starts the store on a socket that listens.
    pub(super) fn start(listener: TcpListener) -> io::Result<Self> {
        let port = listener.local_addr()?.port();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        listener.set_nonblocking(true)?;
        let (stop, stopped) = UnixStream::pair()?;
        let clients = Arc::<Clients>::default();
        let thread = std::thread::Builder::new().name("conduit-store".to_owned());
        let thread = thread.spawn({
            let clients = Arc::clone(&clients);
            move || serve(&listener, &stopped, &clients)
        })?;
        Ok(Self {
            address,
            clients,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns the store's address on this host.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until only the provider's own connection is open.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if others are still connected at the end of the time.
    pub(super) fn await_end_of_clients(&self, time: Duration) -> io::Result<()> {
        let others = |number: &mut usize| *number > 1;
        let waited = self
            .clients
            .changed
            .wait_timeout_while(self.clients.number(), time, others);
        match waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported on standard error.
            let _ = thread.join();
        }
    }
}

/// A connection, with the bytes that it has not taken yet.
struct Connection {
    stream: TcpStream,
    client: Client,
    replies: Vec<u8>,
}

/// Serves connections until the other end of `stopped` closes.
fn serve(listener: &TcpListener, stopped: &UnixStream, clients: &Clients) {
    let mut store = Store::default();
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        let mut fds = vec![
            PollFd::new(stopped, PollFlags::IN),
            PollFd::new(listener, PollFlags::IN),
        ];
        fds.extend(connections.iter().map(|connection| {
            let output = match connection.replies.is_empty() {
                true => PollFlags::empty(),
                false => PollFlags::OUT,
            };
            PollFd::new(&connection.stream, PollFlags::IN | output)
        }));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            return;
        }
        if ready[1] {
            while let Ok((stream, _)) = listener.accept() {
                // Errors of these calls make the connection slower or are noticed when reading.
                let _ = stream.set_nodelay(true);
                let _ = stream.set_nonblocking(true);
                connections.push(Connection {
                    stream,
                    client: Client::default(),
                    replies: Vec::new(),
                });
            }
        }
        let mut closed = Vec::new();
        for (at, connection) in connections.iter_mut().enumerate() {
            if ready.get(at + 2) == Some(&true) && !connection.read(&mut store) {
                closed.push(at);
            }
        }
        for at in closed.into_iter().rev() {
            connections.remove(at);
        }
        // A request of one connection may have ended the wait of another.
        for connection in &mut connections {
            connection
                .client
                .answer(&mut store, &mut connection.replies);
            connection.write();
        }
        clients.set(connections.len());
    }
}

impl Connection {
    /// Reads the bytes that have arrived. Returns `false` if the connection has ended or violates
    /// the protocol.
    fn read(&mut self, store: &mut Store) -> bool {
        let mut chunk = [0; 16 << 10];
        loop {
            match recv(&self.stream, &mut chunk, RecvFlags::DONTWAIT) {
                Ok((count @ 1.., _)) => {
                    self.client.push(&chunk[..count]);
                    if !self.client.answer(store, &mut self.replies) {
                        return false;
                    }
                }
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Ok((0, _)) | Err(_) => return false,
            }
        }
    }

    /// Sends as many bytes as the socket accepts. Errors discard them: the end of the connection is
    /// noticed when reading.
    fn write(&mut self) {
        while !self.replies.is_empty() {
            match send(
                &self.stream,
                &self.replies,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
                Ok(count) => drop(self.replies.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.replies.clear(),
            }
        }
    }
}
