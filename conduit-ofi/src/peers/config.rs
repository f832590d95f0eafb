//! The configuration of a process's end of the network, with the provider, interface, port and
//! secret.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use conduit_portals::host::Subnet;
use libfabric_sys::Library;
use seal::{Protection, Secret};

use crate::library::Which;
use crate::provider::{Hints, Offer, offers};
use crate::wire::WireConfig;

/// The configuration of a process's end of the network.
#[derive(Debug)]
pub struct OpenConfig {
    /// The libfabric to load.
    pub library: Which,
    /// A provider's name as printed by `fi_info`. The part before the `;` suffices. By default,
    /// `tcp` is used if it is available, and otherwise the best provider.
    pub provider: Option<String>,
    /// An interface or domain of the provider, an IP address or a host name, optionally followed by
    /// `:PORT`, or only `:PORT`.
    pub host: Option<String>,
    /// The subnet, as `ADDRESS/BITS`, that is preferred where `host` leaves a choice.
    pub subnet: Option<String>,
    /// The secret shared by all processes that may begin a session. If there is one, frames carry
    /// tags, which only the two ends of a session can compute. If this is `None`, every process
    /// that can reach the endpoint is admitted. Frames then have no tags unless they are encrypted,
    /// so an attacker who reads the traffic can forge frames.
    pub secret: Option<Secret>,
    /// Whether to encrypt all frames. All processes must use the same value.
    pub encrypt: bool,
    /// The maximum number of peers that are known at the same time.
    pub max_peers: u32,
    /// The sizes of the endpoint, and the duration of silence after which a peer is dead.
    pub wire: WireConfig,
}

impl OpenConfig {
    /// Creates a configuration with default values.
    pub fn new(secret: Option<Secret>) -> Self {
        Self {
            library: Which::default(),
            provider: None,
            host: None,
            subnet: None,
            secret,
            encrypt: false,
            max_peers: 4096,
            wire: WireConfig::default(),
        }
    }

    pub(super) fn protection(&self) -> Option<Protection> {
        match (&self.secret, self.encrypt) {
            (_, true) => Some(Protection::Encrypt),
            (Some(_), false) => Some(Protection::Authenticate),
            (None, false) => None,
        }
    }
}

/// The reason why a process's end of the network could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No usable libfabric was found.
    #[error("libfabric is unusable: {reason} (setting CONDUIT_OFI_LIBRARY)")]
    Library {
        /// The libraries tried, and why they are unusable.
        reason: String,
    },
    /// No provider is suitable.
    #[error("{reason}; available: {offered} (setting CONDUIT_OFI_PROVIDER)")]
    Provider {
        /// The requirements.
        reason: String,
        /// The available providers.
        offered: String,
    },
    /// The given host, interface or port is unusable.
    #[error("host \"{host}\": {reason}")]
    Host {
        /// The host as given.
        host: String,
        /// The problem with it.
        reason: String,
    },
    /// The given subnet is unusable.
    #[error("subnet \"{subnet}\": {reason}")]
    Subnet {
        /// The subnet as given.
        subnet: String,
        /// The problem with it.
        reason: &'static str,
    },
    /// The provider refused a call.
    #[error("{provider}: {operation}: {reason}{place}")]
    Refused {
        /// The provider.
        provider: String,
        /// The call.
        operation: &'static str,
        /// The provider's reason.
        reason: String,
        /// The provider's error number, if any, which is an `errno` of the system.
        error: Option<i32>,
        /// The requested host and port, in the form in which the message ends with them.
        place: String,
    },
}

/// The requested place of a process's endpoint.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) name: &'a str,
    pub(super) port: Option<u16>,
}

impl<'a> Place<'a> {
    /// Parses `NAME`, `NAME:PORT`, `:PORT`, `[ADDRESS]:PORT` or an address.
    pub(super) fn of(host: &'a str) -> Result<Self, OpenError> {
        let error = |reason: &str| OpenError::Host {
            host: host.to_owned(),
            reason: reason.to_owned(),
        };
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if host.parse::<IpAddr>().is_err() && !host.ends_with(']') => {
                (name, Some(port))
            }
            _ => (host, None),
        };
        let port = port.map(str::parse).transpose();
        let port = port.map_err(|_| error("no port number after the colon"))?;
        match (name.strip_prefix('['), name.strip_suffix(']')) {
            (None, None) => Ok(Self { name, port }),
            (Some(_), Some(_)) => {
                let name = name.trim_matches(['[', ']']);
                Ok(Self { name, port })
            }
            _ => Err(error("unbalanced brackets")),
        }
    }
}

