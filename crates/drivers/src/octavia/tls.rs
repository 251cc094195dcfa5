//! Certificates that listeners show. Those of Secrets are kept in Barbican, under names that tell whose they are and what they
//! are, so that a crash leaves no second one: a new one is kept, shown, and then the old one goes. Those that somebody else
//! put there are named by their references, and left alone.

mod stored;
pub(super) mod terms;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use seaway_model::{
    Desired, Listener, ListenerId, LoadBalancer, Name, ObjectRef, Owner, Problem, Reason,
    load_balancer::{Certificate, CloudTls, Protocol, TlsByName},
};
use seaway_openstack::{
    Cloud, Error,
    barbican::{Address, Container, ContainerType, NewContainer, NewSecret, Payload, Secret, SecretRef},
    octavia::{ListenerChange, NewListener, PoolProtocol, Protocol as Spoken},
    resource::{Edit, Id},
    survey::{Abilities, Ability},
};
use secrecy::SecretString;

pub(super) use self::stored::Stored;
use super::{
    names::Cluster,
    steps::{Observed, Step},
    wanted::{Wanted, WantedListener},
};

/// By name, what there is of each.
pub(super) type StoredCertificates = BTreeMap<String, BarbicanCertificate>;

/// Certificates that are named, and are not there.
#[derive(Clone, Debug)]
pub struct MissingCertificates {
    pub(super) problem: (Owner, Problem),
    references: Vec<Name>,
    /// One of those that all listeners show.
    others: bool,
}

/// One certificate in Barbican: a container, and what it holds. After a crash there may be some of it only, or some of it twice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BarbicanCertificate {
    containers: Vec<(Id<Container>, Address)>,
    secrets: Vec<(String, Id<Secret>, Address)>,
}

/// The words of Barbican and of those who read its containers.
const CERTIFICATE: &str = "certificate";
const KEY: &str = "private_key";
const INTERMEDIATES: &str = "intermediates";

/// Stands in for an address until there is one.
const TO_COME: &str = "to-come:";

/// Ends TLS at a listener, if that is wished. Tells which certificates have to be kept for it.
pub(super) fn end_tls(
    it: &mut WantedListener,
    listener: &Listener,
    wish: &LoadBalancer,
    can: &Abilities,
    name: impl Fn(&Certificate) -> String,
) -> BTreeMap<String, Arc<Certificate>> {
    let mut kept = BTreeMap::new();
    match (&listener.tls, named(wish, listener)) {
        (Some(tls), _) => {
            let shown = shown(tls).into_iter().filter_map(|it| wish.certificates.get(it));
            let mut refs: Vec<String> = Vec::new();
            for certificate in shown {
                let name = name(certificate);
                let address = format!("{TO_COME}{name}");
                if !refs.contains(&address) {
                    refs.push(address);
                }
                kept.insert(name, certificate.clone());
            }
            let mut refs = refs.into_iter();
            it.listener.default_tls_container_ref = Edit::To(refs.next());
            it.listener.sni_container_refs = Edit::To(refs.collect());
        }
        (None, Some((reference, theirs))) => {
            it.listener.default_tls_container_ref = Edit::To(Some(reference.to_string()));
            it.listener.sni_container_refs =
                Edit::To(theirs.others.iter().map(ToString::to_string).collect());
        }
        (None, None) => return kept,
    }
    it.listener.protocol = Spoken::TerminatedHttps;
    terms::put_terms(&mut it.listener, terms::of(wish, listener), can);
    // Members are spoken to by HTTP; whether they hear who the client is, is another wish.
    if it.listener.insert_headers.is_left() {
        it.listener.insert_headers = Edit::To(BTreeMap::new());
    }
    if it.pool.protocol == PoolProtocol::Tcp {
        it.pool.protocol = PoolProtocol::Http;
    }
    kept
}

/// The first is for whoever asks for no name.
fn shown(tls: &TlsByName) -> Vec<&ObjectRef> {
    let mut seen = BTreeSet::new();
    let all = tls.default.iter().chain(tls.by_name.values().flat_map(|it| it.iter()));
    all.filter(|it| seen.insert(*it)).collect()
}

/// What somebody else keeps, if it is to be shown here.
fn named<'w>(wish: &'w LoadBalancer, listener: &Listener) -> Option<(&'w Name, &'w CloudTls)> {
    let tls = wish.options.cloud.as_ref()?.tls.as_ref()?;
    tls.references.get(&listener.id()).map(|it| (it, tls))
}

/// What is to be shown of others' keeping, by any listener; and whose the first is.
fn all_named(wish: &LoadBalancer) -> Option<(Owner, &CloudTls, BTreeSet<Name>)> {
    let all: Vec<_> = wish.listeners.values().filter_map(|it| Some((it, named(wish, it)?))).collect();
    let (listener, (_, tls)) = all.first()?;
    let references = all.iter().map(|(_, (it, _))| *it).chain(&tls.others).cloned().collect();
    Some((listener.owner.clone(), tls, references))
}

