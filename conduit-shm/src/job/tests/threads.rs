//! Tests with ranks in separate threads, and with several threads in one rank.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use conduit_core::threads::{Par, ParSync};

use super::*;

fn is_send<T: Send>() {}
fn is_sync<T: Sync>() {}

#[test]
fn modes_are_what_they_say() {
    is_send::<Shm<ParSync>>();
    is_send::<Shm<Par>>();
    is_sync::<Shm<Par>>();
}

/// Submits until the submission is accepted, and polls in the meantime.
fn insist<M: Mode>(end: &End<M>, inbox: &mut Vec<Seen>, mut submit: impl FnMut() -> Submit) {
    while submit() == Submit::Again {
        end.ni.poll(end.eq, 8, |event| inbox.push(seen(event)));
        std::thread::yield_now();
    }
}

#[test]
fn ranks_in_threads_flood_each_other() {
    const EACH: u64 = 3000;
    for shared_ring_above in [0, 32] {
        let config = ShmConfig {
            shared_ring_above,
            ..small()
        };
        let ends = world::<ParSync>(3, &config);
        let done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for end in ends {
                let done = &done;
                scope.spawn(move || {
                    end.append(
                        MeMemory::Managed {
                            bytes: 1 << 40,
                            min_free: 0,
                        },
                        MeOptions::PUT,
                    );
                    let rank = end.ni.rank();
                    let mut inbox = Vec::new();
                    for count in 0..EACH {
                        for target in (0..3).filter(|&target| target != rank) {
                            let bytes = pattern((count % 200) as usize, count as u8);
                            insist(&end, &mut inbox, || {
                                let request = Inject {
                                    hdr_data: count,
                                    ..inject(target, &bytes)
                                };
                                end.ni.inject(&request).unwrap()
                            });
                        }
                    }
                    while inbox.len() < 2 * EACH as usize {
                        end.ni.poll(end.eq, 8, |event| inbox.push(seen(event)));
                        std::thread::yield_now();
                    }
                    let mut next = [0; 3];
                    for event in inbox {
                        let Seen::Put {
                            source,
                            hdr_data,
                            data,
                            ..
                        } = event
                        else {
                            panic!("{event:?}");
                        };
                        assert_eq!(hdr_data, next[source as usize]);
                        assert_eq!(data, pattern((hdr_data % 200) as usize, hdr_data as u8));
                        next[source as usize] += 1;
                    }
                    // Peers' memory stays mapped until all threads are done, because they share the
                    // mappings in this process.
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(done.into_inner(), 3);
    }
}

#[test]
fn threads_of_one_rank_put_get_and_poll_at_once() {
    const THREADS: u64 = 3;
    const EACH: u64 = 2000;
    for shared_ring_above in [0, 32] {
        let config = ShmConfig {
            shared_ring_above,
            staging_pieces: 8,
            ..small()
        };
        let ends = world::<Par>(2, &config);
        let (a, b) = (&ends[0], &ends[1]);
        b.expose(ANY);
        let completed = AtomicU64::new(0);
        let finished = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (completed, finished) = (&completed, &finished);
                scope.spawn(move || {
                    let mut own = pattern(2048, thread as u8);
                    let md = a.bind(own.as_mut_ptr(), own.len());
                    let mut submitted = 0;
                    for count in 0..EACH {
                        let token = thread << 32 | count;
                        let length = [8, 100, 1024][(count % 3) as usize];
                        let at = thread * 4096;
                        loop {
                            let submit = if count % 4 == 3 {
                                a.get(Get {
                                    local_offset: 1024,
                                    remote_offset: at,
                                    ..get(md, 8, token)
                                })
                            } else {
                                a.put(Put {
                                    remote_offset: at,
                                    ..put(md, length, Ack::Remote, token)
                                })
                            };
                            if submit == Submit::Posted {
                                submitted += 1;
                                break;
                            }
                            std::thread::yield_now();
                        }
                        a.ni.poll(a.eq, 8, |event| {
                            assert!(matches!(
                                event,
                                Event::Ack {
                                    outcome: Outcome::Done,
                                    ..
                                } | Event::Reply {
                                    outcome: Outcome::Done,
                                    ..
                                }
                            ));
                            completed.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                    assert_eq!(submitted, EACH);
                    loop {
                        a.ni.poll(a.eq, 8, |_| {
                            completed.fetch_add(1, Ordering::Relaxed);
                        });
                        match a.ni.md_release(md).unwrap() {
                            Unlink::Done => break,
                            Unlink::InUse => std::thread::yield_now(),
                        }
                    }
                    assert_eq!(own[1024..1032], own[..8]);
                    finished.fetch_add(1, Ordering::SeqCst);
                });
            }
            scope.spawn(|| {
                while finished.load(Ordering::SeqCst) < THREADS {
                    b.ni.poll(b.eq, 8, |_| ());
                    std::thread::yield_now();
                }
            });
        });
        assert_eq!(completed.into_inner(), THREADS * EACH);
        for thread in 0..THREADS {
            assert_eq!(
                b.bytes(thread as usize * 4096, 1024),
                pattern(1024, thread as u8)
            );
        }
    }
}
