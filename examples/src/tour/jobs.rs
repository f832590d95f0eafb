//! The jobs of the tour, one after the other.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use conduit_run::{Launch, Stream};

use super::checks::BEGINS;
use super::show::Show;
use super::{Part, figures};

/// The time limit of a job, far above what any job of the tour takes.
const LIMIT: Duration = Duration::from_secs(1200);

/// Settings that make ranks reach each other's memory only by messages.
const NOT_MAPPED: [(&str, &str); 2] = [("CONDUIT_WINDOWS", "0"), ("CONDUIT_INJECT", "0")];

/// Runs the tour, and returns whether everything was verified.
pub(super) fn run(ranks: usize, measure: bool) -> Result<bool> {
    let begin = Instant::now();
    let mut show = Show::new();
    let mut all = true;

    show.title(
        "Every operation, verified: the ranks' memory is mapped, so puts and gets are copies",
    );
    all &= job(ranks, Part::Checks, &[], &mut show)?;
    show.title(
        "The same without mapped memory: every operation is sent as messages, as between hosts",
    );
    all &= job(ranks, Part::Checks, &NOT_MAPPED, &mut show)?;
    if measure {
        show.title("Latencies, rates and bandwidths, each beside this machine's own limit, measured in turn");
        if let Err(error) = figures::run(&mut show) {
            show.error(&format!("FAILED: {error:#}"));
            all = false;
        }
    }
    show.title("An example: heat on a plate, halo rows exchanged by puts");
    all &= job(ranks, Part::Heat, &[], &mut show)?;
    show.title("An example: words counted in a hash table fed by active messages");
    all &= job(ranks, Part::Wordcount, &[], &mut show)?;

    show.end();
    let (verified, seconds) = (show.verified(), begin.elapsed().as_secs_f64());
    show.line("");
    show.line(&match all {
        true => format!("{verified} operations verified, both examples correct; {seconds:.0} s"),
        false => {
            format!(
                "FAILED: not everything was correct, see above ({verified} operations verified)"
            )
        }
    });
    Ok(all)
}

/// Runs this program as the ranks of a job, and shows their lines as they are written. Returns
/// whether the job succeeded.
fn job(ranks: usize, part: Part, settings: &[(&str, &str)], show: &mut Show) -> Result<bool> {
    let program = std::env::current_exe().context("finding this program")?;
    let (send, lines) = channel();
    let launch = Launch::new(ranks, program)
        .args(["--part", part.name()])
        .timeout(Some(LIMIT))
        .output(move |_rank, stream, line| {
            // The receiver lives as long as the job runs.
            let _ = send.send((stream, String::from_utf8_lossy(line).into_owned()));
        });
    let launch = launch.envs(settings.iter().copied());
    let mut running = launch.spawn().context("starting the ranks")?;
    let mut ended = false;
    while !ended {
        ended = running.wait_for(Duration::from_millis(100))?;
        for (stream, line) in lines.try_iter() {
            match (stream, line.strip_prefix(BEGINS)) {
                (Stream::Stdout, Some(begins)) => show.begin(begins),
                (Stream::Stdout, None) => show.line(&line),
                (Stream::Stderr, _) => show.error(&line),
            }
        }
    }
    let code = running.wait()?.exit_code;
    if code != 0 {
        show.error(&format!("FAILED: exit code {code}"));
    }
    Ok(code == 0)
}
