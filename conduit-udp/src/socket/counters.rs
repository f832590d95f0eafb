//! Counters of a socket.

/// The counters of a socket since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketCounters {
    /// Packets passed to the system.
    pub sent: u64,
    /// Bytes of the packets passed to the system.
    pub sent_bytes: u64,
    /// System calls that sent packets.
    pub send_calls: u64,
    /// Sends for which there was no room (`EAGAIN`, `ENOBUFS`). Their packets wait.
    pub busy: u64,
    /// Packets lost because they were larger than the interface allows.
    pub too_large: u64,
    /// Packets lost because the system refused to send them for another reason.
    pub refused: u64,
    /// Packets received.
    pub received: u64,
    /// Bytes of the packets received.
    pub received_bytes: u64,
    /// System calls that received at least one datagram.
    pub receive_calls: u64,
    /// Datagrams dropped because they were larger than any packet.
    pub truncated: u64,
    /// Failed receives, except those that returned a report on a peer.
    pub receive_errors: u64,
    /// Reports on peers from the network (ICMP).
    pub reports: u64,
    /// The number of times that segmentation offload was given up, because the system refused
    /// packets sent together and then accepted them one by one.
    pub offload_lost: u64,
}

impl SocketCounters {
    /// Returns each counter with its name.
    pub fn each(&self) -> [(&'static str, u64); 13] {
        [
            ("sent", self.sent),
            ("sent_bytes", self.sent_bytes),
            ("send_calls", self.send_calls),
            ("busy", self.busy),
            ("too_large", self.too_large),
            ("refused", self.refused),
            ("received", self.received),
            ("received_bytes", self.received_bytes),
            ("receive_calls", self.receive_calls),
            ("truncated", self.truncated),
            ("receive_errors", self.receive_errors),
            ("reports", self.reports),
            ("offload_lost", self.offload_lost),
        ]
    }
}
