//! Tests of loading libportals and libraries that are missing or different.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;

use portals4_sys::*;

/// The functions that every library must have.
pub(crate) const FUNCTIONS: [&str; 52] = [
    "PtlAtomic",
    "PtlAtomicSync",
    "PtlCTAlloc",
    "PtlCTCancelTriggered",
    "PtlCTFree",
    "PtlCTGet",
    "PtlCTInc",
    "PtlCTPoll",
    "PtlCTSet",
    "PtlCTWait",
    "PtlEQAlloc",
    "PtlEQFree",
    "PtlEQGet",
    "PtlEQPoll",
    "PtlEQWait",
    "PtlEndBundle",
    "PtlFetchAtomic",
    "PtlFini",
    "PtlGet",
    "PtlGetId",
    "PtlGetMap",
    "PtlGetPhysId",
    "PtlGetUid",
    "PtlHandleIsEqual",
    "PtlInit",
    "PtlLEAppend",
    "PtlLESearch",
    "PtlLEUnlink",
    "PtlMDBind",
    "PtlMDRelease",
    "PtlMEAppend",
    "PtlMESearch",
    "PtlMEUnlink",
    "PtlNIFini",
    "PtlNIHandle",
    "PtlNIInit",
    "PtlNIStatus",
    "PtlPTAlloc",
    "PtlPTDisable",
    "PtlPTEnable",
    "PtlPTFree",
    "PtlPut",
    "PtlSetMap",
    "PtlStartBundle",
    "PtlSwap",
    "PtlTriggeredAtomic",
    "PtlTriggeredCTInc",
    "PtlTriggeredCTSet",
    "PtlTriggeredFetchAtomic",
    "PtlTriggeredGet",
    "PtlTriggeredPut",
    "PtlTriggeredSwap",
];

/// Builds a shared library from this C text.
pub(crate) fn build(name: &str, text: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(format!("{name}.c"));
    let library = folder.join(format!("lib{name}.so"));
    std::fs::write(&source, text).expect("the folder can be written");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status()
        .expect("cc runs");
    assert!(status.success());
    library
}

/// Returns the C text of functions, each of which returns its number in the list.
pub(crate) fn functions<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for (number, name) in names.into_iter().enumerate() {
        writeln!(text, "int {name}(void) {{ return {number}; }}").expect("a string grows");
    }
    text
}

#[test]
fn an_absent_file_is_named() {
    let error = Library::load(Some(Path::new("libportals-absent.so"))).unwrap_err();
    assert!(
        matches!(&error, LoadError::NotLoaded { library, .. } if library == "libportals-absent.so")
    );
    let text = error.to_string();
    assert!(
        text.starts_with("libportals can't be loaded from libportals-absent.so: "),
        "{text}"
    );
}

#[test]
fn a_name_with_a_zero_byte_is_refused() {
    let error = Library::load(Some(Path::new("lib\0portals"))).unwrap_err();
    assert!(error.to_string().contains("zero byte"), "{error}");
}

