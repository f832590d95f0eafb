//! Compares the network over UDP with plain sockets on this host: the round trip of a short
//! message, and the bandwidth of large puts. Two ranks run in two threads, which spin. The two
//! kinds of network are measured in turn, three times, and the best result of each counts.
//!
//! `cargo run --release -p pgas-conduit-udp --example portals_cost`

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use conduit_core::ni::{
    Ack, EqId, Event, Exchange, Inject, MatchEntry, MeEvents, MeMemory, MeOptions, Ni, PtIndex,
    Put, Ready, Submit,
};
use conduit_core::threads::ParSync;
use conduit_udp::job::Udp;
use conduit_udp::job::{UdpConfig, UdpCounters, in_process};
use conduit_udp::socket::Options;

const TRIPS: u32 = 20_000;
const PUTS: u64 = 1000;
const PUT: usize = 1 << 20;
const PT: PtIndex = PtIndex(0);
const BULK: PtIndex = PtIndex(1);

type End = Udp<ParSync>;

/// Returns the nanoseconds of a round trip between two plain sockets.
fn bare_trip() -> f64 {
    let open = || {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        socket.set_nonblocking(true).expect("non-blocking");
        socket
    };
    let (a, b) = (open(), open());
    a.connect(b.local_addr().expect("bound")).expect("connect");
    b.connect(a.local_addr().expect("bound")).expect("connect");
    let mut buffer = [0; 64];
    let mut other = [0; 64];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..TRIPS {
                while b.recv(&mut other).is_err() {}
                b.send(&other[..8]).expect("send");
            }
        });
        let start = Instant::now();
        for _ in 0..TRIPS {
            a.send(&[1; 8]).expect("send");
            while a.recv(&mut buffer).is_err() {}
        }
        start.elapsed().as_nanos() as f64 / f64::from(TRIPS)
    })
}

fn send(end: &End, to: u32) {
    let inject = Inject {
        target: to,
        index: PT,
        exchange: Exchange::OneWay,
        match_bits: 0,
        hdr_data: 0,
        head: &[1; 8],
        body: &[],
    };
    while end.inject(&inject).expect("inject") == Submit::Again {
        end.progress();
    }
}

/// Polls once, in the same way as the engine.
fn poll(end: &End, eq: EqId, heard: &mut u64) {
    let ready = end.ready();
    if ready.intersects(Ready::queue(eq)) {
        end.poll(eq, 8, |event| {
            if matches!(
                event,
                Event::Put(_) | Event::Ack { .. } | Event::Free { .. }
            ) {
                *heard += u64::from(!matches!(event, Event::Free { .. }));
            }
        });
    }
}

fn listen(end: &End) -> EqId {
    let eq = end.eq_create(4096).expect("a queue");
    end.pt_open(PT, Some(eq)).expect("an index");
    let entry = MatchEntry {
        memory: MeMemory::Managed {
            bytes: 1 << 40,
            min_free: 64,
        },
        match_bits: 0,
        ignore_bits: u64::MAX,
        source: None,
        options: MeOptions::PUT,
        events: MeEvents::OPERATION,
        tag: 0,
    };
    end.me_append(PT, entry).expect("an entry");
    eq
}

fn bulk(end: &End) {
    end.pt_open(BULK, None).expect("an index");
    let region = end.region_create(PUT).expect("a region");
    let entry = MatchEntry {
        memory: MeMemory::Region {
            region: region.id,
            offset: 0,
            len: PUT,
        },
        match_bits: 0,
        ignore_bits: u64::MAX,
        source: None,
        options: MeOptions::PUT,
        events: MeEvents::empty(),
        tag: 0,
    };
    end.me_append(BULK, entry).expect("an entry");
}

/// Returns the nanoseconds of a round trip of injects, and the megabytes per second of puts.
fn portals(mtu: usize) -> (f64, f64) {
    let options = Options {
        address: Ipv4Addr::LOCALHOST.into(),
        scope: 0,
        ports: Options::ANY_PORT,
        mtu: Some(mtu),
        send_buffer: Options::BUFFER,
        receive_buffer: Options::BUFFER,
        offload: true,
    };
    let config = UdpConfig::new(options, "localhost".to_owned());
    let mut ends = in_process::<ParSync>(2, &config).expect("a job");
    let (b, a) = (ends.pop().expect("two"), ends.pop().expect("two"));
    let (of_a, of_b) = (listen(&a), listen(&b));
    bulk(&b);
    let done = AtomicBool::new(false);
    let done = &done;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut heard = 0;
            for trip in 1..=u64::from(TRIPS) {
                while heard < trip {
                    poll(&b, of_b, &mut heard);
                }
                send(&b, 0);
            }
            while !done.load(Ordering::Relaxed) {
                let _ = b.ready();
            }
            println!("{}", b.counters(UdpCounters::of).report(1));
        });
        let mut heard = 0;
        // The first trip opens the link.
        let start = Instant::now();
        for trip in 1..=u64::from(TRIPS) {
            send(&a, 1);
            while heard < trip {
                poll(&a, of_a, &mut heard);
            }
        }
        let trip = start.elapsed().as_nanos() as f64 / f64::from(TRIPS);
        let source = vec![7_u8; PUT];
        // SAFETY: the source lives until all puts have ended.
        let md = unsafe { a.md_bind(source.as_ptr().cast_mut(), PUT, of_a) }.expect("bind");
        let start = Instant::now();
        let mut ended = 0;
        for token in 0..PUTS {
            let put = Put {
                md,
                local_offset: 0,
                length: PUT,
                ack: Ack::Remote,
                target: 1,
                index: BULK,
                match_bits: 0,
                remote_offset: 0,
                hdr_data: 0,
                token,
            };
            // At most 16 puts are in flight at a time.
            while token - ended >= 16 {
                poll(&a, of_a, &mut ended);
            }
            // SAFETY: the descriptor's memory, `source`, lives until all puts have ended and is not
            // written.
            while unsafe { a.put(&put) }.expect("put") == Submit::Again {
                poll(&a, of_a, &mut ended);
            }
        }
        while ended < PUTS {
            poll(&a, of_a, &mut ended);
        }
        let rate = (PUTS as usize * PUT) as f64 / start.elapsed().as_secs_f64() / 1e6;
        done.store(true, Ordering::Relaxed);
        println!("{}", a.counters(UdpCounters::of).report(0));
        (trip, rate)
    })
}

fn main() {
    let mut best = (f64::MAX, f64::MAX, 0.0_f64);
    for _ in 0..3 {
        best.0 = best.0.min(bare_trip());
        let (trip, rate) = portals(1500);
        best.1 = best.1.min(trip);
        best.2 = best.2.max(rate);
    }
    println!(
        "round trip: plain sockets {:.0} ns, injects {:.0} ns, ratio {:.2}; puts of 1 MiB in packets of 1472 bytes: {:.0} MB/s",
        best.0,
        best.1,
        best.1 / best.0,
        best.2
    );
}
