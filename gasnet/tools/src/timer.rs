//! Ticks for timing: their source and their length.
//!
//! On x86-64, the processor's time stamp counter is used if it counts evenly, that is, if the
//! processor guarantees a constant rate and the kernel has not found the counter unreliable. On
//! AArch64 the counter always counts evenly. Elsewhere a tick is a nanosecond of the system's
//! clock.
//!
//! The counter's rate is measured against the system's clock, between the first tick taken and the
//! first conversion, for at least [`SHORTEST`].

use std::ffi::{CStr, c_int};
use std::io::Write;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::environment;
use crate::failure::fatal;

/// Values of [`conduit_tools_tick_source`].
const UNKNOWN: u32 = 0;
const COUNTER: u32 = 1;
const CLOCK: u32 = 2;

/// The shortest time over which the rate is measured. Reading the clock is accurate to about 50 ns,
/// which is less than 3 parts per million of this time.
const SHORTEST: Duration = Duration::from_millis(20);

/// The number of fractional bits in the length of a tick.
const SCALE_BITS: u32 = 53;

/// The rates that `GASNET_TSC_RATE` may specify, in Hz.
const RATES: std::ops::RangeInclusive<u64> = 1_000_000..=100_000_000_000;

/// The default of `GASNET_TSC_RATE_TOLERANCE`.
const TOLERANCE: f64 = 0.001;

/// The source of ticks: unknown, the counter or the clock. The header reads this variable.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
static conduit_tools_tick_source: AtomicU32 = AtomicU32::new(UNKNOWN);

/// The length of a tick in nanoseconds, times 2^53. The header reads this variable.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
static conduit_tools_tick_scale: AtomicU64 = AtomicU64::new(0);

/// The values of the counter and the clock at the same moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    ticks: u64,
    nanoseconds: u64,
    /// The number of ticks that passed while the clock was read, which bounds the time between the
    /// two readings.
    doubt: u64,
}

/// The first moment taken.
static FIRST: OnceLock<Moment> = OnceLock::new();

#[cfg(target_arch = "x86_64")]
fn counter() -> u64 {
    // SAFETY: every processor of this architecture has this instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
fn counter() -> u64 {
    let ticks: u64;
    // SAFETY: the instruction reads a register that programs may read.
    unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter() -> u64 {
    clock()
}

/// Returns whether the counter counts evenly.
#[cfg(target_arch = "x86_64")]
fn counter_is_even() -> bool {
    /// Returns a leaf of the processor's `cpuid` information.
    #[allow(unused_unsafe)]
    fn cpuid(leaf: u32) -> std::arch::x86_64::CpuidResult {
        // SAFETY: every processor of this architecture has this instruction. The call is safe in
        // newer versions of Rust, but not in the oldest supported one.
        unsafe { std::arch::x86_64::__cpuid(leaf) }
    }
    const EXTENDED: u32 = 0x8000_0000;
    const POWER: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    let invariant = cpuid(EXTENDED).eax >= POWER && cpuid(POWER).edx & INVARIANT != 0;
    // The kernel removes a counter from this list if the processors' counters differ or if it has
    // stopped.
    let sources = std::fs::read_to_string(
        "/sys/devices/system/clocksource/clocksource0/available_clocksource",
    );
    invariant
        && sources.is_ok_and(|sources| sources.split_whitespace().any(|source| source == "tsc"))
}

#[cfg(not(target_arch = "x86_64"))]
fn counter_is_even() -> bool {
    cfg!(target_arch = "aarch64")
}

/// Returns the time of the system's monotonic clock in nanoseconds.
fn clock() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Reads the counter and the clock together. Of several attempts, takes the one with the shortest
/// time between the two readings, because the process may be interrupted in between.
fn moment() -> Moment {
    let attempt = || {
        let before = counter();
        let nanoseconds = clock();
        let doubt = counter().wrapping_sub(before);
        Moment {
            ticks: before.wrapping_add(doubt / 2),
            nanoseconds,
            doubt,
        }
    };
    (0..16)
        .map(|_| attempt())
        .min_by_key(|moment| moment.doubt)
        .unwrap_or_else(attempt)
}

/// Returns the source of ticks, which the first call determines.
fn source() -> u32 {
    let known = conduit_tools_tick_source.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known;
    }
    let source = if counter_is_even() { COUNTER } else { CLOCK };
    if source == COUNTER {
        FIRST.get_or_init(moment);
    }
    conduit_tools_tick_source.store(source, Ordering::Relaxed);
    source
}

pub(crate) fn ticks_now() -> u64 {
    if source() == COUNTER {
        counter()
    } else {
        clock()
    }
}

/// A rate of the counter, and its relative error.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate {
    hertz: f64,
    error: f64,
}

