//! The choice of networks.

use conduit_core::settings::Settings;
use conduit_portals::shm::Shm;

use crate::{Error, Result};

/// The network under every rank of this build.
pub(crate) type Network<M> = Shm<M>;

/// The networks that this build has, and for each other known name why it is not there.
pub fn available_networks() -> Vec<(&'static str, Result<(), String>)> {
    vec![
        ("shm", Ok(())),
        (
            "udp",
            Err("this version has no network over UDP yet".to_owned()),
        ),
        (
            "ofi",
            conduit_ofi::availability().map_err(|error| error.to_string()),
        ),
        (
            "portals4",
            Err("this version has no network over Portals 4 yet".to_owned()),
        ),
    ]
}

/// Checks that the networks which `CONDUIT_NETWORK` allows can carry a job on one host.
pub(crate) fn choose(settings: &Settings) -> Result<()> {
    let Some(asked) = &settings.networks else {
        return Ok(());
    };
    let mut reasons = Vec::new();
    for (name, there) in available_networks() {
        if asked.iter().any(|asked| asked == name) {
            match there {
                Ok(()) => return Ok(()),
                Err(reason) => reasons.push(format!("{name}: {reason}")),
            }
        }
    }
    Err(Error::NoNetwork {
        asked: asked.join(","),
        reason: reasons.join("; "),
    })
}
