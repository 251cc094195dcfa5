//! Certificates that clients have to show where TLS ends. Pure.
//!
//! Nothing is served without them where they are asked for: what cannot be is refused.

use seaway_model::{
    Listener as WishedListener, LoadBalancer as Wish, Name, Problem, Reason,
    load_balancer::{CloudClientAuth, CloudOptions},
};
use seaway_openstack::{
    octavia::{ClientAuthentication, Listener, ListenerChange, NewListener, Protocol},
    resource::Edit,
    survey::{Abilities, Ability},
};

use super::{
    adopted,
    tls::{is_ended, is_reference},
    wanted::Wanted,
};

/// A listener that was told to ask for them has it. Where somebody else said so, nobody takes it back.
const GIVEN: &str = "seaway.dev/client-certificates";

pub(super) fn ask(wanted: &mut Wanted, outside: &CloudOptions) {
    let CloudClientAuth { authority, revoked, optional, .. } = &outside.clients;
    let Some(authority) = authority else { return };
    let listeners = wanted.listeners.values_mut().map(|it| &mut it.listener);
    for it in listeners.filter(|it| it.protocol == Protocol::TerminatedHttps) {
        it.client_ca_tls_container_ref = Edit::To(Some(authority.to_string()));
        it.client_crl_container_ref = Edit::To(revoked.as_ref().map(Name::to_string));
        it.client_authentication = Edit::To(Some(match optional {
            true => ClientAuthentication::Optional,
            false => ClientAuthentication::Mandatory,
        }));
        if let Edit::To(tags) = &mut it.tags {
            tags.insert(GIVEN.to_owned());
        }
    }
}

/// What was asked for and is not any more. `change`: as the rest of the listener is changed.
pub(super) fn reset(change: &mut ListenerChange, wish: &NewListener, there: &Listener) {
    let is_asked = !wish.client_authentication.is_left();
    let was_asked = there.tags.contains(GIVEN);
    if was_asked && !is_asked {
        change.client_authentication =
            Edit::To(Some(ClientAuthentication::None)).unless_equal(&there.client_authentication);
        let gone = |is: &Option<String>| if is.is_some() { Edit::To(None) } else { Edit::Leave };
        change.client_ca_tls_container_ref = gone(&there.client_ca_tls_container_ref);
        change.client_crl_container_ref = gone(&there.client_crl_container_ref);
    }
    if is_asked == was_asked {
        return;
    }
    let mut tags = match &change.tags {
        Edit::To(tags) => tags.clone(),
        Edit::Leave => there.tags.clone(),
    };
    match (&wish.tags, is_asked) {
        // With whose it is, as in tags.rs.
        (Edit::To(own), true) => {
            adopted::mark(&mut tags, own, &there.tags);
            tags.insert(GIVEN.to_owned());
        }
        _ => _ = tags.remove(GIVEN),
    }
    change.tags = Edit::To(tags);
}

/// Such a port is not made.
pub(super) fn refused(wish: &Wish, listener: &WishedListener, can: &Abilities) -> Vec<Problem> {
    let Some(outside) = &wish.options.cloud else { return Vec::new() };
    let CloudClientAuth { authority, revoked, .. } = &outside.clients;
    let by_secret = outside.clients.by_secret || listener.tls.as_ref().is_some_and(|it| it.clients.is_some());
    let is_asked = authority.is_some() || by_secret || outside.clients.unvouched;
    if revoked.is_none() && !is_asked {
        return Vec::new();
    }
    let ends_tls = is_ended(wish, listener);
    let ends_nowhere = !wish.listeners.values().any(|it| is_ended(wish, it));
    let mut refused = Vec::new();
    let mut refuse = |reason, message: String, fix: &str| {
        refused.push(Problem::new(listener.owner.object(), reason, message).fix(fix));
    };
    if ends_nowhere {
        let message = "client certificates are requested, and TLS ends at no port of the Service".to_owned();
        refuse(
            Reason::BadAnnotation,
            message,
            "Name a certificate: seaway.dev/tls-container, or seaway.dev/tls.",
        );
    }
    if !ends_tls {
        return refused;
    }
    if authority.is_none() {
        let (reason, message) = match (by_secret, revoked) {
            (true, _) => (
                Reason::Unsupported,
                "load balancers of a cloud cannot use a Secret with the certificate authorities of clients",
            ),
            (_, Some(_)) => (
                Reason::BadAnnotation,
                "a revocation list needs the certificate authority of the clients, and none is named",
            ),
            (_, None) => (
                Reason::BadAnnotation,
                "client certificates are required, and no certificate authority is named to verify them",
            ),
        };
        let fix = "Name a secret of Barbican with the authority: seaway.dev/client-ca-container.";
        refuse(reason, message.to_owned(), fix);
    }
    if !can.has(Ability::Clients) {
        let message = format!("this provider of load balancers cannot request {}", Ability::Clients.as_str());
        refuse(Reason::Unsupported, message, "Choose another provider, or do not request them.");
    }
    let is_looked_up = outside.tls.as_ref().is_none_or(|it| it.looked_up);
    for reference in authority.iter().chain(revoked).filter(|it| is_looked_up && !is_reference(it)) {
        let message = format!("{reference} is not a reference to a container or a secret");
        refuse(Reason::BadAnnotation, message, "A reference ends with secrets/ID, as Barbican prints it.");
    }
    refused
}
