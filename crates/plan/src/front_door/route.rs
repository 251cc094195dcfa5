//! An HTTPRoute at the front door: its rules, led to the Services that it names.

use std::{collections::BTreeMap, sync::Arc};

use seaway_model::{
    L4, Name, PoolId, Problem, Reason,
    config::{FrontDoor as Settings, FrontDoorRoutes, OpenPolicy},
    fact::{BackendRef, HttpRoute, RouteRule, ServicePort},
    load_balancer::{Action, ClientAuth, Filter, Match, PathMatch, Rule, TextMatch},
};

use super::{
    attached_route::AttachedRoute,
    attached_status::ignored_redirect_off,
    client_certificates::{self, CannotAsk},
    entrances::{settings, settings_of},
    guessed,
    listeners::requires_client_certificates,
    namespace_quotas::expressions,
    patterns::{PatternCache, PatternError},
};
use crate::{
    access_rules::AccessRules,
    annotations::{
        AUTHORITIES, BASIC_AUTH, CLIENTS, CONNECTIONS, FORWARD_AUTH, INTERNAL, OptionScope, Protection, RATE,
        ServiceOptions,
    },
    basic_auth, forward_auth, http,
    index::{PlanContext, ServiceKey},
    unheeded::idle,
};

/// What regular expressions may take.
#[derive(Clone, Copy)]
struct PatternLimits {
    /// Each is to be small and quick: those who write them share the front door.
    shared: bool,
    /// They are not looked at: the route has more than its namespace may have, and is not served.
    too_many: bool,
}

impl PatternLimits {
    fn of(route: &HttpRoute, given: PlanContext<'_>) -> PatternLimits {
        let Some(most) = given.config.tenants.limits.expressions else {
            return PatternLimits { shared: false, too_many: false };
        };
        let all: usize = route.rules.iter().flat_map(|rule| &rule.matches).map(expressions).sum();
        PatternLimits { shared: true, too_many: all > most as usize }
    }
}

/// Whether a route is one of the front door's. Those of others are no concern of ours: nothing is done for them, and nothing
/// is told of them.
pub(crate) fn is_here(route: &HttpRoute, settings: &Settings) -> bool {
    let named = match &settings.routes {
        _ if route.guessed => true,
        FrontDoorRoutes::All => true,
        FrontDoorRoutes::Of(gateway) => route.parents.contains(gateway),
        FrontDoorRoutes::Never => false,
    };
    named && settings.opens != OpenPolicy::Never
}

pub(super) fn guest(route: &HttpRoute, given: PlanContext<'_>, known: &mut PatternCache) -> AttachedRoute {
    if route.guessed {
        return guessed::guest(route, given);
    }
    let mut guest = AttachedRoute::new(route.object(), &route.meta.uid);
    let mut wishes = ServiceOptions::of(&given.config.defaults);
    guest.problems = wishes.read_route(route);
    guest.enter(&wishes, &route.meta.annotations, given.config);
    guest.asks_for_tls(&wishes, &route.meta.namespace, &route.hosts, given);
    let limits = PatternLimits::of(route, given);
    // Users are those of a Service.
    let protection = wishes.protection().or(wishes.http.asks_who_it_is().then_some(Protection::Users));
    guest.is_refusing = protection.is_some();
    guest.problems.extend(protection.and_then(|it| unprotected(route, &wishes, it)));
    guest.problems.extend(of_services(route, &wishes));
    let own = AccessRules {
        sources: wishes.sources.clone(),
        denied: wishes.denied.clone(),
        rates: wishes.http.limits_of(&route.object()),
        auth: Vec::new(),
        asks: Vec::new(),
        tls: None,
        lacks_authorities: false,
        entrances: Vec::new(),
    };
    let mut services = BTreeMap::new();
    for (number, written) in route.rules.iter().enumerate() {
        let field = format!("spec.rules[{number}]");
        let (guest, services, admitted) = (&mut guest, &mut services, own.clone());
        let reader = Reader { route, given, limits, known, guest, services, admitted };
        let mut rule = reader.rule(written, &field);
        if protection.is_some() {
            (rule.filters, rule.action) = (Vec::new(), broken());
        }
        // To listeners, a rule without matches is for everything.
        if !rule.matches.is_empty() {
            guest.rule(rule, |matched| format!("{field}.matches[{matched}]").into());
        }
    }
    let off = ignored_redirect_off(&guest, &settings_of(&wishes, given.config));
    guest.problems.extend(off);
    guest
}

