//! What is counted.

use std::iter::Sum;
use std::ops::AddAssign;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of one link or of all links of a rank.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Name and value of each, in the order of declaration.
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
    /// Packets made, of all kinds.
    packets_sent,
    /// Bytes of them.
    bytes_sent,
    /// Packets taken, with a valid tag.
    packets_received,
    /// Bytes of them.
    bytes_received,
    /// Segments sent for the first time.
    segments_sent,
    /// Segments that came for the first time.
    segments_received,
    /// Segments sent again because later ones of their channel were acknowledged.
    resent_packet_threshold,
    /// Segments sent again because a later one was acknowledged and much time had passed.
    resent_time_threshold,
    /// Segments sent again because the probe time-out ended.
    resent_pto,
    /// Acknowledgements of something new that came on a packet with a segment or probe.
    acks_with_segment,
    /// Acknowledgements sent at once.
    acks_immediate,
    /// Acknowledgements sent after the delay or the second segment.
    acks_delayed,
    /// Probes sent.
    probes,
    /// Times that a link was made idle.
    made_idle,
    /// Segments that came again.
    duplicates,
    /// Segments that came from outside of the window.
    out_of_window,
    /// Segments dropped for want of room: they come again.
    no_room,
    /// Packets dropped because their number has come already or is too old.
    replayed,
    /// Packets dropped because their tag is not valid.
    bad_tag,
    /// Datagrams dropped that are no packets of this job: length, version, kind or rank is wrong.
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
