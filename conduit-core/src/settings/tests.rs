//! The table against itself, and what users get wrong.

use super::kind::{Kind, Value};
use super::*;
use credits::{Growth, Scale, Tuning};
use proptest::prelude::*;
use std::collections::HashSet;

fn read(vars: &[(&str, &str)]) -> Result<(Settings, Vec<Warning>), SettingsError> {
    Settings::from_lookup(
        vars.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    )
}

fn one(name: &str, value: &str) -> Result<Settings, SettingsError> {
    read(&[(name, value)]).map(|(settings, _)| settings)
}

fn message(name: &str, value: &str) -> String {
    one(name, value).unwrap_err().to_string()
}

#[test]
fn every_default_is_a_value_that_its_row_accepts() {
    let defaults = Settings::default();
    for row in ROWS {
        match (row.get)(&defaults) {
            Some(value) => {
                assert_eq!(
                    row.kind.parse(&value.to_string()),
                    Some(value.clone()),
                    "{}",
                    row.name
                );
                let settings = one(row.name, &value.to_string()).unwrap();
                assert_eq!((row.get)(&settings), Some(value));
                assert_eq!(
                    row.unset, "",
                    "{}: unset is for rows without a default",
                    row.name
                );
            }
            None => assert_ne!(row.unset, "", "{}: what happens when unset", row.name),
        }
    }
    let (settings, warnings) = read(&[]).unwrap();
    assert_eq!((settings, warnings), (defaults, vec![]));
}

/// Those that credits move better with are set beside the plan: `the_knobs_of_credits_that_move_reach_the_plan`.
#[test]
fn the_defaults_of_the_original() {
    let s = Settings::default();
    assert_eq!(
        (s.msg_limit, s.num_tmpmd, s.sb_chunks, s.rpl_chunks),
        (250, 1024, 2048, 256)
    );
    assert_eq!((s.safe_limit, s.am_limit, s.sys_limit), (12, 8, 0));
    assert_eq!((s.epoch_duration, s.num_scavenge), (1024, 6));
    assert!(s.packed_long && s.flow_control && s.dynamic_credits && !s.accel && !s.credit_stats);
    assert_eq!(
        (s.cred_per_node, s.banked_credits, s.amrecv_space),
        (None, None, None)
    );
    // What the plan makes of it: originally always 400, now that at least.
    assert_eq!(s.max_cred_per_node, None);
    let most = |ranks| s.credit_plan(ranks).unwrap().max_per_peer();
    assert_eq!(
        (most(1), most(2), most(16), most(10_000), most(1_000_000)),
        (8192, 4096, 512, 1024, 1024)
    );
}

#[test]
fn names_are_distinct_and_begin_as_settings_do() {
    let mut names = HashSet::new();
    for row in ROWS {
        assert!(
            is_setting(row.name) && names.insert(row.name),
            "{}",
            row.name
        );
        assert!(
            !row.meaning.is_empty() && !row.meaning.contains('\n'),
            "{}",
            row.name
        );
    }
}

