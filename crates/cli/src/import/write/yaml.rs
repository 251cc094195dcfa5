//! Values as YAML, as short as a person would write them.

use serde_json::Value;

/// Words that YAML reads as something else than text.
const WORDS: [&str; 11] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null", "inf", "nan"];

/// A text, quoted where it would be read as something else.
pub(super) fn scalar(text: &str) -> String {
    let begins = text.starts_with(|it: char| it.is_ascii_alphabetic() || it == '/');
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"./_-".contains(&byte));
    if begins && plain && !WORDS.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    printable(&Value::from(text).to_string())
}

/// JSON as YAML can have it: control characters of Unicode are no part of YAML, and escapes are.
pub(in crate::import) fn printable(json: &str) -> String {
    let is_fine = |it: char| {
        !it.is_control() && !matches!(it, '\u{feff}' | '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}')
    };
    json.chars()
        .map(|it| if is_fine(it) { it.to_string() } else { format!("\\u{:04x}", u32::from(it)) })
        .collect()
}

/// Lists and maps in one line; texts that look like numbers stay texts.
pub(super) fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) => {
            // What it is comes first.
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| !matches!(key.as_str(), "type" | "name" | "service"));
            let entries = entries.iter().map(|(key, value)| format!("{}: {}", scalar(key), flow(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// A comment of one line, whatever is in the text.
pub(super) fn comment(text: &str) -> String {
    printable(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}
