//! Lists and flags formatted for messages. The functions that return the size of a buffer return an
//! upper bound that depends only on the number of items, so that a caller can allocate the buffer
//! before it has the list.

use std::ffi::{CStr, c_char, c_void};
use std::fmt::Write;

use crate::edge::write_text;

/// The maximum number of bytes that a number or an address takes, including separators.
const ITEM: usize = 48;
/// The maximum number of bytes of the words around a list.
const FRAME: usize = 192;

/// A piece of memory, laid out as `gex_Memvec_t` in `gasnetex.h`.
#[repr(C)]
struct Piece {
    address: *const c_void,
    length: usize,
}

fn list_size(count: usize) -> usize {
    count.saturating_mul(ITEM).saturating_add(FRAME)
}

fn joined<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    items.iter().map(show).collect::<Vec<_>>().join(", ")
}

/// Returns the lowest and the highest address of pieces as the end of a phrase, or an empty text if
/// no piece has bytes.
fn bounds(pieces: impl Iterator<Item = (usize, usize)> + Clone) -> String {
    let pieces = pieces.filter(|&(_, length)| length > 0);
    let lowest = pieces.clone().map(|(address, _)| address).min();
    let highest = pieces
        .map(|(address, length)| address.saturating_add(length - 1))
        .max();
    match lowest.zip(highest) {
        Some((lowest, highest)) => format!(" in {lowest:#x}...{highest:#x}"),
        None => String::new(),
    }
}

/// Returns the total number of bytes of the pieces, and the text that lists them.
fn vector(pieces: &[Piece]) -> (usize, String) {
    let total = pieces
        .iter()
        .fold(0usize, |total, piece| total.saturating_add(piece.length));
    let items = joined(pieces, |piece| {
        format!("{{{:p}, {}}}", piece.address, piece.length)
    });
    let bounds = bounds(
        pieces
            .iter()
            .map(|piece| (piece.address.addr(), piece.length)),
    );
    let count = pieces.len();
    (
        total,
        format!("{count} pieces, {total} bytes{bounds}: [{items}]"),
    )
}

/// Returns the total number of bytes of pieces of equal length, and the text that lists them.
fn indexed(addresses: &[*const c_void], length: usize) -> (usize, String) {
    let items = joined(addresses, |&address| format!("{address:p}"));
    let bounds = bounds(addresses.iter().map(|address| (address.addr(), length)));
    let count = addresses.len();
    (
        count.saturating_mul(length),
        format!("{count} pieces of {length} bytes{bounds}: [{items}]"),
    )
}

/// Formats a transfer between lists.
fn transfer(tm: *const c_void, rank: u32, to: &(usize, String), from: &(usize, String)) -> String {
    let total = to.0;
    format!(
        "team {tm:p} rank {rank}: {total} bytes\nto {}\nfrom {}",
        to.1, from.1
    )
}

/// # Safety
/// `list` must be null or point to `count` items. If `count` is 0, `list` may be any pointer.
unsafe fn slice<'a, T>(list: *const T, count: usize) -> &'a [T] {
    if list.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: `list` is not null and `count` is not 0, so the caller guarantees that `list` points
    // to `count` items.
    unsafe { std::slice::from_raw_parts(list, count) }
}

// ---- The edge to C ----

#[unsafe(no_mangle)]
extern "C" fn gasnett_format_memveclist_bufsz(count: usize) -> usize {
    list_size(count)
}

