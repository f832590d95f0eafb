//! `conduit-hsta` and unmodified Dragon's clients, on one host. They are in Python: `agent/dragon/tests/gateway.py`.

#[path = "../../dragon/tests/package/mod.rs"]
mod package;

use std::path::Path;
use std::process::Command;

/// Seconds for all cases, which take half a minute on two busy cores. When they have passed the script ends what it has
/// started, and takes its files away.
const LIMIT: &str = "600";

#[test]
fn dragons_clients_see_an_agent() {
    let Some(environment) = package::environment() else {
        return;
    };
    let name = format!("conduit{}", std::process::id());
    let output = Command::new("timeout")
        .args(["--kill-after=20", LIMIT])
        .arg(environment.join("bin/python"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../dragon/tests/gateway.py"))
        .args([env!("CARGO_BIN_EXE_conduit-hsta"), &name])
        .output()
        .expect("timeout of coreutils");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    println!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", output.status);
    let left = std::fs::read_dir("/dev/shm").expect("/dev/shm");
    let left: Vec<_> = left
        .filter_map(|file| file.ok()?.file_name().into_string().ok())
        .filter(|file| file.contains(&name))
        .collect();
    assert!(left.is_empty(), "left in /dev/shm: {left:?}");
}
