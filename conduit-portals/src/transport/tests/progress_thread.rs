use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;

use rustix::event::{PollFd, PollFlags};

use conduit_core::ni::Ni;
use conduit_core::threads::Seq;

use super::{PT, events, job, over, put_to_1};
use crate::transport::progress_thread::Thread;
use crate::transport::{Progress, ProgressThread, Wait, timespec};

const LONG: Duration = Duration::from_secs(600);

/// Counts the calls of a progress thread and reports them.
struct Counting {
    socket: Mutex<UdpSocket>,
    calls: AtomicUsize,
    woken: AtomicUsize,
    datagrams: AtomicUsize,
    /// `progress` returns `None` after this many calls.
    most_calls: usize,
    reports: SyncSender<&'static str>,
}

impl Progress for Counting {
    fn progress(&self) -> Option<Option<Duration>> {
        let socket = self.socket.try_lock()?;
        while socket.recv(&mut [0; 64]).is_ok() {
            self.datagrams.fetch_add(1, Ordering::Relaxed);
        }
        let count = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let _ = self.reports.try_send("progressed");
        (count < self.most_calls).then_some(None)
    }

    fn wake(&self) {
        self.woken.fetch_add(1, Ordering::Relaxed);
        let _ = self.reports.try_send("woken");
    }
}

fn counting(most_calls: usize) -> (Arc<Counting>, Receiver<&'static str>) {
    let (reports, received) = sync_channel(1000);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let counting = Counting {
        socket: Mutex::new(socket),
        calls: AtomicUsize::new(0),
        woken: AtomicUsize::new(0),
        datagrams: AtomicUsize::new(0),
        most_calls,
        reports,
    };
    (Arc::new(counting), received)
}

/// Waits for a socket.
struct Waiter(OwnedFd);

impl Wait for Waiter {
    fn wait(&self, also: Option<&OwnedFd>, limit: Option<Duration>) -> bool {
        let mut descriptors = [&self.0, also.unwrap_or(&self.0)]
            .map(|descriptor| PollFd::new(descriptor, PollFlags::IN));
        let limit = limit.map(timespec);
        rustix::event::poll(&mut descriptors, limit.as_ref()).is_ok()
            && !descriptors[0].revents().is_empty()
    }
}

fn waiter(counting: &Counting) -> Arc<dyn Wait> {
    Arc::new(Waiter(counting.socket.lock().try_clone().unwrap().into()))
}

/// Creates both sides in one thread. A period of zero ends immediately.
fn sides(counting: &Arc<Counting>, period: Duration) -> (ProgressThread, Thread) {
    ProgressThread::new(Arc::clone(counting) as _, waiter(counting), period).unwrap()
}

fn send_to(counting: &Counting) {
    let to = counting.socket.lock().local_addr().unwrap();
    let from = UdpSocket::bind((to.ip(), 0)).unwrap();
    from.send_to(b"a packet", to).unwrap();
}

#[test]
fn a_rank_that_makes_progress_is_left_alone() {
    let (counting, _reports) = counting(usize::MAX);
    let (progress_thread, thread) = sides(&counting, Duration::ZERO);
    let mut seen = thread.progress_count();
    for _ in 0..10 {
        progress_thread.count_progress();
        seen = thread.round(seen);
    }
    assert_eq!(counting.calls.load(Ordering::Relaxed), 0);
}

#[test]
fn progress_is_made_for_a_rank_that_is_away_until_somebody_holds_the_lock() {
    let (counting, _reports) = counting(3);
    let (progress_thread, thread) = sides(&counting, Duration::ZERO);
    send_to(&counting);
    progress_thread.count_progress();
    let seen = thread.progress_count();
    assert_eq!(thread.round(seen), seen);
    assert_eq!(counting.calls.load(Ordering::Relaxed), 3);
    assert_eq!(counting.datagrams.load(Ordering::Relaxed), 1);
    let _inside = counting.socket.lock();
    thread.round(seen);
    assert_eq!(counting.calls.load(Ordering::Relaxed), 3);
}

