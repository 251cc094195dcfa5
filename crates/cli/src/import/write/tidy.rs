//! Routes as HTTPRoutes can have them: paths that are valid, expressions that are understood, nothing twice.

use std::{collections::BTreeMap, collections::BTreeSet, mem};

use serde_json::json;

use super::{
    super::{
        proxy::{Condition, Host, PathRule, Proxy, Route, Target, Value},
        report::Report,
    },
    routes::protects_equivalent_paths,
    spelling::{LONG, REST, escaped},
    yaml::flow,
};
use crate::{look, settings::Settings};

/// Host names of one HTTPRoute.
const MOST_HOSTS: usize = 16;
/// Their names have three digits.
const MOST_ROUTES: usize = 900;
const LONGEST: usize = 1024;

pub(super) fn tidy(proxy: &mut Proxy, report: &mut Report) {
    let mut routes = Vec::new();
    let mut closed: Vec<(Vec<Host>, String)> = Vec::new();
    let mut judged = BTreeMap::new();
    for mut route in mem::take(&mut proxy.routes) {
        // A closed route leads nowhere without its backend, which may be too few.
        if matches!(&route.target, Target::Backends(to) if to.is_empty()) {
            route.target = Target::Nothing;
        }
        match unwritable(&mut route.condition, &mut judged) {
            None => routes.push(route),
            Some(why) if route.is_protected() => {
                let why = format!("{why}. The rule restricts access, so all of its hosts answer 403");
                report.closed(&route.place, &why);
                closed.push((route.condition.hosts, why));
            }
            Some(why) => report.left_out(&route.place, &why),
        }
    }
    for route in &mut routes {
        let meets = |hosts: &[Host]| {
            let own = &route.condition.hosts;
            hosts.is_empty() || own.iter().any(|it| hosts.iter().any(|is| it.meet(is).is_some()))
        };
        if let Some((_, why)) = closed.iter().find(|(hosts, _)| meets(hosts)) {
            route.closed.get_or_insert_with(|| why.clone());
        }
    }
    let mut routes = distinct(routes, report);
    for route in routes.iter().filter(|it| it.decodes && it.is_protected() && !protects_equivalent_paths(it))
    {
        if matches!(&route.condition.path, PathRule::Prefix(path) if path.len() > 60) {
            report.differs(&route.place, LONG);
        }
    }
    if routes.len() > MOST_ROUTES {
        for route in routes.drain(..) {
            report.closed(
                &route.place,
                "the configuration has more than 900 routes: split it into several; none of them is served now",
            );
        }
    }
    proxy.routes = routes;
}

/// Why a condition cannot be written.
fn unwritable(condition: &mut Condition, judged: &mut BTreeMap<String, bool>) -> Option<String> {
    let expression = match &condition.path {
        PathRule::Begins(text) => Some(format!("{}{REST}", escaped(text))),
        PathRule::Below(text) => Some(format!("{}(?:/{REST})?", escaped(text.trim_end_matches('/')))),
        PathRule::Ends(text) => Some(format!("{REST}{}", escaped(text))),
        PathRule::Contains(text) => Some(format!("{REST}{}{REST}", escaped(text))),
        PathRule::Exact(_) | PathRule::Prefix(_) | PathRule::Regex(_) => None,
    };
    condition.path = expression.map_or_else(|| condition.path.clone(), PathRule::Regex);
    match &mut condition.path {
        PathRule::Exact(path) | PathRule::Prefix(path) => {
            *path = encoded(path);
            let is_bad = !path.starts_with('/')
                || path.contains("//")
                || path.contains("/./")
                || path.contains("/../");
            if is_bad
                || path.ends_with("/.")
                || path.ends_with("/..")
                || path.to_ascii_lowercase().contains("%2f")
            {
                return Some(format!("no request has the path {path:?}"));
            }
            if path.len() > LONGEST {
                return Some(format!("the path has more than {LONGEST} bytes"));
            }
        }
        PathRule::Regex(text)
        | PathRule::Begins(text)
        | PathRule::Below(text)
        | PathRule::Ends(text)
        | PathRule::Contains(text) => {
            if text.len() > LONGEST {
                return Some(format!("the path pattern has more than {LONGEST} bytes"));
            }
        }
    }
    let values = condition.headers.values().chain(condition.query.values());
    let expressions = values.filter_map(|it| match it {
        Value::Regex(text) => Some(text),
        Value::Exact(_) => None,
    });
    let path = match &condition.path {
        PathRule::Regex(text) => Some(text),
        _ => None,
    };
    let bad = path.into_iter().chain(expressions).find(|it| {
        let judged = judged.entry((*it).clone()).or_insert_with(|| is_expression(it));
        !*judged
    });
    bad.map(|it| {
        format!("Seaway does not understand the expression {it:?}: look-around and back-references of PCRE do not exist")
    })
}

