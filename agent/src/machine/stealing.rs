//! Load balancing between the agents of a node. An agent that has nothing to request (the thief)
//! takes over parts of long messages from an agent with a backlog (the owner). The owner continues
//! to handle eager messages, ordering, responses and failures.
//!
//! ```text
//! thief                    owner                     source's agent
//!   │ ◀── backlog ─────────── │ ◀── name of memory ────── │      thief's peer there
//!   │ ─── steal ────────────▶ │                           │              │
//!   │ ◀── part, both names ── │                           │              │
//!   │ ─── pull part ──────────┼───────────────────────────┼────────────▶ │
//!   │ ◀─────────────────────────────────────────────── strips ────────── │
//!   │ ─── return ───────────▶ │ ─── settle ─────────────▶ │
//!   │                         │ ◀── settled ───────────── │
//! ```
//!
//! - A thief writes into the owner's memory, so the owner keeps the memory until the thief has
//!   returned the part or has ended. An owner that no longer wants the part, or has waited too long
//!   for it, recalls it. The thief stops writing before it answers the recall.
//! - The thief's peer reads memory that the source's agent may have freed, for example after it
//!   lost its session with the owner. The owner therefore delivers a message only after the
//!   source's agent has confirmed, in its session with the owner, that it still keeps the
//!   memory.
//! - Only memory that the agent [owns](Memory::is_own) is lent. A process may reuse its own memory
//!   as soon as its request has ended, and the agent cannot delay that.

use std::collections::BTreeMap;

use super::state::bulk::{For, Origin, Pulled};
use super::state::stealing::{
    AGAIN, EVENTS, LATE, Loan, MAX_LOANS, MAX_PARTS, Part, SHUN, STRIPS, Sibling, Tells, Wanted,
};
use super::wire::{Content, Fragment, Sent};
use super::{AgentMachine, ProtocolError};
use crate::host::{Host, MAX_DESCRIPTOR, Memory, Nanos, SiblingEvent};

impl<H: Host> AgentMachine<H> {
    /// Returns whether a message of this length to a node is announced with the name of its memory,
    /// so that the node's agents can lend each other parts of the message.
    pub(super) fn is_shared(&self, node: u32, length: usize) -> bool {
        !self.stealing.siblings.is_empty()
            && node != self.own
            && length as u64 * STRIPS >= self.limits.strip.into()
    }

    pub(super) fn siblings_due(&self) -> Option<Nanos> {
        let stealing = &self.stealing;
        let waits = stealing.siblings.values().any(|s| !s.out.is_empty());
        let told = waits.then_some(self.now + AGAIN);
        if !self.bulk.asks_nothing() {
            return told;
        }
        let loans = stealing.loans.iter().map(|(_, loan)| loan);
        let late = loans
            .filter(|loan| !loan.is_recalled)
            .map(|loan| loan.late_at);
        let asks = (stealing.asked.is_none() && self.room().is_some())
            .then_some(&stealing.siblings)
            .into_iter()
            .flat_map(BTreeMap::values)
            .filter(|sibling| sibling.has_backlog)
            .map(|sibling| sibling.ask_at);
        late.chain(asks).chain(told).min()
    }

    /// Returns the maximum length of a part in bytes. A part is requested as a whole.
    fn longest_part(&self) -> u64 {
        let strip = u64::from(self.limits.strip);
        (STRIPS * strip).min(self.limits.ejection.max(strip))
    }

    /// Returns the maximum length of a part if the ejection budget has room for a part of that
    /// length now.
    fn room(&self) -> Option<u64> {
        let (most, ejected) = (self.longest_part(), self.bulk.ejected);
        (ejected == 0 || ejected + most <= self.limits.ejection).then_some(most)
    }

    // ---- messages from siblings ----

    pub(super) fn hear_siblings(&mut self, host: &mut H) -> bool {
        let mut did = false;
        for _ in 0..EVENTS {
            let next = host.siblings().and_then(|siblings| siblings.next());
            let Some((sibling, event)) = next else {
                break;
            };
            did = true;
            match event {
                SiblingEvent::Joined => {
                    tracing::debug!(sibling, "another agent of this node has joined");
                    self.stealing.siblings.insert(sibling, Sibling::default());
                    if self.stealing.offers {
                        self.stealing.tell(sibling, &Tells::Backlog(true));
                    }
                }
                SiblingEvent::Message(bytes) => {
                    let known = self.stealing.siblings.get(&sibling);
                    if known.is_none_or(|known| known.is_broken) {
                        continue;
                    }
                    let tells = Tells::decode(&bytes).ok_or(ProtocolError);
                    if tells
                        .and_then(|tells| self.on_told(sibling, tells))
                        .is_err()
                    {
                        tracing::error!(
                            sibling,
                            "another agent of this node violated the protocol"
                        );
                        self.counters.protocol_errors += 1;
                        self.part_from(sibling, host);
                    }
                }
                SiblingEvent::Ended => {
                    self.part_from(sibling, host);
                    self.stealing.siblings.remove(&sibling);
                    let loans = self.stealing.loans.iter();
                    let its = loans.filter(|(_, loan)| loan.sibling == sibling);
                    for loan in its.map(|(loan, _)| loan).collect::<Vec<_>>() {
                        self.lent_back(loan, false);
                    }
                }
            }
        }
        did
    }

