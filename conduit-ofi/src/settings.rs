//! The settings of the network over libfabric.

use settings::{MOST_TIME, ValueKind};

use crate::library::Which;

settings::group! {
    /// The settings of the network over libfabric.
    pub struct Settings, acts [ofi];

    "CONDUIT_OFI_LIBRARY" library: Option<String> = None,
        ValueKind::Text("the path of a libfabric, or system, or vendored"),
        unset "the system's libfabric.so.1, otherwise the vendored copy if the program contains one",
        "libfabric to use for the network ofi";
    "CONDUIT_OFI_PROVIDER" provider: Option<String> = None,
        ValueKind::Text("the name of a provider of libfabric"),
        unset "the best available one",
        "provider to use for the network ofi";
    "CONDUIT_OFI_DOMAIN" domain: Option<String> = None,
        ValueKind::Text("the name of a domain of the provider; that of tcp is an interface"),
        unset "the provider's first; a loopback domain only if all ranks are on one host",
        "device to use for the network ofi";
    "CONDUIT_OFI_AUTHENTICATE" authenticate: bool = false, ValueKind::Bool,
        "accept only frames with a valid tag of a rank of this job, for shared networks without isolation by the fabric; puts, gets and atomics then travel as messages; 0 trusts every process that can reach a rank's endpoint and read its traffic", is SameOnAllRanks;
    "CONDUIT_OFI_ENCRYPT" encrypt: bool = false, ValueKind::Bool,
        "encrypt and authenticate all frames sent over libfabric", is SameOnAllRanks;
    "CONDUIT_OFI_DEAD_TIME" dead_time: u32 = 10_000, ValueKind::integer(100, MOST_TIME),
        "milliseconds of silence after which a rank reached over libfabric is reported as failed";
    "CONDUIT_OFI_ATTEND" attend: u32 = 20, ValueKind::integer(1, 60_000),
        "milliseconds without a poll after which the progress thread makes libfabric's progress for its rank; at most a quarter of the dead time";
    "CONDUIT_OFI_RECEIVE_BUFFERS" receives: u32 = 8, ValueKind::integer(2, 4096),
        "number of buffers into which libfabric receives messages";
    "CONDUIT_OFI_RECEIVE_BUFFER_SIZE" receive_bytes: usize = 256 << 10, ValueKind::bytes(64 << 10, 1 << 30, 1),
        "bytes of each of these buffers";
    "CONDUIT_OFI_ARRIVALS" arrivals: usize = 64 << 20, ValueKind::bytes(1 << 20, 1 << 40, 1),
        "most bytes of messages that have arrived over libfabric but are not handled yet", is SameOnAllRanks;
    "CONDUIT_OFI_ATOMICS" atomics: bool = false, ValueKind::Bool,
        "let the provider perform atomics, if it supports them, in a job without other networks (CONDUIT_NETWORK=ofi); handlers must then not perform atomics on their rank's segment", is SameOnAllRanks;
    "CONDUIT_OFI_CONNECTIONS" connections: u32 = 0, ValueKind::integer(0, 48),
        "most connections (endpoints of type FI_EP_MSG) of a rank at a time, which go to the ranks with the most traffic, about 1 MiB of memory each, for providers whose datagram endpoints are slower; 0 disables connections", is SameOnAllRanks;
    "CONDUIT_OFI_STATISTICS" statistics: bool = false, ValueKind::Bool,
        "print the counters of the network over libfabric when a rank exits";
}

impl Settings {
    /// Returns the libfabric to load.
    #[must_use]
    pub fn which(&self) -> Which {
        Which::named(self.library.as_deref().unwrap_or_default())
    }
}
