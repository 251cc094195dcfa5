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

mod backends;
mod cors;
mod filters;
mod matches;
mod schema;

use std::{sync::Arc, time::Duration};

use seaway_model::{
    Fact, Kind, Name,
    fact::{Gateway, HttpRoute, Meta, RouteRule, Unsupported},
    load_balancer::{Action, HostPattern, Match, PathMatch},
};

use self::filters::Filters;
use super::{
    meta::{self, Naming},
    words,
};
use crate::{
    decode::Field,
    tree::{Node, Value},
};

const NAMING: Naming = Naming { kind: Kind::HTTPRoute, namespaced: true, rule: words::dns1123_subdomain };
const MOST_RULES: usize = 16;
const MOST_MATCHES: usize = 64;
/// Of all rules together.
const ALL_MATCHES: usize = 128;

pub(super) fn read(root: &Field<'_>) -> Option<Vec<Fact>> {
    let meta = meta::read(root, &NAMING);
    let spec = root.child("spec");
    let hosts = hosts(&spec.child("hostnames"));
    let rules = rules(&spec, meta.as_ref());
    let meta = meta?;
    let parents = parents(&spec.child("parentRefs"), &meta.namespace);
    Some(vec![Fact::HttpRoute(Arc::new(HttpRoute { meta, parents, hosts, rules }))])
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

fn hosts(list: &Field<'_>) -> Vec<HostPattern> {
    schema::at_most_items(list, 16);
    let mut hosts = Vec::new();
    for item in list.items() {
        let Some(text) = item.text() else { continue };
        schema::hostname(&item, text, true);
        hosts.push(match text.strip_prefix("*.") {
            Some(below) => HostPattern::Under(below.into()),
            None => HostPattern::Exact(text.into()),
        });
    }
    hosts
}

fn rules(spec: &Field<'_>, meta: Option<&Meta>) -> Vec<RouteRule> {
    let list = spec.child("rules");
    schema::at_most_items(&list, MOST_RULES);
    if list.is_set() && list.items().len() == 0 {
        list.invalid(0, "spec.rules in body should have at least 1 items");
    }
    let namespace = meta.map(|it| it.namespace.clone()).unwrap_or_default();
    let rules: Vec<RouteRule> = list.items().map(|item| rule(&item, &namespace)).collect();
    let all: usize = rules.iter().map(|it| it.matches.len()).sum();
    schema::rule(
        &list,
        all <= ALL_MATCHES,
        "While 16 rules and 64 matches per rule are allowed, the total number of matches across all rules in a route \
         must be less than 128",
    );
    if rules.is_empty() { vec![everything()] } else { rules }
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

fn rule(item: &Field<'_>, namespace: &Name) -> RouteRule {
    let mut unsupported = Vec::new();
    let list = item.child("matches");
    schema::at_most_items(&list, MOST_MATCHES);
    let mut matches: Vec<Match> = list.items().map(|it| matches::read(&it)).collect();
    if matches.is_empty() {
        matches.push(root());
    }
    let Filters { filters, redirect, rewrites_prefix, redirects_prefix } =
        filters::read(&item.child("filters"), namespace, &mut unsupported);
    let backends = backends::read(&item.child("backendRefs"), namespace, &mut unsupported);
    let one_prefix = matches!(matches.as_slice(), [Match { path: Some(PathMatch::Prefix(_)), .. }]);
    for (changed, filter) in [(redirects_prefix, "RequestRedirect"), (rewrites_prefix, "URLRewrite")] {
        schema::rule(
            item,
            !changed || one_prefix,
            &format!(
                "When using {filter} filter with path.replacePrefixMatch, exactly one PathPrefix match must be specified"
            ),
        );
    }
    schema::rule(
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
    schema::rule(field, !longer, "backendRequest timeout cannot be longer than request timeout");
    // Zero is no limit.
    let limit = |time: Option<Duration>| time.filter(|it| !it.is_zero());
    (limit(whole), limit(attempt))
}

fn retries(field: &Field<'_>, unsupported: &mut Vec<Unsupported>) -> Option<u8> {
    refuse(&field.child("codes"), "a choice of statuses to retry", unsupported);
    refuse(&field.child("backoff"), "a pause before a retry", unsupported);
    let attempts = field.child("attempts");
    let number = attempts.integer()?;
    schema::at_least(&attempts, number, 1);
    Some(number.clamp(0, i64::from(u8::MAX)) as u8)
}

/// Notes what is written there and cannot be done.
fn refuse(field: &Field<'_>, what: &str, unsupported: &mut Vec<Unsupported>) {
    if field.is_set() {
        unsupported.push(Unsupported { field: field.path().into(), what: what.into() });
    }
}

#[cfg(test)]
mod tests;
