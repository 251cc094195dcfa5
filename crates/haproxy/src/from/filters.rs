//! What a rule does with a request, as rules of a backend of its own.

use seaway_model::{
    Name,
    load_balancer::{Action, Filter, HeaderChange, Match, PathMatch, Redirect, Rule},
};

use super::{
    DocumentBuilder,
    backends::RuleSettings,
    frontends::{FrontendContext, LONGEST_PAGE},
};
use crate::{
    document::{HttpRule, ImmediateResponse, MessageDirection, Scheme},
    words::{Label, PlainPath, Text},
};

impl DocumentBuilder<'_> {
    /// The backends that a match of a rule leads to, by weight.
    pub(super) fn targets(
        &mut self,
        here: &FrontendContext<'_>,
        rule: &Rule,
        path: Option<&PathMatch>,
    ) -> Vec<(Label, u32)> {
        let nobody = |work: &mut Self| vec![(work.unavailable(), 1)];
        let Some(mut extra) = self.extra(here, rule, path) else { return nobody(self) };
        let pools = match &rule.action {
            Action::Forward(pools) => pools,
            Action::Redirect(redirect) => {
                let Some(answer) = self.redirect(rule, redirect, path, &mut extra.rules) else {
                    return nobody(self);
                };
                return vec![(self.answering(here, rule, extra, answer), 1)];
            }
            Action::Respond { code, body } => {
                let body =
                    if body.is_empty() { here.listener.http.pages.get(code).unwrap_or(body) } else { body };
                let page = (!body.is_empty()).then(|| self.page(body));
                if !(200..600).contains(code) || body.len() > LONGEST_PAGE {
                    self.unsupported(
                        &rule.owner,
                        "spec.rules",
                        "HAProxy can return a status from 200 to 599 and a body of at most 8 KiB: requests are answered by 503",
                    );
                    return nobody(self);
                }
                return vec![(
                    self.answering(here, rule, extra, ImmediateResponse::Return { code: *code, page }),
                    1,
                )];
            }
        };
        let mut to = Vec::new();
        for (pool, weight) in pools.iter().filter(|(_, weight)| *weight > 0) {
            let backend = self.pool_with(here, pool, &extra).unwrap_or_else(|| self.unavailable());
            to.push((backend, *weight));
        }
        if to.is_empty() { nobody(self) } else { to }
    }

    /// `None`: the rule restricts by what HAProxy cannot, and what it guards is not served.
    fn extra(
        &mut self,
        here: &FrontendContext<'_>,
        rule: &Rule,
        path: Option<&PathMatch>,
    ) -> Option<RuleSettings> {
        let owner = &rule.owner;
        let tls = rule.tls.as_ref();
        for (present, option, what) in [
            (!rule.rates.is_empty(), "requests-per-second-per-client", "limits of requests of each client"),
            (!rule.auth.is_empty(), "basic-auth", "passwords"),
            (!rule.asks.is_empty(), "forward-auth", "external authentication (forward-auth)"),
            (
                tls.is_some_and(|it| it.clients.is_some()),
                "client-authorities",
                "client certificates of single hosts",
            ),
            (tls.is_some_and(|it| it.profile.is_some()), "tls-profile", "a TLS profile of single hosts"),
        ] {
            if present {
                self.unsupported(
                    owner,
                    option,
                    format!("{what}: not served by HAProxy yet, so requests are answered by 503"),
                );
                return None;
            }
        }
        let by_address = !rule.sources.is_empty() || !rule.denied.is_empty();
        if by_address && !here.listener.http.trusted.is_empty() {
            let what = "source ranges of a route behind trusted proxies: not served by HAProxy yet, so requests are answered by 503";
            self.unsupported(owner, "source-ranges", what);
            return None;
        }
        debug_assert!(by_address || !rule.is_restricted());
        let mut extra = RuleSettings::default();
        if !rule.sources.is_empty() {
            extra.rules.push(HttpRule::AllowFrom(rule.sources.clone()));
        }
        if !rule.denied.is_empty() {
            extra.rules.push(HttpRule::DenyFrom(rule.denied.clone()));
        }
        if tls.is_some_and(|it| it.hsts.is_some()) {
            self.unsupported(
                owner,
                "hsts",
                "HAProxy sets HSTS for a listener, not for single hosts: the listener's \
                 setting is used",
            );
        }
        if rule.timeout.is_some() || rule.attempt_timeout.is_some() {
            let what = "HAProxy has no timeout for a whole request: the timeouts of the rule are ignored";
            self.unsupported(owner, "spec.rules", what);
        }
        extra.retries = rule.retries;
        for filter in &rule.filters {
            if !self.filter(rule, filter, path, &mut extra.rules) {
                let what = "a filter that HAProxy lacks, or a value with quotes or a backslash: requests are answered by 503";
                self.unsupported(owner, "spec.rules", what);
                return None;
            }
            match filter {
                Filter::Mirror { .. } => self.unsupported(
                    owner,
                    "spec.rules",
                    "HAProxy cannot mirror requests: the RequestMirror filter is ignored",
                ),
                Filter::Cors(_) => {
                    self.unsupported(
                        owner,
                        "spec.rules",
                        "CORS is not served: browsers block requests of other origins",
                    );
                }
                _ => {}
            }
        }
        Some(extra)
    }

    /// Whether it is served, or may be left out.
    fn filter(
        &self,
        rule: &Rule,
        filter: &Filter,
        path: Option<&PathMatch>,
        rules: &mut Vec<HttpRule>,
    ) -> bool {
        match filter {
            Filter::RequestHeaders(change) => headers(MessageDirection::Request, change, rules),
            Filter::ResponseHeaders(change) => headers(MessageDirection::Response, change, rules),
            Filter::RewritePrefix(by) => prefix(rule, path, by, rules).is_some(),
            Filter::RewritePath(by) => {
                PlainPath::new(by).map(|it| rules.push(HttpRule::SetPath(it))).is_some()
            }
            Filter::RewriteHost(host) => {
                Label::new(host).map(|it| rules.push(HttpRule::SetHost(it))).is_some()
            }
            Filter::Mirror { .. } | Filter::Cors(_) => true,
        }
    }

    fn redirect(
        &mut self,
        rule: &Rule,
        redirect: &Redirect,
        path: Option<&PathMatch>,
        rules: &mut Vec<HttpRule>,
    ) -> Option<ImmediateResponse> {
        let scheme = match redirect.scheme.as_deref() {
            None => Some(None),
            Some("http") => Some(Some(Scheme::Http)),
            Some("https") => Some(Some(Scheme::Https)),
            Some(_) => None,
        };
        let host = match &redirect.host {
            None => Some(None),
            Some(host) => Label::new(host).map(Some),
        };
        let rewritten = match &redirect.path {
            None => Some(()),
            Some(PathMatch::Prefix(by)) => prefix(rule, path, by, rules),
            Some(PathMatch::Exact(path) | PathMatch::Regex(path)) => {
                PlainPath::new(path).map(|it| rules.push(HttpRule::SetPath(it)))
            }
        };
        match (scheme, host, rewritten) {
            (Some(scheme), Some(host), Some(())) if matches!(redirect.code, 301 | 302 | 303 | 307 | 308) => {
                Some(ImmediateResponse::Redirect { scheme, host, port: redirect.port, code: redirect.code })
            }
            _ => {
                let what = "a redirect by another code than 301, 302, 303, 307 or 308, or to characters that HAProxy would read otherwise: requests are answered by 503";
                self.unsupported(&rule.owner, "spec.rules", what);
                None
            }
        }
    }
}

