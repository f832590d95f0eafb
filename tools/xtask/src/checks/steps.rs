//! Steps of a check, which run in sequence, and their times.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;

use crate::command;

/// The time limit of a command in seconds, after which it counts as failed. The limit far exceeds
/// the time of any step, so only commands that hang reach it.
const LIMIT: &str = "1800";

/// The steps that have run so far, in order.
#[derive(Debug, Default, Serialize)]
pub(super) struct Steps(Vec<Step>);

#[derive(Debug, Serialize)]
struct Step {
    title: &'static str,
    seconds: f64,
    /// Processor time of all processes that the step has started.
    processor_seconds: f64,
    passed: bool,
}

impl Steps {
    /// Runs a step and records its times and whether it has passed.
    ///
    /// # Errors
    /// Returns the step's own error.
    pub(super) fn step<T>(
        &mut self,
        title: &'static str,
        step: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        println!("=== {title}");
        let own = std::process::id();
        let (begun, used) = (Instant::now(), processor_seconds(own));
        let result = step();
        let passed = result.is_ok();
        let seconds = begun.elapsed().as_secs_f64();
        let processor_seconds = processor_seconds(own) - used;
        let word = if passed { "passed" } else { "FAILED" };
        println!("=== {word} in {seconds:.0} s: {title}");
        self.0.push(Step {
            title,
            seconds,
            processor_seconds,
            passed,
        });
        result
    }

    /// Runs a command as a step.
    ///
    /// # Errors
    /// Returns an error if the command cannot be started, fails or exceeds the time limit.
    pub(super) fn command(&mut self, title: &'static str, command: &mut Command) -> Result<()> {
        self.step(title, || run(command))
    }

    /// Returns a table of the steps.
    pub(super) fn table(&self) -> String {
        let line = |step: &Step| {
            let Step {
                title,
                seconds,
                processor_seconds,
                ..
            } = step;
            format!("{seconds:8.1} s  {processor_seconds:8.1} s of processor time  {title}\n")
        };
        self.0.iter().map(line).collect()
    }

    /// Returns the total time of all steps.
    pub(super) fn total(&self) -> Duration {
        Duration::from_secs_f64(self.0.iter().map(|step| step.seconds).sum())
    }
}

/// Returns the processor time of a process and of all its descendants that have ended.
pub(super) fn processor_seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The program's name may contain anything; it is followed by state, parent and other fields.
    // The four fields read here are the process's own and its children's times, in user and kernel
    // mode; see proc_pid_stat(5).
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let times = fields.split_ascii_whitespace().skip(11).take(4);
    let ticks: f64 = times.filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// Runs a command with visible output, within the time limit of a step.
pub(super) fn run(command: &mut Command) -> Result<()> {
    let line = command::line(command);
    println!("    {line}");
    let status = limited(command).status()?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Returns the same command with a time limit and with an empty standard input.
fn limited(command: &Command) -> Command {
    let mut limited = Command::new("timeout");
    limited
        .args(["--kill-after=10", LIMIT])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        limited.current_dir(folder);
    }
    limited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_what_failed_too() {
        let mut steps = Steps::default();
        steps
            .command("succeeds", &mut Command::new("true"))
            .unwrap();
        let error = steps
            .command("fails", Command::new("sh").args(["-c", "exit 3"]))
            .unwrap_err();
        assert_eq!(error.to_string(), "`sh -c exit 3` failed: exit status: 3");
        assert_eq!(steps.table().lines().count(), 2);
        assert!(!steps.0[1].passed);
    }
}
