//! Tests of the lock under every order that the memory model allows. Both sides use fences, because
//! the checker does not know `membarrier`.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p pgas-conduit-portals --release --lib loom`.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{Bias, BiasedLock};

/// The checker's cell reports two simultaneous guards, and a guard that doesn't see another guard's
/// writes.
type Counted = BiasedLock<UnsafeCell<u32>>;

fn lock(bias: Bias) -> Arc<Counted> {
    Arc::new(BiasedLock::with_barrier(UnsafeCell::new(0), bias, false))
}

fn add(cell: &UnsafeCell<u32>) {
    // SAFETY: the model checker verifies that no other access is concurrent.
    cell.with_mut(|count| unsafe { *count += 1 });
}

fn lock_remotely(lock: &Counted) -> u32 {
    lock.try_lock_remote().map_or(0, |guard| {
        add(&guard);
        1
    })
}

#[test]
fn loom_a_remote_thread_and_the_owner_never_hold_the_lock_at_once() {
    loom::model(|| {
        let lock = lock(Bias::Owner);
        let other = Arc::clone(&lock);
        let remote = thread::spawn(move || lock_remotely(&other) + lock_remotely(&other));
        let mut done = 0;
        // SAFETY: this thread is the only owner.
        unsafe {
            add(&lock.lock());
            done += 1;
            if let Some(guard) = lock.try_lock() {
                add(&guard);
                done += 1;
            }
        }
        done += remote.join().unwrap();
        // SAFETY: this thread is the only owner.
        let guard = unsafe { lock.lock() };
        // SAFETY: the model checker verifies that no other access is concurrent.
        assert_eq!(guard.with(|count| unsafe { *count }), done);
    });
}

#[test]
fn loom_two_remote_threads_and_an_owner_that_waits() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let lock = lock(Bias::Owner);
        let remotes = [0, 1].map(|_| {
            let other = Arc::clone(&lock);
            thread::spawn(move || lock_remotely(&other))
        });
        // SAFETY: this thread is the only owner.
        unsafe {
            add(&lock.lock());
            add(&lock.lock());
        }
        let remote_locks: u32 = remotes.map(|remote| remote.join().unwrap()).iter().sum();
        // SAFETY: this thread is the only owner.
        let guard = unsafe { lock.lock() };
        // SAFETY: the model checker verifies that no other access is concurrent.
        assert_eq!(guard.with(|count| unsafe { *count }), 2 + remote_locks);
    });
}
