//! The text of the report in which a rank states what it is waiting for; see
//! [`Reports`](crate::kernel::reports::Reports).

use std::backtrace::Backtrace;
use std::fmt::Write as _;
use std::time::Duration;

use crate::barrier::state::Barriers;
use crate::collectives::state::Collectives;
use crate::engine::{Engine, Handler};
use crate::kernel::Kernel;
use crate::kernel::handle::OpId;
use crate::messages::Messages;
use crate::ni::{Ni, Rank};
use crate::stderr;
use crate::threads::Mode;

/// The event that a call waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Awaits {
    /// The condition passed by the caller.
    Condition,
    /// The end of an operation or of a group of operations.
    Operation(OpId),
    /// The ends of this thread's implicit operations, or of several operations whose handles the
    /// caller has.
    Operations,
    /// Credits for requests to a rank.
    Credits(Rank),
    /// Room in the network for a message to a rank.
    Room(Rank),
    /// A send ticket.
    Ticket,
    /// A ReqSB chunk.
    Chunk,
    /// A temporary descriptor.
    Descriptor,
    /// The replies to all requests.
    Answers,
    /// The end of handlers on other threads.
    Handlers,
    /// The arrival of all ranks at a barrier.
    Barrier,
}

/// Maximum number of ranks that a report names in one place.
const MOST_NAMED: usize = 8;

/// Formats a list of ranks, such as `rank 3` or `ranks 1, 2 and 5 more`.
fn ranks(ranks: &[Rank]) -> String {
    let named: Vec<_> = ranks.iter().take(MOST_NAMED).map(Rank::to_string).collect();
    let (word, named) = (
        ["rank", "ranks"][usize::from(ranks.len() > 1)],
        named.join(", "),
    );
    match ranks.len().saturating_sub(MOST_NAMED) {
        0 => format!("{word} {named}"),
        more => format!("{word} {named} and {more} more"),
    }
}

fn counted(count: u32, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Appends this thread's stack if `asked` is true.
fn add_stack(line: &mut String, asked: bool) {
    if asked {
        // Writing to a string does not fail.
        let _ = write!(line, "\n{}", Backtrace::force_capture());
    }
}

/// The source of a report's text: the state of a rank's waits and of its operations in flight.
pub(crate) struct Report<'e, N: Ni, M: Mode> {
    kernel: &'e Kernel<N, M>,
    messages: &'e Messages<M, Handler<N, M>>,
    barriers: &'e Barriers<M>,
    collectives: &'e Collectives<M>,
}

impl<N: Ni, M: Mode> Engine<N, M> {
    pub(crate) fn report(&self) -> Report<'_, N, M> {
        Report {
            kernel: &self.kernel,
            messages: &self.messages,
            barriers: &self.barriers,
            collectives: &self.collectives,
        }
    }
}