/// Returns the rate between two moments.
fn rate_between(first: Moment, last: Moment) -> Rate {
    let ticks = last.ticks.wrapping_sub(first.ticks) as f64;
    let nanoseconds = (last.nanoseconds - first.nanoseconds) as f64;
    Rate {
        hertz: ticks / nanoseconds * 1e9,
        error: (first.doubt + last.doubt) as f64 / 2.0 / ticks,
    }
}

/// Measures the rate against the clock, waiting until enough time has passed.
fn measured_rate() -> Rate {
    let first = *FIRST.get_or_init(moment);
    let shortest = SHORTEST.as_nanos() as u64;
    let passed = clock().saturating_sub(first.nanoseconds);
    if passed < shortest {
        std::thread::sleep(Duration::from_nanos(shortest - passed));
    }
    rate_between(first, moment())
}

/// Returns the rate given in the processor's name: `... @ 2.40GHz`.
fn rate_of_name(cpuinfo: &str) -> Option<f64> {
    let name = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    let (_, rate) = name.rsplit_once('@')?;
    let rate = rate.trim();
    let (number, unit) = rate.split_at(rate.find(|c: char| c.is_ascii_alphabetic())?);
    let unit = match unit.trim() {
        "GHz" => 1e9,
        "MHz" => 1e6,
        _ => return None,
    };
    number
        .trim()
        .parse::<f64>()
        .ok()
        .map(|number| number * unit)
}

/// Returns the rate that `GASNET_TSC_RATE` requests.
fn wanted_rate() -> Rate {
    const NAME: &CStr = c"GASNET_TSC_RATE";
    let wanted = environment::setting(NAME);
    environment::report_text(
        NAME,
        wanted.as_deref().unwrap_or("walltime"),
        wanted.is_none(),
    );
    match wanted.as_deref().map(str::trim) {
        None => measured_rate(),
        Some(wanted) if wanted.eq_ignore_ascii_case("walltime") => measured_rate(),
        Some(wanted) if wanted.eq_ignore_ascii_case("cpuinfo") => {
            let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            let hertz = rate_of_name(&cpuinfo).unwrap_or_else(|| {
                fatal("GASNET_TSC_RATE=cpuinfo: /proc/cpuinfo does not contain the rate")
            });
            Rate { hertz, error: 0.0 }
        }
        Some(wanted) => match wanted.parse::<u64>() {
            Ok(hertz) if RATES.contains(&hertz) => Rate {
                hertz: hertz as f64,
                error: 0.0,
            },
            _ => fatal(&format!(
                "GASNET_TSC_RATE='{wanted}' is not accepted: use walltime, cpuinfo, or a rate in Hz from {} to {}",
                RATES.start(),
                RATES.end()
            )),
        },
    }
}