/// What it asks for and a listener that it shares with others cannot have. What is not understood is told where it is read.
fn unprotected(route: &HttpRoute, wishes: &ServiceOptions, protection: Protection) -> Option<Problem> {
    let (option, fix) = match protection {
        Protection::Unclear => return None,
        Protection::Users if wishes.http.basic_auth.is_none() => {
            (FORWARD_AUTH, "Write it on the Service that the route leads to.")
        }
        Protection::Users => (BASIC_AUTH, "Write it on the Service that the route leads to."),
        Protection::Clients(option) | Protection::Limits(option) => {
            (option, "Remove it, or give the Service a LoadBalancer of its own.")
        }
    };
    let message = "the front door cannot do this for a route: its rules answer 500";
    let problem = Problem::new(route.object(), Reason::Unsupported, message);
    Some(problem.at(wishes.field_of(option)).fix(fix))
}

/// What is said of the route, and does something on Services alone.
fn of_services(route: &HttpRoute, wishes: &ServiceOptions) -> Vec<Problem> {
    let protects = [CONNECTIONS, RATE, AUTHORITIES, CLIENTS, BASIC_AUTH, FORWARD_AUTH];
    let idle = idle(wishes, &route.meta.annotations, &[OptionScope::Route])
        .filter(|(option, _)| !(protects.contains(option) || *option == INTERNAL && wishes.closed));
    let problem = |(_, field): (&str, &Name)| {
        Problem::new(route.object(), Reason::Unsupported, "this annotation has no effect on an HTTPRoute")
            .at(field.clone())
            .fix("Write it on the Service that the route leads to, or remove it.")
    };
    idle.map(problem).collect()
}

struct Reader<'a> {
    route: &'a HttpRoute,
    given: PlanContext<'a>,
    limits: PatternLimits,
    known: &'a mut PatternCache,
    guest: &'a mut AttachedRoute,
    /// Whom the Services let in that the route leads to.
    services: &'a mut BTreeMap<ServiceKey, AccessRules>,
    /// Whom the rule lets in: all of these do, and the route itself. A route opens no Service that is closed.
    admitted: AccessRules,
}

