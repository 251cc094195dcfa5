//! The dashboards of `deploy/kubernetes/components/dashboards`: what Grafana needs is there, and a real Prometheus that has scraped a
//! process with a bit of everything answers each of their queries.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "sample/api_server.rs"]
mod api_server;
#[path = "walk_dashboards/prometheus.rs"]
mod prometheus;
#[path = "walk_dashboards/scraped.rs"]
mod scraped;
#[path = "sample/view.rs"]
mod view;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use prometheus::{Answer, Prometheus};
use serde_json::Value;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|it| panic!("{name}: {it}"))
}

const FOLDER: &str = "deploy/kubernetes/components/dashboards";
const MONITOR: &str = "deploy/kubernetes/components/monitoring/monitor.yaml";
const HONORS: &str = "    honorLabels: true\n";

/// Each with the name of its file.
fn dashboards() -> BTreeMap<String, Value> {
    let files = fs::read_dir(root().join(FOLDER)).unwrap().map(|it| it.unwrap().file_name());
    let files = files.map(|it| it.into_string().unwrap()).filter(|it| it.ends_with(".json"));
    let parsed = |file: String| {
        let text = read(&format!("{FOLDER}/{file}"));
        let dashboard = serde_json::from_str(&text).unwrap_or_else(|it| panic!("{file}: {it}"));
        (file, dashboard)
    };
    let all: BTreeMap<_, _> = files.map(parsed).collect();
    assert_eq!(all.len(), 3);
    all
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// All but rows, which have a title alone.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    list(dashboard, "panels").iter().filter(|it| text(it, "type") != "row")
}

fn variables(dashboard: &Value) -> &[Value] {
    list(&dashboard["templating"], "list")
}

/// Each query with where it is: of panels and of variables, the latter as Grafana asks for values of a label.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for panel in panels(dashboard) {
        for target in list(panel, "targets") {
            all.push((
                format!("{} {}", text(panel, "title"), text(target, "refId")),
                text(target, "expr").to_owned(),
            ));
        }
    }
    for variable in variables(dashboard).iter().filter(|it| text(it, "type") == "query") {
        let (series, label) = label_values(variable);
        all.push((format!("${}", text(variable, "name")), format!("group by ({label}) ({series})")));
    }
    all
}

/// `label_values(SERIES, LABEL)`
fn label_values(variable: &Value) -> (&str, &str) {
    let query = text(&variable["query"], "query");
    assert_eq!(query, text(variable, "definition"), "Grafana shows the one and asks the other");
    let arguments = query.strip_prefix("label_values(").and_then(|it| it.strip_suffix(")"));
    arguments.and_then(|it| it.rsplit_once(", ")).unwrap_or_else(|| panic!("{query}"))
}

