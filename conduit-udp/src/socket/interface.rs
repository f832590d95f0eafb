//! Chooses the interface of a rank.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use conduit_portals::host::Subnet;

use super::system;

/// An address of this host, and the interface that has the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The interface's index, which is the scope of link-local addresses.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// The length of the subnet's prefix in bits.
    pub prefix: u8,
    /// Whether the interface is up.
    pub up: bool,
    /// The MTU, which is the size of the largest IP packet in bytes, or `None` if it is unknown.
    pub mtu: Option<usize>,
    /// Whether the interface is a bridge or a tunnel. Such an interface connects containers,
    /// virtual machines or a private network, and most likely not the hosts of a job.
    pub is_virtual: bool,
}

/// The drivers of virtual interfaces.
const VIRTUAL: [&str; 3] = ["bridge", "tun", "wireguard"];

impl Interface {
    fn is_link_local(&self) -> bool {
        match self.address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        }
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.name, self.address, self.prefix)?;
        if !self.up {
            f.write_str(" (down)")?;
        }
        Ok(())
    }
}

/// Returns the addresses of this host, in the system's order.
///
/// # Errors
/// Returns the system's error if the addresses cannot be listed.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    Ok(if_addrs::get_if_addrs()?
        .into_iter()
        .map(|interface| {
            let prefix = match &interface.addr {
                if_addrs::IfAddr::V4(address) => address.prefixlen,
                if_addrs::IfAddr::V6(address) => address.prefixlen,
            };
            Interface {
                index: interface.index.unwrap_or(0),
                address: interface.ip(),
                prefix,
                up: interface.is_oper_up(),
                mtu: system::mtu(&interface.name).ok(),
                is_virtual: system::driver(&interface.name)
                    .is_ok_and(|driver| VIRTUAL.contains(&&*driver)),
                name: interface.name,
            }
        })
        .collect())
}

/// Returns the source address of this host's default route, if it has one. Sends no packets.
pub fn default_source() -> Option<IpAddr> {
    // The destinations are reserved for documentation. Connecting a datagram socket only looks up
    // the route.
    let v4 = (
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9)),
    );
    let v6 = (
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        SocketAddr::from((Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9)),
    );
    [v4, v6].into_iter().find_map(|(from, to)| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    })
}

/// The reason why no interface was chosen. The text lists the existing interfaces.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChooseError {
    /// A word is neither the name of an interface nor an address or subnet.
    #[error("{word:?} is neither an interface of this host nor an address or a subnet such as 10.0.0.0/24; interfaces: {}", list(.exist))]
    Word {
        /// The word.
        word: String,
        /// The interfaces that exist.
        exist: Vec<Interface>,
    },
    /// No word matches an interface that is up.
    #[error("no interface that is up matches {words:?}; interfaces: {}", list(.exist))]
    None {
        /// The words.
        words: String,
        /// The interfaces that exist.
        exist: Vec<Interface>,
    },
    /// No interface is up.
    #[error("no interface of this host is up; interfaces: {}", list(.exist))]
    Nothing {
        /// The interfaces that exist.
        exist: Vec<Interface>,
    },
}

/// Formats interfaces as a list.
pub fn list(interfaces: &[Interface]) -> String {
    if interfaces.is_empty() {
        return "none".to_owned();
    }
    let texts: Vec<String> = interfaces.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// The selection that a word makes.
enum Word<'a> {
    Name(&'a str),
    Subnet(Subnet),
}

impl<'a> Word<'a> {
    fn parse(word: &'a str, exist: &[Interface]) -> Option<Self> {
        if exist.iter().any(|interface| interface.name == word) {
            return Some(Self::Name(word));
        }
        let subnet = match word.split_once('/') {
            Some((address, bits)) => Subnet::parse(address, Some(bits)),
            None => Subnet::parse(word, None),
        };
        subnet.map(Self::Subnet)
    }

    fn fits(&self, interface: &Interface) -> bool {
        match *self {
            Self::Name(name) => interface.name == name,
            Self::Subnet(subnet) => subnet.contains(interface.address),
        }
    }
}

/// Chooses an interface according to `words`, which contains names, addresses and subnets separated
/// by commas, in order of preference. Among an interface's addresses, IPv4 is preferred to IPv6,
/// and link-local addresses come last.
///
/// If `words` contains no words, chooses the interface of `source` (see [`default_source`]). If
/// there is no such interface, prefers interfaces other than loopback, then those that are not
/// virtual, then addresses that are not link-local, and then IPv4 to IPv6.
///
/// # Errors
/// Returns a [`ChooseError`], which lists all of `exist`.
pub fn choose<'a>(
    exist: &'a [Interface],
    words: &str,
    source: Option<IpAddr>,
) -> Result<&'a Interface, ChooseError> {
    let words: Vec<&str> = words
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .collect();
    let up = || exist.iter().filter(|interface| interface.up);
    if words.is_empty() {
        return up()
            .find(|interface| Some(interface.address) == source)
            .or_else(|| {
                up().min_by_key(|interface| {
                    (
                        interface.address.is_loopback(),
                        interface.is_virtual,
                        interface.is_link_local(),
                        interface.address.is_ipv6(),
                    )
                })
            })
            .ok_or_else(|| ChooseError::Nothing {
                exist: exist.to_vec(),
            });
    }
    for word in &words {
        let wanted = Word::parse(word, exist).ok_or_else(|| ChooseError::Word {
            word: (*word).to_owned(),
            exist: exist.to_vec(),
        })?;
        let found = up()
            .filter(|interface| wanted.fits(interface))
            .min_by_key(|interface| (interface.is_link_local(), interface.address.is_ipv6()));
        if let Some(found) = found {
            return Ok(found);
        }
    }
    Err(ChooseError::None {
        words: words.join(","),
        exist: exist.to_vec(),
    })
}
