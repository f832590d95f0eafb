//! Slurm on the hosts of a [`Lan`], where each host is a node. The daemons run in the hosts'
//! network namespaces, in which all ports are free, and write into a temporary folder.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::hosts::hosts;
use crate::job::Job;
use crate::lan::Lan;
use crate::pace;

/// How long all nodes together may take to become idle on an idle system. They usually take a
/// second.
const START: Duration = Duration::from_secs(30);

/// A script that runs a command under a node's host name, because a daemon finds its node by that
/// name.
const ON_NODE: &str = r#"hostname "$0" && export SLURM_CONF="$1" && shift && exec "$@""#;
/// The settings for control groups. `slurmd` always loads a plugin for them, and this plugin starts
/// even where there are none.
const CONTROL_GROUPS: &str = "CgroupPlugin=cgroup/v1\n";
/// Slurm's settings. There is no authentication and no use of control groups, and nodes may claim
/// more processors than they have.
const SETTINGS: &str = "
ClusterName=test
SlurmctldHost=node0(10.78.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation=FOLDER
SlurmdSpoolDir=FOLDER/%n
SlurmctldPidFile=FOLDER/slurmctld.pid
SlurmdPidFile=FOLDER/%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SlurmdParameters=config_overrides
PartitionName=all Nodes=ALL Default=YES
";

/// Slurm's daemons. Dropping a `Slurm` ends them and all processes that they started.
#[derive(Debug)]
pub struct Slurm {
    daemons: Vec<Child>,
    // This field precedes `folder`, because dropping it ends all processes that write into the
    // folder.
    lan: Lan,
    folder: TempDir,
}

impl Slurm {
    /// Starts Slurm with `nodes` idle nodes of 16 processors each. If Slurm isn't installed or
    /// hosts can't be created here, prints the reason and returns `None`.
    ///
    /// # Panics
    /// If Slurm doesn't start, or if it isn't installed although `CONDUIT_TEST_SLURM` is set.
    pub fn start(nodes: u32) -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed =
            |name: &&str| std::env::split_paths(&path).any(|folder| folder.join(name).exists());
        let mut programs = ["slurmctld", "slurmd"].into_iter();
        if let Some(missing) = programs.find(|name| !installed(name)) {
            let reason = format!("{missing} of Slurm is not installed");
            assert!(std::env::var_os("CONDUIT_TEST_SLURM").is_none(), "{reason}");
            eprintln!("not tested: {reason}");
            return None;
        }
        Some(Self::on(hosts(nodes)?, nodes).expect("Slurm starts"))
    }

    fn on(lan: Lan, nodes: u32) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().to_str().context("a folder named in UTF-8")?;
        let mut settings = SETTINGS.replace("FOLDER", path);
        for node in 0..nodes {
            let address = format!("10.78.0.{}", node + 1);
            settings += &format!("NodeName=node{node} NodeAddr={address} CPUs=16\n");
            fs::create_dir(folder.path().join(format!("node{node}")))?;
        }
        fs::write(folder.path().join("slurm.conf"), settings)?;
        fs::write(folder.path().join("cgroup.conf"), CONTROL_GROUPS)?;
        let mut slurm = Self {
            daemons: Vec::new(),
            lan,
            folder,
        };
        slurm.daemon(0, "slurmctld")?;
        for node in 0..nodes {
            slurm.daemon(node, "slurmd")?;
        }
        slurm.until_idle(nodes)?;
        Ok(slurm)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the arguments with which `ip` runs a command on a node.
    fn on_node(&self, node: u32, command: &[&str]) -> Vec<String> {
        let (host, name) = (self.lan.host(node), format!("node{node}"));
        let settings = self.path("slurm.conf").to_string_lossy().into_owned();
        let mut words = vec!["netns", "exec", &host, "unshare", "--uts"];
        words.extend(["sh", "-c", ON_NODE, &name, &settings]);
        words.extend(command);
        words.into_iter().map(str::to_owned).collect()
    }

    fn daemon(&mut self, node: u32, daemon: &str) -> Result<()> {
        let log = File::create(self.path(&format!("{daemon}{node}.log")))?;
        let mut command = Command::new("ip");
        command.args(self.on_node(node, &[daemon, "-D"]));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        self.daemons.push(command.stderr(log).spawn()?);
        Ok(())
    }

    fn until_idle(&self, nodes: u32) -> Result<()> {
        let (wanted, begun) = (format!("{nodes} idle\n"), Instant::now());
        loop {
            let sinfo = self.on_node(0, &["sinfo", "-h", "-o", "%D %T"]);
            let output = Command::new("ip").args(sinfo).output()?;
            if output.stdout == wanted.as_bytes() {
                return Ok(());
            }
            if begun.elapsed() > pace::scaled(START) {
                let log = |name| fs::read_to_string(self.path(name)).unwrap_or_default();
                let logs = [log("slurmctld0.log"), log("slurmd0.log")];
                bail!("{output:?}\n{}", logs.concat());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns a job of `srun`. If a rank fails, `srun` ends the other ranks. `mpi` is Slurm's
    /// plugin for the ranks' exchange of data: `pmi2`, `pmix` (only on one node, because the
    /// plugins of two nodes of this machine would use the same folder) or `none`.
    pub fn job(&self, mpi: &str, nodes: u32, ranks: u32, program: &[&str]) -> Job {
        let (nodes, ranks) = (nodes.to_string(), ranks.to_string());
        let mpi = format!("--mpi={mpi}");
        let mut srun = vec!["srun", &mpi, "--kill-on-bad-exit"];
        srun.extend(["-N", &nodes, "-n", &ranks]);
        srun.extend(program);
        Job::alone("ip", self.on_node(0, &srun))
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            // The errors are ignored, because the daemon may have ended already.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
