//! The settings of the choice of networks, and all settings that a job's network depends on.

use conduit_core::settings::Settings as EngineSettings;
use conduit_ofi::settings::Settings as OfiSettings;
use conduit_portals::portals4::settings::Settings as Portals4Settings;
use conduit_shm::job::settings::Settings as ShmSettings;
use conduit_udp::settings::Settings as UdpSettings;
use settings::{Group, ValueKind};

settings::group! {
    /// The settings of the choice of networks, and those common to the networks between hosts.
    pub struct Settings, acts [all];

    "CONDUIT_NETWORK" networks: Option<Vec<String>> = None,
        ValueKind::Words(&["shm", "udp", "ofi", "portals4"]),
        unset "the best for each peer: shared memory on one host, UDP between hosts",
        "allowed networks: shm within a host, and the first usable one of udp, ofi and portals4 between hosts, in the order given; ofi and portals4 are used only if named", is SameOnAllRanks;
    "CONDUIT_SECRET_FILE" secret_file: Option<std::path::PathBuf> = None, ValueKind::Path,
        unset "ranks trust the launcher and the data that it distributes",
        "file with a secret of at least 32 random bytes, mode 0600, with the same content on all ranks; keys are derived from it, so that ranks detect tampering with the addresses and keys that the launcher distributes",
        acts [udp, ofi];
    "CONDUIT_LANE_WINDOW" lane_window: usize = 2 << 20, ValueKind::bytes(0, 2 << 20, 1),
        "bytes in each of the four windows of a peer with much traffic, in jobs so large that all other windows have the minimum size; 0 disables wide windows",
        acts [udp, ofi], is SameOnAllRanks;
    "CONDUIT_LANE_ARRIVALS" lane_arrivals: usize = 64 << 20, ValueKind::bytes(0, 1 << 40, 1),
        "total bytes of a rank's wide windows, which limits the number of peers that have one at a time; at most 48 peers",
        acts [udp, ofi], is SameOnAllRanks;
}

impl Settings {
    /// Returns whether `CONDUIT_NETWORK` allows the network with this name.
    #[must_use]
    pub fn allows_network(&self, name: &str) -> bool {
        let asked = self.networks.as_ref();
        asked.is_none_or(|asked| asked.iter().any(|asked| asked == name))
    }
}

/// All groups of settings that the network of a job depends on.
#[derive(Clone, Copy, Debug)]
pub struct NetworkSettings<'a> {
    /// The settings of the engine.
    pub engine: &'a EngineSettings,
    /// The choice of networks.
    pub networks: &'a Settings,
    /// The settings of shared memory.
    pub shm: &'a ShmSettings,
    /// The settings of libfabric.
    pub ofi: &'a OfiSettings,
    /// The settings of Portals 4.
    pub portals4: &'a Portals4Settings,
    /// The settings of UDP.
    pub udp: &'a UdpSettings,
}

impl NetworkSettings<'_> {
    /// Returns the network settings that must be equal on all ranks, one per line. The engine
    /// compares its own settings.
    #[must_use]
    pub fn agreement(&self) -> String {
        let groups: [&dyn Group; 5] = [self.networks, self.shm, self.ofi, self.portals4, self.udp];
        groups.map(Group::agreement).concat()
    }
}
