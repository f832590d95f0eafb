//! Checks that all ranks have registered the same handlers.
//!
//! Each rank enters a barrier whose id is a hash of the rank's handlers. This costs no more
//! messages than any other barrier. Only if the ids differ do the ranks exchange descriptions of
//! their handlers.

use conduit_core::barrier::BarrierOutcome;
use conduit_core::barrier::Value;
use conduit_core::ni::Rank;
use conduit_core::threads::Mode;

use crate::{Error, Member, Result};

const CALL: &str = "attach";

/// The maximum number of bytes of a handler's description. Longer descriptions are truncated before
/// they are sent.
const MOST: usize = 400;

/// Compares the descriptions of this rank's handlers, in order, with the descriptions on all other
/// ranks. Collective.
pub(crate) fn check<M: Mode>(member: &Member<M>, signatures: &[String]) -> Result<()> {
    let rank = member.engine().rank();
    let all = signatures.iter().map(|signature| hash(signature));
    let name = hash_of(all.clone().flat_map(u32::to_ne_bytes));
    match member.engine().barriers().meet(CALL, Value::Named(name)) {
        Ok(BarrierOutcome::Match(_)) => return Ok(()),
        Ok(BarrierOutcome::Mismatch(_)) => {}
        Err(error) => return Err(member.failed(CALL, error)),
    }
    let hashes: Vec<u8> = all.flat_map(u32::to_ne_bytes).collect();
    let of_ranks = member.allgather(CALL, &hashes)?;
    let place = |at: usize| of_ranks.iter().map(move |all| all.get(at * 4..at * 4 + 4));
    let differs = |&at: &usize| {
        let mut all = place(at);
        let first = all.next();
        all.any(|other| Some(other) != first)
    };
    // The barrier did not match, so the lists differ somewhere, at the latest where the shortest
    // list ends.
    let at = (0..256).find(differs).unwrap_or(256);
    let own = signatures.get(at).map_or("none", String::as_str);
    let mut own = own.to_owned();
    while own.len() > MOST {
        own.pop();
    }
    let texts = member.allgather(CALL, own.as_bytes())?;
    Err(Error::HandlersDiffer {
        rank,
        difference: format!("handler {} is {}", at + 1, by_rank(&texts)),
    })
}

/// Hashes bytes with FNV-1a, which gives the same result in every build.
fn hash_of(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

fn hash(text: &str) -> u32 {
    hash_of(text.bytes())
}

/// Lists the texts of the ranks. Each text appears once, with the ranks that passed it.
fn by_rank(texts: &[Vec<u8>]) -> String {
    let mut groups: Vec<(&[u8], Vec<Rank>)> = Vec::new();
    for (rank, text) in (0..).zip(texts) {
        match groups.iter_mut().find(|(known, _)| known == text) {
            Some((_, ranks)) => ranks.push(rank),
            None => groups.push((text, vec![rank])),
        }
    }
    let groups = groups
        .iter()
        .map(|(text, ranks)| format!("{} on {}", String::from_utf8_lossy(text), named(ranks)));
    groups.collect::<Vec<_>>().join("; ")
}

/// The maximum number of rank ranges that are shown.
const MOST_RUNS: usize = 8;

/// Formats ranks in ascending order, with consecutive ranks as ranges.
fn named(ranks: &[Rank]) -> String {
    let more = ranks.chunk_by(|one, next| one + 1 == *next).count() > MOST_RUNS;
    let runs: Vec<String> = ranks
        .chunk_by(|one, next| one + 1 == *next)
        .take(MOST_RUNS)
        .map(|run| match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect();
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let more = if more { " and more" } else { "" };
    format!("{word} {}{more}", runs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_each_text_once_with_its_ranks() {
        let texts = ["a", "b", "a", "a", "c", "a"].map(|text| text.as_bytes().to_vec());
        let even: Vec<Rank> = (0..100).step_by(2).collect();
        assert_eq!(named(&even), "ranks 0, 2, 4, 6, 8, 10, 12, 14 and more");
        assert_eq!(
            by_rank(&texts),
            "a on ranks 0, 2-3, 5; b on rank 1; c on rank 4"
        );
    }

    #[test]
    fn hashes_are_those_of_fnv() {
        assert_eq!(hash(""), 0x811c_9dc5);
        assert_eq!(hash("foobar"), 0xbf9c_f968);
    }
}
