//! `conduit-run` from a user's point of view: exit codes, output, environment, bad input.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::support::{Finished, PROBE, Process, conduit_run, run};

/// Runs a shell script as every rank.
fn script(ranks: &str, options: &[&str], script: &str) -> Finished {
    let mut args = vec!["-n", ranks];
    args.extend(options);
    args.extend(["sh", "-c", script]);
    run(conduit_run(&args))
}

#[test]
fn the_exit_code_is_0_when_all_ranks_succeed() {
    let finished = script("3", &[], "exit 0");
    assert_eq!((finished.code, finished.stderr.as_str()), (0, ""));
}

#[test]
fn the_exit_code_is_that_of_the_rank_that_fails_and_a_message_names_it() {
    let finished = script("3", &[], "[ $PMI_RANK = 1 ] && exit 42; exec sleep 1000");
    assert_eq!(finished.code, 42);
    let lines: Vec<_> = finished.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{}", finished.stderr);
    assert!(
        lines[0].starts_with("conduit-run: rank 1 (pid "),
        "{}",
        lines[0]
    );
    assert!(
        lines[0].ends_with(") exited with code 42; ending the job"),
        "{}",
        lines[0]
    );
}

#[test]
fn a_killed_rank_gives_128_and_the_signal() {
    let finished = script("3", &[], "[ $PMI_RANK = 2 ] && kill -9 $$; exec sleep 1000");
    assert_eq!(finished.code, 137);
    let killed = ") was killed by signal 9 (SIGKILL); ending the job\n";
    assert!(
        finished.stderr.starts_with("conduit-run: rank 2 (pid "),
        "{}",
        finished.stderr
    );
    assert!(finished.stderr.ends_with(killed), "{}", finished.stderr);
}

#[test]
fn ranks_that_ignore_sigterm_are_killed_after_the_grace() {
    let ignore = "trap '' TERM; [ $PMI_RANK = 0 ] && exit 5; while :; do sleep 1000; done";
    assert_eq!(script("2", &["--grace", "0.1"], ignore).code, 5);
}

#[test]
fn stopped_ranks_end_too() {
    let finished = script(
        "2",
        &["--grace", "1"],
        "[ $PMI_RANK = 0 ] && exit 5; kill -STOP $$; exit 0",
    );
    assert_eq!(finished.code, 5);
}

#[test]
fn the_time_limit_ends_the_job_with_124() {
    let finished = script("2", &["--timeout", "0.2"], "exec sleep 1000");
    assert_eq!(finished.code, 124);
    assert_eq!(
        finished.stderr,
        "conduit-run: the job has not ended within 0.2 s; ending the job\n"
    );
}

#[test]
fn ranks_learn_who_they_are() {
    let echo = "echo $PMI_RANK/$PMI_SIZE $CONDUIT_LAUNCHER $CONDUIT_JOB_ID $COLOUR$SHAPE";
    let options = ["-l", "--env", "COLOUR=red", "--env", "SHAPE=a=b"];
    let jobs = [script("3", &options, echo), script("3", &options, echo)];
    let ids = jobs.map(|job| {
        let mut lines: Vec<_> = job.stdout.lines().collect();
        lines.sort_unstable();
        let id = lines[0].split(' ').nth(3).unwrap().to_owned();
        let expected: Vec<_> = (0..3)
            .map(|rank| format!("[{rank}] {rank}/3 1 {id} reda=b"))
            .collect();
        assert_eq!(lines, expected);
        id
    });
    assert_ne!(ids[0], ids[1]);
}

/// The window of libfabric's datagram provider stays small unless the user sets it.
#[test]
fn a_default_gives_way_to_the_user() {
    const NAME: &str = "FI_OFI_RXD_MAX_UNACKED";
    for (inherited, option, expected) in [
        (None, None, "16"),
        (Some("40"), None, "40"),
        (None, Some("50"), "50"),
        (Some("40"), Some("50"), "50"),
    ] {
        let option = option.map(|value| format!("{NAME}={value}"));
        let mut args = vec!["-n", "1"];
        if let Some(option) = &option {
            args.extend(["--env", option]);
        }
        args.extend(["sh", "-c", "echo $FI_OFI_RXD_MAX_UNACKED"]);
        let mut command = conduit_run(&args);
        command.env_remove(NAME);
        if let Some(value) = inherited {
            command.env(NAME, value);
        }
        let finished = run(command);
        assert_eq!((finished.code, finished.stdout.trim()), (0, expected));
    }
}

