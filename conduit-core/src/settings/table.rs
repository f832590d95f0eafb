//! The table of all settings. A new setting is one entry here and nothing else.

use std::path::PathBuf;

use super::Percent;
use super::kind::{Field, Kind, Value};

/// One setting, with everything that reading, checking and printing it needs.
pub(super) struct Row {
    /// The environment variable.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// What happens while it has no value; empty where the default is a value.
    pub(super) unset: &'static str,
    /// Said to the user who sets it; empty for none.
    pub(super) warning: &'static str,
    pub(super) meaning: &'static str,
    /// The networks to whose peers it makes a difference, and where else; empty for all.
    pub(super) acts: &'static str,
    /// False when the value does not fit the field.
    pub(super) put: fn(&mut Settings, Value) -> bool,
    pub(super) get: fn(&Settings) -> Option<Value>,
}

/// From the entries: the struct with its documentation, its defaults, and the rows.
macro_rules! settings {
    ($(
        $name:literal $field:ident: $type:ty = $default:expr, $kind:expr,
        $(unset $unset:literal,)? $(warning $warning:literal,)?
        $meaning:literal $(, acts $acts:literal)?;
    )*) => {
        /// The values of all settings of a rank. The variable that sets a field is named in its documentation.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(clippy::struct_excessive_bools)]
        pub struct Settings {
            $(
                #[doc = concat!("`", $name, "`: ", $meaning, ".")]
                $(#[doc = concat!("\n\nUnset: ", $unset, ".")])?
                pub $field: $type,
            )*
            /// Which of the fields the environment has set.
            pub origins: super::Origins,
        }

        impl Default for Settings {
            fn default() -> Self {
                Self {
                    $($field: $default,)*
                    origins: super::Origins::default(),
                }
            }
        }

        /// All settings, in the order in which they are printed.
        pub(super) static ROWS: &[Row] = &[$(
            Row {
                name: $name,
                kind: $kind,
                unset: concat!($($unset)?),
                warning: concat!($($warning)?),
                meaning: $meaning,
                acts: concat!($($acts)?),
                put: |settings, value| {
                    Field::from_value(value).map(|value| settings.$field = value).is_some()
                },
                get: |settings| settings.$field.to_value(),
            },
        )*];
    };
}

/// Address space of a process on the machines supported; a bound for byte counts, far above any use.
const MOST_BYTES: u64 = i64::MAX as u64;
/// Most chunks of a send buffer: with the largest chunk they stay within the 4 GiB that match bits can name.
const MOST_CHUNKS: u32 = 32_768;
/// A bound for counts of tickets and events, each of which costs memory.
const MOST_COUNT: u32 = 1 << 20;
/// Credits of one peer are kept in 16 bits.
const MOST_CREDITS: u32 = 65_535;
/// What a full medium costs at least; with less a rank could never send one.
const LEAST_CREDITS: u32 = 4;
/// A bound for the bank and the epoch; a plan whose credits can't be counted is refused by its sum.
const MOST_BANKED: u32 = 1 << 24;

/// A bound for times in milliseconds: a day.
const MOST_TIME: u32 = 86_400_000;

/// A bound for a delay in microseconds: ten seconds, what a rank that answers nothing is given.
const MOST_DELAY: u32 = 10_000_000;

settings! {
    "GASNET_PORTAL_MSG_LIMIT" msg_limit: u32 = 250,
        Kind::integer_or_zero(12, MOST_COUNT, "no limit"),
        "most messages that this rank has in flight at once whose bytes are still its own memory's (send tickets); a message that is injected, as is every one to a mapped peer but a prepared one, holds none; fewer than 12 could deadlock",
        acts "udp, ofi; shm: prepared mediums";
    "GASNET_PORTAL_NUM_TMPMD" num_tmpmd: u32 = 1024, Kind::integer(1, MOST_COUNT),
        "temporary memory descriptors, for puts and gets too large for a chunk whose local memory is outside the segment",
        acts "udp, ofi";
    "GASNET_PORTAL_PACKED_LONG" packed_long: bool = true, Kind::Bool,
        "send a small long's payload in one message with its header", acts "udp, ofi";
    "GASNET_PORTAL_FLOW_CONTROL" flow_control: bool = true, Kind::Bool,
        "let requests cost credits; without, a rank flooded with requests can run out of receive buffers and end the job";
    "GASNET_PORTAL_DYNAMIC_CREDITS" dynamic_credits: bool = true, Kind::Bool,
        "let credits move to the peers that need them; the same on all ranks";
    "GASNET_PORTAL_SB_CHUNKS" sb_chunks: u32 = 2048, Kind::integer(1, MOST_CHUNKS),
        "chunks of the request send buffer (ReqSB), one for each request until its reply, and for bounced puts and gets; so many requests are outstanding at most, also where they need no chunk";
    "GASNET_PORTAL_RPL_CHUNKS" rpl_chunks: u32 = 256, Kind::integer(1, MOST_CHUNKS),
        "chunks of the reply send buffer (RplSB), one for each reply that is not injected until it has been sent",
        acts "udp, ofi; shm: while a queue is full";
    "GASNET_PORTAL_SAFE_LIMIT" safe_limit: u32 = 12, Kind::integer(1, MOST_COUNT),
        "most events that one poll takes from the SAFE queue";
    "GASNET_PORTAL_AM_LIMIT" am_limit: u32 = 8, Kind::integer(1, MOST_COUNT),
        "most events that one poll takes from the AM queue; a rank that waits takes up to four times as many between two looks \
         at the other queues";
    "GASNET_PORTAL_SYS_LIMIT" sys_limit: u32 = 0,
        Kind::integer_or_zero(1, MOST_COUNT, "no limit"),
        "most events that one poll takes from the SYS queue";
    "GASNET_PORTAL_MAX_CRED_PER_NODE" max_cred_per_node: Option<u32> = None,
        Kind::integer(LEAST_CREDITS, MOST_CREDITS),
        unset "a sixteenth of the bank, from 400 to 1024, or what each has at the start if that is more; no limit where credits are static",
        "most credits that are lent to one peer, originally 400; at least what a full medium costs, 4 to 8 by the chunk";
    "GASNET_PORTAL_ACCEL" accel: bool = false, Kind::Bool,
        warning "accelerated Portals exists on Catamount only; the setting has no effect here",
        "accepted for old job scripts, has no meaning here", acts "none";
    "GASNET_PORTAL_CREDIT_STATS" credit_stats: bool = false, Kind::Bool,
        "write where the credits are to a file for each rank, at each end of an epoch; not for measurements";
    "CONDUIT_CREDIT_STATS_DIR" credit_stats_dir: PathBuf = PathBuf::from("."), Kind::Path,
        "the existing directory that credit statistics are written to";
    "GASNET_PORTAL_EPOCH_DURATION" epoch_duration: u32 = 1024, Kind::integer(1, MOST_BANKED),
        "requests that a rank receives before its credit epoch ends";
    "GASNET_PORTAL_REVOKE_LIMIT" revoke_limit: u32 = MOST_CREDITS, Kind::integer(1, MOST_CREDITS),
        "credits that a rank gives back to one peer in an epoch before it refuses to; by default as many as it can have, originally 32";
    "GASNET_PORTAL_LENDER_LIMIT" lender_limit: u32 = MOST_CREDITS, Kind::integer(1, MOST_CREDITS),
        "most credits that a rank lends to one peer in an epoch; by default as many as it may have at all, originally 32";
    "GASNET_PORTAL_NUM_SCAVENGE" num_scavenge: u32 = 6, Kind::integer(1, MOST_COUNT),
        "peers that are asked for credits at once when the bank is low";
    "CONDUIT_CREDIT_DOUBLING" credit_doubling: bool = true, Kind::Bool,
        "a request that had to wait for credits asks for as many as there are, so that the loan doubles; otherwise, as originally, for what it was short of; the same on all ranks";
    "CONDUIT_CREDIT_HOLD" credit_hold: bool = false, Kind::Bool,
        "credits that were in use in the epoch before this one are kept when a lender asks; otherwise, as originally, a quarter of them";
    "CONDUIT_CREDIT_REVOKES" credit_revokes: u32 = 4,
        Kind::integer_or_zero(1, MOST_COUNT, "no limit"),
        "peers that a rank asks for credits in an epoch, spread over it; with such a pace it asks in good time, and only who was silent for an epoch; originally no limit";
    "GASNET_PORTAL_CRED_PER_NODE" cred_per_node: Option<u32> = None,
        Kind::integer(LEAST_CREDITS, MOST_CREDITS),
        unset "from a table by job size",
        "credits that each peer has at the start; at least what a full medium costs, 4 to 8 by the chunk";
    "GASNET_PORTAL_BANKED_CREDITS" banked_credits: Option<u32> = None,
        Kind::integer(0, MOST_BANKED),
        unset "from a table by job size",
        "credits in the bank of each rank at the start";
    "GASNET_PORTAL_AMRECV_SPACE" amrecv_space: Option<usize> = None,
        Kind::bytes(4096, MOST_BYTES, 1),
        unset "from the credits",
        "bytes of the request receive buffers (ReqRB), which have to hold a full medium of each rank";
    "CONDUIT_CHUNK" chunk: usize = 17 * 1024, Kind::bytes(1024, 65 * 1024, 1024),
        "bytes of a ReqSB and RplSB chunk, which holds the largest medium with its header; the same on all ranks";
    "CONDUIT_REQUEST_BUFFER" request_buffer: usize = 1 << 20, Kind::bytes(8 * 1024, 1 << 30, 1024),
        "bytes of a request receive buffer (ReqRB), of which there are as many as the credits need; at least 8 chunks, and more where 2048 buffers would not be enough";
    "CONDUIT_NETWORK" networks: Option<Vec<String>> = None,
        Kind::Words(&["shm", "udp", "ofi", "portals4"]),
        unset "what fits each peer: shared memory on one host, UDP between hosts",
        "networks that may be used; the same on all ranks";
    "CONDUIT_HOST" host: Option<String> = None, Kind::Text("a name"),
        unset "the machine's boot, with the namespaces of its network interfaces and its name",
        "name of the host that this rank is on: ranks with the same one share memory";
    "CONDUIT_ALONE" alone: bool = false, Kind::Bool,
        "be a job of one rank also where a launcher that can't be reached has started this process as one of several";
    "CONDUIT_SECRET_FILE" secret_file: Option<PathBuf> = None, Kind::Path,
        unset "ranks trust the launcher and what it hands out",
        "file with a secret of 32 random bytes or more, mode 0600, that has the same content on all ranks: keys depend on it, so whoever changes what the launcher hands out of the network's addresses and keys is found out",
        acts "udp, ofi";
    "CONDUIT_WINDOWS" windows: bool = true, Kind::Bool,
        "load and store directly where a peer's memory is mapped";
    "CONDUIT_INJECT" inject: bool = true, Kind::Bool,
        "let the network copy small messages at once, where it can";
    "CONDUIT_CHECKS" checks: bool = true, Kind::Bool,
        "let a debug build refuse calls from where they may not be made (a handler, an open prepared message); without, it works as an optimised build does, whose requests take short cuts";
    "CONDUIT_HUGE_PAGES" huge_pages: bool = false, Kind::Bool,
        "ask for huge pages for segments and buffers";
    "CONDUIT_MAX_SEGMENT" max_segment: Option<usize> = None,
        Kind::bytes(4096, MOST_BYTES, 1),
        unset "0.85 of the available memory, or of what the control group leaves, divided by the ranks that share it",
        "largest segment of a rank, in bytes";
    "CONDUIT_MAX_OPERATIONS" max_operations: u32 = 65_536,
        Kind::integer(1, (1 << 24) - 1),
        "explicit operations of a rank that may be unsynchronised at once";
    "CONDUIT_SPIN" spin: Option<u32> = None, Kind::integer(0, u32::MAX),
        unset "from the cores and ranks of the host",
        "idle polls before a waiting rank begins to yield";
    "CONDUIT_YIELD" yields: u32 = 64, Kind::integer(0, u32::MAX),
        "idle polls with a yield before a waiting rank sleeps";
    "CONDUIT_EXIT_TIMEOUT" exit_timeout: Option<u32> = None, Kind::integer(0, 86_400),
        unset "3 + ranks/8, at most 360",
        "seconds that an exiting rank waits for the others";
    "CONDUIT_BARRIER_RADIX" barrier_radix: u32 = 8,
        Kind::integer(crate::barrier::MIN_RADIX, crate::barrier::MAX_RADIX),
        "fan-out of the barrier: each round reaches this many times more ranks; the same on all ranks";
    "CONDUIT_OFI_LIBRARY" ofi_library: Option<String> = None,
        Kind::Text("the file of a libfabric, or system, or vendored"),
        unset "the system's libfabric.so.1, else the copy that is built in if there is one",
        "libfabric that is used for the network ofi";
    "CONDUIT_OFI_PROVIDER" ofi_provider: Option<String> = None,
        Kind::Text("the name of a provider of libfabric"),
        unset "the fastest that is there",
        "provider that is used for the network ofi";
    "CONDUIT_OFI_DOMAIN" ofi_domain: Option<String> = None,
        Kind::Text("the name of a domain of the provider; that of tcp is an interface"),
        unset "the provider's first, one of the loopback only if all ranks are on one host",
        "device that is used for the network ofi";
    "CONDUIT_OFI_AUTHENTICATE" ofi_authenticate: bool = false, Kind::Bool,
        "for networks that others use as well, without a fabric that keeps them out: take from libfabric only what has the tag of a rank of this job; puts, gets and atomics go by message then; without, whoever can reach a rank's endpoint and read what it sends is trusted; the same on all ranks";
    "CONDUIT_OFI_ENCRYPT" ofi_encrypt: bool = false, Kind::Bool,
        "encrypt what is sent by libfabric, and authenticate it; the same on all ranks";
    "CONDUIT_OFI_DEAD_TIME" ofi_dead_time: u32 = 10_000, Kind::integer(100, MOST_TIME),
        "milliseconds after which a rank that is reached by libfabric and answers nothing has failed";
    "CONDUIT_OFI_ATTEND" ofi_attend: u32 = 20, Kind::integer(1, 60_000),
        "milliseconds without a poll after which a thread of the library makes libfabric's progress for its rank; at most a quarter of the dead time";
    "CONDUIT_OFI_RECEIVE_BUFFERS" ofi_receives: u32 = 8, Kind::integer(2, 4096),
        "buffers that libfabric receives messages into";
    "CONDUIT_OFI_RECEIVE_BUFFER_SIZE" ofi_receive_bytes: usize = 256 << 10, Kind::bytes(64 << 10, 1 << 30, 1),
        "bytes of each of these buffers";
    "CONDUIT_OFI_STATISTICS" ofi_statistics: bool = false, Kind::Bool,
        "print the counters of the network over libfabric when a rank leaves";
    "CONDUIT_UDP_INTERFACE" udp_interface: Option<String> = None,
        Kind::Text("names of interfaces, addresses and subnets, with commas between"),
        unset "the interface of the default route, else the first that is up",
        "interface that is used for UDP, the earlier the better";
    "CONDUIT_UDP_MTU" udp_mtu: Option<usize> = None, Kind::bytes(1280, 65_535, 1),
        unset "that of the interface",
        "bytes of the largest IP packet that is sent";
    "CONDUIT_UDP_DEAD_TIME" udp_dead_time: u32 = 10_000, Kind::integer(100, MOST_TIME),
        "milliseconds after which a rank of another host that answers nothing has failed";
    "CONDUIT_UDP_PROBE_INTERVAL" udp_probe_interval: u32 = 250, Kind::integer(1, MOST_TIME),
        "milliseconds between probes of a silent rank of another host; the first ones follow each other sooner";
    "CONDUIT_UDP_IDLE_TIME" udp_idle_time: u32 = 1_000, Kind::integer(0, MOST_TIME),
        "milliseconds without traffic after which little memory is kept of a rank of another host; 0 is never";
    "CONDUIT_UDP_ACK_DELAY" udp_ack_delay: u32 = 50, Kind::integer(0, 100_000),
        "microseconds that an acknowledgement waits for a packet to go with";
    "CONDUIT_UDP_WINDOW" udp_window: u32 = 4096, Kind::integer(1, 4096),
        "segments that may be under way to one rank";
    "CONDUIT_UDP_SOCKET_BUFFER" udp_socket_buffer: usize = 4 << 20,
        Kind::bytes(64 << 10, 1 << 30, 1),
        "bytes of packets that the system is asked to keep for a rank's socket, each way";
    "CONDUIT_UDP_ARRIVALS" udp_arrivals: usize = 64 << 20, Kind::bytes(1 << 20, 1 << 40, 1),
        "bytes of messages from other hosts that have arrived and were not handled yet; the same on all ranks";
    "CONDUIT_UDP_ENCRYPT" udp_encrypt: bool = false, Kind::Bool,
        "encrypt what is sent to other hosts; without, it is authenticated only; the same on all ranks";
    "CONDUIT_UDP_OFFLOAD" udp_offload: bool = true, Kind::Bool,
        "let the system cut and join packets where it can";
    "CONDUIT_UDP_ATTEND" udp_attend: u32 = 20, Kind::integer(1, 60_000),
        "milliseconds without a poll after which a thread of the library answers other hosts for its rank; at most a quarter of the dead time";
    "CONDUIT_UDP_STATISTICS" udp_statistics: bool = false, Kind::Bool,
        "print the counters of UDP when a rank leaves";
    "CONDUIT_UDP_LOSS" udp_loss: Percent = Percent::NONE, Kind::Percent,
        warning "for tests: packets of UDP are lost on purpose",
        "for tests: packets of a hundred that are lost as they come from other hosts";
    "CONDUIT_UDP_DUPLICATES" udp_duplicates: Percent = Percent::NONE, Kind::Percent,
        warning "for tests: packets of UDP are doubled on purpose",
        "for tests: packets of a hundred that come twice";
    "CONDUIT_UDP_CORRUPTION" udp_corruption: Percent = Percent::NONE, Kind::Percent,
        warning "for tests: packets of UDP are changed on purpose",
        "for tests: packets of a hundred that come changed";
    "CONDUIT_UDP_REORDER" udp_reorder: Percent = Percent::NONE, Kind::Percent,
        warning "for tests: packets of UDP are reordered on purpose",
        "for tests: packets of a hundred that come up to a millisecond later, so that others overtake them";
    "CONDUIT_UDP_DELAY" udp_delay: u32 = 0, Kind::integer(0, MOST_DELAY),
        warning "for tests: packets of UDP are delayed on purpose",
        "for tests: microseconds that all packets come later";
    "CONDUIT_UDP_FAULT_SEED" udp_fault_seed: u32 = 1, Kind::integer(0, u32::MAX),
        "for tests: what decides which packets are lost, doubled, changed or delayed, from its sender and its number; the same \
         ones each time";
}
