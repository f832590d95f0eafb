//! `--print-settings`: prints the settings that the ranks of a job would find, as a table or as
//! JSON.

use std::fmt;
use std::io::{self, Write};

use conduit::settings::{
    Description, Groups as _, InJob, InJobError, Settings, SettingsError, Table, Value, Warning,
};
use rustix::termios::{isatty, tcgetwinsize};
use serde_json::{Map, json};

/// The origin of a value other than the default.
const ENVIRONMENT: &str = "environment";
const OPTION: &str = "--env";

/// The settings as the ranks of a job would read them.
#[derive(Debug)]
pub(crate) struct Report {
    settings: Settings,
    job: Option<InJob>,
    /// The names of the variables that `--env` options set.
    options: Vec<String>,
    warnings: Vec<Warning>,
}

/// The reason why no settings can be printed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    InJob(#[from] InJobError),
}

impl Report {
    /// Reads the launcher's environment and its `--env` options; the last option for a name wins.
    /// With `ranks`, includes the values for a job of that size.
    pub(crate) fn new(
        environment: impl IntoIterator<Item = (String, String)>,
        options: &[(String, String)],
        ranks: Option<u32>,
    ) -> Result<Self, Error> {
        let variables = options.iter().rev().cloned().chain(environment);
        let (settings, warnings) = Settings::from_lookup(variables)?;
        let job = ranks
            .map(|ranks| settings.engine.in_job(ranks))
            .transpose()?;
        let options = options.iter().map(|(name, _)| name.clone()).collect();
        Ok(Report {
            settings,
            job,
            options,
            warnings,
        })
    }

    /// Returns the warnings about the settings that the user has set.
    pub(crate) fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    fn origin(&self, name: &str) -> &'static str {
        match self.options.iter().any(|option| option == name) {
            true => OPTION,
            false => ENVIRONMENT,
        }
    }

    /// Returns the table, for a terminal of `width` columns, and a summary of the job.
    pub(crate) fn table(&self, width: Option<usize>) -> String {
        let head = match &self.job {
            Some(job) if job.plan.ranks() == 1 => "1 RANK".to_owned(),
            Some(job) => format!("{} RANKS", job.plan.ranks()),
            None => String::new(),
        };
        let table = Table {
            rows: &self.rows(),
            in_job: &head,
            origin: &|name| self.origin(name),
            width,
        };
        match &self.job {
            Some(job) => format!("{table}\n{}", Summary(job)),
            None => table.to_string(),
        }
    }

    fn rows(&self) -> Vec<Description> {
        let mut rows = self.settings.describe();
        for row in &mut rows {
            row.in_job = self.job.as_ref().and_then(|job| job.value(row.name));
        }
        rows
    }

    /// Returns an object with the field `settings`, and for a job also the fields `ranks` and
    /// `credits`.
    pub(crate) fn json(&self) -> serde_json::Value {
        let settings = self.rows().into_iter().map(|row| {
            let origin = match row.is_set {
                true => self.origin(row.name),
                false => "default",
            };
            let mut object = Map::new();
            let mut put = |name: &str, value| drop(object.insert(name.to_owned(), value));
            put("name", json!(row.name));
            put("value", value(&row.value));
            put("default", value(&row.default));
            if self.job.is_some() {
                put("in_job", value(&row.in_job.or(row.value)));
            }
            put("from", json!(origin));
            put("accepted", json!(row.accepted));
            put("meaning", json!(row.meaning));
            if !row.unset.is_empty() {
                put("unset", json!(row.unset));
            }
            serde_json::Value::Object(object)
        });
        let mut report = json!({ "settings": settings.collect::<Vec<_>>() });
        if let Some(InJob { plan, .. }) = &self.job {
            report["ranks"] = json!(plan.ranks());
            report["credits"] = json!({
                "flow_control": plan.flow_control(),
                "bytes_per_credit": plan.scale().bytes_per_credit(),
                "full_medium": plan.scale().full_cost(),
                "per_peer": plan.credits_per_peer(),
                "most_per_peer": plan.max_per_peer(),
                "banked": plan.banked(),
                "total": plan.total(),
                "buffers": plan.buffers(),
                "buffer_bytes": plan.buffer_bytes(),
            });
        }
        report
    }

    /// Writes the report to standard output. If standard output is a terminal, the table is wrapped
    /// to its width.
    pub(crate) fn print(&self, as_json: bool) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        match as_json {
            true => writeln!(stdout, "{:#}", self.json()),
            false => stdout.write_all(self.table(columns()).as_bytes()),
        }
    }
}

