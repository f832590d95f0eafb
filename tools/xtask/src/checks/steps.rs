//! Steps with their times: commands that run one after the other and end with the first that fails.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;

use crate::command;

/// No step takes nearly as long: a program that hangs is a failure, not a wait.
const LIMIT: &str = "1800";

/// The steps so far, in order.
#[derive(Debug, Default, Serialize)]
pub(super) struct Steps(Vec<Step>);

#[derive(Debug, Serialize)]
struct Step {
    title: &'static str,
    seconds: f64,
    /// Of processors, by all processes that the step has started.
    processor_seconds: f64,
    passed: bool,
}

impl Steps {
    /// Does a step.
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
    /// Returns an error if the command can't be started, fails or takes too long.
    pub(super) fn command(&mut self, title: &'static str, command: &mut Command) -> Result<()> {
        self.step(title, || run(command))
    }

    /// A table of the steps.
    pub(super) fn table(&self) -> String {
        let line = |step: &Step| {
            let Step {
                title,
                seconds,
                processor_seconds,
                ..
            } = step;
            format!("{seconds:8.1} s  {processor_seconds:8.1} s of processors  {title}\n")
        };
        self.0.iter().map(line).collect()
    }

    /// The time of all steps.
    pub(super) fn total(&self) -> Duration {
        Duration::from_secs_f64(self.0.iter().map(|step| step.seconds).sum())
    }
}

/// Of processors, by a process and by all that it has started and that have ended.
pub(super) fn processor_seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // After the program's name, which may hold anything: state, parent and so on. These four are
    // the process's own and the others', in user's and in the kernel's code; see proc_pid_stat(5).
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let times = fields.split_ascii_whitespace().skip(11).take(4);
    let ticks: f64 = times.filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// Runs a command with its output shown, for as long as a step may take.
pub(super) fn run(command: &mut Command) -> Result<()> {
    let line = command::line(command);
    println!("    {line}");
    let status = limited(command).status()?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// The same command with a time limit, without standard input.
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