#[test]
fn ranges_hold_at_their_ends() {
    for row in ROWS {
        let refused = |text: &str| {
            let accepted = row.kind.to_string();
            let error = SettingsError::Invalid {
                name: row.name,
                value: text.to_owned(),
                accepted,
            };
            assert_eq!(one(row.name, text), Err(error));
        };
        let accepted = |text: &str| {
            // Room for the one rule between two settings.
            let room = ("GASNET_PORTAL_MAX_CRED_PER_NODE", "65535");
            if let Err(error) = read(&[(row.name, text), room]) {
                panic!("{error}");
            }
        };
        match row.kind {
            Kind::Integer { least, most, zero } => {
                accepted(&least.to_string());
                accepted(&most.to_string());
                refused(&(u64::from(most) + 1).to_string());
                if least > 0 {
                    if zero.is_some() {
                        accepted("0")
                    } else {
                        refused("0")
                    }
                }
                if least > 1 {
                    refused(&(least - 1).to_string());
                }
                for text in [
                    "",
                    "-1",
                    "+1",
                    "1.5",
                    "many",
                    "0x10",
                    "1K",
                    "99999999999999999999",
                ] {
                    refused(text);
                }
            }
            Kind::Bool => {
                for text in ["0", "1", "yes", "No", "TRUE", "off", " 1 "] {
                    accepted(text);
                }
                for text in ["", "2", "-1", "maybe", "10"] {
                    refused(text);
                }
            }
            Kind::Bytes {
                least,
                most,
                multiple,
            } => {
                accepted(&least.to_string());
                accepted(&(most / multiple * multiple).to_string());
                refused(&(least - 1).to_string());
                refused(&(most + 1).to_string());
                if multiple > 1 {
                    refused(&(least + 1).to_string());
                }
                for text in [
                    "",
                    "K",
                    "-1K",
                    "1.5K",
                    "4X",
                    "4KK",
                    "4 K 4",
                    "99999999999999T",
                ] {
                    refused(text);
                }
            }
            Kind::Percent => {
                for text in ["0", "100", "0.1", "12.3456", " 5 "] {
                    accepted(text);
                }
                for text in ["", "-1", "100.1", "101", "1%", "0.12345", "half"] {
                    refused(text);
                }
            }
            Kind::Words(words) => {
                for word in words {
                    accepted(word);
                }
                accepted(&words.join(","));
                for text in ["", ",", "shm,", "tcp", "shm;udp"] {
                    refused(text);
                }
            }
            Kind::Text(_) => {
                for text in ["eth0", "10.0.0.0/8,lo", "a name"] {
                    accepted(text);
                }
                for text in ["", "  ", "a\0b", "two\nlines", "\u{fffd}"] {
                    refused(text);
                }
            }
            Kind::Path => {
                for text in [".", "/tmp", "a b/c", " leading", "ä"] {
                    accepted(text);
                }
                for text in ["", "  ", "a\0b", "\u{fffd}"] {
                    refused(text);
                }
            }
        }
    }
}

#[test]
fn values_reach_their_fields() {
    let (settings, warnings) = read(&[
        ("PATH", "/bin"),
        ("GASNET_PORTAL_MSG_LIMIT", "0"),
        ("GASNET_PORTAL_PACKED_LONG", "0"),
        ("GASNET_PORTAL_AMRECV_SPACE", "3 MiB"),
        ("GASNET_PORTAL_CRED_PER_NODE", "17"),
        ("CONDUIT_CHUNK", "64K"),
        ("CONDUIT_NETWORK", "UDP, shm,udp"),
        ("CONDUIT_SPIN", "0"),
        ("GASNET_PORTAL_CREDIT_STATS", "1"),
        ("CONDUIT_CREDIT_STATS_DIR", "a folder/"),
        ("GASNET_PORTAL_EPOCH_DURATION", "17"),
        ("GASNET_PORTAL_REVOKE_LIMIT", "18"),
        ("GASNET_PORTAL_LENDER_LIMIT", "19"),
        ("GASNET_PORTAL_NUM_SCAVENGE", "20"),
    ])
    .unwrap();
    let expected = Settings {
        msg_limit: 0,
        packed_long: false,
        amrecv_space: Some(3 << 20),
        cred_per_node: Some(17),
        chunk: 65_536,
        networks: Some(vec!["udp".to_owned(), "shm".to_owned()]),
        spin: Some(0),
        credit_stats: true,
        credit_stats_dir: "a folder/".into(),
        epoch_duration: 17,
        revoke_limit: 18,
        lender_limit: 19,
        num_scavenge: 20,
        origins: settings.origins,
        ..Settings::default()
    };
    assert_eq!(settings, expected);
    assert_eq!(warnings, []);
    assert!(settings.is_set("CONDUIT_SPIN") && !settings.is_set("CONDUIT_YIELD"));
    assert!(settings.allows_network("udp") && !settings.allows_network("ofi"));
    assert!(Settings::default().allows_network("ofi"));
    assert!(!settings.is_set("PATH"));
}

#[test]
fn byte_suffixes_are_powers_of_1024() {
    let space = |text| one("CONDUIT_MAX_SEGMENT", text).unwrap().max_segment;
    for text in [
        "8388608", "8388608B", "8192K", "8192kb", "8M", "8 MiB", "8mib",
    ] {
        assert_eq!(space(text), Some(8 << 20), "{text}");
    }
    assert_eq!(space("3G"), Some(3 << 30));
    assert_eq!(space("2T"), Some(2 << 40));
}

