//! The simulated job: all its ranks, and its time.
//!
//! Ranks interact only through messages, and a message takes at least the latency. Therefore,
//! within a window of time as long as the latency, no rank can notice what another rank does in the
//! same window. The ranks are simulated window by window, one after another or in parallel, without
//! a common queue of events. Their messages are exchanged at the end of the window.

use credits::Violation;
use rayon::prelude::*;

use crate::config::{Config, ConfigError, Subject};
use crate::part::{Broken, Costs, Outboxes, Part};
use crate::pattern::Programs;
use crate::report::{Counts, Step};

/// The reason why a simulation ended early.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimError {
    /// The simulation could not start.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The threads could not be started.
    #[error("cannot start {threads} threads: {reason}")]
    Threads {
        /// The number of threads.
        threads: usize,
        /// The reason.
        reason: String,
    },
    /// A rank's flow control refused a message from another rank.
    #[error("rank {rank} at {time} ns: {violation}")]
    Violation {
        /// The rank that refused the message.
        rank: u32,
        /// The time.
        time: u64,
        /// The reason.
        violation: Violation,
    },
    /// More requests were in transit to a rank than its buffers hold.
    #[error(
        "rank {rank} at {time} ns: requests worth {credits} credits are in transit to it, it has {total}"
    )]
    Overflow {
        /// The rank.
        rank: u32,
        /// The time.
        time: u64,
        /// The size, in credits, of the requests in transit.
        credits: u64,
        /// The total number of the rank's credits.
        total: u64,
    },
    /// Ranks wait forever.
    #[error("rank {rank} waits forever for {}, as do {ranks} ranks in total", if *credits { "credits" } else { "messages" })]
    Deadlock {
        /// A rank that waits.
        rank: u32,
        /// Whether it waits for credits.
        credits: bool,
        /// The number of waiting ranks.
        ranks: u32,
    },
    /// All ranks have ended the step, but credits have not come to rest.
    #[error(
        "rotation {rotation}, step {step}: credits still move after {messages} messages, with nothing to send"
    )]
    Restless {
        /// The rotation.
        rotation: u32,
        /// The step.
        step: u32,
        /// The number of messages so far.
        messages: u64,
    },
    /// Two ranks at rest disagree about a loan.
    #[error(
        "rank {lender} has lent rank {borrower} {lent} credits, rank {borrower} has {borrowed}"
    )]
    Unbalanced {
        /// The lender.
        lender: u32,
        /// The borrower.
        borrower: u32,
        /// The number of credits lent, according to the lender.
        lent: u32,
        /// The number of credits that the borrower has.
        borrowed: u32,
    },
    /// Some of a rank's credits are missing, or there are too many.
    #[error("rank {rank} has {credits} credits, banked and lent, expected {total}")]
    Lost {
        /// The rank.
        rank: u32,
        /// The number of credits found.
        credits: u64,
        /// The number of credits at the start.
        total: u64,
    },
}

/// The number of windows after a step's end within which credits must come to rest. A message in
/// each direction takes two windows.
const REST: u64 = 100_000;

/// The maximum number of ranks with which all loans are added up after each rotation. In larger
/// jobs, only the loans between partners are compared.
const ADD_UP: u32 = 2048;

/// The number of ranks in a part. It is so small that a processor's cache holds their state, a few
/// KiB each, while they are simulated.
const PART: u32 = 512;

/// A job in progress.
pub(crate) struct World<'a, F> {
    config: &'a Config,
    costs: Costs,
    parts: Vec<Part<F>>,
    /// The messages that each part sent in the previous window.
    mail: Vec<Outboxes>,
    /// The number of ranks in each part.
    size: u32,
    pool: Option<rayon::ThreadPool>,
    now: u64,
    total: Option<u64>,
    pub(crate) events: u64,
    pub(crate) largest_loan: u64,
}

