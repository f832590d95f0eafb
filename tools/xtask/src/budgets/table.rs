//! The number of instructions of each operation, and the tools that the numbers depend on. The file
//! lists the tools, then a blank line, and then the operations.

use std::fmt;
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::build::Cargo;
use crate::command;
use crate::install::c_compiler;

/// The names and versions of the tools that counts depend on, besides the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tools(pub(super) Vec<(String, String)>);

/// Counts and the tools that they depend on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Table {
    pub(super) tools: Tools,
    pub(super) counts: Vec<Count>,
}

/// The number of instructions of one operation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Count {
    pub(super) name: String,
    pub(super) instructions: f64,
}

impl Tools {
    /// Queries the versions of this machine's tools.
    pub(super) fn here(cargo: &Cargo) -> Result<Self> {
        let line = |words: &str| {
            let mut words = words.split_whitespace();
            let mut command = Command::new(words.next().unwrap_or_default());
            let text = command::output(command.current_dir(cargo.root()).args(words))?;
            Ok::<_, anyhow::Error>(text.lines().next().unwrap_or_default().trim().to_owned())
        };
        let tools = [
            ("rustc", line("rustc --version")?),
            ("cc", line(&format!("{} --version", c_compiler()))?),
            ("libc", line("getconf GNU_LIBC_VERSION")?),
            ("processor", processor()),
        ];
        let owned = |(name, version): (&str, String)| (name.to_owned(), version);
        Ok(Self(tools.map(owned).into()))
    }

    /// Describes each tool whose version differs from the one in `others`.
    pub(super) fn differences(&self, others: &Self) -> Vec<String> {
        let version = |of: &Self, name: &str| {
            let found = of.0.iter().find(|(known, _)| known == name);
            found.map_or_else(|| "unknown".to_owned(), |(_, version)| version.clone())
        };
        let all = self
            .0
            .iter()
            .chain(&others.0)
            .map(|(name, _)| name.as_str());
        let mut names: Vec<_> = all.collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| version(self, name) != version(others, name));
        names
            .into_iter()
            .map(|name| {
                format!(
                    "{name}: {} instead of {}",
                    version(self, name),
                    version(others, name)
                )
            })
            .collect()
    }
}

/// Returns the processor's architecture, and the extension by which C libraries choose how to copy.
/// Other properties do not matter, because valgrind presents one of the same few processors to the
/// program on every machine.
fn processor() -> String {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        return "x86_64 with AVX2".to_owned();
    }
    std::env::consts::ARCH.to_owned()
}

/// Returns whether `asked` is the operation's name or consists of its first words.
pub(super) fn means(asked: &str, name: &str) -> bool {
    let rest = name.strip_prefix(asked);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

impl Table {
    /// Keeps only the requested operations, or all of them if none was requested.
    pub(super) fn only(mut self, asked: &[String]) -> Self {
        let is_asked = |count: &Count| asked.iter().any(|asked| means(asked, &count.name));
        self.counts
            .retain(|count| asked.is_empty() || is_asked(count));
        self
    }
}

/// Reads the counts that `conduit-perf count --json` prints.
pub(super) fn read_counts(lines: &str) -> Result<Vec<Count>> {
    let count = |line: &str| {
        let mut count: Count =
            serde_json::from_str(line).with_context(|| format!("invalid count: {line}"))?;
        // Round the number in the same way as in the file, so that a count equals the budget
        // written from it.
        count.instructions = (count.instructions * 100.0).round() / 100.0;
        Ok(count)
    };
    lines.lines().map(count).collect()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, version) in &self.tools.0 {
            writeln!(f, "{name}\t{version}")?;
        }
        writeln!(f)?;
        for Count { name, instructions } in &self.counts {
            writeln!(f, "{name}\t{instructions:.2}")?;
        }
        Ok(())
    }
}

impl FromStr for Table {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (tools, counts) = text
            .split_once("\n\n")
            .context("no blank line between tools and counts")?;
        let pair = |line: &str| {
            let pair = line.split_once('\t');
            let pair = pair.with_context(|| format!("a line without a tab: {line:?}"))?;
            Ok::<_, anyhow::Error>((pair.0.to_owned(), pair.1.to_owned()))
        };
        let count = |line: &str| {
            let (name, number) = pair(line)?;
            let instructions = number.parse().ok().filter(|number: &f64| *number >= 0.0);
            let instructions =
                instructions.with_context(|| format!("{name}: not a number: {number:?}"))?;
            Ok(Count { name, instructions })
        };
        let counts = counts.lines().map(count).collect::<Result<Vec<_>>>()?;
        ensure!(!counts.is_empty(), "no counts");
        Ok(Self {
            tools: Tools(tools.lines().map(pair).collect::<Result<_>>()?),
            counts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "rustc\trustc 1.95.0\nlibc\tglibc 2.36\n\nrust-put\t35.00\nna-16\t1234.50\n";

    #[test]
    fn a_table_is_written_as_it_is_read() {
        let table: Table = TEXT.parse().unwrap();
        assert_eq!(table.counts[1].instructions, 1234.5);
        assert_eq!(table.to_string(), TEXT);
    }

    #[test]
    fn operations_are_asked_for_by_name_or_first_words() {
        let only = |asked: &[&str]| {
            let asked: Vec<_> = asked.iter().map(|name| name.to_string()).collect();
            let table = TEXT.parse::<Table>().unwrap().only(&asked);
            table.counts.into_iter().map(|count| count.name).collect()
        };
        let names: [Vec<String>; 4] = [&[][..], &["rust"], &["na-16"], &["ru"]].map(only);
        assert_eq!(names[0], ["rust-put", "na-16"]);
        assert_eq!(names[1], ["rust-put"]);
        assert_eq!(names[2], ["na-16"]);
        assert!(names[3].is_empty());
    }

    #[test]
    fn malformed_tables_are_refused() {
        for text in [
            "",
            "rustc\tx\nput\t1\n",
            "rustc\tx\n\n",
            "rustc\n\nput\t1\n",
            "rustc\tx\n\nput 1\n",
            "rustc\tx\n\nput\tone\n",
            "rustc\tx\n\nput\t-1\n",
            "rustc\tx\n\nput\tNaN\n",
        ] {
            assert!(text.parse::<Table>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn printed_counts_are_rounded_as_in_the_file() {
        let counts = read_counts("{\"name\":\"put\",\"instructions\":2.0049}\n").unwrap();
        assert_eq!(counts[0].instructions, 2.0);
        assert!(read_counts("put 2\n").is_err());
    }

    #[test]
    fn tools_that_differ_are_named() {
        let tools = |versions: &[(&str, &str)]| {
            let owned = |(name, version): &(&str, &str)| (name.to_string(), version.to_string());
            Tools(versions.iter().map(owned).collect())
        };
        let (here, there) = (
            tools(&[("rustc", "1"), ("cc", "2")]),
            tools(&[("rustc", "1"), ("libc", "3")]),
        );
        assert!(here.differences(&here).is_empty());
        assert_eq!(
            here.differences(&there),
            ["cc: 2 instead of unknown", "libc: unknown instead of 3"]
        );
    }
}
