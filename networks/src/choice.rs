//! Chooses the networks of a job.

use std::fmt;

use conduit_core::ni::Rank;
use conduit_ofi::settings::Settings as OfiSettings;
use conduit_portals::portals4;
use conduit_portals::portals4::settings::Settings as Portals4Settings;

use crate::settings::NetworkSettings;
use crate::{Error, Hosts, Result};

/// Returns the known networks. Each comes with `Ok` if it can be used on this host, and otherwise
/// with the reason why not. The call tries to load libfabric and libportals.
pub fn available_networks() -> Vec<(&'static str, Result<(), String>)> {
    let (ofi, portals4) = (OfiSettings::default(), Portals4Settings::default());
    ["shm", "udp", "ofi", "portals4"]
        .map(|name| (name, usable_here(name, &ofi, &portals4)))
        .into()
}

/// Returns `Ok` if a network can be used here, and otherwise the reason why not.
fn usable_here(name: &str, ofi: &OfiSettings, portals4: &Portals4Settings) -> Result<(), String> {
    match name {
        "ofi" => ofi.which().load().map(drop),
        "portals4" => portals4::start::library(portals4.library.as_deref()).map(drop),
        _ => Ok(()),
    }
}

/// A network between hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetworkKind {
    Udp,
    Ofi,
    Portals4,
}

impl fmt::Display for NetworkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "udp",
            Self::Ofi => "ofi",
            Self::Portals4 => "portals4",
        })
    }
}

/// The networks that carry a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Shared memory alone: all ranks are on one host.
    IntraHost,
    /// These ranks, which include this one, communicate over shared memory. A network between hosts
    /// of the given kind carries the traffic to all other ranks.
    Both(Vec<Rank>, NetworkKind),
}

/// Chooses among the networks that `CONDUIT_NETWORK` allows. All ranks choose the same kind of
/// network.
///
/// # Errors
/// Returns [`Error::NoNetwork`] if no allowed network can carry the job.
pub(crate) fn choose(settings: NetworkSettings<'_>, hosts: &Hosts, rank: Rank) -> Result<Choice> {
    let mut reasons = Vec::new();
    let asked = settings.networks.networks.as_deref();
    let position = |network: &str| asked?.iter().position(|name| name == network);
    let mut usable = |name: &str| {
        settings.networks.allows_network(name)
            && match usable_here(name, settings.ofi, settings.portals4) {
                Ok(()) => true,
                Err(reason) => {
                    reasons.push(format!("{name}: {reason}"));
                    false
                }
            }
    };
    let intra = usable("shm");
    let mut kinds = [NetworkKind::Udp, NetworkKind::Ofi, NetworkKind::Portals4]
        .map(|kind| (kind, kind.to_string()));
    kinds.sort_by_key(|(_, name)| position(name));
    // A library is loaded only if its network is named, because loading it runs its initialisers
    // and, in libfabric's case, those of all providers.
    let inter = (kinds.into_iter())
        .filter(|(kind, name)| *kind == NetworkKind::Udp || position(name).is_some())
        .filter(|(_, name)| usable(name))
        .map(|(kind, _)| kind)
        .collect::<Vec<_>>();
    // The network named first wins.
    let inter = inter.first().copied();
    if intra && hosts.count() == 1 {
        return Ok(Choice::IntraHost);
    }
    if let Some(inter) = inter {
        let neighbours = match intra {
            true => hosts.members().collect(),
            false => vec![rank],
        };
        return Ok(Choice::Both(neighbours, inter));
    }
    if intra {
        let other = (0..).find(|other| hosts.host_of(*other) != hosts.host_of(0));
        let name = |rank| hosts.host_of(rank).map_or("", |host| hosts.name(host));
        let other = other.unwrap_or(0);
        reasons.push(format!(
            "shm: reaches only ranks of one host, but the job has {} hosts: rank 0 on {}, rank {other} on {}",
            hosts.count(),
            name(0),
            name(other)
        ));
    }
    Err(Error::NoNetwork {
        asked: match &settings.networks.networks {
            Some(asked) => asked.join(","),
            None => "(unset)".to_owned(),
        },
        reason: reasons.join("; "),
    })
}

#[cfg(test)]
mod tests {
    use super::{Choice, Hosts, NetworkKind, NetworkSettings, OfiSettings, Result};
    use crate::settings::Settings;

    fn among(networks: &[&str]) -> Settings {
        let networks = networks.iter().map(|name| (*name).to_owned()).collect();
        Settings {
            networks: Some(networks),
            ..Settings::default()
        }
    }

    /// Chooses for rank 0 with these settings, and with this libfabric if one is given.
    fn choose(networks: &Settings, library: Option<&str>, hosts: &Hosts) -> Result<Choice> {
        let ofi = OfiSettings {
            library: library.map(str::to_owned),
            ..OfiSettings::default()
        };
        let settings = NetworkSettings {
            engine: &Default::default(),
            networks,
            shm: &Default::default(),
            ofi: &ofi,
            portals4: &Default::default(),
            udp: &Default::default(),
        };
        super::choose(settings, hosts, 0)
    }

    #[test]
    fn ranks_of_a_host_share_memory_unless_told_otherwise() {
        let (one, two) = (Hosts::new(0, ["a", "a"]), Hosts::new(0, ["a", "b", "a"]));
        let any = Settings::default();
        assert_eq!(choose(&any, None, &one).unwrap(), Choice::IntraHost);
        assert_eq!(
            choose(&any, None, &two).unwrap(),
            Choice::Both(vec![0, 2], NetworkKind::Udp)
        );
        let both = among(&["shm", "udp"]);
        assert_eq!(
            choose(&both, None, &two).unwrap(),
            Choice::Both(vec![0, 2], NetworkKind::Udp)
        );
        let shm = among(&["shm"]);
        assert_eq!(choose(&shm, None, &one).unwrap(), Choice::IntraHost);
        let udp = among(&["udp"]);
        for hosts in [one, two] {
            assert_eq!(
                choose(&udp, None, &hosts).unwrap(),
                Choice::Both(vec![0], NetworkKind::Udp)
            );
        }
    }

    #[test]
    fn who_is_left_without_a_network_hears_why() {
        const MISSING: Option<&str> = Some("/no/such/libfabric.so");
        let hosts = Hosts::new(0, ["a", "a", "b"]);
        let refused = |networks: &[&str]| {
            let error = choose(&among(networks), MISSING, &hosts).unwrap_err();
            error.to_string()
        };
        let alone = refused(&["shm"]);
        assert!(
            alone.contains("rank 0 on a, rank 2 on b") && alone.contains("CONDUIT_NETWORK=shm"),
            "{alone}"
        );
        let neither = refused(&["ofi", "shm"]);
        assert!(
            neither.contains("ofi: ")
                && neither.contains("/no/such/libfabric.so")
                && neither.contains("shm: "),
            "{neither}"
        );
        // The first named network is missing here, so the other one is used.
        assert_eq!(
            choose(&among(&["ofi", "udp"]), MISSING, &hosts).unwrap(),
            Choice::Both(vec![0], NetworkKind::Udp)
        );
    }
}
