//! Compares the list with a model that searches a vector from the start, and tests each rule.

use proptest::prelude::*;

use super::*;

fn entry(memory: Memory) -> Entry {
    Entry {
        memory,
        match_bits: 0,
        ignore_bits: 0,
        source: None,
        options: MeOptions::PUT | MeOptions::GET | MeOptions::ATOMIC,
        events: MeEvents::all(),
        tag: 0,
    }
}

fn incoming(kind: MessageKind, offset: u64, length: usize) -> Incoming {
    Incoming {
        kind,
        source: 0,
        match_bits: 0,
        offset,
        length,
    }
}

const REGION: Memory = Memory::Region {
    base: 1000,
    len: 100,
};

#[test]
fn an_offset_outside_is_reported_and_uses_nothing_up() {
    let mut list = MatchList::new();
    let mut once = entry(REGION);
    once.options |= MeOptions::USE_ONCE;
    list.append(once).unwrap();
    for (offset, length) in [(100, 1), (101, 0), (u64::MAX, 1)] {
        let hit = list
            .accept(&incoming(MessageKind::Put, offset, length))
            .unwrap();
        assert_eq!((hit.outcome, hit.unlinked), (Outcome::OutOfRange, false));
    }
    let hit = list.accept(&incoming(MessageKind::Put, 100, 0)).unwrap();
    assert_eq!(
        (hit.outcome, hit.location),
        (Outcome::Done, Location::Region(1100))
    );
    assert!(hit.unlinked);
    assert!(list.accept(&incoming(MessageKind::Put, 0, 0)).is_none());
}

#[test]
fn of_two_lists_with_a_claim_one_takes_a_message() {
    let (mut one, mut other, claim) = (MatchList::new(), MatchList::new(), Claim::default());
    let mut once = entry(REGION);
    once.options |= MeOptions::USE_ONCE;
    for list in [&mut one, &mut other] {
        list.append_claimed(once, Some(claim.clone())).unwrap();
        list.append(entry(Memory::Nothing)).unwrap();
    }
    // A message outside of the entry must not take the claim.
    let outside = one.accept(&incoming(MessageKind::Put, 101, 0)).unwrap();
    assert_eq!(outside.outcome, Outcome::OutOfRange);
    assert!(!claim.is_taken());
    let hit = other.accept(&incoming(MessageKind::Put, 0, 0)).unwrap();
    assert_eq!((hit.location, hit.unlinked), (Location::Region(1000), true));
    for offset in [0, 101] {
        let hit = one.accept(&incoming(MessageKind::Put, offset, 0)).unwrap();
        assert_eq!((hit.location, hit.unlinked), (Location::Nothing, false));
    }
}

#[test]
fn a_message_that_does_not_fit_passes_or_is_truncated() {
    let mut list = MatchList::new();
    list.append(entry(REGION)).unwrap();
    let mut cutting = entry(REGION);
    cutting.tag = 1;
    cutting.options |= MeOptions::TRUNCATE;
    let cutting = list.append(cutting).unwrap();
    let hit = list.accept(&incoming(MessageKind::Get, 90, 10)).unwrap();
    assert_eq!((hit.tag, hit.length), (0, 10));
    let hit = list.accept(&incoming(MessageKind::Get, 90, 11)).unwrap();
    assert_eq!((hit.tag, hit.length), (1, 10));
    assert!(list.accept(&incoming(MessageKind::Atomic, 96, 8)).is_none());
    assert!(list.unlink(cutting));
    assert!(list.accept(&incoming(MessageKind::Get, 90, 11)).is_none());
    assert!(!list.unlink(cutting));
}

#[test]
fn a_managed_entry_fills_up_by_cache_lines() {
    let mut list = MatchList::new();
    list.append(entry(Memory::Managed {
        bytes: 256,
        min_free: 64,
    }))
    .unwrap();
    for (length, offset, unlinked) in [
        (1, 0, false),
        (0, 64, false),
        (65, 64, false),
        (3, 192, true),
    ] {
        let hit = list
            .accept(&incoming(MessageKind::Put, 7777, length))
            .unwrap();
        assert_eq!((hit.offset, hit.length), (offset, length));
        assert_eq!((hit.location, hit.unlinked), (Location::Managed, unlinked));
    }
    assert!(list.accept(&incoming(MessageKind::Put, 0, 0)).is_none());
}

