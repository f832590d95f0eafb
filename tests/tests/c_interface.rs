//! The C interface: jobs of the C and C++ programs of `tests/c/gex`, which together use every name
//! of its headers; the ways in which a job ends; bad input.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use conduit_tests::c::{self, words};
use conduit_tests::installed::{self, Link, Prefix, WARNINGS};
use conduit_tests::job::{Finished, Job};
use conduit_tests::sample::draws;
use conduit_tests::{ofi, portals4};
use tempfile::TempDir;

/// The packages of the installed modes.
const PACKAGES: [&str; 3] = ["gasnet-smp-seq", "gasnet-smp-parsync", "gasnet-smp-par"];
const C99: [&str; 3] = ["gcc", "-std=c99", "-Wstrict-prototypes"];
const CXX: [[&str; 4]; 2] = [
    ["g++", "-std=c++11", "-x", "c++"],
    ["g++", "-std=c++17", "-x", "c++"],
];

/// The versions of C and C++ that programs are compiled as. Most only have to compile without
/// warnings, because running them all would show no more than running one.
const STANDARDS: [&str; 9] = [
    "c99", "c11", "c17", "c2x", "c++11", "c++14", "c++17", "c++20", "c++23",
];

/// Returns each available compiler with each standard that it supports.
fn dialects() -> &'static [Vec<String>] {
    static DIALECTS: OnceLock<Vec<Vec<String>>> = OnceLock::new();
    DIALECTS.get_or_init(|| {
        let mut known = Vec::new();
        for (c, cxx) in [("gcc", "g++"), ("clang", "clang++")] {
            for standard in STANDARDS {
                let words = match standard.starts_with("c++") {
                    true => [cxx, "-x", "c++"],
                    false => [c, "-x", "c"],
                };
                let mut words: Vec<String> = words.map(str::to_owned).into();
                words.push(format!("-std={standard}"));
                let nothing = words[1..].iter().map(String::as_str);
                let nothing = nothing.chain(["-fsyntax-only", "/dev/null"]);
                let tried = Job::alone(&words[0], nothing).run();
                if tried.is_ok_and(|tried| tried.code == Some(0)) {
                    if words[2] == "c" {
                        words.push("-Wstrict-prototypes".to_owned());
                    }
                    known.push(words);
                }
            }
        }
        for least in ["-std=c99", "-std=c11", "-std=c++11", "-std=c++17"] {
            assert!(known.iter().any(|words| words[3] == least), "{known:?}");
        }
        known
    })
}

/// Requires that a source has no warning in a dialect.
#[track_caller]
fn is_clean(package: &str, dialect: &[String], source: &Path, what: &str) {
    let words: Vec<&str> = dialect.iter().map(String::as_str).chain(WARNINGS).collect();
    prefix()
        .check(package, &words, source)
        .unwrap_or_else(|error| panic!("{what}: {dialect:?}: {error:#}"));
}

fn prefix() -> &'static Prefix {
    installed::debug(env!("CARGO_TARGET_TMPDIR"))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("c/gex")
}

fn source(program: &str) -> PathBuf {
    folder().join(program).with_extension("c")
}

/// A program that is removed with its folder.
#[derive(Debug)]
struct Program {
    path: PathBuf,
    _folder: Option<TempDir>,
}