#[test]
fn only_rank_0_reads_standard_input() {
    let input = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&input, "hello\n").unwrap();
    let mut command = conduit_run(&["-n", "3", "-l", "cat"]);
    command.stdin(input.reopen().unwrap());
    let finished = run(command);
    assert_eq!(
        (finished.code, finished.stdout.as_str()),
        (0, "[0] hello\n")
    );
}

#[test]
fn prefixed_lines_are_whole_and_their_streams_kept_apart() {
    let count = 500;
    let script_text = format!(
        "i=0; while [ $i -lt {count} ]; do echo out $i; echo err $i >&2; i=$((i+1)); done; printf end"
    );
    let finished = script("4", &["--prefix"], &script_text);
    assert_eq!(finished.code, 0);
    for (text, word, end) in [
        (&finished.stdout, "out", true),
        (&finished.stderr, "err", false),
    ] {
        let mut of_rank: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for line in text.lines() {
            let (rank, rest) = line.split_once(' ').unwrap();
            of_rank.entry(rank).or_default().push(rest);
        }
        let mut expected: Vec<_> = (0..count).map(|i| format!("{word} {i}")).collect();
        expected.extend(end.then(|| "end".to_owned()));
        assert_eq!(
            of_rank.keys().collect::<Vec<_>>(),
            [&"[0]", &"[1]", &"[2]", &"[3]"]
        );
        assert!(of_rank.values().all(|lines| *lines == expected));
    }
}

/// Written in pieces, as Rust's standard library prints an error returned from `main`.
#[test]
fn errors_that_are_written_in_pieces_do_not_mix() {
    let pieces = "i=0; while [ $i -lt 1000 ]; do printf 'Error: ' >&2; printf 'rank %d' $PMI_RANK >&2; printf ' failed\\n' >&2; \
        i=$((i+1)); done";
    let finished = script("4", &[], pieces);
    assert_eq!(finished.code, 0);
    assert_eq!(finished.stderr.lines().count(), 4000);
    for line in finished.stderr.lines() {
        let rank = line
            .strip_prefix("Error: rank ")
            .and_then(|rest| rest.strip_suffix(" failed"));
        assert!(rank.is_some_and(|rank| "0123".contains(rank)), "{line}");
    }
}

#[test]
fn a_question_on_standard_error_needs_no_end_of_line() {
    let mut command = conduit_run(&["-n", "1", "--timeout", "60", "sh", "-c"]);
    command.arg("printf 'code? ' >&2; read code; exit $code");
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut launcher = command.spawn().unwrap();
    let mut question = [0; 6];
    launcher
        .stderr
        .take()
        .unwrap()
        .read_exact(&mut question)
        .unwrap();
    assert_eq!(&question, b"code? ");
    launcher.stdin.take().unwrap().write_all(b"7\n").unwrap();
    assert_eq!(launcher.wait().unwrap().code(), Some(7));
}

