//! Octavia: what its API accepts, what it locks, and what becomes of it.

mod ages;
mod balancers;
mod forms;
mod kinds;
mod listeners;
mod listing;
mod locks;
mod members;
mod monitors;
mod offer;
mod policies;
mod pools;
mod profiles;
mod providers;
mod quotas;
mod revivals;
mod rules;
mod schema;
mod settling;
mod showing;
mod tls;
mod tree;
mod vips;
mod whole;

use std::collections::{BTreeMap, HashMap};

use serde_json::json;

pub(super) use self::schema::Kind;
use self::{
    kinds::{BALANCER, LISTENER, MEMBER, MONITOR, POLICY, POOL, RULE},
    revivals::Revivals,
    settling::PendingChange,
};
use super::{
    clock::FakeTime,
    exchange::{Answer, Caller, Refusal, Reply, Request},
    routes::{Route, Service, delete, get, post, put},
    state::State,
    store::{Row, Table},
};

pub use self::settling::ChangeDuration;

pub(super) const SERVICE: Service =
    Service { prefix: "/load-balancer", versions: &["/v2.0", "/v2", ""], routes: ROUTES, refuse };

const ROUTES: &[Route] = &[
    get("", versions).open(),
    get("/lbaas/providers", offer::providers),
    get("/lbaas/providers/{}/flavor_capabilities", offer::flavor_capabilities),
    get("/lbaas/providers/{}/availability_zone_capabilities", offer::zone_capabilities),
    get("/lbaas/flavors", offer::flavors),
    post("/lbaas/flavors", profiles::create_flavor),
    get("/lbaas/flavors/{}", offer::flavor),
    delete("/lbaas/flavors/{}", profiles::delete_flavor),
    post("/lbaas/flavorprofiles", profiles::create),
    get("/lbaas/flavorprofiles/{}", profiles::show),
    delete("/lbaas/flavorprofiles/{}", profiles::delete),
    get("/lbaas/availabilityzones", offer::zones),
    get("/lbaas/availabilityzones/{}", offer::zone),
    get("/lbaas/quotas", quotas::list),
    get("/lbaas/quotas/{}", quotas::show),
    get("/lbaas/quotas/{}/default", quotas::show_default),
    put("/lbaas/quotas/{}", quotas::change),
    delete("/lbaas/quotas/{}", quotas::reset),
    get("/lbaas/loadbalancers", balancers::list),
    post("/lbaas/loadbalancers", balancers::create),
    get("/lbaas/loadbalancers/{}", balancers::show),
    put("/lbaas/loadbalancers/{}", balancers::change),
    delete("/lbaas/loadbalancers/{}", balancers::delete),
    get("/lbaas/loadbalancers/{}/status", balancers::status),
    get("/lbaas/loadbalancers/{}/statuses", balancers::status),
    get("/lbaas/loadbalancers/{}/stats", balancers::statistics),
    put("/lbaas/loadbalancers/{}/failover", balancers::failover),
    get("/lbaas/listeners", listeners::list),
    post("/lbaas/listeners", listeners::create),
    get("/lbaas/listeners/{}", |state, request| listing::show(state, request, &LISTENER, &request.at[0])),
    put("/lbaas/listeners/{}", listeners::change),
    delete("/lbaas/listeners/{}", listeners::delete),
    get("/lbaas/listeners/{}/stats", listeners::statistics),
    get("/lbaas/pools", pools::list),
    post("/lbaas/pools", pools::create),
    get("/lbaas/pools/{}", |state, request| listing::show(state, request, &POOL, &request.at[0])),
    put("/lbaas/pools/{}", pools::change),
    delete("/lbaas/pools/{}", pools::delete),
    get("/lbaas/pools/{}/members", members::list),
    post("/lbaas/pools/{}/members", members::create),
    put("/lbaas/pools/{}/members", members::replace),
    get("/lbaas/pools/{}/members/{}", members::show),
    put("/lbaas/pools/{}/members/{}", members::change),
    delete("/lbaas/pools/{}/members/{}", members::delete),
    get("/lbaas/healthmonitors", monitors::list),
    post("/lbaas/healthmonitors", monitors::create),
    get("/lbaas/healthmonitors/{}", |state, request| listing::show(state, request, &MONITOR, &request.at[0])),
    put("/lbaas/healthmonitors/{}", monitors::change),
    delete("/lbaas/healthmonitors/{}", monitors::delete),
    get("/lbaas/l7policies", policies::list),
    post("/lbaas/l7policies", policies::create),
    get("/lbaas/l7policies/{}", |state, request| listing::show(state, request, &POLICY, &request.at[0])),
    put("/lbaas/l7policies/{}", policies::change),
    delete("/lbaas/l7policies/{}", policies::delete),
    get("/lbaas/l7policies/{}/rules", rules::list),
    post("/lbaas/l7policies/{}/rules", rules::create),
    get("/lbaas/l7policies/{}/rules/{}", rules::show),
    put("/lbaas/l7policies/{}/rules/{}", rules::change),
    delete("/lbaas/l7policies/{}/rules/{}", rules::delete),
];

