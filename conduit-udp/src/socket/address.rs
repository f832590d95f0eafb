//! A rank's address, as ranks exchange it through the launcher. It has this layout:
//!
//! | bytes | |
//! |---|---|
//! | 1 | version |
//! | 1 | address family: 4 or 6 |
//! | 2 | port (all integers are little-endian) |
//! | 4 | bytes of the largest packet (UDP payload) that the interface takes |
//! | 8 | incarnation |
//! | 16 | IP address (an IPv4 address is followed by zeros) |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const VERSION: u8 = 2;

/// The address at which a rank can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpAddress {
    /// The IP address.
    pub ip: IpAddr,
    /// The UDP port.
    pub port: u16,
    /// The number of bytes of the largest packet (UDP payload) that the interface takes.
    pub packet: u32,
    /// The rank's [incarnation](seal::random_incarnation).
    pub incarnation: u64,
}

/// The reason why an address could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The length is wrong.
    #[error("its address has {0} bytes instead of {bytes}", bytes = UdpAddress::BYTES)]
    Length(usize),
    /// Another version of Conduit encoded the address.
    #[error(
        "its address has version {0} instead of {VERSION}: the ranks run different versions of Conduit"
    )]
    Version(u8),
    /// A field has an invalid value.
    #[error("its {0} is invalid")]
    Field(&'static str),
}

impl UdpAddress {
    /// The number of bytes of an encoded address.
    pub const BYTES: usize = 32;

    /// Encodes the address for the exchange.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = VERSION;
        bytes[2..4].copy_from_slice(&self.port.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.packet.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.incarnation.to_le_bytes());
        match self.ip {
            IpAddr::V4(address) => {
                bytes[1] = 4;
                bytes[16..20].copy_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                bytes[1] = 6;
                bytes[16..].copy_from_slice(&address.octets());
            }
        }
        bytes
    }

    /// Decodes an address.
    ///
    /// # Errors
    /// Returns an error if the bytes are not the [encoding](Self::encode) of an address that can
    /// receive packets.
    pub fn decode(bytes: &[u8]) -> Result<Self, AddressError> {
        let bytes: &[u8; Self::BYTES] = bytes
            .try_into()
            .map_err(|_| AddressError::Length(bytes.len()))?;
        if bytes[0] != VERSION {
            return Err(AddressError::Version(bytes[0]));
        }
        let [_, family, p0, p1, s0, s1, s2, s3, rest @ ..] = *bytes;
        let (incarnation, address) = rest.split_first_chunk::<8>().expect("24 bytes are left");
        let address: [u8; 16] = address.try_into().expect("16 bytes are left");
        let address = match family {
            4 if address[4..] == [0; 12] => IpAddr::V4(Ipv4Addr::new(
                address[0], address[1], address[2], address[3],
            )),
            6 => IpAddr::V6(Ipv6Addr::from(address)),
            _ => return Err(AddressError::Field("address family")),
        };
        if address.is_unspecified() || address.is_multicast() {
            return Err(AddressError::Field("address"));
        }
        let port = u16::from_le_bytes([p0, p1]);
        if port == 0 {
            return Err(AddressError::Field("port"));
        }
        let packet = u32::from_le_bytes([s0, s1, s2, s3]);
        if packet == 0 || packet > 0xffff {
            return Err(AddressError::Field("packet size"));
        }
        Ok(Self {
            ip: address,
            port,
            packet,
            incarnation: u64::from_le_bytes(*incarnation),
        })
    }
}
