//! The licences of all packages that this workspace is built and tested with here are those that `deny.toml` allows.

use std::process::Command;

use serde_json::Value;
use spdx::{Expression, ParseMode};

const MANIFEST: &str = env!("CARGO_MANIFEST_DIR");

/// The list in `deny.toml`.
fn allowed() -> Vec<String> {
    let path = format!("{MANIFEST}/../deny.toml");
    let text = std::fs::read_to_string(path).expect("deny.toml");
    let deny: toml::Table = toml::from_str(&text).expect("deny.toml is TOML");
    let list = deny["licenses"]["allow"]
        .as_array()
        .expect("a list of licences");
    list.iter()
        .map(|name| name.as_str().expect("a name").to_owned())
        .collect()
}

/// This machine's name as a target of the compiler.
fn host() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().expect("rustc runs");
    let text = String::from_utf8(output.stdout).expect("rustc writes text");
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("rustc names its host").to_owned()
}

/// Every package that is built here: `(name, licence)`. Those of other platforms need not have been downloaded.
fn packages() -> Vec<(String, String)> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", &host()])
        .current_dir(MANIFEST)
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    packages
        .iter()
        .map(|package| (text(&package["name"]), text(&package["license"])))
        .collect()
}

fn is_allowed(licence: &str, allowed: &[String]) -> bool {
    Expression::parse_mode(licence, ParseMode::LAX)
        .is_ok_and(|expression| expression.evaluate(|one| allowed.contains(&one.to_string())))
}

#[test]
fn all_licences_are_allowed() {
    let allowed = allowed();
    let packages = packages();
    assert!(
        packages.len() > 20,
        "cargo knows of {} packages only",
        packages.len()
    );
    let refused: Vec<_> = packages
        .iter()
        .filter(|(_, licence)| !is_allowed(licence, &allowed))
        .collect();
    assert!(refused.is_empty(), "not in deny.toml: {refused:#?}");
}

#[test]
fn expressions_are_understood() {
    let allowed = [
        "MIT".to_owned(),
        "Apache-2.0 WITH LLVM-exception".to_owned(),
    ];
    assert!(is_allowed("GPL-3.0-only OR MIT", &allowed));
    assert!(is_allowed("MIT/GPL-2.0", &allowed));
    assert!(is_allowed("Apache-2.0 WITH LLVM-exception", &allowed));
    assert!(!is_allowed("GPL-3.0-only AND MIT", &allowed));
    assert!(!is_allowed("Apache-2.0", &allowed));
    assert!(!is_allowed("", &allowed));
}