#[test]
fn each_dashboard_has_what_grafana_needs() {
    let prometheus = serde_json::json!({"type": "prometheus", "uid": "${datasource}"});
    let mut uids = BTreeSet::new();
    for (file, dashboard) in dashboards() {
        let uid = text(&dashboard, "uid");
        assert_eq!(format!("{uid}.json"), file, "sidecars write all dashboards into one folder");
        assert!((8..=40).contains(&uid.len()), "{file}: Grafana takes 8 to 40 characters");
        assert!(uids.insert(uid.to_owned()));
        assert!(text(&dashboard, "title").starts_with("Seaway: "), "{file}");
        assert!(dashboard["schemaVersion"].as_u64() >= Some(36), "{file}");
        assert!(dashboard.get("id").is_none(), "{file}: Grafana numbers its dashboards itself");
        assert!(list(&dashboard, "tags").contains(&"seaway".into()), "{file}: its links go by that tag");

        let first = &variables(&dashboard)[0];
        assert_eq!((text(first, "name"), text(first, "type")), ("datasource", "datasource"), "{file}");
        assert_eq!(text(first, "query"), "prometheus", "{file}");
        let mut known: BTreeSet<&str> = ["datasource", "__rate_interval"].into();
        for variable in &variables(&dashboard)[1..] {
            let name = text(variable, "name");
            assert_eq!(variable["datasource"], prometheus, "{file}: ${name}");
            assert_eq!(variable["query"]["refId"], format!("Variable-{name}"), "{file}");
            for used in used_variables(label_values(variable).0) {
                assert!(known.contains(used), "{file}: ${name} needs ${used}, which comes later");
            }
            known.insert(name);
        }

        let mut ids = BTreeSet::new();
        let mut taken = BTreeSet::new();
        for panel in list(&dashboard, "panels") {
            let at = format!("{file}: {}", text(panel, "title"));
            assert!(!text(panel, "title").is_empty(), "{at}");
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{at}: its id is another's");
            let place = |key: &str| panel["gridPos"][key].as_u64().unwrap_or_else(|| panic!("{at}: {key}"));
            let (x, y, w, h) = (place("x"), place("y"), place("w"), place("h"));
            assert!(w > 0 && h > 0 && x + w <= 24, "{at}");
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(taken.insert(cell), "{at}: it is over another at {cell:?}");
            }
        }
        for panel in panels(&dashboard) {
            let at = format!("{file}: {}", text(panel, "title"));
            let kind = text(panel, "type");
            // What comes with Grafana, so that no plugin has to be installed.
            assert!(["stat", "timeseries", "table", "state-timeline"].contains(&kind), "{at}: {kind}");
            assert_eq!(panel["datasource"], prometheus, "{at}");
            assert!(!text(&panel["fieldConfig"]["defaults"], "unit").is_empty(), "{at}");
            assert!(panel["options"].is_object() && !text(panel, "description").is_empty(), "{at}");
            let targets = list(panel, "targets");
            assert!(!targets.is_empty(), "{at}");
            let mut ids = BTreeSet::new();
            for target in targets {
                assert_eq!(target["datasource"], prometheus, "{at}");
                assert!(!text(target, "expr").is_empty() && ids.insert(text(target, "refId")), "{at}");
                let used = used_variables(text(target, "expr"));
                assert!(used.iter().all(|it| known.contains(it)) && used.contains(&"job"), "{at}: {used:?}");
            }
        }
    }
}

/// `$job` and the like.
fn used_variables(query: &str) -> Vec<&str> {
    let end = |it: &str| it.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(it.len());
    query.split('$').skip(1).map(|it| &it[..end(it)]).collect()
}

#[test]
fn descriptions_lead_to_pages_and_headings_that_there_are() {
    let mut count = 0;
    for (file, dashboard) in dashboards() {
        for described in panels(&dashboard).chain([&dashboard]) {
            for word in text(described, "description").split_whitespace() {
                let Some(target) = word.strip_prefix("docs/") else { continue };
                count += 1;
                let target = target.trim_end_matches(['.', ',', ':']);
                let (page, heading) = target.split_once('#').unwrap_or((target, ""));
                let anchors: Vec<String> = read(&format!("docs/{page}"))
                    .lines()
                    .filter(|it| it.starts_with('#'))
                    .map(|it| it.trim_start_matches('#').trim().to_lowercase().replace(' ', "-"))
                    .collect();
                let found = heading.is_empty() || anchors.iter().any(|it| it == heading);
                assert!(found, "{file}: {}: docs/{target}", text(described, "title"));
            }
        }
    }
    assert!(count > 30, "{count}");
}

/// By family, as /metrics has it: of a histogram, without its suffixes.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let quoted = |it: &str| it.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let mut all = BTreeMap::new();
    for (page, labels) in [("docs/metrics.md", 3), ("docs/openstack-calls.md", 2)] {
        for row in read(page).lines().filter(|it| it.starts_with("| `")) {
            let cells: Vec<&str> = row.split(" | ").collect();
            let name = quoted(cells[0]).remove(0);
            if name.starts_with("seaway_") || name.starts_with("process_") {
                all.insert(name, quoted(cells[labels - 1]).into_iter().collect());
            }
        }
    }
    assert!(all.len() > 60, "{all:?}");
    all
}

/// Words of a query that may be names: not what is quoted.
fn words(query: &str) -> impl Iterator<Item = &str> {
    let unquoted = query.split('"').step_by(2);
    unquoted.flat_map(|it| it.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '$'))
}

fn is_metric(word: &&str) -> bool {
    word.starts_with("seaway_") || word.starts_with("process_")
}

