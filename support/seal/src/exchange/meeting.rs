//! The meeting of a job's ranks when a network starts, over the launcher's side channel, in two
//! rounds. In the first, each rank contributes its own data and its part of the [key
//! exchange](Exchange), or the text of its error. In the second, each rank confirms the
//! contributions that it has received from all ranks, or sends the reason why it cannot start. So
//! if one rank fails, all do.

use std::fmt::Display;

use conduit_core::ni::Rank;
use pmi::bootstrap::{Bootstrap, BootstrapError};

use super::{Exchange, Transcript};

/// The first byte of a contribution of a rank that can start.
const READY: u8 = 1;
/// The first byte of a contribution of a rank that cannot start. The text of its error follows.
const FAILED: u8 = 0;

/// The failure of a peer, which keeps all ranks from starting.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// A peer's contribution is malformed or does not fit this rank's.
    #[error("rank {rank} cannot decode the contribution of rank {peer}: {reason}")]
    Contribution {
        /// This rank.
        rank: Rank,
        /// The peer.
        peer: Rank,
        /// The fault.
        reason: String,
    },
    /// Another rank could not start.
    #[error("rank {peer} failed: {reason}")]
    Failed {
        /// The rank that failed.
        peer: Rank,
        /// Its own error.
        reason: String,
    },
}

impl Exchange {
    /// Returns this rank's contribution, with `words` as its own data.
    pub fn contribution(&self, words: &[u8]) -> Vec<u8> {
        let mut words = words.to_vec();
        self.append_share(&mut words);
        [&[READY], &words[..]].concat()
    }

    /// Reads the contributions of all ranks, which must be in the order of the ranks. Calls `read`
    /// with each rank and its own data. `read` returns an error if the data are faulty.
    ///
    /// # Errors
    /// Returns an error if a rank has failed, or if its contribution is too short, is faulty, or
    /// was not made by that rank with the same secret, in a job of the same size, over the same
    /// network.
    pub fn read_all(
        &mut self,
        texts: &[Vec<u8>],
        mut read: impl FnMut(Rank, &[u8]) -> Result<(), String>,
    ) -> Result<(), PeerError> {
        let rank = self.rank;
        for (peer, text) in (0..).zip(texts) {
            let fault = |reason| PeerError::Contribution { rank, peer, reason };
            let Some((&READY, words)) = text.split_first() else {
                let reason = text.get(1..).unwrap_or_default();
                return Err(PeerError::Failed {
                    peer,
                    reason: String::from_utf8_lossy(reason).into_owned(),
                });
            };
            let words = self.verify(peer, words);
            let words = words.map_err(|error| fault(error.to_string()))?;
            read(peer, words).map_err(fault)?;
        }
        Ok(())
    }
}

/// Meets the other ranks. This is a collective call. `prepared` is this rank's own part, together
/// with its [contribution](Exchange::contribution). `assemble` makes the result from that part and
/// the contributions of all ranks.
///
/// # Errors
/// Returns the error of `prepared`, of `assemble` or of the side channel, or an error that names
/// another rank that has failed.
pub fn meet<P, T, E>(
    bootstrap: &mut dyn Bootstrap,
    prepared: Result<(P, Vec<u8>), E>,
    assemble: impl FnOnce(P, &[Vec<u8>]) -> Result<(T, Transcript), E>,
) -> Result<T, E>
where
    E: Display + From<BootstrapError> + From<PeerError>,
{
    let (prepared, text) = match prepared {
        Ok((prepared, text)) => (Ok(prepared), text),
        Err(error) => {
            let text = [&[FAILED], error.to_string().as_bytes()].concat();
            (Err(error), text)
        }
    };
    let texts = bootstrap.allgather(&text)?;
    let started = prepared.and_then(|prepared| assemble(prepared, &texts));
    let verdict = match &started {
        Ok((_, transcript)) => transcript.confirm(),
        Err(error) => error.to_string().into_bytes(),
    };
    let verdicts = bootstrap.allgather(&verdict)?;
    let (started, transcript) = started?;
    for (peer, verdict) in (0..).zip(&verdicts) {
        let same = transcript.check(peer, verdict);
        same.map_err(|reason| PeerError::Failed { peer, reason })?;
    }
    Ok(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(rank: Rank) -> Exchange {
        Exchange::new(b"net", rank, 2, None).unwrap()
    }

    fn error(second: Vec<u8>) -> String {
        let texts = [exchange(0).contribution(b"zero"), second];
        let read = |_, words: &[u8]| match words {
            b"" => Err("it is empty".to_owned()),
            _ => Ok(()),
        };
        let read = exchange(0).read_all(&texts, read);
        read.unwrap_err().to_string()
    }

    #[test]
    fn all_that_is_said_is_read() {
        let texts = [0, 1].map(|rank| exchange(rank).contribution(&[7; 3][rank as usize..]));
        let mut all = Vec::new();
        let read = exchange(1).read_all(&texts, |peer, words| {
            all.push((peer, words.to_vec()));
            Ok(())
        });
        read.unwrap();
        assert_eq!(all, [(0, vec![7; 3]), (1, vec![7; 2])]);
    }

    #[test]
    fn a_failed_rank_is_named_with_its_reason() {
        let error = error([&[FAILED], &b"no socket"[..]].concat());
        assert_eq!(error, "rank 1 failed: no socket");
    }

    #[test]
    fn a_contribution_with_a_fault_is_an_error_that_names_the_rank() {
        let fault = "rank 0 cannot decode the contribution of rank 1: ";
        let whole = exchange(1).contribution(b"");
        assert_eq!(error(whole.clone()), format!("{fault}it is empty"));
        for cut in 1..whole.len() {
            let error = error(whole[..cut].to_vec());
            assert!(error.starts_with(fault), "{error}");
        }
    }
}
