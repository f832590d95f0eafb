//! Sockets between the processes of a host, and operations on them. None of them waits.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{self, Errno};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recvmsg, sendmsg, socket_with,
};

use super::packet::{MAX_PACKET, Packet};

/// The maximum number of connections that may wait to be accepted, if the system allows that many.
const BACKLOG: i32 = 4096;
/// The maximum number of descriptors in a packet.
const MAX_DESCRIPTORS: usize = 2;

fn flags() -> SocketFlags {
    SocketFlags::CLOEXEC | SocketFlags::NONBLOCK
}

/// Creates an unconnected socket, which preserves packet boundaries.
pub(super) fn create() -> io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags(), None)
}

/// Creates a socket to which others can connect by this name.
pub(super) fn listen_as(name: &[u8]) -> io::Result<OwnedFd> {
    let socket = create()?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects to the process that listens as `name`. [`Errno::AGAIN`] means that the process's
/// backlog is full and that the caller should try again.
pub(super) fn connect_to(socket: impl AsFd, name: &[u8]) -> io::Result<()> {
    connect(socket, &SocketAddrUnix::new_abstract_name(name)?)
}

/// Accepts the next connection.
pub(super) fn accept(listener: impl AsFd) -> io::Result<OwnedFd> {
    accept_with(listener, flags())
}

/// Returns whether an error of [`send`] or [`connect_to`] is temporary, for example because a queue
/// is full or too many descriptors of this user are in flight.
pub(super) fn is_passing(error: Errno) -> bool {
    [Errno::AGAIN, Errno::INTR, Errno::TOOMANYREFS, Errno::NOBUFS].contains(&error)
}

/// Sends a packet with descriptors.
pub(super) fn send(
    socket: impl AsFd,
    packet: &Packet<'_>,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut bytes = [0; MAX_PACKET];
    let length = packet.encode(&mut bytes);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let bytes = [IoSlice::new(bytes.get(..length).unwrap_or_default())];
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &bytes, &mut control, flags).map(drop)
}

/// A received packet.
#[derive(Debug)]
pub(super) struct Received {
    bytes: [u8; MAX_PACKET],
    length: usize,
    /// Whether the packet was longer than allowed.
    is_truncated: bool,
    pub(super) descriptors: Vec<OwnedFd>,
    /// Whether more descriptors were sent than this process has room for, or more than
    /// [`MAX_DESCRIPTORS`].
    pub(super) lacks_descriptors: bool,
}

impl Received {
    /// Returns the packet's bytes, or an empty slice if the packet was too long.
    pub(super) fn bytes(&self) -> &[u8] {
        match self.is_truncated {
            true => &[],
            false => self.bytes.get(..self.length).unwrap_or_default(),
        }
    }
}

/// The result of [`receive`].
#[derive(Debug)]
pub(super) enum Incoming {
    Packet(Box<Received>),
    Nothing,
    /// The peer has closed its end.
    End,
}

/// Receives the next packet.
pub(super) fn receive(socket: impl AsFd) -> io::Result<Incoming> {
    let mut received = Box::new(Received {
        bytes: [0; MAX_PACKET],
        length: 0,
        is_truncated: false,
        descriptors: Vec::new(),
        lacks_descriptors: false,
    });
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut was_reset = false;
    let found = loop {
        let mut into = [IoSliceMut::new(&mut received.bytes)];
        match recvmsg(&socket, &mut into, &mut control, flags) {
            Ok(found) => break found,
            Err(Errno::INTR) => {}
            // The system reports this error once, before the last packets that the peer has sent.
            Err(Errno::CONNRESET) if !was_reset => was_reset = true,
            Err(Errno::CONNRESET) => return Ok(Incoming::End),
            Err(Errno::AGAIN) if was_reset => return Ok(Incoming::End),
            Err(Errno::AGAIN) => return Ok(Incoming::Nothing),
            Err(error) => return Err(error),
        }
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            received.descriptors.extend(descriptors);
        }
    }
    if found.bytes == 0 {
        return Ok(Incoming::End);
    }
    received.length = found.bytes;
    received.is_truncated = found.flags.contains(ReturnFlags::TRUNC);
    received.lacks_descriptors = found.flags.contains(ReturnFlags::CTRUNC);
    Ok(Incoming::Packet(received))
}

/// Returns whether the peer has closed its end.
pub(super) fn is_hung_up(socket: impl AsFd) -> bool {
    let mut asked = [PollFd::new(&socket, PollFlags::RDHUP)];
    let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    match poll(&mut asked, Some(&Timespec::default())) {
        Ok(_) => asked[0].revents().intersects(closed),
        Err(_) => false,
    }
}
