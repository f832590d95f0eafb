//! The settings of the network over Portals 4.

use settings::ValueKind;

settings::group! {
    /// The settings of the network over Portals 4.
    pub struct Settings, acts [portals4];

    "CONDUIT_PORTALS4_LIBRARY" library: Option<std::path::PathBuf> = None, ValueKind::Path,
        unset "the system's libportals.so.4",
        "libportals to use for the network portals4";
    "CONDUIT_PORTALS4_OPERATIONS" operations: u32 = 240, ValueKind::integer(60, 60_000),
        "limit on a rank's operations in flight in the network portals4; each index gets a sixth; the reference library has 500 buffers for these and for answers to peers";
    "CONDUIT_PORTALS4_ATOMICS" atomics: bool = false, ValueKind::Bool,
        "let libportals perform atomics, if it can, in a job that uses no other network (CONDUIT_NETWORK=portals4); handlers then cannot use atomics on their rank's segment", is SameOnAllRanks;
}
