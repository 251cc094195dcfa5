//! Where the services are.

use serde_json::{Value, json};

use super::REGION;
use crate::cloud::clock::Ids;

#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    service: String,
    kind: &'static str,
    name: &'static str,
    url: String,
    /// One id for each interface: public, internal, admin.
    ids: [String; 3],
}

const INTERFACES: [&str; 3] = ["public", "internal", "admin"];

pub(super) fn all(base: &str, ids: &mut Ids) -> Vec<Endpoint> {
    [
        ("identity", "keystone", "/identity/v3"),
        ("network", "neutron", "/network"),
        ("load-balancer", "octavia", "/load-balancer"),
        ("compute", "nova", "/compute/v2.1"),
        ("key-manager", "barbican", "/key-manager"),
    ]
    .into_iter()
    .map(|(kind, name, path)| Endpoint {
        service: ids.hex(),
        kind,
        name,
        url: format!("{base}{path}"),
        ids: [ids.hex(), ids.hex(), ids.hex()],
    })
    .collect()
}

pub(super) fn v3(endpoints: &[Endpoint]) -> Value {
    let service = |it: &Endpoint| {
        let at = |(interface, id): (&str, &String)| json!({"id": id, "interface": interface, "region": REGION, "region_id": REGION, "url": it.url});
        let endpoints: Vec<Value> = INTERFACES.into_iter().zip(&it.ids).map(at).collect();
        json!({"id": it.service, "type": it.kind, "name": it.name, "endpoints": endpoints})
    };
    endpoints.iter().map(service).collect()
}
