//! Hashing of tables, for model checkers.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use slab::Slab;

/// Hashes a table.
pub(in crate::machine) fn table<T: Hash>(table: &Slab<T>, state: &mut impl Hasher) {
    table.len().hash(state);
    for entry in table {
        entry.hash(state);
    }
}

/// Hashes a map, independently of its iteration order.
pub(in crate::machine) fn map<K: Hash, V: Hash>(map: &HashMap<K, V>, state: &mut impl Hasher) {
    let entries = map.iter().map(|entry| {
        let mut state = DefaultHasher::new();
        entry.hash(&mut state);
        state.finish()
    });
    entries.fold(0, u64::wrapping_add).hash(state);
}
