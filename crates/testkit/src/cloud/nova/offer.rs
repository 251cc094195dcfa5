//! What servers are made of.

use serde_json::{Value, json};

use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
};

/// Ids and names, as in the rig.
const FLAVORS: [(&str, &str); 5] =
    [("1", "m1.nano"), ("2", "m1.small"), ("3", "m1.medium"), ("4", "m1.large"), ("amphora", "amphora")];
const IMAGES: [(&str, &str); 2] = [
    ("c3b1a5e0-2f5b-4d55-9a0b-8f1b0c0e0001", "test-image"),
    ("c3b1a5e0-2f5b-4d55-9a0b-8f1b0c0e0002", "amphora"),
];

pub(super) fn flavors(state: &mut State, request: &Request) -> Answer {
    Ok(listed(state, request, "flavors", &FLAVORS))
}

pub(super) fn flavor(_: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    let found = FLAVORS.iter().find(|(it, _)| it == id);
    let (id, name) = found.ok_or_else(|| Refusal::new(404, format!("Flavor {id} could not be found.")))?;
    Ok(Reply::one(200, "flavor", json!({"id": id, "name": name})))
}

pub(super) fn images(state: &mut State, request: &Request) -> Answer {
    Ok(listed(state, request, "images", &IMAGES))
}

pub(super) fn has_flavor(id: &str) -> bool {
    FLAVORS.iter().any(|(it, _)| *it == id)
}

pub(super) fn has_image(id: &str) -> bool {
    IMAGES.iter().any(|(it, _)| *it == id)
}

fn listed(state: &State, request: &Request, many: &str, all: &[(&str, &str)]) -> Reply {
    let wanted = request.param("name");
    let told = |(id, name): &(&str, &str)| {
        json!({"id": id, "name": name, "links": [
            {"rel": "self", "href": format!("{}/compute/v2.1/{many}/{id}", state.base)},
            {"rel": "bookmark", "href": format!("{}/compute/{many}/{id}", state.base)},
        ]})
    };
    let shown: Vec<Value> =
        all.iter().filter(|(_, name)| wanted.is_none_or(|it| it == *name)).map(told).collect();
    Reply::json(200, json!({ many: shown }))
}
