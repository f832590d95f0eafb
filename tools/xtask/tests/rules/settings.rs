//! Checks that the settings named in messages exist.

use crate::workspace::{git, read};

/// The texts in messages after which a setting's name follows.
const BEFORE: [&str; 2] = ["(setting ", "setting: \""];

#[test]
fn settings_that_messages_name_exist() {
    let Some(files) = git(&["ls-files", "*.rs"]) else {
        return;
    };
    let documented = ["docs/settings.md", "docs/mercury.md", "docs/portals4.md"]
        .map(|page| read(page).unwrap_or_else(|| panic!("cannot read {page}")));
    let exists = |name: &str| documented.iter().any(|page| page.contains(name));
    let mut missing = Vec::new();
    let mut named = 0;
    for file in files.lines().filter(|file| !file.contains("tests")) {
        let text = read(file).unwrap_or_default();
        for before in BEFORE {
            for (_, behind) in text.match_indices(before).map(|(at, _)| text.split_at(at)) {
                let behind = &behind[before.len()..];
                let end = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let name = &behind[..end.unwrap_or(behind.len())];
                // Skip names that a format string inserts, and explanations.
                if name.contains('_') {
                    named += 1;
                    if !exists(name) {
                        missing.push(format!("{file}: {name}"));
                    }
                }
            }
        }
    }
    assert!(named > 5, "only {named} found");
    assert!(missing.is_empty(), "{missing:#?}");
}
