//! Backends: one for each pool, and one for each way in which rules send requests to it.

use std::{collections::HashMap, sync::Arc};

use seaway_model::{
    Listener, LoadBalancer, Pool, PoolId,
    load_balancer::{Action, Member, MemberState, Protocol, Rule},
};

use super::{
    DocumentBuilder, about, frontends::FrontendContext, readable, settings::ListenerSettings, slots,
};
use crate::{
    document::{Backend, Document, HttpRule, ImmediateResponse, Settings, Slot, SlotMember, SlotState},
    words::{Label, digest},
};

/// What a rule adds to a pool.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleSettings {
    pub(super) rules: Vec<HttpRule>,
    pub(super) retries: Option<u8>,
}

impl DocumentBuilder<'_> {
    pub(super) fn pool(&mut self, here: &FrontendContext<'_>, id: &PoolId) -> Option<Label> {
        self.pool_with(here, id, &RuleSettings::default())
    }

    /// `None`: there is no such pool.
    pub(super) fn pool_with(
        &mut self,
        here: &FrontendContext<'_>,
        id: &PoolId,
        extra: &RuleSettings,
    ) -> Option<Label> {
        let pool = here.load_balancer.pools.get(id)?;
        let mut serves = format!("{}/{id}", here.called);
        let is_plain = extra.rules.is_empty() && extra.retries.is_none();
        if !is_plain {
            serves.push('/');
            serves.push_str(&digest(&format!("{:?}{:?}", extra.rules, extra.retries)));
        }
        // TCP and HTTP of one pool are two backends.
        if here.listener.protocol == Protocol::Opaque && here.leading.0.contains_key(&(Protocol::Http, id)) {
            serves.push_str("/tcp");
        }
        if let Some(name) = self.names.get(&serves) {
            return Some(name.clone());
        }
        let mut settings = self.settings(here, pool, timed(here, id));
        settings.rules.extend(extra.rules.iter().cloned());
        settings.retries = extra.retries.or(settings.retries);
        let name = self.name(&serves, &settings);
        let slots = match settings.answer {
            Some(_) => Vec::new(),
            None => self.slots(pool, &name),
        };
        let about = match is_plain {
            true => about(&format!("{} {id}", here.called)),
            false => about(&format!("{} {id}, by a route's own rules", here.called)),
        };
        let of_pool = self.document.origins.backends.entry((here.owner.clone(), id.clone()));
        of_pool.or_default().push(name.clone());
        self.put(serves, name, about, settings, slots)
    }

    /// Without members.
    pub(super) fn answering(
        &mut self,
        here: &FrontendContext<'_>,
        rule: &Rule,
        extra: RuleSettings,
        answer: ImmediateResponse,
    ) -> Label {
        let serves = format!("{}/answer/{}", here.called, digest(&format!("{:?}{answer:?}", extra.rules)));
        let settings =
            Settings { is_http: true, rules: extra.rules, answer: Some(answer), ..Settings::default() };
        let name = self.name(&serves, &settings);
        let about = about(&format!("{}: a response that HAProxy sends itself", rule.owner));
        self.put(serves, name.clone(), about, settings, Vec::new()).unwrap_or(name)
    }

    fn put(
        &mut self,
        serves: String,
        name: Label,
        about: crate::words::Text,
        settings: Settings,
        slots: Vec<Slot>,
    ) -> Option<Label> {
        self.names.insert(serves.clone(), name.clone());
        self.document
            .backends
            .insert(name.clone(), Backend { serves: serves.into(), about, settings, slots });
        Some(name)
    }

    /// As it was; or a spare one; or its own.
    fn name(&mut self, serves: &str, settings: &Settings) -> Label {
        let spare = || {
            let fits = |(name, it): &&(&Label, &Backend)| {
                it.settings == *settings && !self.document.backends.contains_key(*name)
            };
            self.before.spares.iter().find(fits).map(|(name, _)| *name)
        };
        let kept = self.before.by_what.get(serves).copied().or_else(spare);
        kept.cloned().unwrap_or_else(|| readable(serves))
    }

    fn slots(&self, pool: &Pool, name: &Label) -> Vec<Slot> {
        let before = self.wanted.before.and_then(|it| it.backends.get(name));
        members_in_slots(pool, before.map_or(&[], |it| &it.slots))
    }
}

