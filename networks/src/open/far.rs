//! The open networks between hosts, of which a process uses one.

use conduit_ofi::peers::OpenOfi;
use conduit_portals::forward_transport;
use conduit_portals::transport::Transport;
use conduit_portals::transport::open::OpenTransport;
use conduit_udp::peers::OpenUdp;

/// A network between hosts.
#[derive(Debug)]
pub enum Far {
    /// UDP.
    Udp(Box<OpenUdp>),
    /// libfabric.
    Ofi(Box<OpenOfi>),
}

impl Transport for Far {
    forward_transport!(to in [Self::Udp(to), Self::Ofi(to)]:
        send, receive, transmit, outstanding, settle, timeout, waiter, abandon, describe);
}

impl OpenTransport for Far {
    forward_transport!(to in [Self::Udp(to), Self::Ofi(to)]:
        address, address_to_text, address_of_text, connect, peer_address, has_session, end_session,
        close, leave, descriptors, prepare_sleep);
}
