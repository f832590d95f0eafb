//! A rank's socket, with which the rank sends and receives datagrams.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket as RawSocket, Type};

use super::connected::ConnectedSockets;
use super::system::{self, Filled, MANY, Number, Report};
use super::{Batch, Interface, SocketCounters, SocketError, Waiter};
use crate::protocol::{MAX_PACKET, MIN_PACKET};

/// The maximum number of datagrams in one send with segmentation offload. All systems with offload
/// accept this number.
const MAX_SEGMENTS: usize = 64;
/// The maximum number of reports that one call takes. The next call takes further ones.
const MAX_REPORTS: usize = 16;
/// Options for opening a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The local address.
    pub address: IpAddr,
    /// The index of the address's interface, which is needed for link-local addresses.
    pub scope: u32,
    /// The range of local ports from which the socket takes a free one. [`Self::ANY_PORT`] leaves
    /// the choice to the system.
    pub ports: RangeInclusive<u16>,
    /// The number of bytes of the largest IP packet, or `None` if it is unknown.
    pub mtu: Option<usize>,
    /// The requested size of the send buffer in bytes.
    pub send_buffer: usize,
    /// The requested size of the receive buffer in bytes.
    pub receive_buffer: usize,
    /// Whether to use segmentation offload if the system supports it.
    pub offload: bool,
}

impl Options {
    /// The range that stands for any free port.
    pub const ANY_PORT: RangeInclusive<u16> = 0..=0;

    /// The default size of each buffer in bytes, which suffices for a full window of Ethernet
    /// packets.
    pub const BUFFER: usize = 4 << 20;

    /// Creates options for `interface`, with any port.
    pub fn on(interface: &Interface) -> Self {
        Self {
            address: interface.address,
            scope: interface.index,
            ports: Self::ANY_PORT,
            mtu: interface.mtu,
            send_buffer: Self::BUFFER,
            receive_buffer: Self::BUFFER,
            offload: true,
        }
    }
}

/// Returns the size of the largest UDP payload in an IP packet of `mtu` bytes, or 0 if the packet
/// has no room for a payload.
pub fn largest_payload(address: IpAddr, mtu: usize) -> usize {
    const UDP: usize = 8;
    let (header, longest) = match address {
        // The length field of an IPv4 packet includes its header.
        IpAddr::V4(_) => (20, 0xffff - 20 - UDP),
        IpAddr::V6(_) => (40, 0xffff - UDP),
    };
    // An IPv6 packet could be slightly longer, but both families share one limit.
    let longest = longest.min(MAX_PACKET);
    mtu.saturating_sub(header + UDP).min(longest)
}

/// The sizes of a socket's buffers in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    /// The requested size of the send buffer.
    pub send_wanted: usize,
    /// The granted size of the send buffer.
    pub send: usize,
    /// The requested size of the receive buffer.
    pub receive_wanted: usize,
    /// The granted size of the receive buffer.
    pub receive: usize,
}

impl Buffers {
    /// Returns a warning if the system granted less than half of what was requested.
    pub fn warning(&self) -> Option<String> {
        let few = |given: usize, wanted: usize| given < wanted / 2;
        let mut parts = Vec::new();
        for (given, wanted, kind, limit) in [
            (
                self.receive,
                self.receive_wanted,
                "receive",
                "net.core.rmem_max",
            ),
            (self.send, self.send_wanted, "send", "net.core.wmem_max"),
        ] {
            if few(given, wanted) {
                parts.push(format!(
                    "the {kind} buffer has {given} bytes instead of {wanted} (limit: {limit})"
                ));
            }
        }
        (!parts.is_empty()).then(|| format!("UDP: {}", parts.join("; ")))
    }
}

/// The result of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The system took all packets, or those that it did not take are lost and were counted.
    All,
    /// The system took this number of bytes, and has no room now for the rest.
    Part(usize),
}

