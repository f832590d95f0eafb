use std::collections::HashMap;

use proptest::prelude::*;

use super::environment::Kind;
use super::*;

fn host(name: &str, slots: impl Into<Option<usize>>) -> Host {
    Host::new(name, slots.into())
}

fn names(hosts: &[Host]) -> Vec<&str> {
    hosts.iter().map(|host| &*host.name).collect()
}

#[test]
fn lists_have_the_notations_of_mpich_and_slurm() {
    let hosts = parse_list("a,b:4,user@c.example", "--hosts").unwrap();
    assert_eq!(
        hosts,
        [host("a", None), host("b", 4), host("user@c.example", None)]
    );
    let hosts = parse_list("node[1-3,7],other[08-10]:2,r[0-1]n[1,2]", "--hosts").unwrap();
    assert_eq!(
        names(&hosts),
        [
            "node1", "node2", "node3", "node7", "other08", "other09", "other10", "r0n1", "r0n2",
            "r1n1", "r1n2"
        ]
    );
    assert!(hosts[4..7].iter().all(|host| host.slots == Some(2)));
    // A host that is listed twice has a slot for each time.
    let hosts = parse_list("a,b,a,a:3", "--hosts").unwrap();
    assert_eq!(hosts, [host("a", 5), host("b", None)]);
}

#[test]
fn files_have_the_notation_of_open_mpi_too() {
    let text = "# a comment\n\nnode1 slots=4 max_slots=8 # another\nnode2:2\nnode[3-4] slots=1\n\
        node5 max-slots=3\nnode1 slots=2 max_slots=2\n";
    let hosts = parse_file(text, "hosts").unwrap();
    let expected = [
        ("node1", Some(6), Some(10)),
        ("node2", Some(2), None),
        ("node3", Some(1), None),
        ("node4", Some(1), None),
        ("node5", None, Some(3)),
    ];
    for (host, (name, slots, max_slots)) in hosts.iter().zip(expected) {
        assert_eq!(
            (&*host.name, host.slots, host.max_slots),
            (name, slots, max_slots)
        );
    }
    assert_eq!(hosts.len(), expected.len());
}

#[test]
fn wrong_lists_are_named_with_line_word_and_what_is_accepted() {
    for (text, message) in [
        (
            "",
            "hosts: the file names no host; at least one host is needed",
        ),
        (
            "a\n\nb,,c",
            "hosts, line 3: \"b,,c\" contains an empty name; at least one host",
        ),
        (
            "a:0",
            "hosts, line 1: \"a:0\" has \"0\" slots; slots are a number from 1 to 65536",
        ),
        (
            "a:x",
            "hosts, line 1: \"a:x\" has \"x\" slots; slots are a number",
        ),
        (
            "a:99999999999",
            "has \"99999999999\" slots; slots are a number",
        ),
        (
            "\na[1-2",
            "hosts, line 2: \"a[1-2\" has a '[' without ']'; ranges are numbers",
        ),
        (
            "a1-2]",
            "\"a1-2]\" has a ']' without '['; ranges are numbers",
        ),
        (
            "a[3-1]",
            "\"a[3-1]\" has the empty range \"3-1\"; ranges are numbers",
        ),
        (
            "a[1-x]",
            "\"a[1-x]\" has the bad range \"1-x\"; ranges are numbers",
        ),
        ("a[]", "\"a[]\" has the bad range \"\"; ranges are numbers"),
        (
            "a[0-99999]",
            "\"a[0-99999]\" exceeds the number of hosts; at most 65536 hosts",
        ),
        (
            "a slot=4",
            "hosts, line 1: unknown word \"slot=4\"; a line is a host and optionally",
        ),
        (
            "a:2 slots=4",
            "\"a:2 slots=4\" sets the slots twice; a line is a host",
        ),
        ("a slots=", "\"slots=\" has \"\" slots; slots are a number"),
        (
            "a slots=4 max_slots=2",
            "has fewer max_slots than slots; a line is a host",
        ),
        (
            "-oProxyCommand=x",
            "\"-oProxyCommand=x\" is not a host; a host is a name of letters",
        ),
        ("a;b", "\"a;b\" is not a host; a host is a name of letters"),
        ("$(x)", "is not a host; a host is a name of letters"),
    ] {
        let error = parse_file(text, "hosts").unwrap_err().to_string();
        assert!(error.contains(message), "{text:?}: {error}");
    }
    let error = parse_list("", "--hosts").unwrap_err().to_string();
    assert!(
        error.starts_with("--hosts: the list is empty; at least one host"),
        "{error}"
    );
}

