//! The user's settings for shared memory. The rest of the [configuration](super::ShmConfig) follows
//! from the engine's settings.

use settings::ValueKind;

settings::group! {
    /// The settings of shared memory. They act with every network, because segments and buffers
    /// always lie in shared memory.
    pub struct Settings, acts [all];

    "CONDUIT_HUGE_PAGES" huge_pages: bool = false, ValueKind::Bool,
        "ask for huge pages for segments and buffers";
    "CONDUIT_SHM_REPLY_SLOTS" reply_slots: bool = true, ValueKind::Bool,
        "write a short reply into the slot of its request";
    "CONDUIT_SHM_ADAPTIVE_DELAY" adaptive_delay: bool = true, ValueKind::Bool,
        "delay the first poll for such a reply until it is likely to have arrived";
    "CONDUIT_SHM_COALESCING" coalescing: u32 = 2_000, ValueKind::integer(0, 1_000_000),
        "longest pause in nanoseconds between polls of a ring during a flood, so that messages gather; 0 if CONDUIT_SPIN is set or ranks outnumber the processors of their machine";
    "CONDUIT_SHM_FLOOD_MEMORY" flood_bytes: usize = 8 << 20, ValueKind::bytes(0, 1 << 30, 1),
        "bytes up to which the rings of an event queue grow for floods; 0 also disables early wraps";
    "CONDUIT_SHM_STATISTICS" statistics: bool = false, ValueKind::Bool,
        "print the shared-memory counters when a rank leaves, and the ranks with which it has exclusive rings";
    "CONDUIT_LANE_ABOVE" lane_above: u32 = 32, ValueKind::integer(0, 1 << 20),
        "most ranks on a host for which each pair has its own ring, with memory that grows with their square; above, the sources share one ring and get lanes", is SameOnAllRanks;
    "CONDUIT_LANE_RINGS" lane_rings: u32 = 16, ValueKind::integer(0, 48),
        "with more than CONDUIT_LANE_ABOVE ranks on a host: rings that a rank lends to the sources that send the most; 0 disables lanes";
    "CONDUIT_LANE_FORCE_SWITCH" lane_force_switch: u32 = 0, ValueKind::integer(0, 1 << 30),
        "messages after which a source has to give back such a ring, or a libfabric connection, and may get it again; 0 for never", is ForTests;
}
