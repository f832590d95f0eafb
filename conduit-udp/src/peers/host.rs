//! The address at which a process listens, as its user specifies it: `10.0.0.1:4567`, `eth0`,
//! `[fd00::1]`, `:4567`, a name of this host, or nothing.

use std::net::{IpAddr, ToSocketAddrs};

use super::error::OpenError;
use crate::socket::{Interface, choose};

/// The family of IP addresses to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Family {
    /// Either family. IPv4 is preferred to IPv6.
    #[default]
    Any,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Splits a text into a host and a port, either of which may be missing. Returns port 0 if any port
/// may be used.
pub(super) fn parse(text: &str) -> Result<(&str, u16), OpenError> {
    let refused = |reason| OpenError::Host {
        host: text.to_owned(),
        reason,
    };
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, "")) => (host, None),
            Some((host, port)) => match port.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None => return Err(refused("no port follows its bracket".to_owned())),
            },
            None => return Err(refused("its bracket is not closed".to_owned())),
        },
        None => match text.split_once(':') {
            // The text is an IPv6 address without a port.
            Some((_, rest)) if rest.contains(':') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        None | Some("") => 0,
        Some(port) => port
            .parse()
            .map_err(|_| refused(format!("{port:?} is not a port")))?,
    };
    Ok((host, port))
}

/// Returns the interface that `host` selects. `lookup` resolves the name of a host to addresses.
pub(super) fn find(
    exist: &[Interface],
    host: &str,
    subnet: Option<&str>,
    family: Family,
    source: Option<IpAddr>,
    lookup: impl Fn(&str) -> std::io::Result<Vec<IpAddr>>,
) -> Result<Interface, OpenError> {
    let refused = |reason| OpenError::Host {
        host: host.to_owned(),
        reason,
    };
    let is_wanted = |ip: IpAddr| match family {
        Family::Any => true,
        Family::V4 => ip.is_ipv4(),
        Family::V6 => ip.is_ipv6(),
    };
    let fit: Vec<Interface> = exist
        .iter()
        .filter(|interface| is_wanted(interface.address))
        .cloned()
        .collect();
    let chosen = |words: &str, fit: &[Interface]| match choose(fit, words, source) {
        Ok(interface) => Ok(interface.clone()),
        Err(error) => Err(error.to_string()),
    };
    let within = |fit: &[Interface]| match subnet {
        // Only interfaces in this subnet are considered.
        Some(subnet) => chosen(subnet, fit),
        None => chosen("", fit),
    };
    let by_name: Vec<Interface> = fit
        .iter()
        .filter(|interface| interface.name == host)
        .cloned()
        .collect();
    if !by_name.is_empty() {
        return match within(&by_name) {
            Ok(interface) => Ok(interface),
            Err(_) => chosen(host, &by_name).map_err(refused),
        };
    }
    if host.is_empty() {
        return within(&fit).map_err(|reason| match subnet {
            Some(subnet) => OpenError::Subnet {
                subnet: subnet.to_owned(),
                reason,
            },
            None => refused(reason),
        });
    }
    let addresses = match host.parse::<IpAddr>() {
        Ok(ip) => vec![ip],
        Err(_) => lookup(host).map_err(|error| {
            let names: Vec<&str> = exist.iter().map(|one| one.name.as_str()).collect();
            refused(format!(
                "it is neither an interface of this host ({}) nor an address, and cannot be resolved as a name: {error}",
                names.join(", ")
            ))
        })?,
    };
    if let [ip] = addresses[..]
        && ip.is_unspecified()
    {
        // The unspecified address selects any interface. However, this process's address is sent to
        // other processes, so it must be an address of this host in the same family.
        let same: Vec<Interface> = fit
            .into_iter()
            .filter(|interface| interface.address.is_ipv4() == ip.is_ipv4())
            .collect();
        return within(&same).map_err(refused);
    }
    let own: Vec<Interface> = addresses
        .iter()
        .flat_map(|ip| fit.iter().filter(move |one| one.address == *ip))
        .cloned()
        .collect();
    match own.first() {
        Some(first) => Ok(within(&own).unwrap_or_else(|_| first.clone())),
        // All addresses of 127.0.0.0/8 belong to this host.
        None => addresses
            .iter()
            .filter(|ip| ip.is_loopback() && is_wanted(**ip))
            .find_map(|ip| {
                let loopback = exist.iter().find(|one| one.address.is_loopback())?;
                Some(Interface {
                    address: *ip,
                    ..loopback.clone()
                })
            })
            .ok_or_else(|| {
                let list: Vec<String> = fit.iter().map(ToString::to_string).collect();
                refused(format!(
                    "no interface of this host has its address; interfaces: {}",
                    list.join(", ")
                ))
            }),
    }
}

