//! Every setting with default and meaning: the tables of all that a job is made of, as one.

#[cfg(test)]
mod tests;

pub use conduit_core::settings::{InJob, InJobError};
pub use settings::{Description, Groups, SettingsError, Table, Value, Warning};

use networks::settings::NetworkSettings;
use settings::{MOST_BYTES, ValueKind};

settings::group! {
    /// The settings of job start.
    pub struct JobSettings, acts [all];

    "CONDUIT_HOST" host: Option<String> = None, ValueKind::Text("a name"),
        unset "the machine's boot, with the namespaces of its network interfaces and its name",
        "name of the host that this rank is on: ranks with the same one share memory";
    "CONDUIT_ALONE" alone: bool = false, ValueKind::Bool,
        "be a job of one rank also where a launcher that can't be reached has started this process as one of several";
    "CONDUIT_MAX_SEGMENT" max_segment: Option<usize> = None,
        ValueKind::bytes(4096, MOST_BYTES, 1),
        unset "0.85 of the available memory, or of what the control group leaves, divided by the ranks that share it",
        "largest segment of a rank, in bytes";
}

settings::compose! {
    /// The values of all settings of a rank, in groups. The variable that sets a field is named in its documentation.
    pub struct Settings {
        /// The engine's.
        engine: conduit_core::settings::Settings,
        /// The choice of networks.
        networks: networks::settings::Settings,
        /// Job start's.
        job: JobSettings,
        /// Shared memory's.
        shm: conduit_shm::job::settings::Settings,
        /// libfabric's.
        ofi: conduit_ofi::settings::Settings,
        /// Portals 4's.
        portals4: conduit_portals::portals4::settings::Settings,
        /// UDP's.
        udp: conduit_udp::settings::Settings,
        /// NA's, which a job has nothing to do with, but may find in its environment.
        na: networks::open::OpenSettings,
    }
}

impl Settings {
    /// Those that the network is made by.
    pub(crate) fn of_network(&self) -> NetworkSettings<'_> {
        NetworkSettings {
            engine: &self.engine,
            networks: &self.networks,
            shm: &self.shm,
            ofi: &self.ofi,
            portals4: &self.portals4,
            udp: &self.udp,
        }
    }
}