fn environment(variables: &[(&str, &str)]) -> Result<Option<Source>, HostsError> {
    let variables: HashMap<_, _> = variables.iter().copied().collect();
    from_environment(&|name| variables.get(name).map(|value| (*value).to_owned()))
}

#[test]
fn batch_systems_name_their_hosts_in_the_environment() {
    let hosts = |variables: &[(&str, &str)]| match environment(variables).unwrap() {
        Some(Source::Hosts(hosts)) => hosts,
        other => panic!("{other:?}"),
    };
    let slurm = ("SLURM_JOB_NODELIST", "n[1-3],m");
    assert_eq!(
        hosts(&[
            slurm,
            ("SLURM_TASKS_PER_NODE", "2(x3),1"),
            ("LSB_HOSTS", "x")
        ]),
        [host("n1", 2), host("n2", 2), host("n3", 2), host("m", 1)]
    );
    assert_eq!(hosts(&[slurm])[3], host("m", None));
    let lsf = ("LSB_MCPU_HOSTS", "h1 4 h2 2");
    assert_eq!(
        hosts(&[lsf, ("LSB_HOSTS", "x")]),
        [host("h1", 4), host("h2", 2)]
    );
    assert_eq!(
        hosts(&[("LSB_HOSTS", "a b a")]),
        [host("a", 2), host("b", 1)]
    );
    let file = |path: &str, kind| {
        let path = path.to_owned();
        Ok(Some(Source::File { path, kind }))
    };
    assert_eq!(
        environment(&[("PBS_NODEFILE", "/f")]),
        file("/f", Kind::Pbs)
    );
    assert_eq!(
        environment(&[("PE_HOSTFILE", "/f")]),
        file("/f", Kind::GridEngine)
    );
    assert_eq!(
        environment(&[("FLUX_URI", "x"), ("FLUX_JOB_ID", "y")]),
        Ok(Some(Source::Flux))
    );
    assert_eq!(
        environment(&[("FLUX_URI", "x"), ("PBS_NODEFILE", " ")]),
        Ok(None)
    );

    let pbs = Kind::Pbs.parse("a\na\nb\n", "f").unwrap();
    assert_eq!(pbs, [host("a", 2), host("b", 1)]);
    let engine = Kind::GridEngine
        .parse("a 4 all.q@a UNDEFINED\nb 2 x y\n", "f")
        .unwrap();
    assert_eq!(engine, [host("a", 4), host("b", 2)]);
}

#[test]
fn wrong_variables_are_named() {
    let slurm = ("SLURM_JOB_NODELIST", "n[1-3]");
    for (variables, message) in [
        (
            &[("SLURM_JOB_NODELIST", "n[1")][..],
            "SLURM_JOB_NODELIST: \"n[1\" has a '['",
        ),
        (
            &[slurm, ("SLURM_TASKS_PER_NODE", "2(x2)")],
            "\"2(x2)\" is not for 3 hosts",
        ),
        (
            &[slurm, ("SLURM_TASKS_PER_NODE", "2(x9999999)")],
            "contains \"2(x9999999)\"",
        ),
        (
            &[slurm, ("SLURM_TASKS_PER_NODE", "2(y3)")],
            "contains \"2(y3)\"; expected numbers",
        ),
        (
            &[("LSB_MCPU_HOSTS", "h1 4 h2")],
            "LSB_MCPU_HOSTS: \"h2\" has no slots; expected",
        ),
        (
            &[("LSB_MCPU_HOSTS", "h1 x")],
            "\"h1\" has \"x\" slots; expected hosts",
        ),
        (&[("LSB_HOSTS", "a -b")], "LSB_HOSTS: \"-b\" is not a host"),
    ] {
        let error = environment(variables).unwrap_err().to_string();
        assert!(error.contains(message), "{variables:?}: {error}");
    }
    for (kind, text, message) in [
        (Kind::Pbs, "a\n$b", "f, line 2: \"$b\" is not a host"),
        (Kind::Pbs, "\n", "f: the file names no host"),
        (
            Kind::GridEngine,
            "a 4\nb",
            "f, line 2: \"b\" has \"\" slots; expected lines",
        ),
    ] {
        let error = kind.parse(text, "f").unwrap_err().to_string();
        assert!(error.contains(message), "{text:?}: {error}");
    }
}

fn placed(
    list: &str,
    processors: &[usize],
    ranks: usize,
    per_host: usize,
) -> Result<Vec<usize>, String> {
    let some = |number| (number > 0).then_some(number);
    let want = Want {
        ranks: some(ranks),
        per_host: some(per_host),
    };
    let hosts = parse_file(&list.replace(';', "\n"), "f").unwrap();
    assert!(processors.is_empty() || needs_processors(&hosts, want));
    place(&hosts, processors, want).map_err(|error| error.to_string())
}