/// Prints a warning if the rate's error exceeds the tolerance in the environment. Ends the process
/// if the error exceeds the hard tolerance.
fn check_tolerance(rate: Rate) {
    let tolerance = |name, default| environment::decimal(name).unwrap_or(default);
    let hard = tolerance(c"GASNET_TSC_RATE_HARD_TOLERANCE", f64::INFINITY);
    if rate.error > hard {
        fatal(&format!(
            "the tick rate has an error of {:.2e}, above GASNET_TSC_RATE_HARD_TOLERANCE={hard}",
            rate.error
        ));
    }
    let soft = tolerance(c"GASNET_TSC_RATE_TOLERANCE", TOLERANCE);
    if rate.error > soft {
        let text = format!(
            "WARNING: the tick rate has an error of {:.2e}, above GASNET_TSC_RATE_TOLERANCE={soft}\n",
            rate.error
        );
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

/// Returns the length of a tick in units of 2^-53 ns for a rate. The slowest allowed rate gives
/// 1000 × 2^53, which fits in 64 bits.
fn scale_of(hertz: f64) -> u64 {
    (1e9 / hertz * (1u64 << SCALE_BITS) as f64).round() as u64
}

fn calibrate() -> u64 {
    static CALIBRATING: Mutex<()> = Mutex::new(());
    let _calibrating = CALIBRATING.lock().unwrap_or_else(PoisonError::into_inner);
    let known = conduit_tools_tick_scale.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let scale = if source() == COUNTER {
        let rate = wanted_rate();
        check_tolerance(rate);
        if environment::yes_no(c"GASNET_TSC_VERBOSE", false) {
            let text = format!(
                "ticks: the processor's counter, {:.0} Hz, error {:.1e}\n",
                rate.hertz, rate.error
            );
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
        scale_of(rate.hertz)
    } else {
        1 << SCALE_BITS
    };
    conduit_tools_tick_scale.store(scale, Ordering::Relaxed);
    scale
}

fn microseconds(ticks: f64) -> f64 {
    let scale = match conduit_tools_tick_scale.load(Ordering::Relaxed) {
        0 => calibrate(),
        scale => scale,
    };
    ticks * (scale as f64 / (1u64 << SCALE_BITS) as f64) / 1000.0
}

// ---- The edge to C ----

#[unsafe(no_mangle)]
extern "C" fn conduit_tools_ticks_slowly() -> u64 {
    ticks_now()
}

#[unsafe(no_mangle)]
extern "C" fn conduit_tools_tick_calibrate() -> u64 {
    calibrate()
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_gettimeofday_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_micros() as u64)
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_tick_granularityus() -> f64 {
    static GRANULARITY: OnceLock<f64> = OnceLock::new();
    *GRANULARITY.get_or_init(|| {
        let step = || {
            let first = ticks_now();
            loop {
                let step = ticks_now().saturating_sub(first);
                if step > 0 {
                    return step;
                }
            }
        };
        microseconds((0..1000).map(|_| step()).min().unwrap_or(1) as f64)
    })
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_tick_overheadus() -> f64 {
    static OVERHEAD: OnceLock<f64> = OnceLock::new();
    const TICKS: u32 = 1000;
    *OVERHEAD.get_or_init(|| {
        let run = || {
            let first = ticks_now();
            for _ in 1..TICKS {
                std::hint::black_box(ticks_now());
            }
            ticks_now() - first
        };
        microseconds((0..10).map(|_| run()).min().unwrap_or(1) as f64 / f64::from(TICKS))
    })
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_nsleep(ns_delay: u64) -> c_int {
    if ns_delay == 0 {
        return 0;
    }
    let time = libc::timespec {
        tv_sec: (ns_delay / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns_delay % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `time` is valid; a null pointer means that the remaining time is not wanted. C's
    // errno says why the sleep ended early.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_two_moments() {
        let at = |ticks, nanoseconds| Moment {
            ticks,
            nanoseconds,
            doubt: 60,
        };
        let rate = rate_between(at(1_000, 500), at(60_001_000, 20_000_500));
        assert_eq!(
            rate,
            Rate {
                hertz: 3e9,
                error: 1e-6
            }
        );
        // The counter may wrap around between the two moments.
        let rate = rate_between(at(u64::MAX - 999, 0), at(59_999_000, 20_000_000));
        assert_eq!(rate.hertz, 3e9);
    }

    #[test]
    fn the_scale_fits_its_bits_at_every_rate_that_is_allowed() {
        assert_eq!(scale_of(1e9), 1 << SCALE_BITS);
        let slowest = scale_of(*RATES.start() as f64);
        assert_eq!(slowest, 1000 << SCALE_BITS);
        let fastest = scale_of(*RATES.end() as f64);
        assert!(fastest > 1 << 46, "{fastest} has too few digits");
    }

    #[test]
    fn the_rate_in_a_processors_name() {
        let cpuinfo = |name: &str| format!("processor\t: 0\nmodel name\t: {name}\nflags\t: tsc\n");
        assert_eq!(
            rate_of_name(&cpuinfo("Some CPU E5-2670 0 @ 2.60GHz")),
            Some(2.6e9)
        );
        assert_eq!(rate_of_name(&cpuinfo("Some CPU @ 800 MHz")), Some(8e8));
        assert_eq!(rate_of_name(&cpuinfo("Some CPU")), None);
        assert_eq!(rate_of_name(&cpuinfo("Some CPU @ fast")), None);
        assert_eq!(rate_of_name(""), None);
    }

    #[test]
    fn the_calibrated_rate_is_that_of_the_clock() {
        if source() != COUNTER {
            return;
        }
        let first = moment();
        std::thread::sleep(Duration::from_millis(50));
        let rate = rate_between(first, moment());
        let calibrated = 1e9 / (calibrate() as f64 / (1u64 << SCALE_BITS) as f64);
        let apart = (calibrated - rate.hertz).abs() / rate.hertz;
        // Tolerates twice the error, because either measurement may be off. The clock itself may be
        // slewed by 500 parts per million.
        assert!(
            apart <= 2.0 * rate.error + 2e-3,
            "{calibrated} Hz, measured again {rate:?}"
        );
    }
}
