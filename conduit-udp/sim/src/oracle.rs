//! The oracle, which checks every call between an endpoint and its fragment handler against what
//! was sent.

use std::collections::VecDeque;
use std::fmt;

use conduit_udp::protocol::{Failure, Nanos};
use serde::Serialize;
use sim::random::mix;

use crate::content;

/// The maximum number of violations that are kept. One violation suffices for a failure.
const KEPT: usize = 8;

/// A violation of the protocol's contract.
#[derive(Debug, Clone, Serialize)]
pub struct Violation {
    /// Simulated time in nanoseconds.
    pub at: Nanos,
    /// A description.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:.6} s: {}", self.at as f64 / 1e9, self.what)
    }
}

/// The index of a process in the world's list. Each restart of a rank creates a new process.
pub(crate) type Process = usize;

/// The channel of a fragment, which follows from its [`conduit_udp::protocol::Payload`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Command = 0,
    Data = 1,
}

/// A fragment that was sent.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) key: u64,
    pub(crate) header: u8,
    pub(crate) length: u32,
    /// Whether the fragment was reported to the sender's handler as `sent`.
    pub(crate) is_sent: bool,
    /// The ranges of bytes received, sorted and disjoint, or `None` if the fragment has not begun.
    pub(crate) came: Option<Vec<(u32, u32)>>,
}

impl Sent {
    pub(crate) fn header(&self) -> &'static [u8] {
        content::bytes(mix(self.key), 0, self.header.into())
    }
}

/// One channel in one direction between two processes.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// The number of the first fragment in `fragments`.
    first: u64,
    fragments: VecDeque<Sent>,
    /// The number of fragments delivered. They are the first ones of the stream.
    delivered: u64,
    /// The number of fragments that have begun. They are the first ones of the stream.
    begun: u64,
    /// The number of fragments reported to the sender as sent.
    reported: u64,
}

impl Stream {
    fn end(&self) -> u64 {
        self.first + self.fragments.len() as u64
    }

    fn get(&mut self, number: u64) -> Option<&mut Sent> {
        self.fragments
            .get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Removes the fragments at the front that were both delivered and reported as sent.
    fn forget(&mut self) {
        while self.first < self.delivered && self.fragments.front().is_some_and(|sent| sent.is_sent)
        {
            self.fragments.pop_front();
            self.first += 1;
        }
    }

    fn is_done(&self) -> bool {
        self.fragments.is_empty()
    }
}

/// The traffic from one process to another.
#[derive(Debug, Default)]
pub(crate) struct Pair {
    streams: [Stream; 2],
    /// When and why the sender gave up the receiver.
    pub(crate) failed: Option<(Nanos, Failure)>,
    /// When the sender first used the link.
    pub(crate) used: Option<Nanos>,
    /// When the sender first used the link's data channel.
    pub(crate) used_data: Option<Nanos>,
    /// The number of bytes in the fragments delivered.
    pub(crate) delivered_bytes: u64,
}

impl Pair {
    pub(crate) fn is_done(&self) -> bool {
        self.streams.iter().all(Stream::is_done)
    }

    /// Returns the state of both channels as text.
    pub(crate) fn describe(&self) -> String {
        let [command, data] = &self.streams;
        format!(
            "command channel: {} of {} delivered; data channel: {} of {} delivered, {} begun, {} reported to the sender",
            command.delivered,
            command.end(),
            data.delivered,
            data.end(),
            data.begun,
            data.reported
        )
    }
}

/// The oracle of a run.
#[derive(Debug)]
pub(crate) struct Oracle {
    processes: usize,
    pairs: Vec<Option<Box<Pair>>>,
    pub(crate) violations: Vec<Violation>,
    /// The current time, with which violations are recorded.
    pub(crate) now: Nanos,
    /// A counter that increases with each delivery and with other progress.
    pub(crate) progress: u64,
    pub(crate) delivered: u64,
    pub(crate) delivered_bytes: u64,
    /// The number of payload bytes received, including those of incomplete fragments.
    pub(crate) placed: u64,
}

macro_rules! violation {
    ($oracle:expr, $($text:tt)*) => {{
        let text = format!($($text)*);
        $oracle.violate(text)
    }};
}
pub(crate) use violation;

impl Oracle {
    pub(crate) fn new(processes: usize) -> Self {
        Self {
            processes,
            pairs: (0..processes * processes).map(|_| None).collect(),
            violations: Vec::new(),
            now: 0,
            progress: 0,
            delivered: 0,
            delivered_bytes: 0,
            placed: 0,
        }
    }

