//! A line for people: time, level, component, message, fields.

use std::fmt;

use jiff::Timestamp;
use tracing::{Event, Level, Subscriber};
use tracing_log::NormalizeEvent;
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, format::Writer},
    registry::LookupSpan,
};

/// `2026-11-22T12:34:56.789Z  INFO health: member is down member=10.0.0.7:8080`
pub(super) struct HumanFormat;

const DIM: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";

impl<S, N> FormatEvent<S, N> for HumanFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let normalized = event.normalized_metadata();
        let metadata = normalized.as_ref().unwrap_or_else(|| event.metadata());
        let coloured = writer.has_ansi_escapes();
        let dim = |text: &str| if coloured { format!("{DIM}{text}{PLAIN}") } else { text.to_owned() };
        let level = match coloured {
            true => format!("{}{:>5}{PLAIN}", colour(metadata.level()), metadata.level()),
            false => format!("{:>5}", metadata.level()),
        };
        let component = dim(&format!("{}:", component(metadata.target())));
        write!(writer, "{} {level} {component} ", dim(&text(Timestamp::now())))?;
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            write!(writer, "{}", span.name())?;
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<N>>().filter(|it| !it.is_empty());
            fields.map_or(Ok(()), |fields| write!(writer, "{{{fields}}}"))?;
            writer.write_str(": ")?;
        }
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

fn colour(level: &Level) -> &'static str {
    match *level {
        Level::ERROR => "\u{1b}[31m",
        Level::WARN => "\u{1b}[33m",
        Level::INFO => "\u{1b}[32m",
        Level::DEBUG => "\u{1b}[34m",
        Level::TRACE => "\u{1b}[35m",
    }
}

/// Crates and modules that have a name of their own in the log; of other crates of ours, it is theirs.
const COMPONENTS: [(&str, &str); 7] = [
    ("seaway_cli", "seaway"),
    ("seaway_cluster", "kubernetes"),
    ("seaway_drivers::octavia", "octavia"),
    ("seaway_drivers::native", "native"),
    ("seaway_drivers::names", "names"),
    ("seaway_drivers::presence", "presence"),
    ("seaway_proxy::health", "health"),
];

/// The part of Seaway that a line is of: what an operator knows it by. Levels go by the whole path of the module.
fn component(target: &str) -> &str {
    let is_of =
        |module: &str| target.strip_prefix(module).is_some_and(|it| it.is_empty() || it.starts_with("::"));
    if let Some((_, name)) = COMPONENTS.iter().find(|(module, _)| is_of(module)) {
        return name;
    }
    let krate = target.split("::").next().unwrap_or(target);
    krate.strip_prefix("seaway_").unwrap_or(krate)
}

/// `2026-11-22T12:34:56.789Z`.
fn text(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_day_and_three_digits_of_its_second() {
        let text = |at: &str| text(at.parse().expect("a time"));
        assert_eq!(text("2026-12-31T23:59:59.999999Z"), "2026-12-31T23:59:59.999Z");
        assert_eq!(text("2027-01-01T00:00:00Z"), "2027-01-01T00:00:00.000Z");
    }

    #[test]
    fn a_component_is_what_an_operator_knows() {
        for (target, told) in [
            ("seaway_cli::member", "seaway"),
            ("seaway_cluster::watch::feed", "kubernetes"),
            ("seaway_drivers::octavia::quota", "octavia"),
            ("seaway_drivers::octavian", "drivers"),
            ("seaway_proxy::health::scheduler", "health"),
            ("seaway_proxy::udp", "proxy"),
            ("seaway_proxy", "proxy"),
            ("rustls::conn", "rustls"),
        ] {
            assert_eq!(component(target), told, "{target}");
        }
    }
}
