//! Forwarding of the networks' warnings and errors to Mercury's log.

use std::ffi::CString;
use std::fmt::{self, Write};
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::log::{self, Level, Outlet};

/// Starts forwarding. The plugin has its own copy of `tracing`, so this does not affect other code.
pub(crate) fn to_log() {
    static ONCE: Once = Once::new();
    // This cannot fail, because the plugin's copy of `tracing` has no other subscriber.
    ONCE.call_once(|| drop(tracing::subscriber::set_global_default(Log)));
}

struct Log;

/// An event's message and its fields.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, ", {name}: {value:?}"),
        };
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= tracing::Level::WARN
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => Level::Error,
            _ => Level::Warning,
        };
        let mut line = Line::default();
        event.record(&mut line);
        let place = CString::new(event.metadata().target()).unwrap_or_default();
        log::write(
            Outlet::Class,
            level,
            &place,
            &format!("{}{}", line.message, line.fields),
        );
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
