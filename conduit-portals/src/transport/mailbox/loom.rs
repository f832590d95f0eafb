//! Tests of the mailbox under every order that the memory model allows.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p pgas-conduit-portals --release --lib loom`.

use loom::cell::UnsafeCell;
use loom::thread;

use super::mailbox;

/// The checker's cell reports a simultaneous writer and reader, and a side that doesn't see the
/// other's writes.
#[test]
fn loom_one_side_at_a_time() {
    const ROUNDS: u32 = 2;
    loom::model(|| {
        let (mut writer, mut reader) = mailbox(UnsafeCell::new(0));
        let writing = thread::spawn(move || {
            for round in 1..=ROUNDS {
                let vacant = loop {
                    match writer.vacant() {
                        Some(vacant) => break vacant,
                        None => thread::yield_now(),
                    }
                };
                // SAFETY: the model checker verifies that no other access is concurrent.
                vacant.fill(|cell| cell.with_mut(|value| unsafe { *value = round }));
            }
        });
        for round in 1..=ROUNDS {
            let read = loop {
                // SAFETY: the model checker verifies that no other access is concurrent.
                match reader.take(|cell| cell.with(|value| unsafe { *value })) {
                    Some(read) => break read,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(read, round);
        }
        writing.join().expect("no model panics");
    });
}
