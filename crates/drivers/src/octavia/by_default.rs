//! What only the configuration of the cloud would take away from a load balancer that serves stays: configuration deletes
//! nothing. Pure.
//!
//! ```text
//!     node-selector leaves out a Node              it stays a member of the pools that have it
//!     address-sort-order prefers another address   a Node stays a member at the one that a pool has
//!     default-tls-container-ref comes              a listener that serves without TLS stays so
//!     default-tls-container-ref goes               a listener that ends TLS by it stays so: its tag says that it is by that
//! ```
//! What comes later is made as the configuration says. A Service asks for it otherwise by its own words, or by
//! `seaway.dev/apply-configuration`: then the plan has nothing here.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use seaway_model::{
    ListenerId, LoadBalancer as Wish, Member, Owner, Problem, Reason,
    load_balancer::{CloudTls, Family},
};
use seaway_openstack::{
    octavia::{Listener, ListenerChange, NewListener, Protocol},
    resource::Edit,
};

use super::{
    names::KEY,
    steps::{Branch, Observed},
    wanted::leads_to,
};

/// A listener has it that ends TLS because the configuration says so for all.
const BY_DEFAULT: &str = "seaway.dev/tls-by-default";
const APPLY: &str = "seaway.dev/apply-configuration: \"true\"";

/// What stays.
#[derive(Default)]
struct Stays {
    members: BTreeMap<ListenerId, Vec<Member>>,
    /// Listeners without TLS.
    plain: BTreeSet<ListenerId>,
    /// Listeners with TLS, by these.
    tls: BTreeMap<ListenerId, String>,
}

impl Stays {
    fn of(wish: &Wish, observed: &Observed) -> Stays {
        let (Some(outside), Some(balancer)) = (&wish.options.cloud, &observed.balancer) else {
            return Stays::default();
        };
        let mut stays = Stays::default();
        for (id, there) in &balancer.branches {
            let Some(listener) = wish.listeners.get(id) else { continue };
            let passed_over = outside.passed_over.get(id).into_iter().flatten();
            let members: Vec<Member> =
                passed_over.filter(|it| is_kept(it, wish, *id, there)).cloned().collect();
            if !members.is_empty() {
                stays.members.insert(*id, members);
            }
            let is_named = outside.tls.as_ref().is_some_and(|it| it.references.contains_key(id));
            let by_default = outside.tls.as_ref().is_none_or(|it| it.by_default);
            let ends = there.listener.protocol == Protocol::TerminatedHttps;
            let its_own = listener.tls.is_some() || !by_default || outside.applies;
            match &there.listener.default_tls_container_ref {
                _ if its_own => {}
                _ if !ends && is_named => _ = stays.plain.insert(*id),
                Some(reference) if ends && !is_named && there.listener.tags.contains(BY_DEFAULT) => {
                    stays.tls.insert(*id, reference.clone());
                }
                _ => {}
            }
        }
        stays
    }
}

/// A pool has it, and has its Node at no other address that is wanted.
fn is_kept(it: &Member, wish: &Wish, id: ListenerId, there: &Branch) -> bool {
    let has = |at: &SocketAddr| there.pool.as_ref().is_some_and(|it| it.members.contains_key(at));
    let pool = wish.listeners.get(&id).and_then(|it| leads_to(it)).and_then(|it| wish.pools.get(it));
    let wanted = pool.into_iter().flat_map(|it| &it.members);
    has(&it.at) && !wanted.filter(|other| is_same_node(it, other)).any(|other| has(&other.at))
}

fn is_same_node(one: &Member, other: &Member) -> bool {
    one.node.is_some() && one.node == other.node && Family::of(one.at.ip()) == Family::of(other.at.ip())
}

/// Listeners with members that stay.
pub(super) fn with_members(wish: &Wish, observed: &Observed) -> BTreeSet<ListenerId> {
    Stays::of(wish, observed).members.into_keys().collect()
}

