//! Tests of the start through the exchange, with threads as ranks. The calls are the same as with
//! processes, except for the process id.

use conduit_core::threads::ParSync;
use pmi::bootstrap::{Alone, Bootstrap as _};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::super::ShmError;
use super::super::bootstrap_info::BootstrapInfo;
use super::super::handover::Server;
use super::super::layout::Layout;
use super::*;

/// Starts all ranks, each with its own settings.
fn start(configs: Vec<ShmConfig>) -> Vec<Result<Shm<ParSync>, ShmError>> {
    let ranks = pmi::threads::job(configs.len() as u32);
    let threads: Vec<_> = ranks
        .into_iter()
        .zip(configs)
        .map(|(mut rank, config)| std::thread::spawn(move || Shm::start(&mut rank, &config)))
        .collect();
    threads.into_iter().map(|t| t.join().unwrap()).collect()
}

#[test]
fn a_rank_can_be_alone() {
    let shm = Shm::<Seq>::start(&mut Alone::default(), &small()).unwrap();
    assert_eq!((shm.rank(), shm.size()), (0, 1));
    assert!(shm.window(0, RegionId(0)).is_none());
    assert_eq!(shm.failed_peer(), None);
}

#[test]
fn ranks_map_each_other() {
    let ends: Vec<_> = start(vec![small(); 3])
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let regions: Vec<_> = ends
        .iter()
        .map(|end| end.region_create(4096).unwrap())
        .collect();
    for end in &ends {
        for (peer, region) in (0..).zip(&regions) {
            let window = end.window(peer, region.id).unwrap();
            // SAFETY: the bytes lie within windows of this process, and only this thread accesses
            // them.
            unsafe {
                window.base.write(peer as u8 + 1);
                assert_eq!(region.base.read(), peer as u8 + 1);
            }
        }
    }
    assert_eq!(ends[0].failed_peer(), None);
}

#[test]
fn other_settings_are_told_on_every_rank() {
    let other = ShmConfig {
        inject_size: 64,
        ..small()
    };
    let errors: Vec<_> = start(vec![small(), small(), other])
        .into_iter()
        .map(|started| started.unwrap_err().to_string())
        .collect();
    assert_eq!(
        errors[0],
        "shm start: inject_size is 256 on rank 0 and 64 on rank 2"
    );
    assert_eq!(
        errors[1],
        "shm start: inject_size is 256 on rank 1 and 64 on rank 2"
    );
    assert_eq!(
        errors[2],
        "shm start: inject_size is 64 on rank 2 and 256 on rank 0"
    );
}

#[test]
fn a_bad_setting_ends_all_ranks() {
    let bad = ShmConfig {
        staging_pieces: 0,
        ..small()
    };
    let errors: Vec<_> = start(vec![small(), bad])
        .into_iter()
        .map(|started| started.unwrap_err().to_string())
        .collect();
    assert!(
        errors[0].contains("rank 1") && errors[0].contains("staging_pieces"),
        "{errors:?}"
    );
    assert!(errors[1].contains("staging_pieces is 0"), "{errors:?}");
}

#[test]
fn memory_that_could_shrink_is_not_mapped() {
    let Ok([mut honest, mut other]) = <[_; 2]>::try_from(pmi::threads::job(2)) else {
        unreachable!("a job of two")
    };
    let other = std::thread::spawn(move || {
        // This file has the right size, but no seals.
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = memfd_create("other", flags).unwrap();
        ftruncate(&memory, Layout::new(&small()).total as u64).unwrap();
        let (_server, address) = Server::start(memory).unwrap();
        let info = BootstrapInfo::new(address, &small()).to_text();
        other.allgather(info.as_bytes()).unwrap();
        other.allgather(b"").unwrap();
    });
    let error = Shm::<ParSync>::start(&mut honest, &small())
        .unwrap_err()
        .to_string();
    other.join().unwrap();
    assert!(
        error.contains("rank 0 cannot use the memory of rank 1")
            && error.contains("sealed against shrinking"),
        "{error}"
    );
}
