//! Jobs started by a real Slurm. Unlike `conduit-run`, it takes the bytes of one `read`, at most
//! 1,023, for one request of PMI-1.
//!
//! The tests need network namespaces and Debian's packages slurmctld and slurmd. Without the
//! packages they print that and do nothing; with `CONDUIT_TEST_SLURM=1` they fail.

use conduit_tests::hosts::succeeds;
use conduit_tests::slurm::Slurm;

const HELPER: &str = env!("CARGO_BIN_EXE_helper");

#[test]
fn ranks_on_one_node_and_on_two() {
    let Some(slurm) = Slurm::start(2) else { return };
    for (nodes, ranks) in [(1, 2), (1, 4), (2, 2), (2, 4)] {
        for settings in [&[][..], &[("CONDUIT_NETWORK", "udp")]] {
            succeeds(slurm.job(nodes, ranks, &[HELPER, "calls", "par"]), settings);
        }
    }
}

#[test]
fn srun_ends_with_the_code_of_a_rank() {
    let Some(slurm) = Slurm::start(2) else { return };
    for nodes in [1, 2] {
        let job = slurm.job(nodes, 4, &[HELPER, "exit_in_handler", "seq"]);
        job.ends_with(9, &["task 3: Exited with exit code 9"]);
    }
    // Rank 0 soon stops polling. If it hasn't received the exit by then, rank 1 asks Slurm to abort
    // the job, which kills all ranks or sends SIGTERM, and srun ends with the highest code.
    let job = slurm.job(2, 4, &[HELPER, "exit", "7"]);
    let finished = job.run().expect("nothing is left behind");
    let ended = matches!(finished.code, Some(7 | 137 | 143));
    assert!(ended, "{finished:#?}");
}