    fn on_told(&mut self, from: u32, tells: Tells) -> Result<(), ProtocolError> {
        let now = self.now;
        let sibling = self.stealing.siblings.get_mut(&from);
        let sibling = sibling.ok_or(ProtocolError)?;
        let is_answer = matches!(tells, Tells::Nothing | Tells::Part(_));
        if is_answer
            && self
                .stealing
                .asked
                .take_if(|asked| *asked == from)
                .is_none()
        {
            return Err(ProtocolError);
        }
        match tells {
            Tells::Backlog(there_is) => (sibling.has_backlog, sibling.ask_at) = (there_is, now),
            Tells::Steal { most } => {
                let may = now >= sibling.lend_at && sibling.loans < MAX_LOANS;
                let part = match may {
                    true => self.lend(from, most),
                    false => None,
                };
                let answer = part.map_or(Tells::Nothing, Tells::Part);
                self.stealing.tell(from, &answer);
            }
            Tells::Nothing => sibling.ask_at = now + AGAIN,
            Tells::Part(part) => self.take_part(from, part)?,
            Tells::Recall { loan } => {
                // If the part has been returned already, there is nothing to do.
                if let Some(&arrival) = self.stealing.stolen.get(&(from, loan)) {
                    self.let_go(arrival);
                    self.give_back(from, loan, false);
                }
            }
            Tells::Return { loan, is_done } => {
                let known = self.stealing.loans.get(loan as usize);
                if known.is_none_or(|known| known.sibling != from) {
                    return Err(ProtocolError);
                }
                self.lent_back(loan as usize, is_done);
            }
        }
        Ok(())
    }

    /// Stops the exchange with a sibling. The parts that this agent has lent to the sibling are
    /// still lent.
    fn part_from(&mut self, sibling: u32, host: &mut H) {
        let stolen = self.stealing.stolen.iter();
        let its = stolen.filter(|((of, _), _)| *of == sibling);
        for arrival in its.map(|(_, arrival)| *arrival).collect::<Vec<_>>() {
            self.let_go(arrival);
        }
        self.stealing.stolen.retain(|(of, _), _| *of != sibling);
        self.stealing.asked.take_if(|asked| *asked == sibling);
        if let Some(sibling) = self.stealing.siblings.get_mut(&sibling) {
            sibling.is_broken = true;
            sibling.has_backlog = false;
            sibling.out.clear();
        }
        if let Some(siblings) = host.siblings() {
            siblings.end(sibling);
        }
    }

    pub(super) fn leave_siblings(&mut self, host: &mut H) {
        let siblings = self.stealing.siblings.keys();
        for sibling in siblings.copied().collect::<Vec<_>>() {
            self.part_from(sibling, host);
        }
    }

    // ---- the owner ----

    /// Returns the number of bytes that can be lent to siblings now.
    fn backlog(&self) -> u64 {
        let hungry = self.bulk.hungry.iter();
        let arrivals = hungry.filter_map(|key| self.bulk.arrivals.get(*key as usize));
        arrivals.map(|arrival| arrival.lendable()).sum()
    }

    fn lend(&mut self, sibling: u32, most: u64) -> Option<Part> {
        if !self.stealing.offers {
            return None;
        }
        let lendable = |key: u32| {
            let arrival = self.bulk.arrivals.get(key as usize);
            arrival.map_or(0, |arrival| arrival.lendable())
        };
        let hungry = self.bulk.hungry.iter().copied();
        let arrival = hungry.max_by_key(|key| lendable(*key))?;
        let most = most.min(STRIPS * u64::from(self.limits.strip));
        if most == 0 || lendable(arrival) == 0 {
            return None;
        }
        let lent = self.bulk.arrivals.get_mut(arrival as usize)?;
        let [name, destination] = lent.names()?;
        let (node, part) = (lent.node, lent.lend(most));
        // The cast is lossless: the number of loans is limited.
        let loan = self.stealing.loans.vacant_key() as u32;
        let told = Part {
            loan,
            host: self.nodes[node as usize].host,
            offset: part.start,
            length: part.end - part.start,
            name,
            destination,
        };
        self.stealing.loans.insert(Loan {
            sibling,
            arrival,
            part,
            late_at: self.now + LATE,
            is_recalled: false,
        });
        if let Some(sibling) = self.stealing.siblings.get_mut(&sibling) {
            sibling.loans += 1;
        }
        Some(told)
    }

