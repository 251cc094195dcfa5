//! What is attached to the front door: a Service by its own name, or an HTTPRoute.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use seaway_model::{
    Kind, Name, ObjectRef, Owner, PoolId, Problem, Time,
    fact::{HttpRoute, Meta, Service},
    load_balancer::{Action, ForwardAuth, HostPattern, Match, Rule},
};

use super::{claims::RouteClaim, patterns::PatternResult};
use crate::{
    annotations::{HSTS, REDIRECT, ServiceOptions, TLS},
    index::{PlanContext, ServiceKey},
};

/// Where a guest stands among all: the older first, then by name; what a route says before what a Service of that
/// name has by itself. Of those without an age, as in a folder, one that restricts access comes before one that does not: no name
/// opens what another protects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RoutePrecedence {
    /// Absent is oldest.
    created: Option<Time>,
    /// It has no age, and does not restrict access.
    is_open: bool,
    namespace: Name,
    name: Name,
    kind: AttachedKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AttachedKind {
    Route,
    Service,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct AttachedRoute {
    pub(super) owner: Owner,
    pub(super) rules: Vec<Arc<Rule>>,
    /// Those that close the places that it was probably meant to have.
    pub(super) guessed: Vec<Arc<Rule>>,
    sent_on: HttpsRedirects,
    /// What protects it cannot be followed: its rules answer 503, and for them alone no listener is opened.
    pub(super) is_closed: bool,
    /// It was to protect what its rules refuse now.
    pub(super) is_refusing: bool,
    /// No object is that, but a text that cannot be read: nothing is reported of it here.
    pub(super) is_unread: bool,
    /// Where it is; `None` is the main one.
    pub(super) entrances: Vec<Option<Name>>,
    /// It names an entrance that is not there, and may mean each of these: what it protects is closed there.
    pub(super) closed_at: Vec<Option<Name>>,
    /// Each with the field that makes it.
    pub(super) claims: BTreeMap<RouteClaim, Name>,
    /// Services that it leads to, or would, with the ports that they have of those it names.
    pub(super) backends: BTreeMap<ServiceKey, BTreeSet<u16>>,
    /// Hosts whose TLS is passed on untouched, and where to.
    pub(super) through: Option<(Vec<HostPattern>, PoolId)>,
    /// Where it asks for certificates of its clients.
    pub(super) clients_field: Name,
    /// Secrets that it names.
    pub(super) certificates: Vec<ObjectRef>,
    /// Whether it is only there for TLS; nothing, if it does not care.
    pub(super) redirect: Option<bool>,
    /// Where it asks for that.
    pub(super) redirect_field: Name,
    /// Where it asks that browsers use https alone.
    pub(super) hsts_field: Option<Name>,
    pub(super) problems: Vec<Problem>,
    /// What is known of its regular expressions, for as long as it has them.
    pub(super) patterns: Vec<Arc<PatternResult>>,
}

/// Rules that send whoever comes in the open to TLS, made when they are wanted. They follow from the others.
#[derive(Clone, Debug, Default)]
struct HttpsRedirects(OnceLock<Vec<Arc<Rule>>>);

impl PartialEq for HttpsRedirects {
    fn eq(&self, _other: &HttpsRedirects) -> bool {
        true
    }
}

impl RoutePrecedence {
    pub(super) fn of_service(service: &Service, guest: &AttachedRoute) -> RoutePrecedence {
        RoutePrecedence::new(&service.meta, AttachedKind::Service, guest)
    }

    pub(super) fn of_route(route: &HttpRoute, guest: &AttachedRoute) -> RoutePrecedence {
        RoutePrecedence::new(&route.meta, AttachedKind::Route, guest)
    }

    fn new(meta: &Meta, kind: AttachedKind, guest: &AttachedRoute) -> RoutePrecedence {
        RoutePrecedence {
            created: meta.created,
            is_open: meta.created.is_none() && !guest.restricts(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            kind,
        }
    }

    pub(super) fn is_route(&self) -> bool {
        self.kind == AttachedKind::Route
    }

    pub(super) fn namespace(&self) -> &Name {
        &self.namespace
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(super) fn created(&self) -> Option<Time> {
        self.created
    }

    pub(super) fn object(&self) -> ObjectRef {
        let kind = match self.kind {
            AttachedKind::Route => Kind::HTTPRoute,
            AttachedKind::Service => Kind::Service,
        };
        ObjectRef::new(kind, self.namespace.clone(), self.name.clone())
    }
}

impl AttachedRoute {
    pub(super) fn new(object: ObjectRef, uid: &Name) -> AttachedRoute {
        AttachedRoute {
            owner: Owner::Object { object, uid: uid.clone() },
            rules: Vec::new(),
            guessed: Vec::new(),
            sent_on: HttpsRedirects::default(),
            is_closed: false,
            is_refusing: false,
            is_unread: false,
            entrances: vec![None],
            closed_at: Vec::new(),
            claims: BTreeMap::new(),
            backends: BTreeMap::new(),
            through: None,
            clients_field: Name::default(),
            certificates: Vec::new(),
            redirect: None,
            redirect_field: Name::default(),
            hsts_field: None,
            problems: Vec::new(),
            patterns: Vec::new(),
        }
    }

    /// What it says of TLS.
    pub(super) fn asks_for_tls(
        &mut self,
        wishes: &ServiceOptions,
        namespace: &Name,
        hosts: &[HostPattern],
        given: PlanContext<'_>,
    ) {
        self.certificates = wishes.tls.objects(namespace);
        (self.redirect, self.redirect_field) = (wishes.tls.redirect, wishes.field_of(REDIRECT));
        self.hsts_field =
            wishes.written.get(HSTS).filter(|_| wishes.tls.hsts.is_some_and(|it| it > 0)).cloned();
        let (object, field) = (self.owner.object(), wishes.field_of(TLS));
        self.problems.extend(given.certificates.problems_at(&object, &field, &self.certificates, hosts));
    }

    /// Host names that it asks for.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &HostPattern> {
        let through = self.through.iter().flat_map(|(hosts, _)| hosts);
        self.rules.iter().flat_map(|rule| &rule.hosts).chain(through)
    }

    /// What it asks for at all host names.
    pub(super) fn everywhere(&self) -> impl Iterator<Item = &Match> {
        self.claims.keys().filter(|it| it.host().is_none()).map(RouteClaim::request_match)
    }

    /// Of the connections of its clients.
    pub(super) fn asks_of_tls(&self) -> bool {
        self.rules.iter().any(|rule| rule.tls.is_some())
    }

    /// It lets fewer clients in, or was to.
    pub(super) fn restricts(&self) -> bool {
        self.is_closed || self.is_refusing || self.rules.iter().any(|rule| rule.is_restricted())
    }

    /// A rule of it serves nobody without a certificate.
    pub(super) fn requires_certificates(&self) -> bool {
        self.rules.iter().filter_map(|rule| rule.tls.as_ref()).any(|tls| tls.requires_certificates())
    }

    /// It is there at all.
    pub(super) fn is_attached(&self) -> bool {
        !self.is_closed && self.has_rules()
    }

    pub(super) fn has_rules(&self) -> bool {
        !self.rules.is_empty() || !self.guessed.is_empty() || self.through.is_some()
    }

    /// Passes on what comes for these hosts by TLS, and claims all of them.
    pub(super) fn pass(&mut self, hosts: Vec<HostPattern>, to: PoolId, field: &Name) {
        for host in &hosts {
            for entrance in &self.entrances {
                let claim = RouteClaim::new(Some(host), &Match::default()).at(entrance.as_ref());
                self.claims.insert(claim, field.clone());
            }
        }
        self.through = Some((hosts, to));
    }

    /// Adds a rule, and claims for it all that it matches.
    pub(super) fn rule(&mut self, rule: Rule, field: impl Fn(usize) -> Name) {
        for (index, asked) in rule.matches.iter().enumerate() {
            let hosts = rule.hosts.iter().map(Some);
            for host in hosts.chain(rule.hosts.is_empty().then_some(None)) {
                for entrance in &self.entrances {
                    let claim = RouteClaim::new(host, asked).at(entrance.as_ref());
                    self.claims.entry(claim).or_insert_with(|| field(index));
                }
            }
        }
        self.rules.push(Arc::new(rule));
    }

    /// In place of its rules, where everybody is sent to TLS at the main entrance.
    pub(super) fn sent_on(&self, action: impl Fn() -> Action) -> &[Arc<Rule>] {
        self.sent_on.0.get_or_init(|| self.rules.iter().map(|rule| sent_on(rule, action())).collect())
    }

    /// Where that is may be another place now.
    pub(super) fn forget_where(&mut self) {
        self.sent_on = HttpsRedirects::default();
    }

    /// Rules that are as they were are the very same `Arc`: whoever compiles them sees it at once.
    pub(super) fn reuse_rules_of(&mut self, before: &AttachedRoute) {
        let keep = |(rule, known): (&mut Arc<Rule>, &Arc<Rule>)| {
            if rule == known {
                *rule = known.clone();
            }
        };
        self.rules.iter_mut().zip(&before.rules).for_each(keep);
        self.rules.iter_mut().rev().zip(before.rules.iter().rev()).for_each(keep);
        self.guessed.iter_mut().zip(&before.guessed).for_each(keep);
    }

    /// Members of these are asked from now on, whether or not they are there.
    pub(super) fn asks(&mut self, all: &[Arc<ForwardAuth>]) {
        for auth in all {
            let key = ServiceKey::new(auth.of.namespace.clone(), auth.service.clone());
            self.lead_to(&key, auth.port);
        }
    }

    /// The pool of a port, which is led to from now on.
    pub(super) fn lead_to(&mut self, key: &ServiceKey, port: u16) -> PoolId {
        self.backends.entry(key.clone()).or_default().insert(port);
        pool_id(key, port)
    }
}

/// In place of a rule, where everybody is sent to TLS.
pub(super) fn sent_on(rule: &Rule, action: Action) -> Arc<Rule> {
    // A password is asked for where TLS keeps it secret, and so is a certificate.
    let (auth, asks, tls) = (Vec::new(), Vec::new(), None);
    Arc::new(Rule { action, filters: Vec::new(), auth, asks, tls, ..Rule::clone(rule) })
}

/// Of a rule that may not be followed, and keeps its places: requests there are for it, and for no other.
pub(super) fn unavailable() -> Action {
    Action::Respond { code: 503, body: Name::default() }
}

/// A rule for all clients, without anything else.
pub(super) fn plain_rule(
    owner: &Owner,
    hosts: Vec<HostPattern>,
    matches: Vec<Match>,
    action: Action,
) -> Rule {
    Rule {
        owner: owner.clone(),
        hosts,
        matches,
        sources: Vec::new(),
        denied: Vec::new(),
        rates: Vec::new(),
        auth: Vec::new(),
        asks: Vec::new(),
        tls: None,
        filters: Vec::new(),
        action,
        timeout: None,
        attempt_timeout: None,
        retries: None,
    }
}

/// Unique at the front door, where many Services meet.
pub(crate) fn pool_id(key: &ServiceKey, port: u16) -> PoolId {
    PoolId(format!("{}/{}:{port}", key.namespace, key.name).into())
}
