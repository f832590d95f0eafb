//! The options with which users select figures, and the output of these figures.

use std::io::{self, Write};

use clap::Args;

use crate::alternate::Plan;
use crate::figure::Figure;
use crate::report;

/// Options of all commands that measure something by name.
#[derive(Clone, Debug, Args)]
pub struct Choice {
    #[command(flatten)]
    pub(crate) format: report::Format,
    /// Only list the available names
    #[arg(long)]
    list: bool,
    /// Measure fewer and shorter rounds
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these, by name or its first words ("copy" is copy-in and copy-out)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) figures: Vec<String>,
}

/// Options of all commands whose figures have targets.
#[derive(Clone, Debug, Args)]
pub struct Judged {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Exit with 1 unless every figure with a target meets it
    #[arg(long)]
    check: bool,
}

impl Choice {
    /// Checks the requested names. If only a list of the known names is requested, prints it and
    /// returns `false`.
    pub(crate) fn measures<'n>(
        &self,
        known: impl IntoIterator<Item = &'n str>,
    ) -> anyhow::Result<bool> {
        let mut names: Vec<_> = known.into_iter().collect();
        names.dedup();
        if self.list {
            writeln!(io::stdout(), "{}", names.join("\n"))?;
        }
        check(&self.figures, names)?;
        Ok(!self.list)
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        wanted(&self.figures, name)
    }

    pub(crate) fn plan(&self) -> Plan {
        Plan::of(self.quick)
    }
}

impl Judged {
    /// Prints the figures. Returns `false` if targets are to be checked and a requested figure was
    /// left out or misses its target.
    pub(crate) fn judge(&self, figures: &[Figure], left_out: usize) -> io::Result<bool> {
        let summary = report::Summary::of(figures);
        let below = format!("{summary}\n");
        let format = self.choice.format;
        format.print(figures, &report::figures(figures), below)?;
        Ok(!self.check || (summary.all_within() && left_out == 0))
    }

    /// Prints figures like [`judge`](Self::judge), given that `wanted` figures were requested. If
    /// there are fewer figures, the only possible reason is a lack of cores.
    pub(crate) fn judge_of(&self, figures: &[Figure], wanted: usize) -> io::Result<bool> {
        let left_out = wanted.saturating_sub(figures.len());
        if left_out > 0 {
            eprintln!("{left_out} figures left out: they need two cores");
        }
        self.judge(figures, left_out)
    }
}

/// A name on the command line that matches no figure.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("no figure is called '{asked}'; available: {known}")]
pub struct UnknownFigure {
    /// The requested name.
    pub asked: String,
    /// The available names.
    pub known: String,
}

/// Returns whether `asked` refers to the figure `name`. It does if it is that name, or a beginning
/// of it that ends before a `-`.
#[must_use]
pub fn means(asked: &str, name: &str) -> bool {
    name.strip_prefix(asked)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Checks that every requested name matches at least one of `known`.
///
/// # Errors
/// Returns an error with the first name that has no match.
pub fn check<'n>(
    asked: &[String],
    known: impl IntoIterator<Item = &'n str>,
) -> Result<(), UnknownFigure> {
    let mut names: Vec<_> = known.into_iter().collect();
    names.dedup();
    match asked
        .iter()
        .find(|asked| !names.iter().any(|name| means(asked, name)))
    {
        None => Ok(()),
        Some(asked) => Err(UnknownFigure {
            asked: asked.clone(),
            known: names.join(", "),
        }),
    }
}

/// Returns whether the figure `name` was requested. If no name is given, all figures are requested.
#[must_use]
pub fn wanted(asked: &[String], name: &str) -> bool {
    asked.is_empty() || asked.iter().any(|asked| means(asked, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_or_its_first_words_select() {
        assert!(means("am", "am-short-rate") && means("am-short", "am-short-rate"));
        assert!(means("am-short-rate", "am-short-rate"));
        assert!(!means("am-sh", "am-short-rate") && !means("short", "am-short-rate"));
        assert!(wanted(&[], "put") && !wanted(&["get".to_owned()], "put"));
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_names_there_are() {
        let asked = ["put".to_owned(), "pot".to_owned()];
        let error = check(&asked, ["put", "put", "get"]).expect_err("pot");
        assert_eq!(
            error,
            UnknownFigure {
                asked: "pot".into(),
                known: "put, get".into()
            }
        );
        assert_eq!(check(&asked[..1], ["put", "get"]), Ok(()));
    }
}
