//! HTTPRoute, as the schema of Gateway API v1 (standard channel) defaults and validates it.
//!
//! ```text
//!     spec ─ hostnames
//!          └ rules ─ matches    matches.rs
//!                  ├ filters    filters.rs    ─┐
//!                  ├ backendRefs backends.rs   ├─► Action, Filter, what is not supported
//!                  └ timeouts, retry          ─┘
//! ```
//! Of parents, Gateways are read: which of them the front door stands for, the plan knows. What the schema allows and nobody here understands is no
//! fault of the route; it is told to the plan, which serves all rules but that one.
//!
//! A route that an API server accepted is read rule by rule, for its definition may be newer: a rule of which something cannot be
//! read answers 500, at the matches that can be read, and the other rules are followed.

mod backends;
mod cors;
mod filters;
mod matches;
mod schema;

use std::{sync::Arc, time::Duration};

use seaway_model::{
    Fact, Kind, Name,
    fact::{Gateway, HttpRoute, Meta, RouteRule, UnsupportedField},
    load_balancer::{Action, HostPattern, Match, PathMatch},
};

use self::filters::Filters;
use super::{
    formats, known_fields,
    meta::{self, NameRules},
};
use crate::{
    decode::{Field, ValidationError, ValidationErrors},
    tree::{Node, Value},
};

const NAMING: NameRules =
    NameRules { kind: Kind::HTTPRoute, namespaced: true, rule: formats::dns1123_subdomain };
const MOST_RULES: usize = 16;
const MOST_MATCHES: usize = 64;
/// Of all rules together.
const ALL_MATCHES: usize = 128;

/// Who has judged the route.
#[derive(Clone, Copy, PartialEq)]
enum Validator {
    /// This reader: what is wrong with a part is a fault of the route.
    Us,
    /// An API server.
    ApiServer,
}

pub(super) fn read(root: &Field<'_>) -> Option<Vec<Fact>> {
    route(root, Validator::Us)
}

/// What an API server accepted. Faults are those of what is left out; what cannot be read of a rule is in the fact.
pub(super) fn read_accepted(root: &Field<'_>) -> Option<Vec<Fact>> {
    route(root, Validator::ApiServer)
}

fn route(root: &Field<'_>, judge: Validator) -> Option<Vec<Fact>> {
    let meta = meta::read(root, &NAMING);
    let spec = root.child("spec");
    let hosts = hosts(&spec.child("hostnames"), judge);
    let mut rules = rules(&spec, meta.as_ref(), judge);
    // Without a host name a rule is for all of them.
    if hosts.is_empty() && spec.child("hostnames").node().is_some_and(|it| !is_empty_list(it)) {
        rules.clear();
    }
    let meta = meta?;
    let parents = parents(&spec.child("parentRefs"), &meta.namespace);
    Some(vec![Fact::HttpRoute(Arc::new(HttpRoute { meta, parents, hosts, rules, guessed: false }))])
}

/// Those that are Gateways, whichever listener they name. Others are of no concern here, and neither is what is wrong with them.
fn parents(list: &Field<'_>, own: &Name) -> Vec<Gateway> {
    let Some(Value::List(items)) = list.node().map(|it| &it.value) else { return Vec::new() };
    let gateway = |item: &Node| {
        let text = |key: &str| match item.entry(key).map(|it| &it.value.value) {
            Some(Value::Text(text)) => Some(Name::from(&**text)),
            _ => None,
        };
        let is = |key: &str, usual: &str| text(key).is_none_or(|it| it.as_str() == usual);
        if !is("group", "gateway.networking.k8s.io") || !is("kind", "Gateway") {
            return None;
        }
        Some(Gateway { namespace: text("namespace").unwrap_or_else(|| own.clone()), name: text("name")? })
    };
    items.iter().filter_map(gateway).collect()
}

fn is_empty_list(node: &Node) -> bool {
    matches!(&node.value, Value::List(items) if items.is_empty())
}

