//! Checks that `deny.toml` allows the licences of all packages used to build and test this
//! workspace.

use std::process::Command;

use serde_json::Value;
use spdx::{Expression, ParseMode};

const MANIFEST: &str = env!("CARGO_MANIFEST_DIR");

/// The rules of `deny.toml`.
struct Rules {
    /// Licences that every package may have.
    allow: Vec<String>,
    /// `(package, licence)`: additional licences for single packages.
    exceptions: Vec<(String, String)>,
    /// `(package, licence)`: the licence of a package that states it as a file.
    clarify: Vec<(String, String)>,
}

impl Rules {
    fn read() -> Self {
        let path = format!("{MANIFEST}/../deny.toml");
        let text = std::fs::read_to_string(path).expect("deny.toml");
        let deny: toml::Table = toml::from_str(&text).expect("deny.toml is TOML");
        let text = |value: &toml::Value| value.as_str().expect("a name").to_owned();
        let list = |value: &toml::Value| value.as_array().expect("a list").clone();
        let licences = &deny["licenses"];
        let mut exceptions = Vec::new();
        for exception in list(&licences["exceptions"]) {
            for licence in list(&exception["allow"]) {
                exceptions.push((text(&exception["crate"]), text(&licence)));
            }
        }
        let clarify = list(&licences["clarify"]);
        Self {
            allow: list(&licences["allow"]).iter().map(text).collect(),
            exceptions,
            clarify: clarify
                .iter()
                .map(|one| (text(&one["crate"]), text(&one["expression"])))
                .collect(),
        }
    }

    /// Returns whether the package may be used. `licence` is the one that its manifest states.
    fn allow(&self, package: &str, licence: &str) -> bool {
        let mut allowed = self.allow.clone();
        let exceptions = self.exceptions.iter().filter(|(name, _)| name == package);
        allowed.extend(exceptions.map(|(_, licence)| licence.clone()));
        let clarified = self.clarify.iter().find(|(name, _)| name == package);
        match clarified {
            Some((_, expression)) if licence.is_empty() => is_allowed(expression, &allowed),
            _ => is_allowed(licence, &allowed),
        }
    }
}

/// Returns this machine's name as a compiler target.
fn host() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().expect("rustc runs");
    let text = String::from_utf8(output.stdout).expect("rustc writes text");
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("rustc names its host").to_owned()
}

/// Returns every package that is built here as `(name, licence)`. Packages for other platforms need
/// not be downloaded.
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
    let rules = Rules::read();
    let packages = packages();
    assert!(
        packages.len() > 20,
        "cargo lists only {} packages",
        packages.len()
    );
    let refused: Vec<_> = packages
        .iter()
        .filter(|(name, licence)| !rules.allow(name, licence))
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

#[test]
fn a_licence_file_is_as_good_as_its_clarification() {
    let text = |text: &str| text.to_owned();
    let rules = Rules {
        allow: vec![text("MIT")],
        exceptions: vec![(text("one"), text("LicenseRef-Own"))],
        clarify: vec![
            (text("one"), text("LicenseRef-Own AND MIT")),
            (text("two"), text("LicenseRef-Own")),
        ],
    };
    assert!(rules.allow("one", ""), "clarified, with an exception");
    assert!(!rules.allow("two", ""), "clarified only");
    assert!(
        !rules.allow("two", "LicenseRef-Own"),
        "another package's exception"
    );
    assert!(rules.allow("one", "LicenseRef-Own"));
    assert!(!rules.allow("one", "GPL-2.0"), "the stated licence counts");
    assert!(!rules.allow("three", ""));
}
