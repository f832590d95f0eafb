//! The tour's output: a moving line on a terminal while something runs, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::checks::grouped;

/// The output of the tour.
#[derive(Debug)]
pub(super) struct Show {
    bar: Option<ProgressBar>,
    verified: u64,
}

impl Show {
    pub(super) fn new() -> Self {
        let terminal = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        Self {
            bar: terminal.then(ProgressBar::new_spinner),
            verified: 0,
        }
    }

    /// Prints the title of a new section.
    pub(super) fn title(&mut self, title: &str) {
        self.line("");
        self.line(title);
        self.begin(title);
    }

    /// Shows the current activity, on a terminal only: elsewhere the line with its result suffices.
    pub(super) fn begin(&mut self, what: &str) {
        if let Some(bar) = &self.bar {
            if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(100));
            bar.set_message(what.to_owned());
        }
    }

    /// Ends the display of an activity.
    pub(super) fn end(&mut self) {
        if let Some(bar) = &self.bar {
            bar.disable_steady_tick();
            bar.set_message("");
        }
    }

    /// Prints a permanent line.
    pub(super) fn line(&mut self, line: &str) {
        if let Some((number, _)) = line.split_once(" verified: ") {
            self.verified += number.trim().replace(',', "").parse().unwrap_or(0);
        }
        match &self.bar {
            Some(bar) => bar.suspend(|| println!("{line}")),
            None => println!("{line}"),
        }
    }

    /// Prints a permanent line on standard error.
    pub(super) fn error(&mut self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    /// Returns the number of verified operations that the lines so far have reported.
    pub(super) fn verified(&self) -> String {
        grouped(self.verified)
    }
}
