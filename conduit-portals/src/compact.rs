//! Tables with little spare capacity, for idle peers, which take most of the memory in a large job.

use std::collections::HashMap;
use std::hash::Hash;

/// Tables with at most this capacity are not shrunk.
const FEW: usize = 4;

/// Appends an item. Growing leaves at most a sixteenth of the table spare, whereas a `Vec` doubles.
pub fn push<T>(table: &mut Vec<T>, item: T) {
    if table.len() == table.capacity() {
        table.reserve_exact(1 + table.len() / 16);
    }
    table.push(item);
}

/// Frees most of the unneeded capacity of a table.
pub fn shrink<T>(table: &mut Vec<T>) {
    if table.capacity() > FEW && table.len() < table.capacity() / 4 {
        table.shrink_to(2 * table.len());
    }
}

/// Frees most of the unneeded capacity of a map.
pub fn shrink_map<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > FEW && map.len() < map.capacity() / 4 {
        map.shrink_to(2 * map.len());
    }
}
