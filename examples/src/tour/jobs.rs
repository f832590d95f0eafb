//! The jobs of the tour, one after the other.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use conduit_run::{Bind, Launch, Stream};

use super::Part;
use super::checks::BEGINS;
use super::show::Show;

/// No job of the tour takes nearly as long.
const LIMIT: Duration = Duration::from_secs(120);

/// A job: a title, its ranks, what they do, and their settings.
struct Job {
    title: &'static str,
    ranks: usize,
    part: Part,
    bind: Bind,
    settings: &'static [(&'static str, &'static str)],
}

/// Runs the tour; whether everything was verified.
pub(super) fn run(ranks: usize, figures: bool) -> Result<bool> {
    let job = |title, part, settings| Job {
        title,
        ranks,
        part,
        bind: Bind::None,
        settings,
    };
    let mut jobs = vec![
        job(
            "Every operation, verified: the ranks' memory is mapped, so puts and gets are copies",
            Part::Checks,
            &[],
        ),
        job(
            "The same without mapped memory: every operation is messages, as between hosts",
            Part::Checks,
            &[("CONDUIT_WINDOWS", "0"), ("CONDUIT_INJECT", "0")],
        ),
    ];
    if figures {
        jobs.push(Job {
            ranks: 2,
            bind: Bind::Core,
            ..job(
                "Latencies, rates and bandwidths of two ranks, beside this machine's limits",
                Part::Figures,
                &[],
            )
        });
    }
    jobs.push(job(
        "An example: heat on a plate, halo rows exchanged by puts",
        Part::Heat,
        &[],
    ));
    jobs.push(job(
        "An example: words counted in a hash table fed by active messages",
        Part::Wordcount,
        &[],
    ));

    let begin = Instant::now();
    let mut show = Show::new();
    let mut failed = Vec::new();
    for job in &jobs {
        if !one(job, &mut show)? {
            failed.push(job.title);
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    show.line("");
    if failed.is_empty() {
        show.line(&format!(
            "{} operations verified, nothing failed, {seconds:.0} s",
            show.verified()
        ));
    }
    for title in &failed {
        show.line(&format!("FAILED: {title}"));
    }
    Ok(failed.is_empty())
}

/// Runs one job, showing the lines that its rank 0 writes as they come; whether it succeeded.
fn one(job: &Job, show: &mut Show) -> Result<bool> {
    let program = std::env::current_exe().context("finding this program")?;
    show.title(job.title);
    let (send, lines) = channel();
    let mut launch = Launch::new(job.ranks, program)
        .args(["--part", job.part.name()])
        .bind(job.bind)
        .timeout(Some(LIMIT))
        .output(move |_rank, stream, line| {
            // The receiver is there as long as the job runs.
            let _ = send.send((stream, String::from_utf8_lossy(line).into_owned()));
        });
    for (name, value) in job.settings {
        launch = launch.env(name, value);
    }
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
    let outcome = running.wait()?;
    show.end();
    Ok(outcome.exit_code == 0)
}
