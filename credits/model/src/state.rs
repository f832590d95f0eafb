//! The state of a job, and the steps that are possible in it.

use std::fmt::Debug;
use std::hash::Hash;

use credits::{CreditByte, Dynamic, FlowControl, Growth, PeerState, System};

use crate::World;

/// A flow control that can be checked, because it can be copied, compared and inspected.
pub trait Flow: FlowControl + Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// Creates the flow control of rank `rank` in its initial state.
    fn of(world: &World, rank: u32) -> Self;

    /// Returns the state between the rank and a peer.
    fn state(&self, peer: u32) -> PeerState;

    /// Returns the number of epochs ended.
    fn epochs(&self) -> u32;
}

impl Flow for Dynamic {
    fn of(world: &World, rank: u32) -> Self {
        Dynamic::new(world.ranks, rank, world.loan, world.banked, world.tuning)
    }

    fn state(&self, peer: u32) -> PeerState {
        self.peer_state(peer)
    }

    fn epochs(&self) -> u32 {
        self.epoch()
    }
}

/// The content of a message between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Content {
    /// A request's credit byte. The request counts as in transit until it is replied to.
    Request(u8),
    /// A reply's credit byte.
    Reply(u8),
    /// [`System::Revoke`].
    Revoke {
        /// Whether the sender has ended an epoch.
        end_of_epoch: bool,
    },
    /// [`System::Return`].
    Return {
        /// The number of credits given back.
        credits: u16,
        /// Whether the sender has ended an epoch.
        end_of_epoch: bool,
    },
}

impl From<System> for Content {
    fn from(message: System) -> Content {
        match message {
            System::Revoke { end_of_epoch } => Content::Revoke { end_of_epoch },
            System::Return {
                credits,
                end_of_epoch,
            } => Content::Return {
                credits,
                end_of_epoch,
            },
        }
    }
}

/// A message in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Message {
    /// The rank that sent the message.
    pub from: u32,
    /// The rank that receives the message.
    pub to: u32,
    /// The message's content.
    pub content: Content,
}

/// A possible next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A rank sends its next request of the list with this number, or finds that it lacks credits.
    Send(usize),
    /// A message arrives. If it is a request, it is handled and replied to in the same step.
    Deliver(Message),
    /// A rank searches for a peer to ask for credits.
    Poll(u32),
}

/// A rule that a step broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A rank refused a message from a correct peer.
    Refused,
    /// A rank was asked for credits although no request lacked any.
    NoDemand,
    /// A request asked for or received extra credits although it had not stalled. (With loans that
    /// double, an earlier grant that followed from a stall is also a valid reason.)
    NoStall,
    /// The step led to a state that is no closer to the end.
    Endless,
}

/// The progress of one list of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Progress {
    /// The number of requests sent.
    pub sent: u8,
    /// The largest number of credits that the next request has lacked so far.
    pub missing: u8,
}

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State<F> {
    /// The flow control of each rank.
    pub ranks: Vec<F>,
    /// The progress of each list of requests.
    pub progress: Vec<Progress>,
    /// All messages in transit, sorted, so that equal bags compare equal. Any of the messages can
    /// arrive next.
    pub under_way: Vec<Message>,
    /// For each rank, the number of revokes that it may still send on behalf of requests that asked
    /// for more credits.
    pub wanted: Vec<u32>,
    /// The pairs of a lender and a borrower in which the borrower has been granted credits since it
    /// last asked for some. With loans that double, such a borrower may ask again without a stall.
    pub granted: Vec<(u32, u32)>,
    /// The rule that the last step broke, if any.
    pub broken: Option<Broken>,
}

impl<F: Flow> State<F> {
    pub(crate) fn start(world: &World) -> State<F> {
        State {
            ranks: (0..world.ranks).map(|rank| F::of(world, rank)).collect(),
            progress: vec![Progress::default(); world.requests.len()],
            under_way: Vec::new(),
            wanted: vec![0; world.ranks as usize],
            granted: Vec::new(),
            broken: None,
        }
    }

    /// Returns all steps that make progress. Trying a request again that lacks as many credits as
    /// before makes no progress, nor does searching for a peer to ask when no credits are needed.
    pub(crate) fn steps(&self, world: &World) -> impl Iterator<Item = Step> {
        let sends = (0..world.requests.len()).filter(|&list| {
            let Progress { sent, missing } = self.progress[list];
            let requests = &world.requests[list];
            requests.costs.get(usize::from(sent)).is_some_and(|&cost| {
                let available = self.ranks[requests.from as usize].available(requests.to);
                u32::from(cost) <= available || u32::from(cost) - available > u32::from(missing)
            })
        });
        let messages = self.under_way.iter().enumerate();
        let distinct =
            messages.filter(|&(at, message)| at == 0 || self.under_way[at - 1] != *message);
        let polls = (0..world.ranks).filter(|&rank| self.ranks[rank as usize].has_system());
        sends
            .map(Step::Send)
            .chain(distinct.map(|(_, &message)| Step::Deliver(message)))
            .chain(polls.map(Step::Poll))
    }

    /// Returns whether all requests were sent and replied to, and nothing is in transit.
    pub(crate) fn is_done(&self, world: &World) -> bool {
        let all_sent = |(requests, progress): (&crate::Requests, &Progress)| {
            usize::from(progress.sent) == requests.costs.len()
        };
        self.under_way.is_empty() && world.requests.iter().zip(&self.progress).all(all_sent)
    }

