//! The libfabric network as tests start it: over every library that is available and every provider
//! that runs on one host.

use std::path::PathBuf;
use std::time::Duration;

use conduit_ofi::job::OfiConfig;
use conduit_ofi::library::Which;
use conduit_ofi::provider::Hints;
use conduit_ofi::wire::WireConfig;
use conduit_portals::transport::PortalsConfig;
use seal::Protection;
use xtask::Library;

/// A libfabric library to test with.
#[derive(Debug, Clone)]
pub struct Fabric {
    /// The library's name in the names of tests.
    pub name: &'static str,
    /// The kind of library, from which it is loaded.
    pub which: Which,
}

/// Returns the system's libfabric and the built-in copy, or only the file that
/// `CONDUIT_TEST_LIBFABRIC` names. Prints once which of the two are missing.
pub fn libraries() -> Vec<Fabric> {
    if let Ok(file) = std::env::var("CONDUIT_TEST_LIBFABRIC") {
        let which = Which::File(file.clone().into());
        // The name is leaked at most twice per test program.
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

/// Builds the libfabric double that refuses calls, which [`refusing_fabric`] describes.
///
/// # Panics
/// If Cargo can't build the library.
pub fn refusing() -> PathBuf {
    xtask::library("refusing-fabric", Library::Shared).expect("cargo builds it")
}

/// The name and the domain of each provider that runs between ranks of one host.
pub const PROVIDERS: [(&str, Option<&str>); 2] = [("tcp", Some("lo")), ("shm", None)];

/// A provider that handles single operations. It handles floods only with the launcher's settings,
/// as `PROVIDERS.md` in `libfabric-sys` explains.
pub const DATAGRAMS: (&str, Option<&str>) = ("udp;ofi_rxd", Some("lo"));

/// All providers. Only tests without floods may use them.
pub const ALSO_CALM: [(&str, Option<&str>); 3] = [PROVIDERS[0], PROVIDERS[1], DATAGRAMS];

/// The protections of frames, beginning with none.
pub const PROTECTIONS: [(&str, Option<Protection>); 3] = [
    ("", None),
    ("::authenticated", Some(Protection::Authenticate)),
    ("::encrypted", Some(Protection::Encrypt)),
];

/// Returns the protections that a provider is tested with. Providers don't take part in protection,
/// so only one provider is tested with the protections that use a job's secret.
pub fn protections(provider: &str) -> &'static [(&'static str, Option<Protection>)] {
    match provider == PROVIDERS[0].0 {
        true => &PROTECTIONS,
        false => &PROTECTIONS[..1],
    }
}

/// Returns the settings for a job over a provider whose ranks are all in this process.
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
            // All ranks run on this thread, so a rank that lingers on leaving would wait in vain
            // for answers.
            linger: Duration::ZERO,
            ..PortalsConfig::default()
        },
        // The buffers are small, because thousands of jobs zero them.
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
