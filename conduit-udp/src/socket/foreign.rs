//! Datagrams that no rank of the job has made: when their source is looked at, and which there are.
//!
//! Where all goes well nobody asks where a datagram comes from, since the tag says who has made it
//! and the probe costs 90 ns, as much as two tags of small packets. Once one has come that no rank
//! has made the wire is *wary* for a while: it has the system say each datagram's source, and
//! whatever does not come from the address of the rank that it names is dropped before its tag is
//! looked at.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Receives that bring something, after the last stranger, for which the wire is wary.
const CHECKED_RECEIVES: u32 = 4096;
/// Sources that are counted.
const SOURCES: usize = 8;

/// What has come that no rank of the job has made. Datagrams that came joined count as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForeignDatagrams {
    /// All.
    pub datagrams: u64,
    /// Those that were dropped for their source: their tag was not looked at.
    pub by_source: u64,
    /// The most frequent sources: of two that are not kept the one that comes takes the place of
    /// the least, with its count and one more, so that whoever sends more than an eighth of all is
    /// among them, with that count or more (Metwally's *space saving*).
    sources: [(Option<Ipv6Addr>, u64); SOURCES],
    /// Receives for which the wire is still wary.
    checks_left: u32,
}

impl ForeignDatagrams {
    /// Whether sources are asked for.
    #[inline]
    pub(super) fn checks_sources(&self) -> bool {
        self.checks_left > 0
    }

    /// Something was received, warily.
    pub(super) fn received(&mut self) {
        self.checks_left = self.checks_left.saturating_sub(1);
    }

    /// One has come, from here if that was asked for.
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

    /// The source of most of them, and how many came from there, or fewer if there are many
    /// sources.
    pub fn most(&self) -> Option<(IpAddr, u64)> {
        let (source, count) = self.sources.iter().max_by_key(|(_, count)| *count)?;
        Some((source.as_ref()?.to_canonical(), *count))
    }
}

impl fmt::Display for ForeignDatagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} datagrams were of no rank of the job", self.datagrams)?;
        if self.by_source > 0 {
            let dropped = self.by_source;
            write!(f, ", {dropped} not from where the rank is that they named")?;
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
    fn whoever_sends_most_is_named() {
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
            "exact while there are few"
        );
        assert_eq!(
            foreign.to_string(),
            "7 datagrams were of no rank of the job, most of them from 10.0.0.3"
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
    fn who_was_wary_is_not_for_ever() {
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
