//! Checks that `docs/settings.md` agrees with the tables of settings. After a change to a table,
//! `CONDUIT_TEST_WRITE=1 cargo test -p conduit-examples settings_page` rewrites the page.

use std::fmt::Write;

use conduit::settings::{Groups as _, Settings};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/settings.md");

const HEAD: &str = "\
# Settings

Each setting is an environment variable of the ranks (`conduit-run --env NAME=VALUE …`, or the launcher's own
environment). A value that does not parse or is out of range ends the job with a message that names the setting, the value
and what is accepted; so does an unknown name that begins with `CONDUIT_` or `GASNET_PORTAL_`. The `GASNET_PORTAL_`
names and defaults are those of GASNet's original Portals conduit, except where it says what was the case originally.

`conduit-run --print-settings` prints all settings with the values that ranks would find and where each comes from;
with `-n N` also what those come to that depend on the size of the job: credits, bank, receive buffers.

Numbers of bytes may end in `K`, `M`, `G` or `T`, powers of 1024. A default in parentheses says what happens while the
variable is not set.

The last column says to which peers a setting makes a difference as programs are run: those that are reached by shared memory
(shm), UDP or libfabric (ofi). In shared memory a put is a copy and a message is injected; `CONDUIT_WINDOWS=0` and
`CONDUIT_INJECT=0` change that.

This page is made from the tables that the crates have of their settings, and a test keeps it equal to them.

| setting | default | accepted | meaning | acts on |
|---|---|---|---|---|
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    for row in Settings::default().describe() {
        let cell = |text: &str| text.replace('|', "\\|");
        let default = match row.default {
            Some(value) => value.to_string(),
            None => format!("({})", row.unset),
        };
        let (default, accepted, meaning) = (cell(&default), cell(&row.accepted), cell(row.meaning));
        writeln!(
            page,
            "| `{}` | {default} | {accepted} | {meaning} | {} |",
            row.name, row.acts
        )
        .expect("a string grows");
    }
    page
}

#[test]
fn the_page_is_the_tables() {
    let page = page();
    if std::env::var_os("CONDUIT_TEST_WRITE").is_some() {
        std::fs::write(PAGE, &page).expect("the page can be written");
    }
    let found = std::fs::read_to_string(PAGE).expect("docs/settings.md");
    assert!(
        found == page,
        "docs/settings.md differs from the tables of settings; see this test's source"
    );
}
