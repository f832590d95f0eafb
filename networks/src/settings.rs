//! Which networks a job may use, and all settings that its network depends on.

use conduit_core::settings::Settings as EngineSettings;
use conduit_ofi::settings::Settings as OfiSettings;
use conduit_portals::portals4::settings::Settings as Portals4Settings;
use conduit_shm::job::settings::Settings as ShmSettings;
use conduit_udp::settings::Settings as UdpSettings;
use settings::{Group, ValueKind};

settings::group! {
    /// The settings of the choice of networks, and of what is common to those between hosts.
    pub struct Settings, acts [all];

    "CONDUIT_NETWORK" networks: Option<Vec<String>> = None,
        ValueKind::Words(&["shm", "udp", "ofi", "portals4"]),
        unset "what fits each peer: shared memory on one host, UDP between hosts",
        "networks that may be used: shm within a host; udp, ofi or portals4 between hosts, of these the one that is named first; ofi and portals4 are used only where they are named", is SameOnAllRanks;
    "CONDUIT_SECRET_FILE" secret_file: Option<std::path::PathBuf> = None, ValueKind::Path,
        unset "ranks trust the launcher and what it hands out",
        "file with a secret of 32 random bytes or more, mode 0600, that has the same content on all ranks: keys depend on it, so that changes to the addresses and keys that the launcher hands out are detected",
        acts [udp, ofi];
    "CONDUIT_LANE_WINDOW" lane_window: usize = 2 << 20, ValueKind::bytes(0, 2 << 20, 1),
        "bytes that a peer which sends much may have in each of its four windows, in jobs so large that the windows of all have the least size; 0: none may have more",
        acts [udp, ofi], is SameOnAllRanks;
    "CONDUIT_LANE_ARRIVALS" lane_arrivals: usize = 64 << 20, ValueKind::bytes(0, 1 << 40, 1),
        "bytes of all these windows of a rank together: as many peers have them at a time, up to 48",
        acts [udp, ofi], is SameOnAllRanks;
}

impl Settings {
    /// Whether `CONDUIT_NETWORK` allows the network of this name.
    #[must_use]
    pub fn allows_network(&self, name: &str) -> bool {
        let asked = self.networks.as_ref();
        asked.is_none_or(|asked| asked.iter().any(|asked| asked == name))
    }
}

/// All groups of settings that the network of a job depends on.
#[derive(Clone, Copy, Debug)]
pub struct NetworkSettings<'a> {
    /// The engine's.
    pub engine: &'a EngineSettings,
    /// The choice of networks.
    pub networks: &'a Settings,
    /// Shared memory's.
    pub shm: &'a ShmSettings,
    /// libfabric's.
    pub ofi: &'a OfiSettings,
    /// Portals 4's.
    pub portals4: &'a Portals4Settings,
    /// UDP's.
    pub udp: &'a UdpSettings,
}

impl NetworkSettings<'_> {
    /// The network settings that have to be the same on all ranks, a line each. The engine compares
    /// its own.
    #[must_use]
    pub fn agreement(&self) -> String {
        let groups: [&dyn Group; 5] = [self.networks, self.shm, self.ofi, self.portals4, self.udp];
        groups.map(Group::agreement).concat()
    }
}
