//! Lists: filters, tags, order, pages and chosen fields, as `octavia/api/common/pagination.py` has them.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::{forbidden, is_operator, may_read, schema::Kind, showing};
use crate::cloud::{
    exchange::{Answer, Caller, Refusal, Reply, Request},
    state::State,
    store::{Fields, Row},
};

/// The most that one page holds.
const PAGE: usize = 1000;
/// What is in a query and is no filter.
const AUXILIARY: [&str; 7] = ["limit", "marker", "sort", "sort_key", "sort_dir", "fields", "page_reverse"];
const TAGS: [&str; 4] = ["tags", "tags-any", "not-tags", "not-tags-any"];

/// All that the caller may see, or all children of one parent.
pub(super) fn list(
    state: &mut State,
    request: &Request,
    kind: &'static Kind,
    parent: Option<&str>,
) -> Answer {
    let wanted = ListQuery::parse(request, kind)?;
    let project = match parent {
        Some(_) => None,
        None => project(&request.caller, request.param("project_id").or_else(|| request.param("tenant_id")))?,
    };
    let table = state.octavia.table(kind);
    let rows: Vec<&Row> = match (parent, &project) {
        (Some(parent), _) => table.children(parent).filter(|row| wanted.keeps(row)).collect(),
        (None, Some(project)) => table.of_project(project).filter(|row| wanted.keeps(row)).collect(),
        (None, None) => table.iter().filter(|row| wanted.keeps(row)).collect(),
    };
    let page = wanted.page(rows, |id| table.row(id))?;
    let links = wanted.links(&page, &format!("{}{}", state.base, request.path));
    let shown: Vec<Value> =
        page.iter().map(|row| chosen(showing::one(&state.octavia, kind, row), request)).collect();
    let ids: Vec<String> = page.iter().map(|row| row.id.clone()).collect();
    let links_name = format!("{}_links", kind.many);
    state.looked(kind, &ids);
    Ok(Reply::json(200, json!({ kind.many: shown, links_name: links })))
}

pub(super) fn show(state: &mut State, request: &Request, kind: &'static Kind, id: &str) -> Answer {
    let row = state.octavia.visible_object(kind, id, &request.caller)?;
    let body = chosen(showing::one(&state.octavia, kind, row), request);
    state.looked(kind, &[id.to_owned()]);
    Ok(Reply::one(200, kind.one, body))
}

/// Whose objects are listed; nobody's in particular, if the caller sees all.
fn project(caller: &Caller, asked: Option<&str>) -> Result<Option<String>, Refusal> {
    if is_operator(caller) || caller.has("load-balancer_global_observer") {
        return Ok(asked.map(str::to_owned));
    }
    let project = asked.unwrap_or(&caller.project);
    if may_read(caller, project) { Ok(Some(project.to_owned())) } else { Err(forbidden()) }
}

/// Only the fields that were asked for, if any were.
fn chosen(mut shown: Fields, request: &Request) -> Value {
    let fields: Vec<&str> =
        request.query.iter().filter(|(name, _)| name == "fields").map(|(_, value)| value.as_str()).collect();
    if !fields.is_empty() {
        shown.retain(|name, _| fields.contains(&name.as_str()));
    }
    shown.into()
}

struct ListQuery<'r> {
    filters: Vec<(&'r str, Value)>,
    tags: Vec<(&'r str, Vec<&'r str>)>,
    limit: Option<usize>,
    marker: Option<&'r str>,
    reverse: bool,
    sort: Vec<(String, bool)>,
    /// The part of the query that links repeat. Filters are not in it: Octavia forgets them.
    repeated: String,
}