#[test]
fn nothing_takes_headers_only() {
    let mut list = MatchList::new();
    list.append(entry(Memory::Nothing)).unwrap();
    assert!(list.accept(&incoming(MessageKind::Put, 0, 1)).is_none());
    assert!(list.accept(&incoming(MessageKind::Atomic, 0, 8)).is_none());
    let hit = list.accept(&incoming(MessageKind::Put, 12345, 0)).unwrap();
    assert_eq!(
        (hit.outcome, hit.location),
        (Outcome::Done, Location::Nothing)
    );
    let mut catch_basin = entry(Memory::Nothing);
    catch_basin.options |= MeOptions::TRUNCATE;
    list.append(catch_basin).unwrap();
    let hit = list.accept(&incoming(MessageKind::Put, 0, 1)).unwrap();
    assert_eq!((hit.length, hit.outcome), (0, Outcome::Done));
}

#[test]
fn the_list_has_an_end() {
    let mut list = MatchList::new();
    let ids: Vec<_> = (0..MAX_ENTRIES)
        .map(|_| list.append(entry(REGION)).unwrap())
        .collect();
    assert!(list.append(entry(REGION)).is_none());
    assert!(list.unlink(ids[17]));
    let again = list.append(entry(REGION)).unwrap();
    assert_eq!(again.slot, ids[17].slot);
    assert!(!list.contains(ids[17]));
    assert!(list.contains(again));
}

/// A reference implementation of the contract that ignores speed.
#[derive(Debug, Default)]
struct Model(Vec<(u64, Entry, usize)>);

impl Model {
    /// Returns the tag, outcome, location, offset and length of a match, and whether its entry was
    /// unlinked.
    fn accept(&mut self, m: &Incoming) -> Option<(u64, Outcome, Location, u64, usize, bool)> {
        for i in 0..self.0.len() {
            let (_, e, fill) = self.0[i];
            let allowed = match m.kind {
                MessageKind::Put => e.options.contains(MeOptions::PUT),
                MessageKind::Get => {
                    e.options.contains(MeOptions::GET)
                        && !matches!(e.memory, Memory::Managed { .. })
                }
                MessageKind::Atomic => {
                    e.options.contains(MeOptions::ATOMIC)
                        && matches!(e.memory, Memory::Region { .. } | Memory::Process { .. })
                }
            };
            if !allowed
                || (e.match_bits | e.ignore_bits) != (m.match_bits | e.ignore_bits)
                || !(e.source.is_none() || e.source == Some(m.source))
            {
                continue;
            }
            let (room, offset, location) = match e.memory {
                Memory::Managed { bytes, .. } => (bytes - fill, fill as u64, Location::Managed),
                Memory::Region { base, len } => {
                    let o = m.offset as usize;
                    if o > len || (o == len && m.length > 0) {
                        return Some((
                            e.tag,
                            Outcome::OutOfRange,
                            Location::Nothing,
                            m.offset,
                            0,
                            false,
                        ));
                    }
                    (len - o, m.offset, Location::Region(base + o))
                }
                Memory::Process { len, .. }
                    if m.offset
                        .checked_add(m.length as u64)
                        .is_none_or(|end| end > len) =>
                {
                    return Some((
                        e.tag,
                        Outcome::OutOfRange,
                        Location::Nothing,
                        m.offset,
                        0,
                        false,
                    ));
                }
                Memory::Process { base, .. } => {
                    (m.length, m.offset, Location::Process(base + m.offset))
                }
                Memory::Nothing => (0, m.offset, Location::Nothing),
            };
            let cut = e.options.contains(MeOptions::TRUNCATE) && m.kind != MessageKind::Atomic;
            if m.length > room && !cut {
                continue;
            }
            let length = m.length.min(room);
            let mut gone = e.options.contains(MeOptions::USE_ONCE);
            if let Memory::Managed { bytes, min_free } = e.memory {
                self.0[i].2 = (fill + length.div_ceil(64) * 64).min(bytes);
                gone |= bytes - self.0[i].2 < min_free;
            }
            if gone {
                self.0.remove(i);
            }
            return Some((e.tag, Outcome::Done, location, offset, length, gone));
        }
        None
    }
}

#[derive(Debug, Clone)]
enum Step {
    Append(Entry),
    Unlink(prop::sample::Index),
    /// A message, and whether it is tried as a run instead of on its own.
    Accept(Incoming, bool),
}

