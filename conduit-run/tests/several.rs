//! Jobs on several hosts, which are daemons on this host: a remote shell that only sets a variable
//! starts them.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Finished, PROBE, Process, Running, SHELL, conduit_run, on_hosts, run};

/// Runs a shell script as every rank.
fn script(hosts: &str, options: &[&str], script: &str) -> Finished {
    let mut args = options.to_vec();
    args.extend(["sh", "-c", script]);
    run(on_hosts(hosts, &args))
}

fn kill(pid: &str, signal: Signal) {
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), signal).unwrap();
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn ranks_are_placed_in_blocks() {
    let echo = "echo $PMI_RANK/$PMI_SIZE $CONDUIT_HOST $CONDUIT_LAUNCHER";
    for (hosts, options, expected) in [
        ("a:2,b", &["-n", "3"][..], "0/3 a 1,1/3 a 1,2/3 b 1"),
        ("a,b,c", &["-n", "4"], "0/4 a 1,1/4 a 1,2/4 b 1,3/4 c 1"),
        ("n[1-2]:1", &[], "0/2 n1 1,1/2 n2 1"),
        ("a,b,c", &["-N", "2", "-n", "3"], "0/3 a 1,1/3 a 1,2/3 b 1"),
        ("a", &["-n", "1"], "0/1 a 1"),
    ] {
        let finished = script(hosts, options, echo);
        assert_eq!(finished.code, 0, "{}", finished.stderr);
        let expected: Vec<_> = expected.split(',').collect();
        assert_eq!(sorted(&finished.stdout), expected);
    }
    // Without slots and -n: as many ranks as processors.
    let finished = script("a,b", &[], "echo $CONDUIT_HOST");
    let processors = std::thread::available_parallelism().unwrap().get();
    let expected = [vec!["a"; processors], vec!["b"; processors]].concat();
    assert_eq!(sorted(&finished.stdout), expected);
}

#[test]
fn processors_are_reported_and_too_many_ranks_warned_of() {
    for bind in ["core", "socket", "numa"] {
        let options = ["--bind", bind, "--report-bindings", "-n", "3"];
        let finished = script("a:1,b:1", &options, "exit 0");
        let lines: Vec<_> = finished.stderr.lines().collect();
        assert_eq!(lines.len(), 4, "{}", finished.stderr);
        assert_eq!(
            lines[0],
            "conduit-run: warning: host a runs 2 ranks in 1 slot"
        );
        for rank in ["0 on a", "1 on a", "2 on b"] {
            let start = format!("conduit-run: rank {rank} (pid ");
            let line = lines.iter().find(|line| line.starts_with(&start)).unwrap();
            assert!(line.contains(") is bound to processors "), "{line}");
        }
    }
    let finished = run(conduit_run(&["-n", "1", "--report-bindings", "true"]));
    let text = ") is not bound and may use processors ";
    assert!(finished.stderr.contains(text), "{}", finished.stderr);
}

#[test]
fn hosts_come_from_files_and_batch_systems() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "a slots=1 # first\nb slots=2\n").unwrap();
    let echo = ["sh", "-c", "echo $PMI_RANK $CONDUIT_HOST"];
    let path = file.path().to_str().unwrap();
    let mut args = vec!["--remote-shell", SHELL, "--hostfile", path];
    args.extend(echo);
    assert_eq!(
        sorted(&run(conduit_run(&args)).stdout),
        ["0 a", "1 b", "2 b"]
    );

    std::fs::write(&file, "a\na\nb\n").unwrap();
    for (variables, expected) in [
        (
            &[
                ("SLURM_JOB_NODELIST", "n[1-2]"),
                ("SLURM_TASKS_PER_NODE", "1(x2)"),
            ][..],
            &["0 n1", "1 n2"][..],
        ),
        (&[("PBS_NODEFILE", path)], &["0 a", "1 a", "2 b"]),
        (&[("LSB_MCPU_HOSTS", "x 1 y 1")], &["0 x", "1 y"]),
    ] {
        let mut command = conduit_run(&echo);
        command.envs(variables.iter().copied());
        command.env("CONDUIT_REMOTE_SHELL", SHELL);
        let finished = run(command);
        assert_eq!(sorted(&finished.stdout), expected, "{}", finished.stderr);
    }
}

