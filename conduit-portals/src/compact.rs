//! Tables with little spare capacity, for idle peers: in a large job these are most of the memory.

use std::collections::HashMap;
use std::hash::Hash;

/// Tables with room for fewer items are not shrunk.
const FEW: usize = 4;

/// Appends an item. Growing leaves at most a sixteenth of the table spare, where a `Vec` doubles.
pub fn push<T>(table: &mut Vec<T>, item: T) {
    if table.len() == table.capacity() {
        table.reserve_exact(1 + table.len() / 16);
    }
    table.push(item);
}

/// Frees most of the memory that a table doesn't need any more.
pub fn shrink<T>(table: &mut Vec<T>) {
    if table.capacity() > FEW && table.len() < table.capacity() / 4 {
        table.shrink_to(2 * table.len());
    }
}

/// Frees most of the memory that a map doesn't need any more.
pub fn shrink_map<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > FEW && map.len() < map.capacity() / 4 {
        map.shrink_to(2 * map.len());
    }
}
