//! Decides whether a process without a PMI-1 launcher may be a job of one rank.
//!
//! A launcher that uses a protocol other than PMI-1 may have started several processes. Each would
//! become a job of its own and repeat the computation of the others. The variables that such a
//! launcher sets reveal it.

use crate::settings::{Groups as _, Settings};
use crate::{Error, Result};

/// For each launcher, the variable that states how many processes it has started, and the variable
/// that states the number of this process among them.
///
/// Slurm also sets `SLURM_NTASKS` and `SLURM_PROCID` in batch scripts, where they describe what the
/// script may start; only `srun` sets the variables of a step. PALS states the number in
/// `PMI_SIZE`.
const SIZES: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("FLUX_JOB_SIZE", "FLUX_TASK_RANK"),
];

/// Variables of a launcher that do not state how many processes it has started.
struct Unsized {
    /// The variable that states the number of this process.
    rank: &'static str,
    /// The variable that states the job's name.
    job: &'static str,
    /// Pairs of a prefix of the job's name, and the variable in which the resource manager above
    /// the launcher states the number of processes of such a job.
    sizes: &'static [(&'static str, &'static str)],
}

const UNSIZED: [Unsized; 2] = [
    Unsized {
        rank: "PMIX_RANK",
        job: "PMIX_NAMESPACE",
        sizes: &[
            ("slurm.pmix.", "SLURM_STEP_NUM_TASKS"),
            ("", "OMPI_COMM_WORLD_SIZE"),
        ],
    },
    Unsized {
        rank: "PALS_RANKID",
        job: "PALS_APID",
        sizes: &[("", "PMI_SIZE")],
    },
];

/// Fails if the environment says that this process is one of several, unless `CONDUIT_ALONE`
/// declares it a job of its own.
///
/// Must be called before joining or starting a job from a process that no PMI-1 launcher has
/// started. [`start`](crate::start()), [`start_as`](crate::start_as) and [`join`](crate::join) make
/// this check themselves.
///
/// # Errors
/// Returns [`Error::Start`] with the variables found and the commands to use instead, and
/// [`Error::Settings`] if a setting is unknown or its value is not accepted.
pub fn check_alone() -> Result<()> {
    let (settings, _) = Settings::from_env().map_err(Error::settings)?;
    check(&settings)
}

/// Returns whether a PMI-1 launcher has started this process as a rank. A rank's children are not
/// ranks.
pub fn has_launcher() -> bool {
    let is_set = |name| std::env::var_os(name).is_some();
    ["PMI_FD", "PMI_PORT"].into_iter().any(is_set) && !pmi::client::descends_from_rank()
}

pub(super) fn check(settings: &Settings) -> Result<()> {
    // In a descendant of a rank, the variables describe that rank, not this process.
    if pmi::client::descends_from_rank() {
        return Ok(());
    }
    let variable = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
    match found(variable) {
        Some(found) if !settings.job.alone => Err(Error::start(format_args!(
            "{found} in the environment: another launcher has started this process as one of several without a PMI-1 \
             connection to the others (PMI_FD or PMI_PORT), so each would be a job of one rank. Start it with \
             `conduit-run -n N PROGRAM` on one host, or with `srun --mpi=pmi2`, `flux run -o pmi=simple` or MPICH's `mpiexec` \
             on several; set CONDUIT_ALONE=1 if each process is meant to be a job of its own"
        ))),
        _ => Ok(()),
    }
}

/// Returns the variables, with their values, that show that this process is one of several.
fn found(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let number = |name: &str| variable(name)?.trim().parse::<u64>().ok();
    let tell = |names: [&str; 2]| {
        let told = names
            .into_iter()
            .filter_map(|name| Some(format!("{name}={}", variable(name)?)));
        told.collect::<Vec<_>>().join(" and ")
    };
    for (size, rank) in SIZES {
        if variable(rank).is_some() && number(size).is_some_and(|size| size > 1) {
            return Some(tell([size, rank]));
        }
    }
    for Unsized { rank, job, sizes } in UNSIZED {
        if variable(rank).is_none() {
            continue;
        }
        let name = variable(job).unwrap_or_default();
        let known = sizes.iter().find_map(|(begin, size)| {
            if name.starts_with(begin) {
                number(size)
            } else {
                None
            }
        });
        if known.is_none() {
            return Some(tell([rank, job]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(variables: &str) -> Option<String> {
        let pairs: Vec<_> = variables
            .split_whitespace()
            .filter_map(|pair| pair.split_once('='))
            .collect();
        found(|asked| {
            let (_, value) = pairs.iter().find(|(name, _)| *name == asked)?;
            Some((*value).to_owned())
        })
    }

    #[test]
    fn one_of_several_is_told() {
        for (variables, expected) in [
            (
                "PMIX_NAMESPACE=1234 PMIX_RANK=1 OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=1",
                "OMPI_COMM_WORLD_SIZE=3 and OMPI_COMM_WORLD_RANK=1",
            ),
            ("PMI_SIZE=2 PMI_RANK=0", "PMI_SIZE=2 and PMI_RANK=0"),
            (
                "SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0",
                "SLURM_STEP_NUM_TASKS=2 and SLURM_PROCID=0",
            ),
            (
                "FLUX_JOB_SIZE=2 FLUX_TASK_RANK=1",
                "FLUX_JOB_SIZE=2 and FLUX_TASK_RANK=1",
            ),
            (
                "PMIX_RANK=0 PMIX_NAMESPACE=prterun-host-12@1",
                "PMIX_RANK=0 and PMIX_NAMESPACE=prterun-host-12@1",
            ),
            // The interactive step of an allocation consists of one task.
            (
                "SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 PMIX_RANK=1 PMIX_NAMESPACE=prterun-1",
                "PMIX_RANK=1 and PMIX_NAMESPACE=prterun-1",
            ),
            (
                "PALS_RANKID=0 PALS_APID=ab",
                "PALS_RANKID=0 and PALS_APID=ab",
            ),
        ] {
            assert_eq!(says(variables).as_deref(), Some(expected), "{variables}");
        }
    }

    #[test]
    fn one_alone_is_none_of_several() {
        for variables in [
            "",
            "OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 PMIX_RANK=0 PMIX_NAMESPACE=1234",
            // A batch script, and a shell in an allocation.
            "SLURM_NTASKS=8 SLURM_NPROCS=8 SLURM_PROCID=0 SLURM_JOB_ID=7",
            "SLURM_NTASKS=8 SLURM_JOB_ID=7",
            "SLURM_NTASKS=1 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 PMIX_RANK=0 PMIX_NAMESPACE=slurm.pmix.7.0",
            "PALS_RANKID=0 PALS_APID=ab PMI_SIZE=1 PMI_RANK=0",
            "FLUX_JOB_SIZE=1 FLUX_TASK_RANK=0",
            // A value that is not a number is ignored.
            "PMI_SIZE=many PMI_RANK=0",
        ] {
            assert_eq!(says(variables), None, "{variables}");
        }
    }
}
