//! The programs that measure peers, with their locations and command lines. They are the peers' own
//! programs or, for MPI, a C program of this project.

use std::path::{Path, PathBuf};
use std::{env, fmt, fs};

use anyhow::{Context, ensure};
use tempfile::TempDir;

use super::output::{libfabric, loopback_bytes, mpi, ucx, version};
use super::process::{Program, free_port};
use super::{BLOCKS, ROUND_TRIPS, Reading};
use crate::figure::Unit;
use crate::limits::udp::BLOCK;

/// The source of the program that measures MPI.
const MPI_PROGRAM: &str = include_str!("../../c/mpi.c");

const HERE: &str = "127.0.0.1";
const UCX: &[(&str, &str)] = &[("UCX_TLS", "tcp"), ("UCX_NET_DEVICES", "lo")];
const LIBFABRIC: &[(&str, &str)] = &[("FI_PROVIDER", "tcp"), ("FI_TCP_IFACE", "lo")];
const OPEN_MPI: &[(&str, &str)] = &[
    ("OMPI_MCA_pml", "ob1"),
    ("OMPI_MCA_btl", "tcp,self"),
    ("OMPI_MCA_btl_tcp_if_include", "lo"),
    ("OMPI_MCA_osc", "^sm,ucx"),
    // Open MPI must run as root as well, because the user is often root in containers.
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
];

/// An installed peer.
pub(super) struct Peer {
    name: &'static str,
    version: String,
    kind: Kind,
}

/// The paths of a peer's programs.
enum Kind {
    Ucx { perftest: PathBuf },
    Libfabric { pingpong: PathBuf },
    OpenMpi { run: PathBuf, compiled: TempDir },
}

/// A peer that may be installed.
pub(super) struct Candidate {
    pub(super) name: &'static str,
    /// Debian's packages for the peer.
    pub(super) packages: &'static str,
    find: fn() -> anyhow::Result<Option<(String, Kind)>>,
}

pub(super) const CANDIDATES: [Candidate; 3] = [
    Candidate {
        name: "UCX",
        packages: "ucx-utils",
        find: ucx_here,
    },
    Candidate {
        name: "libfabric",
        packages: "libfabric-bin",
        find: libfabric_here,
    },
    Candidate {
        name: "Open MPI",
        packages: "openmpi-bin libopenmpi-dev",
        find: open_mpi_here,
    },
];

impl Candidate {
    /// Returns the peer, or `None` if it is not installed.
    ///
    /// # Errors
    /// Fails if the peer is installed but does not work.
    pub(super) fn find(&self) -> anyhow::Result<Option<Peer>> {
        let found = (self.find)().with_context(|| self.name)?;
        Ok(found.map(|(version, kind)| Peer {
            name: self.name,
            version,
            kind,
        }))
    }
}

fn ucx_here() -> anyhow::Result<Option<(String, Kind)>> {
    let (Some(perftest), Some(info)) = (on_path("ucx_perftest"), on_path("ucx_info")) else {
        return Ok(None);
    };
    let text = Program::new(&info).arguments(["-v"]).run()?;
    Ok(Some((number(&text), Kind::Ucx { perftest })))
}

fn libfabric_here() -> anyhow::Result<Option<(String, Kind)>> {
    let (Some(pingpong), Some(info)) = (on_path("fi_pingpong"), on_path("fi_info")) else {
        return Ok(None);
    };
    let text = Program::new(&info).arguments(["--version"]).run()?;
    Ok(Some((number(&text), Kind::Libfabric { pingpong })))
}

/// Looks for Open MPI. Debian's file names identify the MPI implementation. On other systems, the
/// launcher's version output does.
fn open_mpi_here() -> anyhow::Result<Option<(String, Kind)>> {
    for suffix in [".openmpi", ""] {
        let run = on_path(&format!("mpirun{suffix}"));
        let compiler = on_path(&format!("mpicc{suffix}"));
        let (Some(run), Some(compiler)) = (run, compiler) else {
            continue;
        };
        let text = Program::new(&run).arguments(["--version"]).run()?;
        if !["Open MPI", "OpenRTE"]
            .iter()
            .any(|name| text.contains(name))
        {
            continue;
        }
        let compiled = tempfile::tempdir()?;
        let source = compiled.path().join("mpi.c");
        fs::write(&source, MPI_PROGRAM)?;
        Program::new(&compiler)
            .arguments(["-O2", "-std=c99", "-o"])
            .arguments([compiled.path().join("mpi"), source])
            .run()?;
        return Ok(Some((number(&text), Kind::OpenMpi { run, compiled })));
    }
    Ok(None)
}

fn number(text: &str) -> String {
    version(text).unwrap_or("of unknown version").to_owned()
}

/// Returns the path of a program in `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