    pub(crate) fn violate(&mut self, what: String) {
        if self.violations.len() < KEPT {
            self.violations.push(Violation { at: self.now, what });
        }
    }

    pub(crate) fn pair(&mut self, from: Process, to: Process) -> &mut Pair {
        self.pairs[from * self.processes + to].get_or_insert_default()
    }

    pub(crate) fn look(&self, from: Process, to: Process) -> Option<&Pair> {
        self.pairs[from * self.processes + to].as_deref()
    }

    /// Returns the number of the next fragment.
    pub(crate) fn next(&mut self, from: Process, to: Process, channel: Channel) -> u64 {
        self.pair(from, to).streams[channel as usize].end()
    }

    /// Records a fragment that the endpoint accepted.
    pub(crate) fn sent(
        &mut self,
        from: Process,
        to: Process,
        channel: Channel,
        key: u64,
        header: u8,
        length: u32,
    ) {
        let now = self.now;
        let pair = self.pair(from, to);
        pair.used.get_or_insert(now);
        if channel == Channel::Data {
            pair.used_data.get_or_insert(now);
        }
        let is_sent = channel == Channel::Command;
        pair.streams[channel as usize].fragments.push_back(Sent {
            key,
            header,
            length,
            is_sent,
            came: None,
        });
    }

    /// Provides bytes of a fragment that the endpoint reads for a packet.
    pub(crate) fn read(
        &mut self,
        from: Process,
        to: Process,
        token: u64,
        offset: usize,
        into: &mut [u8],
    ) {
        let pair = self.pair(from, to);
        let is_dead = pair.failed.is_some();
        let what = match pair.streams[Channel::Data as usize].get(token) {
            Some(sent)
                if !sent.is_sent && offset + into.len() <= sent.length as usize && !is_dead =>
            {
                into.copy_from_slice(content::bytes(sent.key, offset, into.len()));
                return;
            }
            Some(sent) if sent.is_sent => "a fragment already reported as sent",
            Some(_) if is_dead => "a fragment to a peer that has failed",
            Some(_) => "beyond a fragment's end",
            None => "an unknown fragment",
        };
        let length = into.len();
        violation!(
            self,
            "process {from} was asked for {length} bytes at {offset} of {what} (to {to}, {token})"
        );
    }

    /// Checks that a fragment may be reported as sent.
    pub(crate) fn on_sent(&mut self, from: Process, to: Process, token: u64) {
        let pair = self.pair(from, to);
        let is_dead = pair.failed.is_some();
        let stream = &mut pair.streams[Channel::Data as usize];
        let what = match stream.get(token) {
            Some(sent) if !sent.is_sent && !is_dead => {
                sent.is_sent = true;
                stream.reported += 1;
                stream.forget();
                self.progress += 1;
                return;
            }
            Some(_) if is_dead => "after its failure",
            Some(_) => "twice",
            None => "although it doesn't exist",
        };
        violation!(
            self,
            "fragment {token} from process {from} to {to} is reported as sent {what}"
        );
    }

    /// Checks a fragment delivered as a whole.
    pub(crate) fn fragment(&mut self, from: Process, to: Process, header: &[u8], payload: &[u8]) {
        // The channel is not known here, so the fragment has to be the next one of either channel.
        let pair = self.pair(from, to);
        let candidates = [Channel::Command, Channel::Data];
        let found = candidates.into_iter().find(|&channel| {
            let stream = &mut pair.streams[channel as usize];
            let number = stream.delivered;
            let is_next = stream.begun == number;
            is_next
                && stream.get(number).is_some_and(|sent| {
                    sent.length as usize == payload.len()
                        && sent.header() == header
                        && content::bytes(sent.key, 0, payload.len()) == payload
                })
        });
        let Some(channel) = found else {
            let text = pair.describe();
            let (header, payload) = (header.len(), payload.len());
            return violation!(
                self,
                "process {to} gets from {from} a fragment ({header} + {payload} bytes) that is not the next of either channel: {text}"
            );
        };
        let stream = &mut pair.streams[channel as usize];
        stream.begun += 1;
        self.placed += payload.len() as u64;
        self.deliver(from, to, channel);
    }