#[test]
fn chunks_may_be_the_powers_of_two_and_one_with_room_for_the_largest_header() {
    for bytes in (10..=16).map(|shift| 1_usize << shift).chain([65 * 1024]) {
        assert_eq!(
            one("CONDUIT_CHUNK", &bytes.to_string()).unwrap().chunk,
            bytes
        );
    }
}

#[test]
fn a_bad_value_is_named_with_its_range() {
    assert_eq!(
        message("GASNET_PORTAL_MSG_LIMIT", "7"),
        "GASNET_PORTAL_MSG_LIMIT=\"7\" is not valid: accepted is 0 (no limit), or an integer from 12 to 1048576"
    );
    assert_eq!(
        message("CONDUIT_CHUNK", "1000"),
        "CONDUIT_CHUNK=\"1000\" is not valid: accepted is bytes from 1K to 65K in multiples of 1K, suffix K, M, G or T allowed"
    );
    assert_eq!(
        message("CONDUIT_NETWORK", "tcp"),
        "CONDUIT_NETWORK=\"tcp\" is not valid: accepted is one or more of shm, udp, ofi, portals4, with commas between"
    );
    let long = message("CONDUIT_INJECT", &"\n".repeat(10_000));
    assert!(long.len() < 400 && !long.contains('\n'), "{long}");
}

#[test]
fn an_unknown_name_is_refused_and_the_nearest_suggested() {
    assert_eq!(
        message("GASNET_PORTAL_MSG_LIMTI", "100"),
        "GASNET_PORTAL_MSG_LIMTI=\"100\": there is no such setting; did you mean GASNET_PORTAL_MSG_LIMIT?"
    );
    assert!(message("CONDUIT_NETWORKS", "shm").ends_with("did you mean CONDUIT_NETWORK?"));
    assert_eq!(
        message("CONDUIT_FRIENDSHIP", "1"),
        "CONDUIT_FRIENDSHIP=\"1\": there is no such setting"
    );
    assert!(one("CONDUIT_chunk", "1024").is_err(), "case matters");
}

#[test]
fn names_of_others_are_left_alone() {
    let names = [
        "CONDUIT_LAUNCHER",
        "CONDUIT_JOB_ID",
        "CONDUIT_TEST_X",
        "CONDUIT_PERF_Y",
        "CONDUIT",
        "GASNET_MAX_SEGSIZE",
        "XCONDUIT_CHUNK",
        "conduit_chunk",
        "",
        "=C:",
    ];
    for name in names {
        assert_eq!(one(name, "\u{fffd}"), Ok(Settings::default()), "{name}");
    }
}

#[test]
fn of_a_name_twice_the_first_counts() {
    let (settings, _) = read(&[("CONDUIT_YIELD", "5"), ("CONDUIT_YIELD", "6")]).unwrap();
    assert_eq!(settings.yields, 5);
}

#[test]
fn the_wait_at_exit_grows_with_the_job() {
    let wait = |ranks| Settings::default().exit_wait(ranks).as_millis();
    assert_eq!(
        (wait(1), wait(64), wait(u32::MAX)),
        (3_125, 11_000, 360_000)
    );
    let set = one("CONDUIT_EXIT_TIMEOUT", "7").unwrap();
    assert_eq!(set.exit_wait(64), Duration::from_secs(7));
}

#[test]
fn accel_is_accepted_with_a_warning() {
    let (settings, warnings) = read(&[("GASNET_PORTAL_ACCEL", "1")]).unwrap();
    assert!(settings.accel);
    let [warning] = &warnings[..] else {
        panic!("{warnings:?}");
    };
    assert!(warning.to_string().starts_with("GASNET_PORTAL_ACCEL: "));
}

#[test]
fn credits_at_the_start_stay_within_what_may_be_lent() {
    let vars = [
        ("GASNET_PORTAL_CRED_PER_NODE", "20"),
        ("GASNET_PORTAL_MAX_CRED_PER_NODE", "10"),
    ];
    let text = "GASNET_PORTAL_CRED_PER_NODE=20 is not valid: accepted is at most 10, the value of GASNET_PORTAL_MAX_CRED_PER_NODE";
    assert_eq!(read(&vars).unwrap_err().to_string(), text);
}

