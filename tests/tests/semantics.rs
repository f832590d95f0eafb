//! The guarantees of `docs/semantics.md`, over every network and in the threading modes: each test
//! is named after the guarantee that it shows, and the page names the test.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use conduit_tests::hosts::succeeds;
use conduit_tests::job::Job;
use conduit_tests::ofi;
use conduit_tests::sample::draws;
use conduit_tests::udp::FAULTS;

const HELPER: &str = env!("CARGO_BIN_EXE_helper");

/// How the ranks of a job reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Network {
    /// Mapped memory.
    Mapped,
    /// Messages in shared memory.
    Messages,
    Udp,
    /// Over UDP, with packets that are lost, duplicated, corrupted and reordered.
    SufferingUdp,
    Libfabric,
    /// Two ranks on each of two hosts: mapped memory, and UDP with packet faults.
    NearAndFar,
}

use Network::{Libfabric, Mapped, Messages, NearAndFar, SufferingUdp, Udp};

const ALL: [Network; 6] = [Mapped, Messages, Udp, SufferingUdp, Libfabric, NearAndFar];
/// The networks over which a rank makes progress without calls. In shared memory that needs mapped
/// memory.
const BY_ITSELF: [Network; 5] = [Mapped, Udp, SufferingUdp, Libfabric, NearAndFar];

const SEQ: &str = "seq";
const PAR: &str = "par";

impl Network {
    fn settings(self) -> Vec<(&'static str, &'static str)> {
        let udp = [("CONDUIT_NETWORK", "udp"), ("CONDUIT_UDP_INTERFACE", "lo")];
        match self {
            Mapped => vec![],
            Messages => vec![("CONDUIT_WINDOWS", "0")],
            Udp => udp.to_vec(),
            SufferingUdp => [&udp[..], &FAULTS].concat(),
            Libfabric => {
                let library = ofi::libraries().last().expect("one is built in").name;
                let (provider, domain) = ofi::PROVIDERS[0];
                vec![
                    ("CONDUIT_NETWORK", "ofi"),
                    ("CONDUIT_OFI_LIBRARY", library),
                    ("CONDUIT_OFI_PROVIDER", provider),
                    ("CONDUIT_OFI_DOMAIN", domain.expect("it has one")),
                ]
            }
            NearAndFar => [&udp[1..], &FAULTS].concat(),
        }
    }

    /// Runs a program over this network.
    #[track_caller]
    fn run(self, arguments: &[&str], more: &[(&str, &str)]) {
        let job = match self {
            NearAndFar => {
                let script = "export CONDUIT_HOST=host$((PMI_RANK / 2)); exec \"$@\"";
                let wrapped = [&["-c", script, "hosts", HELPER], arguments].concat();
                Job::new(HELPER, 4, "sh", &wrapped)
            }
            _ => Job::new(HELPER, 3, HELPER, arguments),
        };
        println!("{self:?} {arguments:?} {more:?}");
        succeeds(job, &[&self.settings(), more].concat());
    }
}

/// Runs a program over these networks, in both threading modes. A sample has the first of these
/// jobs and a third of the others.
#[track_caller]
fn holds(networks: &[Network], arguments: &[&str], more: &[(&str, &str)]) {
    for &network in networks {
        for mode in [SEQ, PAR] {
            let first = network == networks[0] && mode == SEQ;
            if first || draws((network, mode, arguments, more), 3) {
                let (program, rest) = arguments.split_at(1);
                network.run(&[program, &[mode], rest].concat(), more);
            }
        }
    }
}

/// Requests shuffled with this seed.
const SHUFFLED: [(&str, &str); 1] = [("CONDUIT_SHUFFLE", "7")];

// ---- order -----------------------------------------------------------------------------------

#[test]
fn requests_have_no_order_and_a_seed_shuffles_them() {
    holds(&ALL, &["requests_are_shuffled"], &SHUFFLED);
}

