//! Addresses of processes. An encoded address consists of the address family (4 or 6) in 1 byte,
//! the IP address in 4 or 16 bytes, and the port in 2 bytes, big-endian.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use conduit_portals::transport::open::ConnectError;

/// The number of bytes of the longest address.
const LONGEST: usize = 1 + 16 + 2;

/// The address of a process, which consists of an IP address and a port. A link-local address
/// belongs to the interface that this process uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Address([u8; LONGEST]);

impl Address {
    pub(super) fn of(ip: IpAddr, port: u16) -> Self {
        let mut bytes = [0; LONGEST];
        match ip.to_canonical() {
            IpAddr::V4(ip) => {
                bytes[0] = 4;
                bytes[1..5].copy_from_slice(&ip.octets());
                bytes[5..7].copy_from_slice(&port.to_be_bytes());
            }
            IpAddr::V6(ip) => {
                bytes[0] = 6;
                bytes[1..17].copy_from_slice(&ip.octets());
                bytes[17..].copy_from_slice(&port.to_be_bytes());
            }
        }
        Self(bytes)
    }

    /// Returns the source address of a datagram. An IPv4 source must be mapped to IPv6.
    #[inline]
    pub(super) fn of_source(source: &SocketAddrV6) -> Self {
        Self::of(IpAddr::V6(*source.ip()), source.port())
    }

    /// Decodes an address that packets can be sent to.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, ConnectError> {
        let (ip, port) = match *bytes {
            [4, a, b, c, d, high, low] => (
                IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
                u16::from_be_bytes([high, low]),
            ),
            [6, ref rest @ ..] if rest.len() == 18 => {
                let mut ip = [0; 16];
                ip.copy_from_slice(&rest[..16]);
                (
                    IpAddr::V6(Ipv6Addr::from(ip)),
                    u16::from_be_bytes([rest[16], rest[17]]),
                )
            }
            _ => {
                return Err(ConnectError::Malformed(
                    "it is not an address of the network over UDP",
                ));
            }
        };
        Self::checked(ip, port)
    }

    /// Parses `1.2.3.4:567` or `[1::2]:567`.
    pub(super) fn parse(text: &str) -> Result<Self, ConnectError> {
        let address: SocketAddr = text.parse().map_err(|_| {
            ConnectError::Malformed("it does not have the form 10.0.0.1:4567 or [fd00::1]:4567")
        })?;
        Self::checked(address.ip(), address.port())
    }

    fn checked(ip: IpAddr, port: u16) -> Result<Self, ConnectError> {
        let is_broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
        if ip.is_unspecified() || ip.is_multicast() || is_broadcast {
            return Err(ConnectError::Malformed(
                "its IP address is not that of a single host",
            ));
        }
        if port == 0 {
            return Err(ConnectError::Malformed("its port is 0"));
        }
        Ok(Self::of(ip, port))
    }

    pub(super) fn is_ipv4(&self) -> bool {
        self.0[0] == 4
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0[..if self.is_ipv4() { 7 } else { LONGEST }]
    }

    /// Returns the address padded to a fixed length, for MACs.
    pub(super) fn padded(&self) -> &[u8] {
        &self.0
    }

    /// Converts the address for the system. `scope` is the index of this process's interface.
    pub(super) fn to_socket_address(self, scope: u32) -> SocketAddr {
        let [_, rest @ ..] = self.0;
        if self.is_ipv4() {
            let ip = Ipv4Addr::new(rest[0], rest[1], rest[2], rest[3]);
            return (ip, u16::from_be_bytes([rest[4], rest[5]])).into();
        }
        let mut ip = [0; 16];
        ip.copy_from_slice(&rest[..16]);
        let ip = Ipv6Addr::from(ip);
        let scope = if ip.is_unicast_link_local() { scope } else { 0 };
        SocketAddrV6::new(ip, u16::from_be_bytes([rest[16], rest[17]]), 0, scope).into()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_socket_address(0).fmt(f)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_and_bytes_come_back() {
        for (text, bytes) in [
            ("10.1.2.3:4567", 7),
            ("[fd00::1]:9", 19),
            ("[fe80::1]:9", 19),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address.as_bytes().len(), bytes);
            assert_eq!(Address::decode(address.as_bytes()), Ok(address));
        }
        let local = Address::parse("[fe80::1]:9").unwrap();
        assert_eq!(local.to_socket_address(3).to_string(), "[fe80::1%3]:9");
    }

    #[test]
    fn one_process_has_one_address() {
        let mapped = "[::ffff:10.1.2.3]:4567".parse::<SocketAddrV6>().unwrap();
        let plain = Address::parse("10.1.2.3:4567").unwrap();
        assert_eq!(Address::of_source(&mapped), plain);
        assert_eq!(Address::parse("[::ffff:10.1.2.3]:4567"), Ok(plain));
    }

    #[test]
    fn addresses_that_nothing_can_be_sent_to_are_refused() {
        for text in [
            "",
            "10.1.2.3",
            "10.1.2.3:0",
            "0.0.0.0:5",
            "[::]:5",
            "224.0.0.1:5",
            "255.255.255.255:5",
            "[ff02::1]:5",
            "host:5",
            "10.1.2.3:70000",
            " 10.1.2.3:5",
        ] {
            let parsed = Address::parse(text);
            assert!(matches!(parsed, Err(ConnectError::Malformed(_))), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(prop_oneof![Just(4u8), Just(6), any::<u8>()], 0..24)) {
            if let Ok(address) = Address::decode(&bytes) {
                let again = Address::decode(address.as_bytes());
                prop_assert_eq!(again, Ok(address));
                prop_assert_eq!(Address::parse(&address.to_string()), Ok(address));
            }
        }
    }
}
