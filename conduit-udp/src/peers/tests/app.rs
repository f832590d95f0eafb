//! A user of the network that checks its promises.

use std::collections::{BTreeMap, HashMap};

use conduit_core::ni::Rank;

use crate::protocol::{Failure, Fragment, FragmentHandler, Payload, Refused};

/// The channel of copied fragments.
pub(super) const COPIED: u8 = 0;
/// The channel of all other fragments.
pub(super) const READ: u8 = 1;

/// The content of a fragment's header: the sending process, the index of its session with this
/// peer, the channel, the number of fragments sent earlier on that channel of the session, and the
/// token.
type Name = (u32, u32, u8, u32, u64);

fn write(name: Name) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(name.0.to_le_bytes());
    bytes.extend(name.1.to_le_bytes());
    bytes.push(name.2);
    bytes.extend(name.3.to_le_bytes());
    bytes.extend(name.4.to_le_bytes());
    bytes
}

fn read(bytes: &[u8]) -> Name {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let token = u64::from_le_bytes(bytes[13..].try_into().unwrap());
    (word(0), word(4), bytes[8], word(9), token)
}

fn content(token: u64, at: usize) -> u8 {
    (token as usize * 31 + at * 7 + (at >> 8)) as u8
}

/// A fragment that arrives in chunks.
#[derive(Debug)]
struct Arriving {
    peer: Rank,
    name: Name,
    bytes: Vec<u8>,
    missing: usize,
}

/// Sends numbered fragments, and checks that the fragments of a session arrive once and in order.
#[derive(Debug, Default)]
pub(super) struct App {
    process: u32,
    /// For each peer, the number of the current session or, if there is none, of the next one.
    sessions: HashMap<Rank, u32>,
    begun: u32,
    /// For each peer, session and channel, the number of accepted fragments.
    pub(super) sent: BTreeMap<(Rank, u32, u8), u32>,
    /// For each sending process, session and channel, the number of fragments that have arrived.
    pub(super) arrived: BTreeMap<(u32, u32, u8), u32>,
    /// For each token, the bytes that may still be read.
    keeps: HashMap<u64, (Rank, Vec<u8>)>,
    arriving: HashMap<u64, Arriving>,
    tokens: u64,
    pub(super) joined: Vec<Rank>,
    pub(super) failures: Vec<(Rank, Failure)>,
    /// The number of further fragments to refuse for lack of room.
    pub(super) refuses: u32,
}

impl App {
    pub(super) fn new(process: u32) -> Self {
        Self {
            process,
            ..Self::default()
        }
    }

    pub(super) fn process(&self) -> u32 {
        self.process
    }

    /// Sends the next fragment through `send`.
    pub(super) fn send(
        &mut self,
        peer: Rank,
        channel: u8,
        length: usize,
        send: impl FnOnce(Rank, &Fragment<'_>) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let session = self.session(peer);
        let place = (peer, session, channel);
        let number = self.sent.get(&place).copied().unwrap_or(0);
        self.tokens += 1;
        let token = self.tokens;
        let header = write((self.process, session, channel, number, token));
        let bytes: Vec<u8> = (0..length).map(|at| content(token, at)).collect();
        let pieces = [&bytes[..]];
        let payload = match channel {
            COPIED => Payload::Copied(&pieces),
            _ => Payload::Read {
                token,
                length: length as u32,
            },
        };
        let header = &header;
        send(peer, &Fragment { header, payload })?;
        if channel == READ {
            self.keeps.insert(token, (peer, bytes));
        }
        *self.sent.entry(place).or_default() += 1;
        Ok(())
    }

    /// Returns the current or next session with a peer.
    pub(super) fn session(&mut self, peer: Rank) -> u32 {
        *self.sessions.entry(peer).or_insert_with(|| {
            self.begun += 1;
            self.begun
        })
    }

    /// Records that the session has ended. A call of `close` ends a session without notification.
    pub(super) fn ended(&mut self, peer: Rank) {
        self.sessions.remove(&peer);
        self.keeps.retain(|_, (to, _)| *to != peer);
        self.arriving.retain(|_, one| one.peer != peer);
    }

    /// Returns whether all fragments that must be kept for `source` have been acknowledged.
    pub(super) fn keeps_nothing(&self) -> bool {
        self.keeps.is_empty()
    }

    /// Returns the number of fragments that have arrived from a process, in all of its sessions.
    pub(super) fn arrived_from(&self, process: u32) -> u32 {
        let of =
            |(&(from, ..), &count): (&(u32, u32, u8), &u32)| (from == process).then_some(count);
        self.arrived.iter().filter_map(of).sum()
    }

    fn deliver(&mut self, name: Name, bytes: &[u8]) {
        let (process, session, channel, number, token) = name;
        let next = self.arrived.entry((process, session, channel)).or_default();
        assert_eq!(
            number, *next,
            "process {}: of process {process}, session {session}, channel {channel}",
            self.process
        );
        *next += 1;
        let same = bytes
            .iter()
            .enumerate()
            .all(|(at, &byte)| byte == content(token, at));
        assert!(same, "the bytes of {name:?}");
    }

    fn has_room(&mut self) -> bool {
        let has = self.refuses == 0;
        self.refuses = self.refuses.saturating_sub(1);
        has
    }
}

impl FragmentHandler for App {
    fn read(&mut self, peer: Rank, token: u64, offset: usize, into: &mut [u8]) {
        let (to, bytes) = &self.keeps[&token];
        assert_eq!(*to, peer);
        into.copy_from_slice(&bytes[offset..offset + into.len()]);
    }
    fn source(&self, peer: Rank, token: u64, offset: usize, length: usize) -> Option<&[u8]> {
        let (to, bytes) = &self.keeps[&token];
        assert_eq!(*to, peer);
        Some(&bytes[offset..offset + length])
    }
    fn sent(&mut self, peer: Rank, token: u64) {
        let kept = self.keeps.remove(&token);
        assert_eq!(kept.map(|(to, _)| to), Some(peer));
    }
    fn is_awaited(&self, _: Rank, token: u64) -> bool {
        token.is_multiple_of(2)
    }
    fn fragment(&mut self, _: Rank, header: &[u8], payload: &[u8]) -> bool {
        let has = self.has_room();
        if has {
            self.deliver(read(header), payload);
        }
        has
    }
    fn begin(&mut self, peer: Rank, header: &[u8], length: usize) -> Option<u64> {
        if !self.has_room() {
            return None;
        }
        self.tokens += 1;
        let id = self.tokens;
        let arriving = Arriving {
            peer,
            name: read(header),
            bytes: vec![0; length],
            missing: length,
        };
        self.arriving.insert(id, arriving);
        Some(id)
    }
    fn place(&mut self, id: u64, offset: usize, bytes: &[u8]) {
        let arriving = self.arriving.get_mut(&id).unwrap();
        arriving.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        arriving.missing -= bytes.len();
    }
    fn end(&mut self, id: u64) {
        let arriving = self.arriving.remove(&id).unwrap();
        assert_eq!(arriving.missing, 0);
        self.deliver(arriving.name, &arriving.bytes);
    }
    fn failed(&mut self, peer: Rank, failure: Failure) {
        self.failures.push((peer, failure));
        self.ended(peer);
    }
    fn joined(&mut self, peer: Rank) {
        self.joined.push(peer);
    }
    fn room(&self) -> usize {
        64 << 20
    }
}
