//! The agent's settings, most of which are also settings of Dragon's own agent.

use agent::{Limits, Transfer};
use networks::open::FarKind;
use settings::ValueKind;

settings::group! {
    /// The agent's settings.
    pub struct AgentSettings, acts [agent];

    "DRAGON_HSTA_FABRIC_BACKEND" backend: Vec<String> = vec!["udp".to_owned()], ValueKind::Words(&["udp", "ofi"]),
        "the network between agents: `udp` or `ofi` (libfabric)";
    "DRAGON_HSTA_TRANSPORT_TYPE" transport: Vec<String> = vec!["rma".to_owned()], ValueKind::Words(&["rma", "p2p"]),
        "transfer of long messages: the receiver pulls strip by strip (`rma`), or grants the sender as much as it has room for (`p2p`)";
    "DRAGON_HSTA_MAX_EJECTION_MB" ejection: u32 = 8, ValueKind::integer(1, 1 << 20),
        "MiB of long messages that an agent has requested and not received yet";
    "DRAGON_HSTA_MAX_GETMSG_MB" getmsg: u32 = 8, ValueKind::integer(1, 1 << 20),
        "MiB of messages that an agent has taken from channels for other nodes and not sent yet";
    "DRAGON_HSTA_MAX_INJECTION_MB" injection: u32 = 8, ValueKind::integer(1, 1 << 20),
        "MiB of long messages that an agent is sending";
    "CONDUIT_HSTA_STEAL_MB" steal: u32 = 4, ValueKind::integer(0, 1 << 20),
        "on nodes with several agents: MiB of long messages that an agent cannot request yet, at which the others start to take over parts of them; 0: never";
    "DRAGON_HSTA_DRAGONFLY" dragonfly: u32 = 0, ValueKind::integer(0, 1 << 20),
        "minimum number of nodes at which they pass on each other's short messages, so that each has links to at most the square root of their number; must be equal on all nodes; 0: never";
    "DRAGON_HSTA_ENABLE_VALGRIND" valgrind: bool = false, ValueKind::Bool,
        "run under valgrind, which writes `hsta-<process>.valgrind`";
    "DRAGON_HSTA_ENABLE_PERF" perf: bool = false, ValueKind::Bool,
        "run under perf, which writes `hsta-<process>.perf`";
    "DRAGON_HSTA_DEBUG" debug: bool = false, ValueKind::Bool,
        "log events of each node and each failed message";
    "CONDUIT_HSTA_POOL_MB" pool: u32 = 64, ValueKind::integer(1, 1 << 16),
        "with `--native`: MiB for long messages from clients, and as much again for those in channels and for those to clients; one message may use half of that";
    "CONDUIT_HSTA_CHANNELS_MB" channels: u32 = 1024, ValueKind::integer(1, 1 << 20),
        "with `--native`: maximum MiB of the blocks of all channels of a node";
    "CONDUIT_HSTA_HUGE_PAGES" huge_pages: bool = false, ValueKind::Bool,
        "with `--native`: keep long messages in huge pages, reserved (`vm.nr_hugepages`) or else transparent";
    "CONDUIT_HSTA_CONNECT_TIME" connect: u32 = 300, ValueKind::integer(0, 86_400),
        "seconds for which operations on a node wait for an agent that has never been heard from; then they fail with code 1";
    "CONDUIT_HSTA_REQUESTS" requests: u32 = 1 << 14, ValueKind::integer(1, 1 << 20),
        "number of unfinished requests at which no more sends are taken";
    "CONDUIT_HSTA_CLIENTS" clients: u32 = 4096, ValueKind::integer(1, 65_536),
        "with `--native`: maximum number of simultaneous clients; others are not answered";
}

settings::compose! {
    /// All settings of an agent.
    pub struct Settings {
        /// The agent's own settings.
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

    /// Returns whether a job of this many nodes uses a dragonfly.
    pub(crate) fn dragonfly(&self, nodes: usize) -> bool {
        self.dragonfly > 0 && nodes >= self.dragonfly as usize
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            ejection: u64::from(self.ejection) << 20,
            getmsg: u64::from(self.getmsg) << 20,
            injection: u64::from(self.injection) << 20,
            backlog: match self.steal {
                0 => u64::MAX,
                steal => u64::from(steal) << 20,
            },
            transfer: match self.transport.iter().any(|word| word == "p2p") {
                true => Transfer::PointToPoint,
                false => Transfer::Rma,
            },
            requests: self.requests,
            connect: u64::from(self.connect) * 1_000_000_000,
            ..Limits::default()
        }
    }
}

impl Settings {
    /// Reads the settings from the environment. Variables that Dragon sets for other purposes are
    /// ignored.
    pub(crate) fn from_env() -> Result<Self, settings::SettingsError> {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        Self::from_vars(std::env::vars_os().map(|(name, value)| (text(name), text(value))))
    }

    fn from_vars(
        vars: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, settings::SettingsError> {
        use settings::Groups as _;
        let known = Self::default();
        let rows = known.groups().into_iter().flat_map(settings::Group::rows);
        let names: Vec<_> = rows.map(|row| row.name).collect();
        let mine = vars.filter(|(name, _)| names.contains(&name.as_str()));
        Ok(Self::from_lookup(mine)?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<Settings, settings::SettingsError> {
        let vars = vars.iter();
        Settings::from_vars(vars.map(|(name, value)| (name.to_string(), value.to_string())))
    }

    #[test]
    fn dragons_settings_are_read_and_those_of_others_passed_over() {
        let settings = read(&[
            ("DRAGON_HSTA_DEBUG", "1"),
            ("DRAGON_HSTA_MAX_EJECTION_MB", "3"),
            ("DRAGON_HSTA_TRANSPORT_TYPE", "p2p"),
            ("DRAGON_HSTA_NIC_IDX", "x"),
            ("CONDUIT_HSTA_STEAL_MB", "0"),
            ("CONDUIT_UDP_SOMETHING", "x"),
        ]);
        let agent = settings.unwrap().agent;
        let limits = agent.limits();
        assert!(agent.debug);
        assert_eq!(limits.ejection, 3 << 20);
        assert_eq!(limits.transfer, Transfer::PointToPoint);
        assert_eq!(limits.backlog, u64::MAX);
        let error = read(&[("DRAGON_HSTA_MAX_EJECTION_MB", "0")]).unwrap_err();
        assert!(error.to_string().contains("DRAGON_HSTA_MAX_EJECTION_MB"));
    }
}
