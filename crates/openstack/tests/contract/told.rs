//! How a reply is told: without what differs from run to run, and laid out so that a reader takes it in.
//!
//! Kept values stand as `{name}`; other ids, times, request ids, addresses that the cloud chose, MACs, revision numbers and passwords as
//! `<id>`, `<time>`, and so on. Objects of a list are put in an order that does not depend on ids, unless the list's
//! order is promised.

use std::{collections::BTreeMap, mem, net::IpAddr, str::FromStr};

use serde_json::{Map, Value};

/// What is known of the run.
pub(crate) struct RunContext<'r> {
    pub(crate) kept: &'r BTreeMap<String, String>,
    /// Roots of services with the word that stands for each.
    pub(crate) roots: &'r [(String, String)],
    pub(crate) said: &'r str,
    pub(crate) in_order: bool,
}

const WIDTH: usize = 116;

impl RunContext<'_> {
    pub(crate) fn tell(&self, body: &Value) -> Vec<String> {
        let mut lines = Vec::new();
        lay_out(&self.plain("", body), "", "", &mut lines);
        lines
    }

    pub(crate) fn plain(&self, name: &str, value: &Value) -> Value {
        match value {
            _ if stands_for(name).is_some() => stands_for(name).into(),
            Value::String(text) => self.text(text).into(),
            Value::Array(items) => {
                let mut items: Vec<Value> = items.iter().map(|it| self.plain("", it)).collect();
                if !self.in_order {
                    items.sort_by_key(Value::to_string);
                }
                items.into()
            }
            Value::Object(fields) => {
                let plain = |(name, value): (&String, &Value)| (self.text(name), self.plain(name, value));
                fields.iter().map(plain).collect::<Map<_, _>>().into()
            }
            other => other.clone(),
        }
    }

    pub(crate) fn text(&self, text: &str) -> String {
        if text.starts_with("Constrained to ") {
            return "Constrained to <n>, but current revision is <n>".to_owned();
        }
        let mut text = in_order_of_words(text);
        for (root, word) in self.roots {
            text = text.replace(root, word);
        }
        let mut kept: Vec<_> = self.kept.iter().filter(|(_, value)| value.len() >= 8).collect();
        kept.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        for (name, value) in kept {
            text = text.replace(value, &format!("{{{name}}}"));
        }
        let mut plain = String::new();
        let mut word = String::new();
        for c in text.chars() {
            if c.is_ascii_alphanumeric() || "-:._".contains(c) {
                word.push(c);
            } else {
                plain += &self.word(&word);
                word.clear();
                plain.push(c);
            }
        }
        plain + &self.word(&word)
    }

    fn word(&self, word: &str) -> String {
        let bare = word.trim_end_matches(['.', ':']);
        let end = &word[bare.len()..];
        // `ovn-lb-vip-8c1f7f3e-…`
        if let Some((before, id)) = bare.len().checked_sub(36).and_then(|at| bare.split_at_checked(at))
            && before.ends_with('-')
            && !before.starts_with("req")
            && is_id(id)
        {
            return format!("{before}<id>{end}");
        }
        let told = if bare.starts_with("req-") && bare.len() == 40 {
            "<request>"
        } else if is_id(bare) {
            "<id>"
        } else if is_time(bare) {
            "<time>"
        } else if is_mac(bare) {
            "<mac>"
        } else if IpAddr::from_str(bare).is_ok() && !self.said.contains(bare) {
            "<address>"
        } else if bare.starts_with("gAAAA") {
            "<token>"
        } else {
            bare
        };
        format!("{told}{end}")
    }
}

/// What is another one in each run, whatever it is.
fn stands_for(name: &str) -> Option<&'static str> {
    match name {
        "revision_number" | "standard_attr_id" => Some("<n>"),
        "adminPass" => Some("<password>"),
        "hostId" => Some("<host>"),
        "audit_ids" => Some("<ids>"),
        _ => None,
    }
}

/// Python's sets have another order in every process.
fn in_order_of_words(text: &str) -> String {
    const BEFORE: [&str; 2] = ["should be one of: ", "Supported types: "];
    let found = BEFORE.iter().find_map(|it| text.find(it).map(|at| text.split_at(at + it.len())));
    let Some((before, list)) = found else { return text.to_owned() };
    let mut words: Vec<&str> = list.split(", ").collect();
    words.sort_unstable();
    format!("{before}{}", words.join(", "))
}

fn is_id(word: &str) -> bool {
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    let parts: Vec<usize> = word.split('-').map(str::len).collect();
    parts == [8, 4, 4, 4, 12] && word.split('-').all(hex) || word.len() == 32 && hex(word)
}

/// `2026-11-21T03:44:00`, and whatever follows
fn is_time(word: &str) -> bool {
    let pattern = b"0000-00-00T00:00:00";
    let fits = |(b, p): (u8, &u8)| if *p == b'0' { b.is_ascii_digit() } else { b == *p };
    word.len() >= pattern.len() && word.bytes().zip(pattern).all(fits)
}

fn is_mac(word: &str) -> bool {
    word.len() == 17 && word.split(':').all(|it| it.len() == 2 && u8::from_str_radix(it, 16).is_ok())
}

/// On one line if it fits; else its parts flow, and what is too long for a line has lines of its own.
fn lay_out(value: &Value, before: &str, after: &str, lines: &mut Vec<String>) {
    let whole = format!("{before}{}{after}", spaced(value));
    let indent = before.len() - before.trim_start().len();
    let (open, close, parts): (_, _, Vec<(String, &Value)>) = match value {
        Value::Object(fields) if width(&whole) > WIDTH => {
            ('{', '}', fields.iter().map(|(name, value)| (format!("\"{name}\": "), value)).collect())
        }
        Value::Array(items) if width(&whole) > WIDTH => {
            ('[', ']', items.iter().map(|it| (String::new(), it)).collect())
        }
        _ => {
            lines.push(whole);
            return;
        }
    };
    lines.push(format!("{before}{open}"));
    let inner = " ".repeat(indent + 2);
    let mut line = inner.clone();
    let last = parts.len().saturating_sub(1);
    for (at, (name, part)) in parts.into_iter().enumerate() {
        let comma = if at == last { "" } else { "," };
        let text = format!("{name}{}{comma}", spaced(part));
        let is_long = width(&inner) + width(&text) > WIDTH;
        if line != inner && (is_long || width(&line) + 1 + width(&text) > WIDTH) {
            lines.push(mem::replace(&mut line, inner.clone()));
        }
        if is_long {
            lay_out(part, &format!("{inner}{name}"), comma, lines);
        } else {
            line += if line == inner { "" } else { " " };
            line += &text;
        }
    }
    if line != inner {
        lines.push(line);
    }
    lines.push(format!("{}{close}{after}", " ".repeat(indent)));
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// JSON with a blank after each comma and colon.
fn spaced(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("\"{name}\": {}", spaced(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(spaced).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}