/// Returns a program of `tests/c/gex`, compiled once for all tests that run it.
#[track_caller]
fn built(prefix: &Prefix, package: &str, compiler: &[&str], program: &str) -> Arc<Program> {
    static BUILT: Mutex<BTreeMap<PathBuf, Arc<OnceLock<Arc<Program>>>>> =
        Mutex::new(BTreeMap::new());
    let folder = match prefix.debug() == self::prefix().debug() {
        true => "programs",
        false => "programs-optimised",
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let path = folder.join(package).join(compiler.concat()).join(program);
    let mut all = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Arc::clone(all.entry(path.clone()).or_default());
    drop(all);
    let make = || {
        fs::create_dir_all(path.parent().expect("a folder")).unwrap();
        compile(prefix, package, compiler, &source(program), &path);
        Arc::new(Program {
            path,
            _folder: None,
        })
    };
    Arc::clone(place.get_or_init(make))
}

/// Returns a program compiled from this text.
#[track_caller]
fn built_of(
    prefix: &Prefix,
    package: &str,
    compiler: &[&str],
    program: &str,
    text: &str,
) -> Program {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (folder.path().join("source.c"), folder.path().join(program));
    fs::write(&file, text).unwrap();
    compile(prefix, package, compiler, &file, &path);
    Program {
        path,
        _folder: Some(folder),
    }
}

#[track_caller]
fn compile(prefix: &Prefix, package: &str, compiler: &[&str], source: &Path, to: &Path) {
    let compiler: Vec<&str> = compiler.iter().copied().chain(WARNINGS).collect();
    prefix
        .build(Link::Shared, package, &compiler, source, to)
        .unwrap_or_else(|error| panic!("{error:#}"));
}

fn job(program: &Program, ranks: u32, arguments: &[&str]) -> Job {
    let launcher = prefix().launcher("conduit-run");
    Job::new(launcher, ranks, &program.path, arguments).env("TEST_TEXT", "a value, with spaces")
}

#[track_caller]
fn ran(job: Job) -> Finished {
    job.run().expect("nothing is left behind")
}

#[track_caller]
fn passes(job: Job, what: &str) {
    let finished = ran(job);
    assert_eq!(finished.code, Some(0), "{what}: {finished:#?}");
}

/// Runs a program on 1, 2, 4 and 8 ranks, and on 2 and 4 without mapped memory, where every
/// operation is a message; with the checks of a debug build and on the paths of an optimised one;
/// and on 4 ranks with shuffled requests. A sample has one job of 2 ranks, and a quarter of the
/// others.
fn runs(program: &Program, package: &str) {
    let job = |ranks, settings: &[(&str, &str)]| {
        let what = format!("{package}, {ranks} ranks, {settings:?}");
        let name = program.path.file_name();
        if (ranks, settings) == (2, &[]) || draws((name, &what), 4) {
            passes(job(program, ranks, &[]).envs(settings), &what);
        }
    };
    for ranks in [1, 2, 4, 8] {
        job(ranks, &[]);
    }
    let (windows, checks) = (("CONDUIT_WINDOWS", "0"), ("CONDUIT_CHECKS", "0"));
    for ranks in [2, 4] {
        job(ranks, &[windows]);
        job(ranks, &[checks]);
        job(ranks, &[checks, windows]);
    }
    job(4, &[("CONDUIT_SHUFFLE", "1")]);
}

/// Compiles a program as every version of C and C++ (a third of them if samples are drawn), and
/// runs it in each threading mode.
fn holds(program: &str) {
    for (dialect, package) in dialects().iter().zip(PACKAGES.into_iter().cycle()) {
        if !draws((program, dialect), 3) {
            continue;
        }
        // Programs count in volatile variables, which C++20 deprecates.
        let quiet = match &*dialect[0] {
            "g++" => Some("-Wno-volatile"),
            "clang++" => Some("-Wno-deprecated-volatile"),
            _ => None,
        };
        let dialect: Vec<String> = dialect
            .iter()
            .cloned()
            .chain(quiet.map(str::to_owned))
            .collect();
        is_clean(package, &dialect, &source(program), program);
    }
    for package in PACKAGES {
        runs(&built(prefix(), package, &C99, program), package);
    }
}

macro_rules! programs {
    ($($program:ident)*) => {
        /// Programs that end with code 0 if all their checks pass.
        const PROGRAMS: &[&str] = &[$(stringify!($program)),*];

        $(#[test]
        fn $program() {
            holds(stringify!($program));
        })*
    };
}

programs! {
    constants objects system handlers progress_threads
    am_counts am_payload prepared prepared_counts
    rma atomics events barriers collectives teams endpoints locks credits
    vis legacy_vis
    legacy_job legacy_am legacy_rma
    bad_codes everything segments settings turns children
}

/// Runs `settings` with a variable of GASNet's.
fn with_setting(package: &str, ranks: u32, name: &str, value: &str) -> Finished {
    let program = built(prefix(), package, &C99, "settings");
    ran(job(&program, ranks, &[]).env(name, value))
}

/// Returns the largest segment that `settings` printed in a successful run.
#[track_caller]
fn largest_segment(finished: &Finished) -> u64 {
    assert_eq!(finished.code, Some(0), "{finished:#?}");
    let line = finished
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("largest segment "));
    line.and_then(|bytes| bytes.parse().ok())
        .unwrap_or_else(|| panic!("{finished:#?}"))
}

#[test]
fn neighbourhoods_have_a_largest_size() {
    for (package, ranks, most) in [
        (PACKAGES[0], 4, "1"),
        (PACKAGES[1], 4, "2"),
        (PACKAGES[2], 5, "3"),
        (PACKAGES[0], 2, "7"),
        (PACKAGES[0], 3, "0"),
        (PACKAGES[0], 2, " "),
    ] {
        let finished = with_setting(package, ranks, "GASNET_SUPERNODE_MAXSIZE", most);
        assert_eq!(finished.code, Some(0), "{most:?}: {finished:#?}");
    }
}

#[test]
fn segments_have_a_largest_size() {
    let largest =
        |value| largest_segment(&with_setting(PACKAGES[0], 2, "GASNET_MAX_SEGSIZE", value));
    assert_eq!(largest("1MB"), 1 << 20);
    assert_eq!(largest("1MB/P"), 1 << 20);
    assert_eq!(largest("1MB/H"), 1 << 19);
    // Shares of the host's memory, in whole pages; the host's share is divided among its ranks.
    let (of_process, of_host) = (largest("0.02/P"), largest("0.04/H"));
    assert!(
        of_process.abs_diff(of_host) <= 4096,
        "{of_process} {of_host}"
    );
    assert!(largest("0.01").abs_diff(of_process / 2) <= 4096);
}

