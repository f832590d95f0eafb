//! The agent's log, which consists of JSON lines on standard error in the format that Dragon's
//! launcher reads.

use std::fmt::{self, Write as _};
use std::io::Write;

use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The prefix of each line.
const PREFIX: &str = "@DRAGON_HSTA@";

/// Logs events of this level and above to standard error. Only the first call of `init` or
/// [`init_plain`] has an effect.
pub fn init(level: Level) {
    let is_plain = false;
    drop(tracing::subscriber::set_global_default(Log {
        level,
        is_plain,
    }));
}

/// Logs events as [`init`] does, but as plain text.
pub fn init_plain(level: Level) {
    let is_plain = true;
    drop(tracing::subscriber::set_global_default(Log {
        level,
        is_plain,
    }));
}

/// Writes a line with a metric.
///
/// # Errors
/// Returns an error if `output` cannot be written to.
pub fn telemetry(output: &mut impl Write, metric: &str, value: f64) -> std::io::Result<()> {
    line(
        output,
        &json!({"kind": "telemetry", "metric": metric, "value": value}),
    )
}

/// Writes a line with a single call, so that the lines of several threads do not mix.
fn line(output: &mut impl Write, content: &Value) -> std::io::Result<()> {
    output.write_all(format!("{PREFIX}{content}\n").as_bytes())
}

struct Log {
    level: Level,
    is_plain: bool,
}

/// An event's message and its fields.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Ignores the result, because writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, ", {name}: {value:?}"),
        };
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::from_level(self.level))
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Line::default();
        event.record(&mut text);
        let metadata = event.metadata();
        if self.is_plain {
            let text = text.message + &text.fields;
            let _ = std::io::stderr().write_all(format!("conduit-hsta: {text}\n").as_bytes());
            return;
        }
        // Ignores the result, because a failed write to standard error cannot be reported.
        let _ = line(
            &mut std::io::stderr(),
            &json!({
                "kind": "log",
                "level": level(*metadata.level()),
                "message": text.message + &text.fields,
                "file": metadata.file(),
                "line": metadata.line(),
            }),
        );
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Returns Python's name of a level.
fn level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARNING",
        Level::INFO => "INFO",
        _ => "DEBUG",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_json_behind_the_prefix() {
        let mut output = Vec::new();
        telemetry(&mut output, "a \"metric\"\n", 1.5).unwrap();
        let text = String::from_utf8(output).unwrap();
        let content = text
            .strip_prefix(PREFIX)
            .unwrap()
            .strip_suffix('\n')
            .unwrap();
        assert!(!content.contains('\n'));
        let content: Value = serde_json::from_str(content).unwrap();
        assert_eq!(content["metric"], "a \"metric\"\n");
        assert_eq!(content["value"], 1.5);
    }
}
