//! The effects of the engine's settings: each is set to two values, and the difference is observed
//! from outside.
//!
//! Ranks take turns on one thread and yield only when they ask to, so the effects of a single call
//! or poll can be counted. Values and ranges are tested beside the table
//! (`conduit-core/src/settings`), those of credits with the plan.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use am::handlers::{Entry, Registration};
use conduit_core::barrier::Value;
use conduit_core::engine::{Call, Engine, Handler};
use conduit_core::kernel::{Blocking, Completion};
use conduit_core::rma::Class;
use conduit_core::settings::Settings;
use conduit_core::threads::Seq;
use conduit_tests::model::turns::{InTurn, Meeting, run};
use credits::statistics::{Header, Log, RankRow};
use pmi::bootstrap::Bootstrap;
use settings::{Group as _, Groups as _};

use super::{NETWORK, start};

type Network = InTurn;
type Rank = Engine<Network, Seq>;

/// The handler that counts requests.
const SILENT: u8 = 200;
/// The handler that counts requests and replies to them.
const REPLYING: u8 = 201;
/// The handler that counts requests and replies with a medium of some size.
const REPLYING_AT_LENGTH: u8 = 202;
/// The handler of the replies.
const REPLY: u8 = 131;

const CHUNK: usize = 1024;
const SEGMENT: usize = 256 << 10;

/// Returns settings without windows or injects, and with more resources than a case needs.
fn settings() -> Settings {
    Settings {
        chunk: CHUNK,
        windows: false,
        inject: false,
        msg_limit: 0,
        sb_chunks: 256,
        rpl_chunks: 64,
        dynamic_credits: false,
        spin: Some(u32::MAX),
        ..Settings::default()
    }
}

/// Returns these settings with the network's features as in a program: mapped memory, injected
/// messages, chunks of the default size.
fn as_run(ours: Settings) -> Settings {
    let Settings {
        windows,
        inject,
        chunk,
        ..
    } = Settings::default();
    Settings {
        windows,
        inject,
        chunk,
        ..ours
    }
}

/// Returns whether `docs/settings.md` says that a setting has an effect over this network, with
/// settings as in a program.
fn acts(name: &str) -> bool {
    let row = Settings::default()
        .rows()
        .iter()
        .find(|row| row.name == name);
    let networks = row.expect("a setting").networks;
    networks.contains(&"all") || networks.contains(&NETWORK)
}

/// Returns this file's settings, changed by a setting in its environment form.
fn with(name: &str, value: &str) -> Settings {
    let parsed = Settings::from_lookup([(name.to_owned(), value.to_owned())]);
    let (given, _) = parsed.expect("a valid setting");
    let ours = settings();
    macro_rules! given {
        ($($setting:literal: $field:ident,)*) => {
            match name {
                $($setting => Settings { $field: given.$field, ..ours },)*
                other => panic!("{other}"),
            }
        };
    }
    given! {
        "GASNET_PORTAL_MSG_LIMIT": msg_limit,
        "GASNET_PORTAL_NUM_TMPMD": num_tmpmd,
        "GASNET_PORTAL_PACKED_LONG": packed_long,
        "GASNET_PORTAL_FLOW_CONTROL": flow_control,
        "GASNET_PORTAL_SB_CHUNKS": sb_chunks,
        "GASNET_PORTAL_RPL_CHUNKS": rpl_chunks,
        "GASNET_PORTAL_SAFE_LIMIT": safe_limit,
        "GASNET_PORTAL_AM_LIMIT": am_limit,
        "GASNET_PORTAL_SYS_LIMIT": sys_limit,
        "CONDUIT_SHUFFLE": shuffle,
        "CONDUIT_CREDIT_DOUBLING": credit_doubling,
        "CONDUIT_CREDIT_HOLD": credit_hold,
        "CONDUIT_CREDIT_REVOKES": credit_revokes,
    }
}