impl Reader<'_> {
    /// One who does not understand all of a rule must not follow a part of it: what it would have answered is an error.
    fn rule(mut self, written: &RouteRule, field: &str) -> Rule {
        let mut understood = written.unsupported.is_empty();
        let matches = format!("{field}.matches[");
        for it in &written.unsupported {
            let is_match = it.field.starts_with(&matches);
            self.tell(Reason::Unsupported, &it.field, format!("{} is not supported", it.what)).fix =
                match is_match {
                    true => {
                        "Correct it, or remove it; until then the rule answers 500 (in a cluster, this match takes no request)."
                    }
                    false => "Correct it, or remove it; until then the rule answers 500.",
                }
                .to_owned();
        }
        for (number, asked) in written.matches.iter().enumerate() {
            let field = format!("{field}.matches[{number}]");
            understood &= self.patterns(asked, &field);
            self.name_literal_pattern(asked, &field);
        }
        // What the Services let in counts for a rule that is not understood, too.
        let (filters, action) = (self.filters(&written.filters), self.action(&written.action, field));
        let (filters, action) = if understood { (filters, action) } else { (Vec::new(), broken()) };
        let mut rule = self.rule_with(written, filters, action);
        if !understood && rule.is_restricted() {
            rule.matches.iter_mut().for_each(|asked| self.widen(asked));
        }
        rule
    }

    /// Expressions that are none become the widest of their beginning. One that is left out would give its requests to a broader
    /// rule, without what protects this one.
    fn widen(&mut self, asked: &mut Match) {
        let shared = self.limits.shared;
        if let Some(PathMatch::Regex(pattern)) = &mut asked.path
            && self.known.verdict(pattern, shared).is_err()
        {
            let beginning = literal_beginning(pattern);
            // At all host names it would close everything of all others.
            if !(self.route.hosts.is_empty() && beginning.len() < 2) {
                *pattern = format!("{beginning}{ANYTHING}").into();
            }
        }
        for (_, text) in asked.headers.iter_mut().chain(&mut asked.query) {
            if let TextMatch::Regex(pattern) = text
                && self.known.verdict(pattern, shared).is_err()
            {
                *pattern = ANYTHING.into();
            }
        }
    }

    fn rule_with(&self, written: &RouteRule, filters: Vec<Filter>, action: Action) -> Rule {
        let admitted = self.admitted.clone();
        Rule {
            owner: self.guest.owner.clone(),
            hosts: self.route.hosts.clone(),
            matches: written.matches.clone(),
            sources: admitted.sources,
            denied: admitted.denied,
            rates: admitted.rates,
            auth: admitted.auth,
            asks: admitted.asks,
            tls: admitted.tls.map(Arc::new),
            filters,
            action,
            timeout: written.timeout,
            attempt_timeout: written.attempt_timeout,
            retries: written.retries,
        }
    }

    fn action(&mut self, written: &Action<BackendRef>, field: &str) -> Action {
        match written {
            Action::Redirect(redirect) => Action::Redirect(redirect.clone()),
            Action::Respond { code, body } => Action::Respond { code: *code, body: body.clone() },
            Action::Forward(backends) if backends.is_empty() => {
                self.tell(
                    Reason::NoSuchService,
                    &field.into(),
                    "the rule has no backendRefs, so it sends requests to no Service".to_owned(),
                )
                .fix = "Name a Service in backendRefs; until then the rule answers 500.".to_owned();
                broken()
            }
            Action::Forward(backends) => {
                let pools: Vec<(Option<PoolId>, u32)> =
                    backends.iter().map(|(to, weight)| (self.backend(to), *weight)).collect();
                if pools.iter().all(|(pool, _)| pool.is_none()) {
                    return broken();
                }
                // The share of who is not there is answered with an error, not by the others.
                let nobody = |to: &BackendRef| super::attached_route::pool_id(&key(to), to.port);
                let all = pools.into_iter().zip(backends);
                Action::Forward(
                    all.map(|((pool, weight), (to, _))| (pool.unwrap_or_else(|| nobody(to)), weight))
                        .collect(),
                )
            }
        }
    }

    /// Mirrors that lead to nobody are left out: nobody waits for their answers.
    fn filters(&mut self, written: &[Filter<BackendRef>]) -> Vec<Filter> {
        let mut filters = Vec::new();
        for filter in written {
            filters.push(match filter {
                Filter::RequestHeaders(change) => Filter::RequestHeaders(change.clone()),
                Filter::ResponseHeaders(change) => Filter::ResponseHeaders(change.clone()),
                Filter::RewritePrefix(by) => Filter::RewritePrefix(by.clone()),
                Filter::RewritePath(by) => Filter::RewritePath(by.clone()),
                Filter::RewriteHost(by) => Filter::RewriteHost(by.clone()),
                Filter::Cors(cors) => Filter::Cors(cors.clone()),
                Filter::Mirror { to, per_mille } => match self.backend(to) {
                    Some(to) => Filter::Mirror { to, per_mille: *per_mille },
                    None => continue,
                },
            });
        }
        filters
    }

    /// The pool of a Service's port, if there is one.
    fn backend(&mut self, to: &BackendRef) -> Option<PoolId> {
        let key = key(to);
        if to.namespace != self.route.meta.namespace {
            self.tell(
                Reason::Unsupported,
                &to.field,
                format!("Service {}/{} is in another namespace", key.namespace, key.name),
            )
            .fix = "Write the route in the Service's namespace: ReferenceGrants are not read yet.".to_owned();
            return None;
        }
        // It may come, or get the port.
        self.guest.backends.entry(key.clone()).or_default();
        let Some(service) = self.given.index.service(&key) else {
            self.tell(
                Reason::NoSuchService,
                &to.field,
                format!("there is no Service {}/{}", key.namespace, key.name),
            )
            .fix = "Create the Service, or name another one.".to_owned();
            return None;
        };
        if !service.ports.iter().any(|it| it.protocol == L4::Tcp && it.port == to.port) {
            let has: Vec<String> = service.ports.iter().map(ServicePort::shown).collect();
            self.tell(
                Reason::NoSuchPort,
                &format!("{}.port", to.field).into(),
                format!("Service {}/{} has no TCP port {}", key.namespace, key.name, to.port),
            )
            .fix = format!("The Service has: {}.", has.join(", "));
            return None;
        }
        let given = self.given;
        let problems = &mut self.guest.problems;
        let its = self.services.entry(key.clone()).or_insert_with(|| {
            problems.extend(basic_auth::problems_of(service, given));
            problems.extend(forward_auth::problem_of(service, given));
            let mut wishes = ServiceOptions::of(&given.config.defaults);
            wishes.read(&key.object(), &service.meta.annotations);
            problems.extend(client_certificates::problems(service, &wishes, given.certificates));
            AccessRules::of_service(service, given)
        });
        let (lacks_authorities, entrances) = (its.lacks_authorities, its.entrances.clone());
        if !self.guest.is_only_at(&entrances) {
            let names: Vec<&str> = entrances.iter().map(Name::as_str).collect();
            let what = format!(
                "Service {}/{} is only at entrance {}, and this route is elsewhere",
                key.namespace,
                key.name,
                names.join(", ")
            );
            let fix = "Write the same seaway.dev/entrance on the route; until then the rule answers 500.";
            self.tell(Reason::Unsupported, &to.field, what).fix = fix.to_owned();
            return None;
        }
        let its = self.services.get(&key)?;
        let asks = its.tls.as_ref().and_then(|it| it.clients.clone());
        if let Some((why, fix)) = self.cannot_ask(asks.as_ref(), lacks_authorities) {
            let what =
                format!("Service {}/{} is for clients with a certificate: {why}", key.namespace, key.name);
            let fix = format!("{fix} Until then the rule answers 500.");
            self.tell(Reason::Unsupported, &to.field, what).fix = fix;
            return None;
        }
        let its = self.services.get(&key)?;
        self.admitted.narrow(its);
        self.guest.asks(&its.asks);
        if asks.is_some() && self.guest.clients_field.is_empty() {
            self.guest.clients_field = to.field.clone();
        }
        Some(self.guest.lead_to(&key, to.port))
    }

    /// By the configuration, of all clients of an entrance where the route is.
    fn requires_client_certificates(&self) -> bool {
        let door = &self.given.config.front_door;
        let all = self.guest.entrances.iter().filter_map(|it| settings(it.as_ref(), door));
        all.into_iter().any(requires_client_certificates)
    }

    /// Why its clients' certificates cannot be asked for here, and what to do.
    fn cannot_ask(
        &self,
        asks: Option<&ClientAuth>,
        lacks_authorities: bool,
    ) -> Option<(&'static str, &'static str)> {
        let known = self.admitted.tls.as_ref().and_then(|it| it.clients.as_ref());
        let why = match (asks, known) {
            _ if lacks_authorities => CannotAsk::NoAuthorities,
            (None, _) => return None,
            _ if self.requires_client_certificates() => CannotAsk::FrontDoorAsks,
            _ if self.route.hosts.is_empty() => CannotAsk::NoHost,
            (Some(asks), Some(known)) if asks.authorities != known.authorities => {
                return Some((
                    "another Service of this rule is for clients with certificates of other authorities",
                    "Name the same Secret at both Services, or give them rules of their own.",
                ));
            }
            _ => return None,
        };
        Some((why.as_str(), why.fix()))
    }

    /// Whether all patterns of a match are regular expressions.
    fn patterns(&mut self, asked: &Match, field: &str) -> bool {
        if self.limits.too_many {
            return true;
        }
        let path = match &asked.path {
            Some(PathMatch::Regex(pattern)) => Some((format!("{field}.path.value"), pattern)),
            _ => None,
        };
        let texts = [("headers", &asked.headers), ("queryParams", &asked.query)];
        let texts = texts.into_iter().flat_map(|(list, texts)| {
            texts.iter().enumerate().filter_map(move |(number, (_, text))| match text {
                TextMatch::Regex(pattern) => Some((format!("{field}.{list}[{number}].value"), pattern)),
                TextMatch::Exact(_) => None,
            })
        });
        let mut right = true;
        for (field, pattern) in path.into_iter().chain(texts) {
            let verdict = self.known.verdict(pattern, self.limits.shared);
            self.guest.patterns.push(verdict.clone());
            let Err(fault) = &*verdict else { continue };
            right = false;
            let pattern = pattern.as_str();
            let (reason, message, fix) = match fault {
                PatternError::NoPattern(why) => (
                    Reason::Invalid,
                    format!("{pattern:?} is not a valid regular expression: {why}"),
                    "The syntax is that of RE2: no backreferences, no look-around. Until it is corrected the rule answers \
                     500.",
                ),
                PatternError::Slow => (
                    Reason::LimitReached,
                    format!(
                        "{pattern:?} is a regular expression that is too large: its automaton has more than 256 KiB"
                    ),
                    "Use fewer repetitions, especially after .* or another part that matches any text, as in .*a.{30}. Until \
                     it is corrected the rule answers 500.",
                ),
            };
            self.tell(reason, &field.into(), message).fix = fix.to_owned();
        }
        right
    }

    /// A path that is a pattern to other proxies, and is taken here as it is written.
    fn name_literal_pattern(&mut self, asked: &Match, field: &str) {
        let Some(PathMatch::Prefix(path) | PathMatch::Exact(path)) = &asked.path else { return };
        if !http::is_like_pattern(path) {
            return;
        }
        let mut message = format!("{path:?} is matched as it is written, and not as a pattern");
        if !self.admitted.is_open() {
            message.push_str(": other requests that it may mean are served by broader rules, without the protection of this route");
        }
        let fix = match http::meant_path(path) {
            Some(meant) => format!(
                "Write {meant} with type: PathPrefix, which also matches {}/users; or type: RegularExpression.",
                meant.trim_end_matches('/')
            ),
            None => "Write type: RegularExpression, or a path without a pattern.".to_owned(),
        };
        self.tell(Reason::Ignored, &format!("{field}.path.value").into(), message).fix = fix;
    }

    fn tell(&mut self, reason: Reason, field: &Name, message: String) -> &mut Problem {
        let problem = Problem::new(self.route.object(), reason, message).at(field.clone());
        self.guest.problems.push_mut(problem)
    }
}

fn key(to: &BackendRef) -> ServiceKey {
    ServiceKey::new(to.namespace.clone(), to.service.clone())
}

/// An expression for every text.
const ANYTHING: &str = "(?s-u:.)*";

/// The text that everything begins with which the expression can mean, as an expression.
fn literal_beginning(pattern: &str) -> String {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    if pattern.contains('|') {
        return String::new();
    }
    let is_literal = |it: &char| it.is_ascii_alphanumeric() || "/-_~:,;=@!'&%".contains(*it);
    let literal: Vec<char> = pattern.chars().take_while(is_literal).collect();
    let is_repeated = pattern.chars().nth(literal.len()).is_some_and(|it| "?*{".contains(it));
    let kept = literal.len().saturating_sub(usize::from(is_repeated));
    literal.into_iter().take(kept).collect()
}

/// What Gateway API asks for where a rule cannot be followed.
fn broken() -> Action {
    Action::Respond { code: 500, body: Name::default() }
}
