//! Counters of the protocol.

use std::iter::Sum;
use std::ops::AddAssign;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one link, or of all links of a rank.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Returns the name and value of each counter, in the order of declaration.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        impl AddAssign<&Counters> for Counters {
            fn add_assign(&mut self, other: &Counters) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Packets sent, of all kinds.
    packets_sent,
    /// Bytes of the packets sent.
    bytes_sent,
    /// Packets accepted, which have a valid tag.
    packets_received,
    /// Bytes of the packets accepted.
    bytes_received,
    /// Segments sent for the first time.
    segments_sent,
    /// Segments received for the first time.
    segments_received,
    /// Segments sent again because the packet threshold declared them lost (RFC 9002, 6.1.1).
    resent_packet_threshold,
    /// Segments sent again because the time threshold declared them lost (RFC 9002, 6.1.2).
    resent_time_threshold,
    /// Segments sent again because the probe time-out (PTO) expired.
    resent_pto,
    /// Acknowledgements of newly received segments that were sent along with a segment or probe
    /// reply.
    acks_with_segment,
    /// Immediate acknowledgements in separate packets.
    acks_immediate,
    /// Delayed acknowledgements in separate packets.
    acks_delayed,
    /// Probes sent.
    probes,
    /// Number of times that a link was made idle.
    made_idle,
    /// Segments received that had already been received.
    duplicates,
    /// Segments received that lie outside the window.
    out_of_window,
    /// Segments dropped for lack of buffer space. The peer sends them again.
    no_room,
    /// Packets dropped because their number was already received or is too old.
    replayed,
    /// Packets dropped because their tag is invalid.
    bad_tag,
    /// Datagrams dropped because their length, version, kind or rank is wrong.
    malformed,
    /// Packets dropped because their peer has failed.
    from_failed,
}

impl Sum for Counters {
    fn sum<I: Iterator<Item = Self>>(each: I) -> Self {
        each.fold(Self::default(), |mut sum, counters| {
            sum += &counters;
            sum
        })
    }
}
