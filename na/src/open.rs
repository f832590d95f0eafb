//! The opening of a class over the network that an info string names.

use networks::open::{Choice, Family, FarKind, OpenError, OpenErrorKind, Settings};

use crate::class::{Class, Completion, Network};
use crate::error::{Error, Result};
use crate::options::{AddressFormat, Info, Options, Protocol};

impl Class<Network> {
    /// Opens a class over the network that an info string (`[conduit+]<protocol>[://[<host>]]`)
    /// names. Completions are passed to `sink`; see [`Class::over`].
    ///
    /// # Errors
    /// Returns an error if the network cannot be opened. The error's text names the part of the
    /// info string, the option or the setting that is invalid, and the reason.
    pub fn open(
        info: &str,
        options: &Options,
        sink: impl Fn(Completion) + Send + Sync + 'static,
    ) -> Result<Self> {
        let info: Info = info.parse()?;
        conduit_core::descriptors::occupy_standard_streams();
        let (settings, warnings) =
            Settings::from_env().map_err(|error| Error::Refused(error.to_string()))?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let (near, far) = match info.protocol {
            Protocol::Shm => (true, None),
            Protocol::Udp => (false, Some(FarKind::Udp)),
            Protocol::Ofi => (false, Some(FarKind::Ofi)),
            Protocol::Conduit => (true, Some(FarKind::Udp)),
        };
        let choice = Choice {
            near,
            far,
            host: info.host.as_deref(),
            subnet: options.ip_subnet.as_deref(),
            family: match options.address_format {
                AddressFormat::Any => Family::Any,
                AddressFormat::Ipv4 => Family::V4,
                AddressFormat::Ipv6 => Family::V6,
            },
            key: options.auth_key.as_deref(),
        };
        let network = networks::open::open(&choice, &settings).map_err(refused)?;
        let window = settings.open.window;
        Self::over(network, info.protocol, options, window, sink)
    }
}

fn refused(error: OpenError) -> Error {
    let text = error.to_string();
    match error.kind() {
        OpenErrorKind::Key => Error::Permission(text),
        OpenErrorKind::AddressInUse => Error::AddressInUse(text),
        OpenErrorKind::AddressNotAvailable => Error::AddressNotAvailable(text),
        OpenErrorKind::Exhausted => Error::Exhausted(text),
        OpenErrorKind::Other => Error::Refused(text),
    }
}
