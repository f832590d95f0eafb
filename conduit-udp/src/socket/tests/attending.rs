use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;

use super::{loopbacks, open, options};
use crate::socket::attendant::Thread;
use crate::socket::{Attendant, Attended, Batch, Socket};

const LONG: Duration = Duration::from_secs(600);

/// Something to attend to that counts, and tells of it.
struct Counting {
    socket: Mutex<Socket>,
    attended: AtomicUsize,
    woken: AtomicUsize,
    datagrams: AtomicUsize,
    /// Says no from so many calls on.
    patience: usize,
    told: SyncSender<&'static str>,
}

impl Attended for Counting {
    fn attend(&self) -> Option<Option<Duration>> {
        let mut socket = self.socket.try_lock()?;
        let mut batch = Batch::new();
        while socket.receive(&mut batch) {
            while batch.next_datagram().is_some() {
                self.datagrams.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = self.attended.fetch_add(1, Ordering::Relaxed) + 1;
        let _ = self.told.try_send("attended");
        (count < self.patience).then_some(None)
    }

    fn wake(&self) {
        self.woken.fetch_add(1, Ordering::Relaxed);
        let _ = self.told.try_send("woken");
    }
}

fn counting(patience: usize) -> (Arc<Counting>, Receiver<&'static str>) {
    let (told, tells) = sync_channel(1000);
    let counting = Counting {
        socket: Mutex::new(open(&options(loopbacks()[0]))),
        attended: AtomicUsize::new(0),
        woken: AtomicUsize::new(0),
        datagrams: AtomicUsize::new(0),
        patience,
        told,
    };
    (Arc::new(counting), tells)
}

/// The two sides, in one thread; a period of no time is over at once.
fn sides(counting: &Arc<Counting>, period: Duration) -> (Attendant, Thread) {
    let waiter = counting.socket.lock().waiter().unwrap();
    Attendant::new(Arc::clone(counting) as _, waiter, period).unwrap()
}

fn send_to(counting: &Counting) {
    let to = counting.socket.lock().address();
    let from = UdpSocket::bind((to.ip(), 0)).unwrap();
    from.send_to(b"a packet", to).unwrap();
}

#[test]
fn a_rank_that_is_here_is_left_alone() {
    let (counting, _tells) = counting(usize::MAX);
    let (attendant, thread) = sides(&counting, Duration::ZERO);
    let mut seen = thread.presence();
    for _ in 0..10 {
        attendant.present();
        seen = thread.round(seen);
    }
    assert_eq!(counting.attended.load(Ordering::Relaxed), 0);
}

#[test]
fn a_rank_that_is_away_is_attended_to_until_somebody_is_in_the_wire() {
    let (counting, _tells) = counting(3);
    let (attendant, thread) = sides(&counting, Duration::ZERO);
    send_to(&counting);
    attendant.present();
    let seen = thread.presence();
    assert_eq!(thread.round(seen), seen);
    assert_eq!(counting.attended.load(Ordering::Relaxed), 3);
    assert_eq!(counting.datagrams.load(Ordering::Relaxed), 1);
    let _inside = counting.socket.lock();
    thread.round(seen);
    assert_eq!(counting.attended.load(Ordering::Relaxed), 3);
}

#[test]
fn a_rank_that_waits_for_packets_itself_is_left_alone_and_counts_as_here_afterwards() {
    let (counting, _tells) = counting(usize::MAX);
    let (attendant, thread) = sides(&counting, Duration::ZERO);
    let waiter = counting.socket.lock().waiter().unwrap();
    let seen = thread.presence();
    std::thread::scope(|scope| {
        let rank = scope.spawn(|| attendant.wait(&waiter, Some(Duration::from_secs(10))));
        while attendant.waiting() == 0 {
            std::thread::yield_now();
        }
        for _ in 0..10 {
            thread.round(seen);
        }
        assert_eq!(counting.attended.load(Ordering::Relaxed), 0);
        send_to(&counting);
        assert!(rank.join().unwrap());
    });
    thread.round(seen);
    assert_eq!(counting.attended.load(Ordering::Relaxed), 0);
}

#[test]
fn a_rank_that_sleeps_is_woken_by_a_packet_whenever_it_came() {
    let (counting, _tells) = counting(usize::MAX);
    let (attendant, thread) = sides(&counting, LONG);
    // Before it armed.
    send_to(&counting);
    attendant.arm();
    thread.round(thread.presence());
    assert_eq!(counting.woken.load(Ordering::Relaxed), 1);
    // After.
    counting.attend();
    attendant.arm();
    std::thread::scope(|scope| {
        scope.spawn(|| thread.round(thread.presence()));
        send_to(&counting);
    });
    assert_eq!(counting.woken.load(Ordering::Relaxed), 2);
}

#[test]
fn a_rank_that_sleeps_is_woken_when_a_period_is_over() {
    let (counting, _tells) = counting(usize::MAX);
    let (attendant, thread) = sides(&counting, Duration::ZERO);
    attendant.arm();
    thread.round(thread.presence());
    assert_eq!(counting.woken.load(Ordering::Relaxed), 1);
    assert_eq!(counting.attended.load(Ordering::Relaxed), 0);
}

#[test]
fn the_thread_attends_and_ends() {
    let (counting, tells) = counting(usize::MAX);
    let waiter = counting.socket.lock().waiter().unwrap();
    let period = Duration::from_millis(1);
    let attendant = Attendant::start(3, Arc::clone(&counting) as _, waiter, period).unwrap();
    send_to(&counting);
    while counting.datagrams.load(Ordering::Relaxed) == 0 {
        tells.recv_timeout(Duration::from_secs(10)).unwrap();
    }
    drop(attendant);
    assert_eq!(Arc::strong_count(&counting), 1);
}

#[test]
fn arming_ends_a_pause_and_so_does_the_end() {
    let (counting, tells) = counting(usize::MAX);
    let waiter = counting.socket.lock().waiter().unwrap();
    let attendant = Attendant::start(3, Arc::clone(&counting) as _, waiter, LONG).unwrap();
    for _ in 0..3 {
        attendant.arm();
        send_to(&counting);
        assert_eq!(tells.recv_timeout(Duration::from_secs(10)), Ok("woken"));
        counting.attend();
        assert_eq!(tells.recv_timeout(Duration::from_secs(10)), Ok("attended"));
    }
    drop(attendant);
    assert_eq!(Arc::strong_count(&counting), 1);
}
