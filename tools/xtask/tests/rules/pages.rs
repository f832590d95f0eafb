//! Checks that the paths, packages and pages that pages name exist, and that the programs in pages
//! are compiled.

use std::collections::BTreeSet;
use std::path::Path;

use crate::workspace::{ROOT, git, read};

/// The page that maps subjects to files. All of its paths are relative to the workspace's folder.
const OVERVIEW: &str = "docs/overview.md";

/// Returns the lines of a page outside its code blocks.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        fenced ^= line.starts_with("```");
        !fenced
    })
}

/// Returns the texts between backticks on a single line of a page, except in code blocks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let lines = lines(text).filter(|line| !line.starts_with("    "));
    lines.flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Returns whether a quoted text is a path rather than a command, pattern or address.
fn is_path(text: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    text.contains('/') && !text.starts_with('/') && text.chars().all(is_part)
}

#[test]
fn paths_that_pages_name_exist() {
    let Some(listed) = git(&["ls-files"]) else {
        return;
    };
    let files: Vec<_> = listed.lines().collect();
    let folders: BTreeSet<_> = files
        .iter()
        .filter_map(|file| file.split_once('/'))
        .map(|(folder, _)| folder)
        .collect();
    let begins_here = |path: &str| {
        let first = path.split('/').next();
        first.is_some_and(|first| folders.contains(first))
    };
    let mut missing = Vec::new();
    for page in files.iter().filter(|file| file.ends_with(".md")) {
        let Some(text) = read(page) else { continue };
        let paths = quoted(&text).filter(|text| is_path(text));
        let named = paths.filter(|path| *page == OVERVIEW || begins_here(path));
        let gone = named.filter(|path| !Path::new(ROOT).join(path).exists());
        missing.extend(gone.map(|path| format!("{page}: {path}")));
    }
    assert!(missing.is_empty(), "paths that do not exist: {missing:#?}");
}

/// Returns the packages named by the cargo commands in a text.
fn packages(text: &str) -> impl Iterator<Item = &str> {
    let commands = text.lines().filter(|line| line.contains("cargo "));
    commands.flat_map(|line| {
        let words = line.split([' ', '`']);
        let next = words.clone().skip(1);
        let named = words.zip(next).filter(|(option, _)| *option == "-p");
        named.map(|(_, package)| package)
    })
}

#[test]
fn packages_that_pages_name_exist() {
    let Some(listed) = git(&["ls-files"]) else {
        return;
    };
    let manifests = listed.lines().filter(|file| file.ends_with("Cargo.toml"));
    let names: BTreeSet<String> = manifests
        .filter_map(|manifest| {
            let text = read(manifest)?;
            let (_, name) = text.split_once("[package]\nname = \"")?;
            Some(name.split_once('"')?.0.to_owned())
        })
        .collect();
    let mut missing = Vec::new();
    for page in listed.lines().filter(|file| file.ends_with(".md")) {
        let Some(text) = read(page) else { continue };
        let gone = packages(&text).filter(|package| !names.contains(*package));
        missing.extend(gone.map(|package| format!("{page}: {package}")));
    }
    assert!(
        missing.is_empty(),
        "packages that do not exist: {missing:#?}"
    );
}

/// Returns the targets of a page's links, outside of its blocks of code.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = lines(text).flat_map(|line| line.split("](").skip(1));
    targets.filter_map(|rest| Some(rest.split_once(')')?.0))
}

/// Returns the anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = lines(text).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let letters = heading.trim_start_matches('#').trim().chars();
        let kept = letters.filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter })
            .flat_map(char::to_lowercase)
            .collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_lead_to_pages_and_headings_that_exist() {
    let Some(listed) = git(&["ls-files", "*.md"]) else {
        return;
    };
    let mut broken = Vec::new();
    for page in listed.lines() {
        let Some(text) = read(page) else { continue };
        let folder = Path::new(page).parent().expect("a file has a folder");
        for link in links(&text) {
            if link.contains("://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => page.into(),
                path => folder.join(path),
            };
            // The book contains only the pages of its own folder.
            let leaves = folder.ends_with("docs") && path.starts_with("..");
            let exists = Path::new(ROOT).join(&target).exists();
            let found = anchor.is_empty()
                || read(&target.to_string_lossy())
                    .is_some_and(|text| anchors(&text).contains(anchor));
            if leaves || !exists || !found {
                broken.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_book_has_all_pages() {
    let Some(listed) = git(&["ls-files", "docs/*.md"]) else {
        return;
    };
    let summary = read("docs/SUMMARY.md").expect("the book's contents");
    let named: BTreeSet<_> = links(&summary).collect();
    let pages = listed.lines().filter_map(|page| page.strip_prefix("docs/"));
    let missing: Vec<_> = pages
        .filter(|page| *page != "SUMMARY.md" && !named.contains(page))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The page whose programs a test compares with files (`examples/tests/tutorial.rs`).
const TUTORIAL: &str = "docs/tutorial.md";

/// The file that includes the pages whose programs are compiled and run.
const INCLUDES: &str = "examples/src/lib.rs";

/// Returns whether a page has a block of Rust code that readers expect to compile.
fn has_program(text: &str) -> bool {
    let mut blocks = text.lines().filter_map(|line| line.strip_prefix("```rust"));
    blocks.any(|attributes| !attributes.split(',').any(|attribute| attribute == "ignore"))
}

#[test]
fn programs_of_pages_are_compiled() {
    let Some(listed) = git(&["ls-files", "docs/*.md"]) else {
        return;
    };
    let includes = read(INCLUDES).expect("the file that includes pages");
    let is_included = |page: &str| includes.contains(&format!("include_str!(\"../../{page}\")"));
    let untested: Vec<_> = listed
        .lines()
        .filter(|page| *page != TUTORIAL && !is_included(page))
        .filter(|page| read(page).is_some_and(|text| has_program(&text)))
        .collect();
    assert!(
        untested.is_empty(),
        "pages with ```rust blocks that {INCLUDES} does not include: {untested:#?}"
    );
}
