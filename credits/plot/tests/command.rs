//! Tests of the program `credit-plot` as its users run it: arguments, messages and exit codes.

use std::path::Path;
use std::process::{Command, Output};

use crate::demo::Demo;

const DEMO: Demo = Demo {
    ranks: 3,
    partners: 2,
    rounds: 4,
    loan: 8,
    banked: 20,
    epoch: 16,
    clock: true,
};

/// Creates a directory with the files of jobs.
fn folder(jobs: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for job in jobs {
        for (name, text) in DEMO.files(job) {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
    }
    folder
}

fn plot(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_credit-plot"))
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// Asserts that the command writes a picture. Returns its standard error.
#[track_caller]
fn draws(folder: &Path, args: &[&str]) -> String {
    let picture = folder.join("credits.svg");
    let _ = std::fs::remove_file(&picture);
    let output = plot(folder, args);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let svg = std::fs::read_to_string(picture).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    said
}

/// Asserts that the command fails. Returns its message.
#[track_caller]
fn fails(folder: &Path, args: &[&str]) -> String {
    let output = plot(folder, args);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!folder.join("credits.svg").exists());
    assert_eq!(said.lines().count(), 1, "{said}");
    said.trim_end().to_owned()
}

#[test]
fn a_directory_or_its_files_make_a_picture() {
    let folder = folder(&["one"]);
    assert_eq!(draws(folder.path(), &["."]), "");
    let files = [
        "credits-one-0.csv",
        "credits-one-1.csv",
        "./credits-one-2.csv",
    ];
    assert_eq!(draws(folder.path(), &files), "");
    let output = plot(folder.path(), &[".", "-o", "-", "--rank", "1"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("Loans of rank 1 over time"));
}

#[test]
fn one_of_several_jobs_can_be_chosen() {
    let folder = folder(&["one", "two"]);
    assert_eq!(
        fails(folder.path(), &["."]),
        "credit-plot: found files of 2 jobs, expected one: choose it with --job (one, two)"
    );
    // If a job is chosen, the contents of another job's file do not matter.
    std::fs::write(folder.path().join("credits-one-0.csv"), "garbage").unwrap();
    assert_eq!(draws(folder.path(), &[".", "--job", "two"]), "");
}

#[test]
fn what_a_killed_rank_leaves_is_drawn_with_a_warning() {
    let folder = folder(&["one"]);
    let file = folder.path().join("credits-one-1.csv");
    let text = std::fs::read_to_string(&file).unwrap();
    let lines = text.lines().count();
    std::fs::write(&file, &text[..text.len() - 4]).unwrap();
    std::fs::write(folder.path().join("credits-one-2.csv"), "").unwrap();
    let said = draws(folder.path(), &["."]);
    let expected = [
        format!(
            "credit-plot: warning: ./credits-one-1.csv:{lines}: the last line is cut off and omitted; was the rank killed?"
        ),
        "credit-plot: warning: ./credits-one-2.csv ends before its first row and is omitted"
            .to_owned(),
        "credit-plot: warning: 1 of 3 ranks have no file, the first is rank 2".to_owned(),
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn what_can_not_be_drawn_is_named() {
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(
        fails(empty.path(), &["."]),
        "credit-plot: no credit statistics in .: expected files credits-<job>-<rank>.csv, which ranks write with \
         GASNET_PORTAL_CREDIT_STATS=1"
    );
    assert!(
        fails(empty.path(), &["no-such-file"])
            .starts_with("credit-plot: cannot read no-such-file: ")
    );

    let folder = folder(&["one"]);
    let path = |name: &str| folder.path().join(name);
    assert!(fails(folder.path(), &[".", "--job", "three"]).contains("credits-three-<rank>.csv"));
    assert_eq!(
        fails(folder.path(), &[".", "--rank", "3"]),
        "credit-plot: rank 3 has no file"
    );
    let error = fails(folder.path(), &[".", "-o", "no/such/folder.svg"]);
    assert!(error.starts_with("credit-plot: cannot write no/such/folder.svg: "));

    std::fs::copy(path("credits-one-0.csv"), path("credits-copy.csv")).unwrap();
    assert_eq!(
        fails(folder.path(), &["."]),
        "credit-plot: ./credits-copy.csv and ./credits-one-0.csv both belong to rank 0"
    );
    let text = std::fs::read_to_string(path("credits-one-0.csv")).unwrap();
    std::fs::write(
        path("credits-copy.csv"),
        text.replacen("ranks=3", "ranks=4", 1),
    )
    .unwrap();
    assert!(fails(folder.path(), &["."]).contains("contradict each other"));
    std::fs::write(path("credits-copy.csv"), text.replacen(",8,", ",eight,", 1)).unwrap();
    let error = fails(folder.path(), &["."]);
    assert!(
        error.starts_with("credit-plot: ./credits-copy.csv:"),
        "{error}"
    );
    assert!(error.contains("\"eight\", must be a number"), "{error}");
    std::fs::write(path("credits-copy.csv"), [0xff, 0xfe, 0]).unwrap();
    assert!(fails(folder.path(), &["."]).contains("cannot read ./credits-copy.csv"));
    assert_eq!(plot(folder.path(), &[]).status.code(), Some(2));
}
