//! The distribution of credits, which each rank writes to a file at the end of every epoch
//! (`GASNET_PORTAL_CREDIT_STATS`). [`credits::statistics`] defines the format.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::time::Instant;

use credits::statistics::{Header, PeerRow, RankRow, Recorder, file_name};
use credits::{Bank, FlowControl, PeerState, Plan, Policy, System};

use crate::kernel::error::{Error, Result};
use crate::messages::flow::Flow;
use crate::ni::Rank;
use crate::settings::Settings;
use crate::threads::Mode;

/// The occasion on which the statistics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// The rank has started.
    Start,
    /// An epoch may have ended.
    Epoch,
    /// The rank ends. Nothing is written afterwards.
    End,
}

/// The statistics file of a rank, and the counters written to it.
#[derive(Debug)]
pub(crate) struct Statistics {
    /// The open file, or `None` after a write error.
    file: Option<BufWriter<File>>,
    path: PathBuf,
    recorder: Recorder,
    text: String,
    start: Instant,
    /// The last epoch whose rows were written.
    epoch: u32,
    system_sent: u64,
    system_received: u64,
    returned: u64,
}

impl Statistics {
    /// Opens the file of `rank`. `job` must be the same on all ranks.
    pub(crate) fn open(settings: &Settings, plan: &Plan, rank: Rank, job: u64) -> Result<Self> {
        let header = Header {
            job: format!("{job:x}"),
            rank,
            ranks: plan.ranks(),
            loan: plan.credits_per_peer(),
            banked: plan.banked(),
            epoch: match plan.flow_control() && plan.dynamic() {
                true => plan.tuning().epoch,
                false => 0,
            },
        };
        let path = settings.credit_stats_dir.join(file_name(&header.job, rank));
        let failed = |reason: String| Error::Setting {
            name: "CONDUIT_CREDIT_STATS_DIR",
            reason: format!("{}: {reason}", path.display()),
        };
        let file = File::create_new(&path).map_err(|error| failed(error.to_string()))?;
        let mut text = String::new();
        let recorder =
            Recorder::begin(&header, &mut text).map_err(|error| failed(error.to_string()))?;
        Ok(Self {
            file: Some(BufWriter::new(file)),
            path,
            recorder,
            text,
            start: Instant::now(),
            epoch: 0,
            system_sent: 0,
            system_received: 0,
            returned: 0,
        })
    }

    /// Counts a system message about credits. It was sent if `out` is true, and received otherwise.
    pub(crate) fn count(&mut self, message: System, out: bool) {
        match (out, message) {
            (true, _) => self.system_sent += 1,
            (false, System::Revoke { .. }) => self.system_received += 1,
            (false, System::Return { credits, .. }) => {
                self.system_received += 1;
                self.returned += u64::from(credits);
            }
        }
    }

    /// Writes the state of the credits. At [`When::Epoch`], writes only if an epoch has ended since
    /// the last write.
    pub(crate) fn write<M: Mode>(&mut self, flow: &Flow<M>, rank: Rank, size: u32, when: When) {
        let (epoch, received, banked) = flow.look(rank, |policy| {
            let (epoch, received) = match policy.as_dynamic() {
                Some(dynamic) => (dynamic.epoch(), dynamic.received()),
                None => (0, 0),
            };
            (epoch, received, policy.banked())
        });
        if epoch == self.epoch && when == When::Epoch {
            return;
        }
        self.epoch = epoch;
        let peers: Vec<_> = (0..size)
            .map(|peer| flow.look(peer, |policy| row(policy, peer)))
            .collect();
        let row = RankRow {
            // Requests since the last end of an epoch belong to the next epoch.
            epoch: if when == When::End { epoch + 1 } else { epoch },
            time_us: u64::try_from(self.start.elapsed().as_micros()).ok(),
            received,
            banked,
            lent: peers.iter().map(|peer| u64::from(peer.loan)).sum(),
            system_sent: self.system_sent,
            system_received: self.system_received,
            returned: self.returned,
            stalls: peers.iter().map(|peer| peer.stalls).sum(),
            revoked: peers.iter().map(|peer| peer.revoked).sum(),
        };
        self.write_rows(&row, peers.into_iter());
        if when == When::End {
            self.file = None;
        }
    }

    /// Writes the rows of an epoch to the file and flushes it, so that the rows survive if the rank
    /// is killed.
    fn write_rows(&mut self, rank: &RankRow, peers: impl Iterator<Item = PeerRow>) {
        let Some(file) = &mut self.file else { return };
        let written = match self.recorder.epoch(rank, peers, &mut self.text) {
            Ok(()) => file
                .write_all(self.text.as_bytes())
                .and_then(|()| file.flush()),
            Err(error) => Err(std::io::Error::other(error)),
        };
        self.text.clear();
        if let Err(error) = written {
            // An error in the statistics must not end the job.
            let _ = writeln!(self.text, "conduit: {}: {error}", self.path.display());
            let _ = std::io::stderr().write_all(self.text.as_bytes());
            self.text.clear();
            self.file = None;
        }
    }
}

/// Returns the credits between this rank and `peer`.
fn row<B: Bank>(policy: &Policy<B>, peer: Rank) -> PeerRow {
    let state = match policy.as_dynamic() {
        Some(dynamic) => dynamic.peer_state(peer),
        None => {
            let most = |credits: u32| credits.min(u16::MAX.into()) as u16;
            let in_use = policy.in_flight(peer);
            PeerState {
                loan: most(policy.lent(peer)),
                send: most(policy.available(peer).saturating_add(in_use)),
                in_use: most(in_use),
                max: most(in_use),
                ..PeerState::default()
            }
        }
    };
    PeerRow::new(peer, &state, policy.stalls(peer), policy.revoked(peer))
}
