//! The lock under every order that the memory model allows. With fences on both sides: a `membarrier` is one on each processor, which
//! the checker does not know.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p conduit-portals --release --lib loom`.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{Owners, OwnersLock};

/// The checker's cell tells of two that are inside at once, and of one that doesn't see what another has done.
type Counted = OwnersLock<UnsafeCell<u32>>;

fn lock(owners: Owners) -> Arc<Counted> {
    Arc::new(OwnersLock::with_barrier(UnsafeCell::new(0), owners, false))
}

fn add(cell: &UnsafeCell<u32>) {
    // SAFETY: the checker looks.
    cell.with_mut(|count| unsafe { *count += 1 });
}

fn visit(lock: &Counted) -> u32 {
    lock.visit().map_or(0, |inside| {
        add(&inside);
        1
    })
}

#[test]
fn loom_a_visitor_and_the_owner_are_never_inside_at_once() {
    loom::model(|| {
        let lock = lock(Owners::One);
        let other = Arc::clone(&lock);
        let visitor = thread::spawn(move || visit(&other) + visit(&other));
        let mut done = 0;
        // SAFETY: the only owner.
        unsafe {
            add(&lock.lock());
            done += 1;
            if let Some(inside) = lock.try_lock() {
                add(&inside);
                done += 1;
            }
        }
        done += visitor.join().unwrap();
        // SAFETY: as above.
        let inside = unsafe { lock.lock() };
        // SAFETY: the checker looks.
        assert_eq!(inside.with(|count| unsafe { *count }), done);
    });
}

#[test]
fn loom_two_visitors_and_an_owner_that_waits() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let lock = lock(Owners::One);
        let visitors = [0, 1].map(|_| {
            let other = Arc::clone(&lock);
            thread::spawn(move || visit(&other))
        });
        // SAFETY: the only owner.
        unsafe {
            add(&lock.lock());
            add(&lock.lock());
        }
        let visits: u32 = visitors.map(|visitor| visitor.join().unwrap()).iter().sum();
        // SAFETY: as above.
        let inside = unsafe { lock.lock() };
        // SAFETY: the checker looks.
        assert_eq!(inside.with(|count| unsafe { *count }), 2 + visits);
    });
}