    fn deliver(&mut self, from: Process, to: Process, channel: Channel) {
        let pair = self.pair(from, to);
        let stream = &mut pair.streams[channel as usize];
        let number = stream.delivered;
        let bytes = stream
            .get(number)
            .map_or(0, |sent| u64::from(sent.header) + u64::from(sent.length));
        stream.delivered += 1;
        stream.forget();
        pair.delivered_bytes += bytes;
        self.progress += 1;
        self.delivered += 1;
        self.delivered_bytes += bytes;
    }

    /// Checks that a fragment that begins is the next one. Returns the fragment's number, which is
    /// the token of its destination.
    pub(crate) fn begin(
        &mut self,
        from: Process,
        to: Process,
        header: &[u8],
        length: usize,
    ) -> Option<u64> {
        let pair = self.pair(from, to);
        let stream = &mut pair.streams[Channel::Data as usize];
        let number = stream.begun;
        if let Some(sent) = stream.get(number)
            && sent.length as usize == length
            && sent.header() == header
        {
            sent.came = Some(Vec::new());
            stream.begun += 1;
            return Some(number);
        }
        let (text, header) = (pair.describe(), header.len());
        violation!(
            self,
            "at process {to} a fragment ({header} + {length} bytes) from {from} begins that is not the next: {text}"
        );
        None
    }

    /// Checks bytes placed in a fragment that has begun.
    pub(crate) fn place(
        &mut self,
        from: Process,
        to: Process,
        number: u64,
        offset: usize,
        bytes: &[u8],
    ) {
        let stream = &mut self.pair(from, to).streams[Channel::Data as usize];
        let what = match stream.get(number) {
            Some(sent) => {
                let end = offset + bytes.len();
                if let Some(came) = &mut sent.came {
                    if end > sent.length as usize {
                        "beyond its end"
                    } else if content::bytes(sent.key, offset, bytes.len()) != bytes {
                        "with wrong content"
                    } else if cover(came, offset as u32, end as u32) {
                        self.placed += bytes.len() as u64;
                        return;
                    } else {
                        "that were placed before"
                    }
                } else {
                    "although it has not begun"
                }
            }
            None => "although it doesn't exist",
        };
        let length = bytes.len();
        violation!(
            self,
            "process {to} gets {length} bytes at {offset} of fragment {number} from {from} {what}"
        );
    }

