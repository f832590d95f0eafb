//! Reports in which a rank states what it is waiting for. A report is due at a time limit
//! (`CONDUIT_WAIT_REPORT`) or at a signal (`CONDUIT_REPORT_SIGNAL`).
//!
//! A wait is checked every few hundred polls, and after each sleep. [`WaitState`] reads no clock of
//! its own. The reports thread reads the signal from a socket, and answers for a rank in which no
//! call waits.

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

/// Maximum number of tracked waits, a power of two. If there are more waits, the newest replace the
/// oldest, whose tracking then begins anew.
const MOST_WAITS: u16 = 256;

/// A wait that has not been checked for this long counts as ended without notice, because its
/// caller has left its own wait loop.
const GONE: Duration = Duration::from_secs(10);

/// The time that the reports thread gives the waits to answer before it answers itself. A healthy
/// wait is checked a hundred times in this time.
const PATIENCE: Duration = Duration::from_secs(1);

/// A wait that has been checked at least once.
#[derive(Debug, Clone, Copy)]
struct Lasting {
    /// The wait's number, which determines its index in the list. It is 0 if the wait has ended.
    number: u16,
    since: Instant,
    /// The time of the last check.
    seen: Instant,
    /// The duration after which the wait reports without a request.
    next: Option<Duration>,
    /// The last request that the wait has answered, or that was over before the wait began.
    answered: u32,
}

/// The tracked waits, and the requests for reports, which are numbered from 1.
#[derive(Debug, Default)]
struct WaitState {
    waits: Vec<Lasting>,
    last: u16,
    asked: u32,
    /// The last request that a wait or the reports thread has answered.
    answered: u32,
    /// The last request that waits which begin from now on need not answer.
    over: u32,
    /// The wait of this rank for other ranks in an operation that does not poll.
    elsewhere: Option<Lasting>,
    operation: &'static str,
    /// The stack of the call of that operation, if stacks are enabled.
    stack: Option<Backtrace>,
    closed: bool,
}

fn place(number: u16) -> usize {
    usize::from(number % MOST_WAITS)
}

impl WaitState {
    /// Checks a wait. Returns how long the wait has lasted if it must report now.
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

    /// Returns the next number whose index in the list is free or, if no index is free, simply the
    /// next number.
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

    /// Frees the index in the list of a wait that has ended.
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
            // The next report is due when the wait has lasted at least twice as long as now.
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

/// The reports of a rank. Exists only if a setting enables reports.
#[derive(Debug)]
pub(crate) struct Reports {
    limit: Option<Duration>,
    /// Whether reports include the stacks of the threads that wait or poll.
    pub(crate) stack: bool,
    shared: Arc<Shared>,
    /// This end of the socket. The reports thread has the other end.
    socket: UnixStream,
    signal: Option<SigId>,
    thread: Option<JoinHandle<()>>,
    /// The id of the process that started the thread.
    process: u32,
}

impl Reports {
    /// Starts the reports. If no setting enables reports, returns `None` and installs nothing.
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
        // With this timeout, the thread also checks the waits that do not poll.
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
            // The cast is lossless: `number` is the number of a signal in the table.
            let registered = signal_hook::low_level::pipe::register(number as i32, end);
            reports.signal = Some(registered.map_err(failed)?);
        }
        Ok(Some(reports))
    }

    /// Checks a wait. Returns how long the wait has lasted if it must report now.
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

    /// Answers a pending request on behalf of a program that polls outside waits. Returns whether a
    /// request was pending.
    pub(crate) fn answer_polling(&self) -> bool {
        let mut state = self.shared.state.lock();
        let answers = state.answered != state.asked;
        state.answered = state.asked;
        if answers {
            self.shared.answered.notify_all();
        }
        answers
    }

    /// Runs `act`, which waits for other ranks without polling, and tracks this wait.
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
    /// Returns the line that the reports thread must write, if any. `asked` is whether a request
    /// has arrived; otherwise the thread checks at its own timeout.
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
        // The process can't capture the stack of another of its threads, because that thread may
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
        // A child does not have the thread, and shares the socket with its parent.
        if self.process != std::process::id() {
            return;
        }
        if let Some(signal) = self.signal {
            signal_hook::low_level::unregister(signal);
        }
        self.shared.state.lock().closed = true;
        self.shared.answered.notify_all();
        // The shutdown fails only if the thread has already ended.
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
        // Some of these waits are checked late.
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

    /// However many waits other threads begin and end, the first wait keeps its entry.
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
        // Waits that were left without notice do not affect the first wait either.
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
