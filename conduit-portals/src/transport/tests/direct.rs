//! Tests of direct access: which entries are advertised, which operations use direct access, and
//! how entries are withdrawn.

use conduit_core::ni::{
    Ack, EqId, Get, MatchEntry, MdId, MeEvents, MeId, Ni, NiError, Put, Region, Submit, Unlink,
};
use conduit_core::threads::Seq;

use super::{Disorder, End, Fabric, PT, events, job_on, over, put_to_1};
use crate::transport::fragment::Failure;

const BYTES: usize = 1 << 16;

/// A job in which rank 0 accesses an exportable entry of rank 1. The entry covers a whole region.
struct Job {
    fabric: Fabric,
    ends: Vec<End<Seq>>,
    eq: EqId,
    md: MdId,
    region: Region,
    me: MeId,
    // Declared after the ends, which access this memory, so that the ends are dropped first.
    memory: Vec<u8>,
}

fn exportable(region: &Region) -> MatchEntry {
    MatchEntry {
        events: MeEvents::LINK,
        ignore_bits: !1,
        ..over(region)
    }
}

fn direct() -> Disorder {
    Disorder {
        direct: true,
        ..Disorder::default()
    }
}

impl Job {
    fn new() -> Self {
        let (fabric, ends) = job_on::<Seq>(3, direct());
        let region = ends[1].region_create(BYTES).unwrap();
        ends[1].pt_open(PT, None).unwrap();
        let me = ends[1].me_append(PT, exportable(&region)).unwrap();
        let mut memory: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
        let eq = ends[0].eq_create(16).unwrap();
        // SAFETY: the memory lives as long as the ends.
        let md = unsafe { ends[0].md_bind(memory.as_mut_ptr(), BYTES, eq) }.unwrap();
        Self {
            fabric,
            ends,
            eq,
            md,
            region,
            me,
            memory,
        }
    }

    fn put(&self) -> Put {
        Put {
            local_offset: 1000,
            ..put_to_1(self.md, 3000)
        }
    }

    fn get(&self) -> Get {
        Get {
            md: self.md,
            local_offset: 10_000,
            length: 500,
            target: 1,
            index: PT,
            match_bits: 0,
            remote_offset: 20_000,
            token: 2,
        }
    }

    fn submit(&self, put: &Put) {
        // SAFETY: the source is valid until the job is dropped, and nothing writes it meanwhile.
        assert_eq!(unsafe { self.ends[0].put(put) }, Ok(Submit::Posted));
    }

    fn submit_get(&self, get: &Get) {
        // SAFETY: the destination is read only after the get has ended.
        assert_eq!(unsafe { self.ends[0].get(get) }, Ok(Submit::Posted));
    }

    fn turns(&self) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..4 {
            self.ends[1].progress();
            all.extend(events(&self.ends[0], self.eq));
        }
        all
    }

    fn end_of(&self, put: &Put) -> String {
        self.submit(put);
        self.turns().concat()
    }

    /// Returns the numbers of direct operations and of advertisements.
    fn counts(&self) -> (u64, u64) {
        (
            self.ends[0].counters(|counters, _| counters.direct),
            self.ends[1].counters(|counters, _| counters.advertised),
        )
    }

    fn there(&self) -> &[u8] {
        // SAFETY: the bytes are those of the region, and are not written now.
        unsafe { std::slice::from_raw_parts(self.region.base, BYTES) }
    }
}

const DONE: &str = "Ack { token: 1, outcome: Done, length: 3000 }";

#[test]
fn the_second_goes_directly() {
    let job = Job::new();
    assert_eq!(job.end_of(&job.put()), DONE);
    assert_eq!(
        job.counts(),
        (0, 1),
        "a message, and an advertisement with its response"
    );
    let second = Put {
        remote_offset: 20_000,
        local_offset: 5000,
        match_bits: 6,
        ..job.put()
    };
    assert_eq!(job.end_of(&second), DONE);
    assert_eq!(job.counts(), (1, 1));
    assert_eq!(job.there()[..3000], job.memory[1000..4000]);
    assert_eq!(job.there()[20_000..23_000], job.memory[5000..8000]);
    let local = Put {
        ack: Ack::Local,
        ..job.put()
    };
    assert_eq!(job.end_of(&local), "Send { token: 1 }");
    job.submit_get(&job.get());
    assert_eq!(
        job.turns(),
        ["Reply { token: 2, outcome: Done, length: 500, value: 0 }"]
    );
    assert_eq!(job.memory[10_000..10_500], job.memory[5000..5500]);
    assert_eq!(job.counts(), (3, 1));
    assert_eq!(job.ends[0].md_release(job.md), Ok(Unlink::Done));
}