/// A client's own limit is a default: a text takes precedence over a number, and the environment
/// over both. A client assigns to the library's variables or defines them itself, with either kind
/// of library.
#[test]
fn a_client_may_choose_its_largest_segment() {
    let program = built(prefix(), PACKAGES[0], &C99, "settings");
    let (text, number) = ("TEST_MAX_SEGSIZE", "TEST_MAX_SEGSIZE_NUMBER");
    let environment = "GASNET_MAX_SEGSIZE";
    let largest =
        |settings: &[(&str, &str)]| largest_segment(&ran(job(&program, 2, &[]).envs(settings)));
    assert_eq!(largest(&[(text, "1MB/H")]), 1 << 19);
    assert_eq!(largest(&[(number, "2097152")]), 1 << 21);
    assert_eq!(largest(&[(text, "1MB"), (number, "2097152")]), 1 << 20);
    assert_eq!(
        largest(&[(environment, "4MB"), (text, "1MB"), (number, "2097152")]),
        1 << 22
    );
    assert_eq!(largest(&[(environment, " "), (text, "1MB")]), 1 << 20);
    let finished = ran(job(&program, 1, &[]).env(text, "1MB/X"));
    assert!(
        finished.code != Some(0) && finished.stderr.contains("gasnet_max_segsize_str='1MB/X'"),
        "{finished:#?}"
    );

    let source = format!(
        "#include <gasnet.h>\n\
         const char *gasnet_max_segsize_str = \"1MB/H\";\n\
         uint64_t gasnet_max_segsize = 4096;\n\
         #include {:?}\n",
        source("settings")
    );
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (folder.path().join("own.c"), folder.path().join("own"));
    fs::write(&file, source).unwrap();
    for (link, package) in [(Link::Static, PACKAGES[0]), (Link::Shared, PACKAGES[2])] {
        let compiler: Vec<&str> = C99.into_iter().chain(WARNINGS).collect();
        prefix()
            .build(link, package, &compiler, &file, &path)
            .unwrap_or_else(|error| panic!("{error:#}"));
        let program = Program {
            path: path.clone(),
            _folder: None,
        };
        assert_eq!(largest_segment(&ran(job(&program, 2, &[]))), 1 << 19);
    }
}

#[test]
fn settings_that_make_no_sense_are_named() {
    for (name, value) in [
        ("GASNET_SUPERNODE_MAXSIZE", "-1"),
        ("GASNET_SUPERNODE_MAXSIZE", "two"),
        ("GASNET_MAX_SEGSIZE", "1.5/H"),
        ("GASNET_MAX_SEGSIZE", "1MB/X"),
        ("GASNET_CATCH_EXIT", "perhaps"),
        ("GASNET_NO_CATCH_SIGNAL", "SEGV,SIGNOTHING"),
    ] {
        let finished = with_setting(PACKAGES[0], 1, name, value);
        assert_ne!(finished.code, Some(0), "{name}={value}: {finished:#?}");
        assert!(
            finished.stderr.contains(&format!("{name}='{value}'")),
            "{finished:#?}"
        );
    }
}

/// Returns a job whose ranks take each pair of ranks for a host.
fn in_pairs(program: &Program, ranks: u32, arguments: &[&str]) -> Job {
    let script = "export CONDUIT_HOST=host$((PMI_RANK / 2)); exec \"$@\"";
    let path = program.path.to_str().expect("a path in UTF-8");
    let wrapped: Vec<&str> = ["-c", script, "sh", path]
        .into_iter()
        .chain(arguments.iter().copied())
        .collect();
    let launcher = prefix().launcher("conduit-run");
    Job::new(launcher, ranks, "sh", &wrapped)
        .env("CONDUIT_NETWORK", "shm,udp")
        .env("CONDUIT_UDP_INTERFACE", "lo")
}

/// A segment may also be created by the program, over the library's memory or its own. It is
/// reached by the system's copies, or by messages where the system forbids these and between hosts.
#[test]
fn a_segment_may_be_bound_to_the_first_endpoint() {
    const PROGRAMS: [&str; 8] = [
        "segments",
        "rma",
        "am_payload",
        "prepared",
        "prepared_counts",
        "atomics",
        "vis",
        "events",
    ];
    for (program, package) in PROGRAMS.into_iter().zip(PACKAGES.into_iter().cycle()) {
        if !draws(("bound", program), 3) {
            continue;
        }
        let program = built(prefix(), package, &C99, program);
        for (of, ranks) in [("program", 2), ("library", 4)] {
            let bound = |ranks| job(&program, ranks, &[]).env("TEST_SEGMENT", of);
            passes(bound(ranks), &format!("{program:?} of the {of}"));
            let messages = bound(ranks).env("TEST_COPIES", "own");
            passes(messages, &format!("{program:?} of the {of} by messages"));
        }
        passes(
            job(&program, 1, &[]).env("TEST_SEGMENT", "program"),
            "alone",
        );
        let pairs = in_pairs(&program, 4, &[]).env("TEST_SEGMENT", "program");
        passes(pairs, "two hosts of two");
    }
}

/// In a program compiled for large segments, the calls are the same as in one for fast segments.
#[test]
fn large_segments_are_fast() {
    let text = format!(
        "#define GASNET_SEGMENT_LARGE 1\n#include {:?}\n\
         #if defined(GASNET_SEGMENT_FAST) || !GASNET_SEGMENT_LARGE\n#error \"not large\"\n#endif\n",
        source("rma")
    );
    let program = built_of(prefix(), PACKAGES[0], &C99, "large", &text);
    passes(job(&program, 2, &[]), "2 ranks");
}

/// Between hosts, segment everything is accessed by messages.
#[test]
fn everything_between_hosts() {
    for package in PACKAGES {
        let program = built(prefix(), package, &C99, "everything");
        for ranks in [1, 2, 4] {
            let apart = job(&program, ranks, &[]).env("CONDUIT_NETWORK", "udp");
            passes(apart, &format!("{package}, {ranks} ranks over UDP"));
        }
        let pairs = in_pairs(&program, 4, &[]);
        passes(pairs, &format!("{package}, two hosts of two"));
        if ofi::libraries().iter().any(|found| found.name == "system") {
            let fabric = job(&program, 2, &[])
                .env("CONDUIT_NETWORK", "ofi")
                .env("CONDUIT_OFI_PROVIDER", "tcp")
                .env("CONDUIT_OFI_DOMAIN", "lo");
            passes(fabric, &format!("{package}, over libfabric"));
        }
    }
}

