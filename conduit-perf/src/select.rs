//! Which figures a user asked for.

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
