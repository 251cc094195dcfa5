//! Barbican, as far as the client and Octavia use it: secrets, and containers of them.

mod containers;
mod secrets;

use serde_json::{Value, json};

use super::{
    exchange::{Answer, Refusal, Reply, Request},
    routes::{Route, Service, delete, get, post, put},
    state::State,
    store::{Fields, Row, Table},
};

pub(super) const SERVICE: Service =
    Service { prefix: "/key-manager", versions: &["/v1", ""], routes: ROUTES, refuse };

const ROUTES: &[Route] = &[
    get("", versions).open(),
    get("/secrets", secrets::list),
    post("/secrets", secrets::create),
    get("/secrets/{}", secrets::show),
    put("/secrets/{}", secrets::fill),
    delete("/secrets/{}", secrets::delete),
    get("/secrets/{}/payload", secrets::payload),
    get("/containers", containers::list),
    post("/containers", containers::create),
    get("/containers/{}", containers::show),
    delete("/containers/{}", containers::delete),
];

#[derive(Clone, Debug, Default)]
pub(super) struct Barbican {
    secrets: Table,
    containers: Table,
}

impl Barbican {
    /// Whether this is the whole address of a secret or container.
    pub(super) fn has(&self, base: &str, address: &str) -> bool {
        let below = |kind: &str| address.strip_prefix(&format!("{base}/key-manager/v1/{kind}/"));
        below("secrets").is_some_and(|id| self.secrets.row(id).is_some())
            || below("containers").is_some_and(|id| self.containers.row(id).is_some())
    }
}

fn versions(state: &mut State, _: &Request) -> Answer {
    let version = json!({
        "id": "v1",
        "status": "stable",
        "links": [
            {"rel": "self", "href": format!("{}/key-manager/v1/", state.base)},
            {"rel": "describedby", "type": "text/html", "href": "https://docs.openstack.org/"},
        ],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.key-manager-v1+json"}],
    });
    Ok(Reply::json(300, json!({"versions": {"values": [version]}})))
}

fn refuse(refusal: &Refusal) -> Reply {
    let title = match refusal.status {
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    };
    Reply::json(
        refusal.status,
        json!({"code": refusal.status, "title": title, "description": refusal.message}),
    )
}

/// One page of what a project has.
fn listed(state: &State, request: &Request, many: &str, rows: Vec<Value>) -> Reply {
    let total = rows.len();
    let number =
        |name: &str, preset: usize| request.param(name).and_then(|it| it.parse().ok()).unwrap_or(preset);
    let (limit, offset) = (number("limit", 10), number("offset", 0));
    let mut body = Fields::new();
    let at = |offset: usize| format!("{}/key-manager/v1/{many}?limit={limit}&offset={offset}", state.base);
    if offset + limit < total {
        body.insert("next".to_owned(), at(offset + limit).into());
    }
    if offset > 0 {
        body.insert("previous".to_owned(), at(offset.saturating_sub(limit)).into());
    }
    let page: Vec<Value> = rows.into_iter().skip(offset).take(limit).collect();
    body.insert(many.to_owned(), page.into());
    body.insert("total".to_owned(), total.into());
    Reply::json(200, body.into())
}

/// A row of the caller's.
fn made(state: &mut State, request: &Request, fields: Fields) -> Row {
    let (id, created) = (state.ids.uuid(), state.now.bare());
    let mut row = Row { id, project: request.caller.project.clone(), created, fields, ..Row::default() };
    row.set("creator_id", request.caller.user.clone());
    row
}

/// The row of this id, if it is the caller's.
fn found<'t>(table: &'t Table, request: &Request, what: &str) -> Result<&'t Row, Refusal> {
    let id = &request.at[0];
    if id.len() != 36 {
        let kind = what.split(' ').next().unwrap_or_default().to_lowercase();
        return Err(Refusal::new(404, format!("Not Found. Provided {kind} id is invalid.")));
    }
    let row = table.row(id).ok_or_else(|| Refusal::new(404, format!("{what} not found.")))?;
    if row.project == request.caller.project || request.caller.is_admin() {
        return Ok(row);
    }
    let noun = if what == "Secret" { "Secret" } else { "Container" };
    let verb = if request.method == "DELETE" { "deletion" } else { "retrieval" };
    let message = format!("{noun} {verb} attempt not allowed - please review your user/project privileges");
    Err(Refusal::new(403, message))
}

fn does_not_match(schema: &str, why: &str, property: &str) -> Refusal {
    let message =
        format!("Provided object does not match schema '{schema}': {why}. Invalid property: '{property}'");
    Refusal::new(400, message)
}
