//! Tests of peers that fail.

use conduit_core::ni::{Ack, MeMemory, Ni, NiError, Outcome, Put, Submit, Unlink};
use conduit_core::threads::Seq;

use super::{PT, entry, events, job};
use crate::transport::fragment::Failure;

#[test]
fn a_failed_peer_is_reported_and_its_operations_release_memory() {
    let (fabric, ends) = job::<Seq>(3);
    let eq = ends[0].eq_create(16).unwrap();
    let bytes = [1_u8; 5000];
    // SAFETY: the bytes live as long as the ends.
    let md = unsafe { ends[0].md_bind(bytes.as_ptr().cast_mut(), 5000, eq) }.unwrap();
    let put = Put {
        md,
        local_offset: 0,
        length: 5000,
        ack: Ack::Remote,
        target: 2,
        index: PT,
        match_bits: 0,
        remote_offset: 0,
        hdr_data: 0,
        token: 1,
    };
    // SAFETY: the source lives as long as the ends, and nothing writes it.
    assert_eq!(unsafe { ends[0].put(&put) }, Ok(Submit::Posted));
    assert_eq!(ends[0].md_release(md), Ok(Unlink::InUse));
    assert_eq!(ends[0].failed_peer(), None);
    fabric.fail(2, Failure::Silent(20_000));
    assert!(events(&ends[0], eq).is_empty());
    assert_eq!(ends[0].failed_peer(), Some(2));
    let said = ends[0].failure(2);
    assert!(said.contains("silent for 20000 ms"), "{said}");
    // SAFETY: the call is refused, so it accesses no memory.
    let refused = unsafe { ends[0].put(&put) }.unwrap_err();
    assert!(
        matches!(&refused, NiError::PeerFailed { operation: "put", rank: 2, reason } if *reason == said),
        "{refused}"
    );
    assert_eq!(ends[0].md_release(md), Ok(Unlink::Done));
}

#[test]
fn fragments_that_a_failed_peer_had_begun_are_dropped() {
    let (fabric, ends) = job::<Seq>(2);
    let eq = ends[1].eq_create(16).unwrap();
    ends[1].pt_open(PT, Some(eq)).unwrap();
    let region = ends[1].region_create(1 << 16).unwrap();
    let me = ends[1]
        .me_append(
            PT,
            entry(MeMemory::Region {
                region: region.id,
                offset: 0,
                len: region.len,
            }),
        )
        .unwrap();
    {
        use crate::transport::fragment::FragmentHandler;
        use crate::transport::wire::{Header, Put};
        let mut inner = ends[1].inner();
        let put = Put {
            index: PT.0,
            match_bits: 0,
            hdr_data: 0,
            offset: 8,
            operation: Some(5),
        };
        let header = Header::Put(put).encode(None);
        let id = inner.portals.begin(0, header.as_slice(), 5000).unwrap();
        inner.portals.place(id, 1000, &[3; 1000]);
        // Bytes beyond the end of the fragment are discarded.
        inner.portals.place(id, 4999, &[3; 1000]);
    }
    assert_eq!(ends[1].me_unlink(me), Ok(Unlink::InUse));
    fabric.fail(0, Failure::Silent(1));
    assert!(events(&ends[1], eq).is_empty());
    assert_eq!(ends[1].failed_peer(), Some(0));
    assert_eq!(ends[1].me_unlink(me), Ok(Unlink::Done));
    // SAFETY: the bytes are those of the region, and are not written now.
    let bytes = unsafe { std::slice::from_raw_parts(region.base, region.len) };
    assert_eq!(bytes.iter().filter(|byte| **byte == 3).count(), 1001);
    assert_eq!(
        (bytes[1007], bytes[1008], bytes[5007], bytes[5008]),
        (0, 3, 3, 0)
    );
}

#[test]
fn a_peer_that_has_left_has_not_failed() {
    let (fabric, mut ends) = job::<Seq>(2);
    let eq = ends[1].eq_create(16).unwrap();
    ends[1].pt_open(PT, Some(eq)).unwrap();
    let inject = conduit_core::ni::Inject {
        target: 1,
        index: PT,
        exchange: conduit_core::ni::Exchange::OneWay,
        match_bits: 0,
        hdr_data: 0,
        head: &[],
        body: &[],
    };
    assert_eq!(ends[0].inject(&inject), Ok(Submit::Posted));
    drop(ends.remove(0));
    assert!(events(&ends[0], eq).is_empty());
    fabric.fail(0, Failure::Silent(1));
    assert!(events(&ends[0], eq).is_empty());
    assert_eq!(ends[0].failed_peer(), None);
}

/// Checks that a peer that leaves alone while it owes a response is reported as failed, because the
/// response never arrives. If all ranks finish, no failure is reported.
#[test]
fn a_peer_that_leaves_alone_and_owes_a_response_has_failed() {
    for (ack, finishes, failed) in [
        (Ack::Local, false, None),
        (Ack::Remote, false, Some(0)),
        (Ack::Remote, true, None),
    ] {
        let (fabric, mut ends) = job::<Seq>(2);
        let eq = ends[1].eq_create(16).unwrap();
        let bytes = [1_u8; 5000];
        // SAFETY: the bytes live as long as the ends.
        let md = unsafe { ends[1].md_bind(bytes.as_ptr().cast_mut(), 5000, eq) }.unwrap();
        let put = Put {
            md,
            local_offset: 0,
            length: 5000,
            ack,
            target: 0,
            index: PT,
            match_bits: 0,
            remote_offset: 0,
            hdr_data: 0,
            token: 1,
        };
        // SAFETY: the source lives as long as the ends, and nothing writes it.
        assert_eq!(unsafe { ends[1].put(&put) }, Ok(Submit::Posted));
        if finishes {
            ends[0].leave();
        }
        drop(ends.remove(0));
        events(&ends[0], eq);
        assert_eq!(ends[0].failed_peer(), None);
        fabric.fail(0, Failure::Silent(1));
        events(&ends[0], eq);
        assert_eq!(ends[0].failed_peer(), failed);
    }
}

/// The response of the operation has arrived, and only the transport's report that all bytes were
/// sent is missing.
#[test]
fn an_operation_with_a_response_ends_when_its_peer_fails() {
    let (_, ends) = job::<Seq>(2);
    let eq = ends[1].eq_create(16).unwrap();
    let bytes = [1_u8; 5000];
    // SAFETY: the bytes live as long as the ends.
    let md = unsafe { ends[1].md_bind(bytes.as_ptr().cast_mut(), 5000, eq) }.unwrap();
    let put = Put {
        md,
        local_offset: 0,
        length: 5000,
        ack: Ack::Remote,
        target: 0,
        index: PT,
        match_bits: 0,
        remote_offset: 0,
        hdr_data: 0,
        token: 7,
    };
    // SAFETY: the source lives as long as the ends, and nothing writes it.
    assert_eq!(unsafe { ends[1].put(&put) }, Ok(Submit::Posted));
    {
        let mut inner = ends[1].inner();
        let first = inner.portals.operations.peek(0).unwrap();
        assert!(first.unsent && first.token == 7);
        inner
            .portals
            .response_arrives(0, 0, Outcome::Done, 5000, 0)
            .unwrap();
        inner.portals.peer_failed(0, Failure::Silent(1));
    }
    assert_eq!(events(&ends[1], eq).len(), 1);
    assert_eq!(ends[1].md_release(md), Ok(Unlink::Done));
}
