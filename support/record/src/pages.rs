//! Tests that the pages show the contents of the files in `docs/figures`. When a file has changed,
//! `CONDUIT_TEST_WRITE=1 cargo test -p record` updates the pages.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{FOLDER, Record, names, path};

#[test]
fn the_pages_show_the_figures() {
    let mut unshown: BTreeSet<String> = names().expect("docs/figures").into_iter().collect();
    assert!(!unshown.is_empty());
    for name in &unshown {
        check(name);
    }
    let pages = Path::new(FOLDER).join("..").read_dir().expect("docs");
    for page in pages.map(|entry| entry.expect("an entry").path()) {
        if page.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let found = std::fs::read_to_string(&page).expect("a page");
        let filled = crate::fill(&found, |name| {
            unshown.remove(name);
            Ok(Record::read(name)?.markdown(name))
        });
        let filled = filled.unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        if found == filled {
            continue;
        }
        assert!(
            std::env::var_os("CONDUIT_TEST_WRITE").is_some(),
            "{} does not match its files in docs/figures; see this test's source",
            page.display()
        );
        std::fs::write(&page, filled).expect("the page can be written");
    }
    assert!(unshown.is_empty(), "no page shows {unshown:?}");
}

/// Checks that a record names its origin, that each of its rows has a cell for each column, and
/// that its file has the same format as the output of `--record`.
fn check(name: &str) {
    let record = Record::read(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    let date = record.date.split('-').map(str::len);
    assert!(date.eq([4, 2, 2]), "{name}: {} is not a date", record.date);
    for field in [&record.processor, &record.commit, &record.command] {
        assert!(!field.is_empty(), "{name} does not name its origin");
    }
    let width = record.columns.len();
    assert!(
        record.rows.iter().all(|row| row.len() == width),
        "{name}: a row's length differs from the header's"
    );
    if std::env::var_os("CONDUIT_TEST_WRITE").is_some() {
        record.write(name).expect("docs/figures can be written");
    }
    let text = std::fs::read_to_string(path(name)).expect("docs/figures");
    assert!(
        text == record.json(),
        "{name}.json is not formatted as its programs format it"
    );
}
