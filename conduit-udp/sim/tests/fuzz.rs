//! Endpoints that receive malformed packets.

use conduit_udp_sim::fuzz;

#[test]
fn protocol_errors_break_links_at_worst() {
    let outcome = fuzz::run(300_000, 1, &sim::Progress::hidden());
    assert!(outcome.failing.is_empty(), "{:#?}", outcome.failing);
    assert!(outcome.inputs >= 300_000);
    assert!(
        outcome.broken > 1000 && outcome.valid > 50_000,
        "{outcome:?}"
    );
}
