//! The front door's listeners, put together from what its guests say: one in the open, and one for TLS as soon as there
//! is a certificate.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock, PoisonError},
};

use seaway_model::{
    Config, L4, Listener, ListenerId, Name, ObjectRef, PoolId,
    config::FrontDoor as Settings,
    load_balancer::{Action, Certificate, HostPattern, Match, Protocol, Rule, TlsByName},
};

use super::{
    FrontDoor,
    attached_route::{AttachedRoute, RoutePrecedence, sent_on as sent_on_to_tls},
    claims::RouteClaim,
    entrances::{label, owner_of},
    host_tls::closed,
    owner,
};
use crate::{index::PlanContext, service::to_https};

impl FrontDoor {
    pub(crate) fn ids(&self, given: PlanContext<'_>) -> Vec<ListenerId> {
        let settings = &given.config.front_door;
        let named = self.named_at(None, settings);
        let any = given.certificates.any_at_front_door(&settings.tls, named.keys());
        let mut passing = self.passing.iter().filter_map(|rank| self.guests.get(rank));
        let tls = any || passing.any(|guest| guest.is_at(None)) || !self.validations.is_empty();
        let tls = tls.then_some(settings.tls.port);
        let ports = [Some(settings.port), tls.filter(|it| *it != settings.port)];
        ports.into_iter().flatten().map(|port| ListenerId { l4: L4::Tcp, port }).collect()
    }

    /// No certificate is there, so that TLS does not end here.
    pub(crate) fn lacks_certificates(&self, given: PlanContext<'_>) -> bool {
        let settings = &given.config.front_door;
        given.certificates.lacks_any_at_front_door(&settings.tls, self.named_at(None, settings).keys())
    }

    /// The objects whose certificates are shown, in order.
    fn certified<T>(&self, given: PlanContext<'_>, show: impl FnOnce(Vec<&ObjectRef>) -> T) -> T {
        let settings = &given.config.front_door;
        show(given.certificates.at_front_door(&settings.tls, &self.named_at(None, settings)))
    }

    pub(crate) fn shows(&self, object: &ObjectRef, given: PlanContext<'_>) -> bool {
        let named = self.certificates.contains_key(object);
        let door = &given.config.front_door;
        let mut all = std::iter::once(door).chain(door.entrances.values());
        all.any(|it| given.certificates.standing(&it.tls, object, named).is_some())
    }

