//! The choice of networks.

pub mod mixed;

use conduit_core::ni::{Ni, Rank};
use conduit_core::settings::Settings;
use conduit_core::threads::Mode;
use conduit_portals::shm::Shm;
use conduit_udp::Udp;
use conduit_udp::start::UdpCounters;

use crate::start::Hosts;
use crate::{Error, Result};
use mixed::Mixed;

/// The network under every rank of this build.
pub type Network<M> = Mixed<Shm<M>, Udp<M>, M>;

impl<M: Mode> Network<M> {
    /// Says that this rank's process is about to end as it should: peers then don't take it for dead. Waits for a bounded time
    /// until those of other hosts have what it has sent.
    pub(crate) fn leave(&self, statistics: bool) {
        self.near().leave();
        if let Some(far) = self.far() {
            far.leave();
            if statistics {
                let counters = far.counters(UdpCounters::of);
                eprint!("{}", counters.report(far.rank()));
            }
        }
    }
}

/// The networks that this build has, and for each other known name why it is not there.
pub fn available_networks() -> Vec<(&'static str, Result<(), String>)> {
    vec![
        ("shm", Ok(())),
        ("udp", Ok(())),
        (
            "ofi",
            conduit_ofi::start::library(&conduit_ofi::start::Which::Any).map(drop),
        ),
        (
            "portals4",
            Err("this version has no network over Portals 4 yet".to_owned()),
        ),
    ]
}

/// Which networks carry a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Shared memory alone: all ranks are on one host.
    Near,
    /// Shared memory between these ranks, of which this is one, and UDP to all others.
    Both(Vec<Rank>),
}

/// Chooses among the networks that `CONDUIT_NETWORK` allows. The same kind on every rank.
///
/// # Errors
/// No network that is allowed and there can carry the job.
pub(crate) fn choose(settings: &Settings, hosts: &Hosts, rank: Rank) -> Result<Choice> {
    let mut reasons = Vec::new();
    let all = available_networks();
    let mut usable = |name: &str| {
        let there = all.iter().find(|(known, _)| *known == name);
        match there {
            Some((_, there)) if settings.allows_network(name) => match there {
                Ok(()) => true,
                Err(reason) => {
                    reasons.push(format!("{name}: {reason}"));
                    false
                }
            },
            _ => false,
        }
    };
    let (near, far) = (usable("shm"), usable("udp"));
    for name in ["ofi", "portals4"] {
        usable(name);
    }
    if near && hosts.count() == 1 {
        return Ok(Choice::Near);
    }
    if far {
        return Ok(Choice::Both(match near {
            true => hosts.members().collect(),
            false => vec![rank],
        }));
    }
    if near {
        let other = (0..).find(|other| hosts.host_of(*other) != hosts.host_of(0));
        let name = |rank| hosts.host_of(rank).map_or("", |host| hosts.name(host));
        let other = other.unwrap_or(0);
        reasons.push(format!(
            "shm: it reaches ranks of one host only, and the job's are on {}: rank 0 on {}, rank {other} on {}",
            hosts.count(),
            name(0),
            name(other)
        ));
    }
    Err(Error::NoNetwork {
        asked: match &settings.networks {
            Some(asked) => asked.join(","),
            None => "(unset)".to_owned(),
        },
        reason: reasons.join("; "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(networks: &[&str]) -> Settings {
        let networks = networks.iter().map(|name| (*name).to_owned()).collect();
        Settings {
            networks: Some(networks),
            ..Settings::default()
        }
    }

    #[test]
    fn ranks_of_a_host_share_memory_unless_told_otherwise() {
        let (one, two) = (Hosts::named(&["a", "a"]), Hosts::named(&["a", "b", "a"]));
        let any = Settings::default();
        assert_eq!(choose(&any, &one, 0).unwrap(), Choice::Near);
        assert_eq!(choose(&any, &two, 0).unwrap(), Choice::Both(vec![0, 2]));
        let both = settings(&["shm", "udp"]);
        assert_eq!(choose(&both, &two, 0).unwrap(), Choice::Both(vec![0, 2]));
        let shm = settings(&["shm"]);
        assert_eq!(choose(&shm, &one, 0).unwrap(), Choice::Near);
        let udp = settings(&["ofi", "udp"]);
        for hosts in [one, two] {
            assert_eq!(choose(&udp, &hosts, 0).unwrap(), Choice::Both(vec![0]));
        }
    }

    #[test]
    fn who_is_left_without_a_network_hears_why() {
        let hosts = Hosts::named(&["a", "a", "b"]);
        let refused = |networks: &[&str]| {
            let error = choose(&settings(networks), &hosts, 0).unwrap_err();
            error.to_string()
        };
        let alone = refused(&["shm"]);
        assert!(
            alone.contains("rank 0 on a, rank 2 on b") && alone.contains("CONDUIT_NETWORK=shm"),
            "{alone}"
        );
        let neither = refused(&["ofi", "portals4"]);
        assert!(
            neither.contains("ofi: ") && neither.contains("portals4: "),
            "{neither}"
        );
    }
}