/// Runs `work` on each rank and returns the results. Afterwards no resources may be in use.
fn on_each(
    ranks: u32,
    settings: Settings,
    work: impl Fn(&Rank, &mut Meeting, &AtomicU32) -> u32 + 'static,
) -> Vec<u32> {
    let ends = start(ranks, &settings);
    let given = Rc::new(RefCell::new(vec![0; ranks as usize]));
    let results = given.clone();
    let body = move |end: Network, mut meeting: Meeting| {
        let text = |error: conduit_core::kernel::Error| error.to_string();
        let rank = Rank::start(end, &mut meeting, &settings).map_err(text)?;
        let handled = Arc::new(AtomicU32::new(0));
        let mut handlers = handlers(&handled);
        rank.memory()
            .attach(&mut meeting, &mut handlers, SEGMENT)
            .map_err(text)?;
        results.borrow_mut()[rank.rank() as usize] = work(&rank, &mut meeting, &handled);
        let mut failed = Ok(());
        rank.rma().wait_implicit(Class::all()).map_err(text)?;
        while !rank.is_quiet().map_err(text)? {
            rank.poll().map_err(text)?;
        }
        meeting.leave(|| failed = rank.poll().map_err(text));
        failed
    };
    run(ends, 1, 1_000_000, body).expect("the job ends");
    given.take()
}

fn handlers(handled: &Arc<AtomicU32>) -> Vec<Registration<Handler<Network, Seq>>> {
    let make = |id: u8, work: fn(&Call<'_, Network, Seq>)| {
        let handled = handled.clone();
        let handler: Handler<Network, Seq> = Handler::new(move |call| {
            handled.fetch_add(1, Relaxed);
            work(call);
        });
        Registration {
            id,
            entry: Entry::new(handler),
        }
    };
    vec![
        make(SILENT, |_| {}),
        make(REPLYING, |call| {
            call.reply_short(REPLY, &[]).expect("a reply")
        }),
        make(REPLYING_AT_LENGTH, |call| {
            let length = call.engine().messages().max_medium(0).min(8 << 10);
            call.reply_medium(REPLY, &[], &vec![5; length])
                .expect("a reply")
        }),
        make(REPLY, |_| {}),
    ]
}

/// Returns how often `start` succeeds before it would have to wait; it never waits.
fn until_refused(mut start: impl FnMut() -> conduit_core::kernel::Result<bool>) -> u32 {
    let mut count = 0;
    while start().expect("a valid call") {
        count += 1;
        assert!(count < 10_000, "no limit was reached");
    }
    count
}

/// Returns the number of operations that rank 0 can start towards rank 1 while that one does not
/// poll.
fn started(settings: Settings, start: fn(&Rank) -> conduit_core::kernel::Result<bool>) -> u32 {
    on_each(2, settings, move |rank, meeting, _| {
        let count = match rank.rank() {
            0 => until_refused(|| start(rank)),
            _ => 0,
        };
        // Waits without polling.
        meeting.fence().unwrap();
        count
    })[0]
}

/// Starts a put that needs only a send ticket: its source lies in the segment.
fn put_from_segment(rank: &Rank) -> conduit_core::kernel::Result<bool> {
    let (base, _) = rank.memory().segment()?;
    // SAFETY: in the segment, which is not written there.
    unsafe {
        rank.rma().put_nb_bulk(
            1,
            0,
            base.wrapping_add(SEGMENT / 2),
            64,
            Completion::Implicit,
            Blocking::Immediate,
        )
    }
    .map(|started| started.is_some())
}

#[test]
fn msg_limit_is_the_most_messages_in_flight() {
    let started = |limit| started(with("GASNET_PORTAL_MSG_LIMIT", limit), put_from_segment);
    let (few, more) = (started("20"), started("50"));
    // Some tickets may be reserved for replies.
    assert!((12..=20).contains(&few), "{few}");
    assert_eq!(more - few, 30);
}

