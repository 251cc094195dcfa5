//! The words of an API server for what the schema of a custom resource refuses.

use std::time::Duration;

use crate::{decode::Field, object::formats};

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const TOKEN: &str = r"^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$";

/// A rule of the schema that is no pattern: told with its own message.
pub(super) fn require(field: &Field<'_>, holds: bool, message: &str) {
    if !holds {
        field.error(format!("Invalid value: \"object\": {message}"));
    }
}

fn matches(field: &Field<'_>, text: &str, holds: bool, pattern: &str) {
    if !holds {
        field.invalid(text, &format!("{} in body should match '{pattern}'", field.path()));
    }
}

pub(super) fn at_most_items(list: &Field<'_>, most: usize) {
    let there = list.items().len();
    if there > most {
        list.too_many(there, most);
    }
}

pub(super) fn at_least(field: &Field<'_>, number: i64, least: i64) {
    if number < least {
        field
            .invalid(number, &format!("{} in body should be greater than or equal to {least}", field.path()));
    }
}

pub(super) fn at_most_bytes(field: &Field<'_>, text: &str, most: usize) {
    if text.len() > most {
        field.too_long(most);
    }
}

fn at_least_one(field: &Field<'_>, text: &str) {
    if text.is_empty() {
        field.invalid(text, &format!("{} in body should be at least 1 chars long", field.path()));
    }
}

/// Text that must be there and not be empty.
pub(super) fn text<'a>(field: &Field<'a>, most: usize) -> Option<&'a str> {
    if !field.is_set() {
        field.required("");
    }
    let text = field.text()?;
    at_least_one(field, text);
    at_most_bytes(field, text, most);
    Some(text)
}

pub(super) fn hostname(field: &Field<'_>, text: &str, wildcard: bool) {
    at_least_one(field, text);
    at_most_bytes(field, text, 253);
    let name = text.strip_prefix("*.").filter(|_| wildcard).unwrap_or(text);
    let star = if wildcard { r"(\*\.)?" } else { "" };
    let holds = name.split('.').all(|label| formats::dns1123_label(label).is_empty());
    matches(field, text, holds, &format!(r"^{star}{LABEL}(\.{LABEL})*$"));
}

/// The name of a header, and of a parameter too.
pub(super) fn header_name<'a>(field: &Field<'a>) -> Option<&'a str> {
    let name = text(field, 256)?;
    token(field, name);
    Some(name)
}

pub(super) fn token(field: &Field<'_>, name: &str) {
    let holds = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
    matches(field, name, holds && !name.is_empty(), TOKEN);
}

/// What no line of a head may have in it, whatever the schema says.
pub(super) fn header_value(field: &Field<'_>, value: &str) {
    if value.bytes().any(|b| (b < b' ' && b != b'\t') || b == 127) {
        field.invalid(value, "must consist of printable characters, separated by single tabs or spaces");
    }
}

/// Hours, minutes, seconds and milliseconds (GEP-2257).
pub(super) fn duration(field: &Field<'_>) -> Option<Duration> {
    let text = field.text()?;
    let time = is_duration(text).then(|| seaway_plan::quantity::duration(text).ok()).flatten();
    matches(field, text, time.is_some(), "^([0-9]{1,5}(h|m|s|ms)){1,4}$");
    time
}

fn is_duration(text: &str) -> bool {
    let mut rest = text;
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        let after = ["ms", "h", "m", "s"].into_iter().find_map(|unit| tail.strip_prefix(unit));
        let Some(after) = after.filter(|_| (1..=5).contains(&number.len())) else { return false };
        rest = after;
        parts = usize::saturating_add(parts, 1);
    }
    (1..=4).contains(&parts)
}

#[cfg(test)]
mod tests {
    #[test]
    fn durations_are_those_of_gateway_api() {
        for text in ["0s", "10ms", "1h30m", "99999s", "1h1m1s1ms"] {
            assert!(super::is_duration(text), "{text}");
        }
        for text in ["", "1", "s", "1.5s", "100000s", "1d", "1h1m1s1ms1s", "-1s", "1 s"] {
            assert!(!super::is_duration(text), "{text}");
        }
    }
}
