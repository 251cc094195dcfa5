//! Nova, as far as the client uses it: servers, and what they are plugged into.

mod interfaces;
mod offer;
mod servers;
mod showing;

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    clock::FakeTime,
    exchange::{Answer, Refusal, Reply, Request},
    octavia::ChangeDuration,
    routes::{Route, Service, delete, get, post, put},
    state::State,
    store::Table,
};

pub(super) const SERVICE: Service =
    Service { prefix: "/compute", versions: &["/v2.1", ""], routes: ROUTES, refuse };

const ROUTES: &[Route] = &[
    get("", versions).open(),
    get("/servers", servers::list),
    get("/servers/detail", servers::detail),
    post("/servers", servers::create),
    get("/servers/{}", servers::show),
    put("/servers/{}", servers::change),
    delete("/servers/{}", servers::delete),
    get("/servers/{}/os-interface", interfaces::list),
    post("/servers/{}/os-interface", interfaces::attach),
    get("/servers/{}/os-interface/{}", interfaces::show),
    delete("/servers/{}/os-interface/{}", interfaces::detach),
    get("/flavors", offer::flavors),
    get("/flavors/{}", offer::flavor),
    get("/images", offer::images),
    get("/limits", limits),
    get("/os-quota-sets/{}", quota),
    put("/os-quota-sets/{}", change_quota),
];

const LEAST: (u32, u32) = (2, 1);
const MOST: (u32, u32) = (2, 103);
const INSTANCES: i64 = 10;

#[derive(Clone, Debug, Default)]
pub(super) struct Nova {
    servers: Table,
    /// What becomes of which server, and when.
    pending: BTreeMap<String, Pending>,
    instances: BTreeMap<String, i64>,
}

#[derive(Clone, Debug)]
struct Pending {
    looks_left: u32,
    due: Option<FakeTime>,
}

fn versions(state: &mut State, request: &Request) -> Answer {
    let base = format!("{}/compute", state.base);
    let current = json!({
        "id": "v2.1",
        "status": "CURRENT",
        "version": "2.103",
        "min_version": "2.1",
        "updated": "2013-07-23T11:33:21Z",
        "links": [{"rel": "self", "href": format!("{base}/v2.1/")}],
    });
    if request.path.trim_end_matches('/').ends_with("v2.1") {
        let mut version = current;
        version["links"] = json!([
            {"rel": "self", "href": format!("{base}/v2.1/")},
            {"rel": "describedby", "type": "text/html", "href": "http://docs.openstack.org/"},
        ]);
        version["media-types"] = json!([{"base": "application/json", "type": "application/vnd.openstack.compute+json;version=2.1"}]);
        return Ok(Reply::json(200, json!({ "version": version })));
    }
    let old = json!({
        "id": "v2.0",
        "status": "DEPRECATED",
        "version": "",
        "min_version": "",
        "updated": "2011-01-21T11:33:21Z",
        "links": [{"rel": "self", "href": format!("{base}/v2/")}],
    });
    Ok(Reply::json(200, json!({"versions": [old, current]})))
}

fn limits(state: &mut State, request: &Request) -> Answer {
    let used = state.nova.servers.count_of_project(&request.caller.project);
    let absolute = json!({"totalInstancesUsed": used, "maxTotalInstances": state.most_instances(&request.caller.project)});
    Ok(Reply::json(200, json!({"limits": {"rate": [], "absolute": absolute}})))
}

fn quota(state: &mut State, request: &Request) -> Answer {
    let project = &request.at[0];
    Ok(Reply::one(200, "quota_set", json!({"id": project, "instances": state.most_instances(project)})))
}

fn change_quota(state: &mut State, request: &Request) -> Answer {
    if !request.caller.is_admin() {
        return Err(forbidden("os_compute_api:os-quota-sets:update"));
    }
    let body = request.json().unwrap_or_default();
    let instances = body["quota_set"]["instances"].as_i64().unwrap_or(INSTANCES);
    state.nova.instances.insert(request.at[0].clone(), instances);
    Ok(Reply::one(200, "quota_set", json!({ "instances": instances })))
}

/// The dialect that was asked for is one that is spoken.
fn check_version(request: &Request) -> Result<(), Refusal> {
    let asked = request
        .header("x-openstack-nova-api-version")
        .map(str::to_owned)
        .or_else(|| request.header("openstack-api-version")?.strip_prefix("compute ").map(str::to_owned));
    let Some(asked) = asked.filter(|it| it != "latest") else { return Ok(()) };
    let version =
        asked.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    match version {
        Some(version) if (LEAST..=MOST).contains(&version) => Ok(()),
        _ => {
            let message =
                format!("Version {asked} is not supported by the API. Minimum is 2.1 and maximum is 2.103.");
            Err(Refusal::new(406, message))
        }
    }
}

fn forbidden(action: &str) -> Refusal {
    Refusal::new(403, format!("Policy doesn't allow {action} to be performed."))
}

fn refuse(refusal: &Refusal) -> Reply {
    let name = match refusal.status {
        400 => "badRequest",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "itemNotFound",
        409 => "conflictingRequest",
        413 | 429 => "overLimit",
        503 => "serviceUnavailable",
        _ => "computeFault",
    };
    Reply::json(refusal.status, json!({ name: {"code": refusal.status, "message": refusal.message} }))
}

impl State {
    fn most_instances(&self, project: &str) -> i64 {
        self.nova.instances.get(project).copied().unwrap_or(INSTANCES)
    }

    fn server_began(&mut self, id: &str) {
        let pending = match self.octavia.pace {
            ChangeDuration::Looks(looks) => Pending { looks_left: looks, due: None },
            ChangeDuration::Time(time) | ChangeDuration::Workers { each: time, .. } => {
                Pending { looks_left: u32::MAX, due: Some(self.now.after(time)) }
            }
            ChangeDuration::Never => Pending { looks_left: u32::MAX, due: None },
        };
        self.nova.pending.insert(id.to_owned(), pending);
    }

    fn server_looked(&mut self, id: &str) {
        if let Some(pending) = self.nova.pending.get_mut(id) {
            pending.looks_left = pending.looks_left.saturating_sub(1);
        }
    }

    /// Ends what has had its time. Called before each request.
    pub(super) fn settle_servers(&mut self) {
        let now = self.now;
        let is_over = |it: &Pending| it.looks_left == 0 || it.due.is_some_and(|due| due <= now);
        let done: Vec<String> =
            self.nova.pending.iter().filter(|(_, it)| is_over(it)).map(|(id, _)| id.clone()).collect();
        for id in done {
            self.nova.pending.remove(&id);
            self.finish_server(&id);
        }
    }
}