/// Programs that run over Portals 4: messages of every size with their flow control, puts and gets,
/// atomics, barriers and collectives.
const OVER_PORTALS4: [&str; 8] = [
    "am_counts",
    "am_payload",
    "prepared",
    "rma",
    "collectives",
    "locks",
    "credits",
    "legacy_rma",
];

/// On a libportals without faults, because with many faults the programs with the most messages
/// take minutes.
#[test]
fn over_portals4() {
    let folder = tempfile::tempdir().unwrap();
    let library = portals4::file(folder.path(), "");
    let library = library.to_str().expect("a path in UTF-8");
    for (program, package) in OVER_PORTALS4.into_iter().zip(PACKAGES.into_iter().cycle()) {
        let built = built(prefix(), package, &C99, program);
        for ranks in [2, 4] {
            if !draws(("portals4", program, ranks), 3) {
                continue;
            }
            let job = job(&built, ranks, &[])
                .env("CONDUIT_NETWORK", "portals4")
                .env("CONDUIT_PORTALS4_LIBRARY", library);
            passes(job, &format!("{program}, {package}, {ranks} ranks"));
        }
    }
}

/// Ranks of one host and of others on the same number.
#[test]
fn atomics_between_hosts() {
    let program = built(prefix(), PACKAGES[2], &C99, "atomics");
    for checks in ["0", "1"] {
        let pairs = in_pairs(&program, 4, &[]).env("CONDUIT_CHECKS", checks);
        passes(pairs, "two hosts of two");
    }
}

#[test]
fn ranks_agree_on_a_domain() {
    let program = built(prefix(), PACKAGES[0], &C99, "atomics");
    let finished = ran(job(&program, 3, &["differ"]));
    assert_eq!(finished.code, Some(1), "{finished:#?}");
    let told = "gex_AD_Create on rank ";
    assert!(finished.stderr.contains(told), "{finished:#?}");
    let told = "ops differs between ranks: 0x";
    assert!(finished.stderr.contains(told), "{finished:#?}");
}

/// On many systems a process can't access another one's memory; then all accesses are messages, as
/// between hosts.
#[test]
fn everything_where_the_system_forbids_copies() {
    let program = built(prefix(), PACKAGES[0], &C99, "everything");
    for ranks in [2, 4] {
        let job = job(&program, ranks, &[]).env("TEST_COPIES", "own");
        passes(job, &format!("{ranks} ranks"));
    }
    let finished = ran(job(&program, 2, &[]).env("TEST_COPIES", "none"));
    assert_ne!(finished.code, Some(0), "{finished:#?}");
    let told = "does not let a process copy its own memory";
    assert!(finished.stderr.contains(told), "{finished:#?}");
}

/// Many calls of GASNet-1 are inline calls of GASNet-EX.
#[test]
fn what_a_client_of_gasnet_1_calls_is_named_as_it_was_called() {
    let program = built(prefix(), PACKAGES[0], &C99, "legacy_rma");
    for call in [
        "gasnet_put",
        "gasnet_get",
        "gasnet_put_nb",
        "gasnet_get_nbi",
        "gasnet_put_val",
        "gasnet_end_nbi_accessregion",
    ] {
        let finished = ran(job(&program, 2, &[call]));
        assert_eq!(finished.code, Some(1), "{call}: {finished:#?}");
        let told = format!("{call} on rank ");
        assert!(finished.stderr.contains(&told), "{call}: {finished:#?}");
    }
}

/// The same for segments bound to further endpoints.
#[test]
fn further_segments_where_the_system_forbids_copies() {
    let program = built(prefix(), PACKAGES[1], &C99, "endpoints");
    for ranks in [2, 4] {
        let job = job(&program, ranks, &[]).env("TEST_COPIES", "own");
        passes(job, &format!("{ranks} ranks"));
    }
}

/// An access to memory that a peer doesn't have ends the job instead of corrupting it.
#[test]
fn everything_has_an_end() {
    let program = built(prefix(), PACKAGES[0], &C99, "everything");
    for (way, call, networks) in [
        ("put", "gex_RMA_PutBlocking", &["shm", "udp"][..]),
        ("get", "gex_RMA_GetBlocking", &["shm", "udp"]),
        ("long", "gex_AM_RequestLong", &["shm", "udp"]),
        ("array-put", "gex_VIS_StridedPutBlocking", &["shm"]),
        ("array-get", "gex_VIS_StridedGetBlocking", &["shm"]),
        ("atomic", "gex_Event_Wait", &["shm", "udp"]),
    ] {
        for network in networks {
            let finished = ran(job(&program, 2, &[way]).env("CONDUIT_NETWORK", network));
            assert_eq!(finished.code, Some(1), "{way}, {network}: {finished:#?}");
            let (told, place) = (format!("{call} on rank 0"), "address 0x10 of rank 1");
            assert!(finished.stderr.contains(&told), "{call}: {finished:#?}");
            assert!(finished.stderr.contains(place), "{call}: {finished:#?}");
        }
    }
    // If the data travels with a message, the target detects the error.
    for (way, network, bytes) in [
        ("short-long", "shm", 8),
        ("array-put", "udp", 4),
        ("array-get", "udp", 4),
    ] {
        let finished = ran(job(&program, 2, &[way]).env("CONDUIT_NETWORK", network));
        assert_eq!(finished.code, Some(1), "{way}: {finished:#?}");
        let told =
            format!("{bytes} bytes at address 0x10 are not all accessible memory of this rank");
        assert!(finished.stderr.contains(&told), "{way}: {finished:#?}");
    }
}

