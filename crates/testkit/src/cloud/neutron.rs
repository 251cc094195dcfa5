//! Neutron: networks, addresses and who has them, routers, floating IPs, security groups.

mod addresses;
mod floating;
mod forms;
mod groups;
mod kinds;
mod listing;
mod networks;
mod ports;
mod quotas;
mod routers;
mod schema;
mod showing;
mod tags;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use self::{
    addresses::Addresses,
    forms::bad,
    kinds::{FLOATING, ROUTER, RULE},
};
pub(super) use self::{
    addresses::net,
    kinds::{GROUP, NETWORK, PORT, SUBNET},
    ports::Wanted,
    schema::Kind,
};
use super::{
    exchange::{Answer, Caller, Refusal, Reply, Request},
    routes::{Route, Service, delete, get, post, put},
    state::State,
    store::{Fields, Row, Table},
};

pub(super) const SERVICE: Service =
    Service { prefix: "/network", versions: &["/v2.0", ""], routes: ROUTES, refuse };

const ROUTES: &[Route] = &[
    get("", versions).open(),
    get("/extensions", extensions),
    get("/extensions/{}", extension),
    get("/networks", |state, request| listing::list(state, request, &NETWORK)),
    post("/networks", networks::create),
    get("/networks/{}", |state, request| listing::show(state, request, &NETWORK)),
    put("/networks/{}", networks::change),
    delete("/networks/{}", networks::delete),
    get("/subnets", |state, request| listing::list(state, request, &SUBNET)),
    post("/subnets", networks::create_subnet),
    get("/subnets/{}", |state, request| listing::show(state, request, &SUBNET)),
    put("/subnets/{}", networks::change_subnet),
    delete("/subnets/{}", networks::delete_subnet),
    get("/ports", |state, request| listing::list(state, request, &PORT)),
    post("/ports", ports::create),
    get("/ports/{}", |state, request| listing::show(state, request, &PORT)),
    put("/ports/{}", ports::change),
    delete("/ports/{}", ports::delete),
    get("/routers", |state, request| listing::list(state, request, &ROUTER)),
    post("/routers", routers::create),
    get("/routers/{}", |state, request| listing::show(state, request, &ROUTER)),
    put("/routers/{}", routers::change),
    delete("/routers/{}", routers::delete),
    put("/routers/{}/add_router_interface", routers::add_interface),
    put("/routers/{}/remove_router_interface", routers::remove_interface),
    put("/routers/{}/add_extraroutes", routers::add_routes),
    put("/routers/{}/remove_extraroutes", routers::remove_routes),
    get("/floatingips", |state, request| listing::list(state, request, &FLOATING)),
    post("/floatingips", floating::create),
    get("/floatingips/{}", |state, request| listing::show(state, request, &FLOATING)),
    put("/floatingips/{}", floating::change),
    delete("/floatingips/{}", floating::delete),
    get("/security-groups", groups::list),
    post("/security-groups", groups::create),
    get("/security-groups/{}", |state, request| listing::show(state, request, &GROUP)),
    put("/security-groups/{}", groups::change),
    delete("/security-groups/{}", groups::delete),
    get("/security-group-rules", |state, request| listing::list(state, request, &RULE)),
    post("/security-group-rules", groups::create_rule),
    get("/security-group-rules/{}", |state, request| listing::show(state, request, &RULE)),
    delete("/security-group-rules/{}", groups::delete_rule),
    get("/quotas/{}", quotas::show),
    get("/quotas/{}/default", quotas::show_default),
    get("/quotas/{}/details.json", quotas::show_details),
    put("/quotas/{}", quotas::change),
    delete("/quotas/{}", quotas::reset),
    get("/{}/{}/tags", tags::list),
    put("/{}/{}/tags", tags::replace),
    post("/{}/{}/tags", tags::add),
    delete("/{}/{}/tags", tags::clear),
    get("/{}/{}/tags/{}", tags::has),
    put("/{}/{}/tags/{}", tags::add_one),
    delete("/{}/{}/tags/{}", tags::remove_one),
];