/// A message that is copied before the call returns isn't counted as in flight by this rank.
#[test]
fn msg_limit_counts_what_is_not_copied_at_once() {
    const EACH: u32 = 5;
    let tickets = on_each(2, as_run(settings()), |rank, meeting, _| {
        let mut held = 0;
        if rank.rank() == 0 {
            let tickets = || rank.in_use().unwrap().tickets;
            let before = tickets();
            for _ in 0..EACH {
                assert!(request(rank, 1));
                let sent =
                    rank.messages()
                        .request_medium(1, SILENT, &[], &[1; 100], Blocking::Immediate);
                assert!(sent.unwrap());
            }
            assert_eq!(tickets(), before, "injected");
            for _ in 0..EACH {
                assert!(put_from_segment(rank).unwrap());
            }
            let puts = if acts("GASNET_PORTAL_MSG_LIMIT") {
                EACH
            } else {
                0
            };
            assert_eq!(tickets() - before, puts, "puts");
            for _ in 0..EACH {
                let prepared = rank
                    .messages()
                    .prepare_medium(1, 100, 100, Blocking::Immediate);
                let prepared = prepared.unwrap().expect("there are credits");
                prepared.commit(SILENT, &[], 100).unwrap();
            }
            held = tickets() - before - puts;
        }
        meeting.fence().unwrap();
        held
    })[0];
    assert_eq!(tickets, EACH, "prepared mediums");
}

#[test]
fn num_tmpmd_is_the_most_transfers_from_memory_elsewhere() {
    static ELSEWHERE: [u8; 64 << 10] = [7; 64 << 10];
    // Further puts wait, so the other rank has to poll, which it does at its end.
    let most = |limit: u32, ways: fn(Settings) -> Settings| {
        let settings = with("GASNET_PORTAL_NUM_TMPMD", &limit.to_string());
        on_each(2, ways(settings), |rank, _, _| {
            let puts = if rank.rank() == 0 { 20 } else { 0 };
            let in_use = (0..puts).map(|_| {
                let (base, len) = (ELSEWHERE.as_ptr(), ELSEWHERE.len());
                // SAFETY: never written.
                let started = unsafe {
                    rank.rma()
                        .put_nb_bulk(1, 0, base, len, Completion::Implicit, Blocking::Wait)
                };
                assert!(started.unwrap().is_some());
                rank.in_use().unwrap().descriptors
            });
            in_use.max().unwrap_or(0)
        })[0]
    };
    let most_of = |ways| (most(1, ways), most(7, ways), most(1024, ways));
    assert_eq!(most_of(|ours| ours), (1, 7, 20));
    let expected = match acts("GASNET_PORTAL_NUM_TMPMD") {
        true => (1, 7, 20),
        false => (0, 0, 0),
    };
    assert_eq!(most_of(as_run), expected);
}

#[test]
fn sb_chunks_are_held_by_requests_until_their_replies() {
    let request = |rank: &Rank| {
        rank.messages()
            .request_short(1, SILENT, &[], Blocking::Immediate)
    };
    for chunks in [1, 20] {
        let settings = with("GASNET_PORTAL_SB_CHUNKS", &chunks.to_string());
        assert_eq!(started(settings.clone(), request), chunks);
        assert_eq!(started(as_run(settings), request), chunks);
    }
}

#[test]
fn flow_control_lets_requests_cost_credits() {
    let request = |rank: &Rank| {
        rank.messages()
            .request_short(1, SILENT, &[], Blocking::Immediate)
    };
    for ways in [|ours| ours, as_run] {
        let few = |settings| Settings {
            cred_per_node: Some(20),
            banked_credits: Some(0),
            dynamic_credits: true,
            ..settings
        };
        assert_eq!(
            started(ways(few(with("GASNET_PORTAL_FLOW_CONTROL", "1"))), request),
            20
        );
        assert_eq!(
            started(ways(few(with("GASNET_PORTAL_FLOW_CONTROL", "0"))), request),
            256
        );
    }
}

