//! How objects look in replies: what they keep, and what follows from their relatives.

use serde_json::{Value, json};

use super::{
    Octavia,
    kinds::{LISTENER, MEMBER, MONITOR, POLICY, POOL, RULE},
    schema::Kind,
};
use crate::cloud::store::{Fields, Row};

pub(super) fn one(octavia: &Octavia, kind: &Kind, row: &Row) -> Fields {
    let mut shown = plain(kind, row);
    let mut tell = |name: &str, value: Value| shown.insert(name.to_owned(), value);
    match kind.one {
        "loadbalancer" => {
            tell("listeners", ids(octavia.listeners.children(&row.id)));
            tell("pools", ids(octavia.pools.children(&row.id)));
            octavia.show_vips(&mut shown);
        }
        "listener" => {
            tell("loadbalancers", parent(row));
            tell("l7policies", ids(octavia.policies_of(&row.id).into_iter()));
        }
        "pool" => {
            tell("loadbalancers", parent(row));
            tell("listeners", ids(octavia.listeners_of(row).into_iter()));
            tell("members", ids(octavia.members.children(&row.id)));
            if let Some(monitor) = octavia.monitors.children(&row.id).next() {
                tell("healthmonitor_id", monitor.id.clone().into());
            }
        }
        "healthmonitor" => {
            tell("pools", parent(row));
        }
        "l7policy" => {
            tell("rules", ids(octavia.rules.children(&row.id)));
        }
        _ => {}
    }
    shown
}

/// A load balancer with all that is below it, as its creation answers.
pub(super) fn whole(octavia: &Octavia, row: &Row) -> Fields {
    let mut shown = one(octavia, &super::BALANCER, row);
    let listeners = octavia.listeners.children(&row.id).map(|listener| {
        let mut shown = one(octavia, &LISTENER, listener);
        shown.remove("loadbalancers");
        let policies = octavia.policies_of(&listener.id).into_iter().map(|policy| {
            let mut shown = one(octavia, &POLICY, policy);
            let rules = octavia.rules.children(&policy.id).map(|rule| Value::from(plain(&RULE, rule)));
            shown.insert("rules".to_owned(), rules.collect());
            Value::from(shown)
        });
        shown.insert("l7policies".to_owned(), policies.collect());
        Value::from(shown)
    });
    shown.insert("listeners".to_owned(), listeners.collect());
    let pools = octavia.pools.children(&row.id).map(|pool| {
        let mut shown = one(octavia, &POOL, pool);
        shown.remove("loadbalancers");
        shown.remove("healthmonitor_id");
        let monitor = octavia.monitors.children(&pool.id).next();
        let monitor = monitor.map_or(Value::Null, |it| plain(&MONITOR, it).into());
        shown.insert("healthmonitor".to_owned(), monitor);
        let members = octavia.members.children(&pool.id).map(|member| Value::from(plain(&MEMBER, member)));
        shown.insert("members".to_owned(), members.collect());
        Value::from(shown)
    });
    shown.insert("pools".to_owned(), pools.collect());
    shown
}

/// What the object itself keeps.
fn plain(kind: &Kind, row: &Row) -> Fields {
    let mut shown = Fields::new();
    for attribute in kind.attributes.iter().filter(|it| it.is_told()) {
        let kept = row.fields.get(attribute.name).filter(|it| !it.is_null()).cloned();
        let none = || match attribute.name {
            // What was never named has an empty name.
            "name" | "description" => json!(""),
            "tags" | "sni_container_refs" => json!([]),
            "insert_headers" => json!({}),
            "vip_sg_ids" => json!([]),
            _ => Value::Null,
        };
        shown.insert(attribute.name.to_owned(), kept.unwrap_or_else(none));
    }
    shown.insert("id".to_owned(), row.id.clone().into());
    for project in ["project_id", "tenant_id"] {
        shown.insert(project.to_owned(), row.project.clone().into());
    }
    shown.insert("created_at".to_owned(), row.created.clone().into());
    shown.insert("updated_at".to_owned(), row.fields.get("updated_at").cloned().unwrap_or_default());
    shown
}

fn ids<'r>(rows: impl Iterator<Item = &'r Row>) -> Value {
    rows.map(|row| json!({ "id": row.id })).collect()
}

fn parent(row: &Row) -> Value {
    row.parent.iter().map(|id| json!({ "id": id })).collect()
}

impl Octavia {
    /// Those that send to this pool, by default or by a policy that is on.
    pub(super) fn listeners_of(&self, pool: &Row) -> Vec<&Row> {
        let balancer = pool.parent.as_deref().unwrap_or_default();
        let redirects = |listener: &Row| {
            self.policies.children(&listener.id).any(|policy| {
                policy.text("redirect_pool_id") == pool.id
                    && policy.is("admin_state_up")
                    && self.rules.children(&policy.id).next().is_some()
            })
        };
        let uses = |it: &&Row| it.text("default_pool_id") == pool.id || redirects(it);
        self.listeners.children(balancer).filter(uses).collect()
    }

    /// In their order.
    pub(super) fn policies_of(&self, listener: &str) -> Vec<&Row> {
        let mut policies: Vec<&Row> = self.policies.children(listener).collect();
        policies.sort_by_key(|it| it.fields.get("position").and_then(Value::as_i64));
        policies
    }
}
