//! Tests `conduit-hsta` with the clients of an unmodified Dragon on one host. The cases are Python
//! scripts in `agent/dragon/tests`.

#[path = "../../../dragon/tests/package/mod.rs"]
mod package;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The time limit, in seconds, of all cases of a script together. The cases take half a minute on
/// two busy cores.
const LIMIT: &str = "600";

#[test]
fn dragons_clients_see_an_agent() {
    run("gateway.py");
}

#[test]
fn agents_of_a_node_take_work_from_each_other() {
    run("several.py");
}

fn run(script: &str) {
    let Some(environment) = package::environment() else {
        return;
    };
    let stem = Path::new(script).file_stem().expect("a name");
    let name = format!("conduit{}{}", std::process::id(), stem.display());
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dragon/tests");
    let output = Command::new("timeout")
        .args(["--kill-after=20", LIMIT])
        .arg(environment.join("bin/python"))
        .arg(scripts.join(script))
        .args([env!("CARGO_BIN_EXE_conduit-hsta"), &name])
        .output()
        .expect("timeout of coreutils");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    println!("{}", String::from_utf8_lossy(&output.stderr));
    let left = left(&name);
    for file in &left {
        // An aborted script leaves these behind; other scripts have to clean up themselves.
        let _ = fs::remove_file(file);
    }
    assert!(output.status.success(), "{}", output.status);
    assert!(left.is_empty(), "{left:?}");
}

fn left(name: &str) -> Vec<PathBuf> {
    let files = fs::read_dir("/dev/shm").expect("/dev/shm");
    let files = files.filter_map(|file| Some(file.ok()?.path()));
    let is_of = |file: &PathBuf| file.to_string_lossy().contains(name);
    files.filter(is_of).collect()
}
