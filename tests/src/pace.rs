//! Time limits for a system that also runs other work.
//!
//! A limit that only guards against hangs is generous. Other limits are checked by a test, such as
//! how soon a silent rank is given up or how soon a job ends after a fault. Those are limits on an
//! idle system, scaled to the current load.

use std::time::Duration;

/// The time limit for operations that take seconds unless they hang.
pub const HANG: Duration = Duration::from_secs(600);

/// Returns the factor by which an operation may take longer than on an idle system. It is the
/// number of runnable threads per processor, either now or on average over the last minute,
/// whichever is larger.
fn factor() -> u32 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    crowding(&load, processors)
}

fn crowding(load: &str, processors: usize) -> u32 {
    let mut words = load.split_ascii_whitespace();
    let average = words.next().and_then(|word| word.parse().ok());
    let now = words.nth(2).and_then(|word| word.split_once('/'));
    let now = now.and_then(|(running, _)| running.parse().ok());
    let most = f64::max(average.unwrap_or(0.0), now.unwrap_or(0.0));
    // The cast is lossless, because no system has that many threads.
    (most / processors as f64).ceil().max(1.0) as u32
}

/// Scales the time that something takes on an idle system to the current load.
pub fn scaled(time: Duration) -> Duration {
    time * factor()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowded_machine_is_slow() {
        assert_eq!(crowding("0.10 9.00 9.00 1/100 4711\n", 2), 1);
        assert_eq!(crowding("0.10 0.00 0.00 41/100 4711\n", 2), 21);
        assert_eq!(crowding("40.00 0.00 0.00 1/100 4711\n", 4), 10);
        assert_eq!(crowding("", 4), 1);
        assert!(scaled(HANG) >= HANG);
    }
}
