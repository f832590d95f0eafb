//! Tests of the start through the exchange, with threads as ranks. The calls are the same as with
//! processes, except for the process id.

use std::sync::{Arc, Barrier, Mutex};

use conduit_core::bootstrap::{Alone, Bootstrap, BootstrapError};
use conduit_core::threads::ParSync;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::super::ShmError;
use super::super::bootstrap_info::BootstrapInfo;
use super::super::handover::Server;
use super::super::layout::Layout;
use super::*;

type Table = Arc<Mutex<Vec<Vec<u8>>>>;

struct Threads {
    rank: u32,
    barrier: Arc<Barrier>,
    table: Table,
}

impl Bootstrap for Threads {
    fn rank(&self) -> u32 {
        self.rank
    }
    fn size(&self) -> u32 {
        self.table.lock().unwrap().len() as u32
    }
    fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
        self.table.lock().unwrap()[self.rank as usize] = bytes.to_vec();
        self.barrier.wait();
        let all = self.table.lock().unwrap().clone();
        self.barrier.wait();
        Ok(all)
    }
    fn barrier(&mut self) -> Result<(), BootstrapError> {
        self.barrier.wait();
        Ok(())
    }
}

/// Starts all ranks, each with its own settings.
fn start(configs: Vec<ShmConfig>) -> Vec<Result<Shm<ParSync>, ShmError>> {
    let ranks = configs.len();
    let barrier = Arc::new(Barrier::new(ranks));
    let table: Table = Arc::new(Mutex::new(vec![Vec::new(); ranks]));
    let threads: Vec<_> = (0..)
        .zip(configs)
        .map(|(rank, config)| {
            let (barrier, table) = (barrier.clone(), table.clone());
            std::thread::spawn(move || {
                let mut bootstrap = Threads {
                    rank,
                    barrier,
                    table,
                };
                Shm::start(&mut bootstrap, &config)
            })
        })
        .collect();
    threads.into_iter().map(|t| t.join().unwrap()).collect()
}

#[test]
fn a_rank_can_be_alone() {
    let shm = Shm::<Seq>::start(&mut Alone, &small()).unwrap();
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
    let (barrier, table) = (Arc::new(Barrier::new(2)), Table::default());
    table.lock().unwrap().resize(2, Vec::new());
    let [mut honest, mut other] = [0, 1].map(|rank| Threads {
        rank,
        barrier: barrier.clone(),
        table: table.clone(),
    });
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
