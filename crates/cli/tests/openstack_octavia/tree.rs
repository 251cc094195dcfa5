//! All that is in a project, compared with what was there before.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub(crate) type Tree = BTreeMap<String, Value>;

/// A group lists its rules in any order; they are compared one by one.
const RULES: &str = "security_group_rules";

/// What changes by itself: times, counters, what probes find, and how far a change is.
const ALIVE: [&str; 5] =
    ["created_at", "updated_at", "revision_number", "operating_status", "provisioning_status"];

/// `created KIND NAME`, `deleted KIND NAME`, or `KIND FIELD of NAME: FROM → TO`: a name may have any words in it.
pub(crate) fn differences(before: &Tree, after: &Tree) -> Vec<String> {
    let kind = |key: &str| key.split('/').next().unwrap_or(key).to_owned();
    let name = |key: &str, it: &Value| {
        let words = ["name", "floating_ip_address"].iter().find_map(|word| it[word].as_str());
        words.filter(|it| !it.is_empty()).unwrap_or(key).to_owned()
    };
    let created = after.iter().filter(|(key, _)| !before.contains_key(*key));
    let deleted = before.iter().filter(|(key, _)| !after.contains_key(*key));
    let created = created.map(|(key, it)| format!("created {} {}", kind(key), name(key, it)));
    let deleted = deleted.map(|(key, it)| format!("deleted {} {}", kind(key), name(key, it)));
    let both = before.iter().filter_map(|(key, was)| after.get(key).map(|is| (key, was, is)));
    let changed = both.flat_map(|(key, was, is)| {
        let fields = [was, is].into_iter().filter_map(Value::as_object).flat_map(|it| it.keys());
        let fields: BTreeSet<&str> =
            fields.map(String::as_str).filter(|it| !ALIVE.contains(it) && *it != RULES).collect();
        let changed = fields.into_iter().filter(|it| sorted(&is[*it]) != sorted(&was[*it]));
        let words =
            changed.map(|it| format!("{} {it} of {}: {} → {}", kind(key), name(key, is), was[it], is[it]));
        words.collect::<Vec<_>>()
    });
    created.chain(deleted).chain(changed).collect()
}

/// Lists without their order, which says nothing, and without what a controller says each minute.
fn sorted(value: &Value) -> Value {
    let Value::Array(all) = value else { return value.clone() };
    let is_heartbeat = |it: &Value| it.as_str().is_some_and(|it| it.starts_with("seaway.heartbeat."));
    let mut all: Vec<Value> = all.iter().filter(|it| !is_heartbeat(it)).cloned().collect();
    all.sort_by_key(Value::to_string);
    Value::Array(all)
}

/// Those that are more than tags and descriptions.
pub(crate) fn beyond_tags(differences: &[String]) -> Vec<&String> {
    let is_beyond = |it: &&String| !matches!(it.split(' ').nth(1), Some("tags" | "description"));
    differences.iter().filter(is_beyond).collect()
}

mod tests {
    use serde_json::json;

    use super::*;

    /// A Service of one port on two Nodes, as a cloud tells it.
    fn recorded() -> Tree {
        let owned = json!(["seaway.dev/cluster=1f0c", "seaway.heartbeat.0000a1b2.7"]);
        let all = [
            (
                "loadbalancers/1",
                json!({"name": "shop", "description": "", "vip_address": "10.0.0.9", "provider": "ovn",
                    "tags": [], "operating_status": "ONLINE", "provisioning_status": "ACTIVE",
                    "updated_at": "2026-11-23T10:00:00"}),
            ),
            (
                "listeners/2",
                json!({"name": "listener_0", "description": "", "protocol": "TCP", "protocol_port": 80,
                    "default_pool_id": "3", "allowed_cidrs": ["10.1.0.0/16", "10.2.0.0/16"], "tags": []}),
            ),
            ("pools/3", json!({"name": "pool_0", "protocol": "TCP", "lb_algorithm": "SOURCE_IP_PORT"})),
            ("healthmonitors/4", json!({"name": "monitor_0", "type": "TCP", "delay": 60, "timeout": 30})),
            ("members/5", json!({"name": "a", "address": "10.0.0.11", "protocol_port": 30080, "weight": 1})),
            ("members/6", json!({"name": "b", "address": "10.0.0.12", "protocol_port": 30080, "weight": 1})),
            (
                "floatingips/7",
                json!({"floating_ip_address": "172.24.4.9", "description": "kept", "port_id": "8"}),
            ),
            ("ports/8", json!({"name": "", "security_groups": ["9"], "revision_number": 4, "tags": owned})),
            ("security_groups/9", json!({"name": "shop", "security_group_rules": [{"id": "10"}]})),
            ("security_group_rules/10", json!({"protocol": "tcp", "port_range_min": 30080})),
        ];
        all.into_iter().map(|(key, it)| (key.to_owned(), it)).collect()
    }

