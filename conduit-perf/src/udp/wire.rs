//! Conduit's wire, without what is above it: fragments of the reliability protocol, sealed, over a
//! socket.

use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use conduit_udp::protocol::{Config, Endpoint, Failure, Fragment, FragmentHandler, Payload};
use conduit_udp::socket::{Peers, UdpAddress, Wire};
use seal::{Protection, Sealer, Secret};

use crate::Error;
use crate::limits::udp::{BLOCK, Waiting, meet_ports, open};
use crate::piece::Piece;
use crate::side::Side;

/// Fragments of a stream that are under way at once.
const UNDER_WAY: u64 = 4;

/// The memory that a stream goes from and to, and what has come.
#[derive(Debug)]
struct Ends {
    from: Vec<u8>,
    to: Vec<u8>,
    /// Tiny fragments that came.
    tiny: u64,
    /// Large ones that came whole.
    large: u64,
    /// Large ones that have arrived at the other side.
    sent: u64,
    failure: Option<String>,
}

impl FragmentHandler for Ends {
    fn read(&mut self, _: u32, _: u64, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.from[offset..offset + into.len()]);
    }
    fn source(&self, _: u32, _: u64, offset: usize, length: usize) -> Option<&[u8]> {
        self.from.get(offset..offset + length)
    }
    fn sent(&mut self, _: u32, _: u64) {
        self.sent += 1;
    }
    fn fragment(&mut self, _: u32, _: &[u8], payload: &[u8]) -> bool {
        self.to[..payload.len()].copy_from_slice(payload);
        self.tiny += 1;
        true
    }
    fn begin(&mut self, _: u32, _: &[u8], length: usize) -> Option<u64> {
        (length <= self.to.len()).then_some(0)
    }
    fn place(&mut self, _: u64, offset: usize, bytes: &[u8]) {
        self.to[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    fn end(&mut self, _: u64) {
        self.large += 1;
    }
    fn failed(&mut self, peer: u32, failure: Failure) {
        self.failure = Some(format!("side {peer} {failure}"));
    }
    fn room(&self) -> usize {
        4 << 20
    }
}

/// One side's wire.
struct End {
    wire: Wire<Endpoint, Sealer>,
    ends: Ends,
    peer: u32,
}

impl End {
    fn open(side: &Side<'_>, packet: usize) -> Result<Self, Error> {
        let failed = |source| Error::System {
            call: "wire",
            source,
        };
        let socket = open()?;
        let other = meet_ports(side, socket.address().port())?;
        let rank = side.rank() as u32;
        let udp_address = |address: std::net::SocketAddr| UdpAddress {
            ip: address.ip(),
            port: address.port(),
            packet: socket.packet() as u32,
            incarnation: u64::from(address.port()),
        };
        let mut addresses = [udp_address(socket.address()), udp_address(other)];
        if rank == 1 {
            addresses.reverse();
        }
        let config = Config {
            rank,
            size: 2,
            packet,
            // A wire rests while others are measured.
            dead_time: 600_000_000_000,
            socket_buffer: socket.buffers().receive,
            ..Config::default()
        };
        let seal = Sealer::new(
            Secret::from_bytes([5; 32]),
            Protection::Authenticate,
            rank,
            addresses
                .iter()
                .map(|address| address.incarnation)
                .collect(),
        );
        let endpoint = Endpoint::new(config);
        Ok(Self {
            wire: Wire::new(endpoint, seal, socket, Peers::new(&addresses, 0), packet)
                .map_err(failed)?,
            ends: Ends {
                from: vec![1; BLOCK],
                to: vec![2; BLOCK],
                tiny: 0,
                large: 0,
                sent: 0,
                failure: None,
            },
            peer: 1 - rank,
        })
    }

    fn send(&mut self, payload: Payload<'_>) -> Result<(), Error> {
        let fragment = Fragment {
            header: &[0; 8],
            payload,
        };
        let sent = self.wire.send(self.peer, &fragment);
        sent.map_err(|refused| failed(format!("a fragment was refused: {refused:?}")))?;
        // At once: the other side waits for it.
        self.wire.flush(&mut self.ends);
        Ok(())
    }

    /// Makes progress until `done`.
    fn until(
        &mut self,
        side: &Side<'_>,
        waiting: Waiting,
        mut done: impl FnMut(&Ends) -> bool,
    ) -> Result<(), Error> {
        let Self { wire, ends, .. } = self;
        match waiting {
            Waiting::Polling => side.spin_until("the wire", || {
                wire.progress(ends);
                done(ends) || ends.failure.is_some()
            })?,
            Waiting::Blocking => {
                let mut since = None;
                loop {
                    let did = wire.progress(ends);
                    if done(ends) || ends.failure.is_some() {
                        break;
                    }
                    if !did {
                        wire.wait(Some(Duration::from_millis(100)));
                        side.check("the wire", &mut since)?;
                    }
                }
            }
        }
        match ends.failure.take() {
            None => Ok(()),
            Some(failure) => Err(failed(failure)),
        }
    }
}

fn failed(text: String) -> Error {
    Error::Figure {
        name: "wire",
        source: text.into(),
    }
}

/// Round trips of tiny fragments. An operation is a full round trip.
pub(super) struct RoundTrips {
    size: usize,
    waiting: Waiting,
    end: Option<End>,
}

impl RoundTrips {
    pub(super) fn new(size: usize, waiting: Waiting) -> Self {
        Self {
            size,
            waiting,
            end: None,
        }
    }
}

impl Piece for RoundTrips {
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let end = match &mut self.end {
            Some(end) => end,
            none => none.insert(End::open(side, 1472)?),
        };
        let bytes = vec![side.rank() as u8; self.size];
        let first = end.ends.tiny;
        side.meet()?;
        let start = Instant::now();
        for trip in 1..=count {
            if side.rank() == 0 {
                end.send(Payload::Copied(&[&bytes]))?;
            }
            end.until(side, self.waiting, |ends| ends.tiny >= first + trip)?;
            if side.rank() == 1 {
                end.send(Payload::Copied(&[&bytes]))?;
            }
        }
        let time = start.elapsed();
        // The last answer's acknowledgement is still to come.
        finish(side, end)?;
        Ok(time)
    }
}

