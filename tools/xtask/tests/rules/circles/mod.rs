//! Imports must not form cycles: no file of a crate may import from a file that imports from it,
//! directly or indirectly. `circles.tsv` lists the remaining import cycles. Each row contains a
//! crate and the files of a cycle. Cycles may shrink but not grow.
//!
//! An import is a path that a file names, in a `use` item or elsewhere. It leads to the file that
//! defines the item. Re-exports are followed and are not imports themselves. Single lower-case
//! names from a re-export or a glob are not detected, nor are methods, nor names inside the crate's
//! own macros at their call sites.

mod components;
mod modules;
mod names;
mod tests;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::workspace::{REWRITE, ROOT, exceptions, read, rewrite};
use modules::Modules;

const LIST: &str = "circles.tsv";

/// A crate, and the files of an import cycle in it.
type Circle = (String, BTreeSet<String>);

/// Returns the import cycles of a crate, starting from the file of its root.
fn circles(root: &str, read: &dyn Fn(&str) -> Option<String>) -> Vec<BTreeSet<String>> {
    let modules = Modules::read(root, read);
    let circles = components::circles(&modules.edges()).into_iter();
    let names = |files: Vec<usize>| files.iter().map(|&n| modules.files[n].clone()).collect();
    circles.map(names).collect()
}

/// Returns the crates of the workspace, each as its package's name and the file of its root.
fn crates() -> Vec<(String, String)> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--locked",
            "--offline",
        ])
        .current_dir(ROOT)
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let root = text(&metadata["workspace_root"]);
    let mut crates = Vec::new();
    for package in list(&metadata["packages"]) {
        for target in list(&package["targets"]) {
            // Keep only libraries and programs, and leave out tests, examples and build scripts.
            if !["test", "example", "bench", "custom-build"].contains(&&*text(&target["kind"][0])) {
                let file = text(&target["src_path"]);
                let file = Path::new(&file)
                    .strip_prefix(&root)
                    .expect("inside the workspace");
                crates.push((text(&package["name"]), file.display().to_string()));
            }
        }
    }
    crates.sort();
    crates
}

#[test]
fn imports_have_no_circles() {
    let mut found: Vec<Circle> = Vec::new();
    for (name, root) in crates() {
        let circles = circles(&root, &|path| read(path));
        found.extend(circles.into_iter().map(|files| (name.clone(), files)));
    }
    found.sort();
    let before = listed();
    let is_known = |(name, files): &&Circle| {
        let mut known = before.iter().filter(|(other, _)| other == name);
        known.any(|(_, known)| files.is_subset(known))
    };
    let new: Vec<_> = found.iter().filter(|circle| !is_known(circle)).collect();
    assert!(
        new.is_empty(),
        "import cycles that are new or have grown; move the shared items \
         to a file below them: {new:#?}"
    );
    rewrite(LIST, found.iter().map(row));
    let mut listed = listed();
    listed.retain(|circle| !found.contains(circle));
    assert!(
        listed.is_empty(),
        "import cycles that have shrunk; shorten {LIST} with {REWRITE}: {listed:#?}"
    );
}

/// Returns the import cycles of the list.
fn listed() -> Vec<Circle> {
    let files = |text: String| text.split(' ').map(str::to_owned).collect();
    let rows = exceptions(LIST).into_iter();
    rows.map(|(name, text)| (name, files(text))).collect()
}

/// Returns an import cycle as a row of the list.
fn row((name, files): &Circle) -> (String, String) {
    let files: Vec<_> = files.iter().cloned().collect();
    (name.clone(), files.join(" "))
}
