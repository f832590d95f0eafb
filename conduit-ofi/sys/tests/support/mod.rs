//! An endpoint with all its objects, for tests and examples. It is opened for one provider, and
//! closed when it is dropped.

#![allow(dead_code)]

use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

use libfabric_sys::*;

/// All registration modes that a provider may require.
pub(crate) const MR_MODES: c_int =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;

/// The time after which a waiting test fails.
const PATIENCE: Duration = Duration::from_secs(300);

/// Returns the available libraries, each with a name for messages. They are the vendored library
/// and, if there is one, the system's. If LIBFABRIC names a library, it must exist.
pub(crate) fn libraries() -> Vec<(String, Library)> {
    let mut libraries = Vec::new();
    libfabric_vendored::provide();
    libraries.extend(Library::vendored());
    let named = std::env::var_os("LIBFABRIC");
    match (Library::load(named.as_ref().map(Path::new)), named) {
        (Ok(library), _) => libraries.push(library),
        (Err(error), Some(_)) => panic!("{error}"),
        (Err(error), None) => eprintln!("not tested with the system's libfabric: {error}"),
    }
    libraries
        .into_iter()
        .map(|library| {
            let version = library.version();
            let origin = match library.path() {
                Some(path) => path.display().to_string(),
                None => "vendored".to_owned(),
            };
            let name = format!("{origin} {}.{}", fi_major(version), fi_minor(version));
            (name, library)
        })
        .collect()
}

/// Returns a string that the library may free.
fn c_string(text: &str) -> *mut std::ffi::c_char {
    let text = CString::new(text).expect("no zero byte");
    // SAFETY: `text` is a string that ends in a zero byte.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// The hints other than the capabilities.
pub(crate) struct Hints<'a> {
    pub(crate) mode: &'a mut u64,
    pub(crate) tx: &'a mut fi_tx_attr,
    pub(crate) rx: &'a mut fi_rx_attr,
    pub(crate) domain: &'a mut fi_domain_attr,
}

/// A provider's offers of reliable endpoints with these capabilities. The list is freed when
/// dropped.
pub(crate) struct Offers<'a> {
    library: &'a Library,
    pub(crate) first: *mut fi_info,
}