#[test]
fn a_request_sent_after_a_reply_is_handled_after_the_request_replied_to() {
    holds(&ALL, &["replies_make_an_order"], &[]);
    holds(&[Mapped, Udp], &["replies_make_an_order"], &SHUFFLED);
}

#[test]
fn data_is_there_for_who_sees_a_later_put() {
    holds(&ALL, &["data_then_news", "put"], &[]);
}

#[test]
fn data_is_there_for_who_sees_a_later_atomic() {
    holds(&ALL, &["data_then_news", "atomic"], &[]);
}

#[test]
fn data_is_there_for_the_handler_of_a_later_request() {
    holds(&ALL, &["data_then_news", "request"], &[]);
}

#[test]
fn who_sees_a_signal_sees_the_data() {
    holds(&ALL, &["signals"], &[]);
    holds(&[Messages], &["signals"], &SHUFFLED);
}

#[test]
fn data_is_there_for_a_third_rank_that_is_told() {
    holds(&ALL, &["data_for_a_third"], &[]);
}

#[test]
fn a_rank_sees_its_own_puts_and_the_last_one_counts() {
    holds(&ALL, &["own_operations"], &[]);
}

#[test]
fn aligned_words_are_seen_whole() {
    holds(&BY_ITSELF, &["words_are_whole", "computes"], &[]);
    holds(&ALL, &["words_are_whole", "polls"], &[]);
}

#[test]
fn atomics_of_all_ranks_are_atomic() {
    holds(&ALL, &["atomics_are_atomic"], &[]);
}

#[test]
fn atomics_are_linearizable() {
    holds(&ALL, &["atomics_are_linearizable"], &[]);
    // With native atomics, if a provider has them.
    let native = [("CONDUIT_OFI_ATOMICS", "1")];
    holds(&[Libfabric], &["atomics_are_linearizable"], &native);
}

#[test]
fn payloads_are_copied_by_the_call_and_there_when_the_handler_runs() {
    holds(&ALL, &["payloads_are_delivered_whole"], &[]);
    holds(&[Messages], &["payloads_are_delivered_whole"], &SHUFFLED);
}

#[test]
fn handlers_do_atomics_that_are_atomic_with_all_others() {
    holds(&ALL, &["handlers_reach"], &[]);
}

// ---- guarantees of calls ---------------------------------------------------------------------

#[test]
fn broadcasts_and_reductions_give_what_was_brought() {
    holds(&ALL, &["collectives"], &[]);
    holds(&[Messages], &["collectives"], &SHUFFLED);
}

#[test]
fn a_barrier_covers_stores_and_puts_that_were_waited_for() {
    holds(&ALL, &["a_barrier_covers_stores_and_puts"], &[]);
}

#[test]
fn quiesce_and_finish_cover_messages() {
    holds(&ALL, &["quiesce_covers_messages"], &[]);
    holds(
        &[Mapped, Messages, Udp, NearAndFar],
        &["quiesce_covers_messages"],
        &SHUFFLED,
    );
}

#[test]
fn quiesce_covers_handlers_that_other_threads_run() {
    for network in ALL {
        network.run(&["quiesce_covers_other_threads"], &[]);
    }
    Mapped.run(&["quiesce_covers_other_threads"], &SHUFFLED);
}

// ---- progress --------------------------------------------------------------------------------

#[test]
fn a_target_that_computes_holds_nobody_up() {
    holds(&BY_ITSELF, &["a_computing_target"], &[]);
}

#[test]
fn what_was_started_goes_out_from_a_rank_that_computes() {
    holds(&BY_ITSELF, &["a_computing_initiator"], &[]);
}

#[test]
fn handlers_run_in_calls_on_the_callers_thread() {
    holds(&BY_ITSELF, &["handlers_run_in_calls"], &[]);
}

// ---- threads ---------------------------------------------------------------------------------

#[test]
fn one_request_handler_and_one_reply_handler_at_a_time() {
    for network in ALL {
        network.run(&["one_handler_at_a_time"], &[]);
    }
    Mapped.run(&["one_handler_at_a_time"], &SHUFFLED);
}