/// Programs that other tests run, each with its own arguments.
const OTHERS: [&str; 2] = ["ending", "bad_fatal"];

#[test]
fn in_cxx_it_is_the_same() {
    for (package, compiler) in PACKAGES.into_iter().zip(CXX.into_iter().cycle()) {
        for program in ["am_counts", "events", "legacy_rma"] {
            passes(
                job(&built(prefix(), package, &compiler, program), 2, &[]),
                program,
            );
        }
    }
}

/// With the optimised library under the variable's prefix (`cargo xtask install --no-debug`), which
/// tests the parts of the headers that debug builds leave to the library.
#[test]
#[ignore = "needs an installed optimised build: CONDUIT_TEST_PREFIX"]
fn optimised() {
    let root = std::env::var("CONDUIT_TEST_PREFIX").expect("CONDUIT_TEST_PREFIX");
    let optimised = Prefix::optimised(PathBuf::from(root));
    for package in [PACKAGES[0], PACKAGES[2]] {
        for program in PROGRAMS {
            if !draws(("optimised", package, program), 2) {
                continue;
            }
            let compiler = ["gcc", "-std=c99", "-O3"];
            runs(&built(&optimised, package, &compiler, program), package);
        }
    }
    // Ranks, ranges and addresses of puts and gets, which the headers compare in this build, and
    // null teams.
    let mut cases = fatal_cases();
    cases.retain(|[case, call, part]| {
        let range = part.contains("rank") || part.contains("segment") || part.contains("at 0x0");
        let moves = ["gex_RMA_", "gex_VIS_"]
            .iter()
            .any(|start| call.starts_with(start));
        moves && range && !part.contains("overlap") || case.starts_with("null_team_of_")
    });
    assert!(cases.len() >= 27, "{cases:?}");
    cases.push(
        [
            "poll_in_handler",
            "gasnet_AMPoll",
            "polling is not allowed in a handler",
        ]
        .map(str::to_owned),
    );
    let compiler = ["gcc", "-std=c99", "-O3"];
    let program = built(&optimised, PACKAGES[0], &compiler, "bad_fatal");
    all_refused(&program, &cases);
    // With a table of one entry, rank 1 is treated as rank 4,096 otherwise is.
    let one_entry = |program| {
        let text = format!(
            "#include <conduit_gex/entries.h>\n#undef CONDUIT_GEX_NEAR_RANKS\n\
             #define CONDUIT_GEX_NEAR_RANKS 1U\n#include {:?}\n",
            source(program)
        );
        built_of(&optimised, PACKAGES[0], &compiler, program, &text)
    };
    for program in ["rma", "legacy_rma", "atomics", "teams", "children"] {
        runs(&one_entry(program), PACKAGES[0]);
    }
    all_refused(&one_entry("bad_fatal"), &cases);
}

/// Puts and gets of a word as the last call of a function, and an empty function.
const WORDS: &str = r"
#include <gasnet.h>
#define ARGUMENTS gex_TM_t tm, gex_Rank_t rank, void *there, void *here
void nothing(void) {}
int put(ARGUMENTS) { return gex_RMA_PutBlocking(tm, rank, there, here, 8, 0); }
int get(ARGUMENTS) { return gex_RMA_GetBlocking(tm, here, rank, there, 8, 0); }
gex_Event_t get_nb(ARGUMENTS) { return gex_RMA_GetNB(tm, here, rank, there, 8, 0); }
int get_nbi(ARGUMENTS) { return gex_RMA_GetNBI(tm, here, rank, there, 8, 0); }
int put_value(ARGUMENTS) { return gex_RMA_PutBlockingVal(tm, rank, there, (uintptr_t)here, 8, 0); }
void legacy_put(ARGUMENTS) { gasnet_put(rank, there, here, 8), (void)tm; }
";

/// Calls that the headers leave to the library are tail calls, because a stack frame would cost
/// more than the copy of a word.
#[test]
fn an_inline_put_or_get_makes_no_frame() {
    let folder = tempfile::tempdir().unwrap();
    let (file, object) = (folder.path().join("words.c"), folder.path().join("words.o"));
    fs::write(&file, WORDS).unwrap();
    let inline = ["-UGASNET_DEBUG", "-DGASNET_NDEBUG"];
    let compiler = [&["gcc", "-O2", "-fstack-usage"][..], &inline].concat();
    prefix()
        .object(PACKAGES[0], &compiler, &file, &object)
        .unwrap_or_else(|error| panic!("{error:#}"));
    // A line for each function: "file:line:column:name", then its stack usage.
    let usage = fs::read_to_string(object.with_extension("su")).unwrap();
    let found: Vec<(&str, &str)> = usage
        .lines()
        .filter_map(|line| line.rsplit(':').next()?.split_once('\t'))
        .collect();
    assert_eq!(found.len(), 7, "{usage}");
    let (_, least) = found[0];
    assert!(found.iter().all(|&(_, used)| used == least), "{usage}");
}