#[test]
fn operations_without_bytes_do_not_reach_the_network() {
    let job = Job::new();
    job.end_of(&job.put());
    // The offset is the end of the entry, where no byte fits.
    let nothing = Put {
        length: 0,
        remote_offset: BYTES as u64,
        ..job.put()
    };
    assert_eq!(
        job.end_of(&nothing),
        "Ack { token: 1, outcome: Done, length: 0 }"
    );
    job.submit_get(&Get {
        length: 0,
        ..job.get()
    });
    assert_eq!(
        job.turns(),
        ["Reply { token: 2, outcome: Done, length: 0, value: 0 }"]
    );
    assert_eq!(job.counts(), (2, 1));
}

#[test]
fn what_does_not_fit_goes_by_message() {
    let job = Job::new();
    job.end_of(&job.put());
    let outside = Put {
        remote_offset: BYTES as u64,
        ..job.put()
    };
    let far = Put {
        remote_offset: u64::MAX - 1,
        ..job.put()
    };
    let cut = Put {
        remote_offset: BYTES as u64 - 100,
        ..job.put()
    };
    let unmatched = Put {
        match_bits: 1,
        ..job.put()
    };
    for (put, outcome, length) in [
        (outside, "OutOfRange", 0),
        (far, "OutOfRange", 0),
        (cut, "Done", 100),
        (unmatched, "NoMatch", 0),
    ] {
        let end = format!("Ack {{ token: 1, outcome: {outcome}, length: {length} }}");
        assert_eq!(job.end_of(&put), end);
    }
    let elsewhere = Put {
        target: 2,
        ..job.put()
    };
    job.submit(&elsewhere);
    assert_eq!(job.counts(), (0, 1));
}

#[test]
fn an_entry_is_withdrawn_when_nothing_is_under_way() {
    let job = Job::new();
    let (owner, user) = (&job.ends[1], &job.ends[0]);
    job.end_of(&job.put());
    let late = Put {
        remote_offset: 30_000,
        ..job.put()
    };
    job.submit(&late);
    assert_eq!(owner.me_unlink(job.me), Ok(Unlink::InUse));
    owner.progress();
    // The put is now complete and the withdrawal has arrived, but the end of the put is reported
    // later.
    user.progress();
    for _ in 0..3 {
        owner.progress();
        assert_eq!(owner.me_unlink(job.me), Ok(Unlink::InUse));
    }
    assert_eq!(job.there()[30_000..33_000], job.memory[1000..4000]);
    // The entry still takes messages.
    job.submit(&job.put());
    assert_eq!(job.counts(), (1, 1));
    assert_eq!(job.turns(), [DONE, DONE]);
    assert_eq!(owner.me_unlink(job.me), Ok(Unlink::Done));
    assert!(owner.me_unlink(job.me).is_err());
    assert_eq!(
        job.end_of(&job.put()),
        "Ack { token: 1, outcome: NoMatch, length: 0 }"
    );
    assert_eq!(job.counts(), (1, 1));
    // Links another entry in its place.
    owner.me_append(PT, exportable(&job.region)).unwrap();
    for _ in 0..2 {
        assert_eq!(job.end_of(&job.put()), DONE);
    }
    assert_eq!(job.counts(), (2, 2));
}

#[test]
fn an_entry_behind_another_is_not_advertised() {
    let job = Job::new();
    let second = MatchEntry {
        match_bits: 1,
        ..exportable(&job.region)
    };
    job.ends[1].me_append(PT, second).unwrap();
    let put = Put {
        match_bits: 1,
        ..job.put()
    };
    for _ in 0..2 {
        assert_eq!(job.end_of(&put), DONE);
    }
    assert_eq!(job.counts(), (0, 0));
}

