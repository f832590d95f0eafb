//! The parsers of the output of peers' programs.

use anyhow::{Context, ensure};

/// Returns the time of one message in one direction, in microseconds over the whole run, from the
/// output of `ucx_perftest -v`. The output has a line of names and a line of values below it, both
/// separated by commas.
pub(super) fn ucx(text: &str) -> anyhow::Result<f64> {
    below(text, "overall_lat", |line| line.split(',').collect())
}

/// Returns the time of one message in one direction, in microseconds, from the output of
/// `fi_pingpong`. The output has a line of names and a line of values below it, both separated by
/// spaces. Time and rate have two decimals each, so the larger number is more precise.
pub(super) fn libfabric(text: &str) -> anyhow::Result<f64> {
    let value = |name| below(text, name, |line| line.split_whitespace().collect());
    let time = value("usec/xfer")?;
    if time >= 1.0 {
        return Ok(time);
    }
    Ok(1.0 / value("Mxfers/sec")?)
}

/// Returns the value below `name`.
fn below(text: &str, name: &str, split: fn(&str) -> Vec<&str>) -> anyhow::Result<f64> {
    let mut lines = text.lines().skip_while(|line| !line.contains(name));
    let names = split(
        lines
            .next()
            .with_context(|| format!("no {name} in:\n{text}"))?,
    );
    let values = split(
        lines
            .next()
            .with_context(|| format!("no line below the names:\n{text}"))?,
    );
    let place = names.iter().position(|found| found.trim() == name);
    let value = place.and_then(|place| values.get(place));
    positive(value.with_context(|| format!("no value below {name} in:\n{text}"))?)
}

/// Returns the figure `name`, in nanoseconds, from the output of this project's MPI program. Each
/// line of the output has a name and a number.
pub(super) fn mpi(text: &str, name: &str) -> anyhow::Result<f64> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    positive(value.with_context(|| format!("no {name} in:\n{text}"))?)
}

fn positive(text: &str) -> anyhow::Result<f64> {
    let value: f64 = text
        .trim()
        .parse()
        .with_context(|| format!("'{text}' is not a time"))?;
    ensure!(value > 0.0 && value.is_finite(), "{value} is not a time");
    Ok(value)
}

/// Returns the first word that looks like a version.
pub(super) fn version(text: &str) -> Option<&str> {
    text.split_whitespace()
        .map(|word| word.trim_start_matches('v'))
        .find(|word| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit()))
}

/// Returns whether a process listens on a port. `table` is the system's list of TCP sockets
/// (`/proc/net/tcp`), whose lines contain a number, the local address and port, the remote address
/// and port, and the state.
pub(super) fn listens(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let port = format!(":{port:04X}");
    table.lines().any(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        matches!(words[..], [_, own, _, LISTEN, ..] if own.ends_with(&port))
    })
}

/// Returns the number of bytes that the loopback interface has transferred. `table` is the system's
/// list of interfaces (`/proc/net/dev`), whose lines contain a name and the number of bytes
/// received.
pub(super) fn loopback_bytes(table: &str) -> Option<u64> {
    let line = table
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("lo:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_counts_not_the_place() {
        let text = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw\n 500,0.155,9.25,6.5,105.72\n";
        assert_eq!(ucx(text).unwrap(), 6.5);
        assert_eq!(ucx("a,overall_lat\n1,2.5\n").unwrap(), 2.5);
        let text = "bytes   #sent   #ack     time     MB/sec    usec/xfer   Mxfers/sec\n\
                    8       5k      =5k      0.02s      0.82       3.75       0.10\n";
        assert_eq!(libfabric(text).unwrap(), 3.75);
        let fast = text.replace("3.75       0.10", "0.16       6.25");
        assert_eq!(libfabric(&fast).unwrap(), 0.16);
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "overall_lat",
            "overall_lat\n",
            "overall_lat\nfast",
            "overall_lat\n0",
            "overall_lat\nNaN",
        ] {
            assert!(ucx(text).is_err(), "{text}");
        }
        assert!(ucx("a,overall_lat\n1").is_err());
        assert!(ucx("x_overall_lat\n1").is_err());
        assert!(libfabric("usec/xfer\n-1").is_err());
    }

    #[test]
    fn figures_of_the_mpi_program_go_by_their_names() {
        let text = "a message of the system\nround-trip 7412.5\nput 300000.0\n";
        assert_eq!(mpi(text, "round-trip").unwrap(), 7412.5);
        assert_eq!(mpi(text, "put").unwrap(), 300_000.0);
        assert!(mpi(text, "round").is_err());
        assert!(mpi(text, "isend").is_err());
    }

    #[test]
    fn versions_are_found_in_what_programs_say() {
        assert_eq!(version("# Version 1.13.1\n# Git branch ''"), Some("1.13.1"));
        assert_eq!(
            version("fi_info: 1.17.0\nlibfabric: 1.17.0"),
            Some("1.17.0")
        );
        assert_eq!(version("mpirun (Open MPI) 4.1.4\n"), Some("4.1.4"));
        assert_eq!(version("mpirun"), None);
    }

    #[test]
    fn a_listening_port_is_found_in_the_systems_list() {
        let table = "  sl  local_address rem_address   st tx_queue\n\
                     0: 0100007F:3458 00000000:0000 0A 00000000:00000000\n\
                     1: 0100007F:0050 0100007F:1F90 01 00000000:00000000\n";
        assert!(listens(table, 0x3458));
        assert!(!listens(table, 0x50), "connected");
        assert!(!listens(table, 0x1f90), "another port");
        assert!(!listens("", 1));
    }

    #[test]
    fn loopback_is_one_of_the_interfaces() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n\
                    \u{20}   lo: 1234 5 0 0 1234 5\n  eth0:99 1 0 0 7 7\n";
        assert_eq!(loopback_bytes(table), Some(1234));
        assert_eq!(loopback_bytes("eth0: 7"), None);
    }
}
