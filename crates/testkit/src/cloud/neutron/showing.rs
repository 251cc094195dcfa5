//! How objects look in replies.

use serde_json::{Value, json};

use super::{Neutron, RULE, schema::Kind};
use crate::cloud::store::{Fields, Row};

/// What a floating IP tells of its port.
const PORT_DETAILS: [&str; 7] =
    ["name", "network_id", "mac_address", "admin_state_up", "status", "device_id", "device_owner"];

pub(super) fn one(neutron: &Neutron, kind: &Kind, row: &Row) -> Fields {
    let mut shown = Fields::new();
    for field in kind.fields.iter().filter(|it| it.shown) {
        shown.insert(field.name.to_owned(), row.fields.get(field.name).cloned().unwrap_or_default());
    }
    for name in ["updated_at", "revision_number", "tags"] {
        shown.insert(name.to_owned(), row.fields.get(name).cloned().unwrap_or_default());
    }
    shown.insert("id".to_owned(), row.id.clone().into());
    shown.insert("created_at".to_owned(), row.created.clone().into());
    for project in ["project_id", "tenant_id"] {
        shown.insert(project.to_owned(), row.project.clone().into());
    }
    match kind.one {
        "network" => {
            let subnets: Vec<Value> =
                neutron.subnets.children(&row.id).map(|it| it.id.clone().into()).collect();
            shown.insert("subnets".to_owned(), subnets.into());
            // A matter of external networks; the others have it only when they are made.
            if !row.is("router:external") {
                shown.remove("is_default");
            }
        }
        "floatingip" => {
            let port = neutron.ports.row(row.text("port_id"));
            let details = port.map(|port| {
                let detail =
                    |name: &&str| ((*name).to_owned(), port.fields.get(*name).cloned().unwrap_or_default());
                Value::from(PORT_DETAILS.iter().map(detail).collect::<Fields>())
            });
            shown.insert("port_details".to_owned(), details.unwrap_or_default());
        }
        "security_group" => {
            let rules: Vec<Value> =
                neutron.rules.children(&row.id).map(|rule| inner_rule(neutron, rule)).collect();
            shown.insert("security_group_rules".to_owned(), rules.into());
        }
        "security_group_rule" => {
            shown.remove("tags");
        }
        _ => {}
    }
    shown
}

/// A rule in its group has more to tell than by itself.
fn inner_rule(neutron: &Neutron, rule: &Row) -> Value {
    let mut shown = one(neutron, &RULE, rule);
    shown.insert("tags".to_owned(), json!([]));
    shown.insert(
        "standard_attr_id".to_owned(),
        rule.fields.get("standard_attr_id").cloned().unwrap_or(json!(1)),
    );
    shown.into()
}