#[test]
fn what_a_setting_implies_for_another_is_derived() {
    let plan = |name, value, ranks| one(name, value).unwrap().credit_plan(ranks).unwrap();
    // More from the start than may be lent by default.
    for (credits, ranks) in [("500", 2), ("5000", 1000), ("65535", 16)] {
        let plan = plan("GASNET_PORTAL_CRED_PER_NODE", credits, ranks);
        assert_eq!(plan.credits_per_peer().to_string(), credits);
        assert!(plan.max_per_peer() >= plan.credits_per_peer());
    }
    // A full medium costs 5 with the default chunk.
    for name in [
        "GASNET_PORTAL_CRED_PER_NODE",
        "GASNET_PORTAL_MAX_CRED_PER_NODE",
    ] {
        assert_eq!(plan(name, "4", 2).credits_per_peer(), 5);
    }
    // Less than two request buffers as they are by default.
    let space = "GASNET_PORTAL_AMRECV_SPACE";
    let small = plan(space, "1M", 8);
    let bytes = u64::from(small.buffers()) * small.buffer_bytes();
    assert!(bytes <= 1 << 20 && bytes > 900 << 10, "{bytes}");
    // Unless somebody says how large one is.
    let set = [(space, "1M"), ("CONDUIT_REQUEST_BUFFER", "1M")];
    let (settings, _) = read(&set).unwrap();
    assert_eq!(settings.credit_plan(8).unwrap_err().name, space);
    // A rank that computes for longer than it may be silent is answered for in time.
    let milliseconds = |name, value| {
        let settings = one(name, value).unwrap();
        let times = [settings.udp_attends_after(), settings.ofi_attends_after()];
        times.map(|time| time.as_millis())
    };
    assert_eq!(milliseconds("CONDUIT_UDP_ATTEND", "60000"), [2_500, 20]);
    assert_eq!(milliseconds("CONDUIT_OFI_ATTEND", "60000"), [20, 2_500]);
    assert_eq!(milliseconds("CONDUIT_UDP_DEAD_TIME", "100"), [20, 20]);
    // Who takes the space is named.
    let set = [(space, "1M"), ("GASNET_PORTAL_BANKED_CREDITS", "1000")];
    let error = read(&set).unwrap().0.credit_plan(8).unwrap_err();
    assert!(error.reason.ends_with(", by GASNET_PORTAL_BANKED_CREDITS"));
}

#[test]
fn the_table_prints_values_defaults_and_origins() {
    let settings = one("CONDUIT_CHUNK", "2048").unwrap();
    let rows: Vec<_> = describe(&settings, None).collect();
    assert_eq!(rows.len(), ROWS.len());
    let chunk = rows.iter().find(|row| row.name == "CONDUIT_CHUNK").unwrap();
    assert_eq!(
        (&chunk.value, &chunk.default, chunk.is_set),
        (
            &Some(Value::Bytes(2048)),
            &Some(Value::Bytes(17 << 10)),
            true
        )
    );
    let table = Table {
        settings: &settings,
        job: None,
        origin: &|_| "environment",
        width: None,
    };
    let table = table.to_string();
    let lines: Vec<Vec<_>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert!(
        lines.contains(&vec!["CONDUIT_CHUNK", "2K", "17K", "environment"]),
        "{table}"
    );
    assert!(
        lines.contains(&vec!["GASNET_PORTAL_CRED_PER_NODE", "-", "-", "default"]),
        "{table}"
    );
    assert!(
        table.contains("default: from a table by job size\n"),
        "{table}"
    );
    assert_eq!(lines.len(), 1 + 2 * ROWS.len());
}

#[test]
fn meanings_are_wrapped_at_the_terminals_width() {
    let settings = Settings::default();
    let job = settings.in_job(1000).unwrap();
    for (job, width) in [(None, 80), (Some(&job), 80), (None, 120)] {
        let table = Table {
            settings: &settings,
            job,
            origin: &|_| "",
            width: Some(width),
        };
        let table = table.to_string();
        let longest = table
            .lines()
            .map(|line| line.chars().count())
            .max()
            .unwrap();
        assert!(longest <= width, "{table}");
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        for row in ROWS {
            // A semicolon may stand at the last.
            let mut meaning = words(row.meaning);
            meaning.pop();
            let found = words(&table)
                .windows(meaning.len())
                .any(|part| part == meaning);
            assert!(found, "{}: {table}", row.name);
        }
    }
}