    /// Recalls the parts of an arrival that are lent to siblings.
    pub(super) fn recall(&mut self, arrival: u32) {
        self.recall_those(|loan| loan.arrival == arrival);
    }

    fn recall_those(&mut self, which: impl Fn(&Loan) -> bool) -> bool {
        let loans = self.stealing.loans.iter_mut();
        let recalled: Vec<_> = loans
            .filter(|(_, loan)| !loan.is_recalled && which(loan))
            .map(|(key, loan)| {
                loan.is_recalled = true;
                // The cast is lossless: the number of loans is limited.
                (loan.sibling, key as u32)
            })
            .collect();
        for (sibling, loan) in &recalled {
            self.stealing.tell(*sibling, &Tells::Recall { loan: *loan });
        }
        !recalled.is_empty()
    }

    /// Takes back a lent part. Unless `is_done`, this agent requests the part itself.
    fn lent_back(&mut self, loan: usize, is_done: bool) {
        let loan = self.stealing.loans.remove(loan);
        let key = loan.arrival;
        let arrival = self.bulk.arrivals.get_mut(key as usize);
        let is_hungry = arrival.is_some_and(|arrival| arrival.lent_back(loan.part, is_done));
        if is_hungry && !self.bulk.hungry.contains(&key) {
            self.bulk.hungry.push(key);
        }
        if let Some(sibling) = self.stealing.siblings.get_mut(&loan.sibling) {
            sibling.loans -= 1;
            if is_hungry {
                sibling.lend_at = self.now + SHUN;
            }
        }
        self.arrival_goes_on(key);
    }

    // ---- the thief ----

    fn take_part(&mut self, from: u32, part: Part) -> Result<(), ProtocolError> {
        let end = part.offset.checked_add(part.length);
        let is_sound = (1..=self.longest_part()).contains(&part.length)
            && !self.stealing.stolen.contains_key(&(from, part.loan))
            && part.name.len().max(part.destination.len()) <= MAX_DESCRIPTOR;
        let end = end.filter(|_| is_sound).ok_or(ProtocolError)?;
        let loan = part.loan;
        let node = self.by_host.get(&part.host);
        let Some(&node) = node.filter(|node| **node != self.own) else {
            let is_done = false;
            self.stealing.tell(from, &Tells::Return { loan, is_done });
            return Ok(());
        };
        let nothing = Sent {
            hints: 0,
            client: 0,
            content: Content::Eager(&[]),
        };
        let origin = Origin::Part {
            name: part.name,
            destination: part.destination,
        };
        let of = For::Loan(from, loan);
        let arrival = self.add_arrival(node, &nothing, part.offset..end, origin, of);
        self.stealing.stolen.insert((from, loan), arrival);
        Ok(())
    }

    /// Returns a part to the sibling that lent it; `is_done` says whether the part has arrived.
    /// Nothing may write to the part's memory after the call.
    pub(super) fn give_back(&mut self, sibling: u32, loan: u32, is_done: bool) {
        if self.stealing.stolen.remove(&(sibling, loan)).is_none() {
            return;
        }
        tracing::debug!(
            sibling,
            is_done,
            "returned a part of a message to another agent"
        );
        match is_done {
            true => self.counters.stolen += 1,
            false => self.counters.given_back += 1,
        }
        self.stealing
            .tell(sibling, &Tells::Return { loan, is_done });
    }

    // ---- messages to siblings ----

    pub(super) fn tell_siblings(&mut self, host: &mut H) -> bool {
        if self.stealing.siblings.is_empty() {
            return false;
        }
        let mut did = false;
        let least = match self.stealing.offers {
            true => self.limits.backlog / 2,
            false => self.limits.backlog,
        };
        let offers = self.backlog() >= least.max(1);
        if offers != self.stealing.offers {
            tracing::debug!(
                offers,
                "backlog state announced to other agents of this node"
            );
            self.stealing.offers = offers;
            for sibling in self.stealing.siblings.values_mut() {
                sibling.out.push_back(Tells::Backlog(offers).encode());
            }
        }
        if self.bulk.asks_nothing() {
            self.steal();
            let now = self.now;
            did |= self.recall_those(|loan| loan.late_at <= now);
        }
        for (&number, sibling) in &mut self.stealing.siblings {
            while let Some(message) = sibling.out.front()
                && host
                    .siblings()
                    .is_some_and(|siblings| siblings.send(number, message))
            {
                sibling.out.pop_front();
                did = true;
            }
        }
        did
    }