#[test]
fn dashboards_ask_for_metrics_and_labels_that_there_are() {
    let documented = documented();
    let of = |word: &str| documented.get(word).or_else(|| documented.get(word.strip_suffix("_bucket")?));
    let mut asked = BTreeSet::new();
    for (file, dashboard) in dashboards() {
        for (place, query) in queries(&dashboard) {
            let mut labels: BTreeSet<&str> = ["job", "instance", "le"].into();
            for word in words(&query).filter(is_metric) {
                let its = of(word).unwrap_or_else(|| panic!("{file}: {place}: no metric is called {word}"));
                labels.extend(its.iter().map(String::as_str));
                asked.insert(word.to_owned());
            }
            for by in query.split(" by (").skip(1).chain(query.split(" on (").skip(1)) {
                let by = by.split_once(')').unwrap().0;
                let wrong = by.split(", ").find(|it| !labels.contains(it));
                assert!(wrong.is_none(), "{file}: {place}: by {wrong:?}; there are {labels:?}");
            }
        }
    }
    assert!(asked.len() > 50, "{asked:?}");
}

#[test]
fn the_component_makes_config_maps_of_all_of_them_and_names_of_services_stay_those_of_services() {
    let component = read(&format!("{FOLDER}/kustomization.yaml"));
    assert!(component.contains("grafana_dashboard: \"1\"}"), "the label that sidecars look for");
    for (file, _) in dashboards() {
        assert!(component.contains(&format!("files: [{file}]")), "{file}");
    }
    assert!(read(MONITOR).contains(HONORS), "or `namespace` is that of Seaway in each series");
}

/// As Grafana fills them in: what was chosen, or all that it offers.
fn filled(query: &str, values: &BTreeMap<String, String>) -> String {
    let mut query = query.replace("$__rate_interval", "5m");
    for (name, value) in values {
        query = query.replace(&format!("${name}"), value);
    }
    assert!(!query.contains('$'), "{query}");
    query
}

/// All values of each variable, asked one after the other as Grafana does.
fn offered(dashboard: &Value, prometheus: &Prometheus) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    for variable in variables(dashboard).iter().filter(|it| text(it, "type") == "query") {
        let (series, label) = label_values(variable);
        let query = filled(&format!("group by ({label}) ({series})"), &values);
        let answers = prometheus.query(&query);
        let offered: Vec<&str> = answers.iter().filter_map(|it| it.labels.get(label)?.as_str()).collect();
        assert!(!offered.is_empty(), "{query}: {answers:?}");
        let all = match variable["allValue"].as_str() {
            Some(all) => all.to_owned(),
            None => format!("({})", offered.join("|")),
        };
        values.insert(text(variable, "name").to_owned(), all);
    }
    values
}

/// `{{protocol}}, {{reason}}`
fn shown_labels(legend: &str) -> Vec<&str> {
    legend.split("{{").skip(1).filter_map(|it| Some(it.split_once("}}")?.0)).collect()
}

#[test]
fn prometheus_answers_each_query_of_each_dashboard() {
    let Some(prometheus) = Prometheus::start() else { return };
    scraped::serving(|targets| {
        prometheus.scrape(targets);
        let (mut count, mut faults) = (0, Vec::new());
        for (file, dashboard) in dashboards() {
            let all = offered(&dashboard, &prometheus);
            // A Service that speaks HTTP has series of all families.
            let mut one = all.clone();
            for (name, value) in [("namespace", "default"), ("service", "web")] {
                one.entry(name.to_owned()).and_modify(|it| value.clone_into(it));
            }
            for panel in panels(&dashboard) {
                for target in list(panel, "targets") {
                    // An empty result is shown as 0 there; here it is to have something.
                    let query = text(target, "expr").trim_end_matches(" or vector(0)");
                    for chosen in [&all, &one] {
                        count += 1;
                        let query = filled(query, chosen);
                        let answers = prometheus.query(&query);
                        if let Some(fault) = fault(&answers, text(target, "legendFormat")) {
                            faults.push(format!("{file}: {}: {query}: {fault}", text(panel, "title")));
                        }
                    }
                }
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        assert!(count > 150, "{count}");
    });
}

/// What is wrong with that answer, if anything is.
fn fault(answers: &[Answer], legend: &str) -> Option<String> {
    if answers.is_empty() {
        return Some("it is empty".to_owned());
    }
    if !answers.iter().any(|it| it.value.is_finite()) {
        return Some(format!("no value is a number: {answers:?}"));
    }
    let shown = shown_labels(legend);
    let lacks = |it: &&str| !answers.iter().any(|answer| answer.labels.contains_key(*it));
    shown.iter().find(|it| lacks(it)).map(|it| format!("the legend shows {it}, which no series has"))
}
