//! The front door's listeners, put together from what its guests say: one in the open, and one for TLS as soon as there
//! is a certificate.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock, PoisonError},
};

use seaway_model::{
    Config, L4, Listener, ListenerId, ObjectRef, PoolId,
    config::FrontDoor as Settings,
    load_balancer::{Action, Certificate, HostPattern, Match, Protocol, Rule, TlsByName},
};

use super::{
    FRONT_DOOR, FrontDoor,
    claims::Claim,
    guest::{Guest, Rank},
    owner,
};
use crate::{index::Given, service::to_https};

impl FrontDoor {
    pub(crate) fn ids(&self, given: Given<'_>) -> Vec<ListenerId> {
        let settings = &given.config.front_door;
        let any = given.certificates.any_at_front_door(&settings.tls, self.certificates.keys());
        let tls = any || !self.passing.is_empty() || !self.validations.is_empty();
        let tls = tls.then_some(settings.tls.port);
        let ports = [Some(settings.port), tls.filter(|it| *it != settings.port)];
        ports.into_iter().flatten().map(|port| ListenerId { l4: L4::Tcp, port }).collect()
    }

    /// No certificate is there, so that TLS does not end here.
    pub(crate) fn lacks_certificates(&self, given: Given<'_>) -> bool {
        given.certificates.lacks_any_at_front_door(&given.config.front_door.tls, self.certificates.keys())
    }

    /// The objects whose certificates are shown, in order.
    fn certified<'a>(&'a self, given: Given<'a>) -> Vec<&'a ObjectRef> {
        let settings = &given.config.front_door.tls;
        given.certificates.at_front_door(settings, &self.certificates)
    }

    pub(crate) fn shows(&self, object: &ObjectRef, given: Given<'_>) -> bool {
        let named = self.certificates.contains_key(object);
        given.certificates.standing(&given.config.front_door.tls, object, named).is_some()
    }

    /// A certificate came, went, or is for other names than those that it had.
    pub(crate) fn rename(&mut self, object: &ObjectRef, had: &[HostPattern], given: Given<'_>) {
        let settings = &given.config.front_door.tls;
        let held = given.certificates.held(object).filter(|_| self.shows(object, given));
        if let Some(shown) = self.shown.get_mut() {
            let shown = Arc::make_mut(shown);
            match held {
                Some(held) => shown.insert(object.clone(), held.clone()),
                None => shown.remove(object),
            };
            // With the first come, and with the last go, those who vouch for clients.
            if shown.len() <= 2 || !self.asking.is_empty() {
                self.shown = OnceLock::new();
            }
        }
        if self.host_owners.are_kept() {
            self.tls = OnceLock::new();
        } else if let Some(tls) = self.tls.get_mut() {
            given.certificates.rename(Arc::make_mut(tls), (object, had), settings, &self.certificates);
        }
        self.forget_listeners();
    }

    /// A guest names it.
    pub(crate) fn names_certificate(&self, object: &ObjectRef) -> bool {
        self.certificates.contains_key(object)
    }

    pub(crate) fn routes_certified_by(&self, object: &ObjectRef) -> Vec<ObjectRef> {
        let users = self.certificates.get(object).into_iter().flatten();
        users.filter(|it| it.is_route()).map(|it| it.object()).collect()
    }

    pub(crate) fn listeners(&self, given: Given<'_>) -> BTreeMap<ListenerId, Arc<Listener>> {
        let made = self.listeners.get_or_init(|| self.put_together(given));
        made.iter().map(|it| (it.id(), it.clone())).collect()
    }

    pub(crate) fn certificates(&self, given: Given<'_>) -> Arc<BTreeMap<ObjectRef, Arc<Certificate>>> {
        let shown = self.shown.get_or_init(|| {
            let mut objects = self.certified(given);
            if !objects.is_empty() {
                objects.extend(given.config.front_door.tls.terms.clients.iter().map(|it| &it.authorities));
                objects.extend(self.authorities_asked_for());
            }
            let held = |it: &ObjectRef| Some((it.clone(), given.certificates.held(it)?.clone()));
            Arc::new(objects.into_iter().filter_map(held).collect())
        });
        shown.clone()
    }

    /// Of two that claim a host, the one who has it.
    pub(super) fn through(&self) -> BTreeMap<HostPattern, Vec<(PoolId, u32)>> {
        let mut through = BTreeMap::new();
        for rank in &self.passing {
            let Some((hosts, to)) = self.guests.get(rank).and_then(|it| it.through.as_ref()) else {
                continue;
            };
            let held =
                |host: &&HostPattern| self.holder(&Claim::new(Some(host), &Match::default())) == Some(rank);
            let hosts = hosts.iter().filter(held);
            through.extend(hosts.map(|host| (host.clone(), vec![(to.clone(), 1)])));
        }
        through
    }

    fn guards(&self, settings: &Settings) -> BTreeMap<HostPattern, Arc<Rule>> {
        let mut known = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        let guards = self.host_names().guards(settings, &known);
        known.clone_from(&guards);
        guards
    }

