//! Where the services are.

use serde_json::{Value, json};

use crate::cloud::clock::Ids;

pub(super) const REGION: &str = "RegionOne";

#[derive(Clone, Debug)]
pub(in crate::cloud) struct Endpoint {
    service: String,
    pub(in crate::cloud) kind: String,
    name: &'static str,
    pub(in crate::cloud) url: String,
    pub(in crate::cloud) region: String,
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
        kind: kind.to_owned(),
        name,
        url: format!("{base}{path}"),
        region: REGION.to_owned(),
        ids: [ids.hex(), ids.hex(), ids.hex()],
    })
    .collect()
}

pub(super) fn v3(endpoints: &[Endpoint]) -> Value {
    let service = |it: &Endpoint| {
        let at = |(interface, id): (&str, &String)| json!({"id": id, "interface": interface, "region": it.region, "region_id": it.region, "url": it.url});
        let endpoints: Vec<Value> = INTERFACES.into_iter().zip(&it.ids).map(at).collect();
        json!({"id": it.service, "type": it.kind, "name": it.name, "endpoints": endpoints})
    };
    endpoints.iter().map(service).collect()
}

pub(super) fn v2(endpoints: &[Endpoint]) -> Value {
    let service = |it: &Endpoint| {
        let url = it.url.replace("/identity/v3", "/identity/v2.0");
        json!({
            "type": it.kind,
            "name": it.name,
            "endpoints_links": [],
            "endpoints": [{
                "id": it.ids[0],
                "region": it.region,
                "publicURL": url,
                "internalURL": url,
                "adminURL": url,
            }],
        })
    };
    endpoints.iter().map(service).collect()
}
