//! Checks that comments are at most 100 columns wide, and pages at most 110. `too-wide.tsv` lists
//! the number of wider lines of each file that still has some; these numbers may only fall.
//!
//! Lines that cannot be broken are exempt: rows of tables, link references and single long words.
//! Comments after code on the same line are not checked.

use std::collections::BTreeMap;

use crate::workspace::{REWRITE, exceptions, git, read, rewrite};

const LIST: &str = "too-wide.tsv";

/// The maximum number of columns of a comment in Rust or C.
const COMMENT: usize = 100;

/// The maximum number of columns of a page.
const PAGE: usize = 110;

/// Returns the line numbers of comments that are too wide in a source file.
fn comments(text: &str) -> Vec<usize> {
    let mut in_block = false;
    let is_comment = |line: &str| {
        let line = line.trim_start();
        let opens = line.starts_with("/*");
        let comment = in_block || opens || line.starts_with("//");
        in_block = (in_block || opens) && !line.contains("*/");
        comment
    };
    wider(text, COMMENT, is_comment)
}

/// Returns the line numbers of lines that are too wide in a page, outside its code blocks.
fn prose(text: &str) -> Vec<usize> {
    let mut fenced = false;
    let mut indented = false;
    let mut after_blank = true;
    let is_prose = |line: &str| {
        let blank = line.trim().is_empty();
        indented = line.starts_with("    ") && (indented || after_blank) || indented && blank;
        after_blank = blank;
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced && !indented
    };
    wider(text, PAGE, is_prose)
}

/// Returns the line numbers of the lines that `is_of_kind` selects, that are wider than `limit` and
/// that could be broken.
fn wider(text: &str, limit: usize, mut is_of_kind: impl FnMut(&str) -> bool) -> Vec<usize> {
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| is_of_kind(line) && line.chars().count() > limit && can_break(line))
        .map(|(number, _)| number)
        .collect()
}

/// Returns whether the line could be broken, that is, is not a table's row, a link reference or a
/// single word.
fn can_break(line: &str) -> bool {
    let text = line.trim_start_matches(|c: char| c.is_whitespace() || "/!*-".contains(c));
    let is_reference = text.starts_with('[') && text.contains("]: ");
    !text.starts_with('|') && !is_reference && text.split_whitespace().count() > 1
}

/// Returns, for each file with lines that are too wide, their numbers.
fn too_wide(files: &str) -> BTreeMap<String, Vec<usize>> {
    let mut found = BTreeMap::new();
    for path in files.lines() {
        let lines = match path.rsplit_once('.') {
            Some((_, "rs" | "c" | "h")) => read(path).map(|text| comments(&text)),
            Some((_, "md")) => read(path).map(|text| prose(&text)),
            _ => None,
        };
        if let Some(lines) = lines.filter(|lines| !lines.is_empty()) {
            found.insert(path.to_owned(), lines);
        }
    }
    found
}

#[test]
fn comments_and_pages_are_narrow() {
    let Some(files) = git(&["ls-files", "--cached", "--others", "--exclude-standard"]) else {
        println!("skipped: git does not say which files belong to the project");
        return;
    };
    let found = too_wide(&files);
    let count = |path: &str| found.get(path).map_or(0, Vec::len);
    let number = |text: &str| text.parse::<usize>().expect("a number of lines");
    let listed = exceptions(LIST).into_iter();
    let listed: BTreeMap<_, _> = listed.map(|(path, n)| (path, number(&n))).collect();
    let lower = listed.iter().map(|(path, n)| (path, count(path).min(*n)));
    let lower = lower.filter(|(_, n)| *n > 0);
    rewrite(LIST, lower.map(|(path, n)| (path.clone(), n.to_string())));

    let mut wrong = Vec::new();
    for (path, lines) in &found {
        let listed = listed.get(path).copied().unwrap_or(0);
        if lines.len() > listed {
            wrong.push(format!(
                "{path}: {} lines are wider than {COMMENT} (comments) or {PAGE} (pages), \
                 {LIST} allows {listed}; break the lines that you added among {lines:?}",
                lines.len()
            ));
        }
    }
    let written = exceptions(LIST);
    for (path, listed) in written.iter().filter(|(path, n)| number(n) > count(path)) {
        wrong.push(format!(
            "{path}: {} lines are too wide, but {LIST} has {listed}; lower the number with {REWRITE}",
            count(path)
        ));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn columns_are_characters_and_code_is_not_counted() {
    let wide = "é ".repeat(60);
    assert!(comments(&format!("// {}\n", "é ".repeat(48))).is_empty());
    let source =
        format!("//! {wide}\nlet x = 1; // {wide}\n/* a\n{wide}\n*/\n{wide}\n    // {wide}");
    assert_eq!(comments(&source), [1, 4, 7]);
}

#[test]
fn what_cannot_be_broken_is_not_counted() {
    let word = "x".repeat(120);
    let page = format!(
        "| {word} a |\n\n[name]: {word} a\n\n- {word}\n\n    {word} a\n\n```text\n{word} a\n```\n\
         {word} a\ntext\n    {word} a\n"
    );
    assert_eq!(prose(&page), [12, 14]);
    assert_eq!(comments(&format!("// <{word}>\n// see {word}\n")), [2]);
}
