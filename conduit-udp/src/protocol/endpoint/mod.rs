//! A rank's end of the protocol, which manages the rank's links, their timers, and the order in
//! which they send.

mod idle;
mod idle_links;
mod queues;
mod receive;
mod senders;
mod sessions;
mod transmit;

use conduit_core::ni::Rank;

use super::config::Config;
use super::contract::{Failure, Fragment, FragmentHandler, Nanos, Payload, Refused};
use super::counters::Counters;
use super::link::{Budget, Geometry, LinkStatus, UdpLink};
use super::timers::Timers;

pub use receive::{Dropped, Received};

use idle_links::IdleLinks;
use queues::{Queue, Queues};
use senders::Senders;

/// The entry of a peer without a link.
const NONE: u32 = u32::MAX;
/// The entry of a peer that has failed or, in an open network, with which there is no session.
const FAILED: u32 = u32::MAX - 1;
/// The flag of an idle link, which is combined with the link's index. Values below it are indices
/// of open links.
const IDLE: u32 = 1 << 31;

/// The reliability protocol of one rank, for all its peers.
///
/// An endpoint makes no system calls, reads no clock, and takes memory only for links and the data
/// outstanding on them. Its driver must do the following:
///
/// * pass each received packet to [`receive`](Self::receive);
/// * call [`on_timeout`](Self::on_timeout) at the time that [`timeout`](Self::timeout) returns;
/// * after either call, and after [`send`](Self::send), call [`transmit`](Self::transmit) until it
///   returns `None`.
///
/// All times must come from one monotonic clock of the driver.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    geometry: Geometry,
    /// For each rank, the index of its link, combined with [`IDLE`] if the link is idle, or else
    /// [`NONE`] or [`FAILED`].
    peers: Vec<u32>,
    links: Vec<Option<Box<UdpLink>>>,
    free: Vec<u32>,
    idle_links: IdleLinks,
    /// The number of links still to check because too many are open.
    over_limit: usize,
    /// The index of the link that was checked last for this reason. It moves like a clock hand.
    hand: usize,
    timers: Timers,
    queues: Queues,
    /// The number of bursts with segments since the last burst that had only acknowledgements.
    bursts: u32,
    senders: Senders,
    budget: Budget,
    /// The counters of links that are gone, and of packets without a link.
    gone: Counters,
    /// The failed peers that [`take_failed`](Endpoint::take_failed) has not returned yet.
    failed: Vec<Rank>,
    /// The latest time that the driver has passed.
    now: Nanos,
    /// The time at which the rank's last long pause ended.
    resumed: Nanos,
}

impl Endpoint {
    /// Creates an endpoint without links. Limits outside their bounds are clamped.
    pub fn new(config: Config) -> Self {
        let config = config.bounded();
        Self {
            geometry: Geometry::new(config.packet),
            peers: vec![NONE; config.size as usize],
            links: Vec::new(),
            free: Vec::new(),
            idle_links: IdleLinks::default(),
            over_limit: 0,
            hand: 0,
            timers: Timers::default(),
            queues: Queues::default(),
            bursts: 0,
            senders: Senders::default(),
            budget: Budget {
                held: 0,
                limit: config.early,
                link_limit: config.link_early,
            },
            gone: Counters::default(),
            failed: Vec::new(),
            now: 0,
            resumed: 0,
            config,
        }
    }

    /// Returns the limits in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Queues a fragment for a peer. Opens the link if there is none, and reopens it if it is idle.
    ///
    /// # Errors
    /// Returns [`Refused`] if the fragment was not queued.
    pub fn send(&mut self, now: Nanos, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        self.advance(now);
        let index = match self.peers.get(peer as usize) {
            None => return Err(Refused::NoSuchRank),
            Some(&FAILED) => return Err(Refused::Dead),
            Some(&index) if index < IDLE => index,
            Some(_) => self.open(now, peer),
        };
        let Some(link) = self.links[index as usize].as_deref_mut() else {
            return Err(Refused::Dead);
        };
        link.push(now, fragment, self.geometry, &self.config)?;
        if matches!(fragment.payload, Payload::Copied(_)) && link.commands_ready(&self.config) {
            self.queues.enter(Queue::Commands, index, link);
        } else {
            self.enqueue(now, index);
        }
        Ok(())
    }

    /// Abandons the fragments to a peer whose bytes the fragment handler keeps. Their bytes are not
    /// read again, fragments that are not yet delivered never arrive, and further fragments are
    /// refused as if there were no room. Tiny fragments are still sent.
    pub fn abandon(&mut self, peer: Rank) {
        let index = self.peers.get(peer as usize).copied().unwrap_or(NONE);
        // Without an open link, nothing is outstanding.
        if let Some(Some(link)) = self.links.get_mut(index as usize) {
            link.abandon();
        }
    }

    /// Returns the time at which [`on_timeout`](Self::on_timeout) has to be called, or `None` if no
    /// call is due until the next call of another method.
    pub fn timeout(&self) -> Option<Nanos> {
        match (self.timers.first(), self.idle_links.timeout()) {
            (Some(link), Some(idle)) => Some(link.min(idle)),
            (link, idle) => link.or(idle),
        }
    }