#[test]
fn a_job_of_some_size_gives_unset_settings_their_values() {
    let settings = one("CONDUIT_CHUNK", "1024").unwrap();
    let job = settings.in_job(1024).unwrap();
    let plan = settings.credit_plan(1024).unwrap();
    let integer = |name| match job.value(name) {
        Some(Value::Integer(value)) => value,
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(
        integer("GASNET_PORTAL_CRED_PER_NODE"),
        plan.credits_per_peer().into()
    );
    assert_eq!(integer("GASNET_PORTAL_BANKED_CREDITS"), plan.banked());
    assert_eq!(integer("CONDUIT_EXIT_TIMEOUT"), 131);
    let space = u64::from(plan.buffers()) * plan.buffer_bytes();
    assert_eq!(
        job.value("GASNET_PORTAL_AMRECV_SPACE"),
        Some(Value::Bytes(space))
    );
    assert_eq!(job.value("GASNET_PORTAL_MSG_LIMIT"), None);
}

#[test]
fn settings_of_credits_reach_the_plan() {
    let plan = |vars: &[(&str, &str)]| read(vars).unwrap().0.credit_plan(8).unwrap();
    let chunk = ("CONDUIT_CHUNK", "1024");
    let default = plan(&[chunk]);
    assert_eq!(
        (default.scale().chunk(), default.flow_control()),
        (1024, true)
    );
    assert!(!plan(&[("GASNET_PORTAL_FLOW_CONTROL", "0")]).flow_control());
    assert_eq!(plan(&[("CONDUIT_CHUNK", "2048")]).scale().chunk(), 2048);
    let few = [
        chunk,
        ("GASNET_PORTAL_CRED_PER_NODE", "4"),
        ("GASNET_PORTAL_BANKED_CREDITS", "0"),
    ];
    let more = [
        chunk,
        ("GASNET_PORTAL_CRED_PER_NODE", "4"),
        ("GASNET_PORTAL_BANKED_CREDITS", "50000"),
    ];
    let most = [chunk, ("GASNET_PORTAL_CRED_PER_NODE", "400")];
    assert!(plan(&few).total() < plan(&more).total());
    assert!(plan(&most).credits_per_peer() >= 400);
    let limited = [chunk, ("GASNET_PORTAL_MAX_CRED_PER_NODE", "20")];
    assert_eq!(plan(&limited).credits_per_peer(), 20);
    let space = plan(&[chunk, ("GASNET_PORTAL_AMRECV_SPACE", "7M")]);
    assert_eq!(u64::from(space.buffers()) * space.buffer_bytes(), 7 << 20);
}

#[test]
fn the_knobs_of_credits_that_move_reach_the_plan() {
    let knobs = |vars: &[_]| {
        let plan = read(vars).unwrap().0.credit_plan(8).unwrap();
        let tuning = *plan.tuning();
        (
            tuning.epoch,
            tuning.revoke_limit,
            tuning.lender_limit,
            tuning.scavenge,
            tuning.revokes_per_epoch,
            tuning.growth,
            tuning.hold,
        )
    };
    let plan = Settings::default().credit_plan(8).unwrap();
    let shipped = Tuning {
        minimum: 5,
        max_per_peer: 1024,
        ..Tuning::SHIPPED
    };
    assert_eq!(*plan.tuning(), shipped);
    let set = [
        ("GASNET_PORTAL_EPOCH_DURATION", "17"),
        ("GASNET_PORTAL_REVOKE_LIMIT", "18"),
        ("GASNET_PORTAL_LENDER_LIMIT", "65535"),
        ("GASNET_PORTAL_NUM_SCAVENGE", "20"),
        ("CONDUIT_CREDIT_REVOKES", "0"),
        ("CONDUIT_CREDIT_DOUBLING", "0"),
        ("CONDUIT_CREDIT_HOLD", "1"),
    ];
    assert_eq!(
        knobs(&set),
        (17, 18, 65_535, 20, u32::MAX, Growth::Missing, true)
    );
}

#[test]
fn what_a_job_can_not_run_with_is_named() {
    let refused = |vars: &[(&str, &str)], ranks| {
        let error = read(vars).unwrap().0.credit_plan(ranks).unwrap_err();
        assert_eq!(error.ranks, ranks);
        error.name
    };
    assert_eq!(
        refused(&[("GASNET_PORTAL_AMRECV_SPACE", "4K")], 2),
        "GASNET_PORTAL_AMRECV_SPACE"
    );
    assert_eq!(refused(&[], u32::MAX), "GASNET_PORTAL_CRED_PER_NODE");
    let mut settings = Settings {
        chunk: 100,
        ..Settings::default()
    };
    assert_eq!(settings.credit_plan(2).unwrap_err().name, "CONDUIT_CHUNK");
    settings.chunk = 5 << 30;
    assert_eq!(settings.credit_plan(2).unwrap_err().name, "CONDUIT_CHUNK");
    assert!(Settings::default().credit_plan(0).is_err());
}

/// A value that the row accepts: of its range the ends, or what lies between.
fn accepted(kind: Kind) -> BoxedStrategy<String> {
    let range = |least: u64, most: u64| prop_oneof![Just(least), Just(most), least..=most];
    match kind {
        Kind::Integer { least, most, zero } => {
            let zero = if zero.is_some() { 0 } else { least };
            prop_oneof![1 => Just(zero.into()), 3 => range(least.into(), most.into())]
                .prop_map(|number: u64| number.to_string())
                .boxed()
        }
        Kind::Bytes {
            least,
            most,
            multiple,
        } => prop_oneof![range(least, most), range(least, most.min(1 << 30))]
            .prop_map(move |bytes| (bytes / multiple * multiple).max(least).to_string())
            .boxed(),
        Kind::Words(words) => prop::sample::select(words).prop_map(str::to_owned).boxed(),
        Kind::Bool | Kind::Percent => prop::sample::select(&["0", "1"][..])
            .prop_map(str::to_owned)
            .boxed(),
        Kind::Path | Kind::Text(_) => Just("text".to_owned()).boxed(),
    }
}

proptest! {
    #[test]
    fn a_setting_alone_makes_a_plan(
        (row, value) in (0..ROWS.len()).prop_flat_map(|row| (Just(row), accepted(ROWS[row].kind))),
        ranks in prop_oneof![1u32..20, 1u32..=20_000, Just(1_000_000)],
    ) {
        let name = ROWS[row].name;
        let settings = one(name, &value);
        prop_assert!(settings.is_ok(), "{name}={value}: {settings:?}");
        let settings = settings.unwrap();
        match (settings.credit_plan(ranks), settings.amrecv_space) {
            (Ok(plan), _) => prop_assert!(plan.buffers() <= 2048, "{name}={value}: {plan:?}"),
            (Err(error), Some(space)) => {
                // It conflicts with the size of the job: of a small space a part is never covered.
                prop_assert_eq!(error.name, name);
                let scale = Scale::for_chunk(settings.chunk as u32).unwrap();
                let least = u64::from(ranks + 5) * u64::from(scale.full_cost())
                    * u64::from(scale.bytes_per_credit());
                prop_assert!(least > space as u64 / 2, "{error}");
            }
            // It conflicts with the size of the job too.
            (Err(_), None) if u64::from(settings.cred_per_node.unwrap_or(0)) * u64::from(ranks) > 1 << 31 => {}
            (Err(error), None) => prop_assert!(false, "{name}={value}: {error}"),
        }
    }

    #[test]
    fn no_text_panics(name in "(GASNET_PORTAL_|CONDUIT_)?\\PC{0,80}", value in any::<String>()) {
        if let Err(error) = one(&name, &value) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn no_value_panics_and_what_is_accepted_prints_as_itself(
        row in 0..ROWS.len(),
        value in prop_oneof![any::<String>(), "[a-z/. ]{0,9}", "-?[0-9]{0,22} ?[kKmMgGtT]?(i?[bB])?", "(shm|udp|ofi|,| ){0,6}"],
    ) {
        let row = &ROWS[row];
        match one(row.name, &value) {
            Ok(settings) => {
                let parsed = (row.get)(&settings);
                prop_assert!(parsed.is_some());
                prop_assert_eq!(row.kind.parse(&parsed.as_ref().unwrap().to_string()), parsed);
            }
            Err(error) => prop_assert!(error.to_string().starts_with(row.name)),
        }
    }

    #[test]
    fn bytes_print_as_they_are_read(bytes in 0..=i64::MAX as u64, shift in 0..50_u32) {
        let value = Value::Bytes(bytes >> shift << shift);
        let kind = Kind::bytes(0, i64::MAX as u64, 1);
        prop_assert_eq!(kind.parse(&value.to_string()), Some(value));
    }
}
