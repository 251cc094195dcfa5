//! What `/metrics` tells.

use std::collections::BTreeMap;

use seaway_model::layer2::Layer2Progress;

use crate::{client::ask, paths::sample};

/// A family's name, its type, and the label sets and values of its series.
type Families = BTreeMap<String, (String, Vec<(BTreeMap<String, String>, f64)>)>;

fn parse_metrics(text: &str) -> Families {
    assert!(text.ends_with("# EOF\n"), "OpenMetrics ends with a mark");
    let mut families = Families::new();
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').unwrap();
            let old = families.insert(name.to_owned(), (kind.to_owned(), Vec::new()));
            assert!(old.is_none(), "{name} is declared twice");
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = match series.split_once('{') {
                Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
                None => (series, ""),
            };
            let labels = labels.split(',').filter_map(|label| label.split_once('='));
            let labels =
                labels.map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned())).collect();
            let suffixes = ["_total", "_info", "_bucket", "_sum", "_count"];
            let family = suffixes.iter().find_map(|it| name.strip_suffix(it)).unwrap_or(name);
            let (_, all) = families.get_mut(family).unwrap_or_else(|| panic!("{family} has no type"));
            all.push((labels, value.parse().expect(line)));
        }
    }
    families
}

#[test]
fn metrics_parse_and_their_labels_are_bounded() {
    sample(|at| {
        let answer = ask(at, "/metrics");
        assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"));
        let families = parse_metrics(&answer.body);
        for (name, (_, series)) in &families {
            for (labels, _) in series {
                for (key, value) in labels {
                    let allowed: &[&str] = match key.as_str() {
                        "state" if name == "seaway_certificates" => {
                            &["valid", "expiring", "expired", "early", "broken"]
                        }
                        "state" if name == "seaway_layer2_addresses" => {
                            assert!(Layer2Progress::ALL.iter().any(|it| it.as_str() == value), "{value}");
                            continue;
                        }
                        "state" if name == "seaway_adoption_services" => &[
                            "adopted",
                            "unlisted",
                            "not-chosen",
                            "other-controller",
                            "observed",
                            "not-asked",
                            "next",
                        ],
                        // As many as the configuration has.
                        "peer" if name.starts_with("seaway_bgp_") || name == "seaway_bfd_session_up" => {
                            continue;
                        }
                        // As many as there are Services and members, up to a bound.
                        "namespace" | "service" | "member" | "le"
                            if name.starts_with("seaway_service_") || name.starts_with("seaway_member_") =>
                        {
                            continue;
                        }
                        // As many as the configuration has.
                        "zone" if name.starts_with("seaway_dns_") => continue,
                        // The first hundred, and one for all others.
                        "pool" if name == "seaway_pool_addresses" => continue,
                        "family" if name == "seaway_pool_addresses" => &["IPv4", "IPv6"],
                        "state" if name == "seaway_pool_addresses" => &["used", "free"],
                        "le" if matches!(
                            name.as_str(),
                            "seaway_driver_work_seconds"
                                | "seaway_api_call_duration_seconds"
                                | "seaway_node_controller_pass_seconds"
                        ) =>
                        {
                            continue;
                        }
                        "verb" if name.starts_with("seaway_api_call") => {
                            &["get", "watch", "create", "update", "patch", "delete", "other"]
                        }
                        "code" if name.starts_with("seaway_api_call") => {
                            &["1xx", "2xx", "3xx", "4xx", "429", "5xx", "none"]
                        }
                        // Of those that Seaway watches.
                        "kind" if name.starts_with("seaway_watch_") => &["Service", "Node"],
                        "driver" if name.starts_with("seaway_driver_") => &["status", "octavia"],
                        "controller" => &["nodes", "routes"],
                        "state" if name == "seaway_driver_units" => &["waiting", "working"],
                        "condition" if name == "seaway_services_conditions" => &["Ready", "Announced"],
                        "status" if name == "seaway_services_conditions" => &["True", "False", "Unknown"],
                        "class" => &["connect", "reset", "timeout", "no-member"],
                        "kind" => &["service", "member"],
                        "protocol" => &["tcp", "udp", "http"],
                        "direction" => &["in", "out"],
                        "state" if name == "seaway_dns_records" => &["published", "failed", "waiting"],
                        "state" => &["up", "down", "ejected", "draining", "unchecked", "serving", "failed"],
                        "reason" => &[
                            "source",
                            "limit",
                            "client-rate",
                            "PortInUse",
                            "NoEndpoints",
                            "memory",
                            "descriptors",
                        ],
                        "status" => &["1xx", "2xx", "3xx", "4xx", "5xx"],
                        "version" => &["0.1.0 (2f1c9ab)"],
                        _ => panic!("{name} has an unknown label {key}"),
                    };
                    assert!(allowed.contains(&value.as_str()), "{name}: {key}={value}");
                }
            }
        }
        let value = |name: &str, label: &str| -> f64 {
            let (_, series) = families.get(name).unwrap_or_else(|| panic!("no {name}"));
            let chosen = series.iter().filter(|(labels, _)| {
                let all: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                all.join(",") == label
            });
            let values: Vec<f64> = chosen.map(|(_, value)| *value).collect();
            assert_eq!(values.len(), 1, "{name} {label}: {series:?}");
            values[0]
        };
        assert_eq!(value("seaway_http_requests", ""), 9000.0);
        assert_eq!(value("seaway_http_answers", "status=5xx"), 3.0);
        assert_eq!(value("seaway_connections", "protocol=tcp"), 2345.0);
        assert_eq!(value("seaway_traffic_bytes", "direction=in,protocol=udp"), 4000.0 * 812.0);
        assert_eq!(value("seaway_refused", "protocol=tcp,reason=source"), 15.0);
        assert_eq!(value("seaway_connect_errors", "protocol=udp"), 3.0);
        assert_eq!(value("seaway_check_failures", "protocol=tcp"), 156.0);
        assert_eq!(families["seaway_check_failures"].0, "counter");
        assert_eq!(value("seaway_members", "state=down"), 1.0);
        assert_eq!(value("seaway_listeners", "state=failed"), 1.0);
        assert_eq!(value("seaway_problems", "reason=NoEndpoints"), 1.0);
        assert_eq!(value("seaway_ready", ""), 1.0);
        assert_eq!((value("seaway_leader", ""), value("seaway_leader_changes", "")), (1.0, 3.0));
        assert_eq!(value("seaway_pool_addresses", "family=IPv4,pool=edge,state=free"), 4.0);
        assert_eq!(value("seaway_driver_units", "driver=status,state=waiting"), 12.0);
        assert_eq!(value("seaway_driver_oldest_seconds", "driver=status"), 40.0);
        assert_eq!(value("seaway_driver_failures", "driver=octavia"), 5.0);
        let times = &families["seaway_driver_work_seconds"].1;
        let within = |it: &&str, le: &str| {
            times
                .iter()
                .find(|(labels, _)| labels["driver"] == *it && labels.get("le").is_some_and(|it| it == le))
                .map(|it| it.1)
        };
        assert_eq!((within(&"status", "0.005"), within(&"status", "+Inf")), (Some(6.0), Some(7.0)));
        assert_eq!(value("seaway_api_calls", "code=none,verb=patch"), 30.0);
        assert_eq!(value("seaway_watch_age_seconds", "kind=Node"), 700.0);
        assert_eq!(value("seaway_watch_lists", "kind=Service"), 2.0);
        assert_eq!(value("seaway_snapshot_in_use", ""), 1.0);
        assert_eq!(value("seaway_snapshot_timestamp_seconds", ""), 1.79e9);
        assert_eq!(value("seaway_services_conditions", "condition=Ready,status=False"), 1.0);
        assert_eq!(value("seaway_services_without_address", ""), 2.0);
        assert!(value("seaway_services_without_address_since_timestamp_seconds", "") > 1e9);
        assert_eq!(value("seaway_unit_failures", ""), 1.0);
        assert_eq!(value("seaway_units_marked", ""), 12.0);
        assert_eq!(value("seaway_access_log_lost", ""), 7.0);
        let adoption = |state: &str| value("seaway_adoption_services", &format!("state={state}"));
        let states = ["adopted", "next", "not-asked", "observed"].map(adoption);
        assert_eq!(states, [5.0, 3.0, 1.0, 0.0], "a state that nobody is in is there, too");
        assert_eq!(value("seaway_adoption_troubled", ""), 3.0);
        assert_eq!(value("seaway_adoption_stopped", ""), 1.0);
        assert_eq!(value("seaway_dataplane_memory_bytes", ""), f64::from(3 << 20));
        assert_eq!(value("seaway_dataplane_memory_limit_bytes", ""), f64::from(1 << 30));
        assert_eq!(value("seaway_dataplane_memory_refused", ""), 4.0);
        assert_eq!(value("seaway_dataplane_evictions", "reason=memory"), 5.0);
        assert_eq!(value("seaway_dataplane_evictions", "reason=descriptors"), 6.0);
        assert_eq!(families["seaway_dataplane_evictions"].0, "counter");
        assert!(value("process_resident_memory_bytes", "") > 1e6);
        assert!(value("process_open_fds", "") > 3.0);
        assert_eq!(families["seaway_connections"].0, "counter");
        assert_eq!(families["seaway_members"].0, "gauge");
    });
}
