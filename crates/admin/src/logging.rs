//! Logs to standard error, one line each, with a level that can be changed at run time.

mod escape;
mod human;

use std::{
    fmt,
    io::{self, IsTerminal},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use thiserror::Error;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    EnvFilter, Layer, Registry, fmt::MakeWriter, layer::SubscriberExt, reload, util::SubscriberInitExt,
};

pub use self::escape::is_unsafe_in_logs;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `2026-11-22T12:34:56.789Z  INFO health: … member=10.0.0.7:8080`
    #[default]
    Human,
    /// One object a line.
    Json,
}

/// Starts logging for the whole process; once.
pub fn start(format: Format, level: &str) -> Result<LogHandle, LogError> {
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let (subscriber, handle) = subscriber(format, level, colour, io::stderr)?;
    subscriber.try_init().map_err(|_| LogError::Started)?;
    Ok(handle)
}

#[derive(Debug, Error)]
pub enum LogError {
    #[error(transparent)]
    Level(#[from] BadLevel),
    #[error("logging has been started already")]
    Started,
}

/// The reason, with what to write instead.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "'{0}' is not a log level: write off, error, warn, info, debug or trace, or one for a part of the program as in \
     'info,seaway_proxy=debug'"
)]
pub struct BadLevel(String);

/// Shows and changes the level. Clones change the same one.
#[derive(Clone)]
pub struct LogHandle {
    level: Arc<Mutex<String>>,
    reload: Arc<dyn Fn(EnvFilter) + Send + Sync>,
}

impl LogHandle {
    /// As it was set: `info,seaway_proxy=debug`.
    pub fn level(&self) -> String {
        self.locked().clone()
    }

    pub fn set(&self, level: &str) -> Result<(), BadLevel> {
        let (level, filter) = filter(level)?;
        let mut current = self.locked();
        (self.reload)(filter);
        *current = level;
        Ok(())
    }

    /// For tests and for callers that bring their own logging: remembers the level, changes nothing.
    #[allow(clippy::expect_used, reason = "the level is a constant")]
    pub fn detached() -> LogHandle {
        let (_, handle) = subscriber(Format::Human, "info", false, io::sink).expect("info is a level");
        handle
    }

    fn locked(&self) -> MutexGuard<'_, String> {
        self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LogHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogHandle").field(&self.level()).finish()
    }
}

type Subscriber = Box<dyn tracing::Subscriber + Send + Sync>;

fn subscriber<W>(
    format: Format,
    level: &str,
    colour: bool,
    writer: W,
) -> Result<(Subscriber, LogHandle), BadLevel>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (level, filter) = filter(level)?;
    let (filter, handle) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer::<Registry>();
    let lines = match format {
        Format::Human => {
            let lines = lines.fmt_fields(escape::Fields).with_writer(writer);
            lines.with_ansi(colour).event_format(human::HumanFormat).boxed()
        }
        Format::Json => {
            let lines = lines.with_writer(escape::Json(writer));
            lines.json().flatten_event(true).with_current_span(false).boxed()
        }
    };
    let subscriber = Registry::default().with(lines.with_filter(filter));
    let handle = LogHandle {
        level: Arc::new(Mutex::new(level)),
        // It fails only after the subscriber is gone, when there is nothing left to filter.
        reload: Arc::new(move |filter| _ = handle.reload(filter)),
    };
    Ok((Box::new(subscriber), handle))
}

/// Whether [`start`] would take it.
pub fn check_level(level: &str) -> Result<(), BadLevel> {
    filter(level).map(drop)
}

/// The filter and its text, normalized. Stricter than `EnvFilter`, which takes a misspelt level for the name of a module and then shows nothing.
fn filter(text: &str) -> Result<(String, EnvFilter), BadLevel> {
    let bad = |part: &str| BadLevel(part.chars().filter(|c| !c.is_control()).take(60).collect());
    let mut directives = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (target, level) = match part.split_once('=') {
            Some((target, level)) => (Some(target), level),
            None => (None, part),
        };
        // `LevelFilter` would read an empty text as "error", and takes digits.
        if level.is_empty() || level.bytes().any(|b| b.is_ascii_digit()) {
            return Err(bad(part));
        }
        let level: LevelFilter = level.parse().map_err(|_| bad(part))?;
        match target {
            None => directives.push(level.to_string()),
            Some(target) if is_target(target) => directives.push(format!("{target}={level}")),
            Some(_) => return Err(bad(part)),
        }
    }
    let level = directives.join(",");
    // kube repeats answers that it does not understand, whatever secrets are in them; we say ourselves what is wrong.
    let filter = EnvFilter::try_new(format!("kube_client=off,{level}")).map_err(|_| bad(text))?;
    Ok((level, filter))
}