    /// Checks that a fragment that ends is complete.
    pub(crate) fn end(&mut self, from: Process, to: Process, number: u64) {
        let stream = &mut self.pair(from, to).streams[Channel::Data as usize];
        let is_next = stream.delivered == number && number < stream.begun;
        let whole = stream.get(number).is_some_and(|sent| {
            let length = sent.length;
            sent.came
                .take()
                .is_some_and(|came| came == [(0, length)] || (length == 0 && came.is_empty()))
        });
        if is_next && whole {
            self.deliver(from, to, Channel::Data);
        } else {
            let text = self.pair(from, to).describe();
            violation!(
                self,
                "at process {to} fragment {number} from {from} ends, complete: {whole}, next: {is_next}; {text}"
            );
        }
    }
}

/// Adds a range to a set of ranges. Returns `false` if the range overlaps with another one.
fn cover(ranges: &mut Vec<(u32, u32)>, begin: u32, end: u32) -> bool {
    if begin == end {
        return true;
    }
    // Most ranges are added at the end.
    let at = ranges
        .iter()
        .rposition(|range| range.0 <= begin)
        .map_or(0, |before| before + 1);
    if (at > 0 && ranges[at - 1].1 > begin) || ranges.get(at).is_some_and(|next| next.0 < end) {
        return false;
    }
    let joins_next = ranges.get(at).is_some_and(|next| next.0 == end);
    let joins_last = at > 0 && ranges[at - 1].1 == begin;
    match (joins_last, joins_next) {
        (true, true) => {
            ranges[at - 1].1 = ranges[at].1;
            ranges.remove(at);
        }
        (true, false) => ranges[at - 1].1 = end,
        (false, true) => ranges[at].0 = begin,
        (false, false) => ranges.insert(at, (begin, end)),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_a_set_of_bytes() {
        let mut random = sim::random::Rng::with_seed(1);
        for _ in 0..2000 {
            let (mut ranges, mut reference) = (Vec::new(), [false; 80]);
            for _ in 0..random.u8(1..60) {
                let (begin, length) = (random.u32(..60), random.u32(..12));
                let bytes = &mut reference[begin as usize..(begin + length) as usize];
                let is_new = !bytes.contains(&true);
                assert_eq!(cover(&mut ranges, begin, begin + length), is_new);
                if is_new {
                    bytes.fill(true);
                }
                let count: u32 = ranges.iter().map(|(begin, end)| end - begin).sum();
                assert_eq!(
                    count as usize,
                    reference.iter().filter(|&&byte| byte).count()
                );
                assert!(ranges.windows(2).all(|two| two[0].1 < two[1].0));
            }
        }
    }

    fn oracle() -> Oracle {
        let mut oracle = Oracle::new(2);
        oracle.sent(0, 1, Channel::Data, 5, 10, 3000);
        oracle.sent(0, 1, Channel::Data, 6, 0, 100);
        oracle.sent(0, 1, Channel::Command, 7, 64, 20);
        oracle
    }

    fn header(key: u64, length: usize) -> &'static [u8] {
        content::bytes(mix(key), 0, length)
    }

    #[test]
    fn what_is_right_is_no_violation() {
        let mut oracle = oracle();
        oracle.fragment(0, 1, header(7, 64), content::bytes(7, 0, 20));
        assert_eq!(oracle.begin(0, 1, header(5, 10), 3000), Some(0));
        oracle.place(0, 1, 0, 1000, content::bytes(5, 1000, 2000));
        oracle.place(0, 1, 0, 0, content::bytes(5, 0, 1000));
        oracle.on_sent(0, 1, 0);
        oracle.end(0, 1, 0);
        oracle.fragment(0, 1, &[], content::bytes(6, 0, 100));
        assert!(!oracle.pair(0, 1).is_done());
        oracle.on_sent(0, 1, 1);
        assert!(oracle.pair(0, 1).is_done());
        assert!(oracle.violations.is_empty(), "{:?}", oracle.violations);
        assert_eq!((oracle.delivered, oracle.delivered_bytes), (3, 3194));
    }

    #[test]
    fn what_is_wrong_is_one() {
        type Act = fn(&mut Oracle);
        let wrong: [(&str, Act); 9] = [
            ("twice", |oracle| {
                (0..2).for_each(|_| oracle.fragment(0, 1, header(7, 64), content::bytes(7, 0, 20)))
            }),
            ("overtakes", |oracle| {
                oracle.fragment(0, 1, &[], content::bytes(6, 0, 100))
            }),
            ("changed", |oracle| {
                oracle.fragment(0, 1, header(7, 64), &[1; 20])
            }),
            ("overtakes one that has begun", |oracle| {
                oracle.begin(0, 1, header(5, 10), 3000);
                oracle.fragment(0, 1, &[], content::bytes(6, 0, 100));
            }),
            ("ends too early", |oracle| {
                oracle.begin(0, 1, header(5, 10), 3000);
                oracle.place(0, 1, 0, 0, content::bytes(5, 0, 2999));
                oracle.end(0, 1, 0);
            }),
            ("bytes twice", |oracle| {
                oracle.begin(0, 1, header(5, 10), 3000);
                oracle.place(0, 1, 0, 0, content::bytes(5, 0, 2000));
                oracle.place(0, 1, 0, 1999, content::bytes(5, 1999, 10));
            }),
            ("reported twice", |oracle| {
                (0..2).for_each(|_| oracle.on_sent(0, 1, 1))
            }),
            ("read after it was reported", |oracle| {
                oracle.on_sent(0, 1, 1);
                oracle.read(0, 1, 1, 0, &mut [0; 10]);
            }),
            ("never sent", |oracle| oracle.fragment(1, 0, &[], &[])),
        ];
        for (name, act) in wrong {
            let mut oracle = oracle();
            act(&mut oracle);
            assert_eq!(oracle.violations.len(), 1, "{name}");
        }
    }
}
