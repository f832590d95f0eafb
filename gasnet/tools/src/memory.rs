//! Memory for clients: whole pages, and the C interface of the checked heap with its settings.

use std::ffi::{CStr, c_char, c_void};
use std::fs::{Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Mutex, Once, PoisonError};

use crate::edge::{text, text_or_null, write_text};
use crate::failure::fatal;
use crate::heap::{Fill, Heap, HeapError, Settings, Statistics};
use crate::{environment, job, number};

static HEAP: Mutex<Option<Heap>> = Mutex::new(None);

/// Calls `use_it` with the process's heap, whose settings are read at its first use.
fn with_heap<T>(use_it: impl FnOnce(&mut Heap) -> T) -> T {
    let mut heap = HEAP.lock().unwrap_or_else(PoisonError::into_inner);
    use_it(heap.get_or_insert_with(|| {
        report_at_exit();
        Heap::new(settings())
    }))
}

/// Like [`with_heap`], but a failure is a fatal error that names the caller's location.
fn checked<T>(place: &CStr, use_it: impl FnOnce(&mut Heap) -> Result<T, HeapError>) -> T {
    // Report the error outside the closure, because a fatal error runs code that may allocate from
    // this heap.
    with_heap(use_it)
        .unwrap_or_else(|error| fatal(&format!("{}: {error}", place.to_string_lossy())))
}

fn settings() -> Settings {
    let scan_freed = environment::yes_no(c"GASNET_MALLOC_SCANFREED", false);
    let clobber = scan_freed || environment::yes_no(c"GASNET_MALLOC_CLOBBER", false);
    let initial = environment::yes_no(c"GASNET_MALLOC_INIT", false);
    Settings {
        initial: initial.then(|| fill_setting(c"GASNET_MALLOC_INITVAL")),
        clobber: clobber.then(|| fill_setting(c"GASNET_MALLOC_CLOBBERVAL")),
        leak: scan_freed || environment::yes_no(c"GASNET_MALLOC_LEAKALL", false),
        scan_freed,
        check_all: environment::yes_no(c"GASNET_MALLOC_EXTRACHECK", false),
    }
}

fn fill_setting(name: &CStr) -> Fill {
    let value = environment::setting(name).unwrap_or_else(|| "NAN".into());
    parse_fill(&value).unwrap_or_else(|| {
        fatal(&format!(
            "{}='{value}' is not accepted: use an integer, NAN, sNAN or qNAN",
            name.to_string_lossy()
        ))
    })
}

/// Parses a byte (0 to 255), a word, or a quiet or signalling NaN.
fn parse_fill(value: &str) -> Option<Fill> {
    const QUIET: u64 = 0x7FF8_0000_0000_0001;
    const SIGNALLING: u64 = 0x7FF0_0000_0000_0001;
    match value.trim().to_ascii_uppercase().as_str() {
        "NAN" | "QNAN" => Some(Fill::Word(QUIET)),
        "SNAN" => Some(Fill::Word(SIGNALLING)),
        text => match text.strip_prefix("0X") {
            // Parse the number as unsigned, because all 64 bits are allowed.
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => number::parse_integer(text, 0)
                .ok()
                .map(|value| value as u64),
        }
        .map(|value| u8::try_from(value).map_or(Fill::Word(value), Fill::Byte)),
    }
}

/// Returns the file that `GASNET_MALLOCFILE` requests for this rank's report, if any. A `%` in the
/// setting stands for the rank.
fn report_file() -> Option<String> {
    let file = environment::setting(c"GASNET_MALLOCFILE")?;
    let rank = job::place().map_or(0, |place| place.rank);
    let nodes = environment::setting(c"GASNET_MALLOCNODES").unwrap_or_default();
    job::names_rank(&nodes, rank).then(|| file.replace('%', &rank.to_string()))
}

/// Writes a file that only this user can read.
///
/// An existing file is overwritten, as in GASNet, but only if it is a regular file that belongs to
/// this user and has a single name. In a world-writable directory, another user could otherwise
/// place a link to a file that this user would then overwrite, or provide the file and then read
/// the report.
fn write_file(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    // Opening a pipe fails instead of waiting for its reader.
    options
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut file = match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let there = std::fs::symlink_metadata(path)?;
            overwritable(&there)?;
            let file = options.open(path)?;
            // The file may have been replaced since it was checked.
            overwritable(&file.metadata()?)?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.set_len(0)?;
            file
        }
        created => created?,
    };
    file.write_all(text)
}

