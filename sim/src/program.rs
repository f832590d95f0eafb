//! A simulator's program, as its tests run it.

use std::process::{Command, Output};

use serde_json::Value;

/// Seconds: far longer than any test's run takes on a busy machine.
const LIMIT: &str = "300";

/// A program, by its path: `Program(env!("CARGO_BIN_EXE_…"))`.
#[derive(Clone, Copy, Debug)]
pub struct Program(pub &'static str);

impl Program {
    /// Runs it with these words to its end; one that does not end is killed, and has failed.
    ///
    /// # Panics
    /// If it can't be run.
    pub fn run(self, arguments: &str) -> Output {
        let mut timeout = Command::new("timeout");
        timeout.args(["--signal=KILL", LIMIT, self.0]);
        timeout
            .args(arguments.split_whitespace())
            .output()
            .expect("the simulator runs")
    }

    /// What it prints for people.
    ///
    /// # Panics
    /// As [`run`](Self::run), or if it fails.
    pub fn text(self, arguments: &str) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        assert!(errors.is_empty(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).expect("it prints text")
    }

    /// The JSON object that it prints on one line with `--json`.
    ///
    /// # Panics
    /// As [`text`](Self::text), or if it prints anything else.
    pub fn json(self, arguments: &str) -> Value {
        let text = self.text(&format!("{arguments} --json"));
        assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
        serde_json::from_str(&text).expect("it prints JSON")
    }

    /// It has to fail, with nothing but an error that says this.
    ///
    /// # Panics
    /// If it doesn't.
    pub fn fails_with(self, arguments: &str, message: &str) {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(errors.contains(message), "{arguments:?}: {errors}");
        assert!(!errors.contains("panicked"), "{errors}");
        assert!(output.stdout.is_empty());
    }
}