#[derive(Clone, Debug, Default)]
pub(super) struct Octavia {
    /// Until when each is busy.
    workers: Vec<FakeTime>,
    balancers: Table,
    listeners: Table,
    pools: Table,
    members: Table,
    monitors: Table,
    policies: Table,
    rules: Table,
    flavors: Table,
    profiles: Table,
    /// By their names, which are their ids.
    zones: Table,
    quotas: BTreeMap<String, BTreeMap<String, i64>>,
    /// What goes on at which load balancer.
    pending: HashMap<String, PendingChange>,
    pub(super) overlaps: usize,
    revivals: Revivals,
    pub(super) pace: ChangeDuration,
    pub(super) default_provider: String,
    /// Of its API, the newest version `2.x`.
    pub(super) newest: usize,
    /// The kinds of which the next one that is made or changed is to end in ERROR.
    failing: Vec<&'static str>,
}

const KINDS: [&Kind; 7] = [&BALANCER, &LISTENER, &POOL, &MEMBER, &MONITOR, &POLICY, &RULE];

/// Versions 2.0 to 2.30, with the days on which they were made.
const VERSIONS: [&str; 31] = [
    "2016-12-11T00:00:00Z",
    "2018-04-20T00:00:00Z",
    "2018-07-31T00:00:00Z",
    "2018-12-18T00:00:00Z",
    "2018-12-19T00:00:00Z",
    "2019-01-21T00:00:00Z",
    "2019-01-25T00:00:00Z",
    "2018-01-25T12:00:00Z",
    "2019-02-12T00:00:00Z",
    "2019-03-04T00:00:00Z",
    "2019-03-05T00:00:00Z",
    "2019-06-24T00:00:00Z",
    "2019-09-11T00:00:00Z",
    "2019-09-13T00:00:00Z",
    "2019-11-10T00:00:00Z",
    "2020-03-10T00:00:00Z",
    "2020-03-15T00:00:00Z",
    "2020-04-29T00:00:00Z",
    "2020-04-29T01:00:00Z",
    "2020-05-12T00:00:00Z",
    "2020-08-02T00:00:00Z",
    "2020-09-03T00:00:00Z",
    "2020-09-04T00:00:00Z",
    "2020-09-07T00:00:00Z",
    "2020-10-15T00:00:00Z",
    "2021-10-02T00:00:00Z",
    "2022-08-29T00:00:00Z",
    "2023-05-05T00:00:00Z",
    "2023-11-08T00:00:00Z",
    "2024-10-15T00:00:00Z",
    "2025-02-26T00:00:00Z",
];

fn versions(state: &mut State, _: &Request) -> Answer {
    let link = format!("{}/load-balancer/v2", state.base);
    let last = state.octavia.newest;
    let version = |(minor, updated): (usize, &&str)| {
        let status = if minor == last { "CURRENT" } else { "SUPPORTED" };
        json!({
            "id": format!("v2.{minor}"),
            "status": status,
            "updated": updated,
            "links": [{"href": link, "rel": "self"}],
        })
    };
    let versions: Vec<_> = VERSIONS.iter().take(last + 1).enumerate().map(version).collect();
    Ok(Reply::json(200, json!({ "versions": versions })))
}

