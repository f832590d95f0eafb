//! What users may set of shared memory; the rest of its [configuration](super::ShmConfig) follows from the engine's settings.

use settings::Kind;

settings::group! {
    /// The settings of shared memory, which segments and buffers lie in whatever reaches them.
    pub struct Settings, acts "all";

    "CONDUIT_HUGE_PAGES" huge_pages: bool = false, Kind::Bool,
        "ask for huge pages for segments and buffers";
}