/// Parses `ADDRESS/BITS`.
fn subnet(text: &str) -> Result<Subnet, OpenError> {
    let parts = text.split_once('/');
    let subnet = parts.and_then(|(address, bits)| Subnet::parse(address, Some(bits)));
    subnet.ok_or_else(|| OpenError::Subnet {
        subnet: text.to_owned(),
        reason: "must be ADDRESS/BITS",
    })
}

/// Returns the best offer for this configuration, with the configured port.
pub(super) fn choose(library: &Library, config: &OpenConfig) -> Result<Offer, OpenError> {
    let hints = Hints {
        provider: config.provider.clone(),
        // Other processes may belong to other users or jobs, so they must not get access to memory.
        messages_only: true,
        ..Hints::default()
    };
    let host = config.host.as_deref().unwrap_or_default();
    let place = Place::of(host)?;
    let mut found: Vec<_> = offers(library, &hints)
        .into_iter()
        .filter(|offer| offer.matches(&hints))
        .collect();
    if found.is_empty() {
        let all = offers(library, &Hints::default());
        let all: Vec<_> = all.iter().map(|offer| format!("{offer:?}")).collect();
        return Err(OpenError::Provider {
            reason: match &config.provider {
                Some(name) => format!("no provider {name} is suitable"),
                None => "no provider is suitable".to_owned(),
            },
            offered: match all.is_empty() {
                true => "none with reliable endpoints and ordered messages".to_owned(),
                false => all.join(", "),
            },
        });
    }
    if !place.name.is_empty() {
        keep_named(&mut found, host, place.name)?;
    }
    let preferred = config.subnet.as_deref().map(subnet).transpose()?;
    // The sort is stable, so equal offers keep the library's order.
    let mut ranked = Vec::with_capacity(found.len());
    for offer in found {
        let is_preferred = (preferred.zip(offer.source()))
            .is_some_and(|(subnet, source)| subnet.contains(source.ip()));
        ranked.push((!is_preferred, offer.open_rank(), offer));
    }
    ranked.sort_by_key(|(is_other, rank, _)| (*is_other, *rank));
    let Some((_, _, mut offer)) = ranked.into_iter().next() else {
        return Err(OpenError::Host {
            host: host.to_owned(),
            reason: "no interface or host has this name".to_owned(),
        });
    };
    if let Some(port) = place.port
        && !offer.set_port(port)
    {
        return Err(OpenError::Host {
            host: host.to_owned(),
            reason: format!("{offer:?} has no ports"),
        });
    }
    Ok(offer)
}

/// Keeps the offers whose domain has this name or, if there are none, those whose address is or has
/// this name.
fn keep_named(found: &mut Vec<Offer>, host: &str, name: &str) -> Result<(), OpenError> {
    if found.iter().any(|offer| offer.domain() == name) {
        found.retain(|offer| offer.domain() == name);
        return Ok(());
    }
    let addresses: Vec<IpAddr> = match name.parse() {
        Ok(address) => vec![address],
        Err(_) => (name, 0)
            .to_socket_addrs()
            .map_err(|error| OpenError::Host {
                host: host.to_owned(),
                reason: format!("neither an interface of a provider nor a host: {error}"),
            })?
            .map(|address: SocketAddr| address.ip())
            .collect(),
    };
    found.retain(|offer| {
        let source = offer.source();
        source.is_some_and(|source| addresses.contains(&source.ip()))
    });
    match found.is_empty() {
        true => Err(OpenError::Host {
            host: host.to_owned(),
            reason: "no interface of a provider has this address".to_owned(),
        }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_and_perhaps_a_port() {
        for (text, name, port) in [
            ("", "", None),
            ("eth0", "eth0", None),
            ("eth0:17", "eth0", Some(17)),
            (":17", "", Some(17)),
            ("10.0.0.1:5", "10.0.0.1", Some(5)),
            ("::1", "::1", None),
            ("[::1]:5", "::1", Some(5)),
            ("[::1]", "::1", None),
        ] {
            assert_eq!(Place::of(text).unwrap(), Place { name, port }, "{text}");
        }
        for text in ["eth0:", "eth0:x", "eth0:65536", "[::1:5"] {
            let error = Place::of(text).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
