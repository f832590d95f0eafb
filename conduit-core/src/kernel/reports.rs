//! Reports of what a rank waits for: at a time limit (`CONDUIT_WAIT_REPORT`), and at a signal
//! (`CONDUIT_REPORT_SIGNAL`).
//!
//! A wait is checked every few hundred polls, and after each sleep. The rules use no clock of their
//! own. The reports thread reads the signal from a socket, and answers for a rank in which nothing
//! waits.

use std::backtrace::Backtrace;
use std::io::Read as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use signal_hook::SigId;

use crate::kernel::backoff::Waiter;
use crate::kernel::error::{Error, Result};
use crate::ni::Rank;
use crate::settings::{REPORT_SIGNALS, Settings};
use crate::stderr;

/// Maximum number of tracked waits, a power of two. If there are more waits, tracking of the oldest
/// ones begins anew.
const MOST_WAITS: u16 = 256;

/// A wait that has not been checked for this long has ended without notice: the caller left its own
/// loop.
const GONE: Duration = Duration::from_secs(10);

/// How long the reports thread lets the waits answer before it answers itself. A healthy wait
/// checks a hundred times as often.
const PATIENCE: Duration = Duration::from_secs(1);

/// A wait that has been checked at least once.
#[derive(Debug, Clone, Copy)]
struct Lasting {
    /// The wait's number, from which its index in the list follows; 0 if the wait has ended.
    number: u16,
    since: Instant,
    /// Time of the last check.
    seen: Instant,
    /// Duration after which the wait reports without a request.
    next: Option<Duration>,
    /// The last request answered, or the last one that was over before this wait began.
    answered: u32,
}

/// Waits, and requests for reports, which are numbered from 1.
#[derive(Debug, Default)]
struct WaitState {
    waits: Vec<Lasting>,
    last: u16,
    asked: u32,
    /// The last request that was answered.
    answered: u32,
    /// The last request that new waits need not answer any more.
    over: u32,
    /// The operation in which this rank waits without polling, and since when.
    elsewhere: Option<Lasting>,
    operation: &'static str,
    /// The stack of that operation's call, if stacks are on.
    stack: Option<Backtrace>,
    closed: bool,
}

fn place(number: u16) -> usize {
    usize::from(number % MOST_WAITS)
}

impl WaitState {
    /// Checks a wait. Returns how long it has lasted if it must report now.
    fn look(
        &mut self,
        waiter: &mut Waiter,
        limit: Option<Duration>,
        now: Instant,
    ) -> Option<Duration> {
        let known = self.waits.get(place(waiter.number));
        if waiter.number == 0 || known.is_none_or(|wait| wait.number != waiter.number) {
            waiter.number = self.free_number(now);
            let wait = self.begin(waiter.number, limit, now);
            match self.waits.get_mut(place(waiter.number)) {
                Some(old) => *old = wait,
                None => self.waits.resize(place(waiter.number) + 1, wait),
            }
        }
        let mut wait = self.waits[place(waiter.number)];
        wait.seen = now;
        let due = self.is_due(&mut wait, now);
        self.waits[place(waiter.number)] = wait;
        due
    }

    /// Returns the next number whose index is free, or else the next number.
    fn free_number(&mut self, now: Instant) -> u16 {
        let next = |number: u16| number.wrapping_add(1).max(1);
        let first = next(self.last);
        let is_free = |number: &u16| {
            let wait = self.waits.get(place(*number));
            wait.is_none_or(|wait| {
                wait.number == 0 || now.saturating_duration_since(wait.seen) > GONE
            })
        };
        let numbers = std::iter::successors(Some(first), |number| Some(next(*number)));
        let free = numbers.take(MOST_WAITS.into()).find(is_free);
        self.last = free.unwrap_or(first);
        self.last
    }

    /// Frees the index of a wait that has ended.
    fn forget(&mut self, waiter: &Waiter) {
        if let Some(wait) = self.waits.get_mut(place(waiter.number))
            && wait.number == waiter.number
        {
            wait.number = 0;
        }
    }

    fn begin(&self, number: u16, limit: Option<Duration>, now: Instant) -> Lasting {
        Lasting {
            number,
            since: now,
            seen: now,
            next: limit,
            answered: self.over,
        }
    }

    fn is_due(&mut self, wait: &mut Lasting, now: Instant) -> Option<Duration> {
        let waited = now.saturating_duration_since(wait.since);
        let mut due = wait.answered != self.asked;
        if due {
            wait.answered = self.asked;
            self.answered = self.asked;
        }
        if let Some(next) = wait.next.filter(|next| waited >= *next) {
            due = true;
            // The next report comes when the wait has lasted at least twice as long.
            wait.next = Some(waited.max(next) * 2);
        }
        due.then_some(waited)
    }
}

