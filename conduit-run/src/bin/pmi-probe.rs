//! `pmi-probe`: tests a launcher's PMI-1, with any launcher that supports it, and shows how the
//! launcher reacts to ranks that fail.

use std::error::Error;
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use conduit::stderr;
use pmi::bootstrap::Bootstrap as _;
use pmi::client::Connection;

/// A diagnostic program for launchers (conduit-run, mpiexec.hydra, srun): start it as the ranks of
/// a job, and each rank uses PMI-1 as any rank does.
#[derive(Debug, Parser)]
#[command(name = "pmi-probe", version)]
struct Options {
    /// Give up if the launcher does not answer a call within this time
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    limit: u64,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Exchange blobs of different sizes between all ranks and check them (the default)
    Exchange {
        /// Maximum bytes that a rank contributes
        #[arg(default_value_t = 3000)]
        bytes: usize,
        /// Number of exchanges
        #[arg(default_value_t = 3)]
        rounds: usize,
    },
    /// One rank aborts the job; the others wait in a barrier
    Abort {
        /// The rank
        rank: usize,
        /// The exit code for the job
        code: i32,
    },
    /// One rank exits before finalize; the others wait in a barrier
    Leave {
        /// The rank, or "all"
        rank: String,
        /// Its exit code
        code: u8,
    },
    /// One rank closes its connection and only after a while reports the reason and exits; the
    /// others wait in a barrier
    Fail {
        /// The rank
        rank: usize,
        /// Its exit code
        code: u8,
    },
    /// One rank breaks the protocol; the others wait in a barrier. Shows how the launcher reacts
    Misbehave {
        /// The violation
        #[arg(value_enum)]
        way: Way,
        /// The rank
        rank: usize,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Way {
    /// Send a line that is not a request
    Garbage,
    /// Send a line without an end
    Endless,
    /// Send requests forever and never read the replies
    Flood,
    /// Close the connection and continue
    Close,
    /// Execute another program
    Exec,
}

/// The time for which a failing rank sleeps before it exits. It exceeds the launcher's grace
/// period, as it may for a rank on an oversubscribed host.
const SLOW: Duration = Duration::from_millis(1500);

fn main() -> ExitCode {
    let options = Options::parse();
    match probe(options) {
        Ok(code) => code,
        Err(error) => {
            stderr::write_line(format_args!("pmi-probe: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn probe(options: Options) -> Result<ExitCode, Box<dyn Error>> {
    let limit = Some(Duration::from_secs(options.limit));
    let Some(mut launcher) = Connection::from_env_within(limit)? else {
        println!("no launcher: a job of one rank");
        return Ok(ExitCode::SUCCESS);
    };
    let me = launcher.rank();
    match options.command {
        None => exchange(&mut launcher, 3000, 3),
        Some(Command::Exchange { bytes, rounds }) => exchange(&mut launcher, bytes, rounds),
        Some(Command::Abort { rank, code }) => {
            if me == rank {
                launcher.abort(code, "as told")?;
                std::process::exit(code);
            }
            launcher.barrier()?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Leave { rank, code }) => {
            if rank != "all" && rank != me.to_string() {
                launcher.barrier()?;
            }
            Ok(ExitCode::from(code))
        }
        Some(Command::Fail { rank, code }) => {
            if me != rank {
                launcher.barrier()?;
            }
            close(&launcher);
            std::thread::sleep(SLOW);
            stderr::write_line(format_args!("pmi-probe: rank {me} has failed"));
            Ok(ExitCode::from(code))
        }
        Some(Command::Misbehave { way, rank }) => {
            if me == rank {
                misbehave(launcher, way);
            }
            launcher.barrier()?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Closes the connection.
fn close(launcher: &Connection) {
    // An error would mean that the connection is closed already.
    let _ = rustix::net::shutdown(launcher, rustix::net::Shutdown::Both);
}

/// Breaks the protocol and then waits to be killed.
fn misbehave(launcher: Connection, way: Way) -> ! {
    let send = |bytes: &[u8]| rustix::io::write(&launcher, bytes).is_ok_and(|count| count > 0);
    match way {
        Way::Garbage => drop(send(b"\x00\xffgarbage\n")),
        Way::Endless => while send(&[b'x'; 1000]) {},
        Way::Flood => while send(b"cmd=get_maxes\n") {},
        Way::Close => close(&launcher),
        Way::Exec => drop(std::process::Command::new("sleep").arg("1000").exec()),
    }
    loop {
        std::thread::park();
    }
}

fn exchange(
    launcher: &mut Connection,
    bytes: usize,
    rounds: usize,
) -> Result<ExitCode, Box<dyn Error>> {
    let (me, size) = (launcher.rank(), launcher.size());
    // Sizes range from 0 to the maximum; the contents depend on rank, round and position.
    let blob = |rank: usize, round: usize| -> Vec<u8> {
        let length = bytes * rank / size.saturating_sub(1).max(1);
        (0..length)
            .map(|at| (at ^ (rank << 3) ^ round) as u8)
            .collect()
    };
    for round in 0..rounds {
        let all = launcher.allgather(&blob(me, round))?;
        for (rank, got) in all.iter().enumerate() {
            if *got != blob(rank, round) {
                stderr::write_line(format_args!(
                    "pmi-probe: rank {me}: wrong data from rank {rank} in round {round}"
                ));
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    let universe = launcher.universe_size()?;
    launcher.finalize()?;
    let universe = universe.map_or("unknown".to_owned(), |number| number.to_string());
    println!("rank {me} of {size}: {rounds} exchanges are right (universe size {universe})");
    Ok(ExitCode::SUCCESS)
}