fn is_target(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(format: Format, level: &str, speak: impl FnOnce(&LogHandle)) -> String {
        let paper = LogBuffer::default();
        let writer = paper.clone();
        let (subscriber, handle) = subscriber(format, level, false, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || speak(&handle));
        let bytes = paper.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_human_line_has_its_time_the_level_and_the_component() {
        let line =
            written(Format::Human, "info", |_| tracing::warn!(member = "10.0.0.7:80", "member is down"));
        assert_eq!(line.lines().count(), 1, "{line}");
        let (time, rest) = line.split_at(24);
        assert!(time.parse::<jiff::Timestamp>().is_ok(), "{line}");
        assert_eq!(rest, "  WARN admin: member is down member=\"10.0.0.7:80\"\n");
    }

    #[test]
    fn a_value_with_spaces_is_quoted() {
        let line = written(
            Format::Human,
            "info",
            |_| tracing::info!(of = %"Service default/shop", at = %"192.0.2.1:80", said = %r#"no "way" out"#, "moved"),
        );
        let told = r#"moved of="Service default/shop" at=192.0.2.1:80 said="no \"way\" out""#;
        assert!(line.trim_end().ends_with(told), "{line}");
    }

    #[test]
    fn json_is_one_object_a_line_whatever_the_message_holds() {
        let text = written(Format::Json, "info", |_| {
            tracing::info!("two\nlines");
            tracing::info!(port = 80, "bound");
        });
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        assert_eq!(lines[0]["message"], "two\nlines");
        assert_eq!((lines[1]["port"].as_u64(), lines[1]["level"].as_str()), (Some(80), Some("INFO")));
        assert!(lines[1]["timestamp"].as_str().is_some_and(|t| t.ends_with('Z')), "{}", lines[1]);
    }

    /// A tenant chooses names; a cloud, an API server and members choose what they answer.
    #[test]
    fn what_comes_from_outside_cannot_forge_a_line() {
        let evil =
            "x\n2026-11-22T12:00:00.000Z  INFO seaway: all is well\r\u{1b}[2K\u{85}\u{9b}31m\u{2028}\u{202e}";
        let speak = |_: &LogHandle| {
            tracing::warn!(name = evil, shown = %evil, debug = ?evil, "it says {evil}");
            tracing::warn!(error = &io::Error::other(evil) as &dyn std::error::Error, "failed");
        };
        for format in [Format::Human, Format::Json] {
            let text = written(format, "info", speak);
            assert_eq!(text.lines().count(), 2, "{text}");
            let forging: Vec<char> = text.chars().filter(|it| it.is_control() && *it != '\n').collect();
            assert_eq!(forging, [], "{text}");
            assert!(!text.contains(['\u{2028}', '\u{202e}']), "{text}");
        }
        let text = written(Format::Json, "info", speak);
        let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).expect(&text);
        assert_eq!(first["shown"], evil, "nothing is lost of it");
    }

    #[test]
    fn fields_follow_the_message() {
        let line = written(Format::Human, "info", |_| {
            tracing::info!(member = "10.0.0.7:80", at = %"b c", count = 3, "member is {}", "down");
        });
        let told = "member is down member=\"10.0.0.7:80\" at=\"b c\" count=3\n";
        assert!(line.ends_with(told), "{line}");
    }

    #[test]
    fn the_level_changes_at_run_time() {
        let text = written(Format::Human, "warn", |handle| {
            tracing::info!("unheard");
            handle.set("info,seaway_admin=debug").unwrap();
            tracing::debug!("heard");
            assert!(handle.level().contains("seaway_admin=debug"), "{handle:?}");
            handle.set("off").unwrap();
            tracing::error!("hushed");
        });
        assert!(text.contains("heard") && !text.contains("unheard") && !text.contains("hushed"), "{text}");
    }

    #[test]
    fn a_misspelt_level_is_refused_and_the_old_one_stays() {
        let handle = LogHandle::detached();
        for bad in ["debgu", "", "info,", "seaway=", "=info", "a b=info", "seaway=loud", "3", "[x]=info"] {
            assert!(handle.set(bad).is_err(), "{bad:?}");
        }
        assert_eq!(handle.level(), "info");
        for good in ["INFO", "trace", "warn, seaway_proxy::udp=debug", "off"] {
            handle.set(good).expect(good);
        }
    }
}
