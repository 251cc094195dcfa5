//! TLS with members: what is asked for, and what a load balancer cannot promise. Pure.
//!
//! Octavia looks who vouches for a member's certificate where it is told whom to believe, and believes anybody elsewhere. Whose
//! the certificate is, it never looks.

use std::collections::BTreeSet;

use seaway_model::{
    LoadBalancer as Wish, Owner, Pool as WishedPool, Problem, Reason,
    load_balancer::{CloudMemberTls, CloudOptions, Trust},
};
use seaway_openstack::{
    octavia::{NewPool, Pool, PoolChange},
    resource::Edit,
    survey::{Abilities, Ability},
};

use super::{
    tls::is_reference,
    wanted::{Wanted, leads_to},
};

/// A pool that was told to speak TLS has it. Where somebody else said so, nobody takes it back.
const GIVEN: &str = "seaway.dev/backend-tls";

pub(super) fn ask(wanted: &mut Wanted, wish: &Wish, outside: &CloudOptions) {
    let asked = &outside.member_tls;
    for (id, it) in &mut wanted.listeners {
        let pool = wish.listeners.get(id).and_then(|it| leads_to(it)).and_then(|it| wish.pools.get(it));
        if pool.is_none_or(|it| it.tls.is_none()) {
            continue;
        }
        let reference = |it: &Option<seaway_model::Name>| Edit::To(it.as_ref().map(ToString::to_string));
        it.pool.tls_enabled = Edit::To(Some(true));
        it.pool.ca_tls_container_ref = reference(&asked.authorities);
        it.pool.crl_container_ref = reference(&asked.revoked);
        it.pool.tls_container_ref = reference(&asked.certificate);
        if it.pool.tags.is_left() {
            it.pool.tags = Edit::To(BTreeSet::new());
        }
        if let Edit::To(tags) = &mut it.pool.tags {
            tags.insert(GIVEN.to_owned());
        }
    }
}

/// What was asked for and is not any more. `change`: as the rest of the pool is changed.
pub(super) fn reset(change: &mut PoolChange, wish: &NewPool, there: &Pool) {
    let (is_asked, was_asked) = (wish.tls_enabled == Edit::To(Some(true)), there.tags.contains(GIVEN));
    if was_asked && !is_asked {
        let gone = |is: &Option<String>| if is.is_some() { Edit::To(None) } else { Edit::Leave };
        change.tls_enabled = Edit::To(Some(false)).unless_equal(&there.tls_enabled);
        change.ca_tls_container_ref = gone(&there.ca_tls_container_ref);
        change.crl_container_ref = gone(&there.crl_container_ref);
        change.tls_container_ref = gone(&there.tls_container_ref);
    }
    if is_asked != was_asked {
        let mut tags = match &change.tags {
            Edit::To(tags) => tags.clone(),
            Edit::Leave => there.tags.clone(),
        };
        match is_asked {
            true => tags.insert(GIVEN.to_owned()),
            false => tags.remove(GIVEN),
        };
        change.tags = Edit::To(tags);
    }
}

/// What would be spoken otherwise than it is asked for: such a port is not made.
pub(super) fn refused(wish: &Wish, pool: &WishedPool, owner: &Owner, can: &Abilities) -> Vec<Problem> {
    let (Some(tls), Some(outside)) = (&pool.tls, &wish.options.cloud) else { return Vec::new() };
    let CloudMemberTls { authorities, revoked, certificate } = &outside.member_tls;
    let mut refused = Vec::new();
    let mut refuse = |reason, message: String, fix: &str| {
        refused.push(Problem::new(owner.object(), reason, message).fix(fix));
    };
    if !can.has(Ability::MemberTls) {
        let message = format!("this provider of load balancers has no {}", Ability::MemberTls.as_str());
        refuse(Reason::Unsupported, message, "Remove seaway.dev/backend-tls, or choose another provider.");
    }
    if authorities.is_none() && tls.trust != Trust::InsecureSkipVerify {
        let message = match tls.trust {
            Trust::CaBundle(_) => {
                "load balancers of a cloud cannot use a Secret with the certificate authorities of members"
                    .to_owned()
            }
            _ => "no certificate authority is named to verify the certificates of members".to_owned(),
        };
        let fix = "Name a secret of Barbican with the authority: seaway.dev/backend-tls-ca-container. Or \
                   set seaway.dev/backend-tls-verify: \"off\": certificates of members are then not \
                   verified.";
        refuse(Reason::Unsupported, message, fix);
    }
    if revoked.is_some() && authorities.is_none() {
        let message =
            "a revocation list needs the certificate authority of the members, and none is named".to_owned();
        refuse(Reason::BadAnnotation, message, "Name it: seaway.dev/backend-tls-ca-container.");
    }
    let is_looked_up = outside.tls.as_ref().is_none_or(|it| it.looked_up);
    let wrong = [authorities, revoked, certificate].into_iter().flatten();
    for reference in wrong.filter(|it| is_looked_up && !is_reference(it)) {
        let message = format!("{reference} is not a reference to a container or a secret");
        refuse(
            Reason::BadAnnotation,
            message,
            "A reference ends with containers/ID or secrets/ID, as Barbican prints it.",
        );
    }
    refused
}

/// What is asked for and not looked at.
pub(super) fn told(wish: &Wish) -> Vec<(String, &'static str)> {
    let tls = wish.pools.values().filter_map(|it| it.tls.as_ref());
    let named = tls.filter_map(|it| it.name.as_ref()).next();
    let message = named.map(|name| {
        let message = format!(
            "load balancers of a cloud verify which authority signed a member's certificate, but not that the \
                 certificate is for {name}"
        );
        (message, "Remove seaway.dev/backend-tls-name, or serve the Service with the native driver.")
    });
    message.into_iter().collect()
}
