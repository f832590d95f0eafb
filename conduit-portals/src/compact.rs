//! Growth and shrinking of tables with little spare capacity. Idle peers use such tables, because
//! they account for most of the memory in a large job.

use std::collections::HashMap;
use std::hash::Hash;

/// Tables with at most this capacity are not shrunk.
const FEW: usize = 4;

/// Appends an item. A full table grows by at most a sixteenth of its length, whereas a `Vec`
/// doubles.
pub fn push<T>(table: &mut Vec<T>, item: T) {
    if table.len() == table.capacity() {
        table.reserve_exact(1 + table.len() / 16);
    }
    table.push(item);
}

/// Shrinks a table of which less than a quarter is in use.
pub fn shrink<T>(table: &mut Vec<T>) {
    if table.capacity() > FEW && table.len() < table.capacity() / 4 {
        table.shrink_to(2 * table.len());
    }
}

/// Shrinks a map of which less than a quarter is in use.
pub fn shrink_map<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > FEW && map.len() < map.capacity() / 4 {
        map.shrink_to(2 * map.len());
    }
}