#[test]
fn a_peer_that_fails_or_leaves_is_no_importer() {
    for leaves in [false, true] {
        let mut job = Job::new();
        job.end_of(&job.put());
        assert_eq!(job.ends[1].me_unlink(job.me), Ok(Unlink::InUse));
        match leaves {
            true => drop(job.ends.remove(0)),
            false => job.fabric.fail(0, Failure::Silent(1)),
        }
        let owner = &job.ends[usize::from(!leaves)];
        owner.progress();
        assert_eq!(owner.me_unlink(job.me), Ok(Unlink::Done));
        assert_eq!(owner.bad_peer(), None);
    }
}

#[test]
fn an_owner_that_fails_is_reported() {
    let job = Job::new();
    job.end_of(&job.put());
    job.submit(&job.put());
    assert_eq!(job.ends[0].md_release(job.md), Ok(Unlink::InUse));
    job.fabric.fail(1, Failure::Silent(1));
    assert!(events(&job.ends[0], job.eq).is_empty());
    assert_eq!(job.ends[0].failed_peer(), Some(1));
    assert_eq!(job.ends[0].md_release(job.md), Ok(Unlink::Done));
    // SAFETY: the call is refused, so it accesses no memory.
    let refused = unsafe { job.ends[0].put(&job.put()) }.unwrap_err();
    assert!(matches!(refused, NiError::NoSuchObject { .. }), "{refused}");
    let mut memory = [0; 8];
    // SAFETY: the call is refused, so it accesses no memory.
    unsafe {
        let md = job.ends[0].md_bind(memory.as_mut_ptr(), 8, job.eq).unwrap();
        let put = Put {
            md,
            local_offset: 0,
            length: 8,
            ..job.put()
        };
        let refused = job.ends[0].put(&put).unwrap_err();
        assert!(
            matches!(refused, NiError::PeerFailed { rank: 1, .. }),
            "{refused}"
        );
    }
}

#[test]
fn the_memory_of_an_owner_that_has_left_is_not_accessed() {
    let mut job = Job::new();
    job.end_of(&job.put());
    drop(job.ends.remove(1));
    job.ends[0].progress();
    job.submit(&job.put());
    assert!(events(&job.ends[0], job.eq).is_empty());
    assert_eq!(job.ends[0].counters(|counters, _| counters.direct), 0);
    assert_eq!(job.ends[0].failed_peer(), None);
}

/// Checks that the caller prepares the memory before it is exposed to the device, which may pin its
/// pages.
#[test]
fn a_region_is_prepared_before_it_is_exposed() {
    let disorder = Disorder {
        exposed_bytes: BYTES,
        ..direct()
    };
    let (_, ends) = job_on::<Seq>(1, disorder);
    let mut prepared = Vec::new();
    let mut prepare = |base: *mut u8, len| {
        // SAFETY: the byte is the first of a new region, whose address is not known elsewhere.
        unsafe { base.write(7) };
        prepared.push((base, len));
    };
    ends[0]
        .region_create_prepared(2 * BYTES, &mut prepare)
        .unwrap_err();
    let region = ends[0].region_create_prepared(BYTES, &mut prepare).unwrap();
    assert_eq!(prepared[1], (region.base, BYTES));
    // SAFETY: the byte is the first of a new region, whose address is not known elsewhere.
    assert_eq!(unsafe { region.base.read() }, 7);
    // The larger region was prepared before the attempt to expose it failed.
    assert_eq!(prepared[0].1, 2 * BYTES);
}

#[test]
fn memory_that_cannot_be_exposed_is_refused_as_a_region() {
    let disorder = Disorder {
        exposed_bytes: BYTES,
        ..direct()
    };
    let (_, ends) = job_on::<Seq>(1, disorder);
    let error = ends[0].region_create(2 * BYTES).unwrap_err();
    assert_eq!(
        error.to_string(),
        "region_create on rank 0: exposing 131072 bytes to peers: 0 of 65536 bytes are exposed"
    );
    let region = ends[0].region_create(BYTES).unwrap();
    assert_eq!(region.id.0, 0);
    // SAFETY: the call is refused, so it accesses no memory.
    let error = unsafe { ends[0].region_adopt(region.base, BYTES) }.unwrap_err();
    assert!(error.to_string().starts_with("region_adopt on rank 0: "));
}
