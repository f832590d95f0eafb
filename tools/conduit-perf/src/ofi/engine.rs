//! The whole engine over libfabric, on the sides' own network.

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

/// The handlers' numbers.
const PING: u8 = 128;
const PONG: u8 = 129;
/// The same for mediums.
const PING_MEDIUM: u8 = 130;

/// Makes an error of what has happened.
fn failed(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Figure {
        name: "conduit over libfabric",
        source: Box::new(source),
    }
}

/// A rank that measures.
pub(super) struct End {
    engine: Ranks,
    /// Requests and replies that were handled.
    seen: Arc<[AtomicU64; 2]>,
}

impl End {
    /// Starts the engine on both sides, each with a segment of so many bytes.
    pub(super) fn open(side: &Side<'_>, config: &OfiConfig, segment: usize) -> Result<Self, Error> {
        let mut exchange = Exchange(side);
        let network = start::<Seq>(&mut exchange, config).map_err(failed)?;
        let engine = Engine::start(network, &mut exchange, &Settings::default()).map_err(failed)?;
        let seen = Arc::<[AtomicU64; 2]>::default();
        let (pinged, ponged) = (Arc::clone(&seen), Arc::clone(&seen));
        let ping: Handler<Ofi<Seq>, Seq> = Handler::new(move |call: &Message<'_>| {
            add(&pinged[0]);
            // A refused reply leaves the requester waiting, which ends in an error there.
            let _ = call.reply_short(PONG, &[]);
        });
        let pong: Handler<Ofi<Seq>, Seq> = Handler::new(move |_: &Message<'_>| add(&ponged[1]));
        let pinged = Arc::clone(&seen);
        let ping_medium: Handler<Ofi<Seq>, Seq> = Handler::new(move |call: &Message<'_>| {
            add(&pinged[0]);
            if let Payload::Medium(payload) = call.payload() {
                // As above.
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

    /// This rank's segment.
    pub(super) fn segment(&self) -> Result<(*mut u8, usize), Error> {
        self.engine.memory().segment().map_err(failed)
    }

    /// What the network has counted.
    pub(super) fn counters(&self) -> String {
        let network = self.engine.job().network();
        network.counters(|portals, wire| format!("{wire:?} {portals:?}"))
    }

    /// Says goodbye.
    pub(super) fn leave(&self) {
        self.engine.job().network().leave();
    }

    /// Shorts with one word and their replies. An operation is a full round trip.
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

    /// Mediums and replies with the same bytes. An operation is a full round trip.
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

    /// Requests of side 0, each after the reply to the one before.
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

    /// Puts from the same memory to the same place, [`UNDER_WAY`] at once. An operation is one.
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
                // SAFETY: the source stays, and is written by nobody meanwhile.
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

    /// Side 0 is done; the other makes progress until then.
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

/// Handlers run on the rank's only thread.
fn add(word: &AtomicU64) {
    word.store(word.load(Relaxed) + 1, Relaxed);
}
