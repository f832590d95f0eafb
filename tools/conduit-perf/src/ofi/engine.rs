//! The whole engine over libfabric, in a network that consists of the two sides.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use am::handlers::Registration;
use conduit_core::engine::{Call, Engine, Handler};
use conduit_core::kernel::{Blocking, Completion};
use conduit_core::messages::Payload;
use conduit_core::settings::Settings;
use conduit_core::threads::Seq;
use conduit_ofi::job::Ofi;
use conduit_ofi::job::{OfiConfig, start};

use crate::Error;
use crate::limits::alone::Private;
use crate::side::Side;

use super::{OVER, UNDER_WAY};
use crate::exchange::Exchange;

type Ranks = Engine<Ofi<Seq>, Seq>;
type Message<'a> = Call<'a, Ofi<Seq>, Seq>;

/// The number of the handler of shorts.
const PING: u8 = 128;
/// The number of the handler of replies.
const PONG: u8 = 129;
/// The number of the handler of mediums.
const PING_MEDIUM: u8 = 130;

/// Wraps an error of the engine.
fn failed(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Figure {
        name: "conduit over libfabric",
        source: Box::new(source),
    }
}

/// A rank that measures.
pub(super) struct End {
    engine: Ranks,
    /// The number of requests and the number of replies handled so far.
    seen: Arc<[AtomicU64; 2]>,
}

impl End {
    /// Starts the engine on both sides, each with a segment of `segment` bytes.
    pub(super) fn open(side: &Side<'_>, config: &OfiConfig, segment: usize) -> Result<Self, Error> {
        let mut exchange = Exchange::new(side);
        let network = start::<Seq>(&mut exchange, config).map_err(failed)?;
        let engine = Engine::start(network, &mut exchange, &Settings::default()).map_err(failed)?;
        let seen = Arc::<[AtomicU64; 2]>::default();
        let (pinged, ponged) = (Arc::clone(&seen), Arc::clone(&seen));
        let ping: Handler<Ofi<Seq>, Seq> = Handler::new(move |call: &Message<'_>| {
            add(&pinged[0]);
            // The result is ignored. If the reply is refused, the requester waits for it in vain,
            // which ends in an error there.
            let _ = call.reply_short(PONG, &[]);
        });
        let pong: Handler<Ofi<Seq>, Seq> = Handler::new(move |_: &Message<'_>| add(&ponged[1]));
        let pinged = Arc::clone(&seen);
        let ping_medium: Handler<Ofi<Seq>, Seq> = Handler::new(move |call: &Message<'_>| {
            add(&pinged[0]);
            if let Payload::Medium(payload) = call.payload() {
                // The result is ignored for the same reason as that of `reply_short`.
                let _ = call.reply_medium(PONG, &[], payload);
            }
        });
        let mut handlers = [
            Registration::new(PING, ping),
            Registration::new(PONG, pong),
            Registration::new(PING_MEDIUM, ping_medium),
        ];
        engine
            .memory()
            .attach(&mut exchange, &mut handlers, segment)
            .map_err(failed)?;
        Ok(Self { engine, seen })
    }

    /// Returns the address and the length of this rank's segment.
    pub(super) fn segment(&self) -> Result<(*mut u8, usize), Error> {
        self.engine.memory().segment().map_err(failed)
    }

    /// Returns the network's counters.
    pub(super) fn counters(&self) -> String {
        let network = self.engine.job().network();
        network.counters(|portals, wire| format!("{wire:?} {portals:?}"))
    }

    /// Leaves the network.
    pub(super) fn leave(&self) {
        self.engine.job().network().leave();
    }

    /// Sends shorts with one 64-bit word, to which side 1 replies. An operation is a full round
    /// trip.
    pub(super) fn shorts(&self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        self.round_trips(side, count, |trip| {
            let args = [trip as u32, (trip >> 32) as u32];
            let sent = self
                .engine
                .messages()
                .request_short(1, PING, &args, Blocking::Wait);
            sent.map(drop).map_err(failed)
        })
    }

    /// Sends mediums, to which side 1 replies with the same bytes. An operation is a full round
    /// trip.
    pub(super) fn mediums(
        &self,
        side: &Side<'_>,
        payload: &[u8],
        count: u64,
    ) -> Result<Duration, Error> {
        self.round_trips(side, count, |_| {
            let sent =
                self.engine
                    .messages()
                    .request_medium(1, PING_MEDIUM, &[], payload, Blocking::Wait);
            sent.map(drop).map_err(failed)
        })
    }

    /// Sends requests from side 0, each after the reply to the previous one.
    #[inline(always)]
    fn round_trips(
        &self,
        side: &Side<'_>,
        count: u64,
        request: impl Fn(u64) -> Result<(), Error>,
    ) -> Result<Duration, Error> {
        let [pings, pongs] = &*self.seen;
        let (first_ping, first_pong) = (pings.load(Relaxed), pongs.load(Relaxed));
        side.area().word(OVER)?.store(0, Relaxed);
        side.meet()?;
        let start = Instant::now();
        if side.rank() == 0 {
            for trip in 1..=count {
                request(trip)?;
                self.engine
                    .wait_until(|| pongs.load(Relaxed) - first_pong >= trip)
                    .map_err(failed)?;
            }
        } else {
            self.engine
                .wait_until(|| pings.load(Relaxed) - first_ping >= count)
                .map_err(failed)?;
        }
        let time = start.elapsed();
        self.over(side)?;
        Ok(time)
    }

    /// Puts from the same memory to the same destination, with up to [`UNDER_WAY`] puts under way
    /// at once. An operation is one put.
    pub(super) fn puts(
        &self,
        side: &Side<'_>,
        source: &Private,
        size: usize,
        count: u64,
    ) -> Result<Duration, Error> {
        side.area().word(OVER)?.store(0, Relaxed);
        side.meet()?;
        let start = Instant::now();
        let mut time = Duration::ZERO;
        if side.rank() == 0 {
            let from = source.with(|source| source.as_ptr());
            let mut handles = VecDeque::with_capacity(UNDER_WAY as usize);
            for _ in 0..count {
                if handles.len() == UNDER_WAY as usize
                    && let Some(handle) = handles.pop_front()
                {
                    self.engine.rma().wait(handle).map_err(failed)?;
                }
                // SAFETY: `source` keeps the bytes valid during this call, which waits for all
                // handles before it returns, and nothing writes to them.
                let put = unsafe {
                    self.engine.rma().put_nb_bulk(
                        1,
                        0,
                        from,
                        size,
                        Completion::Handle,
                        Blocking::Wait,
                    )
                };
                handles.extend(put.map_err(failed)?);
            }
            for handle in handles {
                self.engine.rma().wait(handle).map_err(failed)?;
            }
            time = start.elapsed();
        }
        self.over(side)?;
        Ok(time)
    }

    /// Ends a measurement. Side 1 makes progress until side 0 is done.
    fn over(&self, side: &Side<'_>) -> Result<(), Error> {
        let over = side.area().word(OVER)?;
        if side.rank() == 0 {
            over.store(1, Release);
        } else {
            self.engine
                .wait_until(|| over.load(Acquire) == 1)
                .map_err(failed)?;
        }
        side.meet()
    }
}

/// Adds 1 without a locked instruction, because handlers run on the rank's only thread.
fn add(word: &AtomicU64) {
    word.store(word.load(Relaxed) + 1, Relaxed);
}