impl<N: Ni, M: Mode> Report<'_, N, M> {
    /// Reports what a call is waiting for, how long it has waited, and what else is in flight.
    #[cold]
    pub(crate) fn wait(&self, operation: &str, awaits: Awaits, waited: Duration, stack: bool) {
        let mut line = format!(
            "conduit: rank {} of {} has waited {:.1} s in {operation} {}",
            self.kernel.job.rank,
            self.kernel.job.size,
            waited.as_secs_f32(),
            self.awaited(awaits)
        );
        self.add_under_way(&mut line);
        add_stack(&mut line, stack);
        stderr::write_line(line);
    }

    /// Reports that the program polls without waiting in a call.
    #[cold]
    pub(crate) fn polling(&self, stack: bool) {
        let (rank, size) = (self.kernel.job.rank, self.kernel.job.size);
        let mut line =
            format!("conduit: rank {rank} of {size} polls, but is not waiting in a Conduit call");
        self.add_under_way(&mut line);
        add_stack(&mut line, stack);
        stderr::write_line(line);
    }

    fn add_under_way(&self, line: &mut String) {
        for one in self.under_way() {
            // Writing to a string does not fail.
            let _ = write!(line, "; {one}");
        }
    }

    fn awaited(&self, awaits: Awaits) -> String {
        let settings = &self.kernel.job.settings;
        match awaits {
            Awaits::Condition => "for its condition".into(),
            Awaits::Operation(op) => {
                let peers = self.kernel.operations.under_way(Some(op));
                let peers: Vec<_> = peers.into_iter().filter_map(|(peer, _)| peer).collect();
                match &peers[..] {
                    [] => "for a collective operation".into(),
                    peers => format!("for {}", ranks(peers)),
                }
            }
            Awaits::Operations => "for operations under way".into(),
            Awaits::Credits(peer) => {
                let (free, used) = self.messages.credits.flow.look(peer, |policy| {
                    use credits::FlowControl as _;
                    (policy.available(peer), policy.in_flight(peer))
                });
                match self.messages.credits.flow.budget_is_spent() {
                    true => format!(
                        "for rank {peer}: all {} requests allowed in flight are unanswered (GASNET_PORTAL_SB_CHUNKS)",
                        settings.sb_chunks
                    ),
                    false => format!("for credits of rank {peer} ({free} free, {used} in use)"),
                }
            }
            Awaits::Room(peer) => format!("for room on the way to rank {peer}"),
            Awaits::Ticket => format!(
                "for one of {} send tickets (GASNET_PORTAL_MSG_LIMIT)",
                settings.msg_limit
            ),
            Awaits::Chunk => format!(
                "for one of {} chunks (GASNET_PORTAL_SB_CHUNKS)",
                settings.sb_chunks
            ),
            Awaits::Descriptor => format!(
                "for one of {} descriptors (GASNET_PORTAL_NUM_TMPMD)",
                settings.num_tmpmd
            ),
            Awaits::Answers => "for answers to its requests".into(),
            Awaits::Handlers => "for a handler on another thread".into(),
            Awaits::Barrier => match &self.barriers.lack()[..] {
                [] => "for a barrier".into(),
                lack => format!("for {}", ranks(lack)),
            },
        }
    }

    /// Lists the unfinished work of this rank.
    fn under_way(&self) -> Vec<String> {
        let mut all = Vec::new();
        let operations = self.kernel.operations.under_way(None);
        for (peer, count) in operations.iter().take(MOST_NAMED) {
            all.push(match peer {
                Some(peer) => format!("{} on rank {peer}", counted(*count, "operation")),
                None => counted(*count, "collective operation"),
            });
        }
        if let Some(more) = operations.get(MOST_NAMED..).filter(|more| !more.is_empty()) {
            let count = more.iter().map(|(_, count)| count).sum();
            let word = counted(count, "operation");
            all.push(format!("{word} on {} other ranks", more.len()));
        }
        let collect = |peers| self.messages.credits.collect_of(self.kernel, peers);
        // An invalid credit counter is ignored here, because the next request reports it.
        let _ = collect(0..self.kernel.job.size);
        let requests = self.messages.credits.flow.outstanding();
        if requests > 0 {
            use credits::FlowControl as _;
            let flow = &self.messages.credits.flow;
            let asked = |peer: &Rank| flow.look(*peer, |policy| policy.in_flight(*peer)) > 0;
            let asked: Vec<_> = (0..self.kernel.job.size).filter(asked).collect();
            let word = counted(requests, "request");
            all.push(match &asked[..] {
                [] => format!("{word} unanswered"),
                asked => format!("{word} unanswered by {}", ranks(asked)),
            });
        }
        if self.messages.replies.is_waiting() {
            all.push("a reply waits for room".into());
        }
        let lack = self.barriers.lack();
        if !lack.is_empty() {
            all.push(format!("a barrier lacks {}", ranks(&lack)));
        }
        for (kind, lack) in self.collectives.lack() {
            all.push(match &lack[..] {
                [] => format!("{kind} has messages to send"),
                lack => format!("{kind} lacks {}", ranks(lack)),
            });
        }
        all
    }
}