    /// Asks a random sibling that has a backlog for a part.
    fn steal(&mut self) {
        if self.stealing.asked.is_some() {
            return;
        }
        let Some(most) = self.room() else { return };
        let siblings = self.stealing.siblings.iter();
        let known = siblings.filter(|(_, s)| s.has_backlog && s.ask_at <= self.now);
        let known: Vec<u32> = known.map(|(number, _)| *number).collect();
        if let Some(&sibling) = self.random.choice(&known) {
            self.stealing.asked = Some(sibling);
            self.stealing.tell(sibling, &Tells::Steal { most });
        }
    }

    // ---- the source's side ----

    /// Queues another node's request for a part of memory that a sibling has exported.
    pub(super) fn on_pull_part(
        &mut self,
        node: u32,
        arrival: u32,
        part: (u64, u64),
        name: Box<[u8]>,
    ) -> Result<(), ProtocolError> {
        if part.1 == 0 || name.len() > MAX_DESCRIPTOR || part.0.checked_add(part.1).is_none() {
            return Err(ProtocolError);
        }
        let wanted = Wanted {
            node,
            arrival,
            part,
            name,
        };
        match self.bulk.parts + self.stealing.wanted.len() < MAX_PARTS {
            true => self.stealing.wanted.push_back(wanted),
            false => self.control(node, &Fragment::Refuse { arrival }),
        }
        Ok(())
    }

    pub(super) fn import_parts(&mut self, host: &mut H) -> bool {
        let mut did = false;
        while let Some(wanted) = self.stealing.wanted.pop_front() {
            did = true;
            let (arrival, (offset, length)) = (wanted.arrival, wanted.part);
            let memory = host.import(&wanted.name).ok();
            // The sum cannot overflow: `on_pull_part` checked it when the request arrived.
            match memory.filter(|memory| memory.length() as u64 >= offset + length) {
                Some(memory) => {
                    let part = Pulled {
                        source: 0,
                        arrival,
                        offset,
                        length,
                    };
                    self.give_part(wanted.node, part, memory);
                }
                None => self.control(wanted.node, &Fragment::Refuse { arrival }),
            }
        }
        did
    }

    /// Drops the requests of a node whose session has ended.
    pub(super) fn lose_parts(&mut self, node: u32) {
        self.stealing.wanted.retain(|wanted| wanted.node != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::MAX_SIBLING_MESSAGE;
    use crate::machine::tests::rules::{NOTHING, PEER, machine};

    #[test]
    fn what_is_told_is_read_and_fits() {
        let name: Box<[u8]> = [7; MAX_DESCRIPTOR].into();
        let part = Part {
            loan: 1,
            host: 2,
            offset: 3,
            length: 4,
            destination: name.clone(),
            name,
        };
        for tells in [
            Tells::Backlog(true),
            Tells::Steal { most: 5 },
            Tells::Nothing,
            Tells::Part(part),
            Tells::Recall { loan: 6 },
            Tells::Return {
                loan: 7,
                is_done: true,
            },
        ] {
            let bytes = tells.encode();
            assert!(bytes.len() <= MAX_SIBLING_MESSAGE);
            assert_eq!(Tells::decode(&bytes), Some(tells));
            for end in 0..bytes.len() {
                assert_eq!(Tells::decode(&bytes[..end]), None);
            }
        }
        assert_eq!(Tells::decode(&[9]), None);
    }

    #[test]
    fn parts_that_nodes_want_are_bounded() {
        let mut machine = machine();
        for arrival in 0..MAX_PARTS as u32 + 1 {
            let name = [0].into();
            machine.on_pull_part(PEER, arrival, (0, 1), name).unwrap();
        }
        assert_eq!(machine.stealing.wanted.len(), MAX_PARTS);
    }

    #[test]
    fn an_arrival_that_gets_back_several_parts_is_asked_for_once() {
        let mut machine = machine();
        let origin = Origin::Source {
            source: 0,
            name: Some([0].into()),
        };
        let arrival = machine.add_arrival(PEER, &NOTHING, 0..100, origin, For::Request(0));
        for _ in 0..2 {
            let part = machine.bulk.arrivals[arrival as usize].lend(10);
            machine.stealing.loans.insert(Loan {
                sibling: 0,
                arrival,
                part,
                late_at: 0,
                is_recalled: false,
            });
        }
        machine.lent_back(0, false);
        machine.lent_back(1, false);
        assert_eq!(machine.bulk.hungry, [arrival]);
    }
}
