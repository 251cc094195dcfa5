//! Load balancers themselves.

use serde_json::{Value, json};

use super::{
    BALANCER, forbidden, invalid, is_operator, listing, may_read, may_write, not_found, providers::Provider,
    showing, tree,
};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
    store::{Fields, Row, text},
};

pub(super) fn list(state: &mut State, request: &Request) -> Answer {
    listing::list(state, request, &BALANCER, None)
}

pub(super) fn show(state: &mut State, request: &Request) -> Answer {
    listing::show(state, request, &BALANCER, &request.at[0])
}

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    state.octavia.refuse_newer_fields(&BALANCER, request)?;
    let mut fields = BALANCER.created(request)?;
    let project =
        ["project_id", "tenant_id"].iter().find_map(|name| fields.remove(*name)?.as_str().map(str::to_owned));
    let project = project.unwrap_or_else(|| request.caller.project.clone());
    if !may_write(&request.caller, &project) {
        return Err(forbidden());
    }
    state.resolve_vip(&mut fields, &request.caller)?;
    let provider = state.provider_of(&fields)?;
    state.check_vip_groups(&fields)?;
    state.spare(&BALANCER, &project, 1, 0)?;
    let id = state.ids.uuid();
    state.make_vip(&mut fields, &id, &project, provider)?;
    let listeners = fields.remove("listeners").unwrap_or_default();
    let pools = fields.remove("pools").unwrap_or_default();
    fields.insert("provider".to_owned(), provider.name().into());
    fields.insert("vip_vnic_type".to_owned(), "normal".into());
    if fields.get("vip_sg_ids").is_none_or(Value::is_null) {
        fields.insert("vip_sg_ids".to_owned(), json!([]));
    }
    let row = state.pending_row(id.clone(), None, &project, fields);
    let whole = state.stage_whole(&row, &listeners, &pools)?;
    state.octavia.balancers.put(row);
    for (kind, row) in whole {
        state.octavia.table_mut(kind).put(row);
    }
    state.began(&id);
    let row = state.octavia.balancers.row(&id).ok_or_else(|| not_found(BALANCER.title, &id))?;
    Ok(Reply::one(201, BALANCER.one, showing::whole(&state.octavia, row)))
}

pub(super) fn change(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    state.octavia.refuse_newer_fields(&BALANCER, request)?;
    let mut changes = BALANCER.changed(request)?;
    state.octavia.owned(&BALANCER, id, &request.caller)?;
    state.check_vip_groups(&changes)?;
    state.octavia.lock_balancer(id, "PENDING_UPDATE")?;
    if changes.get("admin_state_up").is_some_and(Value::is_null) {
        changes.insert("admin_state_up".to_owned(), json!(false));
    }
    state.changed_row(&BALANCER, id, changes);
    state.began(id);
    let row = state.octavia.balancers.row(id).ok_or_else(|| not_found(BALANCER.title, id))?;
    Ok(Reply::one(200, BALANCER.one, showing::one(&state.octavia, &BALANCER, row)))
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    state.octavia.owned(&BALANCER, id, &request.caller)?;
    let cascade = request
        .param("cascade")
        .is_some_and(|it| ["true", "1", "t", "on", "y", "yes"].contains(&&*it.to_lowercase()));
    let octavia = &state.octavia;
    let has_children = BALANCER.below.iter().any(|kind| octavia.table(kind).children(id).next().is_some());
    if has_children && !cascade {
        return Err(invalid(format!("Cannot delete Load Balancer {id} - it has children")));
    }
    state.octavia.lock_balancer(id, "PENDING_DELETE")?;
    state.began(id);
    Ok(Reply::empty(204))
}

pub(super) fn failover(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    let row = state.octavia.balancers.row(id).ok_or_else(|| not_found(BALANCER.title, id))?;
    if !is_operator(&request.caller) {
        return Err(forbidden());
    }
    let provider = Provider::of(row);
    let status = row.text("provisioning_status");
    if !["ACTIVE", "ERROR"].contains(&status) {
        return Err(Refusal::new(409, format!("Invalid state {status} of loadbalancer resource {id}")));
    }
    provider.check_failover()?;
    state.octavia.set_status(&BALANCER, id, "PENDING_UPDATE");
    state.began(id);
    Ok(Reply::empty(202))
}

pub(super) fn status(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    let row = state.octavia.visible_object(&BALANCER, id, &request.caller)?;
    let body = json!({"statuses": {"loadbalancer": tree::of(&state.octavia, row)}});
    state.looked(&BALANCER, std::slice::from_ref(id));
    Ok(Reply::json(200, body))
}

pub(super) fn statistics(state: &mut State, request: &Request) -> Answer {
    state.octavia.visible_object(&BALANCER, &request.at[0], &request.caller)?;
    Ok(no_traffic())
}

/// Nothing flows through a fake.
pub(super) fn no_traffic() -> Reply {
    let counters = ["active_connections", "bytes_in", "bytes_out", "request_errors", "total_connections"];
    let zero: Fields = counters.into_iter().map(|name| (name.to_owned(), json!(0))).collect();
    Reply::one(200, "stats", zero)
}

impl State {
    /// By name, by flavor, or the default one.
    fn provider_of(&self, fields: &Fields) -> Result<Provider, Refusal> {
        let (flavor, zone) = (text(fields, "flavor_id"), text(fields, "availability_zone"));
        let mut named = text(fields, "provider").to_owned();
        if !flavor.is_empty() {
            let row = self.octavia.flavors.row(flavor).ok_or_else(|| invalid("Invalid flavor_id."))?;
            if !row.is("enabled") {
                let message = format!("The selected flavor is not allowed in this deployment: {flavor}");
                return Err(Refusal::new(400, message));
            }
            if !named.is_empty() && named != row.text("provider") {
                let message = format!("Flavor '{flavor}' is not compatible with provider '{named}'");
                return Err(Refusal::new(400, message));
            }
            row.text("provider").clone_into(&mut named);
        }
        if !zone.is_empty() && self.octavia.zones.row(zone).is_none() {
            return Err(invalid("Invalid availability zone."));
        }
        Provider::named(if named.is_empty() { &self.octavia.default_provider } else { &named })
    }

    pub(super) fn new_pending(&mut self, parent: Option<&str>, project: &str, fields: Fields) -> Row {
        let id = self.ids.uuid();
        self.pending_row(id, parent, project, fields)
    }

    /// As every new object begins.
    fn pending_row(&mut self, id: String, parent: Option<&str>, project: &str, fields: Fields) -> Row {
        let parent = parent.map(str::to_owned);
        let created = self.now.bare();
        let mut row = Row { id, project: project.to_owned(), parent, created, fields, ..Row::default() };
        row.set("provisioning_status", "PENDING_CREATE");
        row.set("operating_status", "OFFLINE");
        row
    }

    /// As every changed object waits.
    pub(super) fn changed_row(&mut self, kind: &super::Kind, id: &str, changes: Fields) {
        let now = self.now.bare();
        if let Some(row) = self.octavia.table_mut(kind).row_mut(id) {
            row.fields.extend(changes);
            row.set("provisioning_status", "PENDING_UPDATE");
            row.set("updated_at", now);
        }
    }

    /// Whether this caller may see the object's statistics and the like.
    pub(super) fn may_see(&self, row: &Row, request: &Request) -> Result<(), Refusal> {
        if may_read(&request.caller, &row.project) { Ok(()) } else { Err(forbidden()) }
    }
}