#[test]
fn a_packed_long_is_one_message() {
    static PAYLOAD: [u8; 100] = [3; 100];
    let tickets = |value, ways: fn(Settings) -> Settings| {
        let settings = with("GASNET_PORTAL_PACKED_LONG", value);
        on_each(2, ways(settings), |rank, meeting, _| {
            let mut tickets = 0;
            if rank.rank() == 0 {
                let before = rank.in_use().unwrap().tickets;
                let source = (PAYLOAD.as_ptr(), PAYLOAD.len());
                // SAFETY: never written.
                let sent = unsafe {
                    rank.messages().request_long_async(
                        1,
                        SILENT,
                        &[],
                        source,
                        0,
                        Blocking::Immediate,
                    )
                };
                assert!(sent.unwrap());
                tickets = rank.in_use().unwrap().tickets - before;
            }
            meeting.fence().unwrap();
            tickets
        })[0]
    };
    assert_eq!(
        (tickets("1", |ours| ours), tickets("0", |ours| ours)),
        (1, 2)
    );
    // The header is injected, and with it a packed long.
    let data = u32::from(acts("GASNET_PORTAL_PACKED_LONG"));
    assert_eq!((tickets("1", as_run), tickets("0", as_run)), (0, data));
}

/// Returns the number of requests whose handlers one poll of rank 1 runs while more are waiting.
fn served(settings: Settings, handler: u8) -> u32 {
    on_each(2, settings, move |rank, meeting, handled| {
        if rank.rank() == 0 {
            for _ in 0..30 {
                let sent = rank
                    .messages()
                    .request_short(1, handler, &[], Blocking::Immediate);
                assert!(sent.unwrap());
            }
        }
        // Waits without polling.
        meeting.fence().unwrap();
        if rank.rank() == 0 {
            return 0;
        }
        rank.poll().unwrap();
        handled.load(Relaxed)
    })[1]
}

#[test]
fn am_limit_is_the_most_requests_of_a_poll() {
    for limit in [1, 3, 20] {
        let settings = with("GASNET_PORTAL_AM_LIMIT", &limit.to_string());
        assert_eq!(served(settings.clone(), SILENT), limit);
        assert_eq!(served(as_run(settings), SILENT), limit);
    }
}

/// Returns the order in which rank 1 handles requests that have all arrived, as one number, and
/// whether it is the order of sending.
fn order(settings: Settings) -> (u32, bool) {
    const ORDERED: u8 = 203;
    let handled = on_each(2, settings, |rank, meeting, _| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let list: Handler<Network, Seq> = Handler::new({
            let order = order.clone();
            move |call| order.lock().unwrap().push(call.args()[0])
        });
        let mut ordered = [Registration::new(ORDERED, list)];
        rank.register(&mut ordered).unwrap();
        meeting.fence().unwrap();
        if rank.rank() == 0 {
            for number in 0..30 {
                let sent =
                    rank.messages()
                        .request_short(1, ORDERED, &[number], Blocking::Immediate);
                assert!(sent.unwrap());
            }
        }
        // Waits without polling.
        meeting.fence().unwrap();
        if rank.rank() == 0 {
            return 0;
        }
        rank.wait_until(|| order.lock().unwrap().len() == 30)
            .unwrap();
        let order = order.lock().unwrap();
        let digest = |digest: u32, &number: &u32| digest.wrapping_mul(31).wrapping_add(number);
        order.iter().fold(0, digest) << 1 | u32::from(order.is_sorted())
    })[1];
    (handled / 2, handled % 2 == 1)
}

#[test]
fn shuffle_is_the_seed_of_the_order_of_requests() {
    for as_it_is in [|ours| ours, as_run] {
        let seeded = |seed| order(as_it_is(with("CONDUIT_SHUFFLE", seed)));
        assert!(order(as_it_is(settings())).1);
        let [one, again, two] = ["1", "1", "2"].map(seeded);
        assert!(!one.1 && !two.1);
        assert_eq!(one, again);
        assert_ne!(one, two);
    }
}