fn overwritable(there: &Metadata) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    match there.is_file() && there.uid() == user && there.nlink() == 1 {
        true => Ok(()),
        false => Err(io::Error::other(
            "the existing file is not a regular file of this user with a single name",
        )),
    }
}

fn report_at_exit() {
    static ONCE: Once = Once::new();
    extern "C" fn report() {
        let Some(file) = report_file() else { return };
        let report = HEAP
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(Heap::report);
        let report = report.unwrap_or_default();
        let written = match file.as_str() {
            "-" | "stderr" => std::io::stderr().write_all(report.as_bytes()),
            "stdout" => std::io::stdout().write_all(report.as_bytes()),
            file => write_file(Path::new(file), report.as_bytes()),
        };
        if let Err(error) = written {
            let _ = writeln!(
                std::io::stderr(),
                "GASNET_MALLOCFILE: cannot write {file}: {error}"
            );
        }
    }
    // SAFETY: `report` lives as long as the process, takes no arguments and does not unwind.
    ONCE.call_once(|| unsafe {
        libc::atexit(report);
    });
}

// ---- The edge to C ----

#[unsafe(no_mangle)]
extern "C" fn gasnett_mmap(segsize: usize) -> *mut c_void {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    // SAFETY: this maps new memory at an address that the system chooses.
    let memory = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            segsize,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    memory.unwrap_or_else(|error| {
        fatal(&format!(
            "gasnett_mmap: cannot map {segsize} bytes: {error}"
        ))
    })
}

/// # Safety
/// `stats` must be null or point to a `gasnett_heapstats_t`.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_getheapstats(stats: *mut Statistics) {
    // SAFETY: the caller guarantees that `stats` is null or points to a `gasnett_heapstats_t`.
    if let Some(stats) = unsafe { stats.as_mut() } {
        let heap = HEAP.lock().unwrap_or_else(PoisonError::into_inner);
        *stats = heap.as_ref().map(Heap::statistics).unwrap_or_default();
    }
}

/// # Safety
/// `place` must be null or a C string.
unsafe fn place_of<'a>(place: *const c_char) -> &'a CStr {
    // SAFETY: the caller guarantees that `place` is null or a C string.
    unsafe { text_or_null(place) }.unwrap_or(c"(unknown place)")
}

fn allocate(size: usize, zeroed: bool, place: &CStr) -> *mut c_void {
    let name = place.to_string_lossy();
    checked(place, |heap| heap.allocate(size, zeroed, &name))
}

/// # Safety
/// `place` must be null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_heap_malloc(size: usize, place: *const c_char) -> *mut c_void {
    // SAFETY: the caller guarantees that `place` is null or a C string.
    allocate(size, false, unsafe { place_of(place) })
}

/// # Safety
/// `place` must be null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_heap_calloc(
    count: usize,
    size: usize,
    place: *const c_char,
) -> *mut c_void {
    // SAFETY: the caller guarantees that `place` is null or a C string.
    let place = unsafe { place_of(place) };
    // A product that overflows becomes a size that cannot be allocated.
    allocate(count.saturating_mul(size), true, place)
}

/// # Safety
/// `place` must be null or a C string. `block` may be any pointer, because the heap detects
/// pointers that are not its blocks.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_heap_realloc(
    block: *mut c_void,
    size: usize,
    place: *const c_char,
) -> *mut c_void {
    // SAFETY: the caller guarantees that `place` is null or a C string.
    let place = unsafe { place_of(place) };
    if block.is_null() {
        return allocate(size, false, place);
    }
    let name = place.to_string_lossy();
    checked(place, |heap| heap.reallocate(block, size, &name))
}

/// # Safety
/// Same as [`conduit_tools_heap_realloc`].
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_heap_free(block: *mut c_void, place: *const c_char) {
    if !block.is_null() {
        // SAFETY: the caller guarantees that `place` is null or a C string.
        checked(unsafe { place_of(place) }, |heap| heap.free(block));
    }
}

/// # Safety
/// Both pointers must be null or C strings.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_heap_strdup(
    string: *const c_char,
    place: *const c_char,
) -> *mut c_char {
    // SAFETY: the caller guarantees that both pointers are null or C strings.
    unsafe { conduit_tools_heap_strndup(string, usize::MAX, place) }
}

