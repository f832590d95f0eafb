//! Tests of loading, with existing, missing and wrong libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Offers, libraries, provider};
use libfabric_sys::*;

/// Builds a shared library from this C text.
fn build(name: &str, text: &str) -> PathBuf {
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

#[test]
fn an_absent_file_is_named() {
    let error = Library::load(Some(Path::new("libfabric-absent.so.1"))).unwrap_err();
    assert!(
        matches!(&error, LoadError::NotLoaded { library, .. } if library == "libfabric-absent.so.1")
    );
    let text = error.to_string();
    assert!(
        text.starts_with("cannot load libfabric from libfabric-absent.so.1: "),
        "{text}"
    );
}

#[test]
fn a_name_with_a_zero_byte_is_refused() {
    let error = Library::load(Some(Path::new("lib\0fabric"))).unwrap_err();
    assert!(error.to_string().contains("zero byte"), "{error}");
}

#[test]
fn another_library_is_refused() {
    let other = build("other", "int other(void) { return 1; }");
    let error = Library::load(Some(&other)).unwrap_err();
    assert!(
        matches!(
            &error,
            LoadError::NoFunction {
                function: "fi_version",
                ..
            }
        ),
        "{error}"
    );
}

/// The constructor behaves in the same way as that of libinfinipath, which Debian's libfabric
/// loads.
#[test]
fn a_constructor_takes_no_signal_over() {
    let taking = build(
        "taking",
        "#include <signal.h>
         static void taken(int signal) { (void) signal; }
         __attribute__((constructor)) static void take(void) { signal(SIGUSR2, taken); }",
    );
    Library::load(Some(&taking)).unwrap_err();
    // SAFETY: the call sets the disposition and reads the previous one. No other test uses signals.
    let before = unsafe { libc::signal(libc::SIGUSR2, libc::SIG_DFL) };
    assert_eq!(before, libc::SIG_DFL);
}

#[test]
fn an_old_version_is_refused() {
    let old = build(
        "old",
        "unsigned fi_version(void) { return (1 << 16) | 14; }",
    );
    let error = Library::load(Some(&old)).unwrap_err();
    let library = old.display().to_string();
    assert_eq!(
        error,
        LoadError::TooOld {
            library: library.clone(),
            major: 1,
            minor: 14
        }
    );
    assert_eq!(
        error.to_string(),
        format!("{library} is libfabric 1.14, must be 1.15 or newer")
    );
}

#[test]
fn a_library_without_versions_of_symbols_will_do() {
    let plain = build(
        "plain",
        "unsigned fi_version(void) { return (2 << 16) | 1; }
         int fi_getinfo(void) { return -61; }
         void fi_freeinfo(void) {}
         void *fi_dupinfo(void) { return 0; }
         int fi_fabric(void) { return -38; }
         const char *fi_strerror(int error) { return error == 38 ? \"thirty-eight\" : 0; }
         const char *fi_tostr(void) { return \"text\"; }",
    );
    let library = Library::load(Some(&plain)).expect("a library");
    assert_eq!(library.version(), fi_version(2, 1));
    assert_eq!(library.path(), Some(&*plain));
    assert_eq!(library.strerror(-38), "thirty-eight");
    assert_eq!(library.strerror(1), "");
    assert!(library.allocinfo().is_null());
}

#[test]
fn libraries_answer() {
    for (name, library) in libraries() {
        assert!(library.version() >= API_VERSION, "{name}");
        assert!(!library.strerror(FI_EAGAIN).is_empty());
        assert_eq!(library.strerror(-FI_ENOAV), library.strerror(FI_ENOAV));
        let kind = FI_EP_RDM;
        // SAFETY: the value has the stated type.
        let text = unsafe { library.tostr((&raw const kind).cast(), FI_TYPE_EP_TYPE) };
        assert_eq!(text, "FI_EP_RDM", "{name}");
        let offers = Offers::ask(&library, None, FI_MSG, |_| ()).expect("offers");
        for info in offers.iter() {
            // SAFETY: offers have all attributes.
            let (kind, api) = unsafe { ((*info.ep_attr).r#type, (*info.fabric_attr).api_version) };
            assert_eq!(kind, FI_EP_RDM, "{name}");
            assert_eq!(api, API_VERSION, "{name}: {}", provider(info));
            assert_ne!(info.caps & FI_MSG, 0);
            // SAFETY: the offer is from this library, which also frees the copy.
            unsafe {
                let copy = library.dupinfo(info);
                assert_eq!((*copy).caps, info.caps);
                assert_eq!(provider(&*copy), provider(info));
                library.freeinfo(copy);
            }
        }
    }
}

#[test]
fn threads_may_share_a_library() {
    fn shared<T: Send + Sync + Clone>() {}
    shared::<Library>();
}