#[test]
fn a_list_of_this_host_needs_no_remote_shell() {
    let args = [
        "--remote-shell",
        "false",
        "--hosts",
        "localhost:2",
        "sh",
        "-c",
        "echo $PMI_RANK",
    ];
    let finished = run(conduit_run(&args));
    assert_eq!(finished.stderr, "");
    assert_eq!(sorted(&finished.stdout), ["0", "1"]);
    // One of several hosts does not need it either.
    let args = ["-n", "2", "sh", "-c", "echo $PMI_RANK $CONDUIT_HOST"];
    let finished = run(on_hosts("a,localhost", &args));
    assert_eq!(sorted(&finished.stdout), ["0 a", "1"]);
}

#[test]
fn wrong_lists_and_shells_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hosts");
    std::fs::write(&path, "a\nb slot=4\n").unwrap();
    let file = path.to_str().unwrap();
    for (args, message) in [
        (
            &["--hosts", "a:x"][..],
            "--hosts: \"a:x\" has \"x\" slots; slots are a number",
        ),
        (
            &["--hostfile", file],
            "hosts, line 2: unknown word \"slot=4\"; a line is a host",
        ),
        (
            &["--hostfile", "/no/such/file"],
            "host file \"/no/such/file\" cannot be read",
        ),
        (
            &["--hosts", "a,b", "-n", "3", "-N", "1"],
            "3 ranks do not fit on 2 hosts",
        ),
        (
            &["--hosts", "a:1", "--remote-shell", "ssh 'x"],
            "\"ssh 'x\" is not a command",
        ),
        (
            &["--hosts", "a:1", "--remote-shell", "/no/such/shell"],
            "host a: cannot execute",
        ),
    ] {
        let args = [args, &["true"]].concat();
        let finished = run(conduit_run(&args));
        assert_eq!(finished.code, 2, "{args:?}");
        assert!(
            finished.stderr.contains(message),
            "{args:?}: {}",
            finished.stderr
        );
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    }
}

#[test]
fn a_plan_is_printed() {
    let args = [
        "--dry-run",
        "--remote-path",
        "/bin/run",
        "-n",
        "5",
        "prog",
        "-x",
    ];
    let finished = run(on_hosts("a:4,b,c:9", &args));
    let expected = "ranks that depend on the number of processors";
    assert!(finished.stdout.contains(expected), "{}", finished.stdout);
    let finished = run(on_hosts("a:4,b:4,c:9", &args));
    let expected = "a: ranks 0 to 3: env CONDUIT_HOST=a /bin/run --daemon\n\
        b: rank 4: env CONDUIT_HOST=b /bin/run --daemon\nprogram: prog -x\n";
    assert_eq!((finished.code, finished.stdout.as_str()), (0, expected));
}

#[test]
fn ranks_get_the_launchers_environment_folder_and_limits() {
    let folder = tempfile::tempdir().unwrap();
    let echo = "echo $HERE$THERE$DISPLAY$SSH_CLIENT; pwd -P; umask; ulimit -c; ulimit -n; \
        echo $PMI_ID$SLURM_PROCID; echo $CONDUIT_SPIN";
    let run_with = |options: &[&str]| {
        let shell = "env CONDUIT_HOST={host} DISPLAY=:9";
        let launcher = conduit_run(&[]);
        let launcher = launcher.get_program().to_str().unwrap();
        // The shell sets what the launcher inherits.
        let set = "umask 027; ulimit -c 0; ulimit -n 777; exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", set, "sh", launcher]);
        command.args(["--remote-shell", shell, "--hosts", "a", "-n", "1"]);
        command.args(options).args(["sh", "-c", echo]);
        command.stdin(Stdio::null()).current_dir(&folder);
        command.envs([("HERE", "here"), ("DISPLAY", ":1"), ("SSH_CLIENT", "x")]);
        command.envs([
            ("PMI_ID", "1"),
            ("SLURM_PROCID", "2"),
            ("CONDUIT_SPIN", "7"),
        ]);
        let finished = run(command);
        assert_eq!((finished.code, finished.stderr.as_str()), (0, ""));
        finished.stdout
    };
    let path = folder.path().canonicalize().unwrap();
    let path = path.to_str().unwrap();
    // In this test, what a daemon inherits from its "session" is the launcher's.
    let expected = format!("herethere:9x\n{path}\n0027\n0\n777\n\n7\n");
    assert_eq!(run_with(&["--env", "THERE=there"]), expected);
    let finished = run_with(&["--no-env", "--env", "THERE=there"]);
    assert!(
        finished.ends_with(&expected["herethere:9x".len()..]),
        "{finished}"
    );
}