    /// Returns the state after a step.
    pub(crate) fn after(&self, world: &World, step: Step) -> State<F> {
        let mut next = self.clone();
        next.broken = match step {
            Step::Send(list) => next.send(world, list),
            Step::Deliver(message) => next.deliver(world, message),
            Step::Poll(rank) => next.poll(rank),
        };
        if next.broken.is_none() && next.distance(world) >= self.distance(world) {
            next.broken = Some(Broken::Endless);
        }
        next
    }

    fn put(&mut self, from: u32, to: u32, content: Content) {
        let message = Message { from, to, content };
        let at = self.under_way.partition_point(|other| *other < message);
        self.under_way.insert(at, message);
    }

    fn send(&mut self, world: &World, list: usize) -> Option<Broken> {
        let requests = &world.requests[list];
        let progress = &mut self.progress[list];
        let cost = requests.costs[usize::from(progress.sent)];
        match self.ranks[requests.from as usize].take(requests.to, cost) {
            Ok(byte) => {
                let stalled = std::mem::take(&mut progress.missing) > 0;
                progress.sent += 1;
                let pair = (requests.to, requests.from);
                let follows = byte.extra() > 0 && self.take_granted(pair);
                self.put(requests.from, requests.to, Content::Request(byte.bits()));
                (byte.extra() > 0 && !stalled && !follows).then_some(Broken::NoStall)
            }
            Err(short) => {
                progress.missing = progress.missing.max(short.missing);
                None
            }
        }
    }

    fn deliver(&mut self, world: &World, message: Message) -> Option<Broken> {
        let at = self
            .under_way
            .binary_search(&message)
            .expect("the message is in transit");
        self.under_way.remove(at);
        let Message { from, to, content } = message;
        let rank = &mut self.ranks[to as usize];
        let system = match content {
            Content::Request(bits) => {
                let byte = CreditByte::from_bits(bits);
                let back = rank.grant(from, byte);
                self.put(to, from, Content::Reply(back.bits()));
                if byte.extra() > 0 {
                    let asked = self.asked(to);
                    self.wanted[to as usize] = world.tuning.scavenge.saturating_sub(asked);
                }
                return (back.extra() > 0 && byte.extra() == 0).then_some(Broken::NoStall);
            }
            Content::Reply(bits) => {
                let byte = CreditByte::from_bits(bits);
                let refused = rank.settle(from, byte).is_err();
                if byte.extra() > 0 && world.tuning.growth == Growth::Doubling {
                    self.note_granted((from, to));
                }
                return refused.then_some(Broken::Refused);
            }
            Content::Revoke { end_of_epoch } => System::Revoke { end_of_epoch },
            Content::Return {
                credits,
                end_of_epoch,
            } => System::Return {
                credits,
                end_of_epoch,
            },
        };
        match rank.on_system(from, system) {
            Err(_) => Some(Broken::Refused),
            Ok(answer) => {
                if let Some(answer) = answer {
                    self.put(to, from, answer.into());
                }
                None
            }
        }
    }

    fn note_granted(&mut self, pair: (u32, u32)) {
        if let Err(at) = self.granted.binary_search(&pair) {
            self.granted.insert(at, pair);
        }
    }

    fn take_granted(&mut self, pair: (u32, u32)) -> bool {
        let at = self.granted.binary_search(&pair);
        at.map(|at| self.granted.remove(at)).is_ok()
    }

    fn poll(&mut self, rank: u32) -> Option<Broken> {
        let (peer, message) = self.ranks[rank as usize].next_system()?;
        self.put(rank, peer, message.into());
        let wanted = &mut self.wanted[rank as usize];
        match wanted.checked_sub(1) {
            Some(left) => {
                *wanted = left;
                None
            }
            None => Some(Broken::NoDemand),
        }
    }

    /// Returns the number of peers that a rank has asked and that have not answered.
    fn asked(&self, rank: u32) -> u32 {
        let count = self
            .under_way
            .iter()
            .filter(|message| match message.content {
                Content::Revoke { .. } => message.from == rank,
                Content::Return { .. } => message.to == rank,
                _ => false,
            });
        count.count() as u32
    }

    /// Returns a number that every step decreases. Its existence shows that every run ends.
    fn distance(&self, world: &World) -> u32 {
        // Each event weighs more than all events that it can cause. A return may make its receiver
        // search for a peer to ask. A revoke is answered by a return. A rank that may ask a peer
        // may send a revoke. A request is replied to, and may let its receiver ask as many peers as
        // allowed.
        const LOOK: u32 = 1;
        const RETURN: u32 = LOOK + 1;
        const REVOKE: u32 = RETURN + 1;
        const WANTED: u32 = REVOKE + 1;
        const REPLY: u32 = 1;
        let request = REPLY + LOOK + world.tuning.scavenge * WANTED + 1;
        let messages = self.under_way.iter().map(|message| match message.content {
            Content::Request(_) => request,
            Content::Reply(_) => REPLY,
            Content::Revoke { .. } => REVOKE,
            Content::Return { .. } => RETURN,
        });
        let wanted = self.wanted.iter().map(|wanted| wanted * WANTED);
        let looks = self
            .ranks
            .iter()
            .map(|rank| if rank.has_system() { LOOK } else { 0 });
        let unsent = world
            .requests
            .iter()
            .zip(&self.progress)
            .map(|(requests, progress)| {
                let unsent = &requests.costs[usize::from(progress.sent)..];
                // An unsent request is sent once. Before that, each failed try that counts finds it
                // short of more credits than the previous try did, so there are at most as many
                // such tries as the request costs credits.
                let all: u32 = unsent
                    .iter()
                    .map(|&cost| request + 1 + u32::from(cost))
                    .sum();
                all - u32::from(progress.missing)
            });
        messages.chain(wanted).chain(looks).chain(unsent).sum()
    }
}