fn memory() -> impl Strategy<Value = Memory> {
    prop_oneof![
        (64_usize..400, 0_usize..64)
            .prop_map(|(bytes, min_free)| Memory::Managed { bytes, min_free }),
        (0_usize..10, 0_usize..100).prop_map(|(base, len)| Memory::Region { base, len }),
        (0_u64..10, 0_u64..100).prop_map(|(base, len)| Memory::Process { base, len }),
        Just(Memory::Process {
            base: 0,
            len: u64::MAX
        }),
        Just(Memory::Nothing),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let entry = (
        memory(),
        0_u64..4,
        0_u64..4,
        prop::option::of(0_u32..2),
        0_u8..64,
    )
        .prop_map(|(memory, match_bits, ignore_bits, source, options)| Entry {
            memory,
            match_bits,
            ignore_bits,
            source,
            options: MeOptions::from_bits_truncate(options),
            events: MeEvents::all(),
            tag: 0,
        });
    let kind = prop_oneof![
        Just(MessageKind::Put),
        Just(MessageKind::Get),
        Just(MessageKind::Atomic)
    ];
    let offset = prop_oneof![9 => 0_u64..120, 1 => u64::MAX - 119..=u64::MAX];
    let incoming = (kind, 0_u32..2, 0_u64..4, offset, 0_usize..120).prop_map(
        |(kind, source, match_bits, offset, length)| Incoming {
            kind,
            source,
            match_bits,
            offset,
            length,
        },
    );
    prop_oneof![
        2 => entry.prop_map(Step::Append),
        1 => any::<prop::sample::Index>().prop_map(Step::Unlink),
        6 => (incoming, any::<bool>()).prop_map(|(incoming, single)| Step::Accept(incoming, single)),
    ]
}

proptest! {
    #[test]
    fn finds_what_a_search_from_the_start_finds(steps in prop::collection::vec(step(), 1..120)) {
        let mut list = MatchList::new();
        let mut model = Model::default();
        let mut ids = Vec::new();
        for (i, step) in steps.into_iter().enumerate() {
            match step {
                Step::Append(mut entry) => {
                    entry.tag = i as u64;
                    ids.push((i as u64, list.append(entry).unwrap()));
                    // The overflow list is the tail; a new entry is placed behind all entries of
                    // its kind.
                    let overflow = |e: &Entry| e.options.contains(MeOptions::OVERFLOW);
                    let behind = model.0.iter().position(|e| overflow(&e.1));
                    let at = behind.filter(|_| !overflow(&entry));
                    model.0.insert(at.unwrap_or(model.0.len()), (i as u64, entry, 0));
                }
                Step::Unlink(index) if !ids.is_empty() => {
                    let (tag, id) = *index.get(&ids);
                    let before = model.0.len();
                    model.0.retain(|e| e.0 != tag);
                    prop_assert_eq!(list.unlink(id), model.0.len() < before);
                }
                Step::Unlink(_) => {}
                Step::Accept(incoming, single) => {
                    // Where a fast path takes the message, its result must equal that of the
                    // general path.
                    let (source, bits) = (incoming.source, incoming.match_bits);
                    let fast = match incoming.kind {
                        MessageKind::Put if single => list.accept_fast(source, bits, incoming.length),
                        _ => None,
                    };
                    if let Some(hit) = fast {
                        let done = (Outcome::Done, Location::Managed);
                        let hit = (hit.tag, done.0, done.1, hit.offset, incoming.length, false);
                        prop_assert_eq!(Some(hit), model.accept(&incoming));
                        continue;
                    }
                    let mut run = match incoming.kind {
                        MessageKind::Put if !single => list.begin_run(),
                        _ => None,
                    };
                    let quick = run.as_mut().and_then(|run| {
                        let right = run.source.is_none_or(|only| only == source);
                        if !right || !run.matches(bits) || run.room_for(1, incoming.length) == 0 {
                            return None;
                        }
                        let offset = run.offset();
                        run.charge(1, incoming.length);
                        Some((run.tag, offset))
                    });
                    let hit = match quick {
                        Some((tag, offset)) => {
                            list.end_run(&run.unwrap());
                            let location = Location::Managed;
                            Some((tag, Outcome::Done, location, offset, incoming.length, false))
                        }
                        None => list.accept(&incoming).map(|h| {
                            (h.tag, h.outcome, h.location, h.offset, h.length, h.unlinked)
                        }),
                    };
                    prop_assert_eq!(hit, model.accept(&incoming));
                }
            }
            for (tag, id) in &ids {
                prop_assert_eq!(list.contains(*id), model.0.iter().any(|e| e.0 == *tag));
            }
        }
    }
}
