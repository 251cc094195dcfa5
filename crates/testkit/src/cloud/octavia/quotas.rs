//! How much a project may have.

use serde_json::{Value, json};

use super::{
    forbidden, is_operator,
    kinds::{BALANCER, LISTENER, MEMBER, MONITOR, POLICY, POOL, RULE},
    not_found,
    schema::Kind,
};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
    store::Fields,
};

const KINDS: [(&str, &Kind); 7] = [
    ("load_balancer", &BALANCER),
    ("listener", &LISTENER),
    ("pool", &POOL),
    ("member", &MEMBER),
    ("health_monitor", &MONITOR),
    ("l7policy", &POLICY),
    ("l7rule", &RULE),
];
/// Names that mean another one.
const ALIASES: [(&str, &str); 2] = [("loadbalancer", "load_balancer"), ("healthmonitor", "health_monitor")];
const UNLIMITED: i64 = -1;

pub(super) fn list(state: &mut State, request: &Request) -> Answer {
    let mine = |project: &&String| is_operator(&request.caller) || **project == request.caller.project;
    let told = |project: &String| {
        let mut told = state.quota(project);
        for (alias, name) in ALIASES {
            let limit = told[name].clone();
            told.insert(alias.to_owned(), limit);
        }
        told.insert("project_id".to_owned(), json!(project));
        told.insert("tenant_id".to_owned(), json!(project));
        Value::from(told)
    };
    let quotas: Vec<Value> = state.octavia.quotas.keys().filter(mine).map(told).collect();
    Ok(Reply::json(200, json!({"quotas": quotas, "quotas_links": []})))
}

pub(super) fn show(state: &mut State, request: &Request) -> Answer {
    if !is_operator(&request.caller) && request.at[0] != request.caller.project {
        return Err(forbidden());
    }
    Ok(Reply::one(200, "quota", state.quota(&request.at[0])))
}

pub(super) fn show_default(_: &mut State, _: &Request) -> Answer {
    let quota: Fields = KINDS.iter().map(|(name, _)| ((*name).to_owned(), json!(UNLIMITED))).collect();
    Ok(Reply::one(200, "quota", quota))
}

pub(super) fn change(state: &mut State, request: &Request) -> Answer {
    let body = request.json().unwrap_or_default();
    let mut limits = state.octavia.quotas.get(&request.at[0]).cloned().unwrap_or_default();
    for (given, limit) in body["quota"].as_object().into_iter().flatten() {
        let name = ALIASES.iter().find(|(it, _)| it == given).map_or(given.as_str(), |(_, name)| name);
        if !KINDS.iter().any(|(it, _)| *it == name) {
            return Err(Refusal::new(400, format!("Unknown attribute for argument quotas.quota: {given}")));
        }
        let limit = limit.as_i64().unwrap_or(UNLIMITED);
        if limit < UNLIMITED {
            let message = format!(
                "Invalid input for field/attribute {given}. Value: '{limit}'. Value should be greater or equal to -1"
            );
            return Err(Refusal::new(400, message));
        }
        limits.insert(name.to_owned(), limit);
    }
    if !is_operator(&request.caller) {
        return Err(forbidden());
    }
    state.octavia.quotas.insert(request.at[0].clone(), limits);
    Ok(Reply::one(202, "quota", state.quota(&request.at[0])))
}

pub(super) fn reset(state: &mut State, request: &Request) -> Answer {
    if !is_operator(&request.caller) {
        return Err(forbidden());
    }
    let gone = state.octavia.quotas.remove(&request.at[0]);
    gone.map(|_| Reply::empty(202)).ok_or_else(|| not_found("Quotas", &request.at[0]))
}

impl State {
    fn quota(&self, project: &str) -> Fields {
        let limits = self.octavia.quotas.get(project);
        let limit = |name: &str| limits.and_then(|it| it.get(name)).copied().unwrap_or(UNLIMITED);
        KINDS.iter().map(|(name, _)| ((*name).to_owned(), json!(limit(name)))).collect()
    }

    /// There is room for so many more, beside those that are staged.
    pub(super) fn spare(
        &self,
        kind: &Kind,
        project: &str,
        more: usize,
        staged: usize,
    ) -> Result<(), Refusal> {
        let name = KINDS.iter().find(|(_, it)| it.one == kind.one).map_or("", |(name, _)| name);
        let limit =
            self.octavia.quotas.get(project).and_then(|it| it.get(name)).copied().unwrap_or(UNLIMITED);
        let used = self.octavia.table(kind).count_of_project(project) + staged + more;
        if more > 0 && usize::try_from(limit).is_ok_and(|limit| used > limit) {
            return Err(Refusal::new(403, format!("Quota has been met for resources: {}", kind.title)));
        }
        Ok(())
    }
}