/// As a path may be written: everything else as an escape.
fn encoded(path: &str) -> String {
    let mut encoded = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"%-/._~!$&'()*+,;=:@".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Asked of the reader of manifests, which knows it.
fn is_expression(text: &str) -> bool {
    let rule = json!([{
        "matches": [{"path": {"type": "RegularExpression", "value": text}}],
        "filters": [{"type": "RequestRedirect", "requestRedirect": {"statusCode": 302}}],
    }]);
    let manifest = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: a}}\nspec:\n  rules: {}\n",
        flow(&rule)
    );
    look::mistakes_of(&manifest, &Settings::default()).is_ok_and(|it| it.is_empty())
}

/// Of routes with the same matches, the first. No more hosts than an HTTPRoute may have.
fn distinct(routes: Vec<Route>, report: &mut Report) -> Vec<Route> {
    let mut seen: BTreeSet<(Option<Host>, Condition)> = BTreeSet::new();
    let mut kept = Vec::new();
    for mut route in routes {
        let hosts: Vec<Option<Host>> = match route.condition.hosts.as_slice() {
            [] => vec![None],
            hosts => hosts.iter().cloned().map(Some).collect(),
        };
        let of = |condition: &Condition| Condition { hosts: Vec::new(), ..condition.clone() };
        let key = |condition: &Condition| {
            let mut key = of(condition);
            if let PathRule::Prefix(path) = &mut key.path {
                *path = path.trim_end_matches('/').to_owned();
            }
            key
        };
        let whole = key(&route.condition);
        // `/api` beside `/api/`: what is below is the other's.
        if let PathRule::Prefix(path) = &route.condition.path
            && !path.ends_with('/')
            && hosts.iter().all(|it| seen.contains(&(it.clone(), whole.clone())))
            && kept.iter().any(|it: &Route| {
                it.condition.hosts == route.condition.hosts
                    && it.condition.path == PathRule::Prefix(format!("{path}/"))
            })
        {
            route.condition.path = match route.is_protected() {
                true => PathRule::Regex(format!("{}(?:[^/]{REST})?", escaped(path))),
                false => PathRule::Exact(path.clone()),
            };
        }
        let whole = key(&route.condition);
        let fresh: Vec<Option<Host>> =
            hosts.into_iter().filter(|it| seen.insert((it.clone(), whole.clone()))).collect();
        if fresh.is_empty() {
            if !route.made {
                report.left_out(
                    &route.place,
                    "another route before it has the same host and path, and gets all of its requests",
                );
            }
            continue;
        }
        let hosts: Vec<Host> = fresh.into_iter().flatten().collect();
        if hosts.is_empty() {
            route.condition.hosts = Vec::new();
            kept.push(route);
            continue;
        }
        for some in hosts.chunks(MOST_HOSTS) {
            let mut part = route.clone();
            part.condition.hosts = some.to_vec();
            kept.push(part);
        }
    }
    kept
}
