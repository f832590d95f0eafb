use super::*;

fn environment(variables: &str) -> Environment {
    let pairs = variables
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='));
    Environment(
        pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    )
}

fn says(variables: &str) -> Option<String> {
    environment(variables).one_of_several()
}

#[test]
fn the_innermost_launcher_comes_first() {
    let offers = |variables: &str| environment(variables).offers();
    assert_eq!(offers(""), []);
    assert_eq!(
        offers("PMI_FD=5 PMI_RANK=0 PMI_SIZE=2 PMIX_NAMESPACE=a PMIX_RANK=0"),
        [Way::Pmi1, Way::Pmix]
    );
    assert_eq!(offers("PMI_RANK=0 PMI_SIZE=2"), [Way::Pmi2]);
    assert_eq!(offers("PMI_RANK=0 PALS_RANKID=0"), [Way::Pmi2]);
    assert_eq!(offers("RANK=1 WORLD_SIZE=2"), []);
    let torch = "RANK=0 MASTER_ADDR=a MASTER_PORT=1";
    assert_eq!(offers(&format!("{torch} WORLD_SIZE=2")), [Way::Torch]);
    assert_eq!(offers(&format!("{torch} WORLD_SIZE=1")), []);
}

#[test]
fn ways_are_parsed() {
    assert_eq!(Way::parse("pmix"), Some(Way::Pmix));
    let address = Way::Address("[::1]:7".to_owned());
    assert_eq!(Way::parse("tcp:[::1]:7"), Some(address));
    assert_eq!(Way::parse("file:/a:b"), Some(Way::Folder("/a:b".into())));
    for text in ["", "pmi", "tcp:", "tcp:host", "file:", "ftp:a:b", "PMIX"] {
        assert_eq!(Way::parse(text), None, "{text}");
    }
}

/// Each wrong environment has an error of its own.
#[test]
fn wrong_environments_are_named() {
    let options = |way: &str, rank, size| Options {
        way: Way::parse(way),
        rank,
        size,
        timeout: Duration::from_millis(1),
        pmix_library: Some("/no/libpmix.so".into()),
        pmi2_library: Some("/no/libpmi2.so".into()),
    };
    let torch = "MASTER_ADDR=localhost MASTER_PORT=1";
    for (way, by_hand, variables, expected) in [
        ("pmi2", (None, None), "", "cannot load /no/libpmi2.so"),
        ("pmix", (None, None), "", "cannot load /no/libpmix.so"),
        ("torch", (None, None), "", "RANK is not set"),
        (
            "torch",
            (None, None),
            "RANK=x WORLD_SIZE=2",
            "RANK=\"x\" is not a number",
        ),
        (
            "torch",
            (None, None),
            "RANK=2 WORLD_SIZE=2",
            "RANK=2 is not below WORLD_SIZE=2",
        ),
        (
            "torch",
            (None, None),
            "RANK=1 WORLD_SIZE=2",
            "MASTER_ADDR is not set",
        ),
        (
            "torch",
            (None, None),
            &format!("{torch} RANK=1 WORLD_SIZE=2"),
            "localhost:1: ",
        ),
        ("tcp:a:1", (None, Some(2)), "", "CONDUIT_RANK is not set"),
        ("tcp:a:1", (Some(0), None), "", "CONDUIT_SIZE is not set"),
        (
            "file:/x",
            (Some(2), Some(2)),
            "",
            "CONDUIT_RANK=2 is not below CONDUIT_SIZE=2",
        ),
        (
            "file:/dev/null/x",
            (Some(0), Some(2)),
            "",
            "Not a directory",
        ),
    ] {
        let options = options(way, by_hand.0, by_hand.1);
        let way = options.way.clone().unwrap();
        let reason = environment(variables).connect(&way, &options);
        let reason = reason.err().unwrap();
        assert!(reason.contains(expected), "{way:?} {variables}: {reason}");
    }
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