#[test]
fn output_is_forwarded_byte_by_byte_or_in_prefixed_lines() {
    let finished = script(
        "a:1,b:1",
        &[],
        "[ $PMI_RANK = 1 ] && printf 'x\\000y' && printf z >&2; exit 0",
    );
    assert_eq!(
        (finished.stdout.as_str(), finished.stderr.as_str()),
        ("x\0y", "z\n")
    );
    let lines = "i=0; while [ $i -lt 300 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let finished = script("a:2,b:2", &["-l"], lines);
    for (text, word) in [(&finished.stdout, "out"), (&finished.stderr, "err")] {
        for rank in 0..4 {
            let prefix = format!("[{rank}] ");
            let of_rank = text.lines().filter_map(|line| line.strip_prefix(&prefix));
            let expected = (0..300).map(|i| format!("{word} {i}"));
            assert!(of_rank.eq(expected), "rank {rank}");
        }
    }
}

/// More than the windows of output hold.
#[test]
fn much_output_arrives_whole() {
    let finished = script("a:1,b:1", &[], "seq 200000");
    assert_eq!(finished.code, 0);
    assert_eq!(finished.stdout.lines().count(), 400_000);
    let sum: u64 = finished
        .stdout
        .lines()
        .map(|line| line.parse::<u64>().unwrap())
        .sum();
    assert_eq!(sum, 200_000 * 200_001);
}

