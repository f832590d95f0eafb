//! Word counting with a distributed hash table: each word has an owner among the ranks, which keeps
//! its count.
//!
//! A rank reads its share of the lines and sends each word to its owner as a *medium* active
//! message. The handler there adds the word to the table. In the end every rank sends its table to
//! rank 0, which also counts all words alone and compares the counts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, Result};
use conduit::{Handlers, Medium, Rank};

/// The text whose words are counted if no file is named: this project's README.
const README: &str = include_str!("../../README.md");

/// The length at which words are cut, so that every word fits into a message.
const LONGEST: usize = 64;

/// The count of each word.
pub type Counts = HashMap<String, u64>;

/// The result of a run, on rank 0.
#[derive(Debug)]
pub struct Report {
    /// The number of ranks.
    pub ranks: u32,
    /// The counts from all ranks.
    pub counts: Counts,
    /// The counts that rank 0 has made alone.
    pub serial: Counts,
}

/// A rank's part of the table, shared by the handler that fills it and the program. A sequential
/// rank's handlers run on the calling thread.
type Table = Rc<RefCell<Counts>>;

/// Registers the handler that adds to a table. Its argument is the count, its payload the word.
fn adder(handlers: &mut Handlers, name: &'static str, table: &Table) -> Medium<(u64,)> {
    let table = Rc::clone(table);
    handlers
        .named(name)
        .medium(move |_call, (number,): (u64,), word: &[u8]| {
            let word = String::from_utf8_lossy(word).into_owned();
            *table.borrow_mut().entry(word).or_default() += number;
        })
}

/// Counts the words of `files`, or of the README if `files` is empty. Collective. Only rank 0
/// returns a report.
pub fn run(files: &[PathBuf]) -> Result<Option<Report>> {
    let job = conduit::start()?;
    // All ranks register the same handlers in the same order.
    let mut handlers = Handlers::new();
    let (owned, collected) = (Table::default(), Table::default());
    let count = adder(&mut handlers, "count", &owned);
    let collect = adder(&mut handlers, "collect", &collected);
    // The program neither puts nor gets, so it needs no segment.
    let conduit = job.attach(handlers, 0)?;
    let (rank, size) = (conduit.rank(), conduit.size());

    // Each line belongs to one rank, which sends the line's words to their owners.
    let text = read(files)?;
    for line in text.lines().skip(rank as usize).step_by(size as usize) {
        for word in words(line) {
            let owner = owner(&word, size);
            conduit.request_medium(owner, count, (1,), word.as_bytes())?;
        }
    }
    // A barrier would not suffice, because messages may still be on their way when it completes.
    conduit.quiesce()?;

    // Each rank sends its own counts to rank 0.
    for (word, number) in owned.take() {
        conduit.request_medium(0, collect, (number,), word.as_bytes())?;
    }
    conduit.finish()?;

    Ok((rank == 0).then(|| Report {
        ranks: size,
        counts: collected.take(),
        serial: serial(&text),
    }))
}

/// Returns the rank that keeps the count of a word. Any function that is the same on all ranks will
/// do.
fn owner(word: &str, ranks: u32) -> Rank {
    let mut hasher = DefaultHasher::new();
    word.hash(&mut hasher);
    (hasher.finish() % u64::from(ranks)) as Rank
}

/// Returns the words of a text: runs of letters and digits, in lower case.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(|word| {
            word.chars()
                .take(LONGEST)
                .collect::<String>()
                .to_lowercase()
        })
}

/// Reads all files into one text. Bytes that are not UTF-8 separate words.
fn read(files: &[PathBuf]) -> Result<String> {
    if files.is_empty() {
        return Ok(README.to_owned());
    }
    let mut text = String::new();
    for file in files {
        let bytes = std::fs::read(file).with_context(|| format!("{}", file.display()))?;
        text.push_str(&String::from_utf8_lossy(&bytes));
        text.push('\n');
    }
    Ok(text)
}

/// Counts the same words on one rank alone.
fn serial(text: &str) -> Counts {
    let mut counts = Counts::new();
    for word in words(text) {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

impl Report {
    /// Returns whether the ranks' counts equal those of rank 0 alone.
    pub fn equal(&self) -> bool {
        self.counts == self.serial
    }

    /// Returns the `number` most frequent words; words of equal frequency are in alphabetical
    /// order.
    pub fn top(&self, number: usize) -> Vec<(&str, u64)> {
        let mut all: Vec<_> = self
            .counts
            .iter()
            .map(|(word, &count)| (word.as_str(), count))
            .collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        all.truncate(number);
        all
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: u64 = self.counts.values().sum();
        let different = self.counts.len();
        write!(
            f,
            "wordcount: {words} words, {different} different, on {} ranks; ",
            self.ranks
        )?;
        match self.equal() {
            true => write!(f, "all counts equal to a serial count")?,
            false => write!(f, "COUNTS DIFFER from a serial count")?,
        }
        write!(f, "; most frequent:")?;
        for (word, count) in self.top(5) {
            write!(f, " {word} {count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_runs_of_letters_and_digits_in_lower_case() {
        let found: Vec<_> = words("The `put` of 8 bytes, the-END. Größe").collect();
        assert_eq!(
            found,
            ["the", "put", "of", "8", "bytes", "the", "end", "größe"]
        );
    }

    #[test]
    fn endless_words_are_cut() {
        let found: Vec<_> = words(&"x".repeat(10 * LONGEST)).collect();
        assert_eq!(found, ["x".repeat(LONGEST)]);
    }
}