/// # Safety
/// `buf` must have the size that the size function returns, and `list` must point to `count`
/// pieces.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_format_memveclist(
    buf: *mut c_char,
    count: usize,
    list: *const c_void,
) {
    // SAFETY: the caller guarantees that `buf` is as large as the size function says, and that
    // `list` points to `count` pieces.
    let (_, text) = vector(unsafe { slice(list.cast::<Piece>(), count) });
    // SAFETY: the caller guarantees that `buf` is as large as the size function says, and that
    // `list` points to `count` pieces.
    unsafe { write_text(buf, list_size(count), text.as_bytes()) };
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_format_addrlist_bufsz(count: usize) -> usize {
    list_size(count)
}

/// # Safety
/// `buf` must have the size that the size function returns, and `list` must point to `count`
/// addresses.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_format_addrlist(
    buf: *mut c_char,
    count: usize,
    list: *const *const c_void,
    len: usize,
) {
    // SAFETY: the caller guarantees that `buf` is as large as the size function says, and that
    // `list` points to `count` addresses.
    let (_, text) = indexed(unsafe { slice(list, count) }, len);
    // SAFETY: the caller guarantees that `buf` is as large as the size function says, and that
    // `list` points to `count` addresses.
    unsafe { write_text(buf, list_size(count), text.as_bytes()) };
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_format_putvgetv_bufsz(dstcount: usize, srccount: usize) -> usize {
    // This is the size of the two lists and of the text before them.
    list_size(dstcount)
        .saturating_add(list_size(srccount))
        .saturating_add(FRAME)
}

/// # Safety
/// `buf` must have the size that the size function returns, and the lists must have as many pieces
/// as their counts.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_format_putvgetv(
    buf: *mut c_char,
    tm: *const c_void,
    rank: u32,
    dstcount: usize,
    dstlist: *const c_void,
    srccount: usize,
    srclist: *const c_void,
) -> usize {
    // SAFETY: the caller guarantees that `buf` is as large as the size function says, and that the
    // lists have as many pieces as their counts.
    let (to, from) = unsafe {
        (
            vector(slice(dstlist.cast::<Piece>(), dstcount)),
            vector(slice(srclist.cast::<Piece>(), srccount)),
        )
    };
    let room = gasnett_format_putvgetv_bufsz(dstcount, srccount);
    // SAFETY: the caller guarantees that `buf` is as large as the size function says, and that the
    // lists have as many pieces as their counts.
    unsafe { write_text(buf, room, transfer(tm, rank, &to, &from).as_bytes()) };
    to.0
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_format_putigeti_bufsz(dstcount: usize, srccount: usize) -> usize {
    gasnett_format_putvgetv_bufsz(dstcount, srccount)
}

/// # Safety
/// `buf` must have the size that the size function returns, and the lists must have as many
/// addresses as their counts.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_format_putigeti(
    buf: *mut c_char,
    tm: *const c_void,
    rank: u32,
    dstcount: usize,
    dstlist: *const *const c_void,
    dstlen: usize,
    srccount: usize,
    srclist: *const *const c_void,
    srclen: usize,
) -> usize {
    // SAFETY: the caller guarantees that `buf` is as large as the size function says, and that the
    // lists have as many addresses as their counts.
    let (to, from) = unsafe {
        (
            indexed(slice(dstlist, dstcount), dstlen),
            indexed(slice(srclist, srccount), srclen),
        )
    };
    let room = gasnett_format_putigeti_bufsz(dstcount, srccount);
    // SAFETY: the caller guarantees that `buf` is as large as the size function says, and that the
    // lists have as many addresses as their counts.
    unsafe { write_text(buf, room, transfer(tm, rank, &to, &from).as_bytes()) };
    to.0
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_format_strides_bufsz(count: usize) -> usize {
    list_size(count)
}

/// # Safety
/// `buf` must have the size that the size function returns, and `list` must point to `count`
/// strides.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_format_strides(buf: *mut c_char, count: usize, list: *const isize) {
    // SAFETY: the caller guarantees that `buf` is as large as the size function says, and that
    // `list` points to `count` strides.
    let items = joined(unsafe { slice(list, count) }, isize::to_string);
    // SAFETY: the caller guarantees that `buf` is as large as the size function says, and that
    // `list` points to `count` strides.
    unsafe { write_text(buf, list_size(count), format!("[{items}]").as_bytes()) };
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_format_putsgets_bufsz(stridelevels: usize) -> usize {
    // This is the size of two lists of strides, one list of counts, and the other words.
    list_size(stridelevels)
        .saturating_mul(3)
        .saturating_add(4 * ITEM)
}

/// # Safety
/// `buf` must have the size that the size function returns, and the lists must have `stridelevels`
/// items.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_format_putsgets(
    buf: *mut c_char,
    _unused: *mut c_void,
    tm: *const c_void,
    rank: u32,
    dstaddr: *const c_void,
    dststrides: *const isize,
    srcaddr: *const c_void,
    srcstrides: *const isize,
    elemsz: usize,
    count: *const usize,
    stridelevels: usize,
) -> usize {
    // SAFETY: the caller guarantees that `buf` is as large as the size function says, and that the
    // lists have `stridelevels` items.
    let (to, from, count) = unsafe {
        (
            slice(dststrides, stridelevels),
            slice(srcstrides, stridelevels),
            slice(count, stridelevels),
        )
    };
    let elements = count
        .iter()
        .fold(1usize, |product, &count| product.saturating_mul(count));
    let mut text = format!("team {tm:p} rank {rank}: ");
    let _ = write!(
        text,
        "to {dstaddr:p} strides [{}], ",
        joined(to, isize::to_string)
    );
    let _ = write!(
        text,
        "from {srcaddr:p} strides [{}], ",
        joined(from, isize::to_string)
    );
    let _ = write!(
        text,
        "{elements} elements of {elemsz} bytes, counts [{}]",
        joined(count, usize::to_string)
    );
    // SAFETY: the caller guarantees that `buf` is as large as the size function says, and that the
    // lists have `stridelevels` items.
    unsafe {
        write_text(
            buf,
            gasnett_format_putsgets_bufsz(stridelevels),
            text.as_bytes(),
        )
    };
    elements.saturating_mul(elemsz)
}

