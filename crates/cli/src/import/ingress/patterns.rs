//! Hosts whose paths ingress-nginx reads as expressions. `use-regex` or `rewrite-target` of one Ingress makes each path of its host
//! the beginning of paths in upper and lower case, of all Ingresses, and the longest path comes first.

use std::{cmp::Reverse, collections::BTreeSet};

use seaway_manifests::tree::Node;

use super::{
    super::{
        expression::decoded,
        proxy::{Host, PathRule, Rewrite, Route, host},
        report::Report,
        write::{LONG, any_case},
    },
    annotations::{OURS, is_canary},
    objects::{Object, items, scalar, text},
    rules::beginning,
};

/// Such a host; `None` is the one of rules without a host.
pub(super) type PatternHosts = BTreeSet<Option<Host>>;

/// A route of such a host, with its path as it was written.
pub(super) struct PatternRoute {
    pub(super) route: Route,
    pub(super) written: String,
}

pub(super) fn hosts(objects: &[Object<'_>]) -> PatternHosts {
    let mut found = PatternHosts::new();
    for object in objects.iter().filter(|it| it.kind() == "Ingress" && !is_canary(it)) {
        let said = |name: &str| {
            let it = object.annotations().iter().find(|it| it.key.strip_prefix(OURS) == Some(name))?;
            scalar(&it.value)
        };
        let by_expression = said("use-regex").is_some_and(|it| it == "true");
        let target = said("rewrite-target");
        let rules = object.spec().map_or(&[][..], |it| items(it, "rules"));
        for rule in rules {
            let paths = rule.child("http").map_or(&[][..], |it| items(it, "paths"));
            let is_replaced = |it: &Node| target.as_deref().is_some_and(|to| text(it, "path") != Some(to));
            if by_expression || paths.iter().any(is_replaced) {
                found.insert(text(rule, "host").and_then(host));
                let aliases = said("server-alias").unwrap_or_default();
                found.extend(aliases.split([',', ' ']).filter_map(host).map(Some));
            }
        }
    }
    found
}

pub(super) fn is_of(hosts: &[Host], found: &PatternHosts) -> bool {
    match hosts {
        [] => found.contains(&None),
        hosts => hosts.iter().any(|it| found.contains(&Some(it.clone()))),
    }
}

impl PatternRoute {
    /// Whether each of its letters is for itself.
    fn is_plain(&self) -> bool {
        !self.written.contains(['(', '[', '*', '\\', '$', '+', '?', '{', '|', '^'])
    }

    /// What the paths of its requests begin with, in lower case.
    fn beginning(&self) -> String {
        match &self.route.condition.path {
            PathRule::Prefix(path) if self.keeps_the_rest() => path.to_ascii_lowercase(),
            _ => beginning(&self.written).to_ascii_lowercase(),
        }
    }

    /// Whether it keeps all that comes after its prefix, which only a prefix can.
    fn keeps_the_rest(&self) -> bool {
        let it = (&self.route.condition.path, &self.route.rewrite);
        matches!(it, (PathRule::Prefix(_), Some(Rewrite::Prefix(_)))) && self.route.closed.is_none()
    }

    fn is_for_all(&self) -> bool {
        self.written == "/" || !self.route.is_protected() && ["/.*", "/(.*)"].contains(&&*self.written)
    }

    fn is_open(&self) -> bool {
        self.is_plain() && !self.route.is_protected()
    }

    /// Whether some requests may be for both.
    fn meets(&self, other: &PatternRoute) -> bool {
        let (ours, theirs) = (&self.route.condition.hosts, &other.route.condition.hosts);
        let is_host =
            ours == theirs || ours.iter().any(|one| theirs.iter().any(|two| one.meet(two).is_some()));
        let (one, two) = (self.beginning(), other.beginning());
        is_host && (one.starts_with(&two) || two.starts_with(&one))
    }

    fn is_below(&self, other: &PatternRoute) -> bool {
        self.beginning().starts_with(&format!("{}/", other.beginning().trim_end_matches('/')))
    }

    /// The path as an expression, for all of its spellings.
    fn set_expression(&mut self, report: &mut Report) {
        let short = || decoded(&format!("^{}", self.written), true, true);
        let text = match any_case(&self.written) {
            _ if !self.is_plain() && matches!(self.route.condition.path, PathRule::Regex(_)) => return,
            _ if !self.is_plain() => short(),
            Some(text) => text,
            None => {
                report.differs(&self.route.place, LONG);
                short()
            }
        };
        self.route.condition.path = PathRule::Regex(text);
    }

    fn close(&mut self, why: &str, report: &mut Report) {
        report.closed(&self.route.place, &format!("{why}: requests get 403"));
        if self.keeps_the_rest()
            && let Some(text) = any_case(&self.beginning())
        {
            self.route.condition.path = PathRule::Regex(text);
        }
        self.route.close(why);
    }
}

const TAKEN: &str =
    "a longer path of this host, which ingress-nginx compares first, gets all of its requests";

/// The routes of these hosts in the order of ingress-nginx. Expressions of HTTPRoutes come before prefixes.
pub(super) fn settled(mut routes: Vec<PatternRoute>, report: &mut Report) -> Vec<Route> {
    routes.sort_by_key(|it| (Reverse(it.written.len()), Reverse(it.written.clone())));
    let mut done: Vec<PatternRoute> = Vec::new();
    let mut waiting = routes.into_iter();
    while let Some(mut it) = waiting.next() {
        let longer = done.iter().find(|of| of.keeps_the_rest() && of.meets(&it));
        let is_taken = longer.is_some_and(|of| it.is_below(of));
        if it.is_for_all() {
            it.route.condition.path = PathRule::Prefix("/".to_owned());
        } else if is_taken && it.is_open() {
            report.left_out(&it.route.place, TAKEN);
            continue;
        } else if is_taken {
            it.close(TAKEN, report);
            it.set_expression(report);
        } else if it.keeps_the_rest() {
            let takes = |of: &&PatternRoute| {
                let is_behind = of.is_for_all() || of.keeps_the_rest() || of.is_open() || of.is_below(&it);
                !is_behind && it.meets(of)
            };
            match waiting.as_slice().iter().find(takes) {
                Some(other) => {
                    let why = format!(
                        "ingress-nginx compares this path before {} of {}, which an HTTPRoute compares first",
                        other.written, other.route.place
                    );
                    it.close(&why, report);
                }
                None => report.differs(
                    &it.route.place,
                    "ingress-nginx matches this path in upper and lower case; Seaway only in the case that is written",
                ),
            }
        } else if longer.is_some() && it.is_open() {
            report.differs(
                &it.route.place,
                "ingress-nginx matches all paths that begin with this one, in upper and lower case; Seaway matches whole segments, in the case that is written",
            );
        } else {
            it.set_expression(report);
        }
        done.push(it);
    }
    for at in 0..done.len() {
        let (before, rest) = done.split_at_mut(at);
        let Some(it) = rest.first_mut().filter(|it| matches!(it.route.condition.path, PathRule::Regex(_)))
        else {
            continue;
        };
        let is_first = |of: &&PatternRoute| {
            matches!(of.route.condition.path, PathRule::Regex(_))
                && of.route.namespace > it.route.namespace
                && of.meets(it)
        };
        if let Some(longer) = before.iter().find(is_first) {
            let why = format!(
                "ingress-nginx compares {} of {} before this path, and HTTPRoutes are compared in the order of their namespaces",
                longer.written, longer.route.place
            );
            it.close(&why, report);
        }
    }
    done.into_iter().map(|it| it.route).collect()
}
