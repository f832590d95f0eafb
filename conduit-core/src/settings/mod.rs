//! The engine's settings. The names, defaults and ranges of the `GASNET_PORTAL_*` settings are
//! those of GASNet's Portals conduit ("Recognized environment variables") and of the credit
//! constants in its source. The `CONDUIT_*` settings are Conduit's own.

mod in_job;
#[cfg(test)]
mod tests;

pub use in_job::{InJob, InJobError};

use std::path::PathBuf;
use std::time::Duration;

use settings::{MOST_BYTES, SettingsError, ValueKind};

/// Maximum number of chunks of a send buffer. With the largest chunk size, the chunks stay within
/// the 4 GiB that match bits can address.
const MOST_CHUNKS: u32 = 32_768;
/// Maximum value of settings that count tickets or events. Each ticket or event costs memory.
const MOST_COUNT: u32 = 1 << 20;
/// Maximum number of credits of one peer. The number is stored in 16 bits.
const MOST_CREDITS: u32 = 65_535;
/// The minimum cost of a full medium in credits. With fewer credits, a rank could never send a full
/// medium.
const LEAST_CREDITS: u32 = 4;
/// Maximum value of the settings for the bank and the epoch. A plan whose credits overflow is
/// refused nevertheless, because their sum is checked.
const MOST_BANKED: u32 = 1 << 24;

/// The signals that can request a report, and their numbers. Launchers pass these signals on.
pub(crate) const REPORT_SIGNALS: &[(&str, u32)] = &[
    ("USR1", libc::SIGUSR1.cast_unsigned()),
    ("USR2", libc::SIGUSR2.cast_unsigned()),
    ("HUP", libc::SIGHUP.cast_unsigned()),
    ("QUIT", libc::SIGQUIT.cast_unsigned()),
];

