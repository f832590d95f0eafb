//! Tests of the settings tables and of invalid values.

use std::collections::HashSet;

use conduit_ofi::job::OfiConfig;
use conduit_udp::job::UdpConfig;
use credits::Scale;
use proptest::prelude::*;
use settings::{Row, ValueKind, Warning};

use super::*;

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

fn rows() -> Vec<&'static Row> {
    let settings = Settings::default();
    settings
        .groups()
        .iter()
        .flat_map(|group| group.rows())
        .collect()
}

fn value(settings: &Settings, name: &str) -> Option<Value> {
    let mut rows = settings.describe().into_iter();
    rows.find(|row| row.name == name).unwrap().value
}

#[test]
fn every_default_is_a_value_that_its_row_accepts() {
    let defaults = Settings::default();
    for row in rows() {
        match value(&defaults, row.name) {
            Some(value) => {
                assert_eq!(
                    row.kind.parse(&value.to_string()),
                    Some(value.clone()),
                    "{}",
                    row.name
                );
                let settings = one(row.name, &value.to_string()).unwrap();
                assert_eq!(self::value(&settings, row.name), Some(value));
                assert_eq!(
                    row.unset, "",
                    "{}: `unset` is allowed only in rows without a default",
                    row.name
                );
            }
            None => assert_ne!(row.unset, "", "{}: no text for an unset value", row.name),
        }
    }
    let (settings, warnings) = read(&[]).unwrap();
    assert_eq!((settings, warnings), (defaults, vec![]));
}

