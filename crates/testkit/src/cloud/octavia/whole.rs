//! Load balancers that are created with all that is below them. Nothing of it is there before all of it was looked at.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{
    invalid,
    kinds::{LISTENER, MEMBER, MONITOR, POLICY, POOL, RULE},
    providers::Provider,
    schema::Kind,
};
use crate::cloud::{
    exchange::Refusal,
    state::State,
    store::{Fields, Row, text},
};

/// Objects that are to be, in the order in which they are made.
pub(super) type Staged = Vec<(&'static Kind, Row)>;

/// What a pool has if it is only named: another one of that name is meant.
const BARE: [&str; 3] = ["name", "admin_state_up", "tls_enabled"];

impl State {
    pub(super) fn stage_whole(
        &mut self,
        balancer: &Row,
        listeners: &Value,
        pools: &Value,
    ) -> Result<Staged, Refusal> {
        let mut pools: Vec<Fields> = objects(pools);
        let mut listeners: Vec<Fields> = objects(listeners);
        let mut referred = Vec::new();
        for listener in &mut listeners {
            lift(listener, "default_pool", &mut pools, &mut referred)?;
            let mut policies = objects(&listener.remove("l7policies").unwrap_or_default());
            for policy in &mut policies {
                lift(policy, "redirect_pool", &mut pools, &mut referred)?;
            }
            listener.insert("l7policies".to_owned(), policies.into_iter().map(Value::from).collect());
        }
        check_names(&pools, &referred)?;
        let project = balancer.project.clone();
        let provider = Provider::of(balancer);
        let mut staged = Staged::new();
        self.spare(&POOL, &project, pools.len(), 0)?;
        for pool in pools {
            self.stage_pool(balancer, pool, &mut staged)?;
        }
        self.spare(&LISTENER, &project, listeners.len(), 0)?;
        for listener in listeners {
            self.stage_listener(balancer, listener, &mut staged)?;
        }
        self.ask_provider(provider, balancer, &staged)?;
        Ok(staged)
    }

    fn stage_pool(&mut self, balancer: &Row, mut fields: Fields, staged: &mut Staged) -> Result<(), Refusal> {
        for name in ["protocol", "lb_algorithm"] {
            if text(&fields, name).is_empty() {
                let pool = text(&fields, "name");
                return Err(invalid(format!(
                    "Pool definition for '{pool}' missing required attribute: {name}"
                )));
            }
        }
        let members = objects(&fields.remove("members").unwrap_or_default());
        let monitor = fields.remove("healthmonitor").filter(|it| !it.is_null());
        super::pools::prepare(self, &mut fields)?;
        let project = balancer.project.clone();
        let pool = self.new_pending(Some(&balancer.id), &project, fields);
        let id = pool.id.clone();
        staged.push((&POOL, pool.clone()));
        if let Some(Value::Object(mut monitor)) = monitor {
            self.spare(&MONITOR, &project, 1, count(staged, &MONITOR))?;
            super::monitors::check_protocol(&monitor, pool.text("protocol"))?;
            super::monitors::prepare(&mut monitor)?;
            let row = self.new_pending(Some(&id), &project, monitor);
            staged.push((&MONITOR, row));
        }
        self.spare(&MEMBER, &project, members.len(), count(staged, &MEMBER))?;
        let mut keys = HashSet::new();
        for member in members {
            // Even if there is a monitor: it comes to know of it later, if ever.
            let row = self.member_row(member, &id, &project, false);
            if !keys.insert(row.key.clone()) {
                return Err(super::members::duplicate(&row.fields));
            }
            staged.push((&MEMBER, row));
        }
        Ok(())
    }

    fn stage_listener(
        &mut self,
        balancer: &Row,
        mut fields: Fields,
        staged: &mut Staged,
    ) -> Result<(), Refusal> {
        let policies = objects(&fields.remove("l7policies").unwrap_or_default());
        let project = balancer.project.clone();
        if let Some(name) =
            fields.remove("default_pool").and_then(|it| it["name"].as_str().map(str::to_owned))
        {
            let pool = named(staged, &name)?;
            super::listeners::check_pool(text(&fields, "protocol"), pool.text("protocol"))?;
            fields.insert("default_pool_id".to_owned(), pool.id.clone().into());
        }
        let vip = self.vips(balancer);
        super::listeners::prepare(self, &mut fields, &vip)?;
        let of_listeners = staged.iter().filter(|(kind, _)| kind.one == LISTENER.one);
        super::listeners::check_duplicate(&fields, of_listeners.map(|(_, row)| row))?;
        let listener = self.new_pending(Some(&balancer.id), &project, fields);
        staged.push((&LISTENER, listener.clone()));
        self.spare(&POLICY, &project, policies.len(), count(staged, &POLICY))?;
        for (mut policy, position) in policies.into_iter().zip(1..) {
            let rules = objects(&policy.remove("rules").unwrap_or_default());
            if let Some(name) =
                policy.remove("redirect_pool").and_then(|it| it["name"].as_str().map(str::to_owned))
            {
                let pool = named(staged, &name)?;
                policy.insert("redirect_pool_id".to_owned(), pool.id.clone().into());
            }
            super::policies::prepare(&mut policy)?;
            policy.insert("listener_id".to_owned(), listener.id.clone().into());
            policy.insert("position".to_owned(), json!(position));
            let row = self.new_pending(Some(&listener.id), &project, policy);
            let id = row.id.clone();
            staged.push((&POLICY, row));
            for rule in rules {
                super::rules::prepare(&rule)?;
                let row = self.new_pending(Some(&id), &project, rule);
                staged.push((&RULE, row));
            }
        }
        Ok(())
    }

    /// Listeners first, as the providers do it.
    fn ask_provider(&self, provider: Provider, balancer: &Row, staged: &Staged) -> Result<(), Refusal> {
        let of =
            |kind: &'static Kind| staged.iter().filter(move |(it, _)| it.one == kind.one).map(|(_, row)| row);
        for listener in of(&LISTENER) {
            provider.check_listener(&listener.fields)?;
        }
        let vip = self.vip_of(balancer);
        for pool in of(&POOL) {
            provider.check_pool(&pool.fields)?;
            for monitor in of(&MONITOR).filter(|it| it.parent.as_deref() == Some(&pool.id)) {
                provider.check_monitor(&monitor.fields)?;
            }
            for member in of(&MEMBER).filter(|it| it.parent.as_deref() == Some(&pool.id)) {
                // Without a subnet it is taken to be in that of the balancer.
                let mut fields = member.fields.clone();
                if text(&fields, "subnet_id").is_empty() {
                    fields.insert("subnet_id".to_owned(), balancer.fields["vip_subnet_id"].clone());
                }
                provider.check_member(&fields, &vip, false)?;
            }
        }
        Ok(())
    }
}

/// Moves a whole pool to the other ones, and leaves its name.
fn lift(
    holder: &mut Fields,
    place: &str,
    pools: &mut Vec<Fields>,
    referred: &mut Vec<String>,
) -> Result<(), Refusal> {
    let Some(Value::Object(pool)) = holder.remove(place) else { return Ok(()) };
    let name = text(&pool, "name").to_owned();
    if name.is_empty() {
        return Err(invalid("Pools must be named when creating a fully populated loadbalancer."));
    }
    if pool.keys().all(|it| BARE.contains(&it.as_str())) {
        referred.push(name.clone());
    } else {
        pools.push(pool);
    }
    holder.insert(place.to_owned(), json!({ "name": name }));
    Ok(())
}

fn check_names(pools: &[Fields], referred: &[String]) -> Result<(), Refusal> {
    let mut names: Vec<&str> = pools.iter().map(|it| text(it, "name")).collect();
    if let Some(name) = referred.iter().find(|it| !names.contains(&it.as_str())) {
        return Err(invalid(format!("Pool '{name}' was referenced but no full definition was found.")));
    }
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    if names.len() < all {
        return Err(invalid("Pool names must be unique when creating a fully populated loadbalancer."));
    }
    Ok(())
}

fn named<'s>(staged: &'s Staged, name: &str) -> Result<&'s Row, Refusal> {
    let found = staged.iter().find(|(kind, row)| kind.one == POOL.one && row.text("name") == name);
    found
        .map(|(_, row)| row)
        .ok_or_else(|| Refusal::new(400, format!("Missing details for Pool object: {name}")))
}

fn count(staged: &Staged, kind: &Kind) -> usize {
    staged.iter().filter(|(it, _)| it.one == kind.one).count()
}

fn objects(list: &Value) -> Vec<Fields> {
    list.as_array().into_iter().flatten().filter_map(Value::as_object).cloned().collect()
}
