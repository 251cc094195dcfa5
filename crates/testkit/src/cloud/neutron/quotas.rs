//! How much a project may have.

use serde_json::{Value, json};

use super::{KINDS, schema::Kind};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
    store::Fields,
};

const DEFAULTS: [(&str, i64); 10] = [
    ("floatingip", 50),
    ("network", 100),
    ("port", -1),
    ("rbac_policy", 10),
    ("router", 10),
    ("security_group", 10),
    ("security_group_rule", 100),
    ("subnet", 100),
    ("subnetpool", -1),
    ("trunk", -1),
];

pub(super) fn show(state: &mut State, request: &Request) -> Answer {
    let project = mine(request, "get_quota")?;
    Ok(told(state, project))
}

pub(super) fn show_default(_: &mut State, request: &Request) -> Answer {
    mine(request, "get_quota")?;
    let quota: Fields = DEFAULTS.into_iter().map(|(name, limit)| (name.to_owned(), limit.into())).collect();
    Ok(Reply::one(200, "quota", quota))
}

pub(super) fn show_details(state: &mut State, request: &Request) -> Answer {
    let project = mine(request, "get_quota")?;
    let detail = |(name, _): (&str, i64)| {
        let used = KINDS.iter().find(|it| it.one == name).map_or(0, |kind| state.used(kind, project));
        (name.to_owned(), json!({"limit": state.limit(name, project), "used": used, "reserved": 0}))
    };
    Ok(Reply::one(200, "quota", DEFAULTS.into_iter().map(detail).collect::<Fields>()))
}

pub(super) fn change(state: &mut State, request: &Request) -> Answer {
    guard(request, "update_quota")?;
    let body = request.json().unwrap_or_default();
    let mut limits = state.neutron.quotas.get(&request.at[0]).cloned().unwrap_or_default();
    for (name, limit) in body["quota"].as_object().into_iter().flatten() {
        let limit = limit.as_i64().ok_or_else(|| {
            let message = format!(
                "Invalid input for operation: {} is not an integer.",
                crate::cloud::python::quoted(limit)
            );
            Refusal::of(400, "InvalidInput", message)
        })?;
        limits.insert(name.clone(), limit);
    }
    state.neutron.quotas.insert(request.at[0].clone(), limits);
    Ok(told(state, &request.at[0]))
}

pub(super) fn reset(state: &mut State, request: &Request) -> Answer {
    guard(request, "delete_quota")?;
    state.neutron.quotas.remove(&request.at[0]);
    Ok(Reply::empty(204))
}

fn told(state: &State, project: &str) -> Reply {
    let quota: Fields =
        DEFAULTS.into_iter().map(|(name, _)| (name.to_owned(), state.limit(name, project).into())).collect();
    Reply::one(200, "quota", quota)
}

fn mine<'r>(request: &'r Request, action: &str) -> Result<&'r str, Refusal> {
    if request.at[0] != request.caller.project {
        guard(request, action)?;
    }
    Ok(&request.at[0])
}

fn guard(request: &Request, action: &str) -> Result<(), Refusal> {
    if request.caller.is_admin() {
        return Ok(());
    }
    Err(Refusal::of(403, "PolicyNotAuthorized", format!("rule:{action} is disallowed by policy")))
}

impl State {
    fn limit(&self, name: &str, project: &str) -> i64 {
        let own = self.neutron.quotas.get(project).and_then(|it| it.get(name)).copied();
        own.or_else(|| DEFAULTS.iter().find(|(it, _)| *it == name).map(|(_, limit)| *limit)).unwrap_or(-1)
    }

    fn used(&self, kind: &Kind, project: &str) -> usize {
        self.neutron.table(kind).count_of_project(project)
    }

    /// There is room for one more.
    pub(super) fn has_room_for(&self, kind: &Kind, project: &str) -> Result<(), Refusal> {
        let limit = self.limit(kind.one, project);
        let is_over = usize::try_from(limit).is_ok_and(|limit| self.used(kind, project) >= limit);
        if is_over && !project.is_empty() {
            let message = format!(
                "Quota exceeded for resources: {}.",
                Value::from(vec![kind.one]).to_string().replace('"', "'")
            );
            return Err(Refusal::of(409, "OverQuota", message));
        }
        Ok(())
    }
}
