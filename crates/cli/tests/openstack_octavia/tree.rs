//! All that is in a project, compared with what was there before.

use std::collections::BTreeMap;

use serde_json::Value;

pub(crate) type Tree = BTreeMap<String, Value>;

/// A group lists its rules in any order; they are compared one by one.
const RULES: &str = "security_group_rules";

/// What changes by itself: times, counters, what probes find, and how far a change is.
const ALIVE: [&str; 5] =
    ["created_at", "updated_at", "revision_number", "operating_status", "provisioning_status"];

/// `created KIND NAME`, `deleted KIND NAME`, or `KIND NAME FIELD: FROM → TO`.
pub(crate) fn differences(before: &Tree, after: &Tree) -> Vec<String> {
    let name = |key: &str, it: &Value| {
        let kind = key.split('/').next().unwrap_or(key);
        let words = ["name", "floating_ip_address"].iter().find_map(|word| it[word].as_str());
        format!("{kind} {}", words.filter(|it| !it.is_empty()).unwrap_or(key))
    };
    let created = after.iter().filter(|(key, _)| !before.contains_key(*key));
    let deleted = before.iter().filter(|(key, _)| !after.contains_key(*key));
    let created = created.map(|(key, it)| format!("created {}", name(key, it)));
    let deleted = deleted.map(|(key, it)| format!("deleted {}", name(key, it)));
    let both = before.iter().filter_map(|(key, was)| after.get(key).map(|is| (key, was, is)));
    let changed = both.flat_map(|(key, was, is)| {
        let fields = was.as_object().into_iter().flatten();
        let fields = fields.filter(|(field, _)| !ALIVE.contains(&&***field) && *field != RULES);
        let changed = fields.filter(|(field, value)| sorted(&is[&***field]) != sorted(value));
        let words =
            changed.map(|(field, value)| format!("{} {field}: {value} → {}", name(key, is), is[&**field]));
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
    differences.iter().filter(|it| !it.contains(" tags: ") && !it.contains(" description: ")).collect()
}
