//! The display of a long run's progress.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar on standard error, which is shown only on a terminal and is removed when it is
/// dropped. All threads of a run may advance it.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    failed: AtomicUsize,
}

impl Progress {
    /// Creates a bar that counts items called `unit`.
    pub fn new(unit: &str) -> Self {
        if !io::stderr().is_terminal() {
            return Self::hidden();
        }
        let bar = ProgressBar::new(0);
        let template = format!(
            "{{bar:40}} {{human_pos}}/{{human_len}} {unit} {{elapsed}} ({{eta}} left) {{msg}}"
        );
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Self {
            bar,
            failed: AtomicUsize::new(0),
        }
    }

    /// Creates a bar that is not shown.
    pub fn hidden() -> Self {
        Self {
            bar: ProgressBar::hidden(),
            failed: AtomicUsize::new(0),
        }
    }

    /// Adds to the expected number of items.
    pub fn expect(&self, more: u64) {
        self.bar.inc_length(more);
    }

    /// Adds to the number of finished items.
    pub fn done(&self, more: u64) {
        self.bar.inc(more);
    }

    /// Adds to the number of failed items.
    pub(crate) fn failed(&self, more: usize) {
        let failed = self.failed.fetch_add(more, Relaxed) + more;
        self.bar.set_message(format!("{failed} failing"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