#[test]
fn implicit_operations_are_their_threads_own() {
    for network in ALL {
        network.run(&["implicit_operations_are_the_threads"], &[]);
    }
}

/// Whether a type is `Send` and `Sync`: an inherent constant takes precedence over the trait's if
/// its bound holds.
struct May<T>(std::marker::PhantomData<T>);

trait MayNot {
    const GO: bool = false;
    const BE_SHARED: bool = false;
}

impl<T> MayNot for May<T> {}

impl<T: Send> May<T> {
    const GO: bool = true;
}

impl<T: Sync> May<T> {
    const BE_SHARED: bool = true;
}

#[test]
fn the_threading_mode_says_which_threads_may_call() {
    use conduit::{Conduit, Par, ParSync, Seq};
    type One = May<Conduit<Seq>>;
    type InTurn = May<Conduit<ParSync>>;
    type Any = May<Conduit<Par>>;
    assert_eq!((One::GO, One::BE_SHARED), (false, false));
    assert_eq!((InTurn::GO, InTurn::BE_SHARED), (true, false));
    assert_eq!((Any::GO, Any::BE_SHARED), (true, true));
}

// ---- the page --------------------------------------------------------------------------------

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn read(path: &str) -> String {
    let file = folder(path);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns the tests of a module of a test program.
fn tests_of(module: &str) -> BTreeSet<String> {
    let source = read(&format!("tests/tests/{}.rs", module.replace("::", "/")));
    let mut names = BTreeSet::new();
    let mut lines = source.lines().map(str::trim);
    while lines.any(|line| line == "#[test]") {
        let name = lines.find_map(|line| line.strip_prefix("fn "));
        let name = name.and_then(|name| name.split('(').next());
        names.insert(format!("{module}::{}", name.expect("a function")));
    }
    names
}

/// Returns the tests that the page names in code, with their modules.
fn named(page: &str) -> BTreeSet<String> {
    let is_part = |part: &str| {
        part.bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
    };
    let is_test =
        |word: &&str| word.contains("::") && word.split("::").all(is_part) && !word.ends_with("::");
    let code = page.split('`').skip(1).step_by(2);
    code.filter(is_test).map(str::to_owned).collect()
}

#[test]
fn every_sentence_of_the_page_names_a_test_that_exists() {
    let page = read("docs/semantics.md");
    let named = named(&page);
    let modules: BTreeSet<_> = named
        .iter()
        .filter_map(|name| Some(name.rsplit_once("::")?.0))
        .collect();
    let exist: BTreeSet<_> = modules.iter().flat_map(|module| tests_of(module)).collect();
    let missing: Vec<_> = named.difference(&exist).collect();
    assert!(
        missing.is_empty(),
        "the page names tests that do not exist: {missing:#?}"
    );
    let own = tests_of("semantics");
    let silent: Vec<_> = own.difference(&named).collect();
    assert!(
        silent.is_empty(),
        "the page does not name these tests: {silent:#?}"
    );
    // A promise is a row of a table whose last cell is its test.
    let mut promises = 0;
    let mut is_promise = false;
    for line in page.lines() {
        is_promise = match line {
            "| promise | test |" => true,
            _ => is_promise && line.starts_with('|'),
        };
        if is_promise && !line.starts_with("|---") && line != "| promise | test |" {
            assert!(
                line.trim_end_matches([' ', '|']).ends_with('`'),
                "no test: {line}"
            );
            promises += 1;
        }
    }
    assert!(promises >= 20, "{promises} promises");
    let long: Vec<_> = page
        .lines()
        .filter(|line| !line.starts_with('|') && line.chars().count() > 110)
        .collect();
    assert!(long.is_empty(), "longer than 110 columns: {long:#?}");
}

#[test]
fn the_page_says_the_oldest_rust() {
    let manifest = read("Cargo.toml");
    let version = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "));
    let version = version.expect("a version").trim_matches('"');
    let page = read("docs/semantics.md");
    assert!(page.contains(&format!("Rust {version}")), "Rust {version}");
}