fn headers(way: MessageDirection, change: &HeaderChange, rules: &mut Vec<HttpRule>) -> bool {
    let values = |list: &[(Name, Name)]| -> Option<Vec<(Label, Text)>> {
        let pair = |(name, value): &(Name, Name)| {
            // HAProxy takes no empty value.
            Some((Label::new(name)?, Text::new(value).filter(|it| !it.as_str().is_empty())?))
        };
        list.iter().map(pair).collect()
    };
    let removed: Option<Vec<Label>> = change.remove.iter().map(|it| Label::new(it)).collect();
    let (Some(set), Some(added), Some(removed)) = (values(&change.set), values(&change.add), removed) else {
        return false;
    };
    rules.extend(removed.into_iter().map(|name| HttpRule::RemoveHeader(way, name)));
    rules.extend(set.into_iter().map(|(name, value)| HttpRule::SetHeader(way, name, value)));
    rules.extend(added.into_iter().map(|(name, value)| HttpRule::AddHeader(way, name, value)));
    true
}

/// What a match's path becomes; of an exact one, and of everything, too.
fn prefix(rule: &Rule, path: Option<&PathMatch>, by: &str, rules: &mut Vec<HttpRule>) -> Option<()> {
    let by = PlainPath::new(if by.is_empty() { "/" } else { by })?;
    rules.push(match path {
        None => HttpRule::ReplacePrefix(vec![PlainPath::new("/")?], by),
        Some(PathMatch::Prefix(path)) => HttpRule::ReplacePrefix(prefixes(rule, path)?, by),
        Some(PathMatch::Exact(_)) => HttpRule::SetPath(by),
        Some(PathMatch::Regex(_)) => return None,
    });
    Some(())
}

/// HAProxy's regular expressions end at 64 KiB.
const LONGEST_PATTERN: usize = 4000;

/// All prefixes of a rule, so that one backend serves them, where a request is of the longest that its path has; else
/// this one alone.
fn prefixes(rule: &Rule, this: &str) -> Option<Vec<PlainPath>> {
    let plain = |it: &Match| match &it.path {
        Some(PathMatch::Prefix(path))
            if it.method.is_none() && it.headers.is_empty() && it.query.is_empty() =>
        {
            PlainPath::new(path)
        }
        _ => None,
    };
    let all: Option<Vec<PlainPath>> = rule.matches.iter().map(plain).collect();
    let length = |all: &Vec<PlainPath>| all.iter().map(|it| it.as_str().len()).sum::<usize>();
    let mut all = match all.filter(|it| length(it) <= LONGEST_PATTERN) {
        Some(all) => all,
        None => vec![PlainPath::new(this)?],
    };
    all.sort_by(|one, other| (other.as_str().len(), one).cmp(&(one.as_str().len(), other)));
    all.dedup();
    Some(all)
}
