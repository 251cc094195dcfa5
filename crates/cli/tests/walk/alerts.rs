//! The alerts: Prometheus' own promtool takes them and fires each, and each has its entry in the docs.

use std::{collections::BTreeSet, fs, process::Command};

use crate::shared_image::{root, run};

const ALERTS: &str = "deploy/kubernetes/components/monitoring/alerts.yaml";

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|it| panic!("{name}: {it}"))
}

/// As docs/alerts.md says, for a Prometheus without the operator.
fn rules() -> String {
    let text = read(ALERTS);
    text.split_once("\nspec:\n").expect("a spec").1.to_owned()
}

fn after<'a>(text: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    text.lines().filter_map(|line| line.trim_start().strip_prefix(prefix)).collect()
}

#[test]
fn each_alert_is_fired_by_prometheus_where_it_should_be_and_not_elsewhere() {
    let alerts = rules();
    let fired = read("crates/cli/tests/walk/alerts/fired.yaml");
    assert_eq!(after(&alerts, "- alert: "), after(&fired, "- name: "), "each has a case");
    if Command::new("promtool").arg("--version").output().is_err() {
        eprintln!("skipped: apt-get install prometheus");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("alerts.yaml"), &alerts).expect("is written");
    fs::write(folder.path().join("fired.yaml"), &fired).expect("is written");
    let promtool =
        |arguments: &[&str]| run(Command::new("promtool").args(arguments).current_dir(folder.path()));
    promtool(&["check", "rules", "--lint-fatal", "alerts.yaml"]);
    promtool(&["test", "rules", "fired.yaml"]);
}

#[test]
fn each_alert_has_an_entry_in_the_docs_and_asks_for_metrics_that_there_are() {
    let (alerts, page) = (rules(), read("docs/alerts.md"));
    let names = after(&alerts, "- alert: ");
    assert_eq!(names, after(&page, "### "));
    for name in &names {
        assert!(alerts.contains(&format!("runbook: docs/alerts.md#{}\n", name.to_lowercase())), "{name}");
    }
    assert!(page.contains(&format!("has {} alerts", names.len())), "{}", names.len());
    let severities = alerts.lines().filter_map(|it| it.trim().strip_prefix("labels: {severity: "));
    let severities: Vec<&str> = severities.map(|it| it.trim_end_matches('}')).collect();
    let shown = page.lines().filter(|it| it.starts_with('`')).filter_map(|it| it.rsplit_once("; "));
    assert_eq!(
        severities,
        shown.map(|it| it.1).collect::<Vec<_>>(),
        "behind each expression, in their order"
    );
    let metrics = read("docs/metrics.md");
    let mut count = 0;
    for expression in after(&alerts, "expr: ") {
        let shown = expression.trim_matches('\'');
        assert!(page.contains(&format!("`{shown}`")), "docs/alerts.md shows it: {shown}");
        let words = expression.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
        for metric in words.filter(|it| it.starts_with("seaway_") || it.starts_with("process_")) {
            assert!(metrics.contains(&format!("\n| `{metric}` |")), "no metric is called {metric}");
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}
