//! The state machine for one team's collective operations. See [`super`].

use std::collections::VecDeque;

use crate::collectives::buffer::Pool;
use crate::collectives::early::{Early, EarlyMessages};
use crate::collectives::pair::Pair;
use crate::collectives::part::{LinkId, Out, Part, Passing};
use crate::collectives::tree::Tree;
use crate::collectives::{CollectiveKind, Limits, Operand, Shape, Team, Violation};
use crate::ni::Rank;

/// An operation that has been started at this rank.
#[derive(Debug)]
struct Operation<O> {
    shape: Shape,
    operand: O,
    /// The name that [`TeamMachine::ended`] returns when the operation ends.
    name: Option<u64>,
    /// Whether the operation begins only once all earlier operations are over.
    waits: bool,
    /// The number of bytes in the parts that have been created so far.
    split: usize,
    /// The number of parts that have been created and are not over yet.
    running: usize,
}

/// An outgoing message, identified by its part, link and content.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    part: u32,
    link: LinkId,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Ready,
    /// The data of the part from this offset on.
    Data {
        from: usize,
    },
}

/// A message to be sent: its target, its arguments, and the range of its data.
#[derive(Debug)]
#[must_use = "call `TeamMachine::sent` to report whether it was sent"]
pub struct Outgoing {
    /// The target's rank in the job.
    pub target: Rank,
    /// The part's number.
    pub part: u32,
    /// The part's signature, which must be the same on all ranks.
    pub signature: u32,
    /// The offset and length of the data within the part, in bytes; `None` for a ready message.
    pub data: Option<(usize, usize)>,
    transfer: Transfer,
}

/// The next entry for the window of parts.
enum Next {
    Part(Box<Part>),
    /// A part in which this rank has nothing to do.
    Nothing {
        operation: u64,
    },
}

/// The state of one rank in the collective operations of a team. See the [module](super).
///
/// After each call, send the [outgoing messages](Self::outgoing) and check which operations [have
/// ended](Self::ended).
#[derive(Debug)]
pub struct TeamMachine<O> {
    team: Team,
    limits: Limits,
    /// Started operations. The first entry has the number `first_operation`. An entry is `None`
    /// once its operation is over.
    operations: VecDeque<Option<Operation<O>>>,
    first_operation: u64,
    /// The number of the operation from which the next part is taken.
    splitting: u64,
    /// The window of parts in flight. The first entry has the number `first_part`. An entry is
    /// `None` if its part is over or is being handled at the moment.
    parts: VecDeque<Option<Box<Part>>>,
    first_part: u32,
    early: EarlyMessages,
    outbox: VecDeque<Transfer>,
    ended: VecDeque<(u64, O)>,
    pool: Pool,
    /// Finished parts that are kept for reuse, at most as many as the window can hold.
    #[expect(clippy::vec_box, reason = "the boxes themselves are reused")]
    spare: Vec<Box<Part>>,
}

impl<O: Operand> TeamMachine<O> {
    /// Creates the machine of a team before its first operation. All ranks must use the same
    /// limits.
    #[must_use]
    pub fn new(team: Team, limits: Limits) -> Self {
        let limits = limits.sane();
        // Each early data message holds at least one byte, so the byte limit `early` also bounds
        // the number of these messages.
        let records = limits.window as usize * team.size as usize + limits.early;
        Self {
            early: EarlyMessages::new(records, limits.early),
            pool: Pool::new(limits.window as usize, limits.part),
            spare: Vec::new(),
            team,
            limits,
            operations: VecDeque::new(),
            first_operation: 0,
            splitting: 0,
            parts: VecDeque::new(),
            first_part: 0,
            outbox: VecDeque::new(),
            ended: VecDeque::new(),
        }
    }

    /// Returns the team.
    #[must_use]
    pub fn team(&self) -> &Team {
        &self.team
    }