fn hosts(list: &Field<'_>, judge: Validator) -> Vec<HostPattern> {
    if judge == Validator::Us {
        schema::at_most_items(list, 16);
    }
    let mut hosts = Vec::new();
    for item in list.items() {
        let faults = ValidationErrors::default();
        let host = host(&item.with_errors(&faults));
        let understood = faults.is_empty();
        item.add_errors(faults);
        hosts.extend(host.filter(|_| understood));
    }
    hosts
}

fn host(item: &Field<'_>) -> Option<HostPattern> {
    let text = item.text()?;
    schema::hostname(item, text, true);
    Some(match text.strip_prefix("*.") {
        Some(below) => HostPattern::Under(below.into()),
        None => HostPattern::Exact(text.into()),
    })
}

fn rules(spec: &Field<'_>, meta: Option<&Meta>, judge: Validator) -> Vec<RouteRule> {
    let list = spec.child("rules");
    let namespace = meta.map(|it| it.namespace.clone()).unwrap_or_default();
    let rules: Vec<RouteRule> = list.items().map(|item| rule(&item, &namespace, judge)).collect();
    if judge == Validator::Us {
        schema::at_most_items(&list, MOST_RULES);
        if list.is_set() && rules.is_empty() {
            list.invalid(0, "spec.rules in body should have at least 1 items");
        }
        let all: usize = rules.iter().map(|it| it.matches.len()).sum();
        schema::require(
            &list,
            all <= ALL_MATCHES,
            "While 16 rules and 64 matches per rule are allowed, the total number of matches across all rules in a \
             route must be less than 128",
        );
    }
    // What is there and is no list cannot be read.
    let none = !list.is_set() || list.node().is_some_and(is_empty_list);
    if rules.is_empty() && (none || judge == Validator::Us) { vec![everything()] } else { rules }
}

/// What an API server writes where there are no rules.
fn everything() -> RouteRule {
    RouteRule {
        matches: vec![root()],
        filters: Vec::new(),
        action: Action::Forward(Vec::new()),
        timeout: None,
        attempt_timeout: None,
        retries: None,
        unsupported: Vec::new(),
    }
}

fn root() -> Match {
    Match { path: Some(PathMatch::Prefix("/".into())), ..Match::default() }
}

fn rule(item: &Field<'_>, namespace: &Name, judge: Validator) -> RouteRule {
    let faults = ValidationErrors::default();
    let mut rule = rule_of(&item.with_errors(&faults), namespace, judge);
    match judge {
        // Without what is unknown, a rule may take more requests than it was meant to, or do less with them.
        Validator::Us => {
            item.add_errors(faults);
            rule.unsupported.extend(unread(unknown(&["spec", "rules"], item)));
        }
        Validator::ApiServer => {
            let below = format!("{}.matches[", item.path());
            let unknown = unknown(&["spec", "rules"], item);
            let unknown = unknown.into_iter().filter(|it| !it.field.starts_with(&below));
            rule.unsupported.extend(unread(faults.into_sorted_within_limits().into_iter().chain(unknown)));
        }
    }
    rule
}

/// What an API server accepted and this version cannot read. That there is more than this version would accept is no reason not
/// to follow it: those faults are not among these.
fn unread(faults: impl IntoIterator<Item = ValidationError>) -> impl Iterator<Item = UnsupportedField> {
    faults.into_iter().map(|ValidationError { field, message, .. }| UnsupportedField {
        field: field.into(),
        what: format!("what this version of Seaway cannot read ({message})").into(),
    })
}

/// Fields that a newer definition has here.
fn unknown(above: &[&str], item: &Field<'_>) -> Vec<ValidationError> {
    // The reader of the rule has said what it is: this only looks.
    let unknown = item
        .present()
        .map(|node| known_fields::unknown_fields_at(Kind::HTTPRoute, above, node, &item.path()));
    let told = |fault: ValidationError| {
        let message = fault.message.replace(", which is ignored", "");
        ValidationError { message, ..fault }
    };
    unknown.unwrap_or_default().into_iter().map(told).collect()
}

