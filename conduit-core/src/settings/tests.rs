//! Values of the engine's settings, and errors in them.

use credits::{Growth, Tuning};
use settings::{Groups as _, Value, Warning};

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

/// The settings that tune credits are compared with the plan in
/// `the_knobs_of_credits_that_move_reach_the_plan`.
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
    // The plan determines the value. In the original it was always 400; here it is at least 400.
    assert_eq!(s.max_cred_per_node, None);
    let most = |ranks| s.credit_plan(ranks).unwrap().max_per_peer();
    assert_eq!(
        (most(1), most(2), most(16), most(10_000), most(1_000_000)),
        (8192, 4096, 512, 1024, 1024)
    );
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
    let text = "GASNET_PORTAL_CRED_PER_NODE=20 is not valid: expected at most 10, the value of GASNET_PORTAL_MAX_CRED_PER_NODE";
    assert_eq!(read(&vars).unwrap_err().to_string(), text);
}

#[test]
fn what_a_setting_implies_for_another_is_derived() {
    let plan = |name, value, ranks| one(name, value).unwrap().credit_plan(ranks).unwrap();
    // These are more initial credits than may be lent by default.
    for (credits, ranks) in [("500", 2), ("5000", 1000), ("65535", 16)] {
        let plan = plan("GASNET_PORTAL_CRED_PER_NODE", credits, ranks);
        assert_eq!(plan.credits_per_peer().to_string(), credits);
        assert!(plan.max_per_peer() >= plan.credits_per_peer());
    }
    // With the default chunk, a full medium costs 5 credits.
    for name in [
        "GASNET_PORTAL_CRED_PER_NODE",
        "GASNET_PORTAL_MAX_CRED_PER_NODE",
    ] {
        assert_eq!(plan(name, "4", 2).credits_per_peer(), 5);
    }
    // The space is less than two request buffers of the default size, so the buffers are smaller.
    let space = "GASNET_PORTAL_AMRECV_SPACE";
    let small = plan(space, "1M", 8);
    let bytes = u64::from(small.buffers()) * small.buffer_bytes();
    assert!(bytes <= 1 << 20 && bytes > 900 << 10, "{bytes}");
    // If a buffer size is given too, the space is refused.
    let set = [(space, "1M"), ("CONDUIT_REQUEST_BUFFER", "1M")];
    let (settings, _) = read(&set).unwrap();
    assert_eq!(settings.credit_plan(8).unwrap_err().name, space);
    // The error also names the setting because of which the space is too small.
    let set = [(space, "1M"), ("GASNET_PORTAL_BANKED_CREDITS", "1000")];
    let error = read(&set).unwrap().0.credit_plan(8).unwrap_err();
    assert!(error.reason.ends_with(", by GASNET_PORTAL_BANKED_CREDITS"));
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