// ---- headers and names ----

/// Headers that a client may include, each alone and in any order.
const HEADERS: [&str; 8] = [
    "gasnetex",
    "gasnet",
    "gasnet_fwd",
    "gasnet_vis",
    "gasnet_coll",
    "gasnet_ratomic",
    "gasnet_mk",
    "gasnet_tools",
];

#[test]
fn headers_go_alone_and_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut orders: Vec<Vec<&str>> = HEADERS.iter().map(|&header| vec![header]).collect();
    orders.push(HEADERS.to_vec());
    orders.push(HEADERS.iter().rev().copied().collect());
    orders.push(HEADERS.iter().chain(&HEADERS).copied().collect());
    for (number, order) in orders.iter().enumerate() {
        let text: String = order
            .iter()
            .map(|header| format!("#include <{header}.h>\n"))
            .collect();
        let file = folder.path().join(format!("{number}.c"));
        fs::write(&file, text + "int main(void) { return 0; }\n").unwrap();
        for package in PACKAGES {
            for dialect in dialects() {
                is_clean(package, dialect, &file, &format!("{order:?}"));
            }
        }
    }
}

/// Returns whether a name is one of GASNet's, other than its tools'.
fn is_public(name: &str) -> bool {
    let tools = ["gasnett_", "GASNETT_", "gasneti_freeze"];
    let own = [
        "gex_",
        "GEX_",
        "gasnet_",
        "GASNET_",
        "gasneti_",
        "GASNETI_",
        "SIZEOF_",
        "_INCLUDED_G",
    ];
    own.iter().any(|start| name.starts_with(start))
        && !tools.iter().any(|start| name.starts_with(start))
}

/// Returns all names that a program gets from `gasnet.h`, and the macros of these headers that are
/// not GASNet's names.
fn names_of_headers(package: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.c");
    let headers = [
        "gasnet",
        "gasnet_coll",
        "gasnet_mk",
        "gasnet_ratomic",
        "gasnet_vis",
    ];
    let all = headers.map(|header| format!("#include <{header}.h>\n"));
    fs::write(&file, all.concat()).unwrap();
    let text = prefix()
        .preprocess(package, &["gcc", "-std=c99", "-dD"], &file)
        .unwrap_or_else(|error| panic!("{error:#}"));
    let include = fs::canonicalize(prefix().debug().join("include")).unwrap();
    let (mut public, mut foreign) = (BTreeSet::new(), BTreeSet::new());
    let mut ours = false;
    for line in text.lines() {
        if let Some(mark) = line.strip_prefix("# ") {
            let name = mark.split('"').nth(1).unwrap_or_default();
            // The path is as pkg-config wrote it.
            let name = fs::canonicalize(name).unwrap_or_default();
            ours = name.strip_prefix(&include).is_ok_and(|name| {
                let tools = ["gasnet_tools", "gasnet_portable_platform.h"];
                !tools.iter().any(|tool| name.starts_with(tool))
                    && name != Path::new("gasnet_tools.h")
            });
        } else if ours {
            public.extend(
                words(line)
                    .filter(|word| is_public(word))
                    .map(str::to_owned),
            );
            let defined = line
                .strip_prefix("#define ")
                .and_then(|rest| words(rest).next());
            if let Some(name) = defined
                && !is_public(name)
                && !["CONDUIT_", "conduit_", "GASNETT_"]
                    .iter()
                    .any(|start| name.starts_with(start))
            {
                foreign.insert(name.to_owned());
            }
        }
    }
    (public, foreign)
}

/// Returns the names that a program uses: the words of its sources, and the functions in its
/// object, which include inline ones only if they are called.
fn used_by(program: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let mut sources = vec![source(program)];
    while let Some(path) = sources.pop() {
        let text = fs::read_to_string(&path).unwrap();
        used.extend(words(&text).map(str::to_owned));
        let own = text.lines().filter_map(|line| {
            let name = line.strip_prefix("#include \"")?.strip_suffix('"')?;
            Some(folder().join(name))
        });
        sources.extend(own);
    }
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("object.o");
    prefix()
        .object(
            PACKAGES[2],
            &["gcc", "-std=c99", "-O0"],
            &source(program),
            &object,
        )
        .unwrap_or_else(|error| panic!("{error:#}"));
    let symbols = ran(Job::alone(
        "nm",
        ["--format=posix", object.to_str().unwrap()],
    ));
    assert_eq!(symbols.code, Some(0), "{symbols:#?}");
    let symbols = symbols
        .stdout
        .lines()
        .filter_map(|line| line.split(' ').next());
    used.extend(symbols.map(str::to_owned));
    used
}

#[test]
fn every_name_of_the_headers_is_in_a_program() {
    let table = c::names(&folder().join("names.tsv"));
    let mut there = BTreeSet::new();
    for package in PACKAGES {
        let (public, foreign) = names_of_headers(package);
        assert_eq!(foreign, BTreeSet::new(), "macros besides GASNet's names");
        there.extend(public);
    }
    c::all_listed(&table, &there);

    let mut programs = BTreeMap::new();
    let mut unused = Vec::new();
    for (name, program) in &table {
        let program = program.strip_suffix(".c").unwrap();
        assert!(
            PROGRAMS.contains(&program) || OTHERS.contains(&program),
            "{program} is not run"
        );
        let used = programs.entry(program).or_insert_with(|| used_by(program));
        if !used.contains(name) {
            unused.push(format!("{name} in {program}"));
        }
    }
    assert!(unused.is_empty(), "not used: {unused:#?}");
}

