//! The settings that Dragon's users know of its agent.

use agent::{Limits, Transfer};
use lanes::open::FarKind;
use settings::Kind;

settings::group! {
    /// The agent's settings.
    pub struct AgentSettings, acts "agent";

    "DRAGON_HSTA_FABRIC_BACKEND" backend: Vec<String> = vec!["udp".to_owned()], Kind::Words(&["udp", "ofi"]),
        "the network between agents: `udp` or `ofi` (libfabric)";
    "DRAGON_HSTA_TRANSPORT_TYPE" transport: Vec<String> = vec!["rma".to_owned()], Kind::Words(&["rma", "p2p"]),
        "how long messages travel: the receiver gets strip by strip (`rma`), or tells the sender how much it has room for (`p2p`)";
    "DRAGON_HSTA_MAX_EJECTION_MB" ejection: u32 = 8, Kind::integer(1, 1 << 20),
        "MiB of long messages that an agent has asked for and that have not arrived";
    "DRAGON_HSTA_MAX_GETMSG_MB" getmsg: u32 = 8, Kind::integer(1, 1 << 20),
        "MiB of messages that an agent has taken from channels for other nodes and not sent yet";
    "DRAGON_HSTA_MAX_INJECTION_MB" injection: u32 = 8, Kind::integer(1, 1 << 20),
        "MiB of long messages that are under way from an agent";
    "DRAGON_HSTA_ENABLE_VALGRIND" valgrind: bool = false, Kind::Bool,
        "run under valgrind, which writes `hsta-<process>.valgrind`";
    "DRAGON_HSTA_ENABLE_PERF" perf: bool = false, Kind::Bool,
        "run under perf, which writes `hsta-<process>.perf`";
    "DRAGON_HSTA_DEBUG" debug: bool = false, Kind::Bool,
        "log what happens to each node and each message that fails";
}

settings::compose! {
    /// All settings that an agent depends on.
    pub struct Settings {
        /// The agent's own.
        agent: AgentSettings,
    }
}

impl AgentSettings {
    pub(crate) fn far(&self) -> FarKind {
        match self.backend.iter().any(|word| word == "ofi") {
            true => FarKind::Ofi,
            false => FarKind::Udp,
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            ejection: u64::from(self.ejection) << 20,
            getmsg: u64::from(self.getmsg) << 20,
            injection: u64::from(self.injection) << 20,
            transfer: match self.transport.iter().any(|word| word == "p2p") {
                true => Transfer::PointToPoint,
                false => Transfer::Rma,
            },
            ..Limits::default()
        }
    }
}

impl Settings {
    /// Those of this process's environment. Others of Dragon's, which the agent is not told what to do by, are passed
    /// over.
    pub(crate) fn from_env() -> Result<Self, settings::SettingsError> {
        use settings::Groups as _;
        let known = Self::default();
        let rows = known.groups().into_iter().flat_map(settings::Group::rows);
        let names: Vec<_> = rows.map(|row| row.name).collect();
        let mine = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.to_string_lossy().into_owned();
            let is_mine = names.contains(&name.as_str());
            is_mine.then(|| (name, value.to_string_lossy().into_owned()))
        });
        Ok(Self::from_lookup(mine)?.0)
    }
}
