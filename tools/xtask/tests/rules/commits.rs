//! Checks that commit subjects have at most 72 characters, in all commits after the rule was
//! introduced.

use crate::workspace::git;

/// The last commit before the rule.
const BASE: &str = "3738c866b3758e217beac41bdce88c1176c11bfc";

/// The maximum number of characters of a subject.
const LIMIT: usize = 72;

#[test]
fn subjects_are_short() {
    if git(&["cat-file", "-e", &format!("{BASE}^{{commit}}")]).is_none() {
        println!("skipped: the history since {BASE} is not available here");
        return;
    }
    let range = format!("{BASE}..HEAD");
    let log = git(&["log", "--no-merges", "--format=%h %s", &range]).expect("git log");
    let is_long = |line: &&str| {
        let subject = line.split_once(' ').map_or("", |(_, subject)| subject);
        subject.chars().count() > LIMIT
    };
    let long: Vec<&str> = log.lines().filter(is_long).collect();
    assert!(
        long.is_empty(),
        "subjects of more than {LIMIT} characters; shorten them (git commit --amend, git rebase \
         --interactive) before you push:\n{}",
        long.join("\n")
    );
}