    /// What is seen of that change, and whether it is more than tags and descriptions.
    #[track_caller]
    fn seen(change: impl Fn(&mut Tree), expected: &str, is_beyond: bool) {
        let mut after = recorded();
        change(&mut after);
        let differences = differences(&recorded(), &after);
        assert_eq!(differences, [expected]);
        assert_eq!(beyond_tags(&differences).len(), usize::from(is_beyond), "{expected}");
    }

    fn set(tree: &mut Tree, key: &str, field: &str, value: Value) {
        tree.get_mut(key).expect("it is recorded")[field] = value;
    }

    #[test]
    fn each_kind_of_difference_is_seen() {
        let changes = [
            ("members/5", "weight", json!(0), "members weight of a: 1 → 0"),
            (
                "members/6",
                "address",
                json!("10.0.0.13"),
                r#"members address of b: "10.0.0.12" → "10.0.0.13""#,
            ),
            ("members/6", "backup", json!(true), "members backup of b: null → true"),
            ("healthmonitors/4", "delay", json!(5), "healthmonitors delay of monitor_0: 60 → 5"),
            (
                "listeners/2",
                "default_pool_id",
                json!(null),
                r#"listeners default_pool_id of listener_0: "3" → null"#,
            ),
            (
                "listeners/2",
                "allowed_cidrs",
                json!(["10.1.0.0/16"]),
                r#"listeners allowed_cidrs of listener_0: ["10.1.0.0/16","10.2.0.0/16"] → ["10.1.0.0/16"]"#,
            ),
            (
                "loadbalancers/1",
                "vip_address",
                json!("10.0.0.8"),
                r#"loadbalancers vip_address of shop: "10.0.0.9" → "10.0.0.8""#,
            ),
            ("floatingips/7", "port_id", json!(null), r#"floatingips port_id of 172.24.4.9: "8" → null"#),
            (
                "ports/8",
                "security_groups",
                json!(["9", "11"]),
                r#"ports security_groups of ports/8: ["9"] → ["9","11"]"#,
            ),
            (
                "security_group_rules/10",
                "port_range_min",
                json!(1),
                "security_group_rules port_range_min of security_group_rules/10: 30080 → 1",
            ),
            // What looks like a tag or a description is in the value of another field.
            (
                "pools/3",
                "name",
                json!("a tags: or description: b"),
                r#"pools name of a tags: or description: b: "pool_0" → "a tags: or description: b""#,
            ),
        ];
        for (key, field, value, expected) in changes {
            seen(|it| set(it, key, field, value.clone()), expected, true);
        }
        seen(|it| drop(it.remove("pools/3")), "deleted pools pool_0", true);
        seen(|it| drop(it.remove("ports/8")), "deleted ports ports/8", true);
        let again = |it: &mut Tree| {
            it.insert("loadbalancers/12".to_owned(), json!({"name": "shop tags: x"}));
        };
        seen(again, "created loadbalancers shop tags: x", true);
        let gone = |it: &mut Tree| {
            it.get_mut("members/5").and_then(Value::as_object_mut).expect("an object").remove("weight");
        };
        seen(gone, "members weight of a: 1 → null", true);
    }

    #[test]
    fn tags_and_descriptions_are_seen_and_told_apart() {
        let tagged = |it: &mut Tree| set(it, "loadbalancers/1", "tags", json!(["seaway.dev/key=1"]));
        seen(tagged, r#"loadbalancers tags of shop: [] → ["seaway.dev/key=1"]"#, false);
        let described = |it: &mut Tree| set(it, "floatingips/7", "description", json!("ours"));
        seen(described, r#"floatingips description of 172.24.4.9: "kept" → "ours""#, false);
        let lost = |it: &mut Tree| set(it, "ports/8", "tags", json!(["seaway.heartbeat.0000a1b2.7"]));
        seen(
            lost,
            r#"ports tags of ports/8: ["seaway.dev/cluster=1f0c","seaway.heartbeat.0000a1b2.7"] → ["seaway.heartbeat.0000a1b2.7"]"#,
            false,
        );
    }

    #[test]
    fn what_changes_by_itself_is_no_difference() {
        let mut after = recorded();
        set(&mut after, "loadbalancers/1", "operating_status", json!("DEGRADED"));
        set(&mut after, "loadbalancers/1", "updated_at", json!("2026-11-23T11:00:00"));
        set(&mut after, "listeners/2", "allowed_cidrs", json!(["10.2.0.0/16", "10.1.0.0/16"]));
        set(&mut after, "ports/8", "revision_number", json!(5));
        set(&mut after, "ports/8", "tags", json!(["seaway.heartbeat.0000a1b2.8", "seaway.dev/cluster=1f0c"]));
        set(&mut after, "security_groups/9", "security_group_rules", json!([]));
        assert_eq!(differences(&recorded(), &after), [""; 0]);
    }
}