/// # Safety
/// `flags` must point to `count` values, and `names` to `count` consecutive C strings. `buf` must
/// be null or have the size that the same call with a null `buf` returned.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_format_flags(
    buf: *mut c_char,
    value: u64,
    flags: *const u64,
    names: *const c_char,
    count: usize,
) -> usize {
    let mut text = String::new();
    let mut known = 0;
    let mut name = names;
    // SAFETY: the caller guarantees that `flags` points to `count` values, and that `buf` is null
    // or has the size that the same call with a null `buf` returned.
    for &flag in unsafe { slice(flags, count) } {
        // SAFETY: the caller guarantees that `names` points to `count` consecutive C strings, and
        // `name` is the one that belongs to `flag`.
        let this = unsafe { CStr::from_ptr(name) };
        // SAFETY: the next C string begins after this one's final zero. After the last C string,
        // `name` is not read.
        name = unsafe { name.add(this.count_bytes() + 1) };
        if flag != 0 && value & flag == flag {
            let _ = write!(
                text,
                "{}{}",
                if text.is_empty() { "" } else { "|" },
                this.to_string_lossy()
            );
            known |= flag;
        }
    }
    let rest = value & !known;
    if rest != 0 || text.is_empty() {
        let _ = write!(text, "{}{rest:#x}", if text.is_empty() { "" } else { "|" });
    }
    // SAFETY: the caller guarantees that `flags` points to `count` values, and that `buf` is null
    // or has the size that the same call with a null `buf` returned.
    unsafe { write_text(buf, text.len() + 1, text.as_bytes()) };
    text.len() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags_text(value: u64) -> String {
        let flags = [1u64, 2, 8];
        let names = b"ONE\0TWO\0EIGHT\0";
        let mut buffer = [0x7F as c_char; 64];
        // SAFETY: there are three flags and three names, and the buffer is larger than any text
        // made of them.
        unsafe {
            let size = conduit_tools_format_flags(
                std::ptr::null_mut(),
                value,
                flags.as_ptr(),
                names.as_ptr().cast(),
                3,
            );
            let same = conduit_tools_format_flags(
                buffer.as_mut_ptr(),
                value,
                flags.as_ptr(),
                names.as_ptr().cast(),
                3,
            );
            assert_eq!(size, same);
            let text = CStr::from_ptr(buffer.as_ptr())
                .to_str()
                .expect("ASCII")
                .to_owned();
            assert_eq!(text.len() + 1, size);
            text
        }
    }

    #[test]
    fn flags_are_names_and_what_is_left() {
        assert_eq!(flags_text(0), "0x0");
        assert_eq!(flags_text(3), "ONE|TWO");
        assert_eq!(flags_text(8), "EIGHT");
        assert_eq!(flags_text(0x1F), "ONE|TWO|EIGHT|0x14");
        assert_eq!(flags_text(0x10), "0x10");
    }

    #[test]
    fn the_largest_items_fit_their_buffers() {
        let count = 100;
        let far = usize::MAX as *const c_void;
        let pieces: Vec<Piece> = (0..count)
            .map(|_| Piece {
                address: far,
                length: usize::MAX,
            })
            .collect();
        let strides = vec![isize::MIN; count];
        let counts = vec![usize::MAX; count];
        let most = gasnett_format_putsgets_bufsz(count);
        let most = most.max(gasnett_format_putvgetv_bufsz(count, count));
        let mut buffer = vec![0 as c_char; most];
        let buf = buffer.as_mut_ptr();
        // SAFETY: the lists have `count` items, and the buffer has the largest size that any call
        // needs.
        let texts = unsafe {
            let text = || CStr::from_ptr(buf).to_string_lossy().into_owned();
            gasnett_format_memveclist(buf, count, pieces.as_ptr().cast());
            let memory = text();
            gasnett_format_addrlist(buf, count, vec![far; count].as_ptr(), usize::MAX);
            let addresses = text();
            gasnett_format_strides(buf, count, strides.as_ptr());
            let strided = text();
            let (null, strides) = (std::ptr::null_mut(), strides.as_ptr());
            let list = pieces.as_ptr().cast();
            gasnett_format_putvgetv(buf, far, u32::MAX, count, list, count, list);
            let vectors = text();
            let list = vec![far; count];
            let (list, most) = (list.as_ptr(), usize::MAX);
            gasnett_format_putigeti(buf, far, u32::MAX, count, list, most, count, list, most);
            let lists = text();
            gasnett_format_putsgets(
                buf,
                null,
                far,
                1,
                far,
                strides,
                far,
                strides,
                usize::MAX,
                counts.as_ptr(),
                count,
            );
            [memory, addresses, strided, vectors, lists, text()]
        };
        for text in texts {
            assert!(text.ends_with(']'), "truncated: {text}");
        }
    }
}
