//! The programs of simulators, as their tests run them.

use std::path::Path;
use std::process::{Command, Output};

use record::{Record, SIMULATED};
use serde_json::Value;

/// The time limit of a run in seconds. It is far longer than any test's run takes on a busy
/// machine.
const LIMIT: &str = "7200";

/// A program, identified by its path: `Program(env!("CARGO_BIN_EXE_…"))`.
#[derive(Clone, Copy, Debug)]
pub struct Program(pub &'static str);

impl Program {
    /// Runs the program with these arguments until it exits. A run that exceeds the time limit is
    /// killed and counts as failed.
    ///
    /// # Panics
    /// Panics if the program cannot be run.
    pub fn run(self, arguments: &str) -> Output {
        let mut timeout = Command::new("timeout");
        timeout.args(["--signal=KILL", LIMIT, self.0]);
        timeout
            .args(arguments.split_whitespace())
            .output()
            .expect("the simulator runs")
    }

    /// Returns the program's human-readable output.
    ///
    /// # Panics
    /// Panics if the program cannot be run, fails, or writes to standard error.
    pub fn text(self, arguments: &str) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        assert!(errors.is_empty(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).expect("it prints text")
    }

    /// Returns the JSON object that the program prints on one line with `--json`.
    ///
    /// # Panics
    /// Same as [`text`](Self::text). Panics as well if the program prints anything else.
    pub fn json(self, arguments: &str) -> Value {
        let text = self.text(&format!("{arguments} --json"));
        assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
        serde_json::from_str(&text).expect("it prints JSON")
    }

    /// Repeats the commands that produced this program's figures in `docs/figures`, and compares
    /// the rows. Commands for which `is_wanted` returns `false` are skipped. If
    /// `CONDUIT_TEST_WRITE` is set, writes the files that differ.
    ///
    /// A file may name several commands, separated by "; ". In that case, each command must have
    /// produced the same number of rows.
    ///
    /// # Panics
    /// Panics if figures differ and `CONDUIT_TEST_WRITE` is not set, or if no command is wanted.
    pub fn renews_figures(self, is_wanted: impl Fn(&str) -> bool) {
        let program = Path::new(self.0).file_name().unwrap_or_default();
        let program = format!("{} ", program.to_string_lossy());
        let mut runs = 0;
        for name in record::names().expect("docs/figures can be read") {
            let mut figures = Record::read(&name).expect("a file of docs/figures is a record");
            if figures.processor != SIMULATED || !figures.command.starts_with(&program) {
                continue;
            }
            let commands: Vec<_> = figures.command.split("; ").collect();
            let rows_of_each = figures.rows.len() / commands.len();
            for (at, command) in commands.iter().enumerate() {
                if !is_wanted(command) {
                    continue;
                }
                runs += 1;
                let arguments = command.strip_prefix(&program).expect("the same program");
                let printed = self.text(&format!("{arguments} --record"));
                let printed: Record = serde_json::from_str(&printed).expect("it prints a record");
                let place = at * rows_of_each..(at + 1) * rows_of_each;
                figures.rows.splice(place, printed.rows);
                figures.columns = printed.columns;
            }
            figures.renew(&name);
        }
        assert!(runs > 0, "no figures of {program}");
    }

    /// Checks that the program fails and prints only an error that contains `message`.
    ///
    /// # Panics
    /// Panics if the program succeeds, panics, prints a different error, or writes to standard
    /// output.
    pub fn fails_with(self, arguments: &str, message: &str) {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(errors.contains(message), "{arguments:?}: {errors}");
        assert!(!errors.contains("panicked"), "{errors}");
        assert!(output.stdout.is_empty());
    }
}
