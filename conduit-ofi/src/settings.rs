//! The settings of the network over libfabric.

use settings::{MOST_TIME, ValueKind};

use crate::library::Which;

settings::group! {
    /// The settings of the network over libfabric.
    pub struct Settings, acts [ofi];

    "CONDUIT_OFI_LIBRARY" library: Option<String> = None,
        ValueKind::Text("the file of a libfabric, or system, or vendored"),
        unset "the system's libfabric.so.1, else the copy that is built in if there is one",
        "libfabric that is used for the network ofi";
    "CONDUIT_OFI_PROVIDER" provider: Option<String> = None,
        ValueKind::Text("the name of a provider of libfabric"),
        unset "the best one available",
        "provider that is used for the network ofi";
    "CONDUIT_OFI_DOMAIN" domain: Option<String> = None,
        ValueKind::Text("the name of a domain of the provider; that of tcp is an interface"),
        unset "the provider's first, one of the loopback only if all ranks are on one host",
        "device that is used for the network ofi";
    "CONDUIT_OFI_AUTHENTICATE" authenticate: bool = false, ValueKind::Bool,
        "accept from libfabric only frames with a valid tag of a rank of this job, for networks that others use as well and a fabric does not keep apart; puts, gets and atomics then go by message; without it everybody is trusted who can reach a rank's endpoint and read what it sends", is SameOnAllRanks;
    "CONDUIT_OFI_ENCRYPT" encrypt: bool = false, ValueKind::Bool,
        "encrypt what is sent by libfabric, and authenticate it", is SameOnAllRanks;
    "CONDUIT_OFI_DEAD_TIME" dead_time: u32 = 10_000, ValueKind::integer(100, MOST_TIME),
        "milliseconds after which a rank that is reached by libfabric and answers nothing has failed";
    "CONDUIT_OFI_ATTEND" attend: u32 = 20, ValueKind::integer(1, 60_000),
        "milliseconds without a poll after which the progress thread makes libfabric's progress for its rank; at most a quarter of the dead time";
    "CONDUIT_OFI_RECEIVE_BUFFERS" receives: u32 = 8, ValueKind::integer(2, 4096),
        "buffers that libfabric receives messages into";
    "CONDUIT_OFI_RECEIVE_BUFFER_SIZE" receive_bytes: usize = 256 << 10, ValueKind::bytes(64 << 10, 1 << 30, 1),
        "bytes of each of these buffers";
    "CONDUIT_OFI_ARRIVALS" arrivals: usize = 64 << 20, ValueKind::bytes(1 << 20, 1 << 40, 1),
        "bytes of messages that have arrived by libfabric and are not handled yet", is SameOnAllRanks;
    "CONDUIT_OFI_ATOMICS" atomics: bool = false, ValueKind::Bool,
        "let the provider do atomics, if it can, in a job that uses no other network (CONDUIT_NETWORK=ofi); handlers can then do none on their rank's segment", is SameOnAllRanks;
    "CONDUIT_OFI_CONNECTIONS" connections: u32 = 0, ValueKind::integer(0, 48),
        "connections (endpoints of the kind FI_EP_MSG) that a rank has at a time to the ranks that it has most traffic with, about 1 MiB of memory each, for providers whose datagram endpoints are slower; 0: none", is SameOnAllRanks;
    "CONDUIT_OFI_STATISTICS" statistics: bool = false, ValueKind::Bool,
        "print the counters of the network over libfabric when a rank leaves";
}

impl Settings {
    /// Which libfabric to load.
    #[must_use]
    pub fn which(&self) -> Which {
        Which::named(self.library.as_deref().unwrap_or_default())
    }
}
