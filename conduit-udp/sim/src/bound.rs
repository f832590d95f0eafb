//! Bounds on the memory of an endpoint.

use crate::scenario::Scenario;

/// The number of bytes of an endpoint that the constants below do not cover.
const BASE: usize = 32 << 10;
/// The number of bytes of a link with nothing in flight.
const LINK: usize = 8 << 10;
/// The number of bytes of a segment in flight.
const SEGMENT: usize = 48;
/// The number of bytes of a waiting fragment, without its header.
const FRAGMENT: usize = 160;

/// The number of bytes that an endpoint may hold in addition to those of its idle links.
const IDLE_BASE: usize = 512;
/// The number of bytes of an idle link: its remaining state and its table entries. The driver and
/// the layer above take up to 120 bytes more.
const IDLE_LINK: usize = 150;

/// Returns how many bytes more than at its start an endpoint may hold after a long idle time, if
/// its links have become idle.
pub(crate) fn idle_memory(scenario: &Scenario) -> i64 {
    (IDLE_BASE + (scenario.ranks as usize - 1) * IDLE_LINK) as i64
}

/// Returns the limit of an endpoint's memory in any situation, computed from the limits of the
/// settings and the overhead.
pub(crate) fn memory(scenario: &Scenario) -> i64 {
    let protocol = &scenario.protocol;
    let ranks = scenario.ranks as usize;
    let links = ranks - 1;
    let ring = (protocol.window as usize).next_power_of_two().max(8) * SEGMENT;
    let fragments = protocol.link_fragments.next_power_of_two().max(8) * FRAGMENT;
    let commands = protocol.link_commands.next_power_of_two();
    // Early segments are kept in a tree, whose nodes may be half empty.
    let early = protocol.early.min(protocol.link_early * links) * 2;
    (BASE + ranks * 16 + links * (LINK + 2 * ring + fragments + commands) + early) as i64
}
