//! Which of the launcher's variables the ranks of other hosts get.

use std::ffi::{OsStr, OsString};

/// Variables that belong to the launcher's session or host: ranks of other hosts get those of their
/// own host, if it has them.
const LOCAL: [&str; 20] = [
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "XDG_SESSION_ID",
    "XDG_SEAT",
    "XDG_VTNR",
    "HOST",
    "HOSTNAME",
    "HOSTTYPE",
    "MACHTYPE",
    "OLDPWD",
    "SHLVL",
    "STY",
    "TMUX",
    "TTY",
    "WINDOWID",
    "_",
    "CONDUIT_HOST",
];
const LOCAL_PREFIXES: [&str; 1] = ["SSH_"];
/// Variables with which a launcher tells a process its part in a job. Neither those of the launcher
/// nor those of a daemon concern the ranks.
const OF_RANKS: [&str; 26] = [
    "CONDUIT_AGENT",
    "CONDUIT_JOB_ID",
    "CONDUIT_LAUNCHER",
    "FLUX_TASK_LOCAL_ID",
    "FLUX_TASK_RANK",
    "LOCAL_RANK",
    "MPI_LOCALNRANKS",
    "MPI_LOCALRANKID",
    "PALS_APID",
    "PALS_LOCAL_RANKID",
    "PALS_NODEID",
    "PALS_RANKID",
    "PMI_FD",
    "PMI_ID",
    "PMI_JOBID",
    "PMI_LOCAL_RANK",
    "PMI_PORT",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_SPAWNED",
    "SLURM_GTIDS",
    "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_PROCID",
    "SLURM_TASK_PID",
];
const OF_RANKS_PREFIXES: [&str; 5] = [
    "OMPI_COMM_WORLD_",
    "PMI2_",
    "PMIX_",
    "SLURM_SRUN_",
    "SLURM_STEP",
];
/// The prefixes of variables that ranks get even with `--no-env`.
const SETTINGS: [&str; 2] = ["CONDUIT_", "GASNET_"];

fn is_among(name: &OsStr, names: &[&str], prefixes: &[&str]) -> bool {
    let bytes = name.as_encoded_bytes();
    names.iter().any(|known| *known == name)
        || prefixes
            .iter()
            .any(|prefix| bytes.starts_with(prefix.as_bytes()))
}

/// Returns whether a variable tells a process its part in a job.
pub(crate) fn is_of_rank(name: &OsStr) -> bool {
    is_among(name, &OF_RANKS, &OF_RANKS_PREFIXES)
}

/// Returns the variables that ranks of other hosts get from the launcher. If not `all`, these are
/// only settings.
pub(crate) fn to_send(
    variables: impl Iterator<Item = (OsString, OsString)>,
    all: bool,
) -> Vec<(OsString, OsString)> {
    let goes = |(name, _): &(OsString, OsString)| {
        (all || is_among(name, &[], &SETTINGS))
            && !is_among(name, &LOCAL, &LOCAL_PREFIXES)
            && !is_of_rank(name)
    };
    variables.filter(goes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_stays_and_the_rest_goes() {
        let names = "HOME PATH TMPDIR DISPLAY SSH_CONNECTION PMI_FD SLURM_PROCID SLURM_STEP_ID \
            SLURM_JOB_ID CONDUIT_HOST CONDUIT_SPIN GASNET_VERBOSE OMPI_COMM_WORLD_RANK";
        let sent = |all| {
            let variables = names.split(' ').map(|name| (name.into(), "x".into()));
            let sent = to_send(variables, all).into_iter();
            let names: Vec<_> = sent.map(|(name, _)| name.into_string().unwrap()).collect();
            names.join(" ")
        };
        assert_eq!(
            sent(true),
            "HOME PATH TMPDIR SLURM_JOB_ID CONDUIT_SPIN GASNET_VERBOSE"
        );
        assert_eq!(sent(false), "CONDUIT_SPIN GASNET_VERBOSE");
    }
}
