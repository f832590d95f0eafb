//! Regions, and windows onto the regions of peers.

use conduit_core::ni::{Capabilities, MatchEntry, MeMemory, Ni, NiError, RegionId};

use super::entry::{get_from, managed, over, pattern, piece, put_to};
use super::{Applies, Peek, World, theme};

theme! { "regions":
    regions_are_zeroed_whole_pages(2)
        "A region is zeroed and page-aligned, its length is rounded up to whole pages, and regions are numbered from 0.";
    regions_do_not_overlap(1)
        "Regions don't overlap.";
    more_regions_than_the_limit_are_refused(1)
        "At most limits().regions regions can be created.";
    more_bytes_than_the_limit_are_refused(1)
        "At most limits().region_bytes bytes can be allocated, and after a refusal the remaining bytes are usable.";
    entry_must_lie_in_its_region(1)
        "An entry's memory must lie within an existing region.";
    entries_over_several_regions(2)
        "An entry gives access to the region that it names.";
    own_window(1)
        "A rank's window onto its own region shows the same memory.";
    window_onto_nothing(2)
        "There is no window onto a region that doesn't exist.";
    peers_stores_are_seen_after_a_message(2)
        "A peer's stores through a window before a message are visible after it, in both directions.";
    window_and_operations_see_the_same(2)
        "Puts, gets and a window access the same bytes of a region.";
    windows_onto_all_peers(4)
        "Each peer's regions have their own windows.";
    without_the_capability_no_window(2)
        "A network that doesn't offer WINDOW for a peer returns no window onto it.";
}

const PAGE: usize = 4096;

fn regions_are_zeroed_whole_pages<N: Ni>(w: &mut World<N>) {
    for rank in 0..2 {
        for (id, len) in [(0, 1), (1, PAGE), (2, PAGE + 1), (3, 100_000)] {
            let region = w.region(rank, len);
            assert_eq!(
                region.id,
                RegionId(id),
                "regions must be numbered in order of creation"
            );
            assert!(region.base.addr().is_multiple_of(PAGE));
            assert!(region.len >= len && region.len.is_multiple_of(PAGE));
            assert!(region.bytes().iter().all(|b| *b == 0), "zeroed");
            region.poke(region.len - 1, &[1]);
        }
    }
}

fn regions_do_not_overlap<N: Ni>(w: &mut World<N>) {
    let regions: Vec<_> = (0..3).map(|_| w.region(0, 2 * PAGE)).collect();
    for (i, region) in regions.iter().enumerate() {
        region.poke(0, &vec![i as u8 + 1; region.len]);
    }
    for (i, region) in regions.iter().enumerate() {
        assert!(region.bytes().iter().all(|b| *b == i as u8 + 1));
    }
}

fn more_regions_than_the_limit_are_refused<N: Ni>(w: &mut World<N>) -> Applies {
    let limit = w.net(0).limits().regions;
    if limit > 4096 || limit as usize * PAGE > w.net(0).limits().region_bytes {
        return Applies::No(format!("this case doesn't create {limit} regions"));
    }
    for _ in 0..limit {
        w.region(0, 1);
    }
    let answer = w.net(0).region_create(1);
    assert!(
        matches!(answer, Err(NiError::Exhausted { limit: l, .. }) if l == u64::from(limit)),
        "{answer:?}"
    );
    Applies::Yes
}

fn more_bytes_than_the_limit_are_refused<N: Ni>(w: &mut World<N>) -> Applies {
    let limit = w.net(0).limits().region_bytes;
    let Some(beyond) = limit.checked_add(1) else {
        return Applies::No("region_bytes has no bound".to_owned());
    };
    for len in [beyond, usize::MAX - PAGE, usize::MAX] {
        let answer = w.net(0).region_create(len);
        assert!(
            matches!(
                answer,
                Err(NiError::OverLimit { .. } | NiError::Exhausted { .. })
            ),
            "{len} bytes: {answer:?}"
        );
    }
    assert_eq!(w.region(0, PAGE).id, RegionId(0), "no effects");
    let rest = w.net(0).region_create(limit);
    assert!(rest.is_err(), "one page is already allocated: {rest:?}");
    Applies::Yes
}

fn entry_must_lie_in_its_region<N: Ni>(w: &mut World<N>) {
    w.listen(0);
    let region = w.region(0, PAGE);
    let len = region.len;
    for (offset, bytes) in [
        (0, len + 1),
        (1, len),
        (len, 1),
        (len + 1, 0),
        (usize::MAX, 2),
        (2, usize::MAX),
    ] {
        let answer = w
            .net(0)
            .me_append(super::entry::PT, piece(&region, offset, bytes));
        assert!(
            matches!(answer, Err(NiError::OverLimit { .. })),
            "{bytes} bytes at {offset}: {answer:?}"
        );
    }
    let elsewhere = MatchEntry {
        memory: MeMemory::Region {
            region: RegionId(1),
            offset: 0,
            len: 1,
        },
        ..over(&region)
    };
    let answer = w.net(0).me_append(super::entry::PT, elsewhere);
    assert!(
        matches!(answer, Err(NiError::NoSuchObject { .. })),
        "{answer:?}"
    );
    w.append(0, piece(&region, 0, len));
    w.append(0, piece(&region, len - 1, 1));
}