    /// Returns whether no operation is in progress and no ended operation is still to be reported.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.operations.is_empty() && self.parts.is_empty() && self.ended.is_empty()
    }

    /// Starts an operation. `name`, if any, is returned when the operation [has
    /// ended](Self::ended). If `waits` is true, the operation begins at this rank only once all
    /// earlier operations are over here. If the last earlier operation is a barrier, all ranks have
    /// then reached that barrier.
    ///
    /// # Errors
    /// If messages that have already arrived for the operation do not match it.
    pub fn start(
        &mut self,
        shape: Shape,
        operand: O,
        name: Option<u64>,
        waits: bool,
    ) -> Result<(), Violation> {
        self.operations.push_back(Some(Operation {
            shape,
            operand,
            name,
            waits,
            split: 0,
            running: 0,
        }));
        self.fill_window()
    }

    /// Removes an operation that has ended, and returns its name and its operand. The machine no
    /// longer accesses the operand's memory.
    pub fn ended(&mut self) -> Option<(u64, O)> {
        self.ended.pop_front()
    }

    /// Returns whether a message is waiting to be sent.
    #[must_use]
    pub fn has_outgoing(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Returns the number of messages in the queue. As long as at most this many messages are
    /// tried, none of them is tried twice.
    #[must_use]
    pub fn outgoing_count(&self) -> usize {
        self.outbox.len()
    }

    /// Returns the next message to be sent. The message counts as being sent until
    /// [`TeamMachine::sent`] is called for it. Several messages may be in this state.
    pub fn outgoing(&mut self) -> Option<Outgoing> {
        let transfer = self.outbox.pop_front()?;
        let place = self.place(transfer.part)?;
        let part = self.parts[place].as_deref_mut()?;
        let passing = part.passing(transfer.link);
        let (piece, len) = (part.piece, part.len);
        let link = part.link(transfer.link)?;
        let target = link.peer;
        let data = match transfer.what {
            What::Ready => None,
            What::Data { from } => {
                let length = piece.min(len - from);
                if from + length == len {
                    // The neighbour's answer may arrive before `sent` is called, so the state
                    // changes here.
                    link.out = match passing {
                        Some(Passing::Eager { told: true }) => Out::Sent,
                        _ => Out::Done,
                    };
                }
                Some((from, length))
            }
        };
        part.in_hand += 1;
        Some(Outgoing {
            target,
            part: part.number,
            signature: part.signature,
            data,
            transfer,
        })
    }

    /// Returns the bytes of a message that is being sent. They remain in place, unchanged, until
    /// [`TeamMachine::sent`] is called.
    #[must_use]
    pub fn payload(&self, outgoing: &Outgoing) -> &[u8] {
        let found = outgoing.data.and_then(|(from, length)| {
            let part = self.parts[self.place(outgoing.part)?].as_deref()?;
            let operation = self.operation(part.operation)?;
            Some(match (outgoing.transfer.link, &part.sum) {
                (LinkId::Parent, Some(sum)) => &sum.bytes()[from..from + length],
                (LinkId::Parent, None) => operation.operand.source(part.start + from, length),
                (LinkId::Child(_), _) if part.kind.is_of_pairs() => {
                    operation.operand.source(part.source + from, length)
                }
                (LinkId::Child(_), _) => operation.operand.result(part.start + from, length),
            })
        });
        found.unwrap_or(&[])
    }

    /// Records whether a message has been sent. If not, [`outgoing`](Self::outgoing) will return
    /// the message again.
    ///
    /// # Errors
    /// Same as [`TeamMachine::start`].
    pub fn sent(&mut self, outgoing: Outgoing, sent: bool) -> Result<(), Violation> {
        let Some(place) = self.place(outgoing.part) else {
            return Ok(());
        };
        let Some(mut part) = self.parts[place].take() else {
            return Ok(());
        };
        part.in_hand -= 1;
        let mut transfer = outgoing.transfer;
        let rest = match (&mut transfer.what, outgoing.data) {
            (What::Data { from }, Some((_, length))) if sent => {
                *from += length;
                *from < part.len
            }
            _ => !sent,
        };
        if rest {
            if let What::Data { .. } = transfer.what
                && let Some(link) = part.link(transfer.link)
            {
                link.out = Out::Queued;
            }
            self.outbox.push_back(transfer);
        }
        self.put_back(place, part);
        self.fill_window()
    }

    /// Handles data from `source`: bytes of a part, starting at `offset` in that part. Returns true
    /// if `source` must be notified that the data was taken.
    ///
    /// # Errors
    /// If the message does not match this rank's operations, either because `source` has started a
    /// different operation or because it is faulty.
    pub fn on_data(
        &mut self,
        source: Rank,
        number: u32,
        signature: u32,
        offset: u32,
        payload: &[u8],
    ) -> Result<bool, Violation> {
        let offset = offset as usize;
        let Some(place) = self.place(number) else {
            self.check_early(source, number)?;
            if offset != 0 || payload.is_empty() || payload.len() > self.limits.eager {
                return Err(unexpected(source, "data for an unstarted part"));
            }
            let kept = self
                .early
                .data(source, number, signature, payload, &mut self.pool)?;
            return Ok(kept && CollectiveKind::is_told(signature));
        };
        let Some(mut part) = self.parts[place].take() else {
            return Err(unexpected(source, "data for a finished part"));
        };
        let done = self.deliver(&mut part, source, signature, offset, payload);
        self.put_back(place, part);
        let told = done?;
        self.fill_window()?;
        Ok(told)
    }

    /// Handles a ready message from `source`, which now has room for a part's data, or which
    /// refused the data earlier and now requests it again.
    ///
    /// # Errors
    /// Same as [`TeamMachine::on_data`].
    pub fn on_ready(&mut self, source: Rank, number: u32, signature: u32) -> Result<(), Violation> {
        let Some(place) = self.place(number) else {
            self.check_early(source, number)?;
            return self.early.ready(source, number, signature);
        };
        let Some(mut part) = self.parts[place].take() else {
            return Err(unexpected(source, "a ready message for a finished part"));
        };
        let done = self.make_ready(&mut part, source, signature);
        self.put_back(place, part);
        done
    }

    /// Records that `source` has taken the data of an eager part.
    ///
    /// # Errors
    /// Same as [`TeamMachine::on_data`].
    pub fn on_taken(&mut self, source: Rank, number: u32) -> Result<(), Violation> {
        let refusal = || unexpected(source, "an acknowledgement of data that was not sent");
        let place = self.place(number).ok_or_else(refusal)?;
        let mut part = self.parts[place].take().ok_or_else(refusal)?;
        let link = part.find_receiver(source).and_then(|id| part.link(id));
        let waited = match link {
            Some(link) if link.out == Out::Sent => {
                link.out = Out::Done;
                true
            }
            _ => false,
        };
        self.put_back(place, part);
        if !waited {
            return Err(refusal());
        }
        self.fill_window()
    }

    /// Returns the kind of the oldest part in flight, and the ranks whose messages for that part
    /// are missing. Used for diagnosis.
    #[must_use]
    pub fn lacks(&self) -> Option<(&'static str, Vec<Rank>)> {
        let part = self.parts.iter().flatten().next()?;
        Some((CollectiveKind::name_in(part.signature), part.lacks()))
    }

    /// Returns the index of a part in the window.
    fn place(&self, number: u32) -> Option<usize> {
        let place = number.wrapping_sub(self.first_part) as usize;
        (place < self.parts.len()).then_some(place)
    }

    /// Checks that an early message is for a future part and comes from a member of the team. Part
    /// numbers wrap: a number counts as a future part's if it is ahead by less than half the range
    /// of numbers.
    fn check_early(&self, source: Rank, number: u32) -> Result<(), Violation> {
        let next = self.first_part.wrapping_add(self.parts.len() as u32);
        if number.wrapping_sub(next) >= 1 << 31 {
            return Err(unexpected(source, "a message for a finished part"));
        }
        if self.team.from_job(source).is_some() {
            Ok(())
        } else {
            Err(unexpected(
                source,
                "a message for a team of which it is not a member",
            ))
        }
    }

    fn operation(&self, number: u64) -> Option<&Operation<O>> {
        let place = usize::try_from(number.checked_sub(self.first_operation)?).ok()?;
        self.operations.get(place)?.as_ref()
    }

    fn operation_mut(&mut self, number: u64) -> Option<&mut Operation<O>> {
        let place = usize::try_from(number.checked_sub(self.first_operation)?).ok()?;
        self.operations.get_mut(place)?.as_mut()
    }

    /// Creates parts while the window has room.
    fn fill_window(&mut self) -> Result<(), Violation> {
        while self.parts.len() < self.limits.window as usize {
            let Some(next) = self.next_part() else {
                break;
            };
            let place = self.parts.len();
            self.parts.push_back(None);
            match next {
                Next::Part(part) => {
                    let (part, done) = self.begin(part);
                    self.put_back(place, part);
                    done?;
                }
                Next::Nothing { operation } => self.part_over(operation),
            }
        }
        Ok(())
    }

    /// Creates the next part of the started operations. Returns `None` if all their parts have been
    /// created.
    fn next_part(&mut self) -> Option<Next> {
        let number = self.first_part.wrapping_add(self.parts.len() as u32);
        let (limits, size) = (self.limits, self.team.size);
        let operation = self.splitting;
        let is_first = operation == self.first_operation;
        let Operation {
            shape,
            split,
            running,
            waits,
            ..
        } = self.operation_mut(operation)?;
        if *waits && !is_first {
            return None;
        }
        let shape = *shape;
        let (bytes, whole) = (shape.bytes(), limits.part_of(&shape));
        let step = split.checked_div(bytes).unwrap_or(0);
        let start = *split - step * bytes;
        let len = whole.min(bytes - start);
        *split += len;
        *running += 1;
        if *split == bytes * shape.steps(size) {
            self.splitting += 1;
        }
        if len == 0 {
            return Some(Next::Nothing { operation });
        }
        let index = (step * bytes.div_ceil(whole) + start / whole) as u32;
        let (piece, gathers) = limits.piece_of(&shape);
        let mut part = self.spare.pop().unwrap_or_default();
        let mut children = std::mem::take(&mut part.children);
        children.clear();
        *part = Part {
            number,
            operation,
            kind: shape.kind,
            signature: shape.signature(index),
            start,
            source: 0,
            len,
            piece,
            gathers,
            eager: len <= limits.eager && len <= piece,
            parent: None,
            children,
            sum: None,
            turn: 0,
            gathered: None,
            got: 0,
            is_reduced: false,
            has_result: false,
            in_hand: 0,
        };
        let team = &self.team;
        if shape.kind.is_of_pairs() {
            let Pair { to, from, own } = Pair::of(shape.kind, team, step as u32);
            let at = |block: u32| block as usize * bytes + start;
            if let Some((source, result)) = own
                && let Some(operation) = self.operation_mut(operation)
            {
                operation.operand.copy(at(source), at(result), len);
            }
            if to.is_none() && from.is_none() {
                self.spare.push(part);
                return Some(Next::Nothing { operation });
            }
            let team = &self.team;
            part.start = from.map_or(0, |(_, block)| at(block));
            part.source = to.map_or(0, |(_, block)| at(block));
            part.links(
                from.map(|(rank, _)| team.job_rank(rank)),
                to.into_iter().map(|(rank, _)| team.job_rank(rank)),
            );
            return Some(Next::Part(part));
        }
        let tree = match shape.kind {
            CollectiveKind::ReduceToAll if shape.in_order => Tree::downwards(size),
            // The parts of a long reduction have different roots, so that the ranks share the work.
            CollectiveKind::ReduceToAll => Tree::new(size, index % size),
            kind => Tree::new(size, kind.root().unwrap_or(0)),
        };
        part.links(
            tree.parent(team.rank).map(|rank| team.job_rank(rank)),
            tree.children(team.rank).map(|rank| team.job_rank(rank)),
        );
        Some(Next::Part(part))
    }

    /// Begins a new part: does the work that this rank can do at once, and handles the messages
    /// that arrived early.
    fn begin(&mut self, mut part: Box<Part>) -> (Box<Part>, Result<(), Violation>) {
        let early = self.early.take(part.number);
        let is_leaf = part.children.is_empty();
        match part.kind {
            CollectiveKind::Broadcast { .. } if part.parent.is_none() => {
                self.have_source_as_result(&mut part)
            }
            CollectiveKind::Broadcast { .. } => {
                if !part.eager {
                    self.send_ready(&part, LinkId::Parent);
                }
            }
            kind if kind.is_of_pairs() => {
                if part.parent.is_none() {
                    part.has_result = true;
                } else if !part.eager {
                    self.send_ready(&part, LinkId::Parent);
                }
                if !part.children.is_empty() {
                    self.offer(&mut part, LinkId::Child(0));
                }
            }
            _ if is_leaf => self.reduced(&mut part),
            _ => {
                if let Some(operation) = self
                    .operations
                    .get((part.operation - self.first_operation) as usize)
                    && let Some(operation) = operation
                {
                    let source = operation.operand.source(part.start, part.len);
                    part.sum = Some(self.pool.copy_of(source));
                }
                self.ask(&part);
            }
        }
        for record in early {
            let (source, signature) = (record.source, record.signature);
            let done = match record.early {
                Early::Data(buffer) => {
                    let done = self.deliver(&mut part, source, signature, 0, buffer.bytes());
                    self.pool.give(buffer);
                    done.map(drop)
                }
                Early::Ready => self.make_ready(&mut part, source, signature),
                Early::Refused => self
                    .check(&part, source, signature, Part::find_sender)
                    .map(|link| self.send_ready(&part, link)),
            };
            if done.is_err() {
                return (part, done);
            }
        }
        (part, Ok(()))
    }

    /// Returns the link to the neighbour that sent a message about a part. Fails if the sender is
    /// not a neighbour, or if the two ranks have started different operations.
    fn check(
        &self,
        part: &Part,
        source: Rank,
        signature: u32,
        find: fn(&Part, Rank) -> Option<LinkId>,
    ) -> Result<LinkId, Violation> {
        if signature != part.signature {
            return Err(Violation::Mismatch {
                peer: source,
                theirs: CollectiveKind::name_in(signature),
                ours: CollectiveKind::name_in(part.signature),
            });
        }
        find(part, source)
            .ok_or_else(|| unexpected(source, "a message that another rank must send"))
    }

    fn deliver(
        &mut self,
        part: &mut Part,
        source: Rank,
        signature: u32,
        offset: usize,
        payload: &[u8],
    ) -> Result<bool, Violation> {
        let link = self.check(part, source, signature, Part::find_sender)?;
        let fits = offset
            .checked_add(payload.len())
            .is_some_and(|end| end <= part.len);
        if !fits || payload.is_empty() || (part.eager && payload.len() != part.len) {
            return Err(unexpected(source, "data of another length"));
        }
        match link {
            LinkId::Parent => self.deliver_result(part, source, offset, payload)?,
            LinkId::Child(child) => self.deliver_operand(part, child, source, offset, payload)?,
        }
        let told = CollectiveKind::is_told(part.signature) && part.eager;
        Ok(told)
    }

    /// Handles data that moves down the tree.
    fn deliver_result(
        &mut self,
        part: &mut Part,
        source: Rank,
        offset: usize,
        payload: &[u8],
    ) -> Result<(), Violation> {
        let awaited = match part.kind {
            CollectiveKind::ReduceToOne { .. } => false,
            kind => part.is_reduced || !kind.reduces(),
        };
        if !awaited || part.has_result || payload.len() > part.len - part.got {
            return Err(unexpected(source, "an unexpected result"));
        }
        if let Some(operation) = self.operation_mut(part.operation) {
            operation.operand.store(part.start + offset, payload);
        }
        part.got += payload.len();
        if part.got == part.len {
            self.have_result(part);
        }
        Ok(())
    }

    /// Handles data that moves up the tree.
    fn deliver_operand(
        &mut self,
        part: &mut Part,
        child: usize,
        source: Rank,
        offset: usize,
        payload: &[u8],
    ) -> Result<(), Violation> {
        let refusal = || unexpected(source, "an unexpected operand");
        if !part.kind.reduces() || child < part.turn {
            return Err(refusal());
        }
        if child > part.turn {
            let link = &mut part.children[child];
            if !part.eager || link.parked.is_some() {
                return Err(refusal());
            }
            link.parked = Some(self.pool.copy_of(payload));
            return Ok(());
        }
        if payload.len() > part.len - part.got {
            return Err(refusal());
        }
        part.got += payload.len();
        let is_last = part.got == part.len;
        if part.gathers {
            if part.gathered.is_none() {
                part.gathered = Some(self.pool.take(part.len));
            }
            if let Some(gathered) = &mut part.gathered {
                gathered.bytes_mut()[offset..][..payload.len()].copy_from_slice(payload);
            }
            if is_last && let Some(gathered) = part.gathered.take() {
                self.reduce(part, 0, gathered.bytes());
                self.pool.give(gathered);
            }
        } else {
            let element = self
                .operation(part.operation)
                .map_or(1, |operation| operation.shape.element);
            if !offset.is_multiple_of(element) || !payload.len().is_multiple_of(element) {
                return Err(unexpected(source, "data that splits an element"));
            }
            self.reduce(part, offset, payload);
        }
        if is_last {
            self.next_turn(part);
        }
        Ok(())
    }

    fn reduce(&mut self, part: &mut Part, offset: usize, payload: &[u8]) {
        if let (Some(operation), Some(sum)) = (self.operation_mut(part.operation), &mut part.sum) {
            let right = &mut sum.bytes_mut()[offset..][..payload.len()];
            operation.operand.reduce(payload, right);
        }
    }

    /// Advances to the next child after a child's data has been reduced. Also reduces the data of
    /// the following children that has already arrived.
    fn next_turn(&mut self, part: &mut Part) {
        loop {
            part.turn += 1;
            part.got = 0;
            let Some(link) = part.children.get_mut(part.turn) else {
                return self.reduced(part);
            };
            let Some(parked) = link.parked.take() else {
                return self.ask(part);
            };
            self.reduce(part, 0, parked.bytes());
            self.pool.give(parked);
        }
    }

    /// Sends a ready message to the child whose turn it is, unless the part is eager.
    fn ask(&mut self, part: &Part) {
        if !part.eager {
            self.send_ready(part, LinkId::Child(part.turn));
        }
    }

    fn send_ready(&mut self, part: &Part, link: LinkId) {
        self.outbox.push_back(Transfer {
            part: part.number,
            link,
            what: What::Ready,
        });
    }

    /// Handles the completion of the reduction over this rank's subtree.
    fn reduced(&mut self, part: &mut Part) {
        part.is_reduced = true;
        if part.parent.is_some() {
            return self.offer(part, LinkId::Parent);
        }
        match part.sum.take() {
            Some(sum) => {
                if let Some(operation) = self.operation_mut(part.operation) {
                    operation.operand.store(part.start, sum.bytes());
                }
                self.pool.give(sum);
                self.have_result(part);
            }
            None => self.have_source_as_result(part),
        }
    }

    fn have_source_as_result(&mut self, part: &mut Part) {
        if let Some(operation) = self.operation_mut(part.operation) {
            operation.operand.copy(part.start, part.start, part.len);
        }
        self.have_result(part);
    }

    fn have_result(&mut self, part: &mut Part) {
        part.has_result = true;
        if part.kind.is_of_pairs() {
            return;
        }
        // The largest subtree is sent to first, because it takes longest.
        for child in (0..part.children.len()).rev() {
            self.offer(part, LinkId::Child(child));
        }
    }

    /// Offers data to a neighbour. The data is sent as soon as the neighbour allows it.
    fn offer(&mut self, part: &mut Part, id: LinkId) {
        let Some(passing) = part.passing(id) else {
            return;
        };
        let number = part.number;
        if let Some(link) = part.link(id)
            && (passing != Passing::Announced || link.ready)
        {
            link.out = Out::Queued;
            self.outbox.push_back(Transfer {
                part: number,
                link: id,
                what: What::Data { from: 0 },
            });
        }
    }

    fn make_ready(
        &mut self,
        part: &mut Part,
        source: Rank,
        signature: u32,
    ) -> Result<(), Violation> {
        let id = self.check(part, source, signature, Part::find_receiver)?;
        let (passing, has_data) = (part.passing(id), part.has_data(id));
        let Some(link) = part.link(id) else {
            return Ok(());
        };
        let allowed = match passing {
            Some(Passing::Announced) => true,
            // The data was sent, but the receiver may have refused it.
            Some(Passing::Eager { .. }) => matches!(link.out, Out::Sent | Out::Done),
            _ => false,
        };
        if !allowed || link.ready {
            return Err(unexpected(source, "an unexpected ready message"));
        }
        link.ready = true;
        if has_data {
            self.offer(part, id);
        }
        Ok(())
    }

    /// Puts a part that has been handled back into its empty slot in the window, or ends the part
    /// if it is over.
    fn put_back(&mut self, place: usize, mut part: Box<Part>) {
        if !part.is_over() {
            self.parts[place] = Some(part);
            return;
        }
        if let Some(sum) = part.sum.take() {
            self.pool.give(sum);
        }
        let operation = part.operation;
        self.spare.push(part);
        self.part_over(operation);
    }

    /// Ends a part of operation `number`. The part's slot in the window must be empty.
    fn part_over(&mut self, number: u64) {
        while let Some(None) = self.parts.front() {
            self.parts.pop_front();
            self.first_part = self.first_part.wrapping_add(1);
        }
        let size = self.team.size;
        let Some(operation) = self.operation_mut(number) else {
            return;
        };
        operation.running -= 1;
        let shape = operation.shape;
        if operation.running > 0 || operation.split < shape.bytes() * shape.steps(size) {
            return;
        }
        let place = (number - self.first_operation) as usize;
        if let Some(operation) = self.operations[place].take()
            && let Some(name) = operation.name
        {
            self.ended.push_back((name, operation.operand));
        }
        while let Some(None) = self.operations.front() {
            self.operations.pop_front();
            self.first_operation += 1;
        }
    }

    /// Returns the number of early messages and the number of their bytes. Tests check these
    /// against the limits.
    #[cfg(test)]
    pub(super) fn early(&self) -> (usize, usize) {
        self.early.held()
    }

    /// Makes the part numbers start at `number`, so that tests can check wrapping.
    #[cfg(test)]
    pub(super) fn starting_at(mut self, number: u32) -> Self {
        self.first_part = number;
        self
    }

    /// Returns whether the machine has no state left from operations.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.operations.is_empty()
            && self.parts.is_empty()
            && self.outbox.is_empty()
            && self.ended.is_empty()
            && self.early.held() == (0, 0)
    }
}

fn unexpected(peer: Rank, what: &'static str) -> Violation {
    Violation::Unexpected { peer, what }
}