#[test]
fn ranks_feel_that_nobody_reads_their_output() {
    let mut reader = Command::new("head")
        .args(["-n", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut command = on_hosts("a:1,b:1", &["yes"]);
    command
        .stdout(reader.stdin.take().unwrap())
        .stderr(Stdio::null());
    let finished = std::thread::spawn(move || command.status().unwrap());
    assert!(reader.wait().unwrap().success());
    // `yes` is killed by SIGPIPE, or exits with 1 where SIGPIPE is ignored.
    assert!(matches!(finished.join().unwrap().code(), Some(141 | 1)));
}

/// A reader that does not read slows only the ranks that write.
#[test]
fn messages_pass_output_that_nobody_reads() {
    let text = "[ $PMI_RANK = 0 ] && exec yes; read line < $0; exit 5";
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("go");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
    let args = ["--grace", "0.1", "sh", "-c", text, fifo.to_str().unwrap()];
    let mut job = Running::start(on_hosts("a:1,b:1", &args));
    // The first line arrives, and then nothing is read.
    assert_eq!(job.line(), "y");
    std::fs::write(&fifo, "go\n").unwrap();
    while !job.stderr().ends_with("; ending the job\n") {
        std::thread::yield_now();
    }
    assert!(
        job.stderr().contains("rank 1 on b (pid "),
        "{}",
        job.stderr()
    );
    job.discard();
    assert_eq!(job.wait(), 5);
}

#[test]
fn standard_input_goes_to_the_ranks_that_shall_read_it() {
    let input = tempfile::NamedTempFile::new().unwrap();
    // More than the window.
    let text = "0123456789\n".repeat(100_000);
    std::fs::write(&input, &text).unwrap();
    let count = text.len().to_string();
    for (readers, expected) in [
        (&[][..], [&*count, "0", "0"]),
        (&["--stdin", "2"], ["0", "0", &*count]),
        (&["--stdin", "none"], ["0", "0", "0"]),
        (&["--stdin", "all"], [&*count, &*count, &*count]),
    ] {
        for hosts in [
            &["--hosts", "a:2,b:1", "--remote-shell", SHELL][..],
            &["-n", "3"],
        ] {
            let args = [hosts, readers, &["-l", "sh", "-c", "wc -c"]].concat();
            let mut command = conduit_run(&args);
            command.stdin(input.reopen().unwrap());
            let finished = run(command);
            let expected = (0..3).map(|rank| format!("[{rank}] {}", expected[rank]));
            assert!(
                sorted(&finished.stdout).into_iter().eq(expected),
                "{args:?} {}",
                finished.stdout
            );
        }
    }
    // Ranks that do not read are no obstacle.
    let mut command = on_hosts("a:1,b:1", &["--stdin", "all", "true"]);
    command.stdin(input.reopen().unwrap());
    assert_eq!(run(command).code, 0);
}

#[test]
fn a_question_is_answered_on_another_host() {
    let question = "[ $PMI_RANK = 0 ] || exit 0; printf 'code? '; read code; exit $code";
    let mut command = on_hosts("a:1,b:1", &["--grace", "600", "sh", "-c", question]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut launcher = command.spawn().unwrap();
    let mut text = [0; 6];
    std::io::Read::read_exact(launcher.stdout.as_mut().unwrap(), &mut text).unwrap();
    assert_eq!(&text, b"code? ");
    launcher.stdin.take().unwrap().write_all(b"7\n").unwrap();
    assert_eq!(launcher.wait().unwrap().code(), Some(7));
}

#[test]
fn ranks_exchange_through_pmi() {
    for (hosts, ranks) in [("a:2,b:1", 3), ("a:1,b:1,c:1,d:4", 7)] {
        let finished = run(on_hosts(hosts, &[PROBE, "exchange", "20000", "3"]));
        assert_eq!(finished.code, 0, "{}", finished.stderr);
        let right = |line: &&str| line.contains("3 exchanges are right");
        assert_eq!(finished.stdout.lines().filter(right).count(), ranks);
    }
}

/// Beyond 32 hosts, daemons start daemons.
#[test]
fn forty_hosts_form_a_tree() {
    let finished = run(on_hosts("n[00-39]:1", &[PROBE, "exchange", "100", "2"]));
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    assert_eq!(finished.stdout.lines().count(), 40);
}

/// Hosts are split into 32 parts. Here the part of n03 has n04 too, below n03.
#[test]
fn a_lost_host_in_a_tree_is_named_and_takes_those_below_with_it() {
    let family = "sleep 1000 & echo $PMI_RANK $CONDUIT_HOST $PPID $$ $!; wait";
    for name in ["n03", "n04"] {
        let mut job = Running::start(on_hosts("n[00-39]:1", &["sh", "-c", family]));
        let lines: Vec<String> = (0..40).map(|_| job.line()).collect();
        let fields = || lines.iter().map(|line| line.split(' ').collect::<Vec<_>>());
        let processes: Vec<_> = fields()
            .flat_map(|f| [f[2], f[3], f[4]].map(Process::new))
            .collect();
        let victim = fields().find(|fields| fields[1] == name).unwrap();
        kill(victim[2], Signal::KILL);
        assert_eq!(job.wait(), 1);
        let stderr = job.stderr();
        let start =
            format!("conduit-run: host {name} is lost: its remote shell 'env CONDUIT_HOST=");
        assert!(stderr.starts_with(&start), "{stderr}");
        let end = "was killed by signal 9 (SIGKILL); ending the job\n";
        assert!(stderr.ends_with(end), "{stderr}");
        processes.iter().for_each(Process::await_end);
    }
}

#[test]
fn failures_name_host_and_rank() {
    for (fail, code, message) in [
        ("exit 5", 5, "exited with code 5"),
        ("kill -9 $$", 137, "was killed by signal 9 (SIGKILL)"),
    ] {
        let text = format!("[ $PMI_RANK = 2 ] && {fail}; exec sleep 1000");
        let finished = script("a:2,b:1", &["--grace", "0.1"], &text);
        assert_eq!(finished.code, code);
        let start = "conduit-run: rank 2 on b (pid ";
        let end = format!(") {message}; ending the job\n");
        assert!(finished.stderr.starts_with(start), "{}", finished.stderr);
        assert!(finished.stderr.ends_with(&end), "{}", finished.stderr);
    }
    let finished = run(on_hosts("a:2,b:2", &[PROBE, "abort", "3", "9"]));
    assert_eq!(finished.code, 9);
    let message = ") aborted the job with code 9: as_told; ending the job\n";
    assert!(
        finished.stderr.contains("rank 3 on b (pid "),
        "{}",
        finished.stderr
    );
    assert!(finished.stderr.contains(message), "{}", finished.stderr);
    // A barrier that ranks on other hosts cannot complete.
    let finished = run(on_hosts("a:2,b:2", &[PROBE, "leave", "1", "0"]));
    assert_eq!(finished.code, 1, "{}", finished.stderr);
    let named = finished
        .stderr
        .starts_with("conduit-run: rank 1 on a (pid ");
    let message = ") exited with code 0 before it had finished the job";
    assert!(
        named && finished.stderr.contains(message),
        "{}",
        finished.stderr
    );
    let never = format!("[ $PMI_RANK = 0 ] && exit 0; exec {PROBE}");
    let finished = script("a:1,b:2", &["--grace", "0.1"], &never);
    assert_eq!(finished.code, 1);
    let named = finished
        .stderr
        .starts_with("conduit-run: rank 0 on a (pid ");
    assert!(
        named && finished.stderr.contains(message),
        "{}",
        finished.stderr
    );
}

#[test]
fn ranks_that_exit_with_the_same_code_need_no_message() {
    let finished = script("a:1,b:1", &["--grace", "600"], "exit 6");
    assert_eq!((finished.code, finished.stderr.as_str()), (6, ""));
}

#[test]
fn a_stopped_rank_on_another_host_is_named() {
    // Rank 0 fails once rank 1 is stopped.
    let text = "[ $PMI_RANK = 1 ] && { echo $$ > $0; kill -STOP $$; }; \
        until read pid < $0; do :; done; \
        until grep -q '^State:.T' /proc/$pid/status; do :; done; exit 5";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pid");
    std::fs::write(&path, "").unwrap();
    let path = path.to_str().unwrap();
    let args = ["--grace", "0.05", "sh", "-c", text, path];
    let finished = run(on_hosts("a:1,b:1", &args));
    assert_eq!(finished.code, 5, "{}", finished.stderr);
    let parts = [
        "rank 0 on a (pid ",
        "; rank 1 on b (pid ",
        ") is stopped; ending the job",
    ];
    let all = parts.iter().all(|part| finished.stderr.contains(part));
    assert!(all, "{}", finished.stderr);
}

/// Every rank starts a child, prints the process ids of its daemon, of itself and of the child, and
/// waits.
const FAMILY: &str = "sleep 1000 & echo $PPID $$ $!; wait";

/// Starts a job on two hosts. Returns it with the processes of each rank: daemon, rank, child.
fn family(shell: &str, options: &[&str]) -> (Running, Vec<Vec<String>>) {
    let mut args = vec!["--remote-shell", shell, "--hosts", "a:1,b:1", "-l"];
    args.extend(options);
    args.extend(["sh", "-c", FAMILY]);
    let mut job = Running::start(conduit_run(&args));
    let mut lines = [job.line(), job.line()];
    lines.sort_unstable();
    let fields = lines.map(|line| line.split(' ').skip(1).map(str::to_owned).collect());
    (job, fields.to_vec())
}

fn processes(pids: &[Vec<String>]) -> Vec<Process> {
    pids.iter().flatten().map(|pid| Process::new(pid)).collect()
}

#[test]
fn nothing_is_left_when_the_launcher_is_killed() {
    let (mut job, pids) = family(SHELL, &[]);
    let processes = processes(&pids);
    job.signal(Signal::KILL);
    assert_eq!(job.wait(), 137);
    processes.iter().for_each(Process::await_end);
}

#[test]
fn nothing_is_left_when_a_daemon_is_killed() {
    let (mut job, pids) = family(SHELL, &[]);
    let processes = processes(&pids);
    kill(&pids[1][0], Signal::KILL);
    assert_eq!(job.wait(), 1);
    let stderr = job.stderr();
    assert!(
        stderr.starts_with("conduit-run: host b is lost: its remote shell "),
        "{stderr}"
    );
    processes.iter().for_each(Process::await_end);
}

#[test]
fn nothing_is_left_when_a_remote_shell_is_killed() {
    // The shell stays between the launcher and the daemon, as ssh does.
    let shell = "sh -c 'CONDUIT_HOST={host} \"$0\" \"$@\"; exit $?'";
    let (mut job, pids) = family(shell, &[]);
    let processes = processes(&pids);
    let status = std::fs::read_to_string(format!("/proc/{}/status", pids[1][0])).unwrap();
    let parent = status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))
        .unwrap();
    kill(parent.trim(), Signal::KILL);
    assert_eq!(job.wait(), 1);
    let stderr = job.stderr();
    assert!(
        stderr.starts_with("conduit-run: host b is lost: its remote shell "),
        "{stderr}"
    );
    assert!(
        stderr.ends_with("was killed by signal 9 (SIGKILL); ending the job\n"),
        "{stderr}"
    );
    processes.iter().for_each(Process::await_end);
}

#[test]
fn signals_reach_the_ranks_of_all_hosts() {
    let text = "trap 'echo got' USR2; echo ready; while :; do sleep 1000 & wait; done";
    let args = ["--grace", "600", "sh", "-c", text];
    let mut job = Running::start(on_hosts("a:2,b:1", &args));
    assert!((0..3).all(|_| job.line() == "ready"));
    job.signal(Signal::USR2);
    assert!((0..3).all(|_| job.line() == "got"));
    job.signal(Signal::INT);
    assert_eq!(job.wait(), 130);
    assert_eq!(job.stderr(), "");
}

#[test]
fn a_stopped_launcher_stops_its_ranks() {
    let (mut job, pids) = family(SHELL, &[]);
    let stopped = |wanted: bool| {
        let is_stopped = |pids: &Vec<String>| {
            let status = std::fs::read_to_string(format!("/proc/{}/status", pids[1]));
            status.unwrap().contains("\nState:\tT")
        };
        while !pids.iter().all(|pids| is_stopped(pids) == wanted) {
            std::thread::yield_now();
        }
    };
    job.signal(Signal::TSTP);
    stopped(true);
    job.signal(Signal::CONT);
    stopped(false);
    job.signal(Signal::TERM);
    assert_eq!(job.wait(), 143);
}

#[test]
fn ranks_that_ignore_the_end_are_killed_on_all_hosts() {
    let text = "trap '' TERM; echo $$; while :; do sleep 1000; done";
    let args = ["--grace", "0.1", "--timeout", "0.5", "sh", "-c", text];
    let mut job = Running::start(on_hosts("a:1,b:1", &args));
    let ranks = [job.line(), job.line()].map(|pid| Process::new(&pid));
    assert_eq!(job.wait(), 124);
    assert!(ranks.iter().all(Process::ended));
    let message = "conduit-run: the job has not ended within 0.5 s; ending the job\n";
    assert_eq!(job.stderr(), message);
}

#[test]
fn processes_that_left_their_rank_end_with_the_job() {
    let text = "echo $(setsid sh -c 'echo $$; exec sleep 1000 > /dev/null 2>&1' &)";
    let mut job = Running::start(on_hosts("a:1,b:1", &["sh", "-c", text]));
    let strays: Vec<_> = (0..2).map(|_| Process::new(&job.line())).collect();
    assert_eq!(job.wait(), 0);
    assert!(strays.iter().all(Process::ended));
}

#[test]
fn programs_that_cannot_run_are_named_with_their_host() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    let plain = plain.to_str().unwrap();
    for (program, code, message) in [
        (
            "no-such-program",
            127,
            "host a: program \"no-such-program\" is not found",
        ),
        (plain, 126, "cannot be executed"),
    ] {
        let finished = run(on_hosts("a:1,b:1", &[program]));
        assert_eq!(finished.code, code, "{}", finished.stderr);
        assert!(
            finished.stderr.starts_with("conduit-run: host "),
            "{}",
            finished.stderr
        );
        let message = message.trim_start_matches("host a: ");
        assert!(finished.stderr.contains(message), "{}", finished.stderr);
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    }
    // Another host has no such folder.
    let here = folder.path().join("here");
    std::fs::create_dir(&here).unwrap();
    let shell = "sh -c 'rmdir \"$PWD\"; exec \"$@\"' {host}";
    let mut command = conduit_run(&["--hosts", "a:1", "--remote-shell", shell, "true"]);
    command.current_dir(&here).env("PWD", &here);
    let finished = run(command);
    assert_eq!(finished.code, 2);
    let message = "conduit-run: host a: working directory \"";
    assert!(finished.stderr.starts_with(message), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("cannot be entered"),
        "{}",
        finished.stderr
    );
}