#[test]
fn ranks_are_placed_in_blocks_in_the_order_of_the_list() {
    for (list, processors, ranks, per_host, expected) in [
        // Without slots: evenly.
        ("a;b;c", &[][..], 8, 0, &[3, 3, 2][..]),
        ("a;b;c", &[], 2, 0, &[1, 1, 0]),
        ("a;b", &[4, 2], 0, 0, &[4, 2]),
        // With slots: host by host.
        ("a:4;b:4;c:4", &[], 0, 0, &[4, 4, 4]),
        ("a:4;b:4;c:4", &[], 5, 0, &[4, 1, 0]),
        ("a:4;b:2", &[], 9, 0, &[6, 3]),
        ("a slots=1 max_slots=2;b:1", &[], 9, 0, &[2, 7]),
        ("a:4;b", &[9, 2], 0, 0, &[4, 2]),
        ("a:4;b", &[9, 2], 5, 0, &[4, 1]),
        // --ppn.
        ("a:4;b:4;c", &[], 0, 2, &[2, 2, 2]),
        ("a;b;c", &[], 3, 2, &[2, 1, 0]),
    ] {
        let counts = placed(list, processors, ranks, per_host);
        assert_eq!(counts.as_deref(), Ok(expected), "{list} {ranks} {per_host}");
    }
}

#[test]
fn the_placement_is_written_as_hydra_does() {
    assert_eq!(mapping(&[4]), "(vector,(0,1,4))");
    assert_eq!(
        mapping(&[2, 2, 0, 1, 0, 2]),
        "(vector,(0,2,2),(2,1,1),(3,1,2))"
    );
}

#[test]
fn hosts_with_too_many_ranks_cause_one_warning() {
    let hosts = [host("a", 4), host("b", 2), host("c", None), host("d", None)];
    let warning = |counts: &[usize]| oversubscribed(&hosts, &[1, 1, 2, 2], counts);
    assert_eq!(warning(&[4, 2, 2, 0]), None);
    let text = "host b runs 3 ranks in 2 slots (and 2 other hosts are oversubscribed)";
    assert_eq!(warning(&[4, 3, 3, 3]).as_deref(), Some(text));
    let text = "host d runs 3 ranks on 2 processors";
    assert_eq!(warning(&[4, 2, 2, 3]).as_deref(), Some(text));
}

#[test]
fn ranks_that_do_not_fit_are_refused() {
    for (list, ranks, per_host, message) in [
        (
            "a;b",
            5,
            2,
            "5 ranks do not fit on 2 hosts with 2 ranks each (--ppn); at most 4",
        ),
        (
            "a max_slots=1",
            0,
            2,
            "host a accepts at most 1 ranks (max_slots)",
        ),
        (
            "a max_slots=1;b max_slots=2",
            4,
            0,
            "4 ranks (-n) do not fit on the hosts, whose max_slots allow 3",
        ),
    ] {
        let error = placed(list, &[], ranks, per_host).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

proptest! {
    #[test]
    fn all_ranks_are_placed(
        hosts in proptest::collection::vec((proptest::option::of(1usize..9), proptest::option::of(0usize..9)), 1..9),
        ranks in 1usize..100,
    ) {
        let hosts: Vec<_> = (0..).zip(hosts).map(|(at, (slots, more))| Host {
            name: format!("n{at}"),
            slots,
            max_slots: more.map(|more| slots.unwrap_or(1) + more),
        }).collect();
        let processors = vec![4; hosts.len()];
        let want = Want { ranks: Some(ranks), per_host: None };
        let most: usize = hosts.iter().map(|host| host.max_slots.unwrap_or(ranks)).sum();
        match place(&hosts, &processors, want) {
            Ok(counts) => {
                prop_assert_eq!(counts.iter().sum::<usize>(), ranks);
                for (host, count) in hosts.iter().zip(counts) {
                    prop_assert!(host.max_slots.is_none_or(|most| count <= most));
                }
            }
            Err(_) => prop_assert!(most < ranks),
        }
    }

    #[test]
    fn no_list_panics(text in "[a-c0-9:,\\[\\]= #\n-]{0,40}") {
        let _ = parse_file(&text, "f");
        let _ = parse_list(&text, "--hosts");
        for name in ["SLURM_JOB_NODELIST", "LSB_MCPU_HOSTS", "LSB_HOSTS"] {
            let _ = environment(&[(name, &text)]);
        }
        let _ = environment(&[("SLURM_JOB_NODELIST", "a"), ("SLURM_TASKS_PER_NODE", &text)]);
    }
}
