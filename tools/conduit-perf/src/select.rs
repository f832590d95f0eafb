//! Which figures a user asked for, and how they are shown.

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
    /// Only name what there is
    #[arg(long)]
    list: bool,
    /// Measure less often and more briefly
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these, by name or the first words of it ("copy" is copy-in and copy-out)
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
    /// Checks what was asked for; false if names are all that is wanted, which are printed.
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
    /// Prints the figures. False if one that was asked for was left out or misses its target, and that is to be checked.
    pub(crate) fn judge(&self, figures: &[Figure], left_out: usize) -> io::Result<bool> {
        let summary = report::Summary::of(figures);
        let below = format!("{summary}\n");
        let format = self.choice.format;
        format.print(figures, &report::figures(figures), below)?;
        Ok(!self.check || (summary.all_within() && left_out == 0))
    }

    /// As [`judge`](Self::judge) where so many figures were wanted, and only too few cores are a reason to have less.
    pub(crate) fn judge_of(&self, figures: &[Figure], wanted: usize) -> io::Result<bool> {
        let left_out = wanted.saturating_sub(figures.len());
        if left_out > 0 {
            eprintln!("{left_out} figures left out: they need two cores");
        }
        self.judge(figures, left_out)
    }
}

/// A name on the command line that fits no figure.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("no figure is called '{asked}'; there are: {known}")]
pub struct UnknownFigure {
    /// What was asked for.
    pub asked: String,
    /// The names there are.
    pub known: String,
}

/// Whether `asked` means the figure `name`: its name, or the beginning of it up to a `-`.
#[must_use]
pub fn means(asked: &str, name: &str) -> bool {
    name.strip_prefix(asked)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Checks that every name asked for fits at least one of `known`.
///
/// # Errors
/// The first that doesn't.
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

/// Whether the figure `name` was asked for; all are if none is named.
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