/// Backends of before, as each of now looks for its own.
#[derive(Default)]
pub(super) struct PreviousBackends<'a> {
    by_what: HashMap<&'a str, &'a Label>,
    spares: Vec<(&'a Label, &'a Backend)>,
}

impl<'a> PreviousBackends<'a> {
    pub(super) fn of(document: &'a Document) -> PreviousBackends<'a> {
        let (spares, others): (Vec<_>, Vec<_>) = document.backends.iter().partition(|(_, it)| it.is_spare());
        PreviousBackends {
            by_what: others.into_iter().map(|(name, it)| (&*it.serves, name)).collect(),
            spares,
        }
    }
}

/// The members of a pool, where they were before if they were.
pub fn members_in_slots(pool: &Pool, before: &[Slot]) -> Vec<Slot> {
    let largest = pool.members.iter().map(|it| it.weight).max().unwrap_or_default();
    let members = pool.members.iter().map(|member| slot_member(pool, member, largest)).collect();
    let in_order = pool.balance == seaway_model::load_balancer::Balance::First;
    slots::slots(members, before, in_order)
}

/// The pools that have other members, where nothing else is different. Names of members are in certificates that are asked for, so a
/// pool with TLS is looked at whole.
pub fn changed_members(before: &LoadBalancer, after: &LoadBalancer) -> Option<Vec<PoolId>> {
    let LoadBalancer { binds, listeners, pools, certificates, awaited, options } = after;
    let is_same = (binds, awaited, options) == (&before.binds, &before.awaited, &before.options)
        && is_alike(certificates, &before.certificates)
        && listeners.len() == before.listeners.len()
        && listeners.iter().all(|(id, it)| before.listeners.get(id).is_some_and(|known| is_alike(it, known)));
    if !is_same || pools.len() != before.pools.len() {
        return None;
    }
    let mut changed = Vec::new();
    for (id, pool) in pools {
        let known = before.pools.get(id)?;
        if is_alike(pool, known) {
            continue;
        }
        let is_members = **known == Pool { members: known.members.clone(), ..(**pool).clone() };
        if !is_members || pool.tls.is_some() {
            return None;
        }
        changed.push(id.clone());
    }
    Some(changed)
}

/// Most are the same value: nothing in it is compared then.
fn is_alike<T: PartialEq>(one: &Arc<T>, other: &Arc<T>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

fn slot_member(pool: &Pool, member: &Member, largest: u32) -> SlotMember {
    let name = |tls: &seaway_model::load_balancer::BackendTls| {
        tls.name.clone().or_else(|| member.host_name.clone()).unwrap_or_else(|| tls.usual.clone())
    };
    SlotMember {
        at: member.at,
        weight: slots::weight(member.weight, largest),
        state: match member.state {
            MemberState::Ready => SlotState::Ready,
            MemberState::Draining => SlotState::Drain,
        },
        backup: member.backup,
        // Settings have seen to it that names are of the alphabet.
        tls_name: pool.tls.as_deref().and_then(|tls| Label::new(&name(tls))),
    }
}

/// The first listener of each protocol that leads to a pool.
pub(super) struct ListenersByPool<'l>(HashMap<(Protocol, &'l PoolId), &'l Listener>);

impl<'l> ListenersByPool<'l> {
    pub(super) fn of(load_balancer: &'l LoadBalancer) -> ListenersByPool<'l> {
        let mut leading = HashMap::new();
        for listener in load_balancer.listeners.values() {
            for rule in &listener.rules {
                let Action::Forward(pools) = &rule.action else { continue };
                for (pool, _) in pools {
                    leading.entry((listener.protocol, pool)).or_insert(&**listener);
                }
            }
        }
        ListenersByPool(leading)
    }
}

/// What the first listener that leads there says, or this one: a backend has its own timeouts.
fn timed(here: &FrontendContext<'_>, id: &PoolId) -> ListenerSettings {
    let protocol = here.listener.protocol;
    let listener = here.leading.0.get(&(protocol, id)).copied().unwrap_or(here.listener);
    ListenerSettings {
        is_http: protocol == Protocol::Http,
        timeouts: listener.timeouts,
        body: listener.http.limits.body,
    }
}