#[test]
fn a_rank_that_waits_for_packets_is_left_alone_and_is_not_away_afterwards() {
    let (counting, _reports) = counting(usize::MAX);
    let (progress_thread, thread) = sides(&counting, Duration::ZERO);
    let waiter = waiter(&counting);
    let seen = thread.progress_count();
    std::thread::scope(|scope| {
        let rank = scope.spawn(|| progress_thread.wait(&*waiter, Some(Duration::from_secs(100))));
        while progress_thread.waiting() == 0 {
            std::thread::yield_now();
        }
        for _ in 0..10 {
            thread.round(seen);
        }
        assert_eq!(counting.calls.load(Ordering::Relaxed), 0);
        send_to(&counting);
        assert!(rank.join().unwrap());
    });
    thread.round(seen);
    assert_eq!(counting.calls.load(Ordering::Relaxed), 0);
}

#[test]
fn a_rank_that_sleeps_is_woken_by_a_packet_whenever_it_came() {
    let (counting, _reports) = counting(usize::MAX);
    let (progress_thread, thread) = sides(&counting, LONG);
    // A packet arrives before arming.
    send_to(&counting);
    progress_thread.arm();
    thread.round(thread.progress_count());
    assert_eq!(counting.woken.load(Ordering::Relaxed), 1);
    // A packet arrives after arming.
    counting.progress();
    progress_thread.arm();
    std::thread::scope(|scope| {
        scope.spawn(|| thread.round(thread.progress_count()));
        send_to(&counting);
    });
    assert_eq!(counting.woken.load(Ordering::Relaxed), 2);
}

#[test]
fn a_rank_that_sleeps_is_woken_when_a_period_is_over() {
    let (counting, _reports) = counting(usize::MAX);
    let (progress_thread, thread) = sides(&counting, Duration::ZERO);
    progress_thread.arm();
    thread.round(thread.progress_count());
    assert_eq!(counting.woken.load(Ordering::Relaxed), 1);
    assert_eq!(counting.calls.load(Ordering::Relaxed), 0);
}

#[test]
fn the_thread_makes_progress_and_ends() {
    let (counting, reports) = counting(usize::MAX);
    let waiter = waiter(&counting);
    let period = Duration::from_millis(1);
    let progress_thread =
        ProgressThread::start(3, Arc::clone(&counting) as _, waiter, period).unwrap();
    send_to(&counting);
    while counting.datagrams.load(Ordering::Relaxed) == 0 {
        reports.recv_timeout(Duration::from_secs(100)).unwrap();
    }
    drop(progress_thread);
    assert_eq!(Arc::strong_count(&counting), 1);
}

#[test]
fn arming_interrupts_a_sleep_and_so_does_dropping() {
    let (counting, reports) = counting(usize::MAX);
    let waiter = waiter(&counting);
    let progress_thread =
        ProgressThread::start(3, Arc::clone(&counting) as _, waiter, LONG).unwrap();
    for _ in 0..3 {
        progress_thread.arm();
        send_to(&counting);
        assert_eq!(reports.recv_timeout(Duration::from_secs(100)), Ok("woken"));
        counting.progress();
        assert_eq!(
            reports.recv_timeout(Duration::from_secs(100)),
            Ok("progressed")
        );
    }
    drop(progress_thread);
    assert_eq!(Arc::strong_count(&counting), 1);
}

/// Checks that packets received before arming wake nobody; otherwise a rank that has received
/// anything would never sleep.
#[test]
fn what_was_received_before_arming_wakes_nobody() {
    let (_, mut ends) = job::<Seq>(2);
    let shared = Arc::clone(&ends[1].shared);
    let (progress_thread, _thread) =
        ProgressThread::new(shared, Arc::clone(&ends[1].waiter), Duration::ZERO).unwrap();
    ends[1].progress_thread = Some(progress_thread);
    ends[1].set_waker(|| {});
    let region = ends[1].region_create(1 << 12).unwrap();
    ends[1].pt_open(PT, None).unwrap();
    ends[1].me_append(PT, over(&region)).unwrap();
    let eq = ends[0].eq_create(16).unwrap();
    let byte = [1];
    // SAFETY: the byte outlives all puts.
    let md = unsafe { ends[0].md_bind(byte.as_ptr().cast_mut(), 1, eq) }.unwrap();
    let would_wake = || ends[1].waiter.wait(None, Some(Duration::ZERO));
    for _ in 0..3 {
        // SAFETY: the source outlives all puts, and nothing writes it.
        let _ = unsafe { ends[0].put(&put_to_1(md, 1)) }.unwrap();
        ends[0].progress();
        assert!(would_wake());
        ends[1].progress();
        assert!(ends[1].arm());
        assert!(!would_wake());
        ends[1].disarm();
        assert_eq!(events(&ends[0], eq).len(), 1);
    }
}