/// A rank's socket.
#[derive(Debug)]
pub struct Socket {
    socket: OwnedFd,
    local: SocketAddr,
    payload: usize,
    buffers: Buffers,
    offload: bool,
    counters: SocketCounters,
    /// The connected sockets for the most frequent peers.
    connected: ConnectedSockets,
    /// The options with which the socket was opened.
    options: Options,
    reports: Vec<(SocketAddr, i32, Option<IpAddr>)>,
    /// Whether there may be reports in the error queue. The flag is set by [`Waiter`]s.
    has_reports: Arc<AtomicBool>,
    /// For tests, the number of further sends that find no room, and the number of bytes after
    /// which they begin.
    #[cfg(test)]
    busy: (usize, u64),
}

impl Socket {
    /// Opens a socket.
    ///
    /// # Errors
    /// Returns a [`SocketError`] if the socket cannot be opened. It is not an error if the system
    /// supports neither offload nor reports.
    pub fn open(options: &Options) -> Result<Self, SocketError> {
        let address = local(options, *options.ports.start());
        let mtu = options.mtu.ok_or(SocketError::Mtu(address))?;
        let payload = largest_payload(options.address, mtu);
        if payload < MIN_PACKET {
            return Err(SocketError::Small {
                mtu,
                payload,
                least: MIN_PACKET,
                address,
            });
        }
        let failed = |what| {
            move |error: io::Error| SocketError::System {
                what,
                address,
                error,
            }
        };
        let domain = Domain::for_address(address);
        let socket = RawSocket::new(domain, Type::DGRAM, Some(Protocol::UDP))
            .map_err(failed("cannot open a socket"))?;
        socket
            .set_nonblocking(true)
            .map_err(failed("cannot make a socket non-blocking"))?;
        let fd = socket.as_fd();
        let is_ipv4 = address.is_ipv4();
        if !is_ipv4 {
            socket
                .set_only_v6(true)
                .map_err(failed("cannot restrict a socket to IPv6"))?;
        }
        forbid_fragments(fd, is_ipv4).map_err(failed("cannot forbid fragments"))?;
        let reports = match is_ipv4 {
            true => Number::ReportsV4,
            false => Number::ReportsV6,
        };
        let _ = system::set(fd, reports, 1);
        // Systems without offload refuse these options.
        let offload = options.offload && system::set(fd, Number::Segment, 0).is_ok();
        if options.offload {
            let _ = system::set(fd, Number::Join, 1);
        }
        let buffers = set_buffers(&socket, options).map_err(failed("cannot read buffer sizes"))?;
        bind(&socket, options).map_err(failed("cannot bind a socket"))?;
        let local = socket
            .local_addr()
            .map_err(failed("cannot read the port"))?
            .as_socket()
            .unwrap_or(address);
        Ok(Self {
            socket: socket.into(),
            local,
            payload,
            buffers,
            offload,
            counters: SocketCounters::default(),
            connected: ConnectedSockets::default(),
            options: options.clone(),
            reports: Vec::new(),
            has_reports: Arc::default(),
            #[cfg(test)]
            busy: (0, 0),
        })
    }

    /// Returns the socket's local address.
    pub fn address(&self) -> SocketAddr {
        self.local
    }

    /// Returns the number of bytes of the largest packet (UDP payload) that the socket's interface
    /// takes.
    pub fn packet(&self) -> usize {
        self.payload
    }

    /// Returns the sizes of the socket's buffers.
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Returns whether segmentation offload is used.
    pub fn offload(&self) -> bool {
        self.offload
    }

    /// Returns the socket's counters.
    pub fn counters(&self) -> &SocketCounters {
        &self.counters
    }

    /// Creates a waiter for this socket.
    ///
    /// # Errors
    /// Returns the system's error if it has no descriptor left.
    pub fn waiter(&self) -> io::Result<Waiter> {
        Ok(Waiter {
            descriptor: self.socket.try_clone()?,
            reports: Arc::clone(&self.has_reports),
        })
    }

    /// Returns the number of bytes that one system call can send as packets of `packet` bytes each.
    pub fn burst(&self, packet: usize) -> usize {
        let longest = MAX_PACKET;
        let packets = if self.offload {
            (longest / packet).clamp(1, MAX_SEGMENTS)
        } else {
            1
        };
        packets * packet
    }

    /// Receives into `batch`, which must be empty. Returns `false` if there is nothing to receive.
    pub fn receive(&mut self, batch: &mut Batch) -> bool {
        self.receive_by(batch, system::receive)
    }