/// The state that the reports thread shares with the waits.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<WaitState>,
    answered: Condvar,
}

/// A rank's reports, if a setting asks for them.
#[derive(Debug)]
pub(crate) struct Reports {
    limit: Option<Duration>,
    /// Whether reports include the stacks of the threads that wait or poll.
    pub(crate) stack: bool,
    shared: Arc<Shared>,
    /// The reports thread has the other end.
    socket: UnixStream,
    signal: Option<SigId>,
    thread: Option<JoinHandle<()>>,
    /// The process that started the thread.
    process: u32,
}

impl Reports {
    /// Starts the reports. Returns `None`, and installs nothing, if no setting asks for reports.
    pub(crate) fn start(settings: &Settings, rank: Rank, size: u32) -> Result<Option<Self>> {
        const SIGNAL: &str = "CONDUIT_REPORT_SIGNAL";
        let limit = settings
            .wait_report
            .map(|seconds| Duration::from_secs(seconds.into()));
        let named = |name: &String| REPORT_SIGNALS.iter().find(|(known, _)| known == name);
        let signal = settings.report_signal.as_ref().and_then(named);
        if limit.is_none() && signal.is_none() {
            return Ok(None);
        }
        let failed = |error: std::io::Error| Error::Setting {
            name: match signal {
                Some(_) => SIGNAL,
                None => "CONDUIT_WAIT_REPORT",
            },
            reason: format!("cannot start reports on rank {rank}: {error}"),
        };
        let (socket, mut signals) = UnixStream::pair().map_err(failed)?;
        let (shared, stack) = (Arc::new(Shared::default()), settings.report_stack);
        let mut reports = Self {
            limit,
            stack,
            shared: Arc::clone(&shared),
            signal: None,
            thread: None,
            process: std::process::id(),
            socket,
        };
        // The thread checks the waits that do not poll.
        signals.set_read_timeout(limit).map_err(failed)?;
        let serve = move || {
            let mut byte = [0];
            loop {
                let asked = match signals.read(&mut byte) {
                    Ok(0) => return,
                    Ok(_) => true,
                    Err(_) => false,
                };
                if let Some(line) = shared.answer(asked, stack) {
                    stderr::write_line(format_args!("conduit: rank {rank} of {size} {line}"));
                }
            }
        };
        let thread = std::thread::Builder::new().name("conduit-reports".into());
        reports.thread = Some(thread.spawn(serve).map_err(failed)?);
        if let Some(&(_, number)) = signal {
            let end = reports.socket.try_clone().map_err(failed)?;
            // The cast is lossless: the number is that of a signal in the table.
            let registered = signal_hook::low_level::pipe::register(number as i32, end);
            reports.signal = Some(registered.map_err(failed)?);
        }
        Ok(Some(reports))
    }

    /// Checks a wait. Returns how long it has lasted if it must report now.
    pub(crate) fn look(&self, waiter: &mut Waiter) -> Option<Duration> {
        let due = self
            .shared
            .state
            .lock()
            .look(waiter, self.limit, Instant::now());
        if due.is_some() {
            self.shared.answered.notify_all();
        }
        due
    }

    /// Removes a wait that has ended.
    pub(crate) fn forget(&self, waiter: &Waiter) {
        self.shared.state.lock().forget(waiter);
    }

    /// Answers a pending request for a program that only polls. Returns whether one was pending.
    pub(crate) fn answer_polling(&self) -> bool {
        let mut state = self.shared.state.lock();
        let answers = state.answered != state.asked;
        state.answered = state.asked;
        if answers {
            self.shared.answered.notify_all();
        }
        answers
    }

    /// Runs `act`, which waits for other ranks but does not poll.
    pub(crate) fn elsewhere<T>(&self, operation: &'static str, act: impl FnOnce() -> T) -> T {
        let stack = self.stack.then(Backtrace::force_capture);
        {
            let mut state = self.shared.state.lock();
            state.stack = stack;
            state.elsewhere = Some(state.begin(0, self.limit, Instant::now()));
            state.operation = operation;
        }
        let done = act();
        self.shared.state.lock().elsewhere = None;
        done
    }
}