/// # Safety
/// `place` must be null or a C string. `string` must be null, a C string, or valid for reads of
/// `most` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_heap_strndup(
    string: *const c_char,
    most: usize,
    place: *const c_char,
) -> *mut c_char {
    // SAFETY: the caller guarantees that `place` is null or a C string, and that `string` is null,
    // a C string, or valid for reads of `most` bytes.
    let (bytes, place) = unsafe {
        (
            at_most(string, most, "gasnett_debug_strdup"),
            place_of(place),
        )
    };
    let copy = allocate(bytes.len() + 1, false, place).cast::<c_char>();
    // SAFETY: `copy` was allocated with `bytes.len() + 1` bytes.
    unsafe { write_text(copy, bytes.len() + 1, bytes) };
    copy
}

/// # Safety
/// `string` must be null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_strdup(string: *const c_char) -> *mut c_char {
    // SAFETY: the caller guarantees that `string` is null or a C string.
    unsafe { libc::strdup(text(string, "gasnett_debug_strdup", "text").as_ptr()) }
}

/// # Safety
/// `string` must be null, a C string, or valid for reads of `most` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_strndup(string: *const c_char, most: usize) -> *mut c_char {
    // SAFETY: the caller guarantees that `string` is null, a C string, or valid for reads of `most`
    // bytes, and `at_most` refuses a null pointer.
    unsafe {
        libc::strndup(
            at_most(string, most, "gasnett_debug_strndup")
                .as_ptr()
                .cast(),
            most,
        )
    }
}

/// Returns the bytes of `string` up to its end, but at most `most` bytes.
///
/// # Safety
/// `string` must be null, a C string, or valid for reads of `most` bytes.
unsafe fn at_most<'a>(string: *const c_char, most: usize, function: &str) -> &'a [u8] {
    if string.is_null() {
        fatal(&format!("{function}: text is a null pointer"));
    }
    // SAFETY: `string` is not null, so the caller guarantees that it is a C string or valid for
    // reads of `most` bytes, and `strnlen` reads no further.
    unsafe { std::slice::from_raw_parts(string.cast::<u8>(), libc::strnlen(string, most)) }
}

/// # Safety
/// `place` must be null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_heap_check(block: *const c_void, place: *const c_char) {
    // SAFETY: the caller guarantees that `place` is null or a C string.
    checked(unsafe { place_of(place) }, |heap| heap.check(block));
}

/// # Safety
/// `place` must be null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_heap_check_one(place: *const c_char) {
    // SAFETY: the caller guarantees that `place` is null or a C string.
    checked(unsafe { place_of(place) }, Heap::check_next);
}

/// # Safety
/// `place` must be null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_tools_heap_check_all(place: *const c_char) {
    // SAFETY: the caller guarantees that `place` is null or a C string.
    checked(unsafe { place_of(place) }, |heap| heap.check_all());
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_fills_memory() {
        assert_eq!(parse_fill("0"), Some(Fill::Byte(0)));
        assert_eq!(parse_fill("255"), Some(Fill::Byte(255)));
        assert_eq!(parse_fill("256"), Some(Fill::Word(256)));
        assert_eq!(parse_fill("-1"), Some(Fill::Word(u64::MAX)));
        assert_eq!(parse_fill("0xFFFFFFFFFFFFFFFF"), Some(Fill::Word(u64::MAX)));
        assert_eq!(parse_fill("0xab"), Some(Fill::Byte(0xAB)));
        for name in ["NAN", "sNAN", "qNAN"] {
            let Some(Fill::Word(word)) = parse_fill(name) else {
                panic!("{name} is a word")
            };
            assert!(f64::from_bits(word).is_nan());
        }
        assert_eq!(parse_fill("lots"), None);
        assert_eq!(parse_fill(""), None);
    }

    #[test]
    fn a_report_overwrites_nothing_but_what_is_ones_own() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let read = |name: &str| std::fs::read_to_string(at(name)).unwrap();

        let is_private = |name: &str| std::fs::metadata(at(name)).unwrap().mode() & 0o077 == 0;
        write_file(&at("report"), b"a long one").unwrap();
        assert!(is_private("report"));
        // A file that others could read until now.
        std::fs::set_permissions(at("report"), Permissions::from_mode(0o644)).unwrap();
        write_file(&at("report"), b"short").unwrap();
        assert_eq!(read("report"), "short");
        assert!(is_private("report"));

        std::fs::write(at("precious"), "precious").unwrap();
        symlink(at("precious"), at("link")).unwrap();
        symlink(at("new"), at("nowhere")).unwrap();
        std::fs::hard_link(at("precious"), at("name")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), pipe, mode, 0).unwrap();
        for name in ["link", "nowhere", "name", "folder", "pipe"] {
            let error = write_file(&at(name), b"report").unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{name}: {error}");
        }
        assert_eq!(read("precious"), "precious");
        assert!(!at("new").exists());
    }
}