/// What cannot be, for what is wished of TLS.
pub(super) fn refused(wish: &LoadBalancer, can: &Abilities) -> Vec<(Owner, Problem)> {
    let mut refused = Vec::new();
    for listener in wish.listeners.values() {
        let mut refuse = |reason, what: String, fix: &str| {
            let problem =
                Problem::new(listener.owner.object(), reason, format!("port {}: {what}", listener.id()));
            refused.push((listener.owner.clone(), problem.fix(fix)));
        };
        let theirs = named(wish, listener);
        if (listener.tls.is_some() || theirs.is_some()) && !can.has(Ability::Tls) {
            let what = "this provider of load balancers cannot end TLS".to_owned();
            refuse(Reason::Unsupported, what, "Choose another provider, or serve TLS at the members.");
            continue;
        }
        if terms::needs_versions(wish, listener) && !can.has(Ability::TlsVersions) {
            let what = format!("this provider of load balancers has no {}", Ability::TlsVersions.as_str());
            let fix = "Remove seaway.dev/tls-profile, or choose another provider.";
            refuse(Reason::Unsupported, what, fix);
        }
        let theirs = theirs.filter(|(_, it)| listener.tls.is_none() && it.looked_up);
        let named = theirs.iter().flat_map(|(reference, it)| it.others.iter().chain([*reference]));
        for reference in named.filter(|it| !is_reference(it)) {
            let what = format!("{reference} is not a reference to a container or a secret");
            let fix = "A reference ends with containers/ID or secrets/ID, as Barbican prints it.";
            refuse(Reason::BadAnnotation, what, fix);
        }
        let Some(tls) = &listener.tls else { continue };
        for object in shown(tls).into_iter().filter(|it| !wish.awaited.contains(*it)) {
            if wish.certificates.get(object).is_none_or(|it| it.chain.is_empty()) {
                let what = format!(
                    "{object} has no certificate; Seaway changes nothing at the load balancer until it has one"
                );
                refuse(Reason::NoSuchSecret, what, "Create that Secret, of type kubernetes.io/tls.");
            }
        }
        for (is_asked, what) in [
            (listener.protocol != Protocol::Http, "TLS is ended here for HTTP only"),
            (
                !tls.through.is_empty(),
                "load balancers of clouds cannot choose members by host name for TLS that is passed through",
            ),
        ] {
            if is_asked {
                let fix = "Request fewer options, or serve the Service with the native driver.";
                refuse(Reason::Unsupported, what.to_owned(), fix);
            }
        }
    }
    refused
}

/// TLS ends there, with a certificate of which nobody knows yet whether it is there.
pub(super) fn is_awaited(wish: &LoadBalancer, id: ListenerId) -> bool {
    !wish.awaited.is_empty() && wish.listeners.get(&id).is_some_and(|it| it.tls.is_some())
}

/// What that waits for.
pub(super) fn awaits(wish: &LoadBalancer) -> String {
    let awaited: Vec<String> = wish.awaited.iter().map(ToString::to_string).collect();
    format!("the certificate is not read yet: {}", awaited.join(", "))
}

enum Which {
    Container(Id<Container>),
    Secret(Id<Secret>),
}

/// Whether TLS ends there.
pub(super) fn is_ended(wish: &LoadBalancer, listener: &Listener) -> bool {
    listener.tls.is_some() || named(wish, listener).is_some()
}

/// To a container or a secret.
pub(super) fn is_reference(text: &str) -> bool {
    which(text).is_some()
}

fn which(reference: &str) -> Option<Which> {
    let (rest, id) = reference.rsplit_once('/')?;
    match rest.rsplit('/').next()? {
        "containers" => id.parse().ok().map(Which::Container),
        "secrets" => id.parse().ok().map(Which::Secret),
        _ => None,
    }
}

