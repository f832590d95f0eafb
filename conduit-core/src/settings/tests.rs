//! The table against itself, and what users get wrong.

use super::kind::{Kind, Value};
use super::*;
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

#[test]
fn the_defaults_of_the_original() {
    let s = Settings::default();
    assert_eq!(
        (s.msg_limit, s.num_tmpmd, s.sb_chunks, s.rpl_chunks),
        (250, 1024, 2048, 256)
    );
    assert_eq!((s.safe_limit, s.am_limit, s.sys_limit), (12, 8, 0));
    assert_eq!((s.max_cred_per_node, s.epoch_duration), (400, 1024));
    assert!(s.packed_long && s.flow_control && s.dynamic_credits && !s.accel);
    assert_eq!(
        (s.cred_per_node, s.banked_credits, s.amrecv_space),
        (None, None, None)
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
            Kind::Words(words) => {
                for word in words {
                    accepted(word);
                }
                accepted(&words.join(","));
                for text in ["", ",", "shm,", "tcp", "shm;udp"] {
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
        origins: settings.origins,
        ..Settings::default()
    };
    assert_eq!(settings, expected);
    assert_eq!(warnings, []);
    assert!(settings.is_set("CONDUIT_SPIN") && !settings.is_set("CONDUIT_YIELD"));
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
fn the_table_prints_values_defaults_and_origins() {
    let settings = one("CONDUIT_CHUNK", "2048").unwrap();
    let rows: Vec<_> = describe(&settings).collect();
    assert_eq!(rows.len(), ROWS.len());
    let chunk = rows.iter().find(|row| row.name == "CONDUIT_CHUNK").unwrap();
    assert_eq!(
        (&chunk.value[..], &chunk.default[..], chunk.origin),
        ("2K", "17K", "environment")
    );
    let table = Table(&settings).to_string();
    assert!(
        table.contains("CONDUIT_CHUNK=2K  [environment; default 17K]\n"),
        "{table}"
    );
    assert!(
        table.contains("GASNET_PORTAL_CRED_PER_NODE=(from a table by job size)  [default]\n"),
        "{table}"
    );
    assert_eq!(table.lines().count(), 2 * ROWS.len());
}

proptest! {
    #[test]
    fn no_text_panics(name in "(GASNET_PORTAL_|CONDUIT_)?\\PC{0,80}", value in any::<String>()) {
        if let Err(error) = one(&name, &value) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn no_value_panics_and_what_is_accepted_prints_as_itself(
        row in 0..ROWS.len(),
        value in prop_oneof![any::<String>(), "-?[0-9]{0,22} ?[kKmMgGtT]?(i?[bB])?", "(shm|udp|ofi|,| ){0,6}"],
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
