//! The options of a class.

use crate::error::{Error, Result};

/// The preferred address family of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressFormat {
    /// No preference.
    #[default]
    Any,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// The options of a class, as in NA's `na_init_info`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Whether other processes may look this process up by its address. A process that does not
    /// listen can only communicate with processes that it has looked up.
    pub listen: bool,
    /// The subnet (such as "10.1.0.0/16") of the preferred interface.
    pub ip_subnet: Option<String>,
    /// The key that all processes share. Processes without the key are ignored. Any text is
    /// accepted, but the key should be long and random.
    pub auth_key: Option<String>,
    /// The maximum length of an unexpected message in bytes; 0 stands for [`Options::UNEXPECTED`].
    pub max_unexpected_size: usize,
    /// The maximum length of an expected message in bytes; 0 stands for [`Options::EXPECTED`].
    pub max_expected_size: usize,
    /// Whether waiting threads poll instead of sleeping. The class then has no descriptors.
    pub busy: bool,
    /// The preferred address family.
    pub address_format: AddressFormat,
    /// The number of contexts.
    pub max_contexts: u8,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: false,
            ip_subnet: None,
            auth_key: None,
            max_unexpected_size: 0,
            max_expected_size: 0,
            busy: false,
            address_format: AddressFormat::Any,
            max_contexts: 1,
        }
    }
}

impl Options {
    /// The default maximum length of an unexpected message in bytes.
    pub const UNEXPECTED: usize = 4 << 10;
    /// The default maximum length of an expected message in bytes.
    pub const EXPECTED: usize = 4 << 10;
    /// The largest value that either maximum may have, in bytes. Longer data should be transferred
    /// by a put or get.
    pub const MOST: usize = 1 << 20;

    pub(crate) fn size(hint: usize, default: usize, option: &str) -> Result<usize> {
        match hint {
            0 => Ok(default),
            1..=Self::MOST => Ok(hint),
            _ => Err(Error::Refused(format!(
                "{option} is {hint}; the maximum is {}",
                Self::MOST
            ))),
        }
    }
}

/// A parsed info string: `[conduit+]<protocol>[://[<host>]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// The network.
    pub protocol: Protocol,
    /// The part after `://`: an interface, an address or a name, optionally with a port.
    pub host: Option<String>,
}

/// The networks that info strings can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `shm`: shared memory, among processes of one host.
    Shm,
    /// `udp`: UDP.
    Udp,
    /// `ofi`: libfabric.
    Ofi,
    /// `conduit`: shared memory within a host, UDP between hosts.
    Conduit,
}

impl Protocol {
    /// All protocols with their names.
    pub const ALL: [(&'static str, Self); 4] = [
        ("shm", Self::Shm),
        ("udp", Self::Udp),
        ("ofi", Self::Ofi),
        ("conduit", Self::Conduit),
    ];

    /// Returns the protocol with this name.
    pub fn of(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, protocol)| *protocol)
    }

    /// Returns the protocol's name.
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, protocol)| *protocol == self);
        found.map_or("", |(name, _)| name)
    }
}

impl std::str::FromStr for Info {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.strip_prefix("conduit+").unwrap_or(text);
        let (protocol, host) = match text.split_once(':') {
            None => (text, ""),
            Some((protocol, rest)) => match rest.strip_prefix("//") {
                Some(host) => (protocol, host),
                None => {
                    return Err(Error::Refused(format!(
                        "{text}: expected \"//\" after \"{protocol}:\""
                    )));
                }
            },
        };
        Ok(Self {
            protocol: Protocol::of(protocol)
                .ok_or_else(|| Error::UnknownProtocol(protocol.to_owned()))?,
            host: Some(host.to_owned()).filter(|host| !host.is_empty()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_strings_name_protocol_and_host() {
        let read = |text: &str| text.parse::<Info>();
        let info = |protocol, host: Option<&str>| {
            Ok(Info {
                protocol,
                host: host.map(str::to_owned),
            })
        };
        assert_eq!(read("conduit"), info(Protocol::Conduit, None));
        assert_eq!(read("conduit+udp"), info(Protocol::Udp, None));
        assert_eq!(read("udp://"), info(Protocol::Udp, None));
        let udp = info(Protocol::Udp, Some("eth0:4000"));
        assert_eq!(read("conduit+udp://eth0:4000"), udp);
        let v6 = info(Protocol::Ofi, Some("[::1]:7"));
        assert_eq!(read("ofi://[::1]:7"), v6);
        assert_eq!(
            read("tcp://x"),
            Err(Error::UnknownProtocol("tcp".to_owned()))
        );
        assert!(matches!(read("udp:eth0"), Err(Error::Refused(_))));
    }
}