#[test]
fn ranks_feel_that_nobody_reads_their_prefixed_output() {
    let mut reader = Command::new("head")
        .args(["-n", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut command = conduit_run(&["-n", "2", "-l", "yes"]);
    command.stdout(reader.stdin.take().unwrap());
    let mut launcher = command.stderr(Stdio::null()).spawn().unwrap();
    drop(command);
    assert!(reader.wait().unwrap().success());
    let pid = rustix::process::Pid::from_child(&launcher)
        .as_raw_pid()
        .to_string();
    let process = Process::new(&pid);
    let ended = std::panic::catch_unwind(|| process.await_end());
    let _ = launcher.kill();
    let status = launcher.wait().unwrap();
    ended.unwrap();
    // `yes` is killed by SIGPIPE, or exits with 1 where SIGPIPE is ignored.
    assert!(matches!(status.code(), Some(141 | 1)), "{status}");
}

#[test]
fn bound_ranks_take_turns_over_the_processors() {
    let processors = |options: &[&str]| {
        let finished = script(
            "3",
            options,
            "echo $(grep Cpus_allowed_list /proc/self/status)",
        );
        let mut lines: Vec<_> = finished.stdout.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let bound = processors(&["-l", "--bind", "core"]);
    assert!(
        bound.iter().all(|line| !line.contains(['-', ','])),
        "one each: {bound:?}"
    );
    let available = std::thread::available_parallelism().unwrap().get();
    let distinct: std::collections::BTreeSet<_> =
        bound.iter().map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(distinct.len(), available.min(3), "{bound:?}");
}

#[test]
fn all_ranks_exchange_through_pmi() {
    for ranks in ["1", "4", "16"] {
        let finished = run(conduit_run(&["-n", ranks, PROBE, "exchange", "3000", "3"]));
        assert_eq!(finished.code, 0, "{}", finished.stderr);
        let n: usize = ranks.parse().unwrap();
        assert_eq!(finished.stdout.lines().count(), n, "{}", finished.stdout);
        assert!(
            finished
                .stdout
                .lines()
                .all(|l| l.contains("3 exchanges are right"))
        );
    }
}

#[test]
fn bad_input_gives_a_clear_message_and_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    let no_interpreter = folder.path().join("no-interpreter");
    std::fs::write(&no_interpreter, "#!/no/such/interpreter\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&no_interpreter, mode).unwrap();
    for (args, code, message) in [
        (&["-n", "0", "true"][..], 2, "0 is not in 1.."),
        (&["-n", "2"], 2, "PROGRAM"),
        (&["true"], 2, "--ranks"),
        (&["-n", "4000000000", "true"], 2, "file descriptors"),
        (
            &["-n", "1", "--env", "PMI_RANK=7", "true"],
            2,
            "PMI_RANK is set by the launcher",
        ),
        (
            &["-n", "2", "--stdin", "2", "true"],
            2,
            "rank 2 cannot read standard input (--stdin): the job has 2 ranks",
        ),
        (
            &["-n", "1", "no-such-program"],
            127,
            "\"no-such-program\" is not found",
        ),
        (&["-n", "1", "/no/such/program"], 127, "is not found"),
        (
            &["-n", "1", no_interpreter.to_str().unwrap()],
            127,
            "is not found",
        ),
        (
            &["-n", "1", plain.to_str().unwrap()],
            126,
            "cannot be executed",
        ),
        (&["-n", "1", "/"], 126, "is a directory"),
    ] {
        let finished = run(conduit_run(args));
        assert_eq!(finished.code, code, "{args:?}: {}", finished.stderr);
        assert!(
            finished.stderr.contains(message),
            "{args:?}: {}",
            finished.stderr
        );
        assert_eq!(finished.stdout, "");
    }
}

#[test]
fn settings_are_printed_as_ranks_would_find_them() {
    let printed = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = conduit_run(args);
        command.envs(variables.iter().copied());
        run(command)
    };
    let limit = ("GASNET_PORTAL_AM_LIMIT", "3");
    let finished = printed(&["--print-settings"], &[limit]);
    assert_eq!((finished.code, finished.stderr.as_str()), (0, ""));
    let line = finished
        .stdout
        .lines()
        .find(|line| line.starts_with(limit.0))
        .unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words, [limit.0, "3", "8", "environment"]);

    let args = [
        "--print-settings",
        "--json",
        "-n",
        "100",
        "--env",
        "GASNET_PORTAL_AM_LIMIT=4",
    ];
    let finished = printed(&args, &[limit]);
    let json: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    let rows = json["settings"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == limit.0).unwrap();
    assert_eq!((&row["value"], &row["from"]), (&4.into(), &"--env".into()));
    assert_eq!(json["ranks"], 100);
}

#[test]
fn wrong_settings_are_not_printed_but_named() {
    for (variable, value, args, message) in [
        (
            "GASNET_PORTAL_AM_LIMIT",
            "0",
            &["--print-settings"][..],
            "expected an integer from 1",
        ),
        (
            "CONDUIT_CHUNKS",
            "1K",
            &["--print-settings"],
            "did you mean CONDUIT_CHUNK?",
        ),
        (
            "GASNET_PORTAL_AMRECV_SPACE",
            "4K",
            &["--print-settings", "-n", "2"],
            "in a job of 2 ranks",
        ),
    ] {
        let mut command = conduit_run(args);
        command.env(variable, value);
        let finished = run(command);
        assert_eq!((finished.code, finished.stdout.as_str()), (2, ""));
        assert!(
            finished.stderr.starts_with("conduit-run: "),
            "{}",
            finished.stderr
        );
        assert!(finished.stderr.contains(variable), "{}", finished.stderr);
        assert!(finished.stderr.contains(message), "{}", finished.stderr);
        assert_eq!(finished.stderr.lines().count(), 1);
    }
    let mut command = conduit_run(&["--print-settings"]);
    command.env("GASNET_PORTAL_ACCEL", "1");
    let finished = run(command);
    assert_eq!(finished.code, 0);
    assert!(
        finished
            .stderr
            .starts_with("conduit-run: warning: GASNET_PORTAL_ACCEL: ")
    );
}

#[test]
fn verbose_tells_starts_and_ends() {
    let finished = script("2", &["-v"], "exit 0");
    for rank in 0..2 {
        assert!(
            finished.stderr.contains(&format!("rank {rank} is pid ")),
            "{}",
            finished.stderr
        );
        assert!(
            finished.stderr.contains(") has exited with code 0\n"),
            "{}",
            finished.stderr
        );
    }
}
