//! Addresses of processes over a provider: as bytes, as text, and in libfabric's format.
//!
//! | bytes | |
//! |---|---|
//! | 1 | the length of the provider's name |
//! | | the provider's name |
//! | | IPv4 or IPv6 address and port, big-endian; otherwise the result of `fi_getname` |
//!
//! The text is the provider's name, a slash, and the address in one of three forms. Internet
//! addresses have the form `1.2.3.4:567` or `[::1]:567`. Addresses that are text for the provider
//! have that text. All others are hexadecimal digits. An IPv4 or IPv6 address with a port is also
//! accepted without the provider's name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use conduit_portals::transport::open::ConnectError;
use libfabric_sys::{FI_ADDR_STR, FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6};

use super::message::MAX_ADDRESS;
use crate::provider::socket_address;

/// The format of a provider's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Ip4,
    Ip6,
    /// A zero-terminated string.
    Text,
    /// An opaque address of this number of bytes.
    Other(usize),
}

/// The addresses of one provider.
#[derive(Debug)]
pub(super) struct Addressing {
    provider: String,
    format: Format,
    own: Box<[u8]>,
}

const MALFORMED: &str = "not an address of this network (PROVIDER/ADDRESS)";
const OTHER_PROVIDER: &str = "address belongs to a provider other than the one in use here \
                              (setting CONDUIT_OFI_PROVIDER)";
const OTHER_FAMILY: &str = "address has a family (IPv4, IPv6) other than that of this process's \
                            interface";
const LENGTH: &str = "address has the wrong length for this provider";

impl Addressing {
    /// Creates the addressing of a provider whose `addr_format` is `format` and whose own address
    /// is `raw`. Returns `None` if the address is too long.
    pub(super) fn new(provider: String, format: u32, raw: &[u8]) -> Option<Self> {
        let socket = match format {
            FI_SOCKADDR | FI_SOCKADDR_IN | FI_SOCKADDR_IN6 => socket_address(raw),
            _ => None,
        };
        let format = match (socket, format) {
            (Some(SocketAddr::V4(_)), _) => Format::Ip4,
            (Some(SocketAddr::V6(_)), _) => Format::Ip6,
            (None, FI_ADDR_STR) => Format::Text,
            _ => Format::Other(raw.len()),
        };
        let mut addressing = Self {
            provider,
            format,
            own: Box::default(),
        };
        let own = match socket {
            Some(address) => socket_bytes(address),
            None => {
                let end = raw.iter().position(|&byte| byte == 0);
                let end = end.filter(|_| addressing.format == Format::Text);
                raw[..end.unwrap_or(raw.len())].into()
            }
        };
        addressing.own = addressing.bytes(&own).into();
        (addressing.own.len() <= MAX_ADDRESS).then_some(addressing)
    }

    /// Returns this process's address.
    pub(super) fn own(&self) -> &[u8] {
        &self.own
    }

    fn bytes(&self, rest: &[u8]) -> Vec<u8> {
        // The cast is lossless, because the length is capped. Every process truncates a longer name
        // in the same way.
        let length = self.provider.len().min(u8::MAX.into()) as u8;
        let name = &self.provider.as_bytes()[..length.into()];
        [&[length], name, rest].concat()
    }

    /// Returns the part of an address after the provider's name.
    fn rest<'a>(&self, address: &'a [u8]) -> Result<&'a [u8], &'static str> {
        let (&length, after) = address.split_first().ok_or(MALFORMED)?;
        let (name, rest) = after.split_at_checked(length.into()).ok_or(MALFORMED)?;
        if name != self.provider.as_bytes() {
            return Err(OTHER_PROVIDER);
        }
        if address.len() > MAX_ADDRESS {
            return Err(LENGTH);
        }
        match self.format {
            Format::Ip4 if rest.len() == 18 => Err(OTHER_FAMILY),
            Format::Ip6 if rest.len() == 6 => Err(OTHER_FAMILY),
            Format::Ip4 if rest.len() == 6 => Ok(rest),
            Format::Ip6 if rest.len() == 18 => Ok(rest),
            Format::Text if !rest.is_empty() && rest.iter().all(u8::is_ascii_graphic) => Ok(rest),
            Format::Other(length) if rest.len() == length => Ok(rest),
            _ => Err(LENGTH),
        }
    }

    /// Converts an address to the format that `fi_av_insert` reads.
    ///
    /// # Errors
    /// Returns the reason why this provider cannot use the address.
    pub(super) fn raw(&self, address: &[u8]) -> Result<Vec<u8>, &'static str> {
        let rest = self.rest(address)?;
        Ok(match socket_of(rest).filter(|_| self.is_socket()) {
            Some(SocketAddr::V4(address)) => {
                let mut raw = vec![0; 16];
                // The cast is lossless, because the constant is small.
                raw[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                raw[2..4].copy_from_slice(&address.port().to_be_bytes());
                raw[4..8].copy_from_slice(&address.ip().octets());
                raw
            }
            Some(SocketAddr::V6(address)) => {
                let mut raw = vec![0; 28];
                // The cast is lossless, because the constant is small.
                raw[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                raw[2..4].copy_from_slice(&address.port().to_be_bytes());
                raw[8..24].copy_from_slice(&address.ip().octets());
                raw
            }
            None if self.format == Format::Text => [rest, &[0]].concat(),
            None => rest.to_vec(),
        })
    }

    fn is_socket(&self) -> bool {
        matches!(self.format, Format::Ip4 | Format::Ip6)
    }

    /// Returns an address as text.
    pub(super) fn to_text(&self, address: &[u8]) -> Option<String> {
        let rest = self.rest(address).ok()?;
        let text = match self.format {
            Format::Ip4 | Format::Ip6 => socket_of(rest)?.to_string(),
            Format::Text => std::str::from_utf8(rest).ok()?.to_owned(),
            Format::Other(_) => hex::encode(rest),
        };
        Some(format!("{}/{text}", self.provider))
    }

    /// Parses the text of an address.
    ///
    /// # Errors
    /// Returns the reason why the text is not an address.
    pub(super) fn of_text(&self, text: &str) -> Result<Vec<u8>, ConnectError> {
        let malformed = ConnectError::Malformed;
        // Launchers know only hosts and ports. An address without a provider's name is therefore
        // taken as an address of this process's provider.
        let own = || {
            text.parse::<SocketAddr>()
                .is_ok()
                .then_some((&*self.provider, text))
        };
        let (provider, text) = text
            .split_once('/')
            .or_else(own)
            .ok_or(malformed(MALFORMED))?;
        if provider != self.provider {
            return Err(malformed(OTHER_PROVIDER));
        }
        let rest = match self.format {
            Format::Ip4 | Format::Ip6 => {
                let address = text.parse().map_err(|_| malformed(MALFORMED))?;
                socket_bytes(address)
            }
            Format::Text => text.into(),
            Format::Other(_) => hex::decode(text).map_err(|_| malformed(MALFORMED))?,
        };
        let address = self.bytes(&rest);
        self.rest(&address).map_err(malformed)?;
        Ok(address)
    }
}