    /// Handles the links that are due at `now`.
    pub fn on_timeout(&mut self, now: Nanos, handler: &mut impl FragmentHandler) {
        self.advance(now);
        self.sweep_idle_links(now);
        while let Some(index) = self.timers.pop(now) {
            if self.config.idle_time > 0
                && let Some(quiet_since) = now.checked_sub(self.config.idle_time)
                && self.make_idle(now, index, quiet_since, handler)
            {
                continue;
            }
            match self.on_link_due(now, index, handler) {
                Ok(()) => {
                    self.enqueue(now, index);
                    if let Some(link) = self.links[index as usize].as_deref_mut() {
                        self.timers
                            .schedule(index, link.due(now, &self.config).max(now + 1));
                    }
                }
                Err(failure) => self.fail(index, failure, handler),
            }
        }
    }

    /// Returns the sum of all links' counters.
    pub fn counters(&self) -> Counters {
        let links = self.links.iter().flatten().map(|link| link.counters);
        links.chain([self.gone]).sum()
    }

    /// Returns the status of the link to a peer, if there is one.
    pub fn link(&self, peer: Rank) -> Option<LinkStatus> {
        let index = *self.peers.get(peer as usize)?;
        if let Some(idle) = self.idle_links.get(index ^ IDLE) {
            return Some(LinkStatus {
                is_idle: true,
                memory: size_of_val(idle),
                ..UdpLink::reopen(self.now, idle, &self.config).status()
            });
        }
        self.links
            .get(index as usize)?
            .as_ref()
            .map(|link| link.status())
    }

    /// Returns whether everything sent to a peer has been acknowledged.
    pub fn is_flushed(&self, peer: Rank) -> bool {
        self.open_link(peer).is_none_or(UdpLink::is_flushed)
    }

    /// Returns a measure of the unacknowledged data, which has no unit. It decreases as the peer
    /// acknowledges segments.
    pub fn outstanding(&self, peer: Rank) -> usize {
        self.open_link(peer).map_or(0, UdpLink::unacknowledged)
    }

    #[inline]
    fn open_link(&self, peer: Rank) -> Option<&UdpLink> {
        let index = self.peers.get(peer as usize).copied().unwrap_or(NONE);
        self.links.get(index as usize)?.as_deref()
    }

    /// Returns whether a peer has failed.
    pub fn has_failed(&self, peer: Rank) -> bool {
        self.peers.get(peer as usize) == Some(&FAILED)
    }

    /// Returns the total memory used, in bytes.
    pub fn memory(&self) -> usize {
        let links: usize = self.links.iter().flatten().map(|link| link.memory()).sum();
        links
            + self.peers.capacity() * size_of::<u32>()
            + self.links.capacity() * size_of::<Option<Box<UdpLink>>>()
            + self.free.capacity() * size_of::<u32>()
            + self.idle_links.memory()
            + self.timers.memory()
            + self.queues.memory()
            + size_of::<Self>()
    }

    /// Advances the time. If this rank was stopped for a long time, the peers' silence during that
    /// pause does not count.
    fn advance(&mut self, now: Nanos) {
        if now.saturating_sub(self.now) > self.config.dead_time / 2 {
            self.resumed = now;
        }
        self.now = self.now.max(now);
    }

    /// Handles a link that is due.
    fn on_link_due(
        &mut self,
        now: Nanos,
        index: u32,
        handler: &mut impl FragmentHandler,
    ) -> Result<(), Failure> {
        let Some(link) = self.links[index as usize].as_deref_mut() else {
            return Ok(());
        };
        link.detect_lost(now);
        if link.timeout_at(&self.config).is_some_and(|at| at <= now) {
            link.on_timeout(now, &self.config);
        }
        if link.liveness.on_due(now, self.resumed, &self.config)? {
            link.on_idle();
        }
        if link.is_refused {
            link.retry(&mut self.budget, handler)
                .map_err(Failure::Broken)?;
        }
        Ok(())
    }

    /// Gives up a peer, and releases everything that its link holds.
    fn fail(&mut self, index: u32, failure: Failure, handler: &mut impl FragmentHandler) {
        if let Some(link) = self.links[index as usize].take() {
            link.release(&mut self.budget);
            self.gone += &link.counters;
            self.timers.remove(index);
            self.peers[link.peer as usize] = FAILED;
            self.free.push(index);
            self.failed.push(link.peer);
            handler.failed(link.peer, failure);
        }
    }

    /// Enters the link into the queues of the packets that it has to send, and schedules its timer.
    fn enqueue(&mut self, now: Nanos, index: u32) {
        let Some(link) = self.links[index as usize].as_deref_mut() else {
            return;
        };
        if link.commands_ready(&self.config) {
            self.queues.enter(Queue::Commands, index, link);
        }
        if let Some(at) = link.data_at(&self.config) {
            if at <= now {
                self.queues.enter(Queue::Data, index, link);
            } else {
                self.timers.schedule(index, at);
            }
        }
        if link.control_ready() {
            self.queues.enter(Queue::Control, index, link);
        }
        if link.ack_state.is_due(now) {
            self.queues.enter(Queue::Acks, index, link);
        } else if let Some(at) = link.ack_state.deadline() {
            self.timers.schedule(index, at);
        }
        if link.is_refused {
            self.queues.enter(Queue::Refused, index, link);
            self.timers.schedule(index, now + self.config.min_timeout);
        }
        if link.is_blocked() {
            link.liveness.on_blocked(now);
            if let Some(at) = link.timeout_at(&self.config) {
                self.timers.schedule(index, at);
            }
        }
    }
}
