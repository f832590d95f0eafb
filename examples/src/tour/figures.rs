//! The measurements of the tour: the quick ones of `conduit-perf`.

use anyhow::Result;
use conduit_perf::report;
use conduit_perf::{Event, Options, run_all};

use super::show::Show;

/// Measures and shows the table. The figures depend on the machine, so only an error counts as a
/// failure.
pub(super) fn run(show: &mut Show) -> Result<()> {
    let options = Options {
        quick: true,
        ..Options::default()
    };
    let (mut done, mut total) = (0, 0);
    let figures = run_all(&options, |event| {
        match event {
            Event::Started { job, of, .. } => {
                total = *of;
                let (ranks, cores) = (job.ranks(), job.cores());
                show.line(&format!("measuring {ranks} ranks, cores: {cores}"));
            }
            Event::Figure(_) => done += 1,
            Event::LeftOut { name, reason, .. } => {
                done += 1;
                show.line(&format!("{name} skipped: {reason}"));
            }
        }
        show.begin(&format!("figure {done} of {total}"));
    })?;
    show.line(&report::figures(&figures).to_string());
    show.line(&report::Summary::of(&figures).to_string());
    Ok(())
}
