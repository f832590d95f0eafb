//! How slow this machine is while others compute on it as well.
//!
//! What only guards against hangs has a generous limit. A time that means something (how soon a silent rank is given up, how soon
//! a job ends after a fault) is that of a quiet machine, scaled.

use std::time::Duration;

/// For what takes seconds and would otherwise hang.
pub const HANG: Duration = Duration::from_secs(600);

/// How much longer than on a quiet machine something may take: for each processor, the threads that want one, now or on average in
/// the last minute, whichever are more.
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
    // Fits: no machine has so many threads.
    (most / processors as f64).ceil().max(1.0) as u32
}

/// A quiet machine's time as it may be on this one now.
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