fn socket_bytes(address: SocketAddr) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(ip) => [&ip.octets()[..], &port].concat(),
        IpAddr::V6(ip) => [&ip.octets()[..], &port].concat(),
    }
}

fn socket_of(rest: &[u8]) -> Option<SocketAddr> {
    let (ip, port) = rest.split_last_chunk()?;
    let ip: IpAddr = match ip.len() {
        4 => Ipv4Addr::from(*ip.first_chunk::<4>()?).into(),
        16 => Ipv6Addr::from(*ip.first_chunk::<16>()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes(*port)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addressing() -> Vec<Addressing> {
        let four = Addressing::new("tcp".into(), FI_SOCKADDR_IN, &{
            let mut raw = [0; 16];
            raw[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            raw[2..8].copy_from_slice(&[1, 2, 127, 0, 0, 1]);
            raw
        });
        let six = Addressing::new("tcp;ofi_rxm".into(), FI_SOCKADDR, &{
            let mut raw = [0; 28];
            raw[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            raw[23] = 1;
            raw
        });
        let text = Addressing::new("shm".into(), FI_ADDR_STR, b"fi_shm://x\0");
        let other = Addressing::new("cxi".into(), 4711, b"\x01\xab");
        [four, six, text, other].map(Option::unwrap).into()
    }

    #[test]
    fn addresses_are_written_as_usual_and_read_again() {
        let texts = [
            "tcp/127.0.0.1:258",
            "tcp;ofi_rxm/[::1]:0",
            "shm/fi_shm://x",
            "cxi/01ab",
        ];
        for (addressing, text) in addressing().iter().zip(texts) {
            assert_eq!(addressing.to_text(addressing.own()).as_deref(), Some(text));
            assert_eq!(addressing.of_text(text).as_deref(), Ok(addressing.own()));
            let raw = addressing.raw(addressing.own()).unwrap();
            assert!(matches!(raw.len(), 16 | 28 | 11 | 2));
        }
        let [four, six, text, other] = addressing().try_into().unwrap();
        assert_eq!(four.of_text("127.0.0.1:258").as_deref(), Ok(four.own()));
        assert_eq!(six.of_text("[::1]:0").as_deref(), Ok(six.own()));
        assert!(four.of_text("[::1]:0").is_err());
        assert!(other.of_text("127.0.0.1:258").is_err());
        assert!(text.of_text("fi_shm:").is_err());
    }

    #[test]
    fn what_is_wrong_with_an_address_is_said() {
        let all = addressing();
        for (text, words) in [
            ("tcp", "PROVIDER/ADDRESS"),
            ("verbs/1.2.3.4:5", "a provider other than"),
            ("tcp/[::1]:5", "a family"),
            ("tcp/localhost:5", "not an address"),
            ("tcp/1.2.3.4", "not an address"),
        ] {
            let error = all[0].of_text(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        for text in ["cxi/1", "cxi/0g", "cxi/0102030405", "cxi/"] {
            assert!(all[3].of_text(text).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40), own: bool) {
            for addressing in addressing() {
                let bytes = match own {
                    true => addressing.bytes(&bytes),
                    false => bytes.clone(),
                };
                if let Some(text) = addressing.to_text(&bytes) {
                    prop_assert!(text.is_ascii() && !text.contains(' '));
                    prop_assert_eq!(addressing.of_text(&text), Ok(bytes.clone()));
                    prop_assert!(addressing.raw(&bytes).is_ok());
                }
            }
        }
    }
}