fn entries_over_several_regions<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let regions: Vec<_> = (0..3).map(|_| w.region(1, PAGE)).collect();
    for (i, region) in regions.iter().enumerate() {
        w.append(
            1,
            MatchEntry {
                match_bits: i as u64,
                ..over(region)
            },
        );
    }
    for i in 0..3 {
        let md = w.source(0, &[i as u8 + 1; PAGE]);
        let put = conduit_core::ni::Put {
            match_bits: i,
            ..put_to(1, &md)
        };
        assert_eq!(w.put_and_wait(&md, &put).length, PAGE);
    }
    w.wait_puts(1, 3);
    for (i, region) in regions.iter().enumerate() {
        assert!(region.bytes()[..PAGE].iter().all(|b| *b == i as u8 + 1));
    }
}

fn has_windows<N: Ni>(w: &World<N>, from: u32, to: u32) -> Result<(), Applies> {
    let reach = w.net(from).reach(to);
    if reach.capabilities.contains(Capabilities::WINDOW) {
        Ok(())
    } else {
        Err(Applies::No("no WINDOW".to_owned()))
    }
}

fn own_window<N: Ni>(w: &mut World<N>) -> Applies {
    if let Err(no) = has_windows(w, 0, 0) {
        return no;
    }
    let region = w.region(0, 2 * PAGE);
    let window = w.net(0).window(0, region.id).expect("own window");
    assert_eq!(window.len, region.len);
    region.poke(100, b"here");
    assert_eq!(window.peek(100, 4), b"here");
    window.poke(PAGE + 5, b"there");
    assert_eq!(region.peek(PAGE + 5, 5), b"there");
    Applies::Yes
}

fn window_onto_nothing<N: Ni>(w: &mut World<N>) {
    w.region(1, PAGE);
    for id in [1, 2, 1000, u32::MAX] {
        for peer in [0, 1] {
            assert_eq!(w.net(0).window(peer, RegionId(id)), None, "region {id}");
        }
    }
    for peer in [2, 3, u32::MAX] {
        assert_eq!(w.net(0).window(peer, RegionId(0)), None, "rank {peer}");
    }
}

fn peers_stores_are_seen_after_a_message<N: Ni>(w: &mut World<N>) -> Applies {
    if let Err(no) = has_windows(w, 0, 1).and_then(|()| has_windows(w, 1, 0)) {
        return no;
    }
    let regions = [w.region(0, PAGE), w.region(1, PAGE)];
    let mds = [w.source(0, b"look"), w.source(1, b"look")];
    for rank in 0..2 {
        w.listen(rank);
        w.append(rank, managed(8192, 64));
    }
    for round in 1..40_u8 {
        for (from, md) in mds.iter().enumerate() {
            let to = 1 - from;
            let window = w.net(from as u32).window(to as u32, regions[to].id);
            let window = window.expect("the window of a region that existed before the message");
            window.poke(usize::from(round) * 8, &[round; 8]);
            w.put_and_wait(md, &put_to(to as u32, md));
            w.wait_puts(to as u32, usize::from(round));
            assert_eq!(regions[to].peek(usize::from(round) * 8, 8), [round; 8]);
        }
    }
    Applies::Yes
}

fn window_and_operations_see_the_same<N: Ni>(w: &mut World<N>) -> Applies {
    if let Err(no) = has_windows(w, 0, 1) {
        return no;
    }
    w.listen(1);
    let region = w.region(1, 65536);
    w.append(1, over(&region));
    let window = w.net(0).window(1, region.id).expect("window");
    assert_eq!(window.len, region.len);
    let bytes = pattern(1, 30_000);
    let md = w.source(0, &bytes);
    w.put_and_wait(&md, &put_to(1, &md));
    w.wait_puts(1, 1);
    assert!(
        window.peek(0, 30_000) == bytes,
        "the window must show the put"
    );
    window.poke(7, b"stored through the window");
    let back = w.space(0, 32);
    w.get_and_wait(&back, &get_from(1, &back));
    assert_eq!(back.peek(7, 25), b"stored through the window");
    Applies::Yes
}

fn windows_onto_all_peers<N: Ni>(w: &mut World<N>) -> Applies {
    for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))) {
        if let Err(no) = has_windows(w, from, to) {
            return no;
        }
    }
    let regions: Vec<_> = (0..4)
        .map(|rank| (w.region(rank, PAGE), w.region(rank, 3 * PAGE)))
        .collect();
    for rank in 0..4_u8 {
        for peer in 0..4_u32 {
            let net = w.net(rank.into());
            let small = net.window(peer, RegionId(0)).expect("first region");
            let large = net.window(peer, RegionId(1)).expect("second region");
            small.poke(usize::from(rank), &[10 * rank + peer as u8]);
            large.poke(
                2 * PAGE + usize::from(rank),
                &[100 + 10 * rank + peer as u8],
            );
        }
    }
    for (peer, (small, large)) in regions.iter().enumerate() {
        let expected: Vec<_> = (0..4).map(|rank| 10 * rank + peer as u8).collect();
        assert_eq!(small.peek(0, 4), expected);
        let expected: Vec<_> = expected.iter().map(|value| 100 + value).collect();
        assert_eq!(large.peek(2 * PAGE, 4), expected);
    }
    Applies::Yes
}

fn without_the_capability_no_window<N: Ni>(w: &mut World<N>) -> Applies {
    if has_windows(w, 0, 1).is_ok() {
        return Applies::No("the network has windows".to_owned());
    }
    let region = w.region(1, PAGE);
    assert_eq!(w.net(0).window(1, region.id), None);
    Applies::Yes
}