const KINDS: [&Kind; 7] = [&NETWORK, &SUBNET, &PORT, &ROUTER, &FLOATING, &GROUP, &RULE];

/// Of those that the real rig has, what this fake can do.
const EXTENSIONS: [&str; 22] = [
    "address-group",
    "allowed-address-pairs",
    "default-subnetpools",
    "ext-gw-mode",
    "external-net",
    "extraroute",
    "extraroute-atomic",
    "fip-port-details",
    "filter-validation",
    "net-mtu",
    "pagination",
    "port-security",
    "project-id",
    "quota_details",
    "quotas",
    "revision-if-match",
    "router",
    "security-group",
    "sorting",
    "standard-attr-revisions",
    "standard-attr-tag",
    "standard-attr-timestamp",
];

#[derive(Clone, Debug, Default)]
pub(super) struct Neutron {
    networks: Table,
    subnets: Table,
    pub(super) ports: Table,
    routers: Table,
    floating: Table,
    groups: Table,
    rules: Table,
    addresses: Addresses,
    quotas: BTreeMap<String, BTreeMap<String, i64>>,
    pub(super) limits: Limits,
    /// Extensions that this cloud has not.
    pub(super) without: Vec<String>,
}

/// Of neutron.conf: `max_routes` of a router, `max_allowed_address_pair` of a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) routes: usize,
    pub(super) pairs: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { routes: 30, pairs: 10 }
    }
}

impl Neutron {
    pub(super) fn table(&self, kind: &Kind) -> &Table {
        match kind.one {
            "network" => &self.networks,
            "subnet" => &self.subnets,
            "port" => &self.ports,
            "router" => &self.routers,
            "floatingip" => &self.floating,
            "security_group" => &self.groups,
            _ => &self.rules,
        }
    }

    fn table_mut(&mut self, kind: &Kind) -> &mut Table {
        match kind.one {
            "network" => &mut self.networks,
            "subnet" => &mut self.subnets,
            "port" => &mut self.ports,
            "router" => &mut self.routers,
            "floatingip" => &mut self.floating,
            "security_group" => &mut self.groups,
            _ => &mut self.rules,
        }
    }

    /// The object, if this caller may see it; whoever may not, hears that it is not there.
    pub(super) fn visible_object<'n>(
        &'n self,
        kind: &Kind,
        id: &str,
        caller: &Caller,
    ) -> Result<&'n Row, Refusal> {
        let row = self.table(kind).row(id).filter(|row| self.sees(kind, row, caller));
        row.ok_or_else(|| missing(kind, id))
    }

    /// The object, if it is the caller's.
    fn owned<'n>(&'n self, kind: &Kind, id: &str, caller: &Caller) -> Result<&'n Row, Refusal> {
        let row = self.visible_object(kind, id, caller)?;
        if caller.is_admin() || row.project == caller.project {
            return Ok(row);
        }
        let rule = format!("rule:update_{} is disallowed by policy", kind.one);
        Err(Refusal::of(403, "PolicyNotAuthorized", rule))
    }

    fn sees(&self, kind: &Kind, row: &Row, caller: &Caller) -> bool {
        let is_open = match kind.one {
            "network" | "subnet" => row.is("shared") || row.is("router:external"),
            _ => false,
        };
        caller.is_admin() || row.project == caller.project || is_open
    }
}

impl State {
    fn new_row(&mut self, fields: Fields, project: &str) -> Row {
        let mut row = Row {
            id: self.ids.uuid(),
            project: project.to_owned(),
            created: self.now.zulu(),
            fields,
            ..Row::default()
        };
        row.set("updated_at", row.created.clone());
        row.set("revision_number", 0);
        row.fields.entry("tags").or_insert_with(|| json!([]));
        row
    }

