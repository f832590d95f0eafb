//! A program that makes every call of the API between all ranks and checks each result.

use anyhow::{Result, ensure};
use conduit::threads::Mode;
use conduit::{AtomicOp, Block, Conduit, Handle, ReduceOp, Shape};

use super::{SHARE, attached, messages, pattern, same};

/// Makes all calls.
pub(super) fn all<M: Mode>() -> Result<()> {
    let (handlers, seen) = messages::handlers();
    let conduit = attached::<M>(handlers)?;
    about(&conduit)?;
    blocking(&conduit)?;
    handles(&conduit)?;
    implicit(&conduit)?;
    values(&conduit)?;
    ranges(&conduit)?;
    atomics(&conduit)?;
    barriers(&conduit)?;
    teams(&conduit)?;
    messages::all(&conduit, &seen)?;
    credits(&conduit)?;
    Ok(conduit.finish()?)
}

/// Returns the offset in other ranks' segments at which this rank's share begins.
fn share<M: Mode>(conduit: &Conduit<M>) -> usize {
    conduit.rank() as usize * SHARE
}

fn about<M: Mode>(conduit: &Conduit<M>) -> Result<()> {
    let (rank, size) = (conduit.rank(), conduit.size());
    ensure!(rank < size);
    ensure!(conduit.host_of(size).is_err() && conduit.neighbourhood_of(size).is_err());
    for peer in 0..size {
        ensure!(conduit.segment_len(peer)? >= size as usize * SHARE);
        ensure!(conduit.segment_address(peer)? != 0);
        ensure!(conduit.host_of(peer)? <= peer);
        let expected = conduit.neighbourhood_of(peer)? == conduit.neighbourhood_of(rank)?;
        ensure!(conduit.window(peer)?.is_some() == expected);
        ensure!(conduit.max_long_request(peer)? >= 512 && conduit.max_long_reply(peer)? >= 512);
    }
    ensure!(conduit.segment().as_ptr().addr().is_multiple_of(4096));
    ensure!(conduit.max_medium() >= 512);
    // SAFETY: no rank accesses this rank's segment until the barrier below.
    let own = unsafe { conduit.segment().slice::<u8>(0, SHARE)? };
    ensure!(own.iter().all(|&byte| byte == 0), "a segment begins zeroed");
    conduit.barrier()?;
    Ok(())
}

fn blocking<M: Mode>(conduit: &Conduit<M>) -> Result<()> {
    let (rank, size) = (conduit.rank(), conduit.size());
    for peer in 0..size {
        conduit.put(peer, share(conduit), &pattern(rank, peer, SHARE)[..])?;
    }
    conduit.barrier()?;
    let mut got = vec![0; SHARE];
    for peer in 0..size {
        // These are the bytes that this rank's neighbour has put at `peer`.
        let from = (rank + 1) % size;
        conduit.get(&mut got[..], peer, from as usize * SHARE)?;
        same("get", &got, &pattern(from, peer, SHARE))?;
    }
    // Transfers of zero bytes are accepted, even at the end of the segment.
    let len = conduit.segment_len(0)?;
    conduit.put(0, len, &[0u8; 0])?;
    conduit.get(&mut [0u8; 0][..], 0, len)?;
    conduit.barrier()?;
    for peer in 0..size {
        conduit.memset(peer, share(conduit), rank as u8 + 1, SHARE)?;
    }
    conduit.barrier()?;
    // SAFETY: the slice is used only between two barriers, and no rank puts between them.
    let own = unsafe { conduit.segment().slice::<u8>(0, size as usize * SHARE)? };
    for (from, bytes) in (1..).zip(own.chunks(SHARE)) {
        ensure!(bytes.iter().all(|&byte| byte == from), "memset");
    }
    conduit.barrier()?;
    Ok(())
}