#[test]
fn names_are_distinct_and_begin_as_settings_do() {
    let mut names = HashSet::new();
    for row in rows() {
        assert!(
            one(row.name, "\u{fffd}").is_err() && names.insert(row.name),
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
    for row in rows() {
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
            // The other limit is raised, so that the rule between the two settings holds.
            let room = ("GASNET_PORTAL_MAX_CRED_PER_NODE", "65535");
            if let Err(error) = read(&[(row.name, text), room]) {
                panic!("{error}");
            }
        };
        match row.kind {
            ValueKind::Integer { least, most, zero } => {
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
            ValueKind::Bool => {
                for text in ["0", "1", "yes", "No", "TRUE", "off", " 1 "] {
                    accepted(text);
                }
                for text in ["", "2", "-1", "maybe", "10"] {
                    refused(text);
                }
            }
            ValueKind::Bytes {
                least,
                most,
                multiple,
            } => {
                accepted(&least.to_string());
                accepted(&(most / multiple * multiple).to_string());
                if least > 0 {
                    refused(&(least - 1).to_string());
                }
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
            ValueKind::Percent => {
                for text in ["0", "100", "0.1", "12.3456", " 5 "] {
                    accepted(text);
                }
                for text in ["", "-1", "100.1", "101", "1%", "0.12345", "half"] {
                    refused(text);
                }
            }
            ValueKind::Words(words) => {
                for word in words {
                    accepted(word);
                }
                accepted(&words.join(","));
                for text in ["", ",", "shm,", "tcp", "shm;udp"] {
                    refused(text);
                }
            }
            ValueKind::Signal(signals) => {
                for (name, number) in signals {
                    accepted(name);
                    accepted(&number.to_string());
                }
                for text in ["", "KILL", "9", "0", "SIG"] {
                    refused(text);
                }
            }
            ValueKind::Text(_) => {
                for text in ["eth0", "10.0.0.0/8,lo", "a name"] {
                    accepted(text);
                }
                for text in ["", "  ", "a\0b", "two\nlines", "\u{fffd}"] {
                    refused(text);
                }
            }
            ValueKind::Path => {
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
        engine: conduit_core::settings::Settings {
            msg_limit: 0,
            packed_long: false,
            amrecv_space: Some(3 << 20),
            cred_per_node: Some(17),
            chunk: 65_536,
            spin: Some(0),
            credit_stats: true,
            credit_stats_dir: "a folder/".into(),
            epoch_duration: 17,
            revoke_limit: 18,
            lender_limit: 19,
            num_scavenge: 20,
            origins: settings.engine.origins,
            ..Default::default()
        },
        networks: networks::settings::Settings {
            networks: Some(vec!["udp".to_owned(), "shm".to_owned()]),
            origins: settings.networks.origins,
            ..Default::default()
        },
        ..Settings::default()
    };
    assert_eq!(settings, expected);
    assert_eq!(warnings, []);
    assert!(settings.is_set("CONDUIT_SPIN") && !settings.is_set("CONDUIT_YIELD"));
    assert!(settings.networks.allows_network("udp") && !settings.networks.allows_network("ofi"));
    assert!(Settings::default().networks.allows_network("ofi"));
    assert!(!settings.is_set("PATH"));
}

#[test]
fn byte_suffixes_are_powers_of_1024() {
    let space = |text| one("CONDUIT_MAX_SEGMENT", text).unwrap().job.max_segment;
    for text in [
        "8388608", "8388608B", "8192K", "8192kb", "8M", "8 MiB", "8mib",
    ] {
        assert_eq!(space(text), Some(8 << 20), "{text}");
    }
    assert_eq!(space("3G"), Some(3 << 30));
    assert_eq!(space("2T"), Some(2 << 40));
}

#[test]
fn a_bad_value_is_named_with_its_range() {
    assert_eq!(
        message("GASNET_PORTAL_MSG_LIMIT", "7"),
        "GASNET_PORTAL_MSG_LIMIT=\"7\" is not valid: expected 0 (no limit), or an integer from 12 to 1048576"
    );
    assert_eq!(
        message("CONDUIT_CHUNK", "1000"),
        "CONDUIT_CHUNK=\"1000\" is not valid: expected bytes from 1K to 65K in multiples of 1K, suffix K, M, G or T allowed"
    );
    assert_eq!(
        message("CONDUIT_NETWORK", "tcp"),
        "CONDUIT_NETWORK=\"tcp\" is not valid: expected a comma-separated list of shm, udp, ofi, portals4"
    );
    let long = message("CONDUIT_INJECT", &"\n".repeat(10_000));
    assert!(long.len() < 400 && !long.contains('\n'), "{long}");
}

#[test]
fn an_unknown_name_is_refused_and_the_nearest_suggested() {
    assert_eq!(
        message("GASNET_PORTAL_MSG_LIMTI", "100"),
        "GASNET_PORTAL_MSG_LIMTI=\"100\": unknown setting; did you mean GASNET_PORTAL_MSG_LIMIT?"
    );
    assert!(message("CONDUIT_NETWORKS", "shm").ends_with("did you mean CONDUIT_NETWORK?"));
    assert_eq!(
        message("CONDUIT_FRIENDSHIP", "1"),
        "CONDUIT_FRIENDSHIP=\"1\": unknown setting"
    );
    assert!(
        one("CONDUIT_chunk", "1024").is_err(),
        "names are case-sensitive"
    );
}

#[test]
fn names_of_others_are_left_alone() {
    let names = [
        "CONDUIT_LAUNCHER",
        "CONDUIT_JOB_ID",
        "CONDUIT_REMOTE_SHELL",
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
    assert_eq!(settings.engine.yields, 5);
}

#[test]
fn the_table_prints_values_defaults_and_origins() {
    let settings = one("CONDUIT_CHUNK", "2048").unwrap();
    let described = settings.describe();
    assert_eq!(described.len(), rows().len());
    let chunk = described
        .iter()
        .find(|row| row.name == "CONDUIT_CHUNK")
        .unwrap();
    assert_eq!(
        (&chunk.value, &chunk.default, chunk.is_set),
        (
            &Some(Value::Bytes(2048)),
            &Some(Value::Bytes(17 << 10)),
            true
        )
    );
    let table = Table {
        rows: &described,
        in_job: "",
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
    assert_eq!(lines.len(), 1 + 2 * rows().len());
}

#[test]
fn meanings_are_wrapped_at_the_terminals_width() {
    let settings = Settings::default();
    let job = settings.engine.in_job(1000).unwrap();
    for (job, width) in [(None, 80), (Some(&job), 80), (None, 120)] {
        let mut described = settings.describe();
        for row in &mut described {
            row.in_job = job.and_then(|job| job.value(row.name));
        }
        let table = Table {
            rows: &described,
            in_job: job.map_or("", |_| "1000 RANKS"),
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
        for row in rows() {
            // The table may add a semicolon after the last word.
            let mut meaning = words(row.meaning);
            meaning.pop();
            let found = words(&table)
                .windows(meaning.len())
                .any(|part| part == meaning);
            assert!(found, "{}: {table}", row.name);
        }
    }
}

/// If a rank computes for longer than the allowed silence, its progress thread serves the peers in
/// time.
#[test]
fn a_rank_is_attended_to_long_before_it_is_dead() {
    let milliseconds = |name, value| {
        let (settings, _) = read(&[("CONDUIT_UDP_INTERFACE", "127.0.0.1"), (name, value)]).unwrap();
        let udp = UdpConfig::of(&settings.udp, "a host", 0).unwrap();
        let ofi = OfiConfig::of(&settings.ofi, "a host", true);
        [udp.attend, ofi.attend].map(|time| time.unwrap().as_millis())
    };
    assert_eq!(milliseconds("CONDUIT_UDP_ATTEND", "60000"), [2_500, 20]);
    assert_eq!(milliseconds("CONDUIT_OFI_ATTEND", "60000"), [20, 2_500]);
    assert_eq!(milliseconds("CONDUIT_UDP_DEAD_TIME", "100"), [20, 20]);
}

/// Returns a strategy for values that the row accepts: the two ends of its range, and values
/// between them.
fn accepted(kind: ValueKind) -> BoxedStrategy<String> {
    let range = |least: u64, most: u64| prop_oneof![Just(least), Just(most), least..=most];
    match kind {
        ValueKind::Integer { least, most, zero } => {
            let zero = if zero.is_some() { 0 } else { least };
            prop_oneof![1 => Just(zero.into()), 3 => range(least.into(), most.into())]
                .prop_map(|number: u64| number.to_string())
                .boxed()
        }
        ValueKind::Bytes {
            least,
            most,
            multiple,
        } => prop_oneof![range(least, most), range(least, most.min(1 << 30))]
            .prop_map(move |bytes| (bytes / multiple * multiple).max(least).to_string())
            .boxed(),
        ValueKind::Words(words) => prop::sample::select(words).prop_map(str::to_owned).boxed(),
        ValueKind::Bool | ValueKind::Percent => prop::sample::select(&["0", "1"][..])
            .prop_map(str::to_owned)
            .boxed(),
        ValueKind::Signal(signals) => prop::sample::select(signals)
            .prop_map(|(name, _)| name.to_owned())
            .boxed(),
        ValueKind::Path | ValueKind::Text(_) => Just("text".to_owned()).boxed(),
    }
}

proptest! {
    #[test]
    fn a_setting_alone_makes_a_plan(
        (row, value) in (0..rows().len()).prop_flat_map(|row| (Just(row), accepted(rows()[row].kind))),
        ranks in prop_oneof![1u32..20, 1u32..=20_000, Just(1_000_000)],
    ) {
        let name = rows()[row].name;
        let settings = one(name, &value);
        prop_assert!(settings.is_ok(), "{name}={value}: {settings:?}");
        let settings = settings.unwrap();
        match (settings.engine.credit_plan(ranks), settings.engine.amrecv_space) {
            (Ok(plan), _) => prop_assert!(plan.buffers() <= 2048, "{name}={value}: {plan:?}"),
            (Err(error), Some(space)) => {
                // The value conflicts with the size of the job, because a part of a small space is
                // never covered by credits.
                prop_assert_eq!(error.name, name);
                let scale = Scale::for_chunk(settings.engine.chunk as u32).unwrap();
                let least = u64::from(ranks + 5) * u64::from(scale.full_cost())
                    * u64::from(scale.bytes_per_credit());
                prop_assert!(least > space as u64 / 2, "{error}");
            }
            // With this many ranks, the number of credits per node also conflicts with the size of
            // the job.
            (Err(_), None) if u64::from(settings.engine.cred_per_node.unwrap_or(0)) * u64::from(ranks) > 1 << 31 => {}
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
        row in 0..rows().len(),
        text in prop_oneof![any::<String>(), "[a-z/. ]{0,9}", "-?[0-9]{0,22} ?[kKmMgGtT]?(i?[bB])?", "(shm|udp|ofi|,| ){0,6}"],
    ) {
        let row = rows()[row];
        match one(row.name, &text) {
            Ok(settings) => {
                let parsed = self::value(&settings, row.name);
                prop_assert!(parsed.is_some());
                prop_assert_eq!(row.kind.parse(&parsed.as_ref().unwrap().to_string()), parsed);
            }
            Err(error) => prop_assert!(error.to_string().starts_with(row.name)),
        }
    }
}