impl<'a, F: Subject> World<'a, F> {
    /// Creates a job whose ranks have `total` credits each and the flow control that `flow` returns
    /// for them.
    pub(crate) fn new(
        config: &'a Config,
        total: Option<u64>,
        flow: impl Fn(u32) -> F + Sync,
    ) -> Result<World<'a, F>, SimError> {
        let threads = config.threads.min(config.ranks as usize).max(1);
        let size = config.ranks.div_ceil(threads as u32).min(PART);
        let count = config.ranks.div_ceil(size) as usize;
        let pool = if threads > 1 {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            Some(pool.map_err(|error| SimError::Threads {
                threads,
                reason: error.to_string(),
            })?)
        } else {
            None
        };
        let parts = (0..count as u32).map(|part| {
            let first = part * size;
            Part::new(first, (first + size).min(config.ranks), size, count, &flow)
        });
        Ok(World {
            costs: Costs::new(config, total),
            parts: parts.collect(),
            mail: vec![vec![Vec::new(); count]; count],
            size,
            pool,
            now: 0,
            total,
            events: 0,
            largest_loan: 0,
            config,
        })
    }

    /// Simulates the steps of a rotation, and checks that no credit was lost.
    pub(crate) fn rotation(
        &mut self,
        rotation: u32,
        steps: u32,
        mut after: impl FnMut(),
    ) -> Result<Vec<Step>, SimError> {
        let programs = Programs::new(self.config, rotation);
        self.parts.iter_mut().for_each(Part::change_pattern);
        let mut done = Vec::new();
        for step in 0..steps {
            done.push(self.step(&programs, rotation, step)?);
            after();
        }
        self.check(&programs)?;
        Ok(done)
    }

    fn step(&mut self, programs: &Programs, rotation: u32, step: u32) -> Result<Step, SimError> {
        let start = self.now;
        let number = u64::from(rotation) * u64::from(self.config.steps) + u64::from(step);
        for part in &mut self.parts {
            part.begin(programs, &self.costs, start, number);
        }
        let mut ended = false;
        let mut windows = 0;
        loop {
            let next = self.parts.iter().map(|part| part.due).min();
            let Some(next) = next.filter(|&next| next < u64::MAX) else {
                break;
            };
            self.window(programs, next + self.costs.latency())?;
            if ended {
                windows += 1;
                if windows > REST {
                    return Err(SimError::Restless {
                        rotation,
                        step,
                        messages: self.counts().system,
                    });
                }
            } else {
                ended = self.finished() == self.config.ranks;
            }
            self.now = next;
        }
        if let Some((rank, credits)) = self.parts.iter().find_map(Part::unfinished) {
            return Err(SimError::Deadlock {
                rank,
                credits,
                ranks: self.config.ranks - self.finished(),
            });
        }
        let end = self.parts.iter().map(|part| part.finished_at).max();
        let end = end.unwrap_or(start);
        self.now = self.now.max(end) + self.barrier();
        let counts = self.counts();
        debug_assert_eq!(counts.requests, programs.requests());
        debug_assert_eq!(counts.requests, counts.served);
        self.events += counts.all_events();
        self.largest_loan = self.largest_loan.max(counts.loan);
        let served = || self.parts.iter().flat_map(Part::served);
        Ok(Step {
            rotation,
            step,
            time_ns: end - start,
            requests: counts.requests,
            system: counts.system,
            grants: counts.grants,
            granted: counts.granted,
            returned: counts.returned,
            stalls: counts.stalls,
            stalled_ns: counts.stalled_ns as f64 / f64::from(self.config.ranks),
            waiting: counts.waiting,
            served: (
                served().max().unwrap_or(0),
                crate::report::mean(served().map(f64::from)).unwrap_or(0.0),
            ),
        })
    }

    /// Simulates all actions that begin before `end`, and exchanges the messages.
    fn window(&mut self, programs: &Programs, end: u64) -> Result<(), SimError> {
        let costs = &self.costs;
        let mail = &self.mail;
        let parts = &mut self.parts;
        let work = |part: &mut Part<F>| part.advance(mail, programs, costs, end);
        match &self.pool {
            None => parts.iter_mut().for_each(work),
            Some(pool) => pool.install(|| parts.par_iter_mut().for_each(work)),
        }
        for (part, sent) in parts.iter_mut().zip(&mut self.mail) {
            std::mem::swap(&mut part.outboxes, sent);
        }
        let faults = self.parts.iter().filter_map(|part| part.fault);
        match faults.min_by_key(|fault| (fault.time, fault.rank)) {
            None => Ok(()),
            Some(fault) => Err(match fault.what {
                Broken::Rules(violation) => SimError::Violation {
                    rank: fault.rank,
                    time: fault.time,
                    violation,
                },
                Broken::Occupancy { credits } => SimError::Overflow {
                    rank: fault.rank,
                    time: fault.time,
                    credits,
                    total: self.total.unwrap_or(0),
                },
            }),
        }
    }

    /// Returns the duration of a barrier between steps, which takes a round of messages for each
    /// doubling of the number of ranks.
    fn barrier(&self) -> u64 {
        u64::from(u32::BITS - self.config.ranks.leading_zeros()) * self.costs.latency()
    }

    fn finished(&self) -> u32 {
        self.parts.iter().map(|part| part.finished).sum()
    }

    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.parts.iter().for_each(|part| sum.add(&part.counts));
        sum
    }

    fn flow(&self, rank: u32) -> &F {
        self.parts[(rank / self.size) as usize].flow(rank)
    }

    /// Returns the average number of peers whose state a rank keeps.
    pub(crate) fn peers_kept(&self) -> Option<f64> {
        let flows = self.parts.iter().flat_map(Part::flows);
        let sum: Option<u64> = flows.map(Subject::peers_kept).sum();
        sum.map(|sum| sum as f64 / f64::from(self.config.ranks))
    }

    /// Checks, while nothing is in transit, that loans match on both sides and that no credits are
    /// missing.
    fn check(&self, programs: &Programs) -> Result<(), SimError> {
        let Some(total) = self.total else {
            return Ok(());
        };
        let pair = |lender: u32, borrower: u32| -> Result<u64, SimError> {
            let lent = self.flow(lender).loan(borrower).unwrap_or(0);
            let flow = self.flow(borrower);
            let borrowed = flow.available(lender);
            if lent != borrowed || flow.in_flight(lender) != 0 {
                return Err(SimError::Unbalanced {
                    lender,
                    borrower,
                    lent,
                    borrowed,
                });
            }
            Ok(lent.into())
        };
        for rank in 0..self.config.ranks {
            for partner in programs.partners(rank) {
                pair(partner, rank)?;
            }
            if self.config.ranks <= ADD_UP {
                let mut credits = u64::from(self.flow(rank).banked());
                for borrower in 0..self.config.ranks {
                    credits += pair(rank, borrower)?;
                }
                if credits != total {
                    return Err(SimError::Lost {
                        rank,
                        credits,
                        total,
                    });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pattern, Scheme};
    use credits::{CreditByte, FlowControl, Short, Static, System};

    /// The rule that the test's flow control breaks.
    #[derive(Clone, Copy, PartialEq)]
    enum How {
        NotAtAll,
        TakesNothing,
        LosesReplies,
        GivesTooMuchBack,
        Asks,
        MiscountsLoans,
        MiscountsBank,
    }

    /// Static credits, with a fault at rank 3.
    struct Faulty {
        flow: Static,
        how: How,
    }

    impl FlowControl for Faulty {
        fn lent(&self, peer: u32) -> u32 {
            self.flow.lent(peer)
        }

        fn take(&mut self, peer: u32, credits: u8) -> Result<CreditByte, Short> {
            let taken = self.flow.take(peer, credits);
            if self.how == How::TakesNothing {
                return Ok(CreditByte::new(false, 0, credits));
            }
            taken
        }

        fn give_back(&mut self, peer: u32, byte: CreditByte) {
            self.flow.give_back(peer, byte);
        }

        fn grant(&mut self, peer: u32, byte: CreditByte) -> CreditByte {
            let byte = self.flow.grant(peer, byte);
            if self.how == How::GivesTooMuchBack {
                return CreditByte::new(false, 0, 15);
            }
            byte
        }

        fn settle(&mut self, peer: u32, byte: CreditByte) -> Result<(), Violation> {
            match self.how {
                How::LosesReplies | How::TakesNothing => Ok(()),
                _ => self.flow.settle(peer, byte),
            }
        }

        fn settle_many(&mut self, peer: u32, credits: u32, epochs: u32) -> Result<(), Violation> {
            self.flow.settle_many(peer, credits, epochs)
        }

        fn on_system(&mut self, _: u32, message: System) -> Result<Option<System>, Violation> {
            let end_of_epoch = false;
            Ok(match message {
                System::Revoke { .. } => Some(System::Return {
                    credits: 0,
                    end_of_epoch,
                }),
                // The fault: the rank asks again and again.
                System::Return { .. } => Some(System::Revoke { end_of_epoch }),
            })
        }

        fn next_system(&mut self) -> Option<(u32, System)> {
            if self.how != How::Asks {
                return None;
            }
            self.how = How::NotAtAll;
            let end_of_epoch = false;
            Some((1, System::Revoke { end_of_epoch }))
        }

        fn available(&self, peer: u32) -> u32 {
            self.flow.available(peer)
        }

        fn in_flight(&self, peer: u32) -> u32 {
            self.flow.in_flight(peer)
        }

        fn stalls(&self, peer: u32) -> u64 {
            self.flow.stalls(peer)
        }

        fn banked(&self) -> u32 {
            u32::from(self.how == How::MiscountsBank)
        }

        fn revoked(&self, _: u32) -> u64 {
            0
        }
    }

    impl Subject for Faulty {
        fn loan(&self, _: u32) -> Option<u32> {
            Some(if self.how == How::MiscountsLoans {
                9
            } else {
                8
            })
        }

        fn peers_kept(&self) -> Option<u64> {
            None
        }
    }

    fn simulate(how: How) -> Result<Vec<Step>, SimError> {
        let config = Config {
            scheme: Scheme::Static { credits: 8 },
            ..Config::new(12, Pattern::Ghost)
        };
        let flow = |rank| Faulty {
            flow: Static::new(12, 8, 0),
            how: if rank == 3 { how } else { How::NotAtAll },
        };
        World::new(&config, Some(96), flow)?.rotation(0, 1, || {})
    }

    #[test]
    fn a_flow_control_that_keeps_the_rules_passes() {
        assert!(simulate(How::NotAtAll).is_ok());
    }

    #[test]
    fn faults_of_a_flow_control_are_found() {
        let overflow = simulate(How::TakesNothing);
        assert!(
            matches!(overflow, Err(SimError::Overflow { total: 96, .. })),
            "{overflow:?}"
        );
        let deadlock = simulate(How::LosesReplies);
        let waiting = SimError::Deadlock {
            rank: 3,
            credits: true,
            ranks: 1,
        };
        assert_eq!(deadlock, Err(waiting));
        let violation = simulate(How::GivesTooMuchBack);
        assert!(
            matches!(
                violation,
                Err(SimError::Violation {
                    violation: Violation::TooManyReturned { peer: 3, .. },
                    ..
                })
            ),
            "{violation:?}"
        );
        let restless = simulate(How::Asks);
        assert!(
            matches!(restless, Err(SimError::Restless { .. })),
            "{restless:?}"
        );
        let unbalanced = simulate(How::MiscountsLoans);
        assert!(
            matches!(unbalanced, Err(SimError::Unbalanced { lender: 3, .. })),
            "{unbalanced:?}"
        );
        let lost = simulate(How::MiscountsBank);
        let one_too_many = SimError::Lost {
            rank: 3,
            credits: 97,
            total: 96,
        };
        assert_eq!(lost, Err(one_too_many));
    }
}