fn handles<M: Mode>(conduit: &Conduit<M>) -> Result<()> {
    let (rank, size) = (conduit.rank(), conduit.size());
    let at = share(conduit);
    let sources: Vec<_> = (0..size).map(|peer| pattern(rank, peer, 4096)).collect();
    let mut handles = Vec::new();
    for (peer, source) in (0..).zip(&sources) {
        handles.push(conduit.put_nb(peer, at, &source[..1024])?);
        let immediate = loop {
            if let Some(handle) = conduit.put_nb_immediate(peer, at + 1024, &source[1024..2048])? {
                break handle;
            }
            conduit.poll()?;
        };
        handles.push(immediate);
        // SAFETY: `sources` lives, unchanged, until all handles have been waited for.
        handles
            .push(unsafe { conduit.put_nb_bulk(peer, at + 2048, source[2048..].as_ptr(), 2048)? });
        handles.push(conduit.memset_nb(peer, at + 4096, 9, 100)?);
        handles.push(conduit.put_value_nb(peer, at + 4200, 0x0102, 2)?);
    }
    while conduit.wait_some(&mut handles)? > 0 {}
    ensure!(conduit.try_wait_all(&mut handles)? && conduit.try_wait_some(&mut handles)? == 0);
    conduit.wait_all(&mut handles)?;
    ensure!(handles.iter().all(Handle::is_done));
    conduit.barrier()?;

    let mut got = vec![vec![0; 4096]; size as usize];
    let mut under_way = Vec::new();
    for (peer, got) in (0..).zip(&mut got) {
        // SAFETY: `got` is neither moved nor accessed until the handle has been waited for.
        under_way.push(unsafe { conduit.get_nb(got.as_mut_ptr(), peer, at, 4096)? });
    }
    for handle in under_way {
        match conduit.try_wait(handle)? {
            None => {}
            Some(handle) => conduit.wait(handle)?,
        }
    }
    for (peer, got) in (0..).zip(&got) {
        same("get_nb", got, &pattern(rank, peer, 4096))?;
        ensure!(conduit.get_value(peer, at + 4200, 2)? == 0x0102);
        ensure!(conduit.get_value(peer, at + 4096, 8)? == 0x0909_0909_0909_0909);
    }
    conduit.barrier()?;
    Ok(())
}

fn implicit<M: Mode>(conduit: &Conduit<M>) -> Result<()> {
    let (rank, size) = (conduit.rank(), conduit.size());
    let at = share(conduit);
    let sources: Vec<_> = (0..size)
        .map(|peer| pattern(rank, peer + 100, 2048))
        .collect();
    for (peer, source) in (0..).zip(&sources) {
        conduit.put_nbi(peer, at, &source[..1024])?;
        // SAFETY: `sources` lives, unchanged, until the implicit puts have been waited for.
        unsafe { conduit.put_nbi_bulk(peer, at + 1024, source[1024..].as_ptr(), 1024)? };
        conduit.memset_nbi(peer, at + 2048, 3, 8)?;
        conduit.put_value_nbi(peer, at + 2056, 77, 8)?;
    }
    while !conduit.try_puts()? {}
    conduit.wait_puts()?;
    let mut got = vec![vec![0; 2048]; size as usize];
    for (peer, got) in (0..).zip(&mut got) {
        // SAFETY: `got` is neither moved nor accessed until the implicit gets have been waited for.
        unsafe { conduit.get_nbi(got.as_mut_ptr(), peer, at, 2048)? };
    }
    conduit.try_gets()?;
    conduit.wait_gets()?;
    conduit.wait_implicit()?;
    ensure!(conduit.try_implicit()?);
    for (got, source) in got.iter().zip(&sources) {
        same("get_nbi", got, source)?;
    }

    conduit.begin_region()?;
    ensure!(conduit.begin_region().is_err() && conduit.wait_puts().is_err());
    for peer in 0..size {
        conduit.put_nbi(peer, at, &[5u8; 64])?;
    }
    let handle = conduit.end_region()?;
    conduit.wait(handle)?;
    ensure!(conduit.end_region().is_err());

    let source = [6u8; 300];
    let mut got = vec![[0u8; 64]; size as usize];
    conduit.scope(|scope| {
        for (peer, got) in (0..).zip(&mut got) {
            scope.put(peer, at + 512, &source[..])?;
            scope.get(&mut got[..], peer, at)?;
        }
        Ok(())
    })?;
    ensure!(got.iter().all(|got| got == &[5; 64]), "scope");
    conduit.barrier()?;
    Ok(())
}

fn values<M: Mode>(conduit: &Conduit<M>) -> Result<()> {
    let at = share(conduit);
    for peer in 0..conduit.size() {
        for bytes in 1..=8 {
            let value = 0xF1F2_F3F4_F5F6_F7F8u64;
            conduit.memset(peer, at, 0, 16)?;
            conduit.put_value(peer, at + 1, value, bytes)?;
            let mask = u64::MAX >> (64 - 8 * bytes);
            ensure!(conduit.get_value(peer, at + 1, bytes)? == value & mask);
            ensure!(
                conduit.get_value(peer, at + 1 + bytes, 1)? == 0,
                "bytes behind the value were written"
            );
        }
    }
    conduit.barrier()?;
    Ok(())
}