    /// Does the same as [`receive`](Self::receive), but uses a cheaper system call if one buffer
    /// suffices. That call does not return the length of joined datagrams. `length_of` computes it
    /// from the beginning of the first datagram, or returns `None` if that datagram is malformed.
    ///
    /// A forged datagram with a wrong length can thus destroy others that the system joined with
    /// it. However, its sender could achieve the same by filling the socket's buffer. While sources
    /// are checked, the length comes from the system.
    pub fn receive_joined(
        &mut self,
        batch: &mut Batch,
        length_of: impl Fn(&[u8]) -> Option<usize>,
    ) -> bool {
        self.receive_by(batch, |socket, space, want, asks, filled| {
            if want > 1 || asks {
                return system::receive(socket, space, want, asks, filled);
            }
            let mut one = system::receive_plain(socket, space)?;
            one.segment = length_of(&space[..one.length.min(space.len())])
                .filter(|length| *length < one.length)
                .unwrap_or(one.length);
            filled[0] = one;
            Ok(1)
        })
    }

    #[inline]
    fn receive_by(
        &mut self,
        batch: &mut Batch,
        receive: impl Fn(
            BorrowedFd<'_>,
            &mut [u8],
            usize,
            bool,
            &mut [Filled; MANY],
        ) -> io::Result<usize>,
    ) -> bool {
        debug_assert!(batch.is_empty());
        if self.has_reports.load(Ordering::Relaxed) {
            self.has_reports.store(false, Ordering::Relaxed);
            self.take_reports();
        }
        // Each report on a sent packet makes one call fail.
        for _ in 0..MAX_REPORTS {
            let want = batch.want;
            match receive(
                self.socket.as_fd(),
                &mut batch.space,
                want,
                batch.asks,
                &mut batch.filled,
            ) {
                Ok(count) => {
                    self.counters.receive_calls += 1;
                    for filled in &mut batch.filled[..count] {
                        if filled.truncated {
                            self.counters.truncated += 1;
                            // A datagram of a single byte is not a packet, so the protocol drops
                            // it.
                            filled.length = 1;
                            filled.segment = 1;
                        }
                        self.counters.received +=
                            filled.length.div_ceil(filled.segment.max(1)) as u64;
                        self.counters.received_bytes += filled.length as u64;
                    }
                    batch.refilled(count);
                    return true;
                }
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                    batch.refilled(0);
                    return false;
                }
                Err(_) => {
                    if self.take_reports() == 0 {
                        self.counters.receive_errors += 1;
                    }
                }
            }
        }
        batch.refilled(0);
        false
    }

    /// Sends `bytes` to one address, as packets of `segment` bytes, of which the last may be
    /// shorter.
    ///
    /// Packets that the system refuses for any reason other than lack of room count as lost, and
    /// [`next_report`](Self::next_report) returns the error.
    pub fn send(&mut self, to: &SocketAddr, bytes: &[u8], segment: usize) -> Sent {
        let mut gone = 0;
        // This flag is cleared if the system refuses packets sent together. Either the device
        // cannot send them together, or they are too large, which sending them one by one reveals.
        let mut joined = self.offload;
        while gone < bytes.len() {
            let rest = &bytes[gone..];
            let (length, result) = if joined && rest.len() > segment {
                let burst = self.burst(segment).min(rest.len());
                (burst, self.send_joined(to, &rest[..burst], segment))
            } else {
                let length = segment.min(rest.len());
                (length, self.send_one(to, &rest[..length]))
            };
            match result {
                Ok(()) => {
                    self.counters.sent += length.div_ceil(segment) as u64;
                    self.counters.sent_bytes += length as u64;
                    gone += length;
                    if self.offload && !joined && length == segment {
                        self.offload = false;
                        self.counters.offload_lost += 1;
                    }
                }
                Err(Unsent::Busy) => {
                    self.counters.busy += 1;
                    return Sent::Part(gone);
                }
                Err(Unsent::OneByOne) => joined = false,
                Err(Unsent::Lost) => gone += length,
            }
        }
        Sent::All
    }

    /// Sends one packet that consists of these parts. Returns `false` if the system has no room
    /// now. As with [`send`](Self::send), a packet that the system refuses is lost.
    pub fn send_parts(&mut self, to: &SocketAddr, parts: [&[u8]; 3]) -> bool {
        let result = self.try_send(to, |socket, to| system::send_parts(socket, to, parts));
        match result.map_err(|error| self.unsent(to, &error)) {
            Ok(()) => {
                self.counters.sent += 1;
                self.counters.sent_bytes += parts.map(<[u8]>::len).iter().sum::<usize>() as u64;
                true
            }
            Err(Unsent::Busy) => {
                self.counters.busy += 1;
                false
            }
            Err(Unsent::OneByOne | Unsent::Lost) => true,
        }
    }

    /// Makes the socket send everything from its own port, by which other processes know this
    /// process. The socket then uses no connected sockets for frequent peers.
    pub fn with_one_port(mut self) -> Self {
        self.connected = ConnectedSockets::none();
        self
    }

    /// Simulates lack of room: once `bytes` bytes have been sent, `times` sends fail.
    #[cfg(test)]
    pub(super) fn be_busy_for(&mut self, times: usize, bytes: u64) {
        self.busy = (times, bytes);
    }

    fn send_one(&mut self, to: &SocketAddr, packet: &[u8]) -> Result<(), Unsent> {
        self.try_send(to, |socket, to| system::send(socket, to, packet))
            .map_err(|error| self.unsent(to, &error))
    }

    /// Tries to send. Tries a second time if the first attempt returned a report on an earlier
    /// packet.
    #[inline]
    fn try_send(
        &mut self,
        to: &SocketAddr,
        send: impl Fn(BorrowedFd<'_>, Option<&SocketAddr>) -> io::Result<()>,
    ) -> io::Result<()> {
        #[cfg(test)]
        if self.busy.0 > 0 && self.counters.sent_bytes >= self.busy.1 {
            self.busy.0 -= 1;
            return Err(Errno::AGAIN.into());
        }
        self.counters.send_calls += 1;
        match self.by_either(to, &send) {
            // The error may be a report on an earlier packet.
            Err(error) if !is_busy(&error) && self.take_reports() > 0 => {
                send(self.socket.as_fd(), Some(to))
            }
            done => done,
        }
    }

    /// Sends through the peer's connected socket if there is one, and otherwise through the rank's
    /// own socket.
    #[inline]
    fn by_either(
        &mut self,
        to: &SocketAddr,
        send: impl Fn(BorrowedFd<'_>, Option<&SocketAddr>) -> io::Result<()>,
    ) -> io::Result<()> {
        let options = &self.options;
        if let Some(connected) = self.connected.of(to, |to| open_connected(options, to).ok()) {
            match send(connected.as_fd(), None) {
                Err(error) if !is_busy(&error) => self.connected.give_up(),
                done => return done,
            }
        }
        send(self.socket.as_fd(), Some(to))
    }

    fn send_joined(
        &mut self,
        to: &SocketAddr,
        packets: &[u8],
        segment: usize,
    ) -> Result<(), Unsent> {
        let Ok(size) = u16::try_from(segment) else {
            return Err(Unsent::OneByOne);
        };
        let send = |socket: BorrowedFd<'_>, to: Option<&SocketAddr>| {
            system::send_segments(socket, to, packets, size)
        };
        match self.try_send(to, send) {
            Err(error) if is_offload_refused(&error) => Err(Unsent::OneByOne),
            Err(error) => Err(self.unsent(to, &error)),
            Ok(()) => Ok(()),
        }
    }

    fn unsent(&mut self, to: &SocketAddr, error: &io::Error) -> Unsent {
        if is_busy(error) {
            return Unsent::Busy;
        }
        let errno = error.raw_os_error().unwrap_or(0);
        if errno == libc::EMSGSIZE {
            self.counters.too_large += 1;
        } else {
            self.counters.refused += 1;
        }
        self.keep_report(*to, errno, None);
        Unsent::Lost
    }

    /// Takes reports from the socket's error queue. Returns the number of reports taken.
    pub fn take_reports(&mut self) -> usize {
        for taken in 0..MAX_REPORTS {
            match system::report(self.socket.as_fd()) {
                Ok(Some(Report { to, errno, from })) => {
                    self.counters.reports += 1;
                    if let Some(to) = to {
                        self.keep_report(to, errno, from);
                    }
                }
                Ok(None) | Err(_) => return taken,
            }
        }
        MAX_REPORTS
    }

    fn keep_report(&mut self, to: SocketAddr, errno: i32, from: Option<IpAddr>) {
        if self.reports.len() < MAX_REPORTS {
            self.reports.push((to, errno, from));
        }
    }

    /// Returns the next report: the destination of the packet, the error number, and the reporter
    /// if it was not this host.
    #[inline]
    pub fn next_report(&mut self) -> Option<(SocketAddr, i32, Option<IpAddr>)> {
        self.reports.pop()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The reason why packets were not sent.
enum Unsent {
    /// The system has no room now.
    Busy,
    /// The packets have to be sent one by one.
    OneByOne,
    /// The packets are lost, and have been counted as lost.
    Lost,
}

/// Returns whether an error means a temporary lack of room.
fn is_busy(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM)
    )
}