#[test]
fn rpl_chunks_are_the_most_replies_under_way() {
    for chunks in [1, 3] {
        let settings = with("GASNET_PORTAL_RPL_CHUNKS", &chunks.to_string());
        assert_eq!(served(settings.clone(), REPLYING), chunks);
        // Shorts are injected over all networks.
        let limit = Settings::default().am_limit;
        assert_eq!(served(as_run(settings.clone()), REPLYING), limit);
        let expected = match acts("GASNET_PORTAL_RPL_CHUNKS") {
            true => chunks,
            false => limit,
        };
        assert_eq!(served(as_run(settings), REPLYING_AT_LENGTH), expected);
    }
}

#[test]
fn safe_limit_is_the_most_completions_of_a_poll() {
    const PUTS: u32 = 30;
    let completed = |limit: u32| {
        let settings = with("GASNET_PORTAL_SAFE_LIMIT", &limit.to_string());
        on_each(2, settings, |rank, meeting, _| {
            if rank.rank() == 0 {
                for _ in 0..PUTS {
                    assert!(put_from_segment(rank).unwrap());
                }
            }
            meeting.fence().unwrap();
            if rank.rank() == 1 {
                for _ in 0..10 * PUTS {
                    rank.poll().unwrap();
                }
            }
            meeting.fence().unwrap();
            if rank.rank() == 1 {
                return 0;
            }
            let before = rank.in_use().unwrap().tickets;
            // Over some networks one poll receives them and the next one handles them.
            (0..3)
                .map(|_| {
                    rank.poll().unwrap();
                    before - rank.in_use().unwrap().tickets
                })
                .find(|&completed| completed > 0)
                .unwrap_or(0)
        })[0]
    };
    assert_eq!(
        (completed(1), completed(5), completed(1 << 20)),
        (1, 5, PUTS)
    );
}

#[test]
fn sys_limit_is_the_most_system_messages_of_a_poll() {
    // Without windows a barrier's cells are system messages: here four for each rank, all in one
    // round.
    let polls = |limit: &str| {
        let least = Rc::new(Cell::new(u32::MAX));
        on_each(
            5,
            with("GASNET_PORTAL_SYS_LIMIT", limit),
            move |rank, meeting, _| {
                rank.barriers().barrier_notify(Value::Anonymous).unwrap();
                meeting.fence().unwrap();
                let mut polls = 1;
                while rank
                    .barriers()
                    .barrier_try(Value::Anonymous)
                    .unwrap()
                    .is_none()
                {
                    polls += 1;
                }
                least.set(least.get().min(polls));
                least.get()
            },
        )
    };
    let least = |limit| polls(limit).into_iter().min().unwrap();
    let all = least("0");
    assert!(all <= 2, "one poll receives them, and one handles them");
    assert_eq!((least("1") - all, least("2") - all), (3, 1));
}

/// Returns settings with dynamic credits, `credits` for each peer. Buffers with 7 usable chunks
/// hold 28 of these, so the bank is empty if the credits of all peers are a multiple of 28.
fn moving(settings: Settings, credits: u32) -> Settings {
    Settings {
        dynamic_credits: true,
        cred_per_node: Some(credits),
        banked_credits: Some(0),
        chunk: CHUNK,
        request_buffer: 8 * CHUNK,
        ..settings
    }
}

fn request(rank: &Rank, to: u32) -> bool {
    rank.messages()
        .request_short(to, SILENT, &[], Blocking::Immediate)
        .expect("a valid request")
}