/// Puts a matrix by columns and gets it in pieces. A scope does so with all peers at once.
fn ranges<M: Mode>(conduit: &Conduit<M>) -> Result<()> {
    const ROWS: usize = 60;
    const COLUMNS: usize = 40;
    let (rank, size) = (conduit.rank(), conduit.size());
    let matrix = |from: u32, to: u32| -> Vec<u32> {
        let all = 0..(ROWS * COLUMNS) as u32;
        all.map(|place| from << 24 | to << 16 | place).collect()
    };
    let transposed = |of: &[u32]| -> Vec<u32> {
        let places = (0..COLUMNS).flat_map(|column| (0..ROWS).map(move |row| (row, column)));
        places
            .map(|(row, column)| of[row * COLUMNS + column])
            .collect()
    };
    // The source is read by columns. At the target, the last column becomes the first row.
    let counts = [ROWS, COLUMNS];
    let columns = Shape::Strided {
        strides: &[COLUMNS as isize, 1],
        counts: &counts,
        element: 1,
    };
    let last = (COLUMNS - 1) * ROWS;
    let backwards = Shape::Strided {
        strides: &[1, -(ROWS as isize)],
        counts: &counts,
        element: 1,
    };
    for peer in 0..size {
        let at = share(conduit) + last * size_of::<u32>();
        conduit.put_ranges(peer, at, backwards, &matrix(rank, peer), 0, columns)?;
    }
    conduit.barrier()?;
    let from = (rank + 1) % size;
    let starts: Vec<usize> = (0..COLUMNS).rev().map(|column| column * ROWS).collect();
    let rows = Shape::Indexed {
        starts: &starts,
        len: ROWS,
    };
    let halves = [
        Block {
            start: 0,
            len: last / 2,
        },
        Block {
            start: last / 2,
            len: ROWS * COLUMNS - last / 2,
        },
    ];
    let there = from as usize * SHARE;
    for peer in 0..size {
        let mut got = vec![0; ROWS * COLUMNS];
        conduit.get_ranges(&mut got, 0, Shape::Vector(&halves), peer, there, rows)?;
        ensure!(got == transposed(&matrix(from, peer)), "get_ranges");
    }
    conduit.barrier()?;
    let sources: Vec<_> = (0..size).map(|peer| matrix(peer, rank)).collect();
    let line = Shape::Strided {
        strides: &[],
        counts: &[],
        element: ROWS * COLUMNS,
    };
    conduit.scope(|scope| {
        (0..size).zip(&sources).try_for_each(|(peer, source)| {
            scope.put_ranges(peer, share(conduit), line, source, 0, columns)
        })
    })?;
    conduit.barrier()?;
    let mut all = vec![vec![0; ROWS * COLUMNS]; size as usize];
    conduit.scope(|scope| {
        (0..size)
            .zip(&mut all)
            .try_for_each(|(peer, got)| scope.get_ranges(got, 0, columns, peer, there, line))
    })?;
    for (peer, got) in (0..size).zip(&all) {
        ensure!(*got == matrix(peer, from), "Scope::get_ranges");
    }
    conduit.barrier()?;
    Ok(())
}

fn atomics<M: Mode>(conduit: &Conduit<M>) -> Result<()> {
    let size = conduit.size();
    let own = share(conduit);
    conduit.put(conduit.rank(), own, &[0u64; 8])?;
    conduit.barrier()?;
    for peer in 0..size {
        let at = peer as usize * SHARE;
        for _ in 0..10 {
            ensure!(conduit.atomic_fetch(peer, at, AtomicOp::Add, 1u64)? < 20 * u64::from(size));
            conduit.atomic(peer, at, AtomicOp::Add, 1u64)?;
            let handle = conduit.atomic_nb(peer, at + 8, AtomicOp::Sub, 1i32)?;
            conduit.wait(handle)?;
            conduit.atomic(peer, at + 16, AtomicOp::Max, i64::from(conduit.rank()) - 5)?;
            conduit.atomic(peer, at + 24, AtomicOp::Or, 1u32 << conduit.rank())?;
        }
        while conduit.compare_swap(peer, at + 32, 0u32, 1)? != 0 {
            // An atomic on a rank's own memory may return without polling, but the lock's holder
            // may need this rank to poll.
            conduit.poll()?;
        }
        // The loop above is a spin lock. The count that it protects is read and written by
        // non-atomic calls.
        let count = conduit.get_value(peer, at + 40, 8)?;
        conduit.put_value(peer, at + 40, count + 1, 8)?;
        ensure!(conduit.atomic_fetch(peer, at + 32, AtomicOp::Set, 0u32)? == 1);
        ensure!(conduit.atomic_get::<u64>(peer, at)? >= 20);
    }
    conduit.barrier()?;
    let own_at = own;
    let rank = conduit.rank();
    ensure!(conduit.get_value(rank, own_at, 8)? == 20 * u64::from(size));
    ensure!(conduit.get_value(rank, own_at + 8, 4)? as i32 == -10 * size as i32);
    let most = conduit.get_value(rank, own_at + 16, 8)?.cast_signed();
    ensure!(most == (i64::from(size) - 6).max(0));
    ensure!(conduit.get_value(rank, own_at + 24, 4)? == (1u64 << size) - 1);
    ensure!(
        conduit.get_value(rank, own_at + 40, 8)? == u64::from(size),
        "two ranks held the lock at once"
    );
    conduit.barrier()?;
    Ok(())
}

