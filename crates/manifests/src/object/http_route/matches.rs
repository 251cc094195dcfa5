//! What a request must be for a rule.

use seaway_model::{
    Name,
    load_balancer::{Match, PathMatch, TextMatch},
};

use super::schema;
use crate::decode::Field;

#[derive(Clone, Copy, PartialEq)]
enum MatchType {
    Exact,
    Prefix,
    Regex,
}

const PATHS: &[(&str, MatchType)] = &[
    ("Exact", MatchType::Exact),
    ("PathPrefix", MatchType::Prefix),
    ("RegularExpression", MatchType::Regex),
];
const TEXTS: &[(&str, MatchType)] = &[("Exact", MatchType::Exact), ("RegularExpression", MatchType::Regex)];
pub(super) const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

pub(super) fn read(item: &Field<'_>) -> Match {
    let method = item.child("method");
    let known = METHODS.map(|it| (it, it));
    Match {
        path: Some(path(&item.child("path"))),
        method: method.one_of(&known).map(Name::from),
        headers: texts(&item.child("headers"), 4096, true),
        query: texts(&item.child("queryParams"), 1024, false),
    }
}

fn path(field: &Field<'_>) -> PathMatch {
    let way = field.child("type").one_of(PATHS).unwrap_or(MatchType::Prefix);
    let value = field.child("value");
    let text = value.text().unwrap_or("/");
    schema::at_most_bytes(&value, text, 1024);
    if way == MatchType::Regex {
        return PathMatch::Regex(text.into());
    }
    let kinds = "when type one of ['Exact', 'PathPrefix']";
    let said = |holds, why: String| schema::require(field, holds, &why);
    said(text.starts_with('/'), format!("value must be an absolute path and start with '/' {kinds}"));
    for part in ["//", "/./", "/../", "%2f", "%2F", "#"] {
        said(!text.contains(part), format!("must not contain '{part}' {kinds}"));
    }
    for end in ["/..", "/."] {
        said(!text.ends_with(end), format!("must not end with '{end}' {kinds}"));
    }
    said(
        is_plain_path(text),
        "must only contain valid characters (matching ^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$) for \
         types ['Exact', 'PathPrefix']"
            .to_owned(),
    );
    match way {
        MatchType::Exact => PathMatch::Exact(text.into()),
        MatchType::Prefix | MatchType::Regex => PathMatch::Prefix(text.into()),
    }
}

/// Only what a path may be made of.
pub(super) fn is_plain_path(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let holds = match byte {
            b'%' => (0..2).all(|_| bytes.next().is_some_and(|it| it.is_ascii_hexdigit())),
            _ => byte.is_ascii_alphanumeric() || b"-/._~!$&'()*+,;=:@".contains(&byte),
        };
        if !holds {
            return false;
        }
    }
    true
}

/// Of two with one name the first counts.
fn texts(list: &Field<'_>, most: usize, any_case: bool) -> Vec<(Name, TextMatch)> {
    schema::at_most_items(list, 16);
    let mut texts: Vec<(Name, TextMatch)> = Vec::new();
    for item in list.items() {
        let way = item.child("type").one_of(TEXTS).unwrap_or(MatchType::Exact);
        let name = schema::header_name(&item.child("name"));
        let value = schema::text(&item.child("value"), most);
        let (Some(name), Some(value)) = (name, value) else { continue };
        if texts.iter().any(|(known, _)| **known == *name) {
            item.error(format!("Duplicate value: {{\"name\":{name:?}}}"));
        }
        if any_case && texts.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
            continue;
        }
        let text = match way {
            MatchType::Exact | MatchType::Prefix => TextMatch::Exact(value.into()),
            MatchType::Regex => TextMatch::Regex(value.into()),
        };
        texts.push((name.into(), text));
    }
    texts
}
