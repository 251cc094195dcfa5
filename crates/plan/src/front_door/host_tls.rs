//! How TLS is spoken with clients of single host names, where Services ask for that: certificates of clients, and versions.
//!
//! ```text
//!     rules ─► for each host name: whose authorities, whether all of its rules require a certificate, which versions
//!                 ├─► TlsByName.hosts: what the handshake asks for, by its name (SNI)
//!                 └─► a rule of others' authorities answers 503: one handshake asks by one Secret
//! ```
//! The handshake asks for as little as one of the rules of its host name needs. What a single rule needs beyond that, the data plane
//! asks of each request: `Rule.tls`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use seaway_model::{
    Name, ObjectRef, Problem, Reason,
    config::FrontDoor as Settings,
    load_balancer::{Action, ClientAuth, HostPattern, HostTls, Rule, TlsByName, TlsProfile},
};

use super::{FrontDoor, guest::Guest};
use crate::{annotations::AUTHORITIES, index::Given};

/// What the rules of one host name ask for together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Asked {
    /// Of the oldest object that asks, and which that is.
    clients: Option<(ObjectRef, ObjectRef)>,
    /// All of its rules require a certificate of these.
    is_required: bool,
    /// What rules say that say something, and whether one says nothing.
    profiles: BTreeSet<Option<TlsProfile>>,
    is_asked: bool,
}

#[derive(Debug, Default)]
pub(super) struct AskedByHost(BTreeMap<HostPattern, Asked>);

impl AskedByHost {
    fn asked_above(&self, host: &HostPattern) -> impl Iterator<Item = &Asked> {
        let (HostPattern::Exact(name) | HostPattern::Under(name)) = host;
        let above = std::iter::successors(Some(name.as_str()), |name| Some(name.split_once('.')?.1)).skip(1);
        above.filter_map(|it| self.0.get(&HostPattern::Under(it.into()))).filter(|it| it.is_asked)
    }

    fn settings(&self, host: &HostPattern, asked: &Asked, usual: &Settings) -> Option<HostTls> {
        let terms = &usual.tls.terms;
        let mut above = self.asked_above(host).peekable();
        if !asked.is_asked && above.peek().is_none() {
            return None;
        }
        let own = asked.clients.as_ref().map(|(authorities, _)| ClientAuth {
            authorities: authorities.clone(),
            required: asked.is_required,
        });
        // Requests that no rule of this very name wants go to rules of the wildcard above it.
        let inherited = || {
            let (authorities, _) = above.find_map(|it| it.clients.as_ref())?;
            Some(ClientAuth { authorities: authorities.clone(), required: false })
        };
        let clients = own.or_else(inherited).or_else(|| terms.clients.clone());
        let is_modern = |it: &Option<TlsProfile>| it.unwrap_or(terms.profile) == TlsProfile::Modern;
        let profile = match asked.profiles.iter().all(is_modern) {
            true => TlsProfile::Modern,
            false => TlsProfile::Intermediate,
        };
        Some(HostTls { clients, profile })
    }

    /// Who asks for certificates of others' authorities at that host name, and came first.
    fn holder(&self, host: &HostPattern, clients: &ClientAuth) -> Option<&ObjectRef> {
        let (authorities, holder) = self.0.get(host)?.clients.as_ref()?;
        (*authorities != clients.authorities).then_some(holder)
    }
}

impl FrontDoor {
    /// Nothing is looked at where no rule asks for anything.
    fn asked_by_host(&self) -> &AskedByHost {
        self.asked_by_host.get_or_init(|| {
            let mut asked = AskedByHost::default();
            if self.asking.is_empty() {
                return asked;
            }
            let owners = self.host_names();
            for (rank, guest) in self.within_limits() {
                for rule in &guest.rules {
                    let of_rule = rule.tls.as_deref();
                    let clients = of_rule.and_then(|it| it.clients.as_ref());
                    for host in rule.hosts.iter().filter(|host| owners.may(rank.namespace(), host)) {
                        let is_first = !asked.0.contains_key(host);
                        let at = asked.0.entry(host.clone()).or_default();
                        at.is_asked |= of_rule.is_some();
                        at.profiles.insert(of_rule.and_then(|it| it.profile));
                        if let (None, Some(clients)) = (&at.clients, clients) {
                            at.clients = Some((clients.authorities.clone(), guest.owner.object()));
                        }
                        let requires = clients.is_some_and(|it| it.required);
                        at.is_required = requires && (is_first || at.is_required);
                    }
                }
            }
            asked
        })
    }

