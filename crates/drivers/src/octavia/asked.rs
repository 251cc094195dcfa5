//! Options of Octavia that a load balancer, as it is otherwise wanted, is given or refused. Pure.

use seaway_model::{ListenerId, LoadBalancer as Wish, Owner, Problem, load_balancer::CloudOptions};
use seaway_openstack::survey::Abilities;

use super::{
    clients, headers, member_tls, probes, tags, vip,
    wanted::{Wanted, leads_to},
};

pub(super) fn ask(wanted: &mut Wanted, wish: &Wish, outside: &CloudOptions, can: &Abilities) {
    tags::ask(wanted, &outside.tags, outside.group.as_ref());
    headers::ask(wanted, outside);
    probes::ask(wanted, wish, outside, can);
    member_tls::ask(wanted, wish, outside);
    clients::ask(wanted, outside);
    vip::ask(wanted, wish, outside, can);
}

/// What cannot be of one listener.
pub(super) fn refused(wish: &Wish, id: ListenerId, can: &Abilities) -> Vec<(Owner, Problem)> {
    let Some(listener) = wish.listeners.get(&id) else { return Vec::new() };
    let Some(pool) = leads_to(listener).and_then(|it| wish.pools.get(it)) else { return Vec::new() };
    let owner = &listener.owner;
    let refused = probes::refused(wish, id, pool, owner, can).into_iter();
    let refused = refused.chain(member_tls::refused(wish, pool, owner, can));
    let refused = refused.chain(clients::refused(wish, listener, can));
    let at_port = |it: Problem| {
        let message = format!("port {id}: {}", it.message);
        (listener.owner.clone(), Problem { message, ..it })
    };
    refused.map(at_port).collect()
}