/// Credits are the same over all networks. The bank also has the credits of the room that the
/// division leaves.
#[test]
fn credits_are_what_the_settings_say_at_the_start() {
    for ways in [|ours| ours, as_run] {
        let banked = |banked| {
            let settings = Settings {
                cred_per_node: Some(33),
                banked_credits: Some(banked),
                dynamic_credits: true,
                ..ways(settings())
            };
            on_each(2, settings, |rank, _, _| {
                for peer in 0..2 {
                    assert_eq!(rank.messages().credits(peer).unwrap().lent, 33);
                    assert_eq!(rank.messages().credits(peer).unwrap().send, 33);
                }
                rank.messages().banked_credits()
            })[0]
        };
        let (few, more) = (banked(0), banked(100_000));
        assert!(few < 10_000 && more >= 100_000, "{few} {more}");
    }
}

/// Polls until all requests have been answered.
fn settle(rank: &Rank) {
    while !rank.is_quiet().unwrap() {
        rank.poll().unwrap();
    }
}

/// Messages about credits are system messages even if a barrier needs none.
#[test]
fn sys_limit_is_the_most_returns_of_a_poll() {
    let returns = |limit: &str| {
        let settings = Settings {
            credit_revokes: 0,
            ..moving(as_run(with("GASNET_PORTAL_SYS_LIMIT", limit)), 7)
        };
        on_each(8, settings, |rank, meeting, handled| {
            let me = rank.rank();
            if me == 1 {
                assert_eq!(until_refused(|| Ok(request(rank, 0))), 7);
                settle(rank);
                assert!(request(rank, 0));
            }
            while me == 0 && handled.load(Relaxed) < 8 {
                rank.poll().unwrap();
            }
            meeting.fence().unwrap();
            while me > 1 && rank.messages().credits(0).unwrap().revoked == 0 {
                rank.poll().unwrap();
            }
            // The returns are on their way, all of them before the poll begins.
            for _ in 0..if me > 1 { 20 } else { 0 } {
                rank.poll().unwrap();
            }
            meeting.fence().unwrap();
            if me > 0 {
                return 0;
            }
            // Over some networks one poll receives them and the next one handles them.
            let mut returned = (0..20).map(|_| {
                rank.poll().unwrap();
                let lent = (2..8).map(|peer| rank.messages().credits(peer).unwrap().lent);
                lent.filter(|&lent| lent < 7).count() as u32
            });
            returned.find(|&peers| peers > 0).unwrap_or(0)
        })[0]
    };
    assert_eq!((returns("1"), returns("2"), returns("0")), (1, 2, 6));
}

#[test]
fn credit_doubling_is_how_much_a_stalled_request_brings() {
    let after_a_stall = |value| {
        let settings = Settings {
            banked_credits: Some(100),
            ..moving(with("CONDUIT_CREDIT_DOUBLING", value), 4)
        };
        on_each(2, settings, |rank, _, _| {
            if rank.rank() == 1 {
                return 0;
            }
            assert_eq!(until_refused(|| Ok(request(rank, 1))), 4);
            settle(rank);
            assert!(request(rank, 1));
            settle(rank);
            rank.messages().credits(1).unwrap().send
        })[0]
    };
    assert_eq!((after_a_stall("0"), after_a_stall("1")), (5, 8));
}

#[test]
fn credit_hold_keeps_what_was_used_in_the_epoch_before() {
    const EPOCH: u32 = 40;
    // Rank 0 has used 24 of 28 credits at once in the epoch before the one in which rank 2 needs
    // more than it has.
    let returned = |value| {
        let settings = Settings {
            epoch_duration: EPOCH,
            ..moving(with("CONDUIT_CREDIT_HOLD", value), 28)
        };
        on_each(3, settings, |rank, meeting, handled| {
            match rank.rank() {
                0 => {
                    for _ in 0..24 {
                        assert!(request(rank, 1));
                    }
                    settle(rank);
                    for _ in 24..EPOCH {
                        assert!(request(rank, 1));
                        settle(rank);
                    }
                }
                1 => {
                    while handled.load(Relaxed) < EPOCH {
                        rank.poll().unwrap();
                    }
                }
                _ => {}
            }
            meeting.fence().unwrap();
            match rank.rank() {
                0 => {
                    while rank.messages().credits(1).unwrap().revoked == 0 {
                        rank.poll().unwrap();
                    }
                    rank.messages().credits(1).unwrap().revoked as u32
                }
                2 => {
                    assert_eq!(until_refused(|| Ok(request(rank, 1))), 28);
                    settle(rank);
                    assert!(request(rank, 1));
                    0
                }
                _ => 0,
            }
        })[0]
    };
    assert_eq!(returned("1"), 28 - 24);
    assert_eq!(returned("0"), 28 - 24 / 4);
}

