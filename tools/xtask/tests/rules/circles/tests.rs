//! Tests that find the import cycles of small crates.

use std::collections::BTreeMap;

use super::circles;

/// Returns the import cycles of a crate with these files, each as the files' names.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let files: BTreeMap<_, _> = files.iter().copied().collect();
    let read = |path: &str| files.get(path).map(|text| (*text).to_owned());
    let circles = circles("lib.rs", &read).into_iter();
    circles
        .map(|files| files.into_iter().collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn use_items_and_paths_in_bodies_are_imports() {
    let root = ("lib.rs", "mod a; mod b; mod c;");
    let a = ("/a.rs", "use super::b::{self, B}; pub struct A;");
    let c = ("/c/mod.rs", "mod d; fn f() { crate::a::f(); }");
    let d = ("/c/d.rs", "use super::*;");
    let b = ("/b.rs", "pub struct B; fn f() { g(|| crate::a::A) }");
    assert_eq!(found(&[root, a, b, c, d]), ["/a.rs /b.rs"]);
    let b = ("/b.rs", "pub struct B;");
    assert!(found(&[root, a, b, c, d]).is_empty(), "downwards only");
    let c = ("/c/mod.rs", "mod d; fn f() { d::g(vec![1; 2]); }");
    assert_eq!(found(&[root, a, b, c, d]), ["/c/d.rs /c/mod.rs"]);
}

#[test]
fn a_declaration_is_no_import() {
    let root = ("lib.rs", "pub mod a; pub struct Root;");
    let a = ("/a.rs", "use crate::Root;");
    assert!(found(&[root, a]).is_empty());
}

#[test]
fn re_exports_lead_to_the_file_that_defines() {
    let root = (
        "lib.rs",
        "mod a; mod b; pub use a::A as Alias; pub use b::*; pub use other::C;",
    );
    let a = ("/a.rs", "use crate::B; pub struct A;");
    let b = ("/b.rs", "fn f(a: crate::Alias) {} pub struct B;");
    assert_eq!(found(&[root, a, b]), ["/a.rs /b.rs"]);
    let root = (
        "lib.rs",
        "mod a; mod b; pub use a::A; pub use b::*; fn f(a: A) {}",
    );
    let b = ("/b.rs", "pub use crate::C; pub struct B;");
    assert!(found(&[root, a, b]).is_empty(), "re-exports are no imports");
    let a = ("/a.rs", "use crate::f; pub struct A;");
    assert_eq!(found(&[root, a, b]), ["/a.rs lib.rs"], "lib.rs uses A too");
}

#[test]
fn visibility_is_no_import() {
    let root = ("lib.rs", "mod a; use a::A;");
    let a = ("/a.rs", "pub(in crate) struct A { pub(in crate) f: u8 }");
    assert!(found(&[root, a]).is_empty());
}

#[test]
fn names_of_other_crates_are_no_imports() {
    let root = ("lib.rs", "mod a; pub use other::C; use a::A;");
    let a = ("/a.rs", "use crate::C; use b::B; pub struct A;");
    assert!(found(&[root, a]).is_empty());
}

#[test]
fn code_of_tests_is_left_out() {
    let root = ("lib.rs", "mod a; use a::A; pub struct Root;");
    let a = (
        "/a.rs",
        "pub struct A { #[cfg(test)] root: crate::Root, a: u8 }
         #[cfg(test)] #[path = \"missing.rs\"] mod tests;
         #[cfg(all(test, not(loom)))] mod more { use crate::Root; }
         #[cfg(test)] fn f() -> crate::Root { crate::Root }",
    );
    assert!(found(&[root, a]).is_empty());
    let a = ("/a.rs", "pub struct A; #[cfg(not(test))] use crate::Root;");
    assert_eq!(found(&[root, a]), ["/a.rs lib.rs"]);
}

#[test]
fn inline_modules_and_given_paths_are_followed() {
    let root = (
        "lib.rs",
        "mod a { pub mod b; } #[path = \"d.rs\"] mod c; pub struct Root;",
    );
    let b = ("/a/b.rs", "use super::super::c::C;");
    let d = ("/d.rs", "use crate::a::b; pub struct C;");
    assert_eq!(found(&[root, b, d]), ["/a/b.rs /d.rs"]);
}

#[test]
fn imports_of_each_other_end() {
    let root = ("lib.rs", "mod a; mod b; use a::X;");
    let a = ("/a.rs", "pub use crate::b::*;");
    let b = ("/b.rs", "pub use crate::a::*;");
    assert!(found(&[root, a, b]).is_empty());
}
