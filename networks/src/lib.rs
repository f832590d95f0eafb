//! The network of a job, composed of several networks, each of which reaches some of the peers.
//!
//! [`start`] chooses among the usable networks ([`available_networks`]) and starts them: shared
//! memory among the ranks of a host, and a network between hosts ([`Far`]) to all others. The
//! engine sees one network, the [`composite`] of both.

mod choice;
pub mod composite;
mod error;
mod far;
mod hosts;
mod inter_host;
pub mod open;
pub mod settings;
mod start;

pub use choice::available_networks;
pub use error::{Error, Result};
pub use far::Far;
pub use hosts::Hosts;
pub use inter_host::InterHost;
pub use start::{Room, start};

use std::io::Write as _;

use conduit_core::ni::Ni as _;
use conduit_core::threads::Mode;
use conduit_shm::job::Shm;

use crate::composite::Composite;
use crate::settings::NetworkSettings;

/// The type of a job's network.
pub type Network<M> = Composite<Shm<M>, Far<M>, M>;

impl<M: Mode> Network<M> {
    /// Announces that this rank's process is about to exit normally, so that peers do not report a
    /// failure. Waits for a bounded time until ranks of other hosts have received everything sent
    /// to them.
    pub fn leave(&self, settings: NetworkSettings<'_>) {
        self.intra().leave();
        if settings.shm.statistics {
            let _ = std::io::stderr().write_all(self.intra_report().as_bytes());
        }
        match self.inter() {
            None => {}
            Some(Far::Portals4(inter)) => inter.leave(),
            Some(Far::Soft(inter)) => {
                inter.leave();
                if inter.counters(|_, network| network.is_reported(settings)) {
                    let rank = inter.rank();
                    let mut report =
                        inter.counters(|portals, network| network.report(portals, rank));
                    let lanes = inter.lanes();
                    if !lanes.is_empty() {
                        report += &format!("rank {rank}: {lanes}\n");
                    }
                    // A single write keeps the reports of several ranks apart. A write error is
                    // ignored, because it cannot be reported.
                    let _ = std::io::stderr().write_all(report.as_bytes());
                }
            }
        }
    }

    /// Returns a report of the nonzero counters of shared memory and of the ranks of this host with
    /// which it uses exclusive rings.
    fn intra_report(&self) -> String {
        let mut report = format!("rank {}: shm:", self.rank());
        for (name, count) in self.intra().statistics().each() {
            if count > 0 {
                report += &format!(" {name} {count}");
            }
        }
        let intra = self.intra();
        let name = |peer: u32| match self.neighbours() {
            Some(ranks) => ranks.get(peer as usize).copied().unwrap_or(peer),
            None => peer,
        };
        let (mut to, mut from) = (Vec::new(), Vec::new());
        for peer in (0..intra.size()).filter(|peer| *peer != intra.rank()) {
            let rank = name(peer).to_string();
            let (has_to, has_from) = intra.own_rings(peer);
            to.extend(has_to.then(|| rank.clone()));
            from.extend(has_from.then_some(rank));
        }
        for (way, ranks) in [("to", to), ("from", from)] {
            if !ranks.is_empty() {
                report += &format!("; rings {way} ranks {}", ranks.join(", "));
            }
        }
        report + "\n"
    }
}