/// The end of an epoch, carried by a message that is cancelled, is carried by the next message
/// instead: here the one that asks for credits.
#[test]
fn epoch_duration_ends_an_epoch_for_all_also_where_a_message_is_given_up() {
    const EPOCH: u32 = 40;
    let settings = Settings {
        epoch_duration: EPOCH,
        ..moving(settings(), 28)
    };
    let returned = on_each(3, settings, |rank, meeting, handled| {
        let me = rank.rank();
        if me == 0 {
            for _ in 0..24 {
                assert!(request(rank, 1));
            }
            settle(rank);
            for _ in 25..EPOCH {
                assert!(request(rank, 1));
                settle(rank);
            }
        }
        while me == 1 && handled.load(Relaxed) < EPOCH - 1 {
            rank.poll().unwrap();
        }
        meeting.fence().unwrap();
        if me == 2 {
            assert!(request(rank, 1));
            settle(rank);
        }
        while me == 1 && handled.load(Relaxed) < EPOCH {
            rank.poll().unwrap();
        }
        meeting.fence().unwrap();
        if me == 1 {
            let prepared = rank
                .messages()
                .prepare_medium(0, 0, 16, Blocking::Immediate);
            prepared.unwrap().expect("there are credits").cancel();
        }
        meeting.fence().unwrap();
        if me == 2 {
            assert_eq!(until_refused(|| Ok(request(rank, 1))), 28);
            settle(rank);
            assert!(request(rank, 1));
        }
        while me == 0 && rank.messages().credits(1).unwrap().revoked == 0 {
            rank.poll().unwrap();
        }
        rank.messages().credits(1).unwrap().revoked as u32
    })[0];
    // A quarter of the credits used at once in the epoch before counts.
    assert_eq!(returned, 28 - 24 / 4);
}

/// A rank reads the counter of coalesced returns before it answers a revoke.
#[test]
fn what_has_come_back_can_be_given_back() {
    const EPOCH: u32 = 40;
    let settings = Settings {
        epoch_duration: EPOCH,
        ..moving(as_run(with("CONDUIT_CREDIT_HOLD", "0")), 28)
    };
    let kept = on_each(3, settings, |rank, meeting, handled| {
        let me = rank.rank();
        // Rank 0 sends the last request of the epoch and doesn't read the counter afterwards.
        for (from, requests, all) in [(2, 15, 15), (0, 24, 39), (0, 1, EPOCH)] {
            if me == from {
                settle(rank);
                assert!((0..requests).all(|_| request(rank, 1)));
            }
            meeting.fence().unwrap();
            while me == 1 && handled.load(Relaxed) < all {
                rank.poll().unwrap();
            }
            meeting.fence().unwrap();
        }
        if me == 2 {
            settle(rank);
            assert_eq!(until_refused(|| Ok(request(rank, 1))), 28);
            settle(rank);
            assert!(request(rank, 1));
        }
        // The revoke arrives during these polls.
        for _ in 0..if me == 0 { 1000 } else { 0 } {
            rank.poll().unwrap();
        }
        while me == 1 && rank.messages().credits(0).unwrap().lent == 28 {
            rank.poll().unwrap();
        }
        rank.messages().credits(0).unwrap().lent
    })[1];
    // A quarter of the requests in flight at once in the last epoch counts as used.
    assert_eq!(kept, 24 / 4);
}

