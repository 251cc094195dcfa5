//! Names that scripts, alerts and dashboards rely on.

use std::collections::BTreeSet;

use seaway_admin::{View, view::ProcessRole};
use seaway_testkit::golden;
use serde_json::Value;

use crate::{
    client::ask,
    paths::{sample, serving},
    view,
};

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

/// What a controller tells, and then what a host does.
fn all_metrics() -> String {
    let mut all = String::new();
    sample(|at| all += &ask(at, "/metrics").body);
    serving(|| View { part: ProcessRole::Host, ..view::at(1000) }, |at| all += &ask(at, "/metrics").body);
    all
}

#[test]
fn the_names_of_metrics_and_their_labels_are_the_golden_ones() {
    golden::same(folder().join("metrics.txt"), &metrics(&all_metrics()));
}

/// A row of each metric, by the help text that it is shown with.
fn page(text: &str) -> String {
    let listed = metrics(text);
    let mut page = String::from(
        "# Metrics\n\n<!-- Written by a test from the help texts of crates/admin/src/metrics; see CONTRIBUTING.md -->\n\n\
         `/metrics` is at the [status page's address](operations.md#status-page-metrics-and-probes), and [in a cluster](operations.md#prometheus-in-a-cluster)\n\
         on a port of its own. Labels are protocols, states and reasons; only `seaway_service_…`, `seaway_member_…` and `seaway_pool_…`\n\
         have names of objects, of no more than [a bound](#series-of-services-and-members). Metrics of requests to OpenStack:\n\
         [openstack-calls.md](openstack-calls.md).\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n",
    );
    for line in listed.lines() {
        let (name, rest) = line.split_once('{').expect("labels");
        let (labels, kind) = rest.split_once("} ").expect("a type");
        if kind == "histogram" && !name.ends_with("_bucket") {
            continue;
        }
        let name = if kind == "histogram" { name.trim_end_matches("_bucket") } else { name };
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
    page += SERIES;
    page
}

const SERIES: &str = "
## Series of Services and members

Each Service and each member has series of its own (`seaway_service_…`, `seaway_member_…`): `namespace` and `service` are
its names, also behind the front door, where its members count for it; `member` is an address. A Service of the
configuration, and the front door itself, have no namespace. In seaway.yaml:

    metrics: {services: 200, members: 1000, latency: true}

At most so many Services and members have series; these are the defaults. What is beyond is summed in the series with
`service=\"other\"`, and `seaway_series_other` says how many that are. Who has series keeps them until it is gone. A
Service has about 50 of them, one that speaks HTTP 70, a member 8 or 13. `services: 0` leaves all of them out, `members: 0`
those of members. Clients that may read `/metrics` see these names and addresses. Counters are those of this process on this host: sum them over hosts.

Histograms have the same bounds everywhere, from 0.5 ms to 60 s. They are exact counts, without sampling; `latency: false`
measures nothing, and the histograms and the latencies of the status page are empty then. It costs a request three
looks at the clock. UDP is not measured.

| question | in PromQL |
|---|---|
| errors of a Service, per second | `sum by (namespace, service) (rate(seaway_service_errors_total[5m]))` |
| 99 % of its HTTP requests are answered within | `histogram_quantile(0.99, sum by (le) (rate(seaway_service_first_byte_seconds_bucket{service=\"shop\"}[5m])))` |
| who answers 5xx | `rate(seaway_member_answers_total{status=\"5xx\"}[5m]) > 0` |
";

#[test]
fn the_page_of_metrics_is_that_of_their_help_texts() {
    let file = folder().join("../../../docs/metrics.md");
    golden::same(file, &page(&all_metrics()));
}
