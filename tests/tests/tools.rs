//! GASNet's tools: C and C++ programs that use `gasnet_tools.h`, and the effects of their errors.
//!
//! The programs are in `tests/c/tools`; `names.tsv` there lists which of them uses each name of the
//! headers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use conduit_tests::c::{self, Build, Executable, Standard, words};
use conduit_tests::job::{Finished, Job};
use xtask::{Library, library};

/// Programs that succeed without arguments.
const PROGRAMS: [&str; 15] = [
    "annotations",
    "atomics",
    "basics",
    "bytes",
    "environment",
    "failures",
    "fences",
    "formats",
    "locks",
    "memory",
    "platform",
    "system",
    "threadkeys",
    "timers",
    "tracing",
];

/// The exit code of a process that aborts.
const ABORTED: i32 = 128 + 6;

fn folder() -> PathBuf {
    c::source("tools")
}

/// Builds an executable with all programs.
fn build(standard: Standard, flags: &[&str]) -> Executable {
    let library = library("pgas-gasnet-tools", Library::Static).expect("the library of the tools");
    let sources = ["main", "threadkeys_elsewhere"].iter().chain(&PROGRAMS);
    sources
        .fold(Build::new(standard), |build, name| {
            build.source(folder().join(format!("{name}.c")))
        })
        .flags(flags.iter().copied())
        .library(library)
        .executable()
        .unwrap_or_else(|error| panic!("{flags:?}: {error:#}"))
}

/// Returns a run without settings from the environment of the tests.
fn job(executable: &Executable, arguments: &[&str]) -> Job {
    let settings = std::env::vars()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("GASNET"));
    settings.fold(executable.job(arguments), |job, name| job.env(&name, ""))
}

fn run(executable: &Executable, arguments: &[&str]) -> Finished {
    job(executable, arguments)
        .run()
        .expect("nothing is left behind")
}

#[track_caller]
fn all_pass(executable: &Executable) {
    for program in PROGRAMS {
        let finished = run(executable, &[program]);
        assert_eq!(finished.code, Some(0), "{program}: {finished:#?}");
    }
}

macro_rules! configurations {
    ($($name:ident: $standard:ident $flags:expr;)+) => { $(
        #[test]
        fn $name() {
            all_pass(&build(Standard::$standard, &$flags));
        }
    )+ };
}

configurations! {
    c99_one_thread: C99 ["-O2", "-DGASNETT_THREAD_SINGLE"];
    c99_threads: C99 ["-O2", "-DGASNETT_THREAD_SAFE"];
    c99_threads_unoptimised: C99 ["-O0", "-DGASNETT_THREAD_SAFE"];
    cxx11_one_thread: Cxx11 ["-O2", "-DGASNETT_THREAD_SINGLE=1"];
    cxx11_threads: Cxx11 ["-O2", "-DGASNETT_THREAD_SAFE=1"];
    cxx17_one_thread_debug: Cxx17 ["-O1", "-DGASNETT_THREAD_SINGLE", "-DGASNET_DEBUG"];
    cxx17_threads: Cxx17 ["-O3", "-DGASNETT_THREAD_SAFE"];
    gnu11_as_position_independent_threads: Gnu11 ["-O2", "-fPIC", "-pthread"];
}

#[test]
fn without_the_compilers_features() {
    let features = folder().join("features_off.h");
    let flags = [
        "-include",
        &features.to_string_lossy(),
        "-O1",
        "-DGASNETT_THREAD_SINGLE",
        // These flags replace the annotations.
        "-fno-strict-aliasing",
        "-Wno-unused-function",
        "-Wno-return-type",
        "-Wno-implicit-fallthrough",
    ];
    all_pass(&build(Standard::Gnu11, &flags));
}

/// Returns the debug build with threads, which several tests use.
fn debug_build() -> &'static Executable {
    static BUILT: OnceLock<Executable> = OnceLock::new();
    BUILT.get_or_init(|| {
        build(
            Standard::C99,
            &["-O1", "-DGASNETT_THREAD_SAFE", "-DGASNET_DEBUG"],
        )
    })
}

