//! The messages between interfaces. They are datagrams on sockets that are named after the
//! interfaces' ids.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use portals4_sys::{ptl_datatype_t, ptl_ni_fail_t, ptl_op_t};

/// The maximum number of bytes in a message.
pub(crate) const MOST: usize = 64 << 10;
const WORDS: usize = 14;

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Put,
    Get,
    Ack,
    Reply,
    /// An atomic without a reply.
    Atomic,
    /// An atomic with a reply.
    FetchAtomic,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Put,
        Self::Get,
        Self::Ack,
        Self::Reply,
        Self::Atomic,
        Self::FetchAtomic,
    ];
}

/// The header of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// The sender's process id.
    pub(crate) pid: u32,
    /// The sender's rank.
    pub(crate) rank: u32,
    /// The initiator's number for the operation.
    pub(crate) operation: u64,
    pub(crate) wants_ack: bool,
    pub(crate) index: u32,
    pub(crate) match_bits: u64,
    /// The offset that the initiator asked for or, in a reply, the offset that the target used.
    pub(crate) offset: u64,
    pub(crate) hdr_data: u64,
    /// The number of bytes sent or, in a reply, the number of bytes moved.
    pub(crate) length: u64,
    pub(crate) fail: ptl_ni_fail_t,
    pub(crate) list: u8,
    /// The operation and the type of an atomic.
    pub(crate) atomic: (ptl_op_t, ptl_datatype_t),
    /// The comparand of an atomic.
    pub(crate) comparand: u64,
}

impl Header {
    fn words(&self) -> [u64; WORDS] {
        [
            self.kind as u64,
            self.pid.into(),
            self.rank.into(),
            self.operation,
            self.wants_ack.into(),
            self.index.into(),
            self.match_bits,
            self.offset,
            self.hdr_data,
            self.length,
            self.fail.into(),
            self.list.into(),
            u64::from(self.atomic.0) | u64::from(self.atomic.1) << 8,
            self.comparand,
        ]
    }

    fn of(words: [u64; WORDS]) -> Option<Self> {
        let [
            kind,
            pid,
            rank,
            operation,
            ack,
            index,
            match_bits,
            offset,
            hdr_data,
            length,
            fail,
            list,
            atomic,
            comparand,
        ] = words;
        Some(Self {
            kind: *Kind::ALL.get(kind as usize)?,
            pid: pid as u32,
            rank: rank as u32,
            operation,
            wants_ack: ack != 0,
            index: index as u32,
            match_bits,
            offset,
            hdr_data,
            length,
            fail: fail as u8,
            list: list as u8,
            atomic: (atomic as u8, (atomic >> 8) as u8),
            comparand,
        })
    }
}

/// An interface's socket, and the messages that it has yet to send.
pub(crate) struct Wire {
    socket: UnixDatagram,
    pub(crate) pid: u32,
    unsent: VecDeque<(u32, Vec<u8>)>,
    buffer: Vec<u8>,
}

fn address(pid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("portals4-double/{pid}"))
}

impl Wire {
    pub(crate) fn open() -> io::Result<Self> {
        loop {
            let pid = fastrand::u32(1..u32::MAX);
            match UnixDatagram::bind_addr(&address(pid)?) {
                Ok(socket) => {
                    socket.set_nonblocking(true)?;
                    return Ok(Self {
                        socket,
                        pid,
                        unsent: VecDeque::new(),
                        buffer: vec![0; MOST + WORDS * 8],
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub(crate) fn send(&mut self, to: u32, header: &Header, bytes: &[u8]) {
        let mut datagram: Vec<u8> = header
            .words()
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        datagram.extend(bytes);
        self.unsent.push_back((to, datagram));
        self.flush();
    }

    /// Sends as many messages as possible. Messages to a slow receiver wait without delaying the
    /// others.
    pub(crate) fn flush(&mut self) {
        let mut full = Vec::new();
        for _ in 0..self.unsent.len() {
            let Some((to, datagram)) = self.unsent.pop_front() else {
                return;
            };
            let again = full.contains(&to)
                || address(to).is_ok_and(|address| {
                    let sent = self.socket.send_to_addr(&datagram, &address);
                    // Messages to a peer that has ended are lost.
                    sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
                });
            if again {
                full.push(to);
                self.unsent.push_back((to, datagram));
            }
        }
    }

    /// Returns the next message, if one has arrived.
    pub(crate) fn receive(&mut self) -> Option<(Header, Vec<u8>)> {
        loop {
            let length = self.socket.recv(&mut self.buffer).ok()?;
            let datagram = &self.buffer[..length];
            let Some((header, bytes)) = datagram.split_at_checked(WORDS * 8) else {
                continue;
            };
            let words = header.as_chunks::<8>().0;
            let words = std::array::from_fn(|at| u64::from_le_bytes(words[at]));
            if let Some(header) = Header::of(words) {
                return Some((header, bytes.to_vec()));
            }
        }
    }
}