#[test]
fn credit_revokes_are_how_many_peers_are_asked() {
    const REQUESTS: u32 = 200;
    // Rank 1 needs more than all others could spare, within one epoch.
    let asked = |value| {
        let settings = moving(with("CONDUIT_CREDIT_REVOKES", value), 7);
        on_each(8, settings, |rank, _, handled| match rank.rank() {
            0 => {
                while handled.load(Relaxed) < REQUESTS {
                    rank.poll().unwrap();
                }
                // The returns are on their way.
                for _ in 0..100 {
                    rank.poll().unwrap();
                }
                let lent = (2..8).map(|peer| rank.messages().credits(peer).unwrap().lent);
                lent.filter(|&lent| lent < 7).count() as u32
            }
            1 => {
                for _ in 0..REQUESTS {
                    while !request(rank, 0) {
                        rank.poll().unwrap();
                    }
                }
                0
            }
            _ => 0,
        })[0]
    };
    assert_eq!((asked("1"), asked("0")), (1, 6));
}

#[test]
fn credit_stats_writes_where_the_credits_are() {
    const EPOCH: u32 = 10;
    const EPOCHS: u32 = 3;
    for ways in [|ours| ours, as_run] {
        let folder = tempfile::tempdir().expect("a folder");
        let (given, _) = Settings::from_lookup([
            ("GASNET_PORTAL_CREDIT_STATS".to_owned(), "1".to_owned()),
            (
                "CONDUIT_CREDIT_STATS_DIR".to_owned(),
                folder.path().to_str().expect("UTF-8").to_owned(),
            ),
        ])
        .expect("valid settings");
        let settings = Settings {
            credit_stats: given.credit_stats,
            credit_stats_dir: given.credit_stats_dir,
            epoch_duration: EPOCH,
            banked_credits: Some(100),
            ..moving(ways(settings()), 4)
        };
        on_each(2, settings, |rank, _, handled| {
            let count = if rank.rank() == 0 { EPOCH * EPOCHS } else { 0 };
            for _ in 0..count {
                while !request(rank, 1) {
                    rank.poll().unwrap();
                }
            }
            while rank.rank() == 1 && handled.load(Relaxed) < EPOCH * EPOCHS {
                rank.poll().unwrap();
            }
            0
        });
        let mut logs: Vec<Log> = std::fs::read_dir(folder.path())
            .expect("the folder")
            .map(|entry| {
                let path = entry.expect("an entry").path();
                let text = std::fs::read_to_string(&path).expect("a file");
                Log::parse(&path.to_string_lossy(), &text).expect("credit statistics")
            })
            .collect();
        logs.sort_by_key(|log| log.header.rank);
        let [sender, receiver] = &logs[..] else {
            panic!("{} files of two ranks", logs.len());
        };
        assert_eq!(sender.header.job, receiver.header.job);
        let Header { loan, banked, .. } = receiver.header;
        assert!(loan == 4 && banked >= 100, "{:?}", receiver.header);
        // After the epochs that have ended comes the one in which the job ends.
        let mut epochs = receiver.epochs.iter().map(|epoch| epoch.rank.epoch);
        assert!(epochs.any(|epoch| epoch == EPOCHS), "{receiver:?}");
        let last = &receiver.epochs.last().expect("the end").rank;
        assert_eq!(last.received, u64::from(EPOCH * EPOCHS));
        let sent = &sender.epochs.last().expect("the end").rank;
        assert!(sent.stalls > 0, "{sent:?}");
        let lent = |rank: &RankRow| u64::from(rank.banked) + rank.lent;
        assert_eq!(lent(last), lent(&receiver.epochs[0].rank));
        assert!(
            last.banked < 100,
            "the stalled request got more credits: {last:?}"
        );
    }
}
