//! How TLS is spoken with clients of single host names, where Services ask for that: certificates of clients, and versions.
//!
//! ```text
//!     rules ─► for each host name: whose authorities, whether all of its rules require a certificate, which versions
//!                 ├─► TlsByName.hosts: what the handshake asks for, by its name (SNI)
//!                 └─► a rule of others' authorities, or of authorities that are not there, answers 503
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
    load_balancer::{ClientAuth, HostPattern, HostTls, Rule, TlsByName, TlsProfile},
};

use super::{
    FrontDoor,
    attached_route::{AttachedRoute, unavailable},
};
use crate::{annotations::AUTHORITIES, index::PlanContext};

/// What the rules of one host name ask for together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RequestedTls {
    /// Of the oldest object that asks, and which that is.
    clients: Option<(ObjectRef, ObjectRef)>,
    /// All of its rules require a certificate of these.
    is_required: bool,
    /// What rules say that say something, and whether one says nothing.
    profiles: BTreeSet<Option<TlsProfile>>,
    is_asked: bool,
}

#[derive(Debug, Default)]
pub(super) struct RequestedTlsByHost(BTreeMap<HostPattern, RequestedTls>);

impl RequestedTlsByHost {
    fn asked_above(&self, host: &HostPattern) -> impl Iterator<Item = &RequestedTls> {
        let (HostPattern::Exact(name) | HostPattern::Under(name)) = host;
        let above = std::iter::successors(Some(name.as_str()), |name| Some(name.split_once('.')?.1)).skip(1);
        above.filter_map(|it| self.0.get(&HostPattern::Under(it.into()))).filter(|it| it.is_asked)
    }