/// Makes progress on both sides until nothing is due on either.
fn finish(side: &Side<'_>, end: &mut End) -> Result<(), Error> {
    let settled = side.area().word(4 + side.rank())?;
    let other = side.area().word(5 - side.rank())?;
    settled.store(0, Relaxed);
    side.meet()?;
    // Long after any delayed acknowledgement.
    let until = Instant::now() + Duration::from_millis(1);
    end.until(side, Waiting::Polling, |_| {
        if Instant::now() >= until {
            settled.store(1, Release);
        }
        settled.load(Relaxed) == 1 && other.load(Acquire) == 1
    })?;
    side.meet()
}

/// A stream of fragments of [`BLOCK`] bytes, each read from memory and placed in memory. An
/// operation is one.
pub(super) struct Stream {
    packet: usize,
    end: Option<End>,
}

impl Stream {
    pub(super) fn new(packet: usize) -> Self {
        Self { packet, end: None }
    }
}

impl Piece for Stream {
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let end = match &mut self.end {
            Some(end) => end,
            none => none.insert(End::open(side, self.packet)?),
        };
        let arrived = side.area().word(3)?;
        if side.rank() == 0 {
            arrived.store(0, Relaxed);
        }
        side.meet()?;
        let start = Instant::now();
        if side.rank() == 0 {
            let first = end.ends.sent;
            for number in 0..count {
                let room = (number + 1).saturating_sub(UNDER_WAY);
                end.until(side, Waiting::Polling, |ends| ends.sent >= first + room)?;
                end.send(Payload::Read {
                    token: number,
                    length: BLOCK as u32,
                })?;
            }
            end.until(side, Waiting::Polling, |ends| ends.sent >= first + count)?;
            arrived.store(1, Release);
        } else {
            let first = end.ends.large;
            end.until(side, Waiting::Polling, |ends| {
                ends.large >= first + count && arrived.load(Acquire) == 1
            })?;
        }
        let time = start.elapsed();
        finish(side, end)?;
        Ok(time)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SETUPS;
    use super::*;
    use crate::testing::in_threads;

    #[test]
    fn every_row_runs_and_its_limit_too() {
        in_threads(2, |side| {
            for row in SETUPS.iter().flat_map(|setup| setup.rows) {
                let Some((_, wire)) = row.kind.wire() else {
                    continue;
                };
                for mut piece in [(row.limit)().piece, wire] {
                    piece
                        .run(side, 3)
                        .unwrap_or_else(|error| panic!("{}: {error}", row.name));
                    side.meet().expect("meet");
                }
            }
        });
    }

    #[test]
    fn a_stream_arrives_where_it_belongs() {
        in_threads(2, |side| {
            let mut stream = Stream::new(1472);
            stream.run(side, 2).expect("a stream");
            let end = stream.end.expect("opened");
            if side.rank() == 1 {
                assert_eq!(end.ends.large, 2);
                assert_eq!(end.ends.to, vec![1; BLOCK]);
            }
        });
    }
}