impl<'a> Offers<'a> {
    pub(crate) fn ask(
        library: &'a Library,
        provider: Option<&str>,
        caps: u64,
        adjust: impl FnOnce(Hints),
    ) -> Result<Self, c_int> {
        let hints = library.allocinfo();
        assert!(!hints.is_null());
        // SAFETY: an empty offer has all its attributes, and its strings come from `malloc`. The
        // hints are freed here, and the result in `drop`.
        unsafe {
            let info = &mut *hints;
            info.caps = caps;
            info.mode = FI_CONTEXT | FI_CONTEXT2;
            (*info.ep_attr).r#type = FI_EP_RDM;
            (*info.domain_attr).mr_mode = MR_MODES;
            if let Some(provider) = provider {
                (*info.fabric_attr).prov_name = c_string(provider);
            }
            adjust(Hints {
                mode: &mut info.mode,
                tx: &mut *info.tx_attr,
                rx: &mut *info.rx_attr,
                domain: &mut *info.domain_attr,
            });
            let loopback =
                provider.is_some_and(|name| name.contains("tcp") || name.contains("udp"));
            let (node, flags) = match loopback {
                true => (c"127.0.0.1".as_ptr(), FI_SOURCE),
                false => (ptr::null(), 0),
            };
            let mut first = ptr::null_mut();
            let result = library.getinfo(API_VERSION, node, ptr::null(), flags, hints, &mut first);
            library.freeinfo(hints);
            match result {
                0 => Ok(Self { library, first }),
                error => Err(error),
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &fi_info> {
        // SAFETY: the list is from the library and lives as long as `self`.
        std::iter::successors(unsafe { self.first.as_ref() }, |info| unsafe {
            info.next.as_ref()
        })
    }
}

impl Drop for Offers<'_> {
    fn drop(&mut self) {
        // SAFETY: the list is from this library and is not used any more.
        unsafe { self.library.freeinfo(self.first) }
    }
}

/// Returns the provider's name.
pub(crate) fn provider(info: &fi_info) -> String {
    // SAFETY: offers have fabric attributes with a name.
    unsafe { CStr::from_ptr((*info.fabric_attr).prov_name) }
        .to_string_lossy()
        .into_owned()
}

/// The objects of one rank.
pub(crate) struct Rank {
    pub(crate) fabric: *mut fid_fabric,
    pub(crate) domain: *mut fid_domain,
    pub(crate) av: *mut fid_av,
    pub(crate) cq: *mut fid_cq,
    pub(crate) ep: *mut fid_ep,
    pub(crate) mr_mode: c_int,
    /// Space for the contexts of operations, which some providers use during the operations.
    contexts: Box<[fi_context2; 8]>,
    used: usize,
}

// SAFETY: domains are FI_THREAD_SAFE unless another mode is requested, and the contexts belong to
// the rank.
unsafe impl Send for Rank {}

macro_rules! check {
    ($call:expr) => {{
        let result = $call;
        if result != 0 {
            return Err(format!("{}: {}", stringify!($call), result));
        }
    }};
}

impl Rank {
    /// Opens an endpoint for this offer.
    pub(crate) fn open(
        library: &Library,
        info: *mut fi_info,
        wait_obj: fi_wait_obj,
    ) -> Result<Self, String> {
        // SAFETY: the offer is from this library. Each object is opened from objects opened
        // earlier, and `drop` closes the objects.
        unsafe {
            let mut rank = Self {
                fabric: ptr::null_mut(),
                domain: ptr::null_mut(),
                av: ptr::null_mut(),
                cq: ptr::null_mut(),
                ep: ptr::null_mut(),
                mr_mode: (*(*info).domain_attr).mr_mode,
                contexts: Box::default(),
                used: 0,
            };
            check!(library.fabric((*info).fabric_attr, &mut rank.fabric, ptr::null_mut()));
            check!(fi_domain(
                rank.fabric,
                info,
                &mut rank.domain,
                ptr::null_mut()
            ));
            let mut cq_attr = fi_cq_attr {
                format: FI_CQ_FORMAT_DATA,
                size: 128,
                wait_obj,
                ..Default::default()
            };
            check!(fi_cq_open(
                rank.domain,
                &mut cq_attr,
                &mut rank.cq,
                ptr::null_mut()
            ));
            let mut av_attr = fi_av_attr {
                r#type: FI_AV_TABLE,
                count: 4,
                ..Default::default()
            };
            check!(fi_av_open(
                rank.domain,
                &mut av_attr,
                &mut rank.av,
                ptr::null_mut()
            ));
            check!(fi_endpoint(
                rank.domain,
                info,
                &mut rank.ep,
                ptr::null_mut()
            ));
            check!(fi_ep_bind(rank.ep, &raw mut (*rank.av).fid, 0));
            check!(fi_ep_bind(
                rank.ep,
                &raw mut (*rank.cq).fid,
                FI_TRANSMIT | FI_RECV
            ));
            check!(fi_enable(rank.ep));
            Ok(rank)
        }
    }

    /// Returns the endpoint's address.
    pub(crate) fn name(&self) -> Vec<u8> {
        let mut name = vec![0; 1024];
        let mut len = name.len();
        // SAFETY: the endpoint is open, and the buffer has `len` bytes.
        let result =
            unsafe { fi_getname(&raw mut (*self.ep).fid, name.as_mut_ptr().cast(), &mut len) };
        assert_eq!(result, 0);
        name.truncate(len);
        name
    }

    /// Inserts a peer's address.
    pub(crate) fn insert(&self, name: &[u8]) -> fi_addr_t {
        let mut handle = FI_ADDR_UNSPEC;
        // SAFETY: the vector is open, and `name` is an address of the same provider.
        let count = unsafe {
            fi_av_insert(
                self.av,
                name.as_ptr().cast(),
                1,
                &mut handle,
                0,
                ptr::null_mut(),
            )
        };
        assert_eq!(count, 1);
        handle
    }

    /// Returns a context for the next operation.
    pub(crate) fn context(&mut self) -> *mut c_void {
        self.used = (self.used + 1) % self.contexts.len();
        (&raw mut self.contexts[self.used]).cast()
    }

    /// Returns the next completion, if there is one.
    pub(crate) fn poll(&self) -> Option<fi_cq_data_entry> {
        let mut entry = fi_cq_data_entry::default();
        // SAFETY: the queue is open, and `entry` has its format.
        let count = unsafe { fi_cq_read(self.cq, (&raw mut entry).cast(), 1) };
        match count {
            1 => Some(entry),
            again if again == -(FI_EAGAIN as isize) => None,
            error => panic!("{error}: {}", self.failure()),
        }
    }

    /// Returns the text of a failure.
    pub(crate) fn failure(&self) -> String {
        let mut entry = fi_cq_err_entry::default();
        // SAFETY: the queue is open, `entry` is valid for writes, and the text is the provider's.
        unsafe {
            let count = fi_cq_readerr(self.cq, &mut entry, 0);
            let text = fi_cq_strerror(
                self.cq,
                entry.prov_errno,
                entry.err_data,
                ptr::null_mut(),
                0,
            );
            let text = match text.is_null() {
                true => String::new(),
                false => CStr::from_ptr(text).to_string_lossy().into_owned(),
            };
            format!("{count}: {entry:?} {text}")
        }
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let objects: [*mut fid; 5] = [
            self.ep.cast(),
            self.cq.cast(),
            self.av.cast(),
            self.domain.cast(),
            self.fabric.cast(),
        ];
        for object in objects.into_iter().filter(|object| !object.is_null()) {
            // SAFETY: each object is open, and the objects that depend on it are closed.
            let result = unsafe { fi_close(object) };
            assert_eq!(result, 0, "fi_close");
        }
    }
}

/// Calls `look` until it returns a result. Panics if the time limit is exceeded.
pub(crate) fn patiently<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what}");
    }
}

