//! The program of the README.

use conduit::{Handlers, start};

fn main() -> conduit::Result<()> {
    let job = start()?;
    let mut handlers = Handlers::new();
    let hello = handlers.short(|call, (number,): (u64,)| {
        println!("rank {} sent {number}", call.source());
    });
    // A segment of 1 MiB on every rank.
    let conduit = job.attach(handlers, 1 << 20)?;
    let right = (conduit.rank() + 1) % conduit.size();
    conduit.put(right, 0, &42u64)?;
    conduit.request(right, hello, (7,))?;
    conduit.barrier()?;
    let mut value = 0u64;
    conduit.get(&mut value, conduit.rank(), 0)?;
    assert_eq!(value, 42);
    conduit.finish()
}