#[test]
fn another_library_is_refused() {
    let other = build("other", "int other(void) { return 1; }");
    let library = other.display().to_string();
    let error = Library::load(Some(&other)).unwrap_err();
    assert_eq!(
        error,
        LoadError::NoFunction {
            library: library.clone(),
            function: "PtlInit"
        }
    );
    assert_eq!(
        error.to_string(),
        format!("{library} is not libportals of Portals 4: it lacks the function `PtlInit`")
    );
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn libc_is_refused() {
    let error = Library::load(Some(Path::new("libc.so.6"))).unwrap_err();
    assert!(matches!(error, LoadError::NoFunction { .. }), "{error}");
}

/// Checks that incomplete libraries are refused, for example those of Portals 3.3 or a partial
/// build.
#[test]
fn each_function_has_to_be_there() {
    for missing in ["PtlInit", "PtlNIInit", "PtlPTAlloc", "PtlHandleIsEqual"] {
        let rest = FUNCTIONS.into_iter().filter(|name| *name != missing);
        let library = build(&format!("without-{missing}"), &functions(rest));
        let error = Library::load(Some(&library)).unwrap_err();
        assert!(
            matches!(&error, LoadError::NoFunction { function, .. } if *function == missing),
            "{error}"
        );
    }
}

#[test]
fn a_library_of_bxi_is_refused() {
    let names = FUNCTIONS.into_iter().chain(["PtlAbort", "PtlToStr"]);
    let bxi = build("bxi", &functions(names));
    let error = Library::load(Some(&bxi)).unwrap_err();
    let library = bxi.display().to_string();
    assert!(
        matches!(&error, LoadError::Bxi { library: named } if *named == library),
        "{error}"
    );
    assert!(error.to_string().starts_with(&library), "{error}");
}

#[test]
fn versions_are_told_apart() {
    let old = build("old", &functions(FUNCTIONS));
    let old = Library::load(Some(&old)).expect("a library");
    assert_eq!(old.version(), Version::V4_0);
    assert_eq!(old.constants().PTL_ME_MANAGE_LOCAL, 1 << 16);
    // SAFETY: the library lacks this function.
    assert_eq!(unsafe { old.PtlAbort() }, None);

    let path = build("new", &functions(FUNCTIONS.into_iter().chain(["PtlAbort"])));
    let new = Library::load(Some(&path)).expect("a library");
    assert_eq!(new.version(), Version::V4_3);
    assert_eq!(new.constants().PTL_ME_MANAGE_LOCAL, 1 << 15);
    assert_eq!(new.path(), path);
    // SAFETY: the test's function does nothing.
    assert_eq!(unsafe { new.PtlAbort() }, Some(()));
}

/// Checks that functions are not mixed up, and that structures are passed by value according to the
/// C ABI.
#[test]
fn arguments_arrive_in_c() {
    let called = ["PtlPut", "PtlCTSet", "PtlNIInit", "PtlEQGet"];
    let rest = FUNCTIONS.into_iter().filter(|name| !called.contains(name));
    let mut text = functions(rest);
    text.push_str(
        "#include <stdint.h>
         typedef union { uint32_t rank; struct { uint32_t nid, pid; } phys; } process;
         typedef struct { uint64_t success, failure; } count;
         int PtlPut(uint32_t md, uint64_t local, uint64_t length, unsigned char ack, process target,
                 uint32_t index, uint64_t bits, uint64_t remote, void *user, uint64_t data) {
             return md == 1 && local == 2 && length == 3 && ack == 1 && target.phys.nid == 4
                 && target.phys.pid == 5 && index == 6 && bits == ~7ull && remote == 8 && user == 0
                 && data == 9 ? 0 : 1;
         }
         int PtlCTSet(uint32_t counter, count new) {
             return counter == 1 && new.success == 2 && new.failure == 3 ? 0 : 1;
         }
         int PtlNIInit(unsigned iface, unsigned options, uint32_t pid, const void *desired,
                 void *actual, uint32_t *handle) {
             *handle = options;
             return iface == ~0u && pid == 0xffff && !desired && !actual ? 0 : 1;
         }
         int PtlEQGet(uint32_t queue, unsigned char *event) {
             event[72] = 14;
             event[76] = 8;
             return queue;
         }",
    );
    let library = Library::load(Some(&build("called", &text))).expect("a library");
    let target = ptl_process_t::from_phys(4, 5);
    let none = ptr::null_mut();
    // SAFETY: the test's functions do not follow the pointers that are null here.
    unsafe {
        let put = library.PtlPut(1, 2, 3, PTL_ACK_REQ, target, 6, !7, 8, none, 9);
        assert_eq!(put, PTL_OK);
        let count = ptl_ct_event_t {
            success: 2,
            failure: 3,
        };
        assert_eq!(library.PtlCTSet(1, count), PTL_OK);
        let mut interface = PTL_INVALID_HANDLE;
        let options = PTL_NI_MATCHING | PTL_NI_LOGICAL;
        let opened = library.PtlNIInit(
            PTL_IFACE_DEFAULT,
            options,
            PTL_PID_ANY,
            ptr::null(),
            ptr::null_mut(),
            &mut interface,
        );
        assert_eq!((opened, interface), (PTL_OK, options));
        let mut event = ptl_event_t::default();
        assert_eq!(library.PtlEQGet(4, &mut event), PTL_EQ_EMPTY);
        assert_eq!(event.r#type, PTL_EVENT_AUTO_FREE);
        assert_eq!(event.atomic_type, PTL_UINT64_T);
    }
}

#[test]
fn threads_may_share_a_library() {
    fn shared<T: Send + Sync + Clone>() {}
    shared::<Library>();
}
