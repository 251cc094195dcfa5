//! What comes from outside cannot forge a line of the log: names, answers and errors may hold anything.
//!
//! Whatever moves a cursor, ends a line or turns the direction of writing is written as an escape, in both formats.

use std::{
    fmt::{self, Debug, Write},
    io,
};

use tracing::field::{Field, Visit};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{FormatFields, MakeWriter, format::Writer},
};

/// Fields for people: the message, then `name=value` or `name="a value"` of each.
pub(super) struct Fields;

impl<'w> FormatFields<'w> for Fields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut line = FieldWriter { writer, is_empty: true, result: Ok(()) };
        fields.record(&mut line);
        line.result
    }
}

struct FieldWriter<'w> {
    writer: Writer<'w>,
    is_empty: bool,
    result: fmt::Result,
}

impl FieldWriter<'_> {
    fn write(&mut self, field: &Field, value: &dyn Debug) -> fmt::Result {
        if !std::mem::take(&mut self.is_empty) {
            self.writer.write_char(' ')?;
        }
        let mut escaped = Escaped(&mut self.writer);
        let name = field.name().trim_start_matches("r#");
        if name == "message" {
            return write!(escaped, "{value:?}");
        }
        let text = format!("{value:?}");
        // What has a space in it is quoted, so that a field can be cut out.
        match text.contains(' ') && !text.starts_with('"') {
            true => write!(escaped, "{name}=\"{}\"", text.replace('"', "\\\"")),
            false => write!(escaped, "{name}={text}"),
        }
    }
}

impl Visit for FieldWriter<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.record_debug(field, &format_args!("{value}")),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Of records of the crate `log`: where they come from is told already.
        if self.result.is_ok() && !field.name().starts_with("log.") {
            self.result = self.write(field, value);
        }
    }
}

struct Escaped<'a, 'w>(&'a mut Writer<'w>);

impl Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(is_unsafe_in_logs) {
            let (plain, forging) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut chars = forging.chars();
            if let Some(forging) = chars.next() {
                write!(self.0, "{}", forging.escape_default())?;
            }
            rest = chars.as_str();
        }
        self.0.write_str(rest)
    }
}

/// Controls, other ends of lines, and what turns the direction of writing.
pub fn is_unsafe_in_logs(it: char) -> bool {
    it.is_control()
        || matches!(it, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// For JSON, in which what is left of them can stand only in texts.
#[derive(Clone)]
pub(super) struct Json<W>(pub(super) W);

impl<'w, W: MakeWriter<'w>> MakeWriter<'w> for Json<W> {
    type Writer = Json<W::Writer>;

    fn make_writer(&'w self) -> Json<W::Writer> {
        Json(self.0.make_writer())
    }
}

impl<W: io::Write> io::Write for Json<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        // The end of the line is ours.
        let forges = |it: char| it != '\n' && is_unsafe_in_logs(it);
        if !text.contains(forges) {
            self.0.write_all(bytes)?;
            return Ok(bytes.len());
        }
        let mut escaped = String::with_capacity(text.len().saturating_add(16));
        for it in text.chars() {
            match forges(it) {
                // All of them are below U+FFFF.
                true => escaped.push_str(&format!("\\u{:04x}", it as u32)),
                false => escaped.push(it),
            }
        }
        self.0.write_all(escaped.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
