//! Lists: filters, tags, order, pages, chosen fields.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::{bad, forms::texts, schema::Kind, showing};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
    store::{Fields, Row},
};

const AUXILIARY: [&str; 6] = ["limit", "marker", "sort_key", "sort_dir", "fields", "page_reverse"];
const TAGS: [&str; 4] = ["tags", "tags-any", "not-tags", "not-tags-any"];

pub(super) fn show(state: &mut State, request: &Request, kind: &'static Kind) -> Answer {
    let row = state.neutron.visible_object(kind, &request.at[0], &request.caller)?;
    Ok(Reply::one(200, kind.one, chosen(showing::one(&state.neutron, kind, row), request)))
}

pub(super) fn list(state: &mut State, request: &Request, kind: &'static Kind) -> Answer {
    let unknown: Vec<String> = request
        .query
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| !AUXILIARY.contains(name) && !TAGS.contains(name) && !kind.is_known(name))
        .map(|name| format!("'{name}'"))
        .collect();
    if !unknown.is_empty() {
        return Err(bad(format!("[{}] is invalid attribute for filtering", unknown.join(", "))));
    }
    let order = order(request)?;
    let limit = limit(request)?;
    let neutron = &state.neutron;
    let keeps = |row: &&Row| neutron.sees(kind, row, &request.caller) && is_wanted(kind, row, request);
    let table = neutron.table(kind);
    let mut rows: Vec<&Row> = match request.param("network_id").or_else(|| request.param("security_group_id"))
    {
        Some(parent) if ["port", "subnet", "security_group_rule"].contains(&kind.one) => {
            table.children(parent).filter(keeps).collect()
        }
        _ => table.iter().filter(keeps).collect(),
    };
    rows.sort_by(|a, b| compare(&order, a, b));
    let backwards = request.param("page_reverse").is_some_and(|it| it.eq_ignore_ascii_case("true"));
    // Security groups begin anew behind one that is gone; all others refuse it.
    let marker = request.param("marker").filter(|it| kind.one != "security_group" || table.row(it).is_some());
    if let Some(marker) = marker {
        let found = table.row(marker).ok_or_else(|| super::missing(kind, marker))?;
        let beyond = if backwards { Ordering::Less } else { Ordering::Greater };
        rows.retain(|row| compare(&order, row, found) == beyond);
    }
    let mut body = Fields::new();
    if let Some(limit) = limit {
        let is_full = rows.len() >= limit;
        let left = rows.len().saturating_sub(limit);
        if backwards {
            rows.drain(..left);
        } else {
            rows.truncate(limit);
        }
        let links = links(state, request, &rows, is_full, backwards);
        if !links.is_empty() {
            body.insert(format!("{}_links", kind.many), links.into());
        }
    }
    let shown: Vec<Value> =
        rows.into_iter().map(|row| chosen(showing::one(neutron, kind, row), request)).collect();
    body.insert(kind.many.to_owned(), shown.into());
    Ok(Reply::json(200, body.into()))
}

/// On ahead, unless the page was not full; and back, even from the first page.
fn links(state: &State, request: &Request, rows: &[&Row], is_full: bool, backwards: bool) -> Vec<Value> {
    let kept = request.query.iter().filter(|(name, _)| name != "marker" && name != "page_reverse");
    let kept: Vec<String> = kept.map(|(name, value)| format!("{name}={value}")).collect();
    let to = |rel: &str, row: Option<&&Row>, reverse: Option<&str>| {
        let mut query = kept.clone();
        query.extend(row.map(|it| format!("marker={}", it.id)));
        query.extend(reverse.map(str::to_owned));
        json!({"rel": rel, "href": format!("{}{}?{}", state.base, request.path, query.join("&"))})
    };
    let mut links = Vec::new();
    if is_full || backwards {
        links.push(to("next", rows.last(), None));
    }
    if is_full || !backwards {
        links.push(to("previous", rows.first(), Some("page_reverse=True")));
    }
    links
}

/// Only the fields that were asked for, if any were.
fn chosen(mut shown: Fields, request: &Request) -> Value {
    let fields: Vec<&str> = values(request, "fields").collect();
    if !fields.is_empty() {
        shown.retain(|name, _| fields.contains(&name.as_str()));
    }
    shown.into()
}