/// Returns the addresses that the system finds for a host's name.
pub(super) fn lookup(host: &str) -> std::io::Result<Vec<IpAddr>> {
    Ok((host, 0)
        .to_socket_addrs()?
        .map(|address| address.ip())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interfaces() -> Vec<Interface> {
        [
            ("lo", "127.0.0.1", 8),
            ("eth0", "10.0.0.1", 24),
            ("eth0", "fd00::1", 64),
            ("eth1", "10.0.1.1", 24),
        ]
        .into_iter()
        .zip(1..)
        .map(|((name, address, prefix), index)| Interface {
            name: name.to_owned(),
            index,
            address: address.parse().unwrap(),
            prefix,
            up: true,
            mtu: Some(1500),
            is_virtual: false,
        })
        .collect()
    }

    fn found(host: &str, subnet: Option<&str>, family: Family) -> String {
        let lookup = |name: &str| match name {
            "here" => Ok(vec!["10.0.1.1".parse().unwrap()]),
            "there" => Ok(vec!["10.9.9.9".parse().unwrap()]),
            _ => Err(std::io::Error::other("no such name")),
        };
        let source = Some("10.0.0.1".parse().unwrap());
        match find(&interfaces(), host, subnet, family, source, lookup) {
            Ok(interface) => interface.address.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn host_and_port_are_told_apart() {
        for (text, host, port) in [
            ("", "", 0),
            (":80", "", 80),
            ("eth0", "eth0", 0),
            ("eth0:80", "eth0", 80),
            ("10.0.0.1:80", "10.0.0.1", 80),
            ("[fd00::1]:80", "fd00::1", 80),
            ("[fd00::1]", "fd00::1", 0),
            ("fd00::1", "fd00::1", 0),
            ("eth0:", "eth0", 0),
        ] {
            assert_eq!(parse(text).unwrap(), (host, port), "{text}");
        }
        for text in ["eth0:x", "eth0:70000", "[fd00::1", "[fd00::1]80", "a:-1"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn interfaces_addresses_names_and_subnets_choose() {
        for (host, subnet, family, address) in [
            ("", None, Family::Any, "10.0.0.1"),
            ("", None, Family::V6, "fd00::1"),
            ("", Some("10.0.1.0/24"), Family::Any, "10.0.1.1"),
            ("eth1", None, Family::Any, "10.0.1.1"),
            ("eth1", Some("10.0.0.0/24"), Family::Any, "10.0.1.1"),
            ("eth0", None, Family::V6, "fd00::1"),
            ("eth0", Some("fd00::/16"), Family::Any, "fd00::1"),
            ("10.0.0.1", None, Family::Any, "10.0.0.1"),
            ("0.0.0.0", None, Family::Any, "10.0.0.1"),
            ("::", None, Family::Any, "fd00::1"),
            ("here", None, Family::Any, "10.0.1.1"),
            ("127.0.0.9", None, Family::Any, "127.0.0.9"),
        ] {
            assert_eq!(found(host, subnet, family), address, "{host} {subnet:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (host, subnet, family, words) in [
            ("eth7", None, Family::Any, "eth7"),
            ("there", None, Family::Any, "there"),
            ("10.0.0.2", None, Family::Any, "10.0.0.2"),
            ("eth1", None, Family::V6, "eth1"),
            ("", Some("10.7.0.0/16"), Family::Any, "10.7.0.0/16"),
            ("", Some("x"), Family::Any, "\"x\""),
        ] {
            let error = found(host, subnet, family);
            assert!(error.contains(words), "{host} {subnet:?}: {error}");
            assert!(error.parse::<IpAddr>().is_err());
        }
    }
}