/// A reference that leads nowhere is told before anything is touched. One that is shown already was looked at.
pub(super) async fn lost(
    cloud: &Cloud,
    desired: &Desired,
    observed: &Observed,
) -> Result<Option<MissingCertificates>, Error> {
    let Desired::LoadBalancer(wish) = desired else { return Ok(None) };
    let Some((owner, tls, references)) = all_named(wish) else { return Ok(None) };
    let shown: BTreeSet<&str> = observed
        .balancer
        .iter()
        .flat_map(|it| it.branches.values())
        .flat_map(|it| it.listener.default_tls_container_ref.iter().chain(&it.listener.sni_container_refs))
        .map(String::as_str)
        .collect();
    let mut lost = Vec::new();
    for reference in &references {
        if !tls.looked_up || shown.contains(reference.as_str()) {
            continue;
        }
        let is_there = match which(reference) {
            Some(Which::Container(id)) => cloud.all::<Container>().find::<Container>(&id).await?.is_some(),
            Some(Which::Secret(id)) => cloud.all::<Secret>().find::<Secret>(&id).await?.is_some(),
            None => true,
        };
        lost.extend((!is_there).then(|| reference.clone()));
    }
    let problem = |reference: &Name| {
        let message = format!("Barbican has no {reference}; listeners stay as they are");
        let problem = Problem::new(owner.object(), Reason::NoSuchSecret, message);
        let fix = "Name one that exists, or write container-store=external into [LoadBalancer].";
        (owner.clone(), problem.at(tls.field.clone()).fix(fix))
    };
    let first = lost.first().map(problem);
    Ok(first.map(|problem| MissingCertificates {
        problem,
        others: tls.others.iter().any(|it| lost.contains(it)),
        references: lost,
    }))
}

/// Listeners that are to show what is not there stay as they are, and new ones are not made; members follow all the same.
pub(super) fn leave_lost(wanted: &mut Wanted, desired: &Desired, observed: &Observed) {
    let (Desired::LoadBalancer(wish), Some(balancer), Some(lost)) =
        (desired, &observed.balancer, &observed.lost)
    else {
        return;
    };
    let Some(tls) = wish.options.cloud.as_ref().and_then(|it| it.tls.as_ref()) else { return };
    wanted.listeners.retain(|id, it| {
        let reference = tls.references.get(id).filter(|it| lost.others || lost.references.contains(it));
        let shown = reference.map(|it| Edit::To(Some(it.to_string())));
        if shown.as_ref() != Some(&it.listener.default_tls_container_ref) {
            return true;
        }
        let Some(there) = balancer.branches.get(id) else { return false };
        it.listener.default_tls_container_ref = Edit::Leave;
        it.listener.sni_container_refs = Edit::Leave;
        it.listener.insert_headers = Edit::Leave;
        it.listener.protocol = there.listener.protocol.clone();
        if it.listener.protocol != Spoken::TerminatedHttps {
            terms::clear_terms(&mut it.listener);
        }
        if let Some(pool) = &there.pool {
            it.pool.protocol = pool.pool.protocol.clone();
        }
        true
    });
}

/// Steps before and after all others: what is to be shown is there before, what was shown goes when it is not any more.
pub(super) fn keep(wanted: &Wanted, observed: &Observed) -> (Vec<Step>, Vec<Step>) {
    let lacks = wanted.certificates.iter().filter(|(name, it)| {
        observed.kept.get(*name).is_none_or(|kept| kept.address().is_none() || !kept.is_whole(it))
    });
    let spare = observed.kept.keys().filter(|it| !wanted.certificates.contains_key(*it));
    (
        lacks.map(|(name, it)| Step::Keep(name.clone(), it.clone())).collect(),
        spare.map(|name| Step::Forget(name.clone())).collect(),
    )
}

impl BarbicanCertificate {
    fn address(&self) -> Option<&Address> {
        self.containers.first().map(|(_, address)| address)
    }

    fn is_whole(&self, certificate: &Certificate) -> bool {
        let (_, intermediates) = parted(&certificate.chain);
        let all = if intermediates.is_empty() {
            &[CERTIFICATE, KEY][..]
        } else {
            &[CERTIFICATE, KEY, INTERMEDIATES]
        };
        all.iter().all(|part| self.secrets.iter().any(|(it, ..)| it == part))
    }
}

impl Wanted {
    /// With the addresses that are known by now.
    pub(super) fn addressed(&self, kept: &StoredCertificates) -> Wanted {
        let mut wanted = self.clone();
        for it in wanted.listeners.values_mut() {
            address_new(&mut it.listener, kept);
        }
        wanted
    }
}

pub(super) fn address_new(listener: &mut NewListener, kept: &StoredCertificates) {
    address(&mut listener.default_tls_container_ref, &mut listener.sni_container_refs, kept);
}

pub(super) fn address_change(change: &mut ListenerChange, kept: &StoredCertificates) {
    address(&mut change.default_tls_container_ref, &mut change.sni_container_refs, kept);
}

fn address(first: &mut Edit<Option<String>>, others: &mut Edit<Vec<String>>, kept: &StoredCertificates) {
    let known = |it: &mut String| {
        let kept = it.strip_prefix(TO_COME).and_then(|name| kept.get(name));
        if let Some(address) = kept.and_then(BarbicanCertificate::address) {
            *it = address.clone();
        }
    };
    if let Edit::To(Some(it)) = first {
        known(it);
    }
    if let Edit::To(all) = others {
        all.iter_mut().for_each(known);
    }
}

