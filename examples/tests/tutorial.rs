//! The tutorial shows programs of this package as they are, and what they print.

use std::path::Path;

use crate::programs::{HELLO, HISTOGRAM, MAP, PLATES, RING, job};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const PROGRAMS: [(&str, &str); 5] = [
    ("hello", HELLO),
    ("ring", RING),
    ("histogram", HISTOGRAM),
    ("map", MAP),
    ("plates", PLATES),
];

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|_| panic!("{path}"))
}

/// Returns what stands behind each marker of this kind, and the block of code below it.
fn marked<'a>(page: &'a str, kind: &str) -> Vec<(&'a str, &'a str)> {
    let marker = format!("<!-- {kind}: ");
    let parts = page.split(&marker[..]).skip(1);
    let block = |part: &'a str| {
        let (argument, rest) = part.split_once(" -->\n```").expect("a block of code");
        let (_, rest) = rest.split_once('\n').expect("a block's first line");
        (argument, rest.split_once("```").expect("a block's end").0)
    };
    parts.map(block).collect()
}

#[test]
fn the_tutorial_shows_the_programs() {
    let page = read("docs/tutorial.md");
    let shown = marked(&page, "program");
    assert_eq!(shown.len(), 7);
    for (path, block) in shown {
        let program = read(path);
        // The page says more than a Rust program's first comment does.
        let program = match path.strip_suffix(".rs") {
            Some(_) => program.split_once("\n\n").expect("a comment").1,
            None => &program,
        };
        assert!(program == block, "{path} and docs/tutorial.md differ");
    }
}

#[test]
fn the_tutorials_programs_print_what_it_shows() {
    let page = read("docs/tutorial.md");
    let shown = marked(&page, "output");
    assert_eq!(shown.len(), PROGRAMS.len());
    for ((command, block), (name, program)) in shown.iter().zip(PROGRAMS) {
        assert_eq!(*command, format!("4 {name}"));
        let (code, text) = job(4, program, &[], &[]);
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        let shown: Vec<_> = block.lines().collect();
        assert_eq!((code, lines), (0, shown), "{name}");
    }
}