/// Runs a job on a host that works and one where the remote shell runs this script instead.
fn with_bad_host(script: &str, options: &[&str]) -> Finished {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shell");
    let text = format!("#!/bin/sh\n[ $1 = good ] && {{ shift; exec \"$@\"; }}\n{script}\n");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    let shell = path.to_str().unwrap();
    let mut args = vec!["--hosts", "good:1,bad:1", "--remote-shell", shell];
    args.extend(options);
    args.extend(["sleep", "1000"]);
    run(conduit_run(&args))
}

#[test]
fn hosts_that_cannot_be_used_are_named_with_command_and_output() {
    for (script, options, parts) in [
        (
            "exec sleep 1000",
            &["--start-timeout", "0.3"][..],
            &["within 0.3 s (--start-timeout)"][..],
        ),
        (
            "echo CONDUIT-RUN-DAEMON 9 7.7.7",
            &[],
            &["version 7.7.7 (protocol 9)", "(protocol 1)"],
        ),
        ("echo CONDUIT-RUN-DAEMON", &[], &["version ? (protocol ?)"]),
        (
            "shift; shift; /no/such/conduit-run \"$@\"",
            &[],
            &["exited with code 127; --remote-path"],
        ),
        (
            "kill -9 $$",
            &[],
            &["was killed by signal 9 (SIGKILL); it printed nothing"],
        ),
        (
            "exec true",
            &[],
            &["exited with code 0; it printed nothing"],
        ),
        (
            "exec seq 100000",
            &[],
            &["exited with code 0; it printed:", "\n    100000\n"],
        ),
    ] {
        let finished = with_bad_host(script, options);
        assert_eq!(finished.code, 2, "{script}: {}", finished.stderr);
        let stderr = &finished.stderr;
        assert!(
            stderr.starts_with("conduit-run: host bad: "),
            "{script}: {stderr}"
        );
        assert!(
            stderr.contains("/shell bad /"),
            "the command: {script}: {stderr}"
        );
        assert!(stderr.len() < 20_000, "{script}: {}", stderr.len());
        for part in parts {
            assert!(stderr.contains(part), "{script}: {stderr}");
        }
    }
    let finished = with_bad_host("echo out; echo 'no route to host' >&2; exit 255", &[]);
    let end = " --daemon' exited with code 255; it printed:\n    out\n    no route to host\n";
    assert!(finished.stderr.ends_with(end), "{}", finished.stderr);
    // A daemon that says what is not understood.
    let version = env!("CARGO_PKG_VERSION");
    let garbage = format!("echo CONDUIT-RUN-DAEMON 1 {version}; exec seq 1000");
    let finished = with_bad_host(&garbage, &[]);
    let message = "conduit-run: host bad: it sent garbage: a message of ";
    assert!(finished.stderr.starts_with(message), "{}", finished.stderr);
}

