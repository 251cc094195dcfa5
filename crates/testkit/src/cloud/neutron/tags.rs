//! Tags of any kind of object.

use serde_json::{Value, json};

use super::{KINDS, missing, schema::Kind};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
    store::Row,
};

pub(super) fn list(state: &mut State, request: &Request) -> Answer {
    let (_, row) = found(state, request)?;
    Ok(Reply::json(200, json!({ "tags": row.fields["tags"] })))
}

pub(super) fn replace(state: &mut State, request: &Request) -> Answer {
    let given = given(request)?;
    edit(state, request, |tags| *tags = given)?;
    list(state, request)
}

pub(super) fn add(state: &mut State, request: &Request) -> Answer {
    let given = given(request)?;
    edit(state, request, |tags| tags.extend(given))?;
    list(state, request)
}

pub(super) fn clear(state: &mut State, request: &Request) -> Answer {
    edit(state, request, Vec::clear)?;
    Ok(Reply::empty(204))
}

pub(super) fn has(state: &mut State, request: &Request) -> Answer {
    let (_, row) = found(state, request)?;
    let tag = &request.at[2];
    let has = row.fields["tags"].as_array().is_some_and(|it| it.iter().any(|it| it == tag));
    if has { Ok(Reply::empty(204)) } else { Err(no_tag(tag)) }
}

pub(super) fn add_one(state: &mut State, request: &Request) -> Answer {
    edit(state, request, |tags| tags.push(request.at[2].clone()))?;
    Ok(Reply::empty(201))
}

pub(super) fn remove_one(state: &mut State, request: &Request) -> Answer {
    has(state, request)?;
    edit(state, request, |tags| tags.retain(|it| *it != request.at[2]))?;
    Ok(Reply::empty(204))
}

fn given(request: &Request) -> Result<Vec<String>, Refusal> {
    let body = request.json().unwrap_or_default();
    let Some(tags) = body["tags"].as_array() else {
        let message = format!(
            "Invalid input for operation: {} is not a list.",
            crate::cloud::python::quoted(&body["tags"])
        );
        return Err(Refusal::of(400, "InvalidInput", message));
    };
    Ok(tags.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

fn found(state: &State, request: &Request) -> Result<(&'static Kind, Row), Refusal> {
    let kind = KINDS.into_iter().find(|kind| kind.many.replace('_', "-") == request.at[0]);
    let kind = kind.ok_or_else(|| Refusal::new(404, "The resource could not be found."))?;
    // Neutron's code does not expect that.
    let row = state.neutron.table(kind).row(&request.at[1]).ok_or_else(|| {
        Refusal::new(500, "Request Failed: internal server error while processing your request.")
    })?;
    if state.neutron.owned(kind, &row.id, &request.caller).is_err() {
        return Err(missing(kind, &row.id));
    }
    Ok((kind, row.clone()))
}

fn edit(state: &mut State, request: &Request, change: impl FnOnce(&mut Vec<String>)) -> Result<(), Refusal> {
    let (kind, mut row) = found(state, request)?;
    let tags = row.fields["tags"].as_array().into_iter().flatten();
    let mut tags: Vec<String> = tags.filter_map(Value::as_str).map(str::to_owned).collect();
    change(&mut tags);
    tags.sort();
    tags.dedup();
    row.set("tags", tags);
    state.keep(kind, row);
    Ok(())
}

fn no_tag(tag: &str) -> Refusal {
    Refusal::of(404, "TagNotFound", format!("Tag {tag} could not be found."))
}