/// Those that can be read: of a match that asks for less than is written, a rule would be given requests of others.
fn accepted_matches(list: &Field<'_>, unsupported: &mut Vec<UnsupportedField>) -> Vec<Match> {
    let mut matches = Vec::new();
    for item in list.items() {
        let faults = ValidationErrors::default();
        let read = matches::read(&item.with_errors(&faults));
        let unknown = unknown(&["spec", "rules", "matches"], &item);
        let unread: Vec<UnsupportedField> =
            unread(faults.into_sorted_within_limits().into_iter().chain(unknown)).collect();
        if unread.is_empty() {
            matches.push(read);
        }
        unsupported.extend(unread);
    }
    matches
}

fn rule_of(item: &Field<'_>, namespace: &Name, judge: Validator) -> RouteRule {
    let mut unsupported = Vec::new();
    let list = item.child("matches");
    let mut matches = match judge {
        Validator::Us => {
            schema::at_most_items(&list, MOST_MATCHES);
            list.items().map(|it| matches::read(&it)).collect()
        }
        Validator::ApiServer => accepted_matches(&list, &mut unsupported),
    };
    if !list.is_set() || list.node().is_some_and(is_empty_list) {
        matches.push(root());
    }
    let Filters { filters, redirect, rewrites_prefix, redirects_prefix } =
        filters::read(&item.child("filters"), namespace, &mut unsupported);
    let backends = backends::read(&item.child("backendRefs"), namespace, &mut unsupported);
    let one_prefix = matches!(matches.as_slice(), [Match { path: Some(PathMatch::Prefix(_)), .. }]);
    for (changed, filter) in [(redirects_prefix, "RequestRedirect"), (rewrites_prefix, "URLRewrite")] {
        schema::require(
            item,
            !changed || one_prefix,
            &format!(
                "When using {filter} filter with path.replacePrefixMatch, exactly one PathPrefix match must be specified"
            ),
        );
    }
    schema::require(
        item,
        redirect.is_none() || backends.is_empty(),
        "RequestRedirect filter must not be used together with backendRefs",
    );
    let (timeout, attempt_timeout) = timeouts(&item.child("timeouts"));
    let retries = retries(&item.child("retry"), &mut unsupported);
    refuse(&item.child("sessionPersistence"), "session persistence", &mut unsupported);
    let action = redirect.map_or(Action::Forward(backends), Action::Redirect);
    RouteRule { matches, filters, action, timeout, attempt_timeout, retries, unsupported }
}

fn timeouts(field: &Field<'_>) -> (Option<Duration>, Option<Duration>) {
    let whole = schema::duration(&field.child("request"));
    let attempt = schema::duration(&field.child("backendRequest"));
    let longer = match (whole, attempt) {
        (Some(whole), Some(attempt)) => !whole.is_zero() && attempt > whole,
        _ => false,
    };
    schema::require(field, !longer, "backendRequest timeout cannot be longer than request timeout");
    // Zero is no limit.
    let limit = |time: Option<Duration>| time.filter(|it| !it.is_zero());
    (limit(whole), limit(attempt))
}

fn retries(field: &Field<'_>, unsupported: &mut Vec<UnsupportedField>) -> Option<u8> {
    refuse(&field.child("codes"), "a choice of statuses to retry", unsupported);
    refuse(&field.child("backoff"), "a pause before a retry", unsupported);
    let attempts = field.child("attempts");
    let number = attempts.integer()?;
    schema::at_least(&attempts, number, 1);
    Some(number.clamp(0, i64::from(u8::MAX)) as u8)
}

/// Notes what is written there and cannot be done.
fn refuse(field: &Field<'_>, what: &str, unsupported: &mut Vec<UnsupportedField>) {
    if field.is_set() {
        unsupported.push(UnsupportedField { field: field.path().into(), what: what.into() });
    }
}

#[cfg(test)]
mod tests;
