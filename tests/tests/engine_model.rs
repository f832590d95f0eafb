//! Random schedules against the reference model, in every configuration that changes how the engine
//! works.
//!
//! `PROPTEST_CASES=5000 cargo test -p conduit-tests --release --test engine engine_model::` is the
//! long run.

use am::handlers::Registration;
use conduit_core::engine::{Engine, Handler};
use conduit_core::kernel::Blocking;
use conduit_core::ni::Ni;
use conduit_core::settings::Settings;
use conduit_core::threads::{Mode, Par, Seq};
use conduit_shm::job::{Shm, ShmConfig, in_process};
use conduit_tests::chaos::{Chaos, Disorder};
use conduit_tests::composite::{self, Hosts};
use conduit_tests::model::given_up::check_given_up;
use conduit_tests::model::schedule::Schedule;
use conduit_tests::model::{Limits, check, check_drawn, turns};
use conduit_tests::reference::{Reference, Seen};
use conduit_tests::small::{least, network, restless, settings};
use networks::composite::Composite;

/// The number of schedules per configuration, unless `PROPTEST_CASES` is set.
const CASES: u32 = 64;
/// The same under chaos, where each takes longer.
const CHAOS_CASES: u32 = 32;
/// The attempts to shrink a failing schedule.
const SHRINKS: u32 = 1_000;

fn ends<M: Mode>(schedule: &Schedule, config: &ShmConfig) -> Vec<Shm<M>> {
    in_process(schedule.ranks, config).expect("the network starts")
}

/// Runs schedules as they are, and under chaos if it is given.
fn run(settings: &Settings, config: &ShmConfig, chaos: Option<Disorder>) {
    check_drawn(cases(chaos), SHRINKS, |schedule| {
        match schedule.is_parallel() {
            false => run_over::<_, Seq>(schedule, settings, chaos, ends::<Seq>(schedule, config)),
            true => run_over::<_, Par>(schedule, settings, chaos, ends::<Par>(schedule, config)),
        }
    });
}

/// Runs schedules with ranks on several hosts.
fn run_on(hosts: Hosts, settings: &Settings, config: &ShmConfig, chaos: Option<Disorder>) {
    fn ends<M: Mode>(
        schedule: &Schedule,
        hosts: Hosts,
        config: &ShmConfig,
    ) -> Vec<Composite<Shm<M>, Reference, M>> {
        let near = |ranks| in_process(ranks, config).map_err(|error| error.to_string());
        composite::job(schedule.ranks, hosts, near).expect("the networks start")
    }
    check_drawn(cases(chaos), SHRINKS, |schedule| {
        match schedule.is_parallel() {
            false => {
                let ends = ends::<Seq>(schedule, hosts, config);
                run_over::<_, Seq>(schedule, settings, chaos, ends)
            }
            true => {
                let ends = ends::<Par>(schedule, hosts, config);
                run_over::<_, Par>(schedule, settings, chaos, ends)
            }
        }
    });
}

fn cases(chaos: Option<Disorder>) -> u32 {
    if chaos.is_some() { CHAOS_CASES } else { CASES }
}

fn run_over<N: Ni + 'static, M: Mode>(
    schedule: &Schedule,
    settings: &Settings,
    chaos: Option<Disorder>,
    ends: Vec<N>,
) -> Result<(), String> {
    match chaos {
        None => check::<_, M>(schedule, settings, ends, Limits::POLLS),
        Some(disorder) => {
            let disorder = Disorder {
                seed: schedule.seed,
                ..disorder
            };
            let ends = Chaos::job(ends, disorder);
            check::<_, M>(schedule, settings, ends, Limits::POLLS)
        }
    }
}