#[test]
fn every_program_is_run() {
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.extension().is_some_and(|end| end == "c") {
            assert!(PROGRAMS.contains(&name) || OTHERS.contains(&name), "{name}");
        }
    }
}

// ---- the end of a job ----

/// Runs `ending`, requires this exit code, and returns the output.
#[track_caller]
fn ends(
    program: &Program,
    ranks: u32,
    how: &str,
    code: i32,
    variables: &[(&str, &str)],
) -> Finished {
    // The time limits that the tests would otherwise wait for when ranks never end by themselves.
    let job = job(program, ranks, &[how, "7"])
        .env("GASNET_EXITTIMEOUT", "1")
        .env("CONDUIT_EXIT_GRACE", "0");
    let finished = ran(job.envs(variables));
    assert_eq!(finished.code, Some(code), "{how} on {ranks}: {finished:#?}");
    // The rank that ends the job alone has written its line. Any other rank may be ended before it
    // is notified.
    let rest_is_lost = ["before-attach", "all", "handler", "return"];
    if !rest_is_lost.contains(&how) && code < 128 {
        let line = format!("rank {} is there", ranks - 1);
        assert!(finished.stdout.contains(&line), "{how}: {finished:#?}");
    }
    finished
}

#[test]
fn ending() {
    for package in PACKAGES {
        let program = built(prefix(), package, &C99, "ending");
        for ranks in [1, 3] {
            for how in [
                "exit",
                "all",
                "handler",
                "reply-handler",
                "lock",
                "prepared",
                "before-attach",
                "return",
                "return-one",
                "libc-exit",
            ] {
                let finished = ends(&program, ranks, how, 7, &[]);
                // `exit` runs the functions registered with atexit, `gasnet_exit` doesn't.
                assert_eq!(
                    finished.stderr.matches("atexit").count(),
                    usize::from(how == "libc-exit"),
                    "{how}: {finished:#?}"
                );
            }
            if package.ends_with("par") {
                ends(&program, ranks, "thread", 7, &[]);
            }
        }
        // A stream locked by another thread doesn't block the exit.
        for ranks in [1, 3] {
            ends(&program, ranks, "reading", 7, &[]);
        }
        for network in ["shm", "udp"] {
            ends(
                &program,
                2,
                "reading-fatal",
                1,
                &[("CONDUIT_NETWORK", network)],
            );
        }
        // The system keeps eight bits of a code. A failed job must not look like a success.
        for (how, code) in [("exit", 1), ("libc-exit", 0)] {
            let finished = ran(job(&program, 2, &[how, "256"]));
            assert_eq!(finished.code, Some(code), "{how}: {finished:#?}");
            assert!(!finished.stderr.contains("before it"), "{finished:#?}");
        }
        let finished = ran(job(&program, 1, &["attach-hook", "0"]));
        assert_eq!(finished.code, Some(0), "{finished:#?}");
        for network in ["shm", "udp"] {
            let job = job(&program, 2, &["closed-streams", "7"]);
            let finished = ran(job.env("CONDUIT_NETWORK", network));
            assert_eq!(finished.code, Some(7), "{network}: {finished:#?}");
        }
        for network in ["shm", "udp"] {
            let job = job(&program, 3, &["last-words", "0"])
                .env("GASNET_EXITTIMEOUT", "600")
                .env("CONDUIT_EXIT_GRACE", "600000");
            let finished = ran(job.env("CONDUIT_NETWORK", network));
            assert_eq!(finished.code, Some(0), "{network}: {finished:#?}");
            assert!(finished.stdout.contains("last words"), "{finished:#?}");
        }
        ends(&program, 2, "start-other", 7, &[]);
        // Without a launcher nothing is printed about the ranks.
        for how in ["exit", "start-other"] {
            let job = Job::alone(&program.path, [how, "7"]).env("GASNET_PSHM_NODES", "2");
            let finished = ran(job);
            let told = (finished.code, finished.stderr.as_str());
            assert_eq!(told, (Some(7), ""), "{how}: {finished:#?}");
        }
        ends(&program, 3, "spin", 7, &[]);
        // Ranks that aren't notified are ended by the launcher, which prints that and returns the
        // code.
        let spin = job(&program, 3, &["spin", "0"]);
        let finished = ran(spin.env("GASNET_EXITTIMEOUT", "1"));
        assert_eq!(finished.code, Some(0), "{finished:#?}");
        let told = "conduit-run: rank 2 (pid ";
        assert!(finished.stderr.contains(told), "{finished:#?}");
        assert!(
            finished.stderr.contains("ended the job with code 0"),
            "{finished:#?}"
        );
        ends(&program, 3, "leave", 7, &[("GASNET_CATCH_EXIT", "0")]);
        // The others are notified by SIGQUIT; their own codes for `gasnet_exit` then come too late.
        let finished = ends(&program, 3, "quit", 7, &[]);
        assert_eq!(
            finished.stderr.matches("got SIGQUIT").count(),
            2,
            "{finished:#?}"
        );
        let finished = ends(&program, 3, "abort", 128 + 6, &[]);
        assert!(
            (finished.stderr).contains("Caught a fatal signal: SIGABRT on rank 2\n"),
            "{finished:#?}"
        );
        // If backtraces are requested, a fault also has one, once and with its place.
        assert!(!finished.stderr.contains("abort_here"), "{finished:#?}");
        for (how, code) in [("abort", 128 + 6), ("fatal", 128 + 6), ("fault", 128 + 11)] {
            let asked = [
                ("GASNET_BACKTRACE", "1"),
                ("GASNET_BACKTRACE_TYPE", "INTERNAL"),
            ];
            let finished = ends(&program, 3, how, code, &asked);
            let place = format!("{how}_here");
            // An error's message also names its place.
            let lines = finished.stderr.lines();
            let backtraces = lines.filter(|line| line.contains(&place) && !line.contains("ERROR"));
            assert_eq!(backtraces.count(), 1, "{how}: {finished:#?}");
        }
    }
}