/// Returns a setting's value as JSON. Byte counts are numbers, and a missing value is `null`.
fn value(value: &Option<Value>) -> serde_json::Value {
    match value {
        Some(Value::Integer(number)) => json!(number),
        Some(Value::Bool(yes)) => json!(yes),
        Some(Value::Bytes(bytes)) => json!(bytes),
        Some(Value::Percent(percent)) => json!(f64::from(*percent)),
        Some(Value::Words(words)) => json!(words),
        Some(Value::Path(text) | Value::Text(text)) => json!(text),
        None => serde_json::Value::Null,
    }
}

/// Returns the width of the terminal on standard output, if it is one.
fn columns() -> Option<usize> {
    let stdout = io::stdout();
    let size = isatty(&stdout).then(|| tcgetwinsize(&stdout))?.ok()?;
    // Some terminals report 0 columns.
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// A summary of a job's credits, in a few lines.
struct Summary<'a>(&'a InJob);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = &self.0.plan;
        let many = |number: u32, one: &str| match number {
            1 => format!("1 {one}"),
            _ => format!("{number} {one}s"),
        };
        if !plan.flow_control() {
            writeln!(f, "Without flow control requests cost no credits.")?;
        } else {
            writeln!(
                f,
                "Each rank lends each of {} {} and banks {}.",
                many(plan.ranks(), "rank"),
                many(plan.credits_per_peer().into(), "credit"),
                plan.banked(),
            )?;
            writeln!(
                f,
                "A credit is {} bytes; a full medium costs {}.",
                plan.scale().bytes_per_credit(),
                plan.scale().full_cost(),
            )?;
        }
        writeln!(
            f,
            "{} of {} KiB: {:.1} MiB on each rank.",
            many(plan.buffers(), "request buffer"),
            plan.buffer_bytes() >> 10,
            (f64::from(plan.buffers()) * plan.buffer_bytes() as f64) / f64::from(1 << 20),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(variables: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        variables.iter().map(owned).collect()
    }

    fn report(
        environment: &[(&str, &str)],
        options: &[(&str, &str)],
        ranks: Option<u32>,
    ) -> Report {
        Report::new(owned(environment), &owned(options), ranks).unwrap()
    }

    fn row<'a>(json: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
        let rows = json["settings"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap()
    }

    /// Returns the words of the line that begins with a name.
    fn words<'a>(table: &'a str, name: &str) -> Vec<&'a str> {
        let mut lines = table.lines().map(|line| line.split_whitespace().collect());
        lines
            .find(|line: &Vec<_>| line.first() == Some(&name))
            .unwrap()
    }

    #[test]
    fn options_count_before_the_environment_and_the_last_of_them() {
        let report = report(
            &[
                ("GASNET_PORTAL_AM_LIMIT", "3"),
                ("CONDUIT_YIELD", "4"),
                ("HOME", "/"),
            ],
            &[
                ("GASNET_PORTAL_AM_LIMIT", "5"),
                ("GASNET_PORTAL_AM_LIMIT", "6"),
                ("COLOUR", "red"),
            ],
            None,
        );
        let (table, json) = (report.table(None), report.json());
        let name = "GASNET_PORTAL_AM_LIMIT";
        assert_eq!(words(&table, name), [name, "6", "8", "--env"]);
        assert_eq!(
            words(&table, "CONDUIT_YIELD"),
            ["CONDUIT_YIELD", "4", "64", "environment"]
        );
        assert_eq!(row(&json, name)["value"], 6);
        assert_eq!(row(&json, name)["default"], 8);
        assert_eq!(row(&json, name)["from"], "--env");
        assert_eq!(row(&json, "CONDUIT_SPIN")["from"], "default");
        assert_eq!(row(&json, "CONDUIT_SPIN")["value"], serde_json::Value::Null);
        assert_eq!(row(&json, "CONDUIT_CHUNK")["value"], 17 * 1024);
        assert_eq!(row(&json, "CONDUIT_WINDOWS")["value"], true);
        assert!(json.get("credits").is_none() && row(&json, name).get("in_job").is_none());
    }

    #[test]
    fn values_in_a_job_are_its_plans() {
        let options = [
            ("CONDUIT_CHUNK", "1024"),
            ("GASNET_PORTAL_BANKED_CREDITS", "100"),
        ];
        let report = report(&[], &options, Some(64));
        let (json, plan) = (report.json(), &report.job.as_ref().unwrap().plan);
        let per_peer = plan.credits_per_peer();
        assert_eq!(json["ranks"], 64);
        assert_eq!(json["credits"]["per_peer"], per_peer);
        assert_eq!(
            row(&json, "GASNET_PORTAL_CRED_PER_NODE")["in_job"],
            per_peer
        );
        assert_eq!(row(&json, "GASNET_PORTAL_BANKED_CREDITS")["value"], 100);
        assert_eq!(
            row(&json, "GASNET_PORTAL_BANKED_CREDITS")["in_job"],
            plan.banked()
        );
        assert_eq!(row(&json, "GASNET_PORTAL_AM_LIMIT")["in_job"], 8);
        assert_eq!(row(&json, "CONDUIT_EXIT_TIMEOUT")["in_job"], 11);
        let table = report.table(None);
        let name = "GASNET_PORTAL_CRED_PER_NODE";
        let per_peer = per_peer.to_string();
        assert_eq!(words(&table, name), [name, "-", "-", &per_peer, "default"]);
        assert!(words(&table, "SETTING").ends_with(&["64", "RANKS", "FROM"]));
        assert!(table.contains(&format!("lends each of 64 ranks {per_peer} credits and")));
    }

    #[test]
    fn a_table_fits_its_terminal() {
        for width in [80, 100, 200] {
            for ranks in [None, Some(1000)] {
                let table = report(&[], &[], ranks).table(Some(width));
                let longest = table.lines().map(|line| line.chars().count()).max();
                assert!(longest.unwrap() <= width, "{width}: {table}");
            }
        }
        let value = "/a/path".repeat(20);
        let table = report(&[("CONDUIT_CREDIT_STATS_DIR", &value)], &[], None).table(Some(80));
        assert!(table.contains(&value), "values are whole");
    }

    #[test]
    fn wrong_settings_are_named() {
        let error = |variables: &[_], ranks| {
            Report::new(owned(variables), &[], ranks)
                .unwrap_err()
                .to_string()
        };
        let text = error(&[("GASNET_PORTAL_MSG_LIMIT", "7")], None);
        assert!(
            text.starts_with("GASNET_PORTAL_MSG_LIMIT=\"7\" is not valid"),
            "{text}"
        );
        let space = [("GASNET_PORTAL_AMRECV_SPACE", "4K")];
        assert!(Report::new(owned(&space), &[], None).is_ok());
        let text = error(&space, Some(4));
        assert!(
            text.starts_with("setting GASNET_PORTAL_AMRECV_SPACE: "),
            "{text}"
        );
        assert!(text.ends_with("(in a job of 4 ranks)"), "{text}");
    }

    #[test]
    fn what_has_no_meaning_is_warned_of() {
        let report = report(&[("GASNET_PORTAL_ACCEL", "1")], &[], None);
        assert_eq!(report.warnings().len(), 1);
    }

    #[test]
    fn without_flow_control_there_are_no_credits() {
        let report = report(&[("GASNET_PORTAL_FLOW_CONTROL", "0")], &[], Some(2));
        assert!(report.table(None).contains("requests cost no credits"));
        assert_eq!(report.json()["credits"]["flow_control"], false);
    }
}