    fn settings(&self, host: &HostPattern, asked: &RequestedTls, usual: &Settings) -> Option<HostTls> {
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
    fn asked_by_host(&self, entrance: Option<&Name>) -> Option<&RequestedTlsByHost> {
        let all = self.asked_by_host.get_or_init(|| {
            let mut all: BTreeMap<Option<Name>, RequestedTlsByHost> = BTreeMap::new();
            if self.asking.is_empty() {
                return all;
            }
            let owners = self.host_names();
            let guests = self.within_limits();
            let guests = guests.flat_map(|it| it.1.entrances.iter().map(move |entrance| (entrance, it)));
            for (entrance, (rank, guest)) in guests {
                let asked = all.entry(entrance.clone()).or_default();
                for rule in &guest.rules {
                    let of_rule = rule.tls.as_deref();
                    let clients = of_rule.and_then(|it| it.clients.as_ref());
                    for host in rule.hosts.iter().filter(|host| owners.may(rank.namespace(), host)) {
                        let is_first = !asked.0.contains_key(host);
                        let at = asked.0.entry(host.clone()).or_default();
                        at.is_asked |= of_rule.is_some_and(|it| it.clients.is_some() || it.profile.is_some());
                        at.profiles.insert(of_rule.and_then(|it| it.profile));
                        if let (None, Some(clients)) = (&at.clients, clients) {
                            at.clients = Some((clients.authorities.clone(), guest.owner.object()));
                        }
                        let requires = clients.is_some_and(|it| it.required);
                        at.is_required = requires && (is_first || at.is_required);
                    }
                }
            }
            all
        });
        all.get(&entrance.cloned())
    }

    /// Secrets with authorities by which rules ask for certificates.
    pub(super) fn authorities_asked_for<'a>(
        &'a self,
        entrance: Option<&'a Name>,
    ) -> impl Iterator<Item = &'a ObjectRef> {
        let guests = self.asking.iter().filter_map(|rank| self.guests.get(rank));
        let guests = guests.filter(move |guest| guest.is_at(entrance));
        let asked = guests.flat_map(|guest| &guest.rules).filter_map(|rule| rule.tls.as_ref());
        asked.filter_map(|tls| Some(&tls.clients.as_ref()?.authorities))
    }

    pub(crate) fn asks_by(&self, authorities: &ObjectRef) -> bool {
        let guests = self.asking.iter().filter_map(|rank| self.guests.get(rank));
        let mut asked =
            guests.flat_map(|guest| &guest.rules).filter_map(|rule| rule.tls.as_ref()?.clients.as_ref());
        asked.any(|it| it.authorities == *authorities)
    }

    /// By host name, where it is not as for all. Where no authorities are there yet, nobody is asked, and nobody is served.
    pub(super) fn tls_of_hosts(
        &self,
        entrance: Option<&Name>,
        settings: &Settings,
        given: PlanContext<'_>,
    ) -> BTreeMap<HostPattern, HostTls> {
        let Some(asked) = self.asked_by_host(entrance) else { return BTreeMap::new() };
        let of_host = |(host, at): (&HostPattern, &RequestedTls)| {
            let mut tls = asked.settings(host, at, settings)?;
            if tls.clients.as_ref().is_some_and(|it| !given.certificates.vouches(&it.authorities)) {
                tls.clients = settings.tls.terms.clients.clone();
            }
            Some((host.clone(), tls))
        };
        asked.0.iter().filter_map(of_host).collect()
    }

    /// A rule without the host names at which others have their clients shown by another Secret: there it answers 503, and so it does
    /// everywhere while nobody is there to vouch for clients that have to show a certificate.
    pub(super) fn undisputed(
        &self,
        entrance: Option<&Name>,
        rule: Arc<Rule>,
        given: PlanContext<'_>,
    ) -> impl Iterator<Item = Arc<Rule>> + use<> {
        let clients = rule.tls.as_ref().and_then(|it| it.clients.as_ref());
        if clients.is_some_and(|it| it.required && !given.certificates.vouches(&it.authorities)) {
            return [Some(Arc::new(closed(&rule, rule.hosts.clone()))), None].into_iter().flatten();
        }
        let is_others = |host: &HostPattern| {
            let asked = || self.asked_by_host(entrance);
            clients.is_some_and(|clients| asked().is_some_and(|it| it.holder(host, clients).is_some()))
        };
        if !rule.hosts.iter().any(is_others) {
            return [Some(rule), None].into_iter().flatten();
        }
        let (others, own): (Vec<HostPattern>, Vec<HostPattern>) =
            rule.hosts.iter().cloned().partition(is_others);
        let closed = closed(&rule, others);
        let own = (!own.is_empty()).then(|| Arc::new(Rule { hosts: own, ..Rule::clone(&rule) }));
        [own, Some(Arc::new(closed))].into_iter().flatten()
    }

    /// What the owner of such a rule is told.
    pub(super) fn disputed(&self, guest: &AttachedRoute) -> Option<Problem> {
        let rules = guest.rules.iter().filter_map(|rule| Some((rule, rule.tls.as_ref()?.clients.as_ref()?)));
        let disputes = rules.flat_map(|(rule, clients)| {
            rule.hosts.iter().filter_map(|host| {
                let mut asked = guest.entrances.iter().filter_map(|it| self.asked_by_host(it.as_ref()));
                Some((host, asked.find_map(|it| it.holder(host, clients))?))
            })
        });
        let disputes: BTreeMap<&HostPattern, &ObjectRef> = disputes.collect();
        let (_, holder) = disputes.first_key_value()?;
        let object = guest.owner.object();
        let hosts: Vec<String> = disputes.keys().map(ToString::to_string).collect();
        let message = format!(
            "at {}, {} requires client certificates of other authorities and came first: one handshake cannot require both, so requests \
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
    pub(super) fn same_tls(&self, entrance: Option<&Name>, now: TlsByName) -> Arc<TlsByName> {
        let mut last = self.last_tls.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let known = last.entry(entrance.cloned()).or_default();
        if **known != now {
            *known = Arc::new(now);
        }
        known.clone()
    }
}

/// Whoever asks there hears 503, and not that another connection would be served (421) or which password is asked for.
pub(super) fn closed(rule: &Rule, hosts: Vec<HostPattern>) -> Rule {
    Rule {
        hosts,
        auth: Vec::new(),
        asks: Vec::new(),
        tls: None,
        filters: Vec::new(),
        action: unavailable(),
        ..Rule::clone(rule)
    }
}
