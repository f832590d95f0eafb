//! Tests of random schedules of puts, gets and polls between three ranks, checked against a byte
//! array for each rank.

use proptest::prelude::*;

use super::*;

const BYTES: usize = 2048;

#[derive(Debug, Clone)]
enum Step {
    Put {
        from: u32,
        to: u32,
        at: u64,
        length: usize,
        remote: bool,
    },
    Get {
        from: u32,
        to: u32,
        at: u64,
        length: usize,
    },
    Poll(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![0_usize..150, 0_usize..BYTES];
    prop_oneof![
        (
            0_u32..3,
            0_u32..3,
            0_u64..BYTES as u64,
            length.clone(),
            any::<bool>()
        )
            .prop_map(|(from, to, at, length, remote)| Step::Put {
                from,
                to,
                at,
                length: length.min(BYTES - at as usize),
                remote
            }),
        (0_u32..3, 0_u32..3, 0_u64..BYTES as u64, length).prop_map(|(from, to, at, length)| {
            Step::Get {
                from,
                to,
                at,
                length: length.min(BYTES - at as usize),
            }
        }),
        (0_u32..3).prop_map(Step::Poll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn memory_is_what_was_put(
        shared in any::<bool>(),
        region_source in any::<bool>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let config = ShmConfig { shared_ring_above: if shared { 0 } else { 16 }, ..small() };
        let ends: Vec<End<Seq>> = world(3, &config);
        let mut own = vec![vec![0_u8; BYTES]; 3];
        let mut model = vec![vec![0_u8; BYTES]; 3];
        // The first half of each region is the target. Puts read, and gets write, either the
        // second half or private memory.
        let mds: Vec<_> = (0..3).map(|rank| {
            let end = &ends[rank];
            end.append(
                MeMemory::Region { region: end.region.id, offset: 0, len: BYTES },
                ANY,
            );
            let base = if region_source { end.region.base.wrapping_add(BYTES) } else { own[rank].as_mut_ptr() };
            (base, end.bind(base, BYTES))
        }).collect();
        for (i, step) in steps.into_iter().enumerate() {
            let token = i as u64;
            // Every operation is awaited, so the model does not track operations in progress. The
            // target polls before the initiator does, so events may remain queued.
            match step {
                Step::Put { from, to, at, length, remote } => {
                    let (base, md) = mds[from as usize];
                    let bytes = pattern(length, i as u8);
                    // SAFETY: no operation is in progress on this descriptor.
                    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base, length) };
                    let ack = if remote { Ack::Remote } else { Ack::Local };
                    let request = Put { target: to, remote_offset: at, ..put(md, length, ack, token) };
                    while ends[from as usize].put(request) == Submit::Again {
                        ends[to as usize].poll();
                    }
                    let arrived = ends[to as usize].poll();
                    let came = arrived.iter().any(|event| matches!(event, Seen::Put { .. }));
                    prop_assert!(came);
                    let mut events = ends[from as usize].poll();
                    events.extend(arrived);
                    let end = if remote { Seen::Ack(token, Outcome::Done, length) } else { Seen::Send(token) };
                    prop_assert!(events.contains(&end), "{events:?}");
                    model[to as usize][at as usize..][..length].copy_from_slice(&bytes);
                }
                Step::Get { from, to, at, length } => {
                    let (base, md) = mds[from as usize];
                    let request = Get { target: to, remote_offset: at, ..get(md, length, token) };
                    prop_assert_eq!(ends[from as usize].get(request), Submit::Posted);
                    let mut events = ends[to as usize].poll();
                    events.extend(ends[from as usize].poll());
                    prop_assert!(events.contains(&Seen::Reply(token, Outcome::Done, length, 0)), "{events:?}");
                    // SAFETY: no operation is in progress on this descriptor.
                    let got = unsafe { std::slice::from_raw_parts(base, length) };
                    prop_assert_eq!(got, &model[to as usize][at as usize..][..length]);
                }
                Step::Poll(rank) => {
                    // With one thread, an idle ring stays idle, and a queue is idle once a poll
                    // has found it empty.
                    let end = &ends[rank as usize];
                    let idle = end.ni.ready().is_empty();
                    let events = end.poll();
                    prop_assert!(!idle || events.is_empty(), "{events:?}");
                    prop_assert!(end.ni.ready().is_empty());
                }
            }
        }
        for (end, model) in ends.iter().zip(&model) {
            prop_assert_eq!(&end.bytes(0, BYTES), model);
        }
    }
}
