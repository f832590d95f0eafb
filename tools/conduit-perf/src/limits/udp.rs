//! The performance of two processes over UDP on the loopback interface without any library. There
//! are round trips of small packets, and a stream with segmentation offload.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use conduit_udp::socket::{Batch, Options, Sent, Socket};

use crate::Error;
use crate::bare::{Endpoint, opened};
use crate::piece::Piece;
use crate::side::{Side, Waiting};

/// The number of bytes in one operation of a stream.
pub const BLOCK: usize = 1 << 20;

/// Publishes this side's port and returns the other side's address.
pub(crate) fn meet_ports(side: &Side<'_>, port: u16) -> Result<SocketAddr, Error> {
    side.area()
        .word(side.rank())?
        .store(u64::from(port), Relaxed);
    side.meet()?;
    let other = side.area().word(1 - side.rank())?.load(Relaxed);
    // All sides meet again, so that no side reuses the words before the other one has read them.
    side.meet()?;
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, other as u16)))
}

/// A socket that is connected to the other side's socket, which saves the system a route lookup.
/// Conduit uses such sockets for peers with much traffic.
#[derive(Debug)]
struct Connected {
    socket: UdpSocket,
    waiting: Waiting,
    /// The packet to send, and a receive buffer that is one byte larger than a packet, so that
    /// longer packets are noticed.
    packets: [Vec<u8>; 2],
    received: u64,
}

impl Connected {
    fn open(side: &Side<'_>, size: usize, waiting: Waiting) -> Result<Self, Error> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::system("bind"))?;
        match waiting {
            Waiting::Polling => socket.set_nonblocking(true),
            // The interval at which this side checks whether the other one is still there.
            Waiting::Blocking => socket.set_read_timeout(Some(Duration::from_millis(100))),
        }
        .map_err(Error::system("socket option"))?;
        let port = socket.local_addr().map_err(Error::system("getsockname"))?;
        let peer = meet_ports(side, port.port())?;
        socket.connect(peer).map_err(Error::system("connect"))?;
        Ok(Self {
            socket,
            waiting,
            packets: [vec![0; size], vec![0; size + 1]],
            received: 0,
        })
    }
}

impl Endpoint for Connected {
    const NAME: &'static str = "a packet";

    fn send(&mut self, _: &Side<'_>, size: usize) -> Result<(), Error> {
        let sent = self.socket.send(&self.packets[0][..size]);
        sent.map(drop).map_err(Error::system("send"))
    }

    fn received(&self) -> u64 {
        self.received
    }

    fn poll(&mut self) -> Result<(), Error> {
        let [sent, room] = &mut self.packets;
        match self.socket.recv(room) {
            Ok(length) if length == sent.len() => self.received += 1,
            Ok(length) => {
                return Err(Error::Corrupt {
                    what: "a packet's length",
                    got: length as u64,
                    expected: sent.len() as u64,
                });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(Error::system("receive")(error)),
        }
        Ok(())
    }

    fn waiting(&self) -> Waiting {
        self.waiting
    }
}

/// Returns round trips of packets of `size` bytes between sides 0 and 1 over loopback. An operation
/// is a full round trip.
#[must_use]
pub fn round_trips(size: usize, waiting: Waiting) -> impl Piece {
    let mut end = None;
    move |side: &Side<'_>, count| {
        let end = opened(&mut end, || Connected::open(side, size, waiting))?;
        end.round_trips(side, size, count)
    }
}

/// A stream from side 0 to side 1 in packets of a given size, with segmentation offload where the
/// system supports it. Side 1 reports the number of received bytes to side 0 through shared memory,
/// so that no buffer overflows and no packet is lost. Side 1 does not read the contents. An
/// operation is [`BLOCK`] bytes.
#[derive(Debug)]
pub struct Stream {
    packet: usize,
    window: u64,
    parts: Option<(Socket, Batch, Vec<u8>)>,
}

impl Stream {
    /// Creates a stream in packets of `packet` bytes, with at most `window` bytes in flight.
    #[must_use]
    pub fn new(packet: usize, window: u64) -> Self {
        Self {
            packet,
            window,
            parts: None,
        }
    }
}

/// Opens a socket on loopback with Conduit's options.
pub(crate) fn open() -> Result<Socket, Error> {
    Socket::open(&Options {
        address: Ipv4Addr::LOCALHOST.into(),
        scope: 0,
        ports: Options::ANY_PORT,
        mtu: Some(1 << 16),
        send_buffer: Options::BUFFER,
        receive_buffer: Options::BUFFER,
        offload: true,
    })
    .map_err(|error| Error::Figure {
        name: "udp",
        source: Box::new(error),
    })
}

impl Piece for Stream {
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let (socket, batch, block) = match &mut self.parts {
            Some(parts) => parts,
            none => none.insert((open()?, Batch::new(), vec![1; BLOCK])),
        };
        let peer = meet_ports(side, socket.address().port())?;
        let come = side.area().word(2)?;
        if side.rank() == 0 {
            come.store(0, Relaxed);
        }
        side.meet()?;
        let total = count * BLOCK as u64;
        let start = Instant::now();
        if side.rank() == 0 {
            let mut sent = 0;
            for _ in 0..count {
                for burst in block.chunks(socket.burst(self.packet)) {
                    sent += burst.len() as u64;
                    side.spin_until("window", || sent - come.load(Acquire) <= self.window)?;
                    let mut rest = burst;
                    side.spin_until("the system's buffer", || {
                        match socket.send(&peer, rest, self.packet) {
                            Sent::All => true,
                            Sent::Part(gone) => {
                                rest = &rest[gone..];
                                false
                            }
                        }
                    })?;
                }
            }
            side.spin_until("the last packet", || come.load(Acquire) == total)?;
        } else {
            let mut received = 0;
            while received < total {
                side.spin_until("packets", || socket.receive(batch))?;
                while let Some(packet) = batch.next_datagram() {
                    received += packet.len() as u64;
                }
                come.store(received, Release);
            }
        }
        Ok(start.elapsed())
    }
}
