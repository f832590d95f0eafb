//! Tables of what is kept of idle peers: most memory of a large job may be these.

/// Adds an item. No more of the table than a sixteenth is spare afterwards, if no more was before.
pub fn push<T>(table: &mut Vec<T>, item: T) {
    if table.len() == table.capacity() {
        table.reserve_exact(1 + table.len() / 16);
    }
    table.push(item);
}
