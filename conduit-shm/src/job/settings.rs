//! What users may set of shared memory; the rest of its [configuration](super::ShmConfig) follows from the engine's settings.

use settings::ValueKind;

settings::group! {
    /// The settings of shared memory, which segments and buffers lie in whatever reaches them.
    pub struct Settings, acts [all];

    "CONDUIT_HUGE_PAGES" huge_pages: bool = false, ValueKind::Bool,
        "ask for huge pages for segments and buffers";
    "CONDUIT_SHM_REPLY_SLOTS" reply_slots: bool = true, ValueKind::Bool,
        "let a short reply come back in the slot of its request";
    "CONDUIT_SHM_ADAPTIVE_DELAY" adaptive_delay: bool = true, ValueKind::Bool,
        "look for such a reply only when it is likely to be there";
    "CONDUIT_SHM_COALESCING" coalescing: u32 = 2_000, ValueKind::integer(0, 1_000_000),
        "most nanoseconds for which a rank leaves a flood alone, so that more of it comes together; 0 where CONDUIT_SPIN is set or ranks outnumber the processors of their machine";
    "CONDUIT_SHM_FLOOD_MEMORY" flood_bytes: usize = 8 << 20, ValueKind::bytes(0, 1 << 30, 1),
        "bytes up to which the rings of an event queue grow for floods; 0 also turns early wraps off";
    "CONDUIT_SHM_STATISTICS" statistics: bool = false, ValueKind::Bool,
        "print what shared memory has counted when a rank leaves, and which ranks have rings that it lends";
    "CONDUIT_LANE_ABOVE" lane_above: u32 = 32, ValueKind::integer(0, 1 << 20),
        "ranks on a host up to which each has a ring of its own at each other one, whose memory grows with their square; with more they share one, and have lanes", is SameOnAllRanks;
    "CONDUIT_LANE_RINGS" lane_rings: u32 = 16, ValueKind::integer(0, 48),
        "with more than CONDUIT_LANE_ABOVE ranks on a host: rings that a rank lends to the sources that it hears from most; 0 turns that off";
    "CONDUIT_LANE_FORCE_SWITCH" lane_force_switch: u32 = 0, ValueKind::integer(0, 1 << 30),
        "messages after which a source has to give such a ring, or a connection by libfabric, back, and may get it again; 0 for never", is ForTests;
}