// ---- bad input ----

/// Returns the rows of `bad_fatal.tsv`: case, call, part of the message.
fn fatal_cases() -> Vec<[String; 3]> {
    let text = fs::read_to_string(folder().join("bad_fatal.tsv")).unwrap();
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let mut parts = line.split('\t').map(str::to_owned);
            std::array::from_fn(|_| parts.next().unwrap_or_else(|| panic!("{line:?}")))
        })
        .collect()
}

#[test]
fn bad_input_ends_the_job_with_one_message() {
    let program = built(prefix(), PACKAGES[0], &C99, "bad_fatal");
    let text = fs::read_to_string(source("bad_fatal")).unwrap();
    let cases = fatal_cases();
    let there: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("CASE(")?.split(',').next())
        .collect();
    let listed: BTreeSet<&str> = cases.iter().map(|[case, ..]| case.as_str()).collect();
    assert_eq!(there, listed, "bad_fatal.c and bad_fatal.tsv");
    all_refused(&program, &cases);
}

/// Requires that each case ends the job with its message.
fn all_refused(program: &Program, cases: &[[String; 3]]) {
    let mut wrong = Vec::new();
    for [case, call, part] in cases {
        // Before the job is joined there are no ranks, and every process would print the same.
        let early = case.ends_with("before_init");
        let finished = ran(job(program, if early { 1 } else { 2 }, &[case]));
        let rank = if early { "" } else { " on rank 0" };
        let messages: Vec<_> = finished
            .stderr
            .lines()
            .filter(|line| line.starts_with("***"))
            .collect();
        let as_wanted = finished.code == Some(1)
            && matches!(messages[..], [message]
                if message.starts_with(&format!("*** FATAL ERROR: {call}{rank}: "))
                    && message.contains(part.as_str()));
        if !as_wanted {
            wrong.push(format!("{case}: {finished:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Declarations that GASNet's headers provide and its clients use without including their headers.
#[test]
fn headers_bring_in_what_clients_expect() {
    let folder = tempfile::tempdir().unwrap();
    for header in ["gasnetex", "gasnet"] {
        let file = folder.path().join(format!("{header}.c"));
        let text = format!(
            "#include <{header}.h>\n\
             int main(void) {{\n\
             char path[MAXPATHLEN];\n\
             path[0] = '1';\n\
             return sleep(0) || getpid() <= 0 || !isdigit(path[0]) || raise(0);\n\
             }}\n"
        );
        fs::write(&file, text).unwrap();
        for package in PACKAGES {
            for compiler in [&C99[..], &CXX[0], &CXX[1]] {
                let compiler: Vec<&str> = compiler.iter().copied().chain(WARNINGS).collect();
                prefix()
                    .check(package, &compiler, &file)
                    .unwrap_or_else(|error| panic!("{header}: {error:#}"));
            }
        }
    }
}

/// Errors with a code are printed to standard error unless that is switched off, in lines of their
/// own even if other threads write there.
#[test]
fn errors_with_a_code_are_told() {
    let program = built(prefix(), PACKAGES[0], &C99, "bad_codes");
    let told = |arguments: &[&str]| {
        let finished = ran(job(&program, 2, arguments));
        assert_eq!(finished.code, Some(0), "{finished:#?}");
        finished.stderr
    };
    assert_eq!(told(&[]), "");
    let told = told(&["verbose"]);
    let mut calls = BTreeMap::<&str, [usize; 2]>::new();
    for line in told.lines() {
        let place = line
            .strip_prefix("*** ")
            .and_then(|line| line.split_once(": "));
        let (place, _) = place.unwrap_or_else(|| panic!("{line:?} of {told}"));
        let (call, rank) = match place.split_once(" on rank ") {
            Some((call, rank)) => (call, rank.parse::<usize>().unwrap_or(2)),
            // Before the job is joined.
            None => (place, 0),
        };
        assert!(rank < 2 && !call.contains(' '), "{line:?} of {told}");
        // The program only calls the messages of GASNet-1.
        assert!(!call.starts_with("gex_AM"), "{line:?} of {told}");
        calls.entry(call).or_default()[rank] += 1;
    }
    for call in [
        "gasnet_init",
        "gasnet_AMRequestLongAsync",
        "gasnet_AMRequestLong",
    ] {
        let times = calls.get(call);
        assert!(
            times.is_some_and(|[first, second]| *first > 0 && first == second),
            "{call}: {times:?} in {told}"
        );
    }
    // The handler runs on one of the ranks.
    assert!(calls.contains_key("gasnet_AMReplyMedium"), "{told}");
}
