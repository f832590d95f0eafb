//! The settings of networks whose peers come and go.

use settings::ValueKind;

settings::group! {
    /// The settings of NA: of its networks together, and of its messages.
    pub struct OpenSettings, acts [na];

    "CONDUIT_NA_UNAUTHENTICATED" unauthenticated: bool = false, ValueKind::Bool,
        warning "NA over UDP or libfabric: whoever can send this process packets can connect to it, read and write the memory it registers",
        "NA over UDP or libfabric without a key: whoever can send this process packets is trusted";
    "CONDUIT_NA_MAX_PEERS" max_peers: u32 = 65_536, ValueKind::integer(1, 65_536),
        "processes that an NA class may know at a time; others are not answered";
    "CONDUIT_NA_WINDOW" window: u32 = 32, ValueKind::integer(2, 4096),
        "unexpected messages of one process that may wait in an NA class for a receive; its further ones wait where they are sent";
    "CONDUIT_NA_RING" ring: usize = 32 << 10, ValueKind::bytes(4 << 10, 4 << 20, 1),
        "bytes of the rings between two processes of a host, rounded up to a power of two";
    "CONDUIT_NA_COPY" copy: bool = true, ValueKind::Bool,
        "let processes of a host copy transfers between each other's memory, where the system allows it; without, they go through the rings";
    "CONDUIT_NA_DEAD_TIME" dead_time: u32 = 30_000, ValueKind::integer(100, settings::MOST_TIME),
        "milliseconds after which a process that answers nothing over UDP or libfabric is dead for NA";
}

settings::compose! {
    /// All settings that the networks of NA depend on.
    pub struct Settings {
        /// NA's own.
        open: OpenSettings,
        /// The secret's file.
        networks: crate::settings::Settings,
        /// libfabric's.
        ofi: conduit_ofi::settings::Settings,
        /// UDP's.
        udp: conduit_udp::settings::Settings,
    }
}

impl Settings {
    /// The settings of this process's environment. Those that are a job's alone are left out, and
    /// are not checked: a process may be both.
    ///
    /// # Errors
    /// The first variable whose value does not parse or is out of range, or that begins as NA's
    /// settings do and is none.
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