fn barriers<M: Mode>(conduit: &Conduit<M>) -> Result<()> {
    for id in 0..50 {
        conduit.barrier_named(id)?;
        conduit.barrier_notify(Some(id))?;
        if id % 2 == 0 {
            conduit.barrier_wait(Some(id))?;
        } else {
            while !conduit.barrier_try(Some(id))? {}
        }
    }
    if conduit.size() > 1 {
        ensure!(conduit.barrier_named(conduit.rank()).is_err(), "a mismatch");
    }
    ensure!(
        conduit.barrier_wait(None).is_err(),
        "a wait without a notify succeeded"
    );
    conduit.barrier_notify(None)?;
    ensure!(
        conduit.barrier_notify(None).is_err(),
        "a second notify succeeded"
    );
    conduit.barrier_wait(None)?;
    Ok(())
}

fn teams<M: Mode>(conduit: &Conduit<M>) -> Result<()> {
    let (rank, size) = (conduit.rank(), conduit.size());
    let all = conduit.team();
    ensure!((all.rank(), all.size()) == (rank, size));
    // Forms a team of all ranks but the last, in reverse order: once by colors and once by lists.
    let some = if size > 1 { size - 1 } else { 1 };
    let color = (rank < some).then_some(3);
    let members: Vec<u32> = (0..some).rev().collect();
    let named: &[u32] = if rank < some { &members } else { &[] };
    let split = all.split(color, -rank.cast_signed())?;
    let created = all.create(named)?;
    ensure!(split.is_some() == (rank < some) && created.is_some() == (rank < some));
    for team in [&split, &created].into_iter().flatten() {
        ensure!((team.rank(), team.size()) == (some - 1 - rank, some));
        for (at, &member) in (0..).zip(&members) {
            ensure!(team.to_job(at) == Some(member) && team.from_job(member) == Some(at));
        }
        ensure!(team.to_job(some).is_none() && team.from_job(size).is_none());
        let mut gathered = vec![0; some as usize];
        team.gather_all(&[rank], &mut gathered)?;
        ensure!(gathered == members, "{gathered:?}");
        let mut back = vec![0; some as usize];
        team.exchange(&gathered, &mut back)?;
        ensure!(back.iter().all(|&given| given == rank), "{back:?}");
        let mut own = [0];
        team.scatter(0, &members, &mut own)?;
        team.gather(some - 1, &own, &mut back)?;
        ensure!(own == [rank] && (team.rank() != some - 1 || back == members));
        let mut value = team.rank();
        team.broadcast(some - 1, &mut value)?;
        ensure!(value == some - 1);
        let mut values = [1u64];
        team.reduce(0, ReduceOp::Add, &mut values)?;
        ensure!(values == [if team.rank() == 0 { u64::from(some) } else { 1 }]);
        let mut values = [u64::from(rank)];
        team.reduce_all_with(&mut values, |one: u64, other: u64| one.max(other))?;
        ensure!(values == [u64::from(some - 1)]);
        team.barrier()?;
        // The call is refused before anything is sent.
        ensure!(
            team.gather_all(&[rank], &mut vec![0; some as usize + 1])
                .is_err()
        );
        ensure!(team.broadcast(some, &mut value).is_err());
        ensure!(team.create(&[rank, rank]).is_err() && team.create(&[size]).is_err());
    }
    Ok(())
}

fn credits<M: Mode>(conduit: &Conduit<M>) -> Result<()> {
    for peer in 0..conduit.size() {
        ensure!(conduit.send_credits(peer)? > 0);
        // If receive space is scarce, peers may already have revoked some credits.
        conduit.revoked_credits(peer)?;
        conduit.credit_stalls(peer)?;
    }
    conduit.banked_credits();
    conduit.barrier()?;
    Ok(())
}