/// Returns a run of the debug build with these words as arguments.
fn debug(arguments: &str) -> Job {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    job(debug_build(), &arguments)
}

#[test]
fn c99_threads_debug() {
    all_pass(debug_build());
}

#[test]
fn faults_with_locks_are_found_by_debug_builds() {
    let single = build(
        Standard::C99,
        &["-O1", "-DGASNETT_THREAD_SINGLE", "-DGASNET_DEBUG"],
    );
    for fault in [
        "lock_twice",
        "trylock_twice",
        "unlock_free",
        "destroy_held",
        "assert_locked",
        "assert_unlocked",
        "wait_without_lock",
        "read_twice",
        "write_twice",
        "rwunlock_free",
        "rwdestroy_held",
        "assert_rdlocked",
        "assert_wrlocked",
        "assert_rwlocked",
        "assert_rwunlocked",
    ] {
        for executable in [debug_build(), &single] {
            let place = "in commit_fault() at ";
            job(executable, &["locks", fault])
                .ends_with(ABORTED, &["*** FATAL ERROR", place, "locks.c:"]);
        }
    }
}

#[test]
fn a_wait_that_nobody_can_end_is_an_error_in_any_build() {
    let single = build(Standard::C99, &["-O2", "-DGASNETT_THREAD_SINGLE"]);
    job(&single, &["locks", "wait_without_lock"])
        .ends_with(ABORTED, &["gasnett_cond_wait", "one thread"]);
}

#[test]
fn faults_with_memory_are_found_by_debug_builds() {
    for (fault, text) in [
        ("write_behind", "wrote behind the block"),
        ("write_before", "wrote before the block"),
        ("check_all", "wrote behind the block"),
        ("check_one", "wrote behind the block"),
        ("free_twice", "has already been freed"),
        ("free_inside", "is not a block"),
    ] {
        job(debug_build(), &["memory", fault]).ends_with(ABORTED, &[text, "memory.c:"]);
    }
    let scanned = debug("memory write_after").env("GASNET_MALLOC_SCANFREED", "1");
    scanned.ends_with(ABORTED, &["after it was freed", "memory.c:"]);
    let filled = debug("memory")
        .env("GASNET_MALLOC_INIT", "1")
        .env("GASNET_MALLOC_INITVAL", "0xAB")
        .env("GASNET_MALLOC_CLOBBER", "Y")
        .env("GASNET_MALLOC_LEAKALL", "Y")
        .env("GASNET_MALLOC_EXTRACHECK", "Y");
    filled.ends_with(0, &[]);
    let misnamed = debug("memory")
        .env("GASNET_MALLOC_INIT", "1")
        .env("GASNET_MALLOC_INITVAL", "some");
    misnamed.ends_with(ABORTED, &["GASNET_MALLOC_INITVAL='some'"]);
}