/// Whether something may be kept of it, by what is wished and what it shows.
pub(super) fn is_kept(desired: &Desired, observed: &Observed) -> bool {
    let branches = observed.balancer.iter().flat_map(|it| it.branches.values());
    let mut shown = branches.map(|it| &it.listener.protocol);
    let is_wished = match desired {
        Desired::LoadBalancer(wish) => wish.listeners.values().any(|it| it.tls.is_some()),
        _ => false,
    };
    is_wished || shown.any(|it| *it == Spoken::TerminatedHttps)
}

/// Keeps what is not kept yet.
pub(super) async fn keep_in(
    cloud: &Cloud,
    name: &str,
    certificate: &Certificate,
    kept: &mut StoredCertificates,
) -> Result<(), Error> {
    let keeping = kept.entry(name.to_owned()).or_default();
    let (first, rest) = parted(&certificate.chain);
    let text = |it: &str| SecretString::from(it.to_owned());
    for (part, payload) in
        [(CERTIFICATE, text(first)), (KEY, certificate.key.clone()), (INTERMEDIATES, text(rest))]
    {
        let payload = Payload::from(payload);
        if payload.expose().is_empty() || keeping.secrets.iter().any(|(it, ..)| it == part) {
            continue;
        }
        let new = NewSecret {
            name: Edit::To(format!("{name} {part}")),
            payload: Edit::To(payload),
            payload_content_type: "text/plain".into(),
            ..NewSecret::new()
        };
        let made = cloud.all::<Secret>().create(&new).await?;
        keeping.secrets.push((part.to_owned(), made.id, made.secret_ref));
    }
    if keeping.containers.is_empty() {
        let mut refs: Vec<SecretRef> = Vec::new();
        for (part, _, address) in &keeping.secrets {
            if refs.iter().all(|it| it.name != *part) {
                refs.push(SecretRef {
                    name: part.clone(),
                    secret_ref: address.clone(),
                    rest: seaway_openstack::resource::UnknownFields::new(),
                });
            }
        }
        let new = NewContainer {
            name: name.into(),
            secret_refs: Edit::To(refs),
            ..NewContainer::new(ContainerType::Certificate)
        };
        let made = cloud.all::<Container>().create(&new).await?;
        keeping.containers.push((made.id, made.container_ref));
    }
    Ok(())
}

pub(super) async fn forget(cloud: &Cloud, name: &str, kept: &mut StoredCertificates) -> Result<(), Error> {
    let Some(keeping) = kept.get(name) else { return Ok(()) };
    for (id, _) in &keeping.containers {
        cloud.all::<Container>().delete(id).await?;
    }
    for (_, id, _) in &keeping.secrets {
        cloud.all::<Secret>().delete(id).await?;
    }
    kept.remove(name);
    Ok(())
}

/// The certificate itself, and those that vouch for it.
fn parted(chain: &str) -> (&str, &str) {
    const BEGIN: &str = "-----BEGIN";
    let second = chain.match_indices(BEGIN).nth(1).map_or(chain.len(), |(at, _)| at);
    chain.split_at(second)
}

impl Cluster {
    /// Of a certificate that is kept: whose it is, and what it is. Of its key it tells nothing.
    pub(super) fn certificate(&self, of: &seaway_model::LbKey, it: &Certificate) -> String {
        use sha2::{Digest, Sha256};
        use std::fmt::Write;
        let mut name = self.certificates(of);
        for byte in Sha256::digest(it.chain.as_bytes()).iter().take(16) {
            _ = write!(name, "{byte:02x}");
        }
        name
    }

    /// How the names of all of a load balancer begin.
    pub(super) fn certificates(&self, of: &seaway_model::LbKey) -> String {
        format!("{} {} ", self.tag(), self.tag_of(of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_the_certificate_and_those_that_vouch_for_it() {
        let one = "-----BEGIN CERTIFICATE-----\na\n-----END CERTIFICATE-----\n";
        let two = "-----BEGIN CERTIFICATE-----\nb\n-----END CERTIFICATE-----\n";
        assert_eq!(parted(one), (one, ""));
        assert_eq!(parted(&format!("{one}{two}{two}")), (one, &*format!("{two}{two}")));
    }

    #[test]
    fn a_reference_ends_with_what_it_is_and_its_id() {
        let id = "0f2b8f8e-6a55-4f3b-9d9e-3f1c9f8e0a71";
        for (text, is_one) in [
            (format!("https://barbican/v1/containers/{id}"), true),
            (format!("https://barbican/v1/secrets/{id}"), true),
            (format!("https://barbican/v1/orders/{id}"), false),
            ("https://barbican/v1/secrets/".to_owned(), false),
            ("my-secret".to_owned(), false),
        ] {
            assert_eq!(which(&text).is_some(), is_one, "{text}");
        }
    }
}
