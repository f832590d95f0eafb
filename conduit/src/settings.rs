//! The settings of all parts of a job, in one table with their defaults and meanings.

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
        unset "the machine's boot id, network namespace and host name",
        "name of the host that this rank runs on; ranks with the same host name share memory";
    "CONDUIT_ALONE" alone: bool = false, ValueKind::Bool,
        "be a job of one rank even if a launcher has started this process as one of several, unless it offers PMI-1";
    "CONDUIT_BOOTSTRAP" bootstrap: Option<String> = None, ValueKind::Text(pmi::find::Way::FORMS),
        unset "what the environment offers",
        "how ranks exchange data before the network works: through the launcher, through a store at an address that rank 0 provides, or through an empty folder that all ranks see";
    "CONDUIT_RANK" rank: Option<u32> = None, ValueKind::integer(0, u32::MAX - 2),
        unset "told by the launcher",
        "this rank, if CONDUIT_BOOTSTRAP is an address or a folder";
    "CONDUIT_SIZE" size: Option<u32> = None, ValueKind::integer(1, u32::MAX - 1),
        unset "told by the launcher",
        "number of ranks, if CONDUIT_BOOTSTRAP is an address or a folder";
    "CONDUIT_BOOTSTRAP_TIMEOUT" bootstrap_timeout: u32 = 300, ValueKind::integer(1, 86_400),
        "most seconds to wait for the other ranks at an address, in a folder or at torchrun's store";
    "CONDUIT_PMIX_LIBRARY" pmix_library: Option<std::path::PathBuf> = None, ValueKind::Path,
        unset "the launcher's library, otherwise the system's libpmix.so.2",
        "file name of the library of PMIx";
    "CONDUIT_PMI2_LIBRARY" pmi2_library: Option<std::path::PathBuf> = None, ValueKind::Path,
        unset "the system's libpmi2.so.0",
        "file name of the library of PMI-2";
    "CONDUIT_MAX_SEGMENT" max_segment: Option<usize> = None,
        ValueKind::bytes(4096, MOST_BYTES, 1),
        unset "0.85 of the available memory, or of the control group's remaining memory, divided by the ranks that share it",
        "largest segment of a rank, in bytes";
}

settings::compose! {
    /// The values of all settings of a rank, in groups. The documentation of each field names the
    /// field's environment variable.
    pub struct Settings {
        /// Settings of the engine.
        engine: conduit_core::settings::Settings,
        /// Settings for the choice of networks.
        networks: networks::settings::Settings,
        /// Settings of job start.
        job: JobSettings,
        /// Settings of shared memory.
        shm: conduit_shm::job::settings::Settings,
        /// Settings of libfabric.
        ofi: conduit_ofi::settings::Settings,
        /// Settings of Portals 4.
        portals4: conduit_portals::portals4::settings::Settings,
        /// Settings of UDP.
        udp: conduit_udp::settings::Settings,
        /// Settings of NA. A job does not use them, but may find them in its environment.
        na: networks::open::OpenSettings,
    }
}

impl Settings {
    /// Returns the settings from which the network is built.
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
