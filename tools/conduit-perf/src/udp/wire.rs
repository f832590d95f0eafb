//! Conduit's wire without the layers above it. It sends sealed fragments of the reliability
//! protocol over a socket.

use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use conduit_udp::protocol::{Config, Endpoint, Failure, Fragment, FragmentHandler, Payload};
use conduit_udp::socket::{Driver, Peers, UdpAddress};
use seal::{Protection, Sealer, Secret};

use crate::Error;
use crate::bare::{self, Endpoint as _, opened};
use crate::limits::udp::{BLOCK, meet_ports, open};
use crate::piece::Piece;
use crate::side::{Side, Waiting};

/// The maximum number of fragments of a stream that are under way at once.
const UNDER_WAY: u64 = 4;
/// The maximum number of bytes in a tiny fragment.
const MOST_BYTES: usize = 64;

/// The source and destination memory of a stream, and counts of fragments.
#[derive(Debug)]
struct Ends {
    from: Vec<u8>,
    to: Vec<u8>,
    /// The number of tiny fragments received.
    tiny: u64,
    /// The number of large fragments received completely.
    large: u64,
    /// The number of large fragments that have arrived at the other side.
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
    wire: Driver<Endpoint, Sealer>,
    ends: Ends,
    peer: u32,
    waiting: Waiting,
    /// The number of large fragments sent.
    begun: u64,
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
            // The dead time is long, because a wire is idle while others are measured.
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
            wire: Driver::new(endpoint, seal, socket, Peers::new(&addresses, 0), packet)
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
            waiting: Waiting::Polling,
            begun: 0,
        })
    }

    fn send_fragment(&mut self, payload: Payload<'_>) -> Result<(), Error> {
        let fragment = Fragment {
            header: &[0; 8],
            payload,
        };
        let sent = self.wire.send(self.peer, &fragment);
        sent.map_err(|refused| failed(format!("a fragment was refused: {refused:?}")))?;
        // The wire is flushed immediately, because the other side waits for the fragment.
        self.wire.flush(&mut self.ends);
        Ok(())
    }
}

impl bare::Endpoint for End {
    const NAME: &'static str = "the wire";

    fn send(&mut self, side: &Side<'_>, size: usize) -> Result<(), Error> {
        let bytes = [side.rank() as u8; MOST_BYTES];
        self.send_fragment(Payload::Copied(&[&bytes[..size]]))
    }

    fn received(&self) -> u64 {
        self.ends.tiny
    }

    fn under_way(&self) -> u64 {
        self.begun - self.ends.sent
    }

    fn poll(&mut self) -> Result<(), Error> {
        let did = self.wire.progress(&mut self.ends);
        match self.ends.failure.take() {
            Some(failure) => return Err(failed(failure)),
            None if !did && self.waiting == Waiting::Blocking => {
                self.wire.wait(Some(Duration::from_millis(100)));
            }
            None => {}
        }
        Ok(())
    }

    fn waiting(&self) -> Waiting {
        self.waiting
    }

    fn rest(&mut self, side: &Side<'_>) -> Result<(), Error> {
        let settled = side.area().word(4 + side.rank())?;
        let other = side.area().word(5 - side.rank())?;
        settled.store(0, Relaxed);
        side.meet()?;
        self.waiting = Waiting::Polling;
        // This time is much longer than the delay of any acknowledgement.
        let until = Instant::now() + Duration::from_millis(1);
        self.until(side, |_| {
            if Instant::now() >= until {
                settled.store(1, Release);
            }
            settled.load(Relaxed) == 1 && other.load(Acquire) == 1
        })?;
        side.meet()
    }
}

fn failed(text: String) -> Error {
    Error::Figure {
        name: "wire",
        source: text.into(),
    }
}

/// Returns round trips of tiny fragments of `size` bytes. An operation is a full round trip.
pub(super) fn round_trips(size: usize, waiting: Waiting) -> impl Piece {
    let mut end = None;
    move |side: &Side<'_>, count| {
        let end = opened(&mut end, || End::open(side, 1472))?;
        end.waiting = waiting;
        end.round_trips(side, size, count)
    }
}

/// A stream of fragments of [`BLOCK`] bytes, each read from memory and placed in memory. An
/// operation is one fragment.
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
        let end = opened(&mut self.end, || End::open(side, self.packet))?;
        let arrived = side.area().word(3)?;
        if side.rank() == 0 {
            arrived.store(0, Relaxed);
        }
        side.meet()?;
        let start = Instant::now();
        if side.rank() == 0 {
            end.stream(side, count, UNDER_WAY, |end| {
                end.begun += 1;
                end.send_fragment(Payload::Read {
                    token: end.begun,
                    length: BLOCK as u32,
                })
            })?;
            end.drain(side)?;
            arrived.store(1, Release);
        } else {
            let last = end.ends.large + count;
            end.until(side, |end| {
                end.ends.large >= last && arrived.load(Acquire) == 1
            })?;
        }
        let time = start.elapsed();
        end.rest(side)?;
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