impl<'r> ListQuery<'r> {
    fn parse(request: &'r Request, kind: &Kind) -> Result<ListQuery<'r>, Refusal> {
        let (mut filters, mut tags) = (Vec::new(), Vec::new());
        for (name, value) in &request.query {
            if AUXILIARY.contains(&name.as_str()) {
                continue;
            }
            if let Some(name) = TAGS.iter().find(|it| *it == name) {
                tags.push((*name, value.split(',').collect()));
                continue;
            }
            let (name, value) = filter(kind, name, value)
                .ok_or_else(|| Refusal::new(400, "One or more arguments are either duplicate or invalid"))?;
            filters.push((name, value));
        }
        let limit = match request.param("limit") {
            None => Some(PAGE),
            Some("infinite") => None,
            Some(text) => match text.parse::<i64>() {
                Ok(number) if number < 1 => None,
                Ok(number) => Some(usize::try_from(number).map_or(PAGE, |it| it.min(PAGE))),
                Err(_) => {
                    let message = format!("Supplied pagination limit '{text}' is not valid.");
                    return Err(Refusal::of(400, "lookup", message));
                }
            },
        };
        let sort = order(request, kind)?;
        let mut repeated = format!("limit={}", limit.map_or("None".to_owned(), |it| it.to_string()));
        for name in ["sort", "sort_key"] {
            if let Some(value) = request.param(name) {
                repeated += &format!("&{name}={value}");
            }
        }
        Ok(ListQuery {
            filters,
            tags,
            limit,
            marker: request.param("marker"),
            reverse: request.param("page_reverse") == Some("True"),
            sort,
            repeated,
        })
    }

    fn keeps(&self, row: &Row) -> bool {
        let null = Value::Null;
        let has = |tag: &&str| {
            row.fields.get("tags").and_then(Value::as_array).is_some_and(|all| all.iter().any(|it| it == tag))
        };
        self.filters.iter().all(|(name, value)| match *name {
            "id" => value == &row.id,
            "project_id" => value == &row.project,
            "parent" => value.as_str() == row.parent.as_deref(),
            name => row.fields.get(name).unwrap_or(&null) == value,
        }) && self.tags.iter().all(|(how, tags)| match *how {
            "tags" => tags.iter().all(has),
            "tags-any" => tags.iter().any(has),
            "not-tags" => !tags.iter().all(has),
            _ => !tags.iter().any(has),
        })
    }

    fn page<'o>(
        &self,
        mut rows: Vec<&'o Row>,
        find: impl Fn(&str) -> Option<&'o Row>,
    ) -> Result<Vec<&'o Row>, Refusal> {
        if !self.sort.is_empty() {
            rows.sort_by(|a, b| self.compare(a, b));
        }
        if let Some(marker) = self.marker {
            let marker = find(marker).ok_or_else(|| {
                Refusal::new(400, format!("Supplied pagination marker '{marker}' is not valid."))
            })?;
            let wanted = if self.reverse { Ordering::Less } else { Ordering::Greater };
            rows.retain(|row| self.compare(row, marker) == wanted);
        }
        rows.truncate(self.limit.unwrap_or(usize::MAX));
        Ok(rows)
    }

    fn compare(&self, a: &Row, b: &Row) -> Ordering {
        let by = |(name, descending): &(String, bool)| {
            let order = value(a, name).cmp(&value(b, name));
            if *descending { order.reverse() } else { order }
        };
        let order = self.sort.iter().map(by).find(|it| it.is_ne()).unwrap_or(Ordering::Equal);
        order.then_with(|| (&a.created, &a.id).cmp(&(&b.created, &b.id)))
    }

    fn links(&self, page: &[&Row], url: &str) -> Vec<Value> {
        let (Some(first), Some(last)) = (page.first(), page.last()) else { return Vec::new() };
        let mut links = Vec::new();
        if self.marker.is_some() {
            let href = format!("{url}?{}&marker={}&page_reverse=True", self.repeated, first.id);
            links.push(json!({"rel": "previous", "href": href}));
        }
        if self.limit.is_none_or(|limit| page.len() >= limit) {
            let href = format!("{url}?{}&marker={}", self.repeated, last.id);
            links.push(json!({"rel": "next", "href": href}));
        }
        links
    }
}

/// The attribute that a filter means, with the value as it would be stored.
fn filter<'n>(kind: &Kind, name: &'n str, text: &str) -> Option<(&'n str, Value)> {
    let value = Value::from(text);
    match name {
        "tenant_id" => return Some(("project_id", value)),
        "id" | "project_id" | "created_at" | "updated_at" => return Some((name, value)),
        "loadbalancer_id" | "load_balancer_id" if ["listener", "pool"].contains(&kind.one) => {
            return Some(("parent", value));
        }
        "pool_id" if ["member", "healthmonitor"].contains(&kind.one) => return Some(("parent", value)),
        "l7policy_id" if kind.one == "rule" => return Some(("parent", value)),
        _ => {}
    }
    let attribute = kind.attributes.iter().find(|it| it.name == name && it.is_told())?;
    if attribute.is_flag() {
        return Some((name, ["1", "t", "true", "on", "y", "yes"].contains(&&*text.to_lowercase()).into()));
    }
    Some((name, text.parse::<i64>().map_or(value, Value::from)))
}

fn order(request: &Request, kind: &Kind) -> Result<Vec<(String, bool)>, Refusal> {
    let bad = |key: &str| Refusal::new(400, format!("Supplied sort key '{key}' is not valid."));
    let descends = |direction: &str| match direction.to_lowercase().as_str() {
        "asc" => Ok(false),
        "desc" => Ok(true),
        other => Err(Refusal::of(400, "lookup", format!("Supplied sort direction '{other}' is not valid."))),
    };
    let mut order = Vec::new();
    if let Some(sort) = request.param("sort") {
        for part in sort.split(',') {
            let (key, direction) = part.split_once(':').unwrap_or((part, "asc"));
            order.push((key.to_owned(), descends(direction)?));
        }
    } else if let Some(keys) = request.param("sort_key") {
        let mut directions =
            request.param("sort_dir").unwrap_or_default().split(',').filter(|it| !it.is_empty());
        for key in keys.split(',') {
            order.push((key.to_owned(), descends(directions.next().unwrap_or("asc"))?));
        }
    }
    let known = |key: &str| {
        ["id", "project_id", "created_at", "updated_at"].contains(&key)
            || kind.attributes.iter().any(|it| it.name == key && it.is_told())
    };
    match order.iter().find(|(key, _)| !known(key)) {
        Some((key, _)) => Err(bad(key)),
        None => Ok(order),
    }
}

/// What rows are ordered by; numbers so that they compare as numbers.
fn value(row: &Row, name: &str) -> (i64, String) {
    match name {
        "id" => (0, row.id.clone()),
        "project_id" => (0, row.project.clone()),
        "created_at" => (0, row.created.clone()),
        name => match row.fields.get(name) {
            Some(Value::Number(number)) => (number.as_i64().unwrap_or(0), String::new()),
            Some(Value::String(text)) => (0, text.clone()),
            Some(Value::Bool(flag)) => (i64::from(*flag), String::new()),
            _ => (0, String::new()),
        },
    }
}
