//! How servers look in replies.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::cloud::{
    neutron::NETWORK,
    state::State,
    store::{Fields, Row},
};

pub(super) fn brief(state: &State, row: &Row) -> Value {
    json!({"id": row.id, "name": row.text("name"), "links": links(state, &row.id)})
}

pub(super) fn whole(state: &State, row: &Row) -> Value {
    let is_active = row.text("status") == "ACTIVE";
    let task = row.text("task_state");
    let task = match (task.is_empty(), is_active) {
        (false, _) => json!(task),
        (true, false) => json!("spawning"),
        (true, true) => Value::Null,
    };
    let image = row.text("imageRef");
    let flavor = row.text("flavor");
    let bookmark = |kind: &str, id: &str| json!([{"rel": "bookmark", "href": format!("{}/compute/{kind}/{id}", state.base)}]);
    json!({
        "id": row.id,
        "name": row.text("name"),
        "status": row.text("status"),
        "tenant_id": row.project,
        "user_id": row.text("user_id"),
        "metadata": row.fields.get("metadata").cloned().unwrap_or_else(|| json!({})),
        "hostId": "0e3a4fd0b28dcb22cbf62cc7abbfa663751d9e8ab9dafbbc79f0dd53",
        "image": {"id": image, "links": bookmark("images", image)},
        "flavor": {"id": flavor, "links": bookmark("flavors", flavor)},
        "created": row.created,
        "updated": row.created,
        "addresses": addresses(state, row),
        "accessIPv4": "",
        "accessIPv6": "",
        "links": links(state, &row.id),
        "OS-DCF:diskConfig": "MANUAL",
        "progress": 0,
        "OS-EXT-AZ:availability_zone": "nova",
        "config_drive": "",
        "key_name": row.fields.get("key_name"),
        "OS-SRV-USG:launched_at": is_active.then_some(&row.created),
        "OS-SRV-USG:terminated_at": null,
        "security_groups": [{"name": "default"}],
        "OS-EXT-STS:task_state": task,
        "OS-EXT-STS:vm_state": if is_active { "active" } else { "building" },
        "OS-EXT-STS:power_state": i32::from(is_active),
        "os-extended-volumes:volumes_attached": [],
    })
}

/// By the names of networks.
fn addresses(state: &State, row: &Row) -> Fields {
    let mut addresses = Fields::new();
    for port in state.plugged(&row.id) {
        let network = state.neutron.table(&NETWORK).row(port.text("network_id"));
        let name = network.map(|it| it.text("name")).unwrap_or_default();
        let fixed = port.fields.get("fixed_ips").and_then(Value::as_array).into_iter().flatten();
        let told = fixed.filter_map(|it| it["ip_address"].as_str()).map(|address| {
            let version = if address.parse::<IpAddr>().is_ok_and(|it| it.is_ipv6()) { 6 } else { 4 };
            json!({
                "addr": address,
                "version": version,
                "OS-EXT-IPS:type": "fixed",
                "OS-EXT-IPS-MAC:mac_addr": port.text("mac_address"),
            })
        });
        let here = addresses.entry(name).or_insert_with(|| json!([]));
        if let Some(here) = here.as_array_mut() {
            here.extend(told);
        }
    }
    addresses
}

pub(super) fn links(state: &State, id: &str) -> Value {
    let base = &state.base;
    json!([
        {"rel": "self", "href": format!("{base}/compute/v2.1/servers/{id}")},
        {"rel": "bookmark", "href": format!("{base}/compute/servers/{id}")},
    ])
}