macro_rules! configurations {
    ($( $(#[$about:meta])* $name:ident: $settings:expr, $network:expr; )+) => { $(
        mod $name {
            use super::*;

            $(#[$about])*
            #[test]
            fn as_it_is() {
                run(&$settings, &$network, None);
            }

            #[test]
            fn under_chaos() {
                run(&$settings, &$network, Some(Disorder::seeded(0)));
            }
        }
    )+ };
}

/// Configurations of jobs over several hosts, for each distribution of ranks.
macro_rules! over_hosts {
    ($( $name:ident: $settings:expr, $network:expr; )+) => { $(
        mod $name {
            use super::*;

            #[test]
            fn as_it_is() {
                for hosts in [Hosts::Pairs, Hosts::Alternating, Hosts::FirstAlone] {
                    run_on(hosts, &$settings, &$network, None);
                }
            }

            #[test]
            fn under_chaos() {
                for hosts in [Hosts::Alternating, Hosts::Alone] {
                    run_on(hosts, &$settings, &$network, Some(Disorder::seeded(0)));
                }
            }
        }
    )+ };
}

over_hosts! {
    hosts: settings(), network();
    hosts_without_windows: Settings { windows: false, ..settings() },
        ShmConfig { windows: false, ..network() };
    hosts_without_inject: Settings { inject: false, ..settings() }, ShmConfig { inject_size: 0, ..network() };
    hosts_longs_in_two: Settings { packed_long: false, ..settings() }, network();
    hosts_with_least: least(), network();
    hosts_restless: restless(), network();
}

configurations! {
    windows: settings(), network();
    no_windows: Settings { windows: false, ..settings() }, ShmConfig { windows: false, ..network() };
    no_inject: Settings { inject: false, ..settings() }, ShmConfig { inject_size: 0, ..network() };
    bare: Settings { windows: false, inject: false, ..settings() },
        ShmConfig { windows: false, inject_size: 0, ..network() };
    /// Longs above some size travel in two parts: header and data.
    longs_in_two: Settings { windows: false, packed_long: false, ..settings() },
        ShmConfig { windows: false, ..network() };
    /// Puts and gets in many pieces.
    small_messages: Settings { windows: false, ..settings() },
        ShmConfig { windows: false, max_message: 192, ..network() };
    /// Both: a long's data does not fit one put.
    small_messages_longs_in_two: Settings { windows: false, packed_long: false, ..settings() },
        ShmConfig { windows: false, max_message: 192, inline_size: 64, ..network() };
    /// The least of everything that settings accept.
    least: Settings { windows: false, inject: false, ..least() },
        ShmConfig { windows: false, inject_size: 0, staging_pieces: 1, ..network() };
    least_with_windows: Settings {
            msg_limit: 12,
            num_tmpmd: 1,
            sb_chunks: 1,
            rpl_chunks: 1,
            cred_per_node: Some(4),
            banked_credits: Some(0),
            ..settings()
        },
        network();
    /// Polls without a limit on events.
    greedy: Settings { safe_limit: 1 << 20, am_limit: 1 << 20, msg_limit: 0, sb_chunks: 16, ..settings() }, network();
    greedy_without_windows:
        Settings { windows: false, safe_limit: 1 << 20, am_limit: 1 << 20, msg_limit: 0, ..settings() },
        ShmConfig { windows: false, ..network() };
    /// Credits that move all the time.
    restless: restless(), network();
    restless_without_windows: Settings { windows: false, ..restless() },
        ShmConfig { windows: false, ..network() };
    static_credits: Settings { dynamic_credits: false, cred_per_node: Some(6), ..settings() }, network();
    no_flow_control: Settings { flow_control: false, ..settings() }, network();
    shared_rings: settings(), ShmConfig { shared_ring_above: 0, ..network() };
    shared_rings_without_windows: Settings { windows: false, ..settings() },
        ShmConfig { windows: false, shared_ring_above: 0, ..network() };
    /// Exclusive rings that change hands every few messages.
    rings_change_hands: settings(), ShmConfig { shared_ring_above: 0, lane_rings: 2, lane_force_switch: 5, ..network() };
    rings_change_hands_without_windows: Settings { windows: false, ..settings() },
        ShmConfig { windows: false, shared_ring_above: 0, lane_rings: 2, lane_force_switch: 5, ..network() };
}

/// A call fails while its operations are in flight, and under chaos before the network has seen
/// them.
#[test]
fn what_is_given_up_is_left_alone() {
    let config = ShmConfig {
        windows: false,
        ..network()
    };
    let start = || in_process::<Seq>(3, &config).expect("the network starts");
    check_given_up(&settings(), Limits::POLLS, |_| start());
    check_given_up(&settings(), Limits::POLLS, |seed| {
        Chaos::job(start(), Disorder::seeded(seed))
    });
    check_given_up(&settings(), Limits::POLLS, |_| {
        let near = |ranks| in_process(ranks, &config).map_err(|error| error.to_string());
        composite::job::<Shm<Seq>, Seq>(3, Hosts::Alternating, near).expect("the networks start")
    });
}

/// In a job of several hosts, requests to peers of the same host are sent as if all were mapped,
/// with the flag that a reply is expected; requests to others are sent as if none was.
#[test]
fn each_peer_is_reached_in_the_best_way() {
    const HANDLER: u8 = 200;
    let settings = Settings {
        checks: false,
        ..settings()
    };
    let intra = |ranks| {
        let ends = Reference::job(ranks).into_iter();
        Ok(ends.map(|end| end.with_inject(settings.chunk)).collect())
    };
    let ends = composite::job::<Reference, Seq>(4, Hosts::Alternating, intra);
    let ends = ends.expect("the networks start");
    let text = |error: conduit_core::kernel::Error| error.to_string();
    let ran = turns::run(ends, 1, 100_000, move |end, mut meeting| {
        let engine = Engine::<_, Seq>::start(end, &mut meeting, &settings).map_err(text)?;
        let ignores: Handler<_, Seq> = Handler::new(|_| ());
        engine
            .memory()
            .attach(
                &mut meeting,
                &mut [Registration::new(HANDLER, ignores)],
                4096,
            )
            .map_err(text)?;
        let seen = || {
            let network: &Composite<Reference, Reference, Seq> = engine
                .job()
                .network()
                .inner()
                .as_type()
                .expect("what was started");
            let inter = network.inter().expect("there are two hosts");
            [network.intra().seen(), inter.seen()]
        };
        let injected = |one_way, expecting| Seen {
            injected: [one_way, expecting, 0],
        };
        for to in [2, 3, 0, 1] {
            let before = seen();
            let sent = engine
                .messages()
                .request_short(to, HANDLER, &[], Blocking::Wait);
            assert!(sent.map_err(text)?);
            let [intra, inter]: [_; 2] = std::array::from_fn(|side| {
                let (after, before) = (seen()[side], before[side]);
                let injected = |at: usize| after.injected[at] - before.injected[at];
                Seen {
                    injected: std::array::from_fn(injected),
                }
            });
            let expected = match Hosts::Alternating.of(to) == Hosts::Alternating.of(engine.rank()) {
                true => [injected(0, 1), Seen::default()],
                false => [Seen::default(), injected(1, 0)],
            };
            assert_eq!([intra, inter], expected, "rank {} to {to}", engine.rank());
        }
        while !engine.is_quiet().map_err(text)? {
            engine.poll().map_err(text)?;
        }
        let mut fault = Ok(());
        meeting.leave(|| fault = engine.poll().map_err(text));
        fault
    });
    ran.expect("the job ends");
}
