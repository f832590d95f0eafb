//! How a process opens its end of the network: provider, interface, port, secret.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use conduit_portals::host::Subnet;
use libfabric_sys::Library;
use seal::{Protection, Secret};

use crate::library::Which;
use crate::provider::{Hints, Offer, offers};
use crate::wire::WireConfig;

/// What is set for a process's end of the network.
#[derive(Debug)]
pub struct OpenConfig {
    /// Which libfabric to load.
    pub library: Which,
    /// A provider's name, as `fi_info` writes it; the part before the `;` suffices. Otherwise `tcp`
    /// if there is one, else the best one.
    pub provider: Option<String>,
    /// An interface or domain of the provider, an IP address or a host's name, and perhaps `:PORT`;
    /// or only that.
    pub host: Option<String>,
    /// The network that is preferred where `host` leaves a choice: `ADDRESS/BITS`.
    pub subnet: Option<String>,
    /// The secret of all that may begin a session; frames then have tags, which only the two ends
    /// can make. `None`: everybody who can reach the endpoint may; frames have no tag, unless they
    /// are encrypted, so whoever can read what goes over the wire can make frames.
    pub secret: Option<Secret>,
    /// Encrypt what is sent. All have to set the same.
    pub encrypt: bool,
    /// Peers that may be known at a time.
    pub max_peers: u32,
    /// Sizes of the endpoint, and the time after which a silent peer is dead.
    pub wire: WireConfig,
}

impl OpenConfig {
    /// Defaults.
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

/// Why a process's end of the network could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no libfabric.
    #[error("libfabric can't be used: {reason} (setting CONDUIT_OFI_LIBRARY)")]
    Library {
        /// What was looked for, and why it can't be used.
        reason: String,
    },
    /// No provider will do.
    #[error("{reason}; on offer: {offered} (setting CONDUIT_OFI_PROVIDER)")]
    Provider {
        /// What was asked for.
        reason: String,
        /// What there is.
        offered: String,
    },
    /// The host, interface or port that was named.
    #[error("host \"{host}\": {reason}")]
    Host {
        /// As it was named.
        host: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The network that was named.
    #[error("subnet \"{subnet}\": {reason}")]
    Subnet {
        /// As it was named.
        subnet: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The provider refused something.
    #[error("{provider}: {operation}: {reason}{place}")]
    Refused {
        /// The provider.
        provider: String,
        /// The call.
        operation: &'static str,
        /// Its reason.
        reason: String,
        /// Its error number, which is one of the system's, if it gave one.
        error: Option<i32>,
        /// The host and port that were asked for.
        place: String,
    },
}

/// Where a process wants its endpoint.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) name: &'a str,
    pub(super) port: Option<u16>,
}

impl<'a> Place<'a> {
    /// `NAME`, `NAME:PORT`, `:PORT`, `[ADDRESS]:PORT` or an address.
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
        let port = port.map_err(|_| error("what is behind the colon is no port"))?;
        match (name.strip_prefix('['), name.strip_suffix(']')) {
            (None, None) => Ok(Self { name, port }),
            (Some(_), Some(_)) => {
                let name = name.trim_matches(['[', ']']);
                Ok(Self { name, port })
            }
            _ => Err(error("it has one bracket")),
        }
    }
}

/// Parses `ADDRESS/BITS`.
fn subnet(text: &str) -> Result<Subnet, OpenError> {
    let parts = text.split_once('/');
    let subnet = parts.and_then(|(address, bits)| Subnet::parse(address, Some(bits)));
    subnet.ok_or_else(|| OpenError::Subnet {
        subnet: text.to_owned(),
        reason: "it is not ADDRESS/BITS",
    })
}

/// The best offer for this configuration, with the port that it names.
pub(super) fn choose(library: &Library, config: &OpenConfig) -> Result<Offer, OpenError> {
    let hints = Hints {
        provider: config.provider.clone(),
        // Processes that are not of one user, or not of one job, get no access to memory.
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
                Some(name) => format!("no provider {name} will do"),
                None => "no provider will do".to_owned(),
            },
            offered: match all.is_empty() {
                true => "none that has reliable endpoints with messages in order".to_owned(),
                false => all.join(", "),
            },
        });
    }
    if !place.name.is_empty() {
        keep_named(&mut found, host, place.name)?;
    }
    let preferred = config.subnet.as_deref().map(subnet).transpose()?;
    // Stable: among equals the library's order counts.
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
            reason: "nothing has this name".to_owned(),
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

/// Keeps the offers with a domain, an address or a host of this name.
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
                reason: format!("it is no interface of a provider, and no host: {error}"),
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