#[test]
fn the_heap_reports_what_was_not_given_back() {
    let reported = debug("memory leak").env("GASNET_MALLOCFILE", "stderr");
    reported.ends_with(
        0,
        &[
            "allocated 1225 bytes in 5 blocks",
            "not freed: 200 bytes in 1 blocks",
            "memory.c:",
        ],
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pattern = folder.path().join("report-%");
    let into_file = debug("memory leak").env("GASNET_MALLOCFILE", &pattern.to_string_lossy());
    into_file.ends_with(0, &[]);
    let report =
        std::fs::read_to_string(folder.path().join("report-0")).expect("the report of rank 0");
    assert!(report.contains("not freed"), "{report}");
    let not_for_this_rank = debug("memory leak")
        .env("GASNET_MALLOCFILE", "-")
        .env("GASNET_MALLOCNODES", "1-3");
    assert_eq!(not_for_this_rank.ends_with(0, &[]).stderr, "");
}

#[test]
fn fatal_errors_name_their_place_and_end_the_process() {
    let fatal = debug("failures fatal").ends_with(ABORTED, &["failures.c:", ": number 5\n"]);
    assert!(
        fatal
            .stderr
            .starts_with("*** FATAL ERROR: in test_failures() at "),
        "{fatal:#?}"
    );
    assert_eq!(fatal.stdout, "", "no function of atexit runs");
    let nopos = debug("failures fatal_nopos").ends_with(ABORTED, &[]);
    assert_eq!(nopos.stderr, "*** FATAL ERROR: number 6 of seven\n");
    let long = debug("failures fatal_long").ends_with(ABORTED, &["  ...\n"]);
    assert!(long.stderr.len() > 4000, "{long:#?}");
    let killed = debug("failures kill").ends_with(7, &[]);
    assert_eq!(killed.stdout, "", "no function of atexit runs");
}

#[test]
fn assumptions_are_checked_by_debug_builds() {
    debug("failures assume").ends_with(ABORTED, &["assumption does not hold: argc < 0"]);
    debug("failures unreachable").ends_with(ABORTED, &["unreachable"]);
}

#[test]
fn backtraces_are_written_by_the_mechanism_that_is_asked_for() {
    // The client's backtrace comes first.
    let client = debug("failures print").ends_with(0, &[]);
    assert_eq!(client.stdout, "client's backtrace\natexit\n");
    let of = |kind: &str| debug("failures print").env("GASNET_BACKTRACE_TYPE", kind);
    let internal = of("internal").ends_with(0, &[]);
    assert!(
        internal.stdout.contains("test_failures") && internal.stdout.contains("main"),
        "{internal:#?}"
    );
    let execinfo =
        of("NOSUCH,EXECINFO").ends_with(0, &["'NOSUCH' is not available, only CLIENT, INTERNAL"]);
    assert!(execinfo.stdout.contains("program("), "{execinfo:#?}");
    of("NOSUCH").ends_with(1, &["NOSUCH"]);
}

#[test]
fn a_debugger_may_look_while_it_is_wanted_and_no_longer() {
    // A debugger that exists on every system.
    let debugger = folder().join("debugger");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", debugger.display());
    let print = debug("failures print")
        .env("GASNET_BACKTRACE_TYPE", "GDB")
        .env("PATH", &path);
    let printed = print.ends_with(0, &[]);
    assert_eq!(
        printed.stdout,
        "debugged by children\ndebugger's backtrace\ndebugged by nobody\natexit\n"
    );
}

#[test]
fn errors_write_backtraces_when_asked_to() {
    let fatal = |name: &str, value: &str| {
        debug("failures fatal")
            .env("GASNET_BACKTRACE", "1")
            .env(name, value)
    };
    fatal("GASNET_BACKTRACE_NODES", "0").ends_with(ABORTED, &["number 5\nclient's backtrace\n"]);
    // Rank 0 is known only in a job; without one all ranks count.
    fatal("GASNET_BACKTRACE_TYPE", "CLIENT").ends_with(ABORTED, &["client's backtrace\n"]);
    debug("failures fatal_replaced").ends_with(ABORTED, &["another backtrace\nreplaced\n"]);
    let not_asked = debug("failures print_if_enabled").ends_with(1, &[]);
    assert_eq!(not_asked.stdout, "atexit\n");
    let signalled = debug("failures signal").env("GASNET_BACKTRACE_SIGNAL", "SIGUSR1");
    let signalled = signalled.ends_with(0, &["client's backtrace\n"]);
    assert_eq!(signalled.stdout, "went on\natexit\n");
    let misnamed = debug("failures").env("GASNET_BACKTRACE_SIGNAL", "SIGNOTHING");
    misnamed.ends_with(ABORTED, &["GASNET_BACKTRACE_SIGNAL='SIGNOTHING'"]);
}

#[test]
fn a_frozen_process_waits_for_a_debugger() {
    let frozen = debug("failures freeze").ends_with(0, &["set the variable frozen to 0"]);
    assert_eq!(frozen.stdout, "went on\natexit\n");
    let not_asked = debug("failures freeze_error").ends_with(0, &[]);
    assert_eq!(not_asked.stderr, "");
    let asked = debug("failures freeze_error").env("GASNET_FREEZE_ON_ERROR", "1");
    asked.ends_with(0, &["set the variable conduit_tools_frozen to 0"]);
}

#[test]
fn settings_that_cannot_be_read_are_errors_that_name_them() {
    for (what, text) in [
        ("integer", "CONDUIT_TEST_OUTSIDE='1K' is not an integer"),
        ("size", "CONDUIT_TEST_OUTSIDE='1 lot' is not a size"),
        ("double", "CONDUIT_TEST_OUTSIDE='1/0' is not a number"),
        (
            "yesno",
            "CONDUIT_TEST_OUTSIDE='maybe' is neither yes nor no",
        ),
        ("parse", "gasnett_parse_int: 'nonsense' is not an integer"),
        ("null", "gasnett_getenv: keyname is a null pointer"),
    ] {
        let value = text.split('\'').nth(1).unwrap_or_default();
        let job = job(debug_build(), &["environment", what]).env("CONDUIT_TEST_OUTSIDE", value);
        job.ends_with(ABORTED, &[text]);
    }
}

#[test]
fn settings_are_reported_once_each() {
    let job = debug("environment report")
        .env("GASNET_VERBOSEENV", "1")
        .env("CONDUIT_TEST_OUTSIDE", "two words");
    let reported = job.ends_with(0, &[]);
    let lines: Vec<&str> = reported
        .stderr
        .lines()
        .filter(|line| line.contains("CONDUIT_TEST"))
        .collect();
    let expected = [
        "ENV parameter: CONDUIT_TEST_OUTSIDE = two words",
        "ENV parameter: CONDUIT_TEST_SIZE = 1 MB  (default)",
        "ENV parameter: CONDUIT_TEST_INT = 1048576",
        "ENV parameter: CONDUIT_TEST_STR = text  (default)",
        "ENV parameter: CONDUIT_TEST_DBL = 0.25",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn the_rate_of_ticks_can_be_given() {
    let timers = |value: &str| debug("timers").env("GASNET_TSC_RATE", value);
    timers("walltime")
        .env("GASNET_TSC_VERBOSE", "1")
        .ends_with(0, &[]);
    // A wrong rate shows in the first sleep that is measured; without a counter the setting isn't
    // used.
    let wrong = timers("100000000000")
        .run()
        .expect("nothing is left behind");
    let counted = wrong.code != Some(0);
    assert!(
        !counted
            || wrong
                .stdout
                .contains("gasnett_ticks_to_ns(last - first) >= sleep"),
        "{wrong:#?}"
    );
    if counted {
        timers("10").ends_with(ABORTED, &["GASNET_TSC_RATE='10'"]);
        let hard = timers("walltime").env("GASNET_TSC_RATE_HARD_TOLERANCE", "0.000000000001");
        hard.ends_with(ABORTED, &["GASNET_TSC_RATE_HARD_TOLERANCE"]);
        let soft = timers("walltime").env("GASNET_TSC_RATE_TOLERANCE", "0.000000000001");
        soft.ends_with(0, &["WARNING", "GASNET_TSC_RATE_TOLERANCE"]);
    }
}

#[test]
fn streams_that_were_closed_end() {
    let closed = debug("system streams").ends_with(0, &[]);
    assert_eq!(
        (closed.stdout.as_str(), closed.stderr.as_str()),
        ("flushed without an end of line", "")
    );
}

#[test]
fn a_signal_that_has_no_handler_is_an_error() {
    debug("system kill").ends_with(ABORTED, &["gasnett_reghandler: signal 9"]);
}

// ---- the headers themselves ----

/// Returns the tools' headers by their names in the folder of headers.
fn headers() -> Vec<String> {
    let pieces =
        std::fs::read_dir(c::include().join("gasnet_tools")).expect("the folder of pieces");
    let pieces = pieces.map(|entry| {
        entry
            .expect("a piece")
            .file_name()
            .to_string_lossy()
            .into_owned()
    });
    let mut names: Vec<String> = pieces.map(|name| format!("gasnet_tools/{name}")).collect();
    names.extend(["gasnet_portable_platform.h", "gasnet_tools.h"].map(String::from));
    names.sort();
    names
}

fn including<'a>(standard: Standard, headers: impl IntoIterator<Item = &'a String>) -> Build {
    headers.into_iter().fold(
        Build::new(standard).source(c::source("empty.c")),
        |build, header| build.flags(["-include", header.as_str()]),
    )
}

#[test]
fn each_header_stands_alone_and_in_any_order() {
    let headers = headers();
    assert!(headers.len() > 10, "{headers:?}");
    for standard in Standard::ALL {
        for header in &headers {
            let alone = including(standard, [header]).check();
            assert!(alone.is_ok(), "{header}: {alone:?}");
        }
        for mode in [
            "-DGASNETT_THREAD_SINGLE",
            "-DGASNETT_THREAD_SAFE",
            "-DGASNET_SEQ",
            "-DGASNET_PAR",
            "-DGASNET_PARSYNC",
        ] {
            for build in [
                including(standard, &headers),
                including(standard, headers.iter().rev()),
            ] {
                let checked = build.flags([mode, "-DGASNET_DEBUG"]).check();
                assert!(checked.is_ok(), "{mode}: {checked:?}");
            }
        }
    }
}

#[test]
fn one_mode_of_threads_excludes_the_other() {
    let both = including(Standard::C99, &headers())
        .flags(["-DGASNETT_THREAD_SINGLE", "-DGASNETT_THREAD_SAFE"]);
    let error = both.check().expect_err("both are asked for").to_string();
    assert!(error.contains("exclude each other"), "{error}");
}

/// Returns whether a name is this project's own, or the language's.
fn is_internal(name: &str) -> bool {
    name.starts_with("CONDUIT_")
        || name.starts_with("conduit_")
        || name.starts_with("__STDC_")
        || name.ends_with("_HELPER")
}

/// Returns all names that the headers define for clients in any mode: macros, functions, variables
/// and types.
fn public_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for header in headers() {
        let text = std::fs::read_to_string(c::include().join(&header)).expect("a header");
        let macros = text.lines().filter_map(|line| {
            line.trim_start()
                .strip_prefix('#')?
                .trim_start()
                .strip_prefix("define ")
        });
        names.extend(
            macros
                .filter_map(|line| words(line).next())
                .map(str::to_owned),
        );
    }
    for mode in ["-DGASNETT_THREAD_SINGLE", "-DGASNETT_THREAD_SAFE"] {
        let build = Build::new(Standard::C99)
            .source(c::include().join("gasnet_tools.h"))
            .flag(mode);
        let text = build.preprocess().expect("the headers");
        let ours = own_text(&text, &c::include());
        let declared =
            words(&ours).filter(|word| word.contains("gasnett_") || word.contains("gasneti_"));
        names.extend(declared.map(str::to_owned));
    }
    names.retain(|name| !is_internal(name));
    names
}

/// Returns the part of a preprocessed text that comes from files below a path.
fn own_text(preprocessed: &str, path: &Path) -> String {
    let path = path.to_string_lossy();
    let mut ours = false;
    let mut text = String::new();
    for line in preprocessed.lines() {
        if let Some(marker) = line.strip_prefix("# ") {
            ours = marker
                .split('"')
                .nth(1)
                .is_some_and(|file| file.starts_with(&*path));
        } else if ours {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[test]
fn each_name_of_the_headers_is_used_by_the_program_that_the_table_names() {
    let table = c::names(&folder().join("names.tsv"));
    c::all_listed(&table, &public_names());

    let mut used: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (name, file) in &table {
        let words_of_file = used.entry(file).or_insert_with(|| {
            let path = folder().join(file);
            let source =
                std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
            // Names that the program makes by token pasting appear when its own macros have been
            // expanded.
            let build = Build::new(Standard::C99)
                .source(&path)
                .flags(["-DGASNETT_THREAD_SAFE", "-w"]);
            let expanded = build.preprocess().expect("a program");
            let expanded = own_text(&expanded, &folder());
            words(&source)
                .chain(words(&expanded))
                .map(str::to_owned)
                .collect()
        });
        assert!(words_of_file.contains(name), "{file} doesn't use {name}");
    }
}
