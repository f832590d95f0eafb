//! A hash map over all ranks: each key has an owner, which stores its value and replies with it.
//! `conduit-run -n 4 map`.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use conduit::{Handlers, Rank, start};

/// Keys that each rank inserts.
const KEYS: u64 = 10_000;

fn main() -> conduit::Result<()> {
    let job = start()?;
    let (rank, size) = (u64::from(job.rank()), u64::from(job.size()));
    let map = Rc::new(RefCell::new(HashMap::new()));
    let answer = Rc::new(Cell::new(None));

    let mut handlers = Handlers::new();
    let insert = handlers.named("insert").short({
        let map = Rc::clone(&map);
        move |_, (key, value): (u64, u64)| {
            map.borrow_mut().insert(key, value);
        }
    });
    let found = handlers.named("found").short({
        let answer = Rc::clone(&answer);
        move |_, (value,): (u64,)| answer.set(Some(value))
    });
    let look_up = handlers.named("look up").short({
        let map = Rc::clone(&map);
        move |call, (key,): (u64,)| {
            let value = map.borrow().get(&key).copied().unwrap_or(u64::MAX);
            call.reply(found, (value,)).expect("the first reply");
        }
    });
    let conduit = job.attach(handlers, 0)?;

    let owner = |key: u64| (key % 1009 % size) as Rank;
    for key in (0..KEYS).map(|number| number * size + rank) {
        conduit.request(owner(key), insert, (key, key * key))?;
    }
    conduit.quiesce()?; // every insertion of every rank has been handled

    for key in (0..KEYS * size).step_by(97) {
        answer.set(None);
        conduit.request(owner(key), look_up, (key,))?;
        conduit.wait_until(|| answer.get().is_some())?;
        assert_eq!(answer.get(), Some(key * key));
    }
    let mut stored = [map.borrow().len() as u64];
    conduit.reduce_all(conduit::ReduceOp::Add, &mut stored)?;
    if rank == 0 {
        println!("map: {} keys on {size} ranks", stored[0]);
    }
    conduit.finish()
}