impl Shared {
    /// Returns the line that the thread must write, after a request or at its own check.
    fn answer(&self, asked: bool, with_stack: bool) -> Option<String> {
        let mut state = self.state.lock();
        state.asked += u32::from(asked);
        if let Some(mut wait) = state.elsewhere {
            let due = state.is_due(&mut wait, Instant::now());
            state.elsewhere = Some(wait);
            state.over = state.asked;
            return due.map(|waited| {
                let seconds = waited.as_secs_f32();
                let (operation, stack) = (state.operation, state.stack.as_ref());
                let stack = stack.map_or_else(String::new, |stack| format!("\n{stack}"));
                format!(
                    "has waited {seconds:.1} s in {operation} for ranks that have not called it{stack}"
                )
            });
        }
        let open = |state: &mut WaitState| state.answered != state.asked && !state.closed;
        self.answered.wait_while_for(&mut state, open, PATIENCE);
        state.over = state.asked;
        let none = open(&mut state);
        state.answered = state.asked;
        // The stack of another thread can't be captured from within the process: the thread may
        // hold a lock that the capture needs.
        let process = std::process::id();
        none.then(|| match with_stack {
            true => {
                format!(
                    "is not waiting in a Conduit call; `eu-stack -p {process}` shows its stacks"
                )
            }
            false => "is not waiting in a Conduit call".to_owned(),
        })
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        // A child has no such thread, and shares the socket with its parent.
        if self.process != std::process::id() {
            return;
        }
        if let Some(signal) = self.signal {
            signal_hook::low_level::unregister(signal);
        }
        self.shared.state.lock().closed = true;
        self.shared.answered.notify_all();
        // Fails only if the thread is gone.
        let _ = self.socket.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_wait_reports_at_the_limit_and_each_time_that_it_has_doubled() {
        let (mut state, begin) = (WaitState::default(), Instant::now());
        let mut waiter = Waiter::default();
        let reports: Vec<_> = (0..100)
            .filter(|second| {
                let due = state.look(&mut waiter, Some(3 * SECOND), begin + *second * SECOND);
                assert!(due.is_none_or(|waited| waited == *second * SECOND));
                due.is_some()
            })
            .collect();
        assert_eq!(reports, [3, 6, 12, 24, 48, 96]);
        // Some are checked late.
        let mut waiter = Waiter::default();
        let reports: Vec<_> = [0, 10, 19, 20]
            .into_iter()
            .filter(|second| {
                let now = begin + *second * SECOND;
                state.look(&mut waiter, Some(3 * SECOND), now).is_some()
            })
            .collect();
        assert_eq!(reports, [10, 20]);
    }

    #[test]
    fn a_question_is_answered_once_by_each_wait_and_by_none_that_begins_later() {
        let (mut state, now) = (WaitState::default(), Instant::now());
        let [mut one, mut other, mut during, mut later] = [(); 4].map(|()| Waiter::default());
        let look = |state: &mut WaitState, waiter: &mut _| state.look(waiter, None, now).is_some();
        assert!(!look(&mut state, &mut one) && !look(&mut state, &mut other));
        state.asked += 1;
        assert!(look(&mut state, &mut one) && !look(&mut state, &mut one));
        assert_eq!(state.answered, state.asked);
        assert!(look(&mut state, &mut during));
        state.over = state.asked;
        assert!(!look(&mut state, &mut later));
        assert!(look(&mut state, &mut other) && !look(&mut state, &mut other));
    }

    /// However many waits other threads make meanwhile.
    #[test]
    fn a_wait_outlasts_others_that_end() {
        let (mut state, begin) = (WaitState::default(), Instant::now());
        let mut first = Waiter::default();
        let limit = Some(SECOND);
        assert_eq!(state.look(&mut first, limit, begin), None);
        for _ in 0..1 << 17 {
            let mut other = Waiter::default();
            assert_eq!(state.look(&mut other, limit, begin), None);
            state.forget(&other);
        }
        assert_eq!(state.look(&mut first, limit, begin + SECOND), Some(SECOND));
        // Waits that were left without notice do not count either.
        let mut now = begin;
        let looks = (1..1 << 12).filter(|_| {
            now += SECOND / 4;
            state.look(&mut Waiter::default(), None, now);
            state.look(&mut first, limit, now).is_some()
        });
        assert_eq!(looks.count(), 9);
    }

    #[test]
    fn waits_beyond_those_that_are_known_begin_anew() {
        let (mut state, begin) = (WaitState::default(), Instant::now());
        let mut first = Waiter::default();
        let limit = Some(SECOND);
        assert_eq!(state.look(&mut first, limit, begin), None);
        for _ in 0..1 << 12 {
            assert_eq!(state.look(&mut Waiter::default(), limit, begin), None);
        }
        assert_eq!(state.waits.len(), usize::from(MOST_WAITS));
        let later = begin + SECOND;
        assert_eq!(state.look(&mut first, limit, later), None);
        assert_eq!(state.look(&mut first, limit, later + SECOND), Some(SECOND));
    }
}