/// Submits an operation. Makes progress on these ranks as long as the operation is refused.
pub(crate) fn submit(ranks: &[&Rank], mut operation: impl FnMut() -> isize) {
    patiently("an operation stays refused", || match operation() {
        0 => Some(()),
        again if again == -(FI_EAGAIN as isize) => {
            for rank in ranks {
                assert!(rank.poll().is_none(), "an unexpected completion");
            }
            None
        }
        error => panic!("an operation failed: {error}"),
    });
}

/// Waits for these numbers of completions of the two ranks. Makes progress on both ranks.
pub(crate) fn complete(ranks: [&Rank; 2], mut wanted: [usize; 2]) -> Vec<fi_cq_data_entry> {
    let mut entries = Vec::new();
    patiently("no completion", || {
        for (rank, wanted) in ranks.iter().zip(&mut wanted) {
            if let Some(entry) = rank.poll() {
                *wanted = wanted.checked_sub(1).expect("an unexpected completion");
                entries.push(entry);
            }
        }
        (wanted == [0, 0]).then_some(())
    });
    entries
}

/// Registered memory.
pub(crate) struct Memory {
    pub(crate) bytes: Box<[u64]>,
    pub(crate) mr: *mut fid_mr,
    virt_addr: bool,
}

impl Memory {
    pub(crate) fn register(rank: &Rank, words: usize, requested_key: u64) -> Result<Self, String> {
        let mut memory = Self {
            bytes: vec![0; words].into(),
            mr: ptr::null_mut(),
            virt_addr: rank.mr_mode & FI_MR_VIRT_ADDR != 0,
        };
        let access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        // SAFETY: the memory lives longer than the registration, because `drop` closes the
        // registration first.
        unsafe {
            check!(fi_mr_reg(
                rank.domain,
                memory.bytes.as_mut_ptr().cast(),
                words * 8,
                access,
                0,
                requested_key,
                0,
                &mut memory.mr,
                ptr::null_mut(),
            ));
            if rank.mr_mode & FI_MR_ENDPOINT != 0 {
                check!(fi_mr_bind(memory.mr, &raw mut (*rank.ep).fid, 0));
                check!(fi_mr_enable(memory.mr));
            }
        }
        Ok(memory)
    }

    pub(crate) fn key(&self) -> u64 {
        // SAFETY: the registration is open.
        unsafe { fi_mr_key(self.mr) }
    }

    pub(crate) fn desc(&self) -> *mut c_void {
        // SAFETY: the registration is open.
        unsafe { fi_mr_desc(self.mr) }
    }

    /// Returns the address by which peers name the word with this index.
    pub(crate) fn remote(&self, index: usize) -> u64 {
        let base = match self.virt_addr {
            true => self.bytes.as_ptr() as u64,
            false => 0,
        };
        base + 8 * index as u64
    }

    pub(crate) fn pointer(&mut self, index: usize) -> *mut c_void {
        self.bytes[index..].as_mut_ptr().cast()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !self.mr.is_null() {
            // SAFETY: the registration is open, and no operation uses it any more.
            unsafe { fi_close(&raw mut (*self.mr).fid) };
        }
    }
}
