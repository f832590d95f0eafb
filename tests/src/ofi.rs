//! The network over libfabric, as tests start it: every library that is here, every provider that
//! runs on one host.

use std::path::PathBuf;
use std::time::Duration;

use conduit_ofi::job::OfiConfig;
use conduit_ofi::library::Which;
use conduit_ofi::provider::Hints;
use conduit_ofi::wire::WireConfig;
use conduit_portals::transport::PortalsConfig;
use seal::Protection;
use xtask::Library;

/// A libfabric to test with, and its name.
#[derive(Debug, Clone)]
pub struct Fabric {
    /// The library's name.
    pub name: &'static str,
    /// The library.
    pub which: Which,
}

/// The system's libfabric and the copy that is built in, or only the one whose file is named by
/// `CONDUIT_TEST_LIBFABRIC`. What isn't there is said once.
pub fn libraries() -> Vec<Fabric> {
    if let Ok(file) = std::env::var("CONDUIT_TEST_LIBFABRIC") {
        let which = Which::File(file.clone().into());
        // Once or twice in the life of a test program.
        let name = file.leak();
        return vec![Fabric { name, which }];
    }
    libfabric_vendored::provide();
    let all = [("system", Which::System), ("vendored", Which::Vendored)];
    let all = all.map(|(name, which)| Fabric { name, which });
    all.into_iter()
        .filter(|fabric| match fabric.which.load() {
            Ok(_) => true,
            Err(reason) => {
                eprintln!("not tested with the {} libfabric: {reason}", fabric.name);
                false
            }
        })
        .collect()
}

/// The libfabric that refuses: see [`refusing_fabric`].
///
/// # Panics
/// Cargo can't build it.
pub fn refusing() -> PathBuf {
    xtask::library("refusing-fabric", Library::Shared).expect("cargo builds it")
}

/// Providers that run between ranks of one host: name, domain.
pub const PROVIDERS: [(&str, Option<&str>); 2] = [("tcp", Some("lo")), ("shm", None)];

/// One that is up to single operations, and to floods only as the launcher sets it: see
/// `PROVIDERS.md` of `libfabric-sys`.
pub const DATAGRAMS: (&str, Option<&str>) = ("udp;ofi_rxd", Some("lo"));

/// All of these.
pub const ALSO_CALM: [(&str, Option<&str>); 3] = [PROVIDERS[0], PROVIDERS[1], DATAGRAMS];

/// What can be done to frames: nothing first.
pub const PROTECTIONS: [(&str, Option<Protection>); 3] = [
    ("", None),
    ("::authenticated", Some(Protection::Authenticate)),
    ("::encrypted", Some(Protection::Encrypt)),
];

/// All of these that a provider is tested with: it has nothing to do with them, so that one is
/// enough for those of a job's secret.
pub fn protections(provider: &str) -> &'static [(&'static str, Option<Protection>)] {
    match provider == PROVIDERS[0].0 {
        true => &PROTECTIONS,
        false => &PROTECTIONS[..1],
    }
}

/// A job of this process over a provider.
pub fn config(which: &Which, provider: &str, domain: Option<&str>) -> OfiConfig {
    let hints = Hints {
        provider: Some(provider.to_owned()),
        domain: domain.map(str::to_owned),
        one_host: true,
        ..Hints::default()
    };
    OfiConfig {
        library: which.clone(),
        portals: PortalsConfig {
            region_bytes: 64 << 20,
            // All ranks are this thread's: nobody would answer one that leaves.
            linger: Duration::ZERO,
            ..PortalsConfig::default()
        },
        // Each of thousands of jobs zeroes its buffers.
        wire: WireConfig {
            small: 128,
            large: 16,
            receives: 4,
            receive_bytes: 64 << 10,
            ..WireConfig::default()
        },
        attend: None,
        ..OfiConfig::new(hints, "here".to_owned())
    }
}