    /// A certificate came, went, or is for other names than those that it had.
    pub(crate) fn rename(&mut self, object: &ObjectRef, had: &[HostPattern], given: PlanContext<'_>) {
        if !given.config.front_door.entrances.is_empty() {
            // Which of them shows it is found out anew.
            return self.forget_certificates();
        }
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
        if self.host_owners.are_enforced() {
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

    pub(crate) fn listeners(&self, given: PlanContext<'_>) -> BTreeMap<ListenerId, Arc<Listener>> {
        let made = self.listeners.get_or_init(|| self.build_main_listeners(given));
        made.iter().map(|it| (it.id(), it.clone())).collect()
    }

    pub(crate) fn certificates(&self, given: PlanContext<'_>) -> Arc<BTreeMap<ObjectRef, Arc<Certificate>>> {
        let settings = &given.config.front_door;
        let made = || self.certified(given, |objects| self.shown_at(None, settings, objects, given));
        let shown = self.shown.get_or_init(made);
        shown.clone()
    }

    /// Of two that claim a host, the one who has it.
    pub(super) fn passthrough(&self, entrance: Option<&Name>) -> BTreeMap<HostPattern, Vec<(PoolId, u32)>> {
        let mut through = BTreeMap::new();
        for rank in &self.passing {
            let guest = self.guests.get(rank).filter(|it| it.is_at(entrance));
            let Some((hosts, to)) = guest.and_then(|it| it.through.as_ref()) else {
                continue;
            };
            let held = |host: &&HostPattern| {
                let claim = RouteClaim::new(Some(host), &Match::default()).at(entrance);
                self.holder(&claim) == Some(rank)
            };
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

    pub(super) fn within_limits(&self) -> impl Iterator<Item = (&RoutePrecedence, &AttachedRoute)> {
        self.guests.iter().filter(|(rank, _)| !self.shares.is_beyond(rank))
    }

    fn build_main_listeners(&self, given: PlanContext<'_>) -> Vec<Arc<Listener>> {
        let PlanContext { config, certificates, .. } = given;
        let settings = &config.front_door;
        let owners = self.host_names();
        let names = self.tls.get_or_init(|| {
            self.certified(given, |objects| {
                let by_name = match owners.are_kept() {
                    true => {
                        let ordered = self.ordered().cloned();
                        let chosen: Vec<ObjectRef> =
                            settings.tls.certificates.iter().cloned().chain(ordered).collect();
                        owners.certify(
                            certificates,
                            &objects,
                            &chosen,
                            self.passthrough(None).keys().cloned(),
                        )
                    }
                    false => certificates.by_name(&objects),
                };
                Arc::new(tls(by_name, settings))
            })
        });
        self.build_listeners(None, settings, names, given)
    }

    /// The listeners of one entrance.
    pub(super) fn build_listeners(
        &self,
        entrance: Option<&Name>,
        settings: &Settings,
        names: &Arc<TlsByName>,
        given: PlanContext<'_>,
    ) -> Vec<Arc<Listener>> {
        let through = self.passthrough(entrance);
        let owners = self.host_names();
        let is_main = entrance.is_none();
        let validations = self.validations_at(entrance);
        let guards = match owners.are_kept() {
            true if is_main => self.guards(settings),
            true => owners.guards(settings, &BTreeMap::new()),
            false => BTreeMap::new(),
        };
        let hosts = self.tls_of_hosts(entrance, settings, given);
        let is_plain = through.is_empty() && validations.is_empty() && hosts.is_empty();
        let wanted = (names.terminates_tls() || !is_plain) && settings.tls.port != settings.port;
        let tls = wanted.then(|| match is_plain {
            true if is_main => names.clone(),
            _ => {
                self.same_tls(entrance, TlsByName { through, validations, hosts, ..TlsByName::clone(names) })
            }
        });
        let secure = tls.map(|tls| {
            let rules = self.guests_at(entrance).flat_map(|(rank, guest)| {
                guest.rules.iter().filter_map(move |rule| owners.allowed(rank.namespace(), rule))
            });
            let rules = rules.flat_map(|rule| self.undisputed(entrance, rule, given));
            let rules = rules.chain(self.closed_at(entrance));
            let rules = rules.chain(guards.values().cloned()).chain(unmatched(settings)).collect();
            Arc::new(Listener {
                tls: Some(tls),
                ..listener((entrance, "https"), settings.tls.port, rules, (settings, given.config))
            })
        });
        // Clients show certificates by TLS alone, so where these are required no request is served over http.
        let https_only = requires_client_certificates(settings);
        // Who only passes on has nobody to be sent to.
        let secure_for_all = secure.as_ref().filter(|_| names.terminates_tls());
        // At all entrances: the authority comes to port 80 of an address, and any of them may have that.
        let mut rules: Vec<Arc<Rule>> = self.challenges.values().flatten().cloned().collect();
        for (rank, guest) in self.guests_at(entrance) {
            let asked = guest.redirect.unwrap_or(settings.tls.redirect);
            let can = secure_for_all.is_some() && !self.awaits_certificate(&guest.rules, given);
            let sent_on = https_only || asked && can;
            // What keeps a password secret is not there yet.
            let is_kept = |rule: &Rule| asked && !can && !(rule.auth.is_empty() && rule.asks.is_empty());
            // So it is with rules that require one.
            let requires = |rule: &Arc<Rule>| {
                sent_on || rule.tls.as_ref().is_some_and(|tls| tls.requires_certificates())
            };
            let its = guest.rules.iter().enumerate().map(|(number, rule)| match requires(rule) {
                true if is_main => {
                    guest.sent_on(|| to_https(settings.tls.port)).get(number).unwrap_or(rule).clone()
                }
                true => sent_on_to_tls(rule, to_https(settings.tls.port)),
                false if is_kept(rule) => Arc::new(closed(rule, rule.hosts.clone())),
                false => rule.clone(),
            });
            let its = its.filter_map(|rule| owners.allowed(rank.namespace(), &rule));
            rules.extend(its.flat_map(|rule| self.undisputed(entrance, rule, given)));
        }
        rules.extend(self.closed_at(entrance));
        rules.extend(guards.into_values());
        rules.extend(unmatched(settings));
        let open = listener((entrance, "http"), settings.port, rules, (settings, given.config));
        let open = Arc::new(open);
        std::iter::once(open).chain(secure).collect()
    }
}

pub(crate) fn requires_client_certificates(settings: &Settings) -> bool {
    settings.tls.terms.clients.as_ref().is_some_and(|it| it.required)
}

pub(super) fn tls(by_name: TlsByName, settings: &Settings) -> TlsByName {
    let terms = &settings.tls.terms;
    TlsByName {
        profile: terms.profile,
        hsts: terms.hsts.filter(|it| *it > 0),
        clients: terms.clients.clone(),
        ..by_name
    }
}

fn listener(
    (entrance, name): (Option<&Name>, &str),
    port: u16,
    rules: Vec<Arc<Rule>>,
    (settings, config): (&Settings, &Config),
) -> Listener {
    Listener {
        owner: owner_of(entrance),
        name: format!("{}:{name}", label(entrance)).into(),
        l4: L4::Tcp,
        port,
        protocol: Protocol::Http,
        tls: None,
        rules,
        http: settings.http.clone(),
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
