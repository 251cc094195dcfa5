//! Names that scripts, alerts and dashboards rely on.

use std::collections::BTreeSet;

use seaway_testkit::golden;
use serde_json::Value;

use crate::{client::ask, paths::sample};

fn folder() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// Each path of keys with the kind of what is there, lists as `[]`.
fn shape(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    let kind = match value {
        Value::Object(keys) => {
            keys.iter().for_each(|(key, inner)| shape(inner, &format!("{path}.{key}"), into));
            return;
        }
        Value::Array(items) => {
            items.iter().for_each(|inner| shape(inner, &format!("{path}[]"), into));
            "list"
        }
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
    };
    into.insert(format!("{path} {kind}"));
}

#[test]
fn the_keys_of_state_are_the_golden_ones() {
    sample(|at| {
        let state = serde_json::from_str(&ask(at, "/state").body).expect("is JSON");
        let mut lines = BTreeSet::new();
        shape(&state, "", &mut lines);
        golden::same(
            folder().join("state.txt"),
            &lines.iter().map(|it| format!("{it}\n")).collect::<String>(),
        );
    });
}

/// `seaway_bytes_total{direction,listener} counter`, one line for each metric and set of labels.
fn metrics(text: &str) -> String {
    let mut types = std::collections::BTreeMap::new();
    let mut lines = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            types.insert(name.to_owned(), kind.to_owned());
        } else if !line.starts_with('#') && !line.is_empty() {
            let (name, rest) = line.split_at(line.find(['{', ' ']).expect("a value"));
            let labels = rest.strip_prefix('{').and_then(|it| it.rsplit_once('}')).map_or("", |(it, _)| it);
            let suffix =
                ["_bucket", "_sum", "_count", "_total", "_info"].iter().find_map(|it| name.strip_suffix(it));
            let family = suffix.filter(|it| types.contains_key(*it)).unwrap_or(name);
            let kind = types.get(family).unwrap_or_else(|| panic!("{name} has no type"));
            lines.insert(format!("{name}{{{}}} {kind}\n", names(labels).join(",")));
        }
    }
    lines.into_iter().collect()
}

/// The names of labels; their values may hold anything, quoted.
fn names(labels: &str) -> Vec<String> {
    let (mut names, mut name, mut quoted, mut escaped) = (Vec::new(), String::new(), false, false);
    for c in labels.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '=' if !quoted => names.push(std::mem::take(&mut name)),
            ',' if !quoted => {}
            c if !quoted => name.push(c),
            _ => {}
        }
    }
    names
}

#[test]
fn the_names_of_metrics_and_their_labels_are_the_golden_ones() {
    sample(|at| golden::same(folder().join("metrics.txt"), &metrics(&ask(at, "/metrics").body)));
}

/// A row of each metric, by the help text that it is shown with.
fn page(text: &str) -> String {
    let listed = metrics(text);
    let mut page = String::from(
        "# Metrics\n\n<!-- Written by a test from the help texts of crates/admin/src/metrics; see CONTRIBUTING.md -->\n\n\
         `/metrics` is at the [status page's address](operations.md#looking-at-it), and [in a cluster](operations.md#prometheus-in-a-cluster)\n\
         on a port of its own. Labels are protocols, states and reasons, never names of objects: `/state` and `/;csv` have the\n\
         figures of one Service. Metrics of requests to OpenStack: [openstack-calls.md](openstack-calls.md).\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n",
    );
    for line in listed.lines() {
        let (name, rest) = line.split_once('{').expect("labels");
        let (labels, kind) = rest.split_once("} ").expect("a type");
        let family = ["_total", "_info"].iter().find_map(|it| name.strip_suffix(it)).unwrap_or(name);
        let help = format!("# HELP {family} ");
        let meaning = text
            .lines()
            .find_map(|it| it.strip_prefix(&help))
            .unwrap_or_else(|| panic!("{name} has no help"));
        let labels: Vec<String> =
            labels.split(',').filter(|it| !it.is_empty()).map(|it| format!("`{it}`")).collect();
        page +=
            &format!("| `{name}` | {kind} | {} | {} |\n", labels.join(", "), meaning.trim_end_matches('.'));
    }
    page
}

#[test]
fn the_page_of_metrics_is_that_of_their_help_texts() {
    let file = folder().join("../../../docs/metrics.md");
    sample(|at| golden::same(file, &page(&ask(at, "/metrics").body)));
}
