//! Messages between two NA classes over shared memory, through the interface that Mercury's plugin
//! uses. Counts cover everything from the calls of the two sides to their completions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use anyhow::ensure;
use na::raw::{Class, Completion, Target};
use na::{Addr, Options};

use super::sections::Sections;

/// The sizes of the messages in bytes. The last one is close to the limit.
const SIZES: [usize; 3] = [16, 1024, 4000];
const TAG: u32 = 7;
/// The number of calls of `progress` after which an undelivered message is an error. Normally, a
/// few calls suffice.
const STEPS: u32 = 10_000;

/// The completed operations of a class.
#[derive(Default)]
struct Ended {
    count: AtomicU64,
    has_failed: AtomicBool,
}

struct End {
    class: Class,
    ended: Arc<Ended>,
    /// The other end's address.
    peer: Option<Addr>,
    buffer: Vec<u8>,
}

impl End {
    fn open() -> anyhow::Result<Self> {
        let ended = Arc::<Ended>::default();
        let sink = {
            let ended = Arc::clone(&ended);
            move |completion: Completion| match completion.result {
                Ok(_) => {
                    ended.count.fetch_add(1, Relaxed);
                }
                Err(_) => ended.has_failed.store(true, Relaxed),
            }
        };
        let options = Options {
            listen: true,
            ..Options::default()
        };
        Ok(Self {
            class: Class::open("shm", &options, sink)?,
            ended,
            peer: None,
            buffer: vec![1; Options::UNEXPECTED],
        })
    }

    fn target(&self) -> anyhow::Result<Target<'_>> {
        let address = self.peer.as_ref();
        let address = address.ok_or_else(|| anyhow::anyhow!("no peer"))?;
        Ok(Target {
            address,
            context: 0,
        })
    }
}

/// Repeats unexpected and expected messages of each size.
///
/// # Errors
/// Fails if shared memory cannot be set up, or if a message fails.
pub(super) fn repeat(sections: &mut Sections<'_>) -> anyhow::Result<()> {
    let (mut from, mut to) = (End::open()?, End::open()?);
    from.peer = Some(from.class.lookup(&to.class.own().to_string())?);
    to.peer = Some(to.class.lookup(&from.class.own().to_string())?);
    for is_expected in [false, true] {
        for size in SIZES {
            let kind = match is_expected {
                true => "expected",
                false => "unexpected",
            };
            sections.run(&format!("{kind}-{size}"), |count| {
                (0..count).try_for_each(|_| message(&mut from, &mut to, is_expected, size))
            })?;
        }
    }
    // The addresses are dropped first, because an address keeps its class alive.
    (from.peer, to.peer) = (None, None);
    from.class.leave();
    to.class.leave();
    Ok(())
}

fn message(from: &mut End, to: &mut End, is_expected: bool, size: usize) -> anyhow::Result<()> {
    let wanted = [&from.ended, &to.ended].map(|ended| ended.count.load(Relaxed) + 1);
    let into = (to.buffer.as_mut_ptr(), to.buffer.len());
    let bytes = (from.buffer.as_ptr(), size);
    // SAFETY: each buffer stays valid and untouched until its operation has ended, because this
    // function returns only when both operations have ended. After an error, the classes, and the
    // operations with them, are dropped before the buffers.
    unsafe {
        match is_expected {
            true => {
                to.class.receive_expected(0, 0, into, &to.target()?, TAG)?;
                (from.class).send_expected(0, 0, bytes, &from.target()?, TAG)?;
            }
            false => {
                to.class.receive_unexpected(0, 0, into, false)?;
                (from.class).send_unexpected(0, 0, bytes, &from.target()?, TAG)?;
            }
        }
    }
    for _ in 0..STEPS {
        from.class.progress(0);
        to.class.progress(0);
        let ended = [&from.ended, &to.ended];
        ensure!(
            ended.iter().all(|ended| !ended.has_failed.load(Relaxed)),
            "a message has failed"
        );
        if ended.map(|ended| ended.count.load(Relaxed)) == wanted {
            return Ok(());
        }
    }
    anyhow::bail!("a message did not arrive")
}