/// As what is there stays.
pub(super) fn as_made(mut wish: Wish, observed: &Observed) -> Wish {
    let stays = Stays::of(&wish, observed);
    for (id, members) in stays.members {
        let pool = wish.listeners.get(&id).and_then(|it| leads_to(it)).cloned();
        let Some(pool) = pool.and_then(|it| wish.pools.get_mut(&it)) else { continue };
        let pool = std::sync::Arc::make_mut(pool);
        pool.members.retain(|it| !members.iter().any(|other| is_same_node(it, other)));
        pool.members.extend(members);
        pool.members.sort_by_key(|it| it.at);
    }
    let Some(outside) = wish.options.cloud.as_mut() else { return wish };
    if let Some(tls) = &mut outside.tls {
        tls.references.retain(|id, _| !stays.plain.contains(id));
    }
    if !stays.tls.is_empty() {
        let usual = CloudTls { by_default: true, ..CloudTls::default() };
        let tls = outside.tls.get_or_insert(usual);
        tls.references.extend(stays.tls.into_iter().map(|(id, reference)| (id, reference.into())));
    }
    wish
}

/// Writes down that it is the configuration's.
pub(super) fn mark(new: &mut NewListener, id: ListenerId, tls: Option<&CloudTls>) {
    let is_by_default = tls.is_some_and(|it| it.by_default && it.references.contains_key(&id));
    if let (true, Edit::To(tags)) =
        (is_by_default && new.protocol == Protocol::TerminatedHttps, &mut new.tags)
    {
        tags.insert(BY_DEFAULT.to_owned());
    }
}

/// The mark of a listener that is there already.
pub(super) fn reset(change: &mut ListenerChange, wish: &NewListener, there: &Listener) {
    let is_ours = there.tags.iter().any(|it| it.starts_with(KEY));
    let is = matches!(&wish.tags, Edit::To(tags) if tags.contains(BY_DEFAULT));
    if !is_ours || is == there.tags.contains(BY_DEFAULT) {
        return;
    }
    let mut tags = match &change.tags {
        Edit::To(tags) => tags.clone(),
        Edit::Leave => there.tags.clone(),
    };
    match is {
        true => tags.insert(BY_DEFAULT.to_owned()),
        false => tags.remove(BY_DEFAULT),
    };
    change.tags = Edit::To(tags);
}

/// What stays, and how to have it otherwise.
pub(super) fn told(wish: &Wish, observed: &Observed) -> Vec<(Owner, Problem)> {
    let stays = Stays::of(wish, observed);
    let Some(owner) = wish.listeners.values().map(|it| &it.owner).min() else { return Vec::new() };
    let mut problems = Vec::new();
    let mut tell = |message: String, fix: String| {
        let problem = Problem::new(owner.object(), Reason::Unsupported, message);
        problems.push((owner.clone(), problem.fix(fix)));
    };
    let members: BTreeSet<String> =
        stays.members.values().flatten().map(|it| it.at.ip().to_string()).collect();
    if !members.is_empty() {
        let members: Vec<String> = members.into_iter().collect();
        tell(
            format!(
                "node-selector or address-sort-order in the configuration of the cloud leaves out {} of its members, which stay: {}",
                members.len(),
                super::told::some(&members, ", ")
            ),
            format!(
                "To remove them, annotate the Service: {APPLY}. To keep a Node out of all load \
                 balancers, give it the label node.kubernetes.io/exclude-from-external-load-balancers."
            ),
        );
    }
    let ports = |all: &mut dyn Iterator<Item = &ListenerId>| {
        let all: Vec<String> = all.map(ToString::to_string).collect();
        all.join(", ")
    };
    if !stays.plain.is_empty() {
        let ports = ports(&mut stays.plain.iter());
        tell(
            format!(
                "default-tls-container-ref in the configuration of the cloud ends TLS at new listeners \
                 only; the listeners of {ports} still serve without TLS"
            ),
            format!(
                "To have them replaced, annotate the Service: {APPLY}, or loadbalancer.openstack.org/default-tls-container-ref."
            ),
        );
    }
    if !stays.tls.is_empty() {
        let ports = ports(&mut stays.tls.keys());
        tell(
            format!(
                "the configuration of the cloud has no default-tls-container-ref any more; the listeners of {ports} keep \
                 the certificate that it named"
            ),
            format!(
                "To have them replaced by listeners without TLS, annotate the Service: {APPLY}; to keep them, \
                 loadbalancer.openstack.org/default-tls-container-ref."
            ),
        );
    }
    problems
}
