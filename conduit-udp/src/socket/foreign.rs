//! Foreign datagrams, which are those that no rank of the job sent.
//!
//! Normally the system is not asked for the source address of a datagram, because the tag
//! authenticates the sender, and asking costs 90 ns, as much as checking the tags of two small
//! packets. After a foreign datagram, the wire checks sources for a while. It asks the system for
//! the source of each datagram, and if a datagram does not come from the address of the rank that
//! it names, the wire drops it without checking its tag.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The number of non-empty receives after the last foreign datagram during which sources are
/// checked.
const CHECKED_RECEIVES: u32 = 4096;
/// The number of sources that are counted individually.
const SOURCES: usize = 8;

/// Counts foreign datagrams. Joined datagrams (receive offload) count once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForeignDatagrams {
    /// The number of foreign datagrams.
    pub datagrams: u64,
    /// The number of datagrams dropped because of their source, without a check of their tag.
    pub by_source: u64,
    /// The most frequent sources and their counts. A new source replaces the least frequent one and
    /// continues its count. A source of more than an eighth of all datagrams is therefore among
    /// them, with at least its true count (Metwally et al., *Space-Saving*, ICDT 2005).
    sources: [(Option<Ipv6Addr>, u64); SOURCES],
    /// The number of further receives for which sources are checked.
    checks_left: u32,
}

impl ForeignDatagrams {
    /// Returns whether sources are checked.
    #[inline]
    pub(super) fn checks_sources(&self) -> bool {
        self.checks_left > 0
    }

    /// Records a non-empty receive while sources are checked.
    pub(super) fn received(&mut self) {
        self.checks_left = self.checks_left.saturating_sub(1);
    }

    /// Counts a foreign datagram, with its source if the source is known.
    pub(super) fn note(&mut self, source: Option<Ipv6Addr>) {
        self.datagrams += 1;
        self.checks_left = CHECKED_RECEIVES;
        let Some(source) = source else {
            return;
        };
        let known = self.sources.iter_mut();
        let place = known.max_by_key(|(kept, count)| (*kept == Some(source), u64::MAX - count));
        if let Some(place) = place {
            *place = (Some(source), place.1 + 1);
        }
    }

    /// Returns the most frequent source and its count, which is an upper bound if there are many
    /// sources.
    pub fn most(&self) -> Option<(IpAddr, u64)> {
        let (source, count) = self.sources.iter().max_by_key(|(_, count)| *count)?;
        Some((source.as_ref()?.to_canonical(), *count))
    }
}

impl fmt::Display for ForeignDatagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} datagrams came from no rank of the job",
            self.datagrams
        )?;
        if self.by_source > 0 {
            let dropped = self.by_source;
            write!(f, ", {dropped} not from the address of the rank they named")?;
        }
        match self.most() {
            Some((source, _)) => write!(f, ", most of them from {source}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u16) -> Ipv6Addr {
        Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0x0a00, number)
    }

    #[test]
    fn the_most_frequent_source_is_named() {
        let mut foreign = ForeignDatagrams::default();
        assert_eq!(foreign.most(), None);
        foreign.note(None);
        assert_eq!(foreign.most(), None);
        for number in 1..=3 {
            for _ in 0..number {
                foreign.note(Some(source(number)));
            }
        }
        let named = "10.0.0.3".parse().unwrap();
        assert_eq!(
            foreign.most(),
            Some((named, 3)),
            "exact while there are few sources"
        );
        assert_eq!(
            foreign.to_string(),
            "7 datagrams came from no rank of the job, most of them from 10.0.0.3"
        );
    }

    #[test]
    fn a_thousand_sources_take_no_more_room_and_do_not_hide_the_one() {
        let mut foreign = ForeignDatagrams::default();
        for number in 100..1100 {
            foreign.note(Some(source(number)));
            if number % 4 == 0 {
                foreign.note(Some(source(7)));
            }
        }
        let (named, count) = foreign.most().unwrap();
        assert_eq!(named, IpAddr::from([10, 0, 0, 7]));
        assert!((250..=250 + 1250 / 8).contains(&count), "{count}");
    }

    #[test]
    fn sources_are_checked_for_a_while() {
        let mut foreign = ForeignDatagrams::default();
        assert!(!foreign.checks_sources());
        foreign.note(None);
        for _ in 0..CHECKED_RECEIVES {
            assert!(foreign.checks_sources());
            foreign.received();
        }
        assert!(!foreign.checks_sources());
    }
}