    /// The one that is to change, with its revision checked if the request asks for that.
    fn to_change(&self, kind: &Kind, request: &Request) -> Result<Row, Refusal> {
        let row = self.neutron.owned(kind, &request.at[0], &request.caller)?;
        if let Some(wanted) = request.header("if-match") {
            let number = wanted.strip_prefix("revision_number=").and_then(|it| it.parse::<i64>().ok());
            let number = number.ok_or_else(|| {
                let message = "Bad if-match request: Revision number etag must be in the format of revision_number=<int>.";
                Refusal::of(400, "BadRequest", message)
            })?;
            let current = row.fields.get("revision_number").and_then(Value::as_i64).unwrap_or(0);
            if number != current {
                let message = format!("Constrained to {number}, but current revision is {current}");
                return Err(Refusal::of(412, "RevisionNumberConstraintFailed", message));
            }
        }
        Ok(row.clone())
    }

    /// Keeps a changed object, one revision later.
    fn keep(&mut self, kind: &Kind, mut row: Row) {
        let revision = row.fields.get("revision_number").and_then(Value::as_i64).unwrap_or(0);
        row.set("revision_number", revision + 1);
        row.set("updated_at", self.now.zulu());
        self.neutron.table_mut(kind).put(row);
    }

    fn told(&self, status: u16, kind: &Kind, id: &str) -> Answer {
        let row = self.neutron.table(kind).row(id).ok_or_else(|| missing(kind, id))?;
        let mut shown = showing::one(&self.neutron, kind, row);
        if kind.one == "network" && status == 201 {
            shown.insert("is_default".to_owned(), json!(false));
        }
        Ok(Reply::one(status, kind.one, shown))
    }
}

fn missing(kind: &Kind, id: &str) -> Refusal {
    let (name, message) = kind.missing;
    Refusal::of(404, name, message.replace("{}", id))
}

fn refuse(refusal: &Refusal) -> Reply {
    let kind = match (refusal.kind, refusal.status) {
        ("", 404) | ("Not Found", _) => "HTTPNotFound",
        ("", 503) => "HTTPServiceUnavailable",
        ("", 429) => "HTTPTooManyRequests",
        ("", _) => "HTTPInternalServerError",
        (kind, _) => kind,
    };
    let error = json!({"type": kind, "message": refusal.message, "detail": ""});
    Reply::json(refusal.status, json!({ "NeutronError": error }))
}

fn versions(state: &mut State, request: &Request) -> Answer {
    if request.path.trim_end_matches('/').ends_with("v2.0") {
        return Ok(Reply::json(200, json!({"resources": []})));
    }
    let href = format!("{}/network/v2.0/", state.base);
    let version = json!({"id": "v2.0", "status": "CURRENT", "links": [{"href": href, "rel": "self"}]});
    Ok(Reply::json(200, json!({"versions": [version]})))
}

fn extensions(state: &mut State, _: &Request) -> Answer {
    let is_there = |it: &&&str| !state.neutron.without.iter().any(|gone| gone == **it);
    let all: Vec<Value> = EXTENSIONS.iter().filter(is_there).map(|alias| described(alias)).collect();
    Ok(Reply::json(200, json!({ "extensions": all })))
}

fn extension(_: &mut State, request: &Request) -> Answer {
    let alias = &request.at[0];
    if EXTENSIONS.contains(&alias.as_str()) {
        return Ok(Reply::json(200, json!({"extension": described(alias)})));
    }
    let message = format!(
        "The resource could not be found.<br /><br />\nExtension with alias {alias} does not exist\n\n"
    );
    Ok(Reply::json(404, json!({"code": "404 Not Found", "title": "Not Found", "message": message})))
}

fn described(alias: &str) -> Value {
    json!({"alias": alias, "name": alias, "description": "", "links": [], "updated": "2016-01-01T00:00:00-00:00"})
}