settings::group! {
    /// The values of the engine's settings. Each field's documentation names its variable.
    pub struct Settings, acts [all], check Settings::agree;

    "GASNET_PORTAL_MSG_LIMIT" msg_limit: u32 = 250,
        ValueKind::integer_or_zero(12, MOST_COUNT, "no limit"),
        "maximum number of this rank's messages in flight that are sent from its own memory (send tickets); injected messages, such as all but prepared ones to a mapped peer, need none; fewer than 12 could deadlock",
        acts [udp, ofi] and "shm: prepared mediums";
    "GASNET_PORTAL_NUM_TMPMD" num_tmpmd: u32 = 1024, ValueKind::integer(1, MOST_COUNT),
        "temporary memory descriptors, for puts and gets too large for a chunk whose local memory is outside the segment",
        acts [udp, ofi];
    "GASNET_PORTAL_PACKED_LONG" packed_long: bool = true, ValueKind::Bool,
        "send a small long's payload in one message with its header", acts [udp, ofi];
    "GASNET_PORTAL_FLOW_CONTROL" flow_control: bool = true, ValueKind::Bool,
        "limit requests by credits; without, a rank flooded with requests can run out of receive buffers and end the job", is SameOnAllRanks;
    "GASNET_PORTAL_DYNAMIC_CREDITS" dynamic_credits: bool = true, ValueKind::Bool,
        "let credits move to the peers that need them", is SameOnAllRanks;
    "GASNET_PORTAL_SB_CHUNKS" sb_chunks: u32 = 2048, ValueKind::integer(1, MOST_CHUNKS),
        "chunks of the request send buffer (ReqSB), one for each request until its reply, and for bounced puts and gets; also the maximum number of outstanding requests, even if they need no chunk", is SameOnAllRanks;
    "GASNET_PORTAL_RPL_CHUNKS" rpl_chunks: u32 = 256, ValueKind::integer(1, MOST_CHUNKS),
        "chunks of the reply send buffer (RplSB), one for each reply that is not injected until it has been sent",
        acts [udp, ofi] and "shm: while a queue is full";
    "GASNET_PORTAL_SAFE_LIMIT" safe_limit: u32 = 12, ValueKind::integer(1, MOST_COUNT),
        "maximum number of events that one poll takes from the SAFE queue";
    "GASNET_PORTAL_AM_LIMIT" am_limit: u32 = 8, ValueKind::integer(1, MOST_COUNT),
        "maximum number of events that one poll takes from the AM queue; a waiting rank takes up to four times as many before it polls the other queues";
    "GASNET_PORTAL_SYS_LIMIT" sys_limit: u32 = 0,
        ValueKind::integer_or_zero(1, MOST_COUNT, "no limit"),
        "maximum number of events that one poll takes from the SYS queue";
    "GASNET_PORTAL_MAX_CRED_PER_NODE" max_cred_per_node: Option<u32> = None,
        ValueKind::integer(LEAST_CREDITS, MOST_CREDITS),
        unset "a sixteenth of the bank, from 400 to 1024, or each peer's initial credits if more; no limit if credits are static",
        "maximum number of credits lent to one peer, originally 400; raised to the cost of a full medium, 4 to 8 depending on the chunk (5 by default)", is SameOnAllRanks;
    "GASNET_PORTAL_ACCEL" accel: bool = false, ValueKind::Bool,
        warning "accelerated Portals exists only on Catamount; the setting has no effect here",
        "accepted for old job scripts; has no effect", acts [none];
    "GASNET_PORTAL_CREDIT_STATS" credit_stats: bool = false, ValueKind::Bool,
        "write the distribution of credits to a file per rank at each end of an epoch; not for measurements";
    "CONDUIT_CREDIT_STATS_DIR" credit_stats_dir: PathBuf = PathBuf::from("."), ValueKind::Path,
        "existing directory for the files of credit statistics";
    "GASNET_PORTAL_EPOCH_DURATION" epoch_duration: u32 = 1024, ValueKind::integer(1, MOST_BANKED),
        "requests that a rank receives before its credit epoch ends";
    "GASNET_PORTAL_REVOKE_LIMIT" revoke_limit: u32 = MOST_CREDITS, ValueKind::integer(1, MOST_CREDITS),
        "maximum number of credits that a rank returns to one peer on request per epoch; by default as many as it can have, originally 32";
    "GASNET_PORTAL_LENDER_LIMIT" lender_limit: u32 = MOST_CREDITS, ValueKind::integer(1, MOST_CREDITS),
        "maximum number of credits that a rank lends to one peer per epoch; by default as many as the peer may have, originally 32";
    "GASNET_PORTAL_NUM_SCAVENGE" num_scavenge: u32 = 6, ValueKind::integer(1, MOST_COUNT),
        "number of peers asked for credits at once when the bank is low";
    "CONDUIT_CREDIT_DOUBLING" credit_doubling: bool = true, ValueKind::Bool,
        "let a request that had to wait for credits ask for as many as its sender has, so that the loan doubles; otherwise, as originally, for as many as it lacked", is SameOnAllRanks;
    "CONDUIT_CREDIT_HOLD" credit_hold: bool = false, ValueKind::Bool,
        "keep the credits used in the previous epoch when a lender asks for them; otherwise, as originally, a quarter of them";
    "CONDUIT_CREDIT_REVOKES" credit_revokes: u32 = 4,
        ValueKind::integer_or_zero(1, MOST_COUNT, "no limit"),
        "maximum number of peers that a rank asks for credits per epoch, spread over it; with a limit it asks early, and only peers that were silent for an epoch; originally no limit";
    "GASNET_PORTAL_CRED_PER_NODE" cred_per_node: Option<u32> = None,
        ValueKind::integer(LEAST_CREDITS, MOST_CREDITS),
        unset "from a table by job size",
        "initial credits of each peer; raised to the cost of a full medium, 4 to 8 depending on the chunk (5 by default)", is SameOnAllRanks;
    "GASNET_PORTAL_BANKED_CREDITS" banked_credits: Option<u32> = None,
        ValueKind::integer(0, MOST_BANKED),
        unset "from a table by job size",
        "initial credits in the bank of each rank", is SameOnAllRanks;
    "GASNET_PORTAL_AMRECV_SPACE" amrecv_space: Option<usize> = None,
        ValueKind::bytes(4096, MOST_BYTES, 1),
        unset "from the credits",
        "bytes of the request receive buffers (ReqRB), which must hold a full medium of each rank", is SameOnAllRanks;
    "CONDUIT_CHUNK" chunk: usize = 17 * 1024, ValueKind::bytes(1024, 65 * 1024, 1024),
        "bytes of a ReqSB and RplSB chunk, which holds the largest medium with its header", is SameOnAllRanks;
    "CONDUIT_REQUEST_BUFFER" request_buffer: usize = 1 << 20, ValueKind::bytes(8 * 1024, 1 << 30, 1024),
        "bytes of a request receive buffer (ReqRB), of which there are as many as the credits need; at least 8 chunks, and larger if 2048 buffers would not suffice", is SameOnAllRanks;
    "CONDUIT_WINDOWS" windows: bool = true, ValueKind::Bool,
        "load and store directly if a peer's memory is mapped", is SameOnAllRanks;
    "CONDUIT_INJECT" inject: bool = true, ValueKind::Bool,
        "let the network copy small messages at once, if it can", is SameOnAllRanks;
    "CONDUIT_CHECKS" checks: bool = true, ValueKind::Bool,
        "let a debug build refuse calls that are not allowed in their context (a handler, an open prepared message); without, it works like an optimised build, whose requests take short cuts";
    "CONDUIT_MAX_OPERATIONS" max_operations: u32 = 65_536,
        ValueKind::integer(1, (1 << 24) - 1),
        "maximum number of unsynchronised explicit operations of a rank";
    "CONDUIT_SHUFFLE" shuffle: Option<u32> = None, ValueKind::integer(0, u32::MAX),
        unset "off",
        "seed of a random order in which the handlers of arriving requests run: for tests of programs, which must not rely on any order; a request may be held back for up to 255 polls";
    "CONDUIT_SPIN" spin: Option<u32> = None, ValueKind::integer(0, u32::MAX),
        unset "100000, or 1 if ranks outnumber the processors of their machine",
        "idle polls before a waiting rank begins to yield";
    "CONDUIT_YIELD" yields: u32 = 64, ValueKind::integer(0, u32::MAX),
        "idle polls with a yield before a waiting rank sleeps; 200, unless set, if ranks outnumber the processors of their machine";
    "CONDUIT_EXIT_TIMEOUT" exit_timeout: Option<u32> = None, ValueKind::integer(0, 86_400),
        unset "3 + ranks/8, at most 360",
        "seconds for which an exiting rank waits for the others";
    "CONDUIT_EXIT_GRACE" exit_grace: u32 = 1_000, ValueKind::integer(0, 3_600_000),
        "milliseconds for which a rank keeps running after another rank has ended the job with code 0";
    "CONDUIT_BARRIER_RADIX" barrier_radix: u32 = 8,
        ValueKind::integer(crate::barrier::MIN_RADIX, crate::barrier::MAX_RADIX),
        "radix of the barrier: each round reaches this many times more ranks", is SameOnAllRanks;
    "CONDUIT_WAIT_REPORT" wait_report: Option<u32> = None, ValueKind::integer(1, 86_400),
        unset "never",
        "seconds after which a waiting call reports on standard error what it waits for, and again each time that its wait has doubled";
    "CONDUIT_REPORT_SIGNAL" report_signal: Option<String> = None, ValueKind::Signal(REPORT_SIGNALS),
        unset "none",
        "signal at which a rank reports on standard error what its calls wait for; the launcher passes it on";
    "CONDUIT_REPORT_STACK" report_stack: bool = false, ValueKind::Bool,
        "let these reports show the stack of the thread that waits in a call, or polls; a rank that does neither reports how to see its stacks";
}

impl Settings {
    /// Returns the time for which an exiting rank in a job of `ranks` ranks waits for the others.
    /// This is [`exit_timeout`](Self::exit_timeout) if set. Otherwise it is 3 s plus 1/8 s per
    /// rank, at most 360 s, as in GASNet's Portals conduit.
    #[must_use]
    pub fn exit_wait(&self, ranks: u32) -> Duration {
        match self.exit_timeout {
            Some(seconds) => Duration::from_secs(seconds.into()),
            None => Duration::from_millis((3_000 + 125 * u64::from(ranks)).min(360_000)),
        }
    }

    /// Returns the time for which a rank keeps running after another rank has ended the job with
    /// code 0.
    pub(crate) fn exit_grace(&self) -> Duration {
        Duration::from_millis(self.exit_grace.into())
    }

    fn agree(&self) -> Result<(), SettingsError> {
        match (self.cred_per_node, self.max_cred_per_node) {
            (Some(value), Some(limit)) if value > limit => Err(SettingsError::Above {
                name: "GASNET_PORTAL_CRED_PER_NODE",
                value,
                limited_by: "GASNET_PORTAL_MAX_CRED_PER_NODE",
                limit,
            }),
            _ => Ok(()),
        }
    }
}
