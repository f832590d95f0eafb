//! The environment variables with which a launcher tells a rank how to reach the launcher.

use std::os::fd::RawFd;

use super::Error;

/// The way to reach the launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// `PMI_FD`: a socket left open for this process, with `PMI_RANK` and `PMI_SIZE`.
    Inherited { fd: RawFd, rank: usize, size: usize },
    /// `PMI_PORT`: host and port to connect to, with `PMI_ID` as this process's name.
    Port { address: String, id: usize },
}

/// Reads the variables through `lookup`; returns `None` if there is no launcher.
pub(super) fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Address>, Error> {
    if lookup("PMI_FD").is_some() {
        let fd = number(&lookup, "PMI_FD", "the number of an open socket")?;
        let rank = number(&lookup, "PMI_RANK", "this rank's number, below PMI_SIZE")?;
        let size = number(&lookup, "PMI_SIZE", "the number of ranks, at least 1")?;
        check(rank, size)?;
        let Ok(fd) = RawFd::try_from(fd) else {
            let value = lookup("PMI_FD").unwrap_or_default();
            return Err(Error::Variable {
                name: "PMI_FD",
                value,
                accepted: "the number of an open socket",
            });
        };
        return Ok(Some(Address::Inherited { fd, rank, size }));
    }
    if let Some(address) = lookup("PMI_PORT") {
        let id = number(&lookup, "PMI_ID", "this process's number")?;
        return Ok(Some(Address::Port { address, id }));
    }
    Ok(None)
}

/// Checks that `rank` is in `0..size`.
pub(super) fn check(rank: usize, size: usize) -> Result<(), Error> {
    if rank < size {
        return Ok(());
    }
    let accepted = "this rank's number, below PMI_SIZE";
    Err(Error::Variable {
        name: "PMI_RANK",
        value: format!("{rank} (PMI_SIZE={size})"),
        accepted,
    })
}

fn number(
    lookup: impl Fn(&str) -> Option<String>,
    name: &'static str,
    accepted: &'static str,
) -> Result<usize, Error> {
    let value = lookup(name).unwrap_or_default();
    value.parse().map_err(|_| Error::Variable {
        name,
        value,
        accepted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(&str, &str)]) -> Result<Option<Address>, Error> {
        read(|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, v)| (*v).to_owned())
        })
    }

    #[test]
    fn no_variable_means_no_launcher() {
        assert_eq!(from(&[("PMI_RANK", "0")]).unwrap(), None);
    }

    #[test]
    fn both_ways_to_the_launcher_are_known() {
        let inherited = from(&[("PMI_FD", "7"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")]).unwrap();
        assert_eq!(
            inherited,
            Some(Address::Inherited {
                fd: 7,
                rank: 1,
                size: 4
            })
        );
        let port = from(&[("PMI_PORT", "host:99"), ("PMI_ID", "3")]).unwrap();
        assert_eq!(
            port,
            Some(Address::Port {
                address: "host:99".into(),
                id: 3
            })
        );
    }

    #[test]
    fn unusable_variables_are_named() {
        for (pairs, name) in [
            (
                vec![("PMI_FD", "x"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")],
                "PMI_FD",
            ),
            (
                vec![
                    ("PMI_FD", "99999999999"),
                    ("PMI_RANK", "1"),
                    ("PMI_SIZE", "4"),
                ],
                "PMI_FD",
            ),
            (vec![("PMI_FD", "7"), ("PMI_SIZE", "4")], "PMI_RANK"),
            (
                vec![("PMI_FD", "7"), ("PMI_RANK", "4"), ("PMI_SIZE", "4")],
                "PMI_RANK",
            ),
            (
                vec![("PMI_FD", "7"), ("PMI_RANK", "0"), ("PMI_SIZE", "-1")],
                "PMI_SIZE",
            ),
            (vec![("PMI_PORT", "host:1")], "PMI_ID"),
        ] {
            match from(&pairs) {
                Err(Error::Variable { name: got, .. }) => assert_eq!(got, name, "{pairs:?}"),
                other => panic!("{pairs:?}: {other:?}"),
            }
        }
    }
}
