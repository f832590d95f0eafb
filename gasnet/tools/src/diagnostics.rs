//! The library's self-checks within a client. They cover behaviour that depends on the machine and
//! on how the client was linked. Everything else is tested where this library is built.

use std::ffi::{c_char, c_int};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::edge::text_or_null;
use crate::heap::{Heap, Settings};
use crate::{bytes, number, rwlock, timer};

/// A check: its letter, its subject, and the function that returns what it found wrong.
struct Check {
    letter: char,
    subject: &'static str,
    run: fn(&mut fastrand::Rng) -> Result<(), String>,
}

const CHECKS: [Check; 5] = [
    Check {
        letter: 'A',
        subject: "ticks",
        run: check_ticks,
    },
    Check {
        letter: 'B',
        subject: "bytes",
        run: check_bytes,
    },
    Check {
        letter: 'C',
        subject: "numbers",
        run: check_numbers,
    },
    Check {
        letter: 'D',
        subject: "reader/writer locks",
        run: check_locks,
    },
    Check {
        letter: 'E',
        subject: "checked heap",
        run: check_heap,
    },
];

/// Runs the checks that `letters` selects, or all checks if `letters` is empty. Each check runs
/// `iterations` times in each of `threads` threads. Returns the findings.
fn run(iterations: u32, threads: u32, letters: &str, seed: u64) -> Vec<String> {
    let wanted = |check: &&Check| letters.is_empty() || letters.contains(check.letter);
    CHECKS
        .iter()
        .filter(wanted)
        .flat_map(|check| run_in_threads(check, iterations, threads, seed))
        .collect()
}

/// Runs a check and returns at most one finding per thread, because a check that fails once usually
/// fails often.
fn run_in_threads(check: &Check, iterations: u32, threads: u32, seed: u64) -> Vec<String> {
    let in_thread = |thread: u32| {
        let mut random = fastrand::Rng::with_seed(
            seed ^ u64::from(thread) << 32 ^ u64::from(check.letter as u8),
        );
        let found = (0..iterations).find_map(|_| (check.run)(&mut random).err());
        found.map(|what| format!("{} ({}): {what}", check.subject, check.letter))
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map(|thread| scope.spawn(move || in_thread(thread)))
            .collect();
        let own = in_thread(0);
        let others = others.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Some("a check panicked".into()))
        });
        std::iter::once(own).chain(others).flatten().collect()
    })
}

fn expect(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// Checks that ticks never go back, even if the thread moves to another processor in between.
fn check_ticks(_: &mut fastrand::Rng) -> Result<(), String> {
    let first = timer::ticks_now();
    std::thread::yield_now();
    let second = timer::ticks_now();
    expect(second >= first, || format!("{first}, then {second}"))
}

fn check_bytes(random: &mut fastrand::Rng) -> Result<(), String> {
    let mut block = vec![0u8; random.usize(0..2000)];
    block.iter_mut().for_each(|byte| *byte = random.u8(0..4));
    let expected = block.iter().filter(|&&byte| byte == 0).count();
    let mut copy = vec![0; block.len()];
    let counts = (
        bytes::count_zeros(&block),
        bytes::count_zeros_copying(&mut copy, &block),
    );
    expect(counts == (expected, expected) && copy == block, || {
        format!("counted {counts:?} zeros, expected {expected}")
    })?;
    expect(bytes::checksum(&copy) == bytes::checksum(&block), || {
        "checksums of the same bytes differ".into()
    })
}

fn check_numbers(random: &mut fastrand::Rng) -> Result<(), String> {
    let number = random.i64(..) >> random.u32(0..64);
    let text = number::format(number, true);
    let read = number::parse_integer(&text, 1);
    expect(read == Ok(number), || {
        format!("{number} was formatted as {text} and read as {read:?}")
    })
}

/// Checks that readers see both words of a writer or neither.
fn check_locks(random: &mut fastrand::Rng) -> Result<(), String> {
    static LOCK: rwlock::Lock = rwlock::Lock::new();
    static PAIR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    if random.u8(0..4) == 0 {
        LOCK.write(|| {
            PAIR.iter().for_each(|word| {
                word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            });
        });
        Ok(())
    } else {
        let pair = LOCK.read(|| [0, 1].map(|word: usize| PAIR[word].load(Ordering::Relaxed)));
        expect(pair[0] == pair[1], || format!("torn write: {pair:?}"))
    }
}

fn check_heap(random: &mut fastrand::Rng) -> Result<(), String> {
    let mut heap = Heap::new(Settings::default());
    let mut blocks = Vec::new();
    let fault = |error| format!("{error}");
    for _ in 0..random.usize(1..20) {
        blocks.push(
            heap.allocate(random.usize(0..200), random.bool(), "diagnostics")
                .map_err(fault)?,
        );
    }
    random.shuffle(&mut blocks);
    heap.check_all().map_err(fault)?;
    blocks
        .into_iter()
        .try_for_each(|block| heap.free(block))
        .map_err(fault)?;
    expect(heap.statistics().live_bytes == 0, || {
        format!("{:?}", heap.statistics())
    })
}

// ---- The edge to C ----

/// # Safety
/// `sections` must be null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_run_diagnostics(
    iters: c_int,
    threads: c_int,
    sections: *const c_char,
    seed: u64,
) -> c_int {
    // SAFETY: the caller guarantees that `sections` is null or a C string.
    let letters = unsafe { text_or_null(sections) }
        .map_or(String::new(), |text| text.to_string_lossy().to_uppercase());
    let at_least = |number: c_int, least: u32| u32::try_from(number).unwrap_or(0).max(least);
    let found = run(at_least(iters, 1), at_least(threads, 1), &letters, seed);
    for what in &found {
        let _ = writeln!(std::io::stdout(), "ERROR: diagnostics: {what}");
    }
    c_int::try_from(found.len()).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_sound() {
        assert_eq!(run(200, 4, "", 1), Vec::<String>::new());
    }

    #[test]
    fn what_a_check_finds_is_told_once_for_each_thread() {
        let check = Check {
            letter: 'Z',
            subject: "nothing",
            run: |_| Err("it is so".into()),
        };
        assert_eq!(
            run_in_threads(&check, 10, 3, 1),
            ["nothing (Z): it is so"; 3]
        );
    }

    #[test]
    fn letters_choose() {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let check = Check {
            letter: 'Z',
            subject: "runs",
            run: |_| {
                RUNS.fetch_add(1, Ordering::Relaxed);
                Ok(())
            },
        };
        assert!(run_in_threads(&check, 10, 2, 1).is_empty());
        assert_eq!(RUNS.load(Ordering::Relaxed), 20);
        assert!(run(1, 1, "?", 1).is_empty());
    }
}
