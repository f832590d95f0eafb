//! Vectors with little spare capacity, for tables of idle peers: in a large job these are most of
//! the memory.

/// Appends an item. Growing leaves at most a sixteenth of the table spare, where a `Vec` doubles.
pub fn push<T>(table: &mut Vec<T>, item: T) {
    if table.len() == table.capacity() {
        table.reserve_exact(1 + table.len() / 16);
    }
    table.push(item);
}
