//! Checks that each dependency has the same features whichever packages are built. Otherwise,
//! building one package alone would recompile dependencies that a build of all packages has already
//! compiled, and everything that depends on them.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::workspace::ROOT;

/// The path that cargo prints only for packages of the workspace.
const ROOT_OF_MEMBERS: &str = " (/";

/// Returns the features of each dependency in a build of these packages. A dependency of both
/// procedural macros and programs may have two sets of features.
fn features(edges: &str, packages: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let mut command = Command::new(env!("CARGO"));
    command
        .args([
            "tree",
            "--locked",
            "--offline",
            "--prefix",
            "none",
            "--format",
            "{p}\t{f}",
        ])
        .args(["--no-dedupe", "--edges", edges])
        .args(packages)
        .current_dir(ROOT);
    let output = command.output().expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{packages:?}: {errors}");
    let text = String::from_utf8(output.stdout).expect("text");
    let mut found = BTreeMap::<_, BTreeSet<_>>::new();
    for (package, features) in text.lines().filter_map(|line| line.split_once('\t')) {
        let features = features.trim_end_matches(" (*)").to_owned();
        found
            .entry(package.to_owned())
            .or_default()
            .insert(features);
    }
    found
}

/// Model checkers add a feature to `sim` and a few to zerocopy; no package that users build is
/// recompiled because of them.
const OTHERWISE: [&str; 3] = ["sim v", "zerocopy v", "num-traits v"];

/// This package is built alone only for its own test, and recompiling takes seconds.
const ALONE: &str = "record";

#[test]
fn features_are_the_same_in_every_build() {
    let of_all = features("normal,build,dev", &["--workspace"]);
    let members = of_all
        .keys()
        .filter(|package| package.contains(ROOT_OF_MEMBERS));
    for package in members {
        let name = package.split(' ').next().expect("a name");
        if name == ALONE {
            continue;
        }
        for (dependency, own) in features("normal,build", &["-p", name]) {
            if OTHERWISE.iter().any(|known| dependency.starts_with(known)) {
                continue;
            }
            let all = &of_all[&dependency];
            assert!(
                own.is_subset(all),
                "{dependency} has the features {own:?} in a build of {name} and {all:?} in one of \
                 all packages: see the workspace's Cargo.toml"
            );
        }
    }
}
