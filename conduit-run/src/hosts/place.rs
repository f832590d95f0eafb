//! How many ranks each host gets. Ranks are placed in blocks, in the order of the list.

use super::Host;

/// The numbers of ranks that the user asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Want {
    /// The number of ranks (`-n`).
    pub(crate) ranks: Option<usize>,
    /// The number of ranks on each host (`--ppn`).
    pub(crate) per_host: Option<usize>,
}

/// The ranks do not fit on the hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum PlaceError {
    #[error(
        "{ranks} ranks do not fit on {hosts} hosts with {per_host} ranks each (--ppn); \
         at most {most} ranks (-n) are accepted"
    )]
    PerHost {
        ranks: usize,
        hosts: usize,
        per_host: usize,
        most: usize,
    },
    #[error("host {host} accepts at most {most} ranks (max_slots), but --ppn asks for {per_host}")]
    TooManyOnHost {
        host: String,
        most: usize,
        per_host: usize,
    },
    #[error(
        "{ranks} ranks (-n) do not fit on the hosts, whose max_slots allow {most} ranks in total"
    )]
    MaxSlots { ranks: usize, most: usize },
}

/// Returns whether [`place`] needs the number of processors of hosts that have no slots.
pub(crate) fn needs_processors(hosts: &[Host], want: Want) -> bool {
    let without = hosts.iter().filter(|host| host.slots.is_none()).count();
    let spread = want.ranks.is_some() && without == hosts.len();
    without > 0 && want.per_host.is_none() && !spread
}

/// Returns the number of ranks of each host. `processors` has the number of each host's processors,
/// which counts as slots of a host without; it may be empty unless [`needs_processors`].
///
/// - With `--ppn` each host gets that many, until `-n` is reached.
/// - If no host has slots, `-n` ranks are spread evenly; the first hosts get one more.
/// - Otherwise hosts are filled in their order, up to their slots. What exceeds all slots is dealt
///   out one by one, up to `max_slots`.
pub(crate) fn place(
    hosts: &[Host],
    processors: &[usize],
    want: Want,
) -> Result<Vec<usize>, PlaceError> {
    let max = |host: &Host| host.max_slots.unwrap_or(usize::MAX);
    if let Some(per_host) = want.per_host {
        if let Some(host) = hosts.iter().find(|host| max(host) < per_host) {
            return Err(PlaceError::TooManyOnHost {
                host: host.name.clone(),
                most: max(host),
                per_host,
            });
        }
        let most = per_host.saturating_mul(hosts.len());
        let ranks = want.ranks.unwrap_or(most);
        if ranks > most {
            return Err(PlaceError::PerHost {
                ranks,
                hosts: hosts.len(),
                per_host,
                most,
            });
        }
        let mut left = ranks;
        return Ok(hosts
            .iter()
            .map(|_| {
                let count = left.min(per_host);
                left -= count;
                count
            })
            .collect());
    }
    let known = |at: usize, host: &Host| {
        let processors = processors.get(at).copied().unwrap_or(0);
        host.slots.unwrap_or(processors.max(1)).min(max(host))
    };
    let even = hosts.iter().all(|host| host.slots.is_none()) && want.ranks.is_some();
    let slots: Vec<usize> = match even {
        true => vec![0; hosts.len()],
        false => (0..).zip(hosts).map(|(at, host)| known(at, host)).collect(),
    };
    let mut left = want.ranks.unwrap_or_else(|| slots.iter().sum());
    let ranks = left;
    let mut counts: Vec<usize> = slots
        .iter()
        .map(|slots| {
            let count = left.min(*slots);
            left -= count;
            count
        })
        .collect();
    while left > 0 {
        let open: Vec<usize> = (0..hosts.len())
            .filter(|&at| counts[at] < max(&hosts[at]))
            .collect();
        if open.is_empty() {
            let most = counts.iter().sum();
            return Err(PlaceError::MaxSlots { ranks, most });
        }
        // Deal out as many full rounds as all open hosts accept.
        let room = open.iter().map(|&at| max(&hosts[at]) - counts[at]).min();
        let rounds = (left / open.len()).min(room.unwrap_or(0)).max(1);
        for at in open {
            let count = rounds.min(left);
            counts[at] += count;
            left -= count;
        }
    }
    Ok(counts)
}

/// Returns the placement in the notation of `PMI_process_mapping`, for hosts with these numbers of
/// ranks. Hosts without ranks do not count.
pub(crate) fn mapping(counts: &[usize]) -> String {
    let counts: Vec<usize> = counts.iter().copied().filter(|count| *count > 0).collect();
    let mut text = "(vector".to_owned();
    let mut first = 0;
    for block in counts.chunk_by(|one, next| one == next) {
        text += &format!(",({first},{},{})", block.len(), block[0]);
        first += block.len();
    }
    text + ")"
}

/// Returns a warning if hosts have more ranks than slots, or more than processors if the list gives
/// them no slots.
pub(crate) fn oversubscribed(
    hosts: &[Host],
    processors: &[usize],
    counts: &[usize],
) -> Option<String> {
    let all = hosts.iter().zip(processors).zip(counts);
    let mut over = all.filter(|((host, processors), count)| {
        let slots = host.slots.unwrap_or(**processors);
        **count > slots
    });
    let ((host, processors), count) = over.next()?;
    let many = |number, what| match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    };
    let what = match host.slots {
        Some(slots) => format!("in {}", many(slots, "slot")),
        None => format!("on {}", many(*processors, "processor")),
    };
    let others = match over.count() {
        0 => String::new(),
        1 => " (and 1 other host is oversubscribed)".to_owned(),
        more => format!(" (and {more} other hosts are oversubscribed)"),
    };
    Some(format!(
        "host {} runs {count} ranks {what}{others}",
        host.name
    ))
}
