//! The settings of networks whose peers come and go.

use settings::ValueKind;

settings::group! {
    /// NA's own settings, which are those common to its networks and those of its messages.
    pub struct OpenSettings, acts [na];

    "CONDUIT_NA_UNAUTHENTICATED" unauthenticated: bool = false, ValueKind::Bool,
        warning "NA over UDP or libfabric: any process that can send packets here can connect, and can read and write memory that this process registers",
        "allow NA over UDP or libfabric without a key, trusting every sender of packets";
    "CONDUIT_NA_MAX_PEERS" max_peers: u32 = 65_536, ValueKind::integer(1, 65_536),
        "most processes that an NA class knows at a time; others get no answer";
    "CONDUIT_NA_WINDOW" window: u32 = 32, ValueKind::integer(2, 4096),
        "most unexpected messages of one process that wait in an NA class for a receive; further ones wait at the sender";
    "CONDUIT_NA_RING" ring: usize = 32 << 10, ValueKind::bytes(4 << 10, 4 << 20, 1),
        "bytes of the rings between two processes of a host, rounded up to a power of two";
    "CONDUIT_NA_COPY" copy: bool = true, ValueKind::Bool,
        "copy transfers directly between the memory of processes of a host, where the system allows it; 0 sends them through the rings";
    "CONDUIT_NA_DEAD_TIME" dead_time: u32 = 30_000, ValueKind::integer(100, settings::MOST_TIME),
        "milliseconds of silence over UDP or libfabric after which NA reports a process dead";
}

settings::compose! {
    /// All settings that the networks of NA depend on.
    pub struct Settings {
        /// NA's own settings.
        open: OpenSettings,
        /// The settings of the choice of networks, of which NA uses the file of the secret.
        networks: crate::settings::Settings,
        /// The settings of libfabric.
        ofi: conduit_ofi::settings::Settings,
        /// The settings of UDP.
        udp: conduit_udp::settings::Settings,
    }
}

impl Settings {
    /// Reads the settings from this process's environment. Ignores settings that concern only jobs,
    /// and does not check them, because a process may also be a rank of a job.
    ///
    /// # Errors
    /// Returns the first variable whose value does not parse or is out of range, or whose name has
    /// NA's prefix but is unknown.
    pub fn from_env() -> Result<(Self, Vec<settings::Warning>), settings::SettingsError> {
        use settings::Groups as _;
        let known = Self::default();
        let names: Vec<_> = known
            .groups()
            .into_iter()
            .flat_map(settings::Group::rows)
            .map(|row| row.name)
            .collect();
        let mine = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.to_string_lossy().into_owned();
            let is_mine = name.starts_with("CONDUIT_NA_") || names.contains(&name.as_str());
            is_mine.then(|| (name, value.to_string_lossy().into_owned()))
        });
        Self::from_lookup(mine)
    }
}
