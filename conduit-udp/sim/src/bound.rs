//! Bounds on the memory of an endpoint.

use crate::scenario::Scenario;

/// Bytes around everything else of an endpoint.
const BASE: usize = 32 << 10;
/// Of a link with nothing under way.
const LINK: usize = 8 << 10;
/// Of a segment that is under way.
const SEGMENT: usize = 48;
/// Of a fragment that waits, without its header.
const FRAGMENT: usize = 160;

/// Bytes besides those of idle links.
const IDLE_BASE: usize = 512;
/// Of an idle link: what is kept of it, and its table entries. The driver and the layer above take
/// up to 120 besides.
const IDLE_LINK: usize = 150;

/// Bytes more than at its start that an endpoint holds when nothing has happened for long, if links
/// are made idle.
pub(crate) fn idle_memory(scenario: &Scenario) -> i64 {
    (IDLE_BASE + (scenario.ranks as usize - 1) * IDLE_LINK) as i64
}

/// Bytes of an endpoint, whatever happens: what the settings allow, and what keeping it takes.
pub(crate) fn memory(scenario: &Scenario) -> i64 {
    let protocol = &scenario.protocol;
    let ranks = scenario.ranks as usize;
    let links = ranks - 1;
    let ring = (protocol.window as usize).next_power_of_two().max(8) * SEGMENT;
    let fragments = protocol.link_fragments.next_power_of_two().max(8) * FRAGMENT;
    let commands = protocol.link_commands.next_power_of_two();
    // Kept segments lie in a tree, whose nodes may be half empty.
    let early = protocol.early.min(protocol.link_early * links) * 2;
    (BASE + ranks * 16 + links * (LINK + 2 * ring + fragments + commands) + early) as i64
}
