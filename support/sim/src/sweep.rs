//! Sweeps over many runs, each of which is determined by its number.

use std::io::{self, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rayon::prelude::*;

use crate::Progress;

/// The maximum number of failing runs that are shown.
const SHOWN: usize = 20;

/// The runs that failed, with the reasons, in the order of their numbers.
pub type Failing = Vec<(u64, String)>;

/// The result of one run or the sum of the results of several.
pub trait Tally: Default + Send {
    /// Adds the results of later runs, whose numbers are higher than those of the runs already
    /// included.
    fn add(&mut self, others: Self);

    /// Returns the runs that failed.
    fn failing(&mut self) -> &mut Failing;
}

/// Calls `run` with each number, on all processors, and adds up the results in the order of the
/// numbers. A panic counts as a failure of its run. `run` must report finished items to `progress`;
/// `sweep` itself reports failures.
pub fn sweep<T: Tally>(
    numbers: impl IntoParallelIterator<Item = u64>,
    progress: &Progress,
    run: impl Fn(u64) -> T + Sync,
) -> T {
    let one = |number| {
        let mut tally = catch_unwind(AssertUnwindSafe(|| run(number))).unwrap_or_else(|_| {
            let mut tally = T::default();
            tally.failing().push((number, "it panicked".into()));
            tally
        });
        progress.failed(tally.failing().len());
        tally
    };
    let add = |mut sum: T, next| {
        sum.add(next);
        sum
    };
    numbers.into_par_iter().map(one).reduce(T::default, add)
}

/// Prints the first failing runs, each with the command that repeats it. `kind` is the word printed
/// before a run's number, such as `seed`.
///
/// # Errors
/// Fails if writing to `out` fails.
pub fn show_failing(
    out: &mut impl Write,
    kind: &str,
    failing: &Failing,
    command: impl Fn(u64) -> String,
) -> io::Result<()> {
    for (number, why) in failing.iter().take(SHOWN) {
        writeln!(out, "{kind} {number}: {why}\n  {}", command(*number))?;
    }
    Ok(())
}

/// Parses a range of seeds, `A..B`, which does not include `B`.
///
/// # Errors
/// Fails if the text is not such a range. The error explains why.
pub fn seeds(text: &str) -> Result<Range<u64>, String> {
    let (first, end) = text.split_once("..").ok_or("expected A..B")?;
    let number = |text: &str| {
        let digits = text.replace('_', "");
        digits
            .parse::<u64>()
            .map_err(|error| format!("{text:?}: {error}"))
    };
    let seeds = number(first)?..number(end)?;
    if seeds.is_empty() {
        return Err("the range contains no seed".into());
    }
    Ok(seeds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Sum {
        runs: Vec<u64>,
        failing: Failing,
    }

    impl Tally for Sum {
        fn add(&mut self, others: Self) {
            self.runs.extend(others.runs);
            self.failing.extend(others.failing);
        }

        fn failing(&mut self) -> &mut Failing {
            &mut self.failing
        }
    }

    #[test]
    fn all_are_run_and_what_panics_has_failed() {
        let sum = sweep(5..300, &Progress::hidden(), |number| {
            assert_ne!(number, 77, "which panics");
            let failing = match number % 100 {
                0 => vec![(number, "round".to_owned())],
                _ => vec![],
            };
            Sum {
                runs: vec![number],
                failing,
            }
        });
        let all: Vec<u64> = (5..300).filter(|&number| number != 77).collect();
        assert_eq!(sum.runs, all);
        let mut shown = Vec::new();
        show_failing(&mut shown, "seed", &sum.failing, |seed| {
            format!("again {seed}")
        })
        .unwrap();
        let expected = "seed 77: it panicked\n  again 77\nseed 100: round\n  again 100\nseed 200: round\n  again 200\n";
        assert_eq!(String::from_utf8(shown).unwrap(), expected);
    }
}