    pub(super) fn within_limits(&self) -> impl Iterator<Item = (&Rank, &Guest)> {
        self.guests.iter().filter(|(rank, _)| !self.shares.is_beyond(rank))
    }

    fn put_together(&self, given: Given<'_>) -> Vec<Arc<Listener>> {
        let Given { config, certificates, .. } = given;
        let settings = &config.front_door;
        let through = self.through();
        let owners = self.host_names();
        let names = self.tls.get_or_init(|| {
            let objects = self.certified(given);
            let by_name = match owners.are_kept() {
                true => {
                    let ordered = self.ordered().cloned();
                    let chosen: Vec<ObjectRef> =
                        settings.tls.certificates.iter().cloned().chain(ordered).collect();
                    owners.certify(certificates, &objects, &chosen, through.keys().cloned())
                }
                false => certificates.by_name(&objects),
            };
            Arc::new(tls(by_name, settings))
        });
        let guards = match owners.are_kept() {
            true => self.guards(settings),
            false => BTreeMap::new(),
        };
        let hosts = self.tls_of_hosts(given);
        let is_plain = through.is_empty() && self.validations.is_empty() && hosts.is_empty();
        let wanted = (names.ends_here() || !is_plain) && settings.tls.port != settings.port;
        let tls = wanted.then(|| match is_plain {
            true => names.clone(),
            false => {
                let validations = self.validations.clone();
                self.same_tls(TlsByName { through, validations, hosts, ..TlsByName::clone(names) })
            }
        });
        let secure = tls.map(|tls| {
            let rules = self.within_limits().flat_map(|(rank, guest)| {
                guest.rules.iter().filter_map(move |rule| owners.allowed(rank.namespace(), rule))
            });
            let rules = rules.flat_map(|rule| self.undisputed(rule));
            let rules = rules.chain(guards.values().cloned()).chain(unmatched(settings)).collect();
            Arc::new(Listener { tls: Some(tls), ..listener("https", settings.tls.port, rules, config) })
        });
        // Clients show certificates by TLS alone, so where these are required no request is served over http.
        let https_only = requires_client_certificates(settings);
        // Who only passes on has nobody to be sent to.
        let secure_for_all = secure.as_ref().filter(|_| names.ends_here());
        let mut rules: Vec<Arc<Rule>> = self.challenges.values().flatten().cloned().collect();
        for (rank, guest) in self.within_limits() {
            let asked = guest.redirect.unwrap_or(settings.tls.redirect);
            let sent_on = https_only
                || secure_for_all.is_some() && asked && !self.awaits_certificate(&guest.rules, given);
            // So it is with rules that require one.
            let requires = |rule: &Arc<Rule>| {
                sent_on || rule.tls.as_ref().is_some_and(|tls| tls.requires_certificates())
            };
            let its = guest.rules.iter().enumerate().map(|(number, rule)| match requires(rule) {
                true => guest.sent_on(|| to_https(settings.tls.port)).get(number).unwrap_or(rule),
                false => rule,
            });
            let its = its.filter_map(|rule| owners.allowed(rank.namespace(), rule));
            rules.extend(its.flat_map(|rule| self.undisputed(rule)));
        }
        rules.extend(guards.into_values());
        rules.extend(unmatched(settings));
        let open = Arc::new(listener("http", settings.port, rules, config));
        std::iter::once(open).chain(secure).collect()
    }
}

pub(crate) fn requires_client_certificates(settings: &Settings) -> bool {
    settings.tls.terms.clients.as_ref().is_some_and(|it| it.required)
}

fn tls(by_name: TlsByName, settings: &Settings) -> TlsByName {
    let terms = &settings.tls.terms;
    TlsByName {
        profile: terms.profile,
        hsts: terms.hsts.filter(|it| *it > 0),
        clients: terms.clients.clone(),
        ..by_name
    }
}

fn listener(name: &str, port: u16, rules: Vec<Arc<Rule>>, config: &Config) -> Listener {
    Listener {
        owner: owner(),
        name: format!("{FRONT_DOOR}:{name}").into(),
        l4: L4::Tcp,
        port,
        protocol: Protocol::Http,
        tls: None,
        rules,
        http: config.front_door.http.clone(),
        sources: Vec::new(),
        denied: Vec::new(),
        proxy_from: Vec::new(),
        limits: config.defaults.limits,
        timeouts: config.defaults.timeouts,
    }
}

/// The rule for whatever no other one wants.
fn unmatched(settings: &Settings) -> Option<Arc<Rule>> {
    let answer = settings.unmatched.as_ref()?;
    let page = answer.page.as_ref().or_else(|| settings.http.pages.get(&answer.code));
    let body = page.cloned().unwrap_or_default();
    Some(Arc::new(Rule {
        owner: owner(),
        hosts: Vec::new(),
        matches: vec![Match::default()],
        sources: Vec::new(),
        denied: Vec::new(),
        rates: Vec::new(),
        auth: Vec::new(),
        asks: Vec::new(),
        tls: None,
        filters: Vec::new(),
        action: Action::Respond { code: answer.code, body },
        timeout: None,
        attempt_timeout: None,
        retries: None,
    }))
}