#[test]
fn what_a_login_prints_is_skipped() {
    let shell =
        "sh -c 'echo Welcome to {host}; echo careful >&2; CONDUIT_HOST={host} exec \"$0\" \"$@\"'";
    let args = [
        "--hosts",
        "a:1,b:1",
        "--remote-shell",
        shell,
        "sh",
        "-c",
        "echo $PMI_RANK",
    ];
    let finished = run(conduit_run(&args));
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    assert_eq!(sorted(&finished.stdout), ["0", "1"]);
    // Standard error may matter, and is forwarded.
    assert_eq!(finished.stderr, "careful\ncareful\n");
}

#[test]
fn an_interrupt_ends_the_start() {
    let shell = "sh -c 'echo $$ > $0.pid; exec sleep 1000'";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let fifo = folder.path().join("run.pid");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
    let path = path.to_str().unwrap();
    let args = [
        "--hosts",
        "a:1",
        "--remote-shell",
        shell,
        "--remote-path",
        path,
        "true",
    ];
    let shell = format!("sh -c 'echo $$ > {path}.pid; exec sleep 1000'");
    let args = args.map(|arg| {
        if arg.starts_with("sh -c") {
            &*shell
        } else {
            arg
        }
    });
    let mut job = Running::start(conduit_run(&args));
    let pid = std::fs::read_to_string(&fifo).unwrap();
    let process = Process::new(pid.trim());
    job.signal(Signal::INT);
    assert_eq!(job.wait(), 130);
    let message = "conduit-run: received signal 2 (SIGINT) before the job had started\n";
    assert_eq!(job.stderr(), message);
    process.await_end();
}

#[test]
fn starts_are_reported() {
    let finished = script("a:1,b:1", &["-v"], "exit 0");
    let stderr = &finished.stderr;
    for part in [
        "the daemon of host a has started (",
        " of 2)\n",
        "rank 1 on b is pid ",
        "rank 0 on a (pid ",
    ] {
        assert!(stderr.contains(part), "{stderr}");
    }
}
