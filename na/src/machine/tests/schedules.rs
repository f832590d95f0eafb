//! Random schedules of all operations, with the invariants that must hold in each.

use proptest::prelude::*;

use super::*;

const PROCESSES: usize = 3;
const BYTES: usize = 12_000;

#[derive(Debug, Clone)]
enum Step {
    Send {
        from: usize,
        to: usize,
        length: usize,
        is_expected: bool,
    },
    ReceiveUnexpected {
        at: usize,
        several: bool,
    },
    ReceiveExpected {
        at: usize,
        from: usize,
    },
    Transfer {
        from: usize,
        to: usize,
        is_put: bool,
        length: usize,
    },
    Cancel {
        at: usize,
        which: usize,
    },
    Progress {
        at: usize,
    },
    EndSession {
        at: usize,
        with: usize,
    },
    Restart {
        at: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let p = || 0..PROCESSES;
    prop_oneof![
        4 => (p(), p(), prop_oneof![0usize..40, 600usize..4096], any::<bool>())
            .prop_map(|(from, to, length, is_expected)| Step::Send { from, to, length, is_expected }),
        3 => (p(), any::<bool>()).prop_map(|(at, several)| Step::ReceiveUnexpected { at, several }),
        3 => (p(), p()).prop_map(|(at, from)| Step::ReceiveExpected { at, from }),
        3 => (p(), p(), any::<bool>(), 0usize..BYTES)
            .prop_map(|(from, to, is_put, length)| Step::Transfer { from, to, is_put, length }),
        2 => (p(), 0usize..100).prop_map(|(at, which)| Step::Cancel { at, which }),
        20 => p().prop_map(|at| Step::Progress { at }),
        1 => (p(), p()).prop_map(|(at, with)| Step::EndSession { at, with }),
        1 => p().prop_map(|at| Step::Restart { at }),
    ]
}

/// A process and its operations.
struct Actor {
    process: Process,
    memory: Vec<u8>,
    key: MemoryKey,
    /// Operations, by cookie.
    begun: Vec<OperationId>,
    ended: Vec<bool>,
    /// The local memory of transfers, which must outlive them.
    locals: Vec<Box<[u8]>>,
}

impl Actor {
    fn new(hub: &Hub, address: usize, copies: bool) -> Self {
        let mut process = Process::new(hub, address as u8, copies);
        let mut memory = vec![address as u8; BYTES];
        let (key, _) = process.register(&mut memory, Rights::ReadWrite);
        Self {
            process,
            memory,
            key,
            begun: Vec::new(),
            ended: Vec::new(),
            locals: Vec::new(),
        }
    }

    fn cookie(&self) -> u64 {
        self.begun.len() as u64
    }

    fn begin(&mut self, id: OperationId) {
        self.begun.push(id);
        self.ended.push(false);
    }

    fn to(&mut self, own: usize, address: usize) -> Rank {
        match own == address {
            true => SELF,
            false => self.process.peer(address as u8),
        }
    }

    /// Checks that each operation ends once.
    fn check(&mut self) {
        for completion in std::mem::take(&mut self.process.ended) {
            let cookie = completion.cookie as usize;
            let goes_on = matches!(
                completion.result,
                Ok(Outcome::Unexpected { last: false, .. })
            );
            assert!(!self.ended[cookie], "{completion:?} ended before");
            self.ended[cookie] = !goes_on;
            if let Ok(Outcome::Unexpected { source, .. }) = completion.result {
                self.process.machine.release(source);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn every_operation_ends_once(copies: bool, steps in prop::collection::vec(step(), 1..200)) {
        let hub = Hub::default();
        let mut actors: Vec<_> = (0..PROCESSES).map(|at| Actor::new(&hub, at, copies)).collect();
        let mut graveyard = Vec::new();
        for step in steps {
            match step {
                Step::Send { from, to, length, is_expected } => {
                    let actor = &mut actors[from];
                    let peer = actor.to(from, to);
                    let cookie = actor.cookie();
                    let bytes = &*Box::leak(vec![7; length].into_boxed_slice());
                    let id = actor.process.send(peer, cookie, bytes, 1, is_expected);
                    actor.begin(id);
                    actor.process.machine.release(peer);
                }
                Step::ReceiveUnexpected { at, several } => {
                    let actor = &mut actors[at];
                    let cookie = actor.cookie();
                    let buffer = Process::buffer(if several { 9000 } else { 4096 });
                    let id = actor.process.machine.receive_unexpected(0, cookie, buffer, several).unwrap();
                    actor.begin(id);
                }
                Step::ReceiveExpected { at, from } => {
                    let actor = &mut actors[at];
                    let peer = actor.to(at, from);
                    let cookie = actor.cookie();
                    let id = actor.process.machine.receive_expected(0, cookie, Process::buffer(4096), (peer, 0), 1).unwrap();
                    actor.begin(id);
                    actor.process.machine.release(peer);
                }
                Step::Transfer { from, to, is_put, length } => {
                    let key = actors[to].key;
                    let actor = &mut actors[from];
                    let peer = actor.to(from, to);
                    let cookie = actor.cookie();
                    let mut local = vec![9; length.max(3)].into_boxed_slice();
                    let segments = of(&mut local);
                    actor.locals.push(local);
                    let id = actor.process.transfer(cookie, peer, is_put, &segments, key, (0, length as u64));
                    actor.begin(id);
                    actor.process.machine.release(peer);
                }
                Step::Cancel { at, which } => {
                    let actor = &mut actors[at];
                    if let Some(id) = actor.begun.get(which) {
                        actor.process.machine.cancel(*id);
                    }
                }
                Step::Progress { at } => {
                    actors[at].process.step();
                }
                Step::EndSession { at, with } => {
                    if at != with {
                        // End the session as if the peer had been found dead.
                        let actor = &mut actors[at];
                        let peer = actor.to(at, with);
                        actor.process.node.end_session(peer);
                        actor.process.machine.session_ended(peer, &Error::GivenUp, true);
                        actor.process.machine.release(peer);
                    }
                }
                Step::Restart { at } => {
                    hub.kill(at as u8);
                    graveyard.push(std::mem::replace(&mut actors[at], Actor::new(&hub, at, copies)));
                }
            }
            for actor in &mut actors {
                actor.check();
            }
        }
        // Cancel the waiting operations. Then all operations must have ended, whatever was lost.
        for _ in 0..2 {
            let mut processes: Vec<_> = actors.iter_mut().map(|actor| &mut actor.process).collect();
            settle(&mut processes);
            for actor in &mut actors {
                actor.process.machine.cancel_all();
            }
        }
        let mut processes: Vec<_> = actors.iter_mut().map(|actor| &mut actor.process).collect();
        settle(&mut processes);
        for actor in &mut actors {
            actor.check();
            prop_assert!(actor.ended.iter().all(|ended| *ended), "{:?}", actor.ended);
            prop_assert_eq!(actor.process.machine.operation_count(), 0);
            prop_assert_eq!(actor.process.machine.counters().protocol_errors, 0);
            prop_assert!(actor.memory.iter().all(|byte| [0, 1, 2, 9].contains(byte)));
        }
    }
}