impl Peer {
    /// Runs the peer on these cores. Returns one reading of each of its figures.
    ///
    /// # Errors
    /// Fails if a program fails, or if it does not transfer its blocks over the loopback interface.
    /// (Between processes of one host, most libraries avoid that interface if they can.)
    pub(super) fn measure(&self, cores: [usize; 2]) -> anyhow::Result<Vec<Reading>> {
        let bytes = || loopback_bytes(&fs::read_to_string("/proc/net/dev").unwrap_or_default());
        let before = bytes();
        let readings = self.readings(cores)?;
        let streams = readings
            .iter()
            .filter(|reading| reading.unit == Unit::Gigabytes);
        let least = streams.count() as u64 * u64::from(BLOCKS) * BLOCK as u64;
        if let (Some(before), Some(after)) = (before, bytes()) {
            ensure!(
                after.saturating_sub(before) >= least,
                "only {} of {least} bytes went over the loopback interface",
                after.saturating_sub(before)
            );
        }
        Ok(readings)
    }

    fn readings(&self, cores: [usize; 2]) -> anyhow::Result<Vec<Reading>> {
        let reading = |name, unit, seconds| Reading {
            name,
            unit,
            seconds,
        };
        Ok(match &self.kind {
            Kind::Ucx { perftest } => {
                let trip = ucx_perftest(perftest, cores, "ucp_am_lat", 8, ROUND_TRIPS)?;
                let put = ucx_perftest(perftest, cores, "ucp_put_bw", BLOCK, BLOCKS)?;
                vec![
                    // A round trip takes twice the latency that the program reports.
                    reading("ucx-am", Unit::Nanoseconds, 2e-6 * trip),
                    reading("ucx-put", Unit::Gigabytes, 1e-6 * put),
                ]
            }
            Kind::Libfabric { pingpong } => {
                let measure = |bytes, count| {
                    fi_pingpong(pingpong, cores, ["tcp", "msg"], LIBFABRIC, bytes, count)
                };
                let trip = measure(8, ROUND_TRIPS)?;
                let block = measure(BLOCK, BLOCKS)?;
                vec![
                    reading("libfabric-msg", Unit::Nanoseconds, 2e-6 * trip),
                    reading("libfabric-msg-ping-pong", Unit::Gigabytes, 1e-6 * block),
                ]
            }
            Kind::OpenMpi { run, compiled } => {
                let text = mpirun(run, &compiled.path().join("mpi"), cores)?;
                let nanoseconds = |name| mpi(&text, name).map(|time| 1e-9 * time);
                vec![
                    reading(
                        "open-mpi-send",
                        Unit::Nanoseconds,
                        nanoseconds("round-trip")?,
                    ),
                    reading("open-mpi-isend", Unit::Gigabytes, nanoseconds("isend")?),
                    reading("open-mpi-put", Unit::Gigabytes, nanoseconds("put")?),
                ]
            }
        })
    }
}

/// Returns the time of a message in one direction, in microseconds.
fn ucx_perftest(
    path: &Path,
    [here, there]: [usize; 2],
    test: &str,
    bytes: usize,
    count: u32,
) -> anyhow::Result<f64> {
    let port = free_port()?;
    let side = |core| {
        Program::new(path)
            .arguments(["-t", test, "-v", "-f"])
            .arguments(["-s".to_owned(), bytes.to_string()])
            .arguments(["-n".to_owned(), count.to_string()])
            .arguments(["-w".to_owned(), (count / 8).to_string()])
            .arguments(["-p".to_owned(), port.to_string()])
            .environment(UCX)
            .on(core)
    };
    let client = side(here).arguments([HERE]);
    ucx(&side(there).serve(port, client)?)
}

/// Returns the time of a message in one direction, in microseconds, with this provider and kind of
/// endpoint.
pub(crate) fn fi_pingpong(
    path: &Path,
    [here, there]: [usize; 2],
    [provider, endpoint]: [&str; 2],
    environment: &[(&'static str, &'static str)],
    bytes: usize,
    count: u32,
) -> anyhow::Result<f64> {
    let port = free_port()?;
    let side = |core, end: &str| {
        Program::new(path)
            .arguments(["-p", provider, "-e", endpoint])
            .arguments(["-S".to_owned(), bytes.to_string()])
            .arguments(["-I".to_owned(), count.to_string()])
            .arguments([end.to_owned(), port.to_string()])
            .environment(environment)
            .on(core)
    };
    let client = side(here, "-P").arguments([HERE]);
    libfabric(&side(there, "-B").serve(port, client)?)
}

/// Returns the output of this project's MPI program. Its ranks pin themselves to their cores.
fn mpirun(run: &Path, program: &Path, cores: [usize; 2]) -> anyhow::Result<String> {
    Program::new(run)
        .arguments(["-n", "2", "--host", "localhost:2", "--bind-to", "none"])
        .arguments([program])
        .arguments(cores.map(|core| core.to_string()))
        .arguments([ROUND_TRIPS, BLOCKS].map(|count| count.to_string()))
        .environment(OPEN_MPI)
        .run()
}
