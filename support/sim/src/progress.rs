//! How far a long run is.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error, if that is a terminal, until it is dropped. All threads of a run may
/// move it on.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    failed: AtomicUsize,
}

impl Progress {
    /// A bar that counts what `unit` names.
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

    /// Nothing is shown.
    pub fn hidden() -> Self {
        Self {
            bar: ProgressBar::hidden(),
            failed: AtomicUsize::new(0),
        }
    }

    /// So much more is to come.
    pub fn expect(&self, more: u64) {
        self.bar.inc_length(more);
    }

    /// So much more is done.
    pub fn done(&self, more: u64) {
        self.bar.inc(more);
    }

    /// So much more of it has failed.
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