    /// Secrets with authorities by which rules ask for certificates.
    pub(super) fn authorities_asked_for(&self) -> impl Iterator<Item = &ObjectRef> {
        let guests = self.asking.iter().filter_map(|rank| self.guests.get(rank));
        let asked = guests.flat_map(|guest| &guest.rules).filter_map(|rule| rule.tls.as_ref());
        asked.filter_map(|tls| Some(&tls.clients.as_ref()?.authorities))
    }

    pub(crate) fn asks_by(&self, authorities: &ObjectRef) -> bool {
        self.authorities_asked_for().any(|it| it == authorities)
    }

    /// By host name, where it is not as for all. Where no authorities are there yet, nobody is asked, and nobody is served.
    pub(super) fn tls_of_hosts(&self, given: Given<'_>) -> BTreeMap<HostPattern, HostTls> {
        let settings = &given.config.front_door;
        let vouches =
            |it: &ObjectRef| given.certificates.held(it).is_some_and(|it| !it.authorities.is_empty());
        let asked = self.asked_by_host();
        let of_host = |(host, at): (&HostPattern, &Asked)| {
            let mut tls = asked.settings(host, at, settings)?;
            if tls.clients.as_ref().is_some_and(|it| !vouches(&it.authorities)) {
                tls.clients = settings.tls.terms.clients.clone();
            }
            Some((host.clone(), tls))
        };
        asked.0.iter().filter_map(of_host).collect()
    }

    /// A rule without the host names at which others have their clients shown by another Secret: there it answers 503.
    pub(super) fn undisputed(&self, rule: Arc<Rule>) -> impl Iterator<Item = Arc<Rule>> {
        let clients = rule.tls.as_ref().and_then(|it| it.clients.as_ref());
        let is_others = |host: &HostPattern| {
            clients.is_some_and(|clients| self.asked_by_host().holder(host, clients).is_some())
        };
        if !rule.hosts.iter().any(is_others) {
            return [Some(rule), None].into_iter().flatten();
        }
        let (others, own): (Vec<HostPattern>, Vec<HostPattern>) =
            rule.hosts.iter().cloned().partition(is_others);
        let closed = Rule {
            hosts: others,
            filters: Vec::new(),
            action: Action::Respond { code: 503, body: Name::default() },
            ..Rule::clone(&rule)
        };
        let own = (!own.is_empty()).then(|| Arc::new(Rule { hosts: own, ..Rule::clone(&rule) }));
        [own, Some(Arc::new(closed))].into_iter().flatten()
    }

    /// What the owner of such a rule is told.
    pub(super) fn disputed(&self, guest: &Guest) -> Option<Problem> {
        let rules = guest.rules.iter().filter_map(|rule| Some((rule, rule.tls.as_ref()?.clients.as_ref()?)));
        let disputes = rules.flat_map(|(rule, clients)| {
            rule.hosts.iter().filter_map(|host| Some((host, self.asked_by_host().holder(host, clients)?)))
        });
        let disputes: BTreeMap<&HostPattern, &ObjectRef> = disputes.collect();
        let (_, holder) = disputes.first_key_value()?;
        let object = guest.owner.object();
        let hosts: Vec<String> = disputes.keys().map(ToString::to_string).collect();
        let message = format!(
            "at {}, {} asks clients for certificates of other authorities and came first: one handshake cannot ask for both, so requests \
             for this object get 503 there",
            hosts.join(", "),
            holder.named_for(&object, self.is_in_cluster)
        );
        let problem = Problem::new(object, Reason::RouteConflict, message);
        let field = match guest.clients_field.is_empty() {
            true => format!("metadata.annotations[{AUTHORITIES}]").into(),
            false => guest.clients_field.clone(),
        };
        Some(problem.at(field).fix("Name the same Secret, or another host name."))
    }

    /// The last one that was put together, where it is the same: sessions of TLS go on being resumed, and nothing is set up anew.
    pub(super) fn same_tls(&self, now: TlsByName) -> Arc<TlsByName> {
        let mut last = self.last_tls.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match last.as_ref().filter(|last| ***last == now) {
            Some(last) => last.clone(),
            None => last.insert(Arc::new(now)).clone(),
        }
    }
}