fn values<'r>(request: &'r Request, name: &'r str) -> impl Iterator<Item = &'r str> {
    request.query.iter().filter(move |(it, _)| it == name).map(|(_, value)| value.as_str())
}

/// Of several values of one name, one has to fit; of several names, all.
fn is_wanted(kind: &Kind, row: &Row, request: &Request) -> bool {
    let mut names: Vec<&str> = request.query.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().all(|name| match name {
        _ if AUXILIARY.contains(&name) => true,
        _ if TAGS.contains(&name) => values(request, name).all(|wanted| has_tags(row, name, wanted)),
        "fixed_ips" => has_addresses(row, &values(request, name).collect::<Vec<_>>()),
        _ => values(request, name).any(|wanted| fits(kind, row, name, wanted)),
    })
}

fn fits(kind: &Kind, row: &Row, name: &str, wanted: &str) -> bool {
    match name {
        "id" => row.id == wanted,
        "project_id" | "tenant_id" => row.project == wanted,
        "security_groups" if kind.one == "port" => {
            row.fields.get(name).and_then(Value::as_array).is_some_and(|it| it.iter().any(|it| it == wanted))
        }
        _ => match row.fields.get(name) {
            Some(Value::Bool(flag)) => *flag == ["true", "1"].contains(&&*wanted.to_lowercase()),
            Some(Value::Number(number)) => number.to_string() == wanted,
            Some(Value::String(text)) => text == wanted,
            _ => wanted.is_empty(),
        },
    }
}

/// `ip_address=10.0.0.1`, `subnet_id=…`: one of the addresses that are wanted, and in one of the subnets.
fn has_addresses(row: &Row, wanted: &[&str]) -> bool {
    let pairs: Vec<(&str, &str)> = wanted.iter().filter_map(|it| it.split_once('=')).collect();
    let has = |name: &str, value: &str| {
        row.fields.get("fixed_ips").is_some_and(|all| texts(all, name).contains(&value))
    };
    let one_of = |name: &str| pairs.iter().any(|(it, value)| *it == name && has(name, value));
    pairs.len() == wanted.len() && pairs.iter().all(|(name, _)| one_of(name))
}

fn has_tags(row: &Row, how: &str, wanted: &str) -> bool {
    let tags: Vec<&str> = row
        .fields
        .get("tags")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut wanted = wanted.split(',');
    match how {
        "tags" => wanted.all(|it| tags.contains(&it)),
        "tags-any" => wanted.any(|it| tags.contains(&it)),
        "not-tags" => !wanted.all(|it| tags.contains(&it)),
        _ => !wanted.any(|it| tags.contains(&it)),
    }
}

fn order(request: &Request) -> Result<Vec<(&str, bool)>, Refusal> {
    let (keys, directions) = (values(request, "sort_key"), values(request, "sort_dir"));
    let (keys, directions): (Vec<&str>, Vec<&str>) = (keys.collect(), directions.collect());
    if keys.len() != directions.len() {
        return Err(bad("The number of sort_keys and sort_dirs must be same"));
    }
    Ok(keys.into_iter().zip(directions.into_iter().map(|it| it == "desc")).collect())
}

fn limit(request: &Request) -> Result<Option<usize>, Refusal> {
    let Some(text) = request.param("limit") else { return Ok(None) };
    let number: usize = text.parse().map_err(|_| {
        let message = format!("Bad limit request: Limit must be an integer 0 or greater and not '{text}'.");
        Refusal::of(400, "BadRequest", message)
    })?;
    Ok((number > 0).then_some(number))
}

fn compare(order: &[(&str, bool)], a: &Row, b: &Row) -> Ordering {
    let value = |row: &Row, name: &str| match row.fields.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    let by = |(name, descending): &(&str, bool)| {
        let order = value(a, name).cmp(&value(b, name));
        if *descending { order.reverse() } else { order }
    };
    let found = order.iter().map(by).find(|it| it.is_ne()).unwrap_or(Ordering::Equal);
    found.then_with(|| (&a.created, &a.id).cmp(&(&b.created, &b.id)))
}