fn refuse(refusal: &Refusal) -> Reply {
    match refusal.kind {
        // What is refused before it is known who answers, has the form of the framework below.
        "lookup" => {
            let body =
                json!({"code": refusal.status, "title": "Bad Request", "description": refusal.message});
            return Reply::json(refusal.status, body);
        }
        "Not Found" | "Method Not Allowed" => {
            let body = json!({"code": refusal.status, "title": refusal.kind, "description": ""});
            return Reply::json(refusal.status, body);
        }
        _ => {}
    }
    let code = if refusal.status < 500 { "Client" } else { "Server" };
    Reply::json(refusal.status, json!({"debuginfo": null, "faultcode": code, "faultstring": refusal.message}))
}

impl Octavia {
    pub(super) fn new(default_provider: &str) -> Octavia {
        let newest = VERSIONS.len() - 1;
        Octavia { default_provider: default_provider.to_owned(), newest, ..Octavia::default() }
    }

    pub(super) fn table(&self, kind: &Kind) -> &Table {
        match kind.one {
            "loadbalancer" => &self.balancers,
            "listener" => &self.listeners,
            "pool" => &self.pools,
            "member" => &self.members,
            "healthmonitor" => &self.monitors,
            "l7policy" => &self.policies,
            _ => &self.rules,
        }
    }

    pub(super) fn table_mut(&mut self, kind: &Kind) -> &mut Table {
        match kind.one {
            "loadbalancer" => &mut self.balancers,
            "listener" => &mut self.listeners,
            "pool" => &mut self.pools,
            "member" => &mut self.members,
            "healthmonitor" => &mut self.monitors,
            "l7policy" => &mut self.policies,
            _ => &mut self.rules,
        }
    }

    /// The object, if this caller may see it.
    fn visible_object<'o>(&'o self, kind: &Kind, id: &str, caller: &Caller) -> Result<&'o Row, Refusal> {
        let row = self.table(kind).row(id).ok_or_else(|| not_found(kind.title, id))?;
        if may_read(caller, &row.project) { Ok(row) } else { Err(forbidden()) }
    }

    /// The object, if this caller may change it.
    fn owned<'o>(&'o self, kind: &Kind, id: &str, caller: &Caller) -> Result<&'o Row, Refusal> {
        let row = self.table(kind).row(id).ok_or_else(|| not_found(kind.title, id))?;
        if may_write(caller, &row.project) { Ok(row) } else { Err(forbidden()) }
    }
}

/// What an operator, or bad luck, does to it.
impl Octavia {
    /// False if there is no such object.
    pub(super) fn mark(&mut self, id: &str, attribute: &str, status: &str, now: &str) -> bool {
        let row = KINDS.into_iter().find(|kind| self.table(kind).row(id).is_some());
        let Some(row) = row.and_then(|kind| self.table_mut(kind).row_mut(id)) else { return false };
        row.set(attribute, status);
        row.set("updated_at", now);
        true
    }

    /// What has a monitor comes back so long after it was deleted.
    pub(super) fn revive_after(&mut self, after: Option<std::time::Duration>) {
        self.revivals.after = after;
    }

    /// False if there is no such kind.
    pub(super) fn fail_next(&mut self, kind: &str) -> bool {
        let kind = KINDS.into_iter().find(|it| it.one == kind);
        self.failing.extend(kind.map(|it| it.one));
        kind.is_some()
    }
}

fn may_read(caller: &Caller, project: &str) -> bool {
    is_operator(caller)
        || caller.has("load-balancer_global_observer")
        || caller.project == project
            && ["member", "reader", "load-balancer_member", "load-balancer_observer"]
                .iter()
                .any(|it| caller.has(it))
}

fn may_write(caller: &Caller, project: &str) -> bool {
    is_operator(caller)
        || caller.project == project && ["member", "load-balancer_member"].iter().any(|it| caller.has(it))
}

fn is_operator(caller: &Caller) -> bool {
    caller.is_admin() || caller.has("load-balancer_admin")
}

fn not_found(title: &str, id: &str) -> Refusal {
    Refusal::new(404, format!("{title} {id} not found."))
}

fn forbidden() -> Refusal {
    Refusal::new(403, "Policy does not allow this request to be performed.")
}

fn invalid(detail: impl std::fmt::Display) -> Refusal {
    Refusal::new(400, format!("Validation failure: {detail}"))
}
