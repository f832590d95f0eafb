//! Datagrams of the protocol over UDP, without sockets. Two endpoints in one process exchange
//! packets, which are sealed as in a job.

use anyhow::ensure;
use conduit_core::ni::Rank;
use conduit_udp::protocol::{
    Config, Endpoint, Failure, Fragment, FragmentHandler, Nanos, Payload, Received,
};
use seal::{Protection, Sealer, Secret};

use super::sections::Sections;

/// The number of tiny fragments that are sent together.
const BUNDLE: u64 = 32;
/// The size in bytes of a fragment that is sent in eight chunks.
const CHUNKED: usize = 8 * 1400;
/// The simulated time between two calls of `carry`.
const STEP: Nanos = 5_000;

/// A handler that counts fragments and, like a put, copies the bytes of long ones from and to a
/// buffer.
struct Counting {
    source: Vec<u8>,
    target: Vec<u8>,
    /// The number of fragments received.
    fragments: u64,
    /// The number of long fragments that the peer has acknowledged.
    sent: u64,
    failure: Option<Failure>,
}

impl FragmentHandler for Counting {
    fn read(&mut self, _peer: Rank, _token: u64, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.source[offset..][..into.len()]);
    }
    fn sent(&mut self, _peer: Rank, _token: u64) {
        self.sent += 1;
    }
    fn fragment(&mut self, _peer: Rank, _header: &[u8], _payload: &[u8]) -> bool {
        self.fragments += 1;
        true
    }
    fn begin(&mut self, _peer: Rank, _header: &[u8], _length: usize) -> Option<u64> {
        Some(0)
    }
    fn place(&mut self, _place: u64, offset: usize, bytes: &[u8]) {
        self.target[offset..][..bytes.len()].copy_from_slice(bytes);
    }
    fn end(&mut self, _place: u64) {
        self.fragments += 1;
    }
    fn failed(&mut self, _peer: Rank, failure: Failure) {
        self.failure = Some(failure);
    }
    fn room(&self) -> usize {
        usize::MAX
    }
}

struct End {
    endpoint: Endpoint,
    seal: Sealer,
    handler: Counting,
}

struct Pair {
    now: Nanos,
    ends: [End; 2],
    buffer: Vec<u8>,
}

impl Pair {
    fn new() -> Self {
        let end = |rank| End {
            endpoint: Endpoint::new(Config {
                rank,
                size: 2,
                ..Config::default()
            }),
            seal: Sealer::new(
                Secret::from_bytes([7; Secret::LENGTH]),
                Protection::Authenticate,
                rank,
                vec![11, 12],
            ),
            handler: Counting {
                source: vec![1; CHUNKED],
                target: vec![0; CHUNKED],
                fragments: 0,
                sent: 0,
                failure: None,
            },
        };
        Self {
            now: 1,
            ends: [end(0), end(1)],
            buffer: vec![0; 1 << 16],
        }
    }

    fn send(&mut self, from: usize, payload: Payload<'_>) -> anyhow::Result<()> {
        let fragment = Fragment {
            header: &[7; 24],
            payload,
        };
        let End { endpoint, .. } = &mut self.ends[from];
        let sent = endpoint.send(self.now, 1 - from as Rank, &fragment);
        ensure!(sent.is_ok(), "a fragment was refused: {sent:?}");
        Ok(())
    }

    /// Passes all packets of one end to the other.
    fn carry(&mut self, from: usize) -> anyhow::Result<()> {
        self.now += STEP;
        let [a, b] = &mut self.ends;
        let (sender, receiver) = match from {
            0 => (a, b),
            _ => (b, a),
        };
        let End {
            endpoint,
            seal,
            handler,
        } = sender;
        while let Some(transmit) = endpoint.transmit(self.now, &mut self.buffer, seal, handler) {
            let (length, segment) = (transmit.length, transmit.segment);
            for packet in self.buffer[..length].chunks_mut(segment) {
                let End {
                    endpoint,
                    seal,
                    handler,
                } = receiver;
                let received = endpoint.receive(self.now, packet, seal, handler);
                ensure!(
                    received == Received::Taken(from as Rank),
                    "a packet was {received:?}"
                );
            }
        }
        if endpoint.timeout().is_some_and(|at| at <= self.now) {
            endpoint.on_timeout(self.now, handler);
        }
        ensure!(handler.failure.is_none(), "{:?}", handler.failure);
        Ok(())
    }

    /// Sends `together` tiny fragments at once, and the same number back.
    fn tiny(&mut self, together: u64) -> anyhow::Result<()> {
        for from in [0, 1] {
            let before = self.ends[1 - from].handler.fragments;
            for _ in 0..together {
                self.send(from, Payload::Copied(&[&[1; 8]]))?;
            }
            self.carry(from)?;
            let came = self.ends[1 - from].handler.fragments - before;
            ensure!(came == together, "{came} of {together} fragments arrived");
        }
        Ok(())
    }

    /// Sends a fragment in chunks, and waits until it is acknowledged.
    fn chunks(&mut self) -> anyhow::Result<()> {
        let before = self.ends[0].handler.sent;
        let payload = Payload::Read {
            token: before,
            length: CHUNKED as u32,
        };
        self.send(0, payload)?;
        while self.ends[0].handler.sent == before {
            self.carry(0)?;
            self.carry(1)?;
        }
        Ok(())
    }
}

/// Repeats round trips of tiny fragments, and a long fragment.
///
/// # Errors
/// Fails if an endpoint refuses a fragment or drops a packet.
pub(super) fn repeat(sections: &mut Sections<'_>) -> anyhow::Result<()> {
    let mut pair = Pair::new();
    sections.run("tiny-round-trip", |count| {
        (0..count).try_for_each(|_| pair.tiny(1))
    })?;
    sections.run("bundle-round-trip", |count| {
        (0..count).try_for_each(|_| pair.tiny(BUNDLE))
    })?;
    sections.run("chunks", |count| (0..count).try_for_each(|_| pair.chunks()))
}