fn is_offload_refused(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::IO | Errno::INVAL | Errno::MSGSIZE | Errno::OPNOTSUPP | Errno::NOPROTOOPT)
    )
}

/// Opens a socket that sends to one address.
fn open_connected(options: &Options, to: &SocketAddr) -> io::Result<OwnedFd> {
    let domain = Domain::for_address(*to);
    let socket = RawSocket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    forbid_fragments(socket.as_fd(), to.is_ipv4())?;
    set_buffers(&socket, options)?;
    // The socket is never read, so it gets the smallest receive buffer.
    socket.set_recv_buffer_size(1)?;
    bind(&socket, options)?;
    socket.connect(&(*to).into())?;
    Ok(socket.into())
}

/// Binds a socket to a free port of its range. Different processes of a host start their search at
/// different ports.
fn bind(socket: &RawSocket, options: &Options) -> io::Result<()> {
    let (first, last) = (*options.ports.start(), *options.ports.end());
    let count = u32::from(last - first) + 1;
    let begin = std::process::id() % count;
    for at in 0..count {
        // The cast is lossless, because the remainder is less than `count`.
        let port = first + ((begin + at) % count) as u16;
        match socket.bind(&local(options, port).into()) {
            Err(error) if count > 1 && error.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
    let message = format!("all ports from {first} to {last} are in use (CONDUIT_UDP_PORTS)");
    Err(io::Error::new(io::ErrorKind::AddrInUse, message))
}

/// Forbids IP fragmentation, so that a full-sized probe validates the path's MTU.
fn forbid_fragments(socket: BorrowedFd<'_>, is_ipv4: bool) -> io::Result<()> {
    if is_ipv4 {
        sockopt::set_ip_mtu_discover(socket, sockopt::Ipv4PathMtuDiscovery::PROBE)?;
        return Ok(());
    }
    sockopt::set_ipv6_mtu_discover(socket, sockopt::Ipv6PathMtuDiscovery::PROBE)?;
    system::set(socket, Number::DontFragmentV6, 1)
}

/// Returns the local address of a socket with these options.
fn local(options: &Options, port: u16) -> SocketAddr {
    match options.address {
        IpAddr::V4(address) => SocketAddr::from((address, port)),
        IpAddr::V6(address) => {
            let scope = match address.is_unicast_link_local() {
                true => options.scope,
                false => 0,
            };
            SocketAddrV6::new(address, port, 0, scope).into()
        }
    }
}

/// Requests buffers of the configured sizes. If this process is privileged to do so, exceeds the
/// system's limit.
fn set_buffers(socket: &RawSocket, options: &Options) -> io::Result<Buffers> {
    if sockopt::set_socket_recv_buffer_size_force(socket, options.receive_buffer).is_err() {
        let _ = socket.set_recv_buffer_size(options.receive_buffer);
    }
    if sockopt::set_socket_send_buffer_size_force(socket, options.send_buffer).is_err() {
        let _ = socket.set_send_buffer_size(options.send_buffer);
    }
    // The system reports twice the usable size, because it includes its own data.
    Ok(Buffers {
        send_wanted: options.send_buffer,
        send: socket.send_buffer_size()? / 2,
        receive_wanted: options.receive_buffer,
        receive: socket.recv_buffer_size()? / 2,
    })
}
