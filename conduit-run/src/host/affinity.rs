//! The processors on which ranks run.

use std::collections::BTreeMap;
use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity};

use super::plan::Bind;
use crate::error::Error;

/// Returns the processors of each of a host's `count` ranks, in ascending order; nothing if ranks
/// are not bound.
pub(crate) fn of_ranks(bind: Bind, count: usize) -> Result<Vec<Vec<usize>>, Error> {
    let groups = |key: &dyn Fn(usize) -> Option<usize>| {
        let groups = grouped(&allowed()?, key);
        Ok((0..count)
            .map(|rank| groups[rank * groups.len() / count].clone())
            .collect())
    };
    match bind {
        Bind::None => Ok(Vec::new()),
        Bind::Core => in_turn(count, 1),
        Bind::Cores(each) => in_turn(count, each.get()),
        Bind::Socket => groups(&socket),
        Bind::Numa => {
            let nodes = nodes();
            groups(&|processor| nodes.get(&processor).copied())
        }
    }
}

/// Returns the processors that this process may use, in ascending order.
pub(crate) fn allowed() -> Result<Vec<usize>, Error> {
    let set = sched_getaffinity(None).map_err(Error::system("reading the allowed processors"))?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect())
}

fn in_turn(count: usize, each: usize) -> Result<Vec<Vec<usize>>, Error> {
    let allowed = allowed()?;
    Ok((0..count).map(|rank| deal(&allowed, rank, each)).collect())
}

/// Returns the `each` processors of a rank. Processors are dealt to the ranks in turn, starting
/// again at the first allowed one when all are used.
fn deal(allowed: &[usize], rank: usize, each: usize) -> Vec<usize> {
    // `each` may exceed the number of allowed processors.
    let numbers = 0..each.min(allowed.len());
    let turn = |number| rank.wrapping_mul(each).wrapping_add(number) % allowed.len();
    let mut dealt: Vec<usize> = numbers.map(|number| allowed[turn(number)]).collect();
    dealt.sort_unstable();
    dealt
}

/// Returns the allowed processors of each socket or memory node. A system that does not report them
/// has one.
fn grouped(allowed: &[usize], key: &dyn Fn(usize) -> Option<usize>) -> Vec<Vec<usize>> {
    let mut groups = BTreeMap::<_, Vec<usize>>::new();
    for &processor in allowed {
        groups.entry(key(processor)).or_default().push(processor);
    }
    groups.into_values().collect()
}

fn socket(processor: usize) -> Option<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{processor}/topology/physical_package_id");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the memory node of each processor.
fn nodes() -> BTreeMap<usize, usize> {
    let mut nodes = BTreeMap::new();
    let folders = fs::read_dir("/sys/devices/system/node")
        .into_iter()
        .flatten();
    for folder in folders.flatten() {
        let name = folder.file_name().into_string().unwrap_or_default();
        let number = name.strip_prefix("node").and_then(|n| n.parse().ok());
        let list = fs::read_to_string(folder.path().join("cpulist"));
        if let (Some(number), Ok(list)) = (number, list) {
            nodes.extend(processors(&list).into_iter().map(|cpu| (cpu, number)));
        }
    }
    nodes
}

/// Parses a list of processors as the system writes it: `0-3,8`.
fn processors(list: &str) -> Vec<usize> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse().ok()?, last.parse::<usize>().ok()?);
        Some(first..=last.min(CpuSet::MAX_CPU))
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// Returns processors as the system writes them: `0-3,8`.
pub(crate) fn list(processors: &[usize]) -> String {
    let ranges = processors.chunk_by(|one, next| one + 1 == *next);
    let ranges = ranges.map(|range| match range {
        [first, .., last] => format!("{first}-{last}"),
        one => one.iter().map(usize::to_string).collect(),
    });
    ranges.collect::<Vec<_>>().join(",")
}

/// Returns the set for the system.
pub(crate) fn set(processors: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    processors.iter().for_each(|processor| set.set(*processor));
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: [usize; 3] = [2, 5, 7];

    #[test]
    fn ranks_take_turns_over_the_allowed_processors() {
        let cpus: Vec<_> = (0..5).map(|rank| deal(&ALLOWED, rank, 1)).collect();
        assert_eq!(cpus, [[2], [5], [7], [2], [5]]);
        assert!(of_ranks(Bind::None, 3).unwrap().is_empty());
        assert!(!allowed().unwrap().is_empty());
        for bind in [Bind::Core, Bind::Socket, Bind::Numa] {
            let bound = of_ranks(bind, 3).unwrap();
            assert!(bound.len() == 3 && bound.iter().all(|processors| !processors.is_empty()));
        }
    }

    #[test]
    fn a_rank_may_have_several() {
        assert_eq!(deal(&ALLOWED, 0, 2), [2, 5]);
        assert_eq!(deal(&ALLOWED, 1, 2), [2, 7]);
        assert_eq!(deal(&ALLOWED, 1, 3), [2, 5, 7]);
        assert_eq!(deal(&ALLOWED, 7, usize::MAX), [2, 5, 7]);
    }

    #[test]
    fn processors_are_grouped_by_what_they_share() {
        let allowed = [0, 1, 4, 5, 9];
        let groups = grouped(&allowed, &|cpu| Some(cpu % 4 / 2));
        assert_eq!(groups, [vec![0, 1, 4, 5, 9]]);
        let groups = grouped(&allowed, &|cpu| Some(cpu % 2));
        assert_eq!(groups, [vec![0, 4], vec![1, 5, 9]]);
        assert_eq!(grouped(&allowed, &|_| None).len(), 1);
    }

    #[test]
    fn lists_are_the_systems() {
        for text in ["0", "0-1", "0-3,8", "1,3,5-9"] {
            assert_eq!(list(&processors(text)), text);
        }
        assert!(processors("\n").is_empty());
        assert!(set(&[3]).is_set(3));
    }
}
