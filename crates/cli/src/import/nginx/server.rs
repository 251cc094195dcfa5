//! One `server` of `http`: whom it serves, by which ports, with which routes.

use std::cell::RefCell;

use super::{
    super::proxy::{Condition, Host, PathRule, Redirect, Rewrite, Route, Target, service_name},
    access::access,
    context::{Context, Scopes},
    cover, judge_rest,
    location::{locations, routes},
    names::{Listen, Names},
    parse::Directive,
    words::lets_pass,
};

pub(super) struct Server<'d> {
    pub(super) directive: &'d Directive,
    pub(super) block: &'d [Directive],
    pub(super) scopes: Scopes<'d>,
    pub(super) names: Names,
    pub(super) listens: Vec<(Listen, Directive)>,
    /// Of its routes, by their places.
    pub(super) hsts: RefCell<Vec<(usize, Option<String>)>>,
}

impl Server<'_> {
    /// A name for a backend that has none.
    pub(super) fn name(&self, path: &str) -> String {
        let host = self.names.hosts.first().map_or("backend", |it| match it {
            Host::Exact(name) | Host::Under(name) => name,
        });
        let plain = path.trim_matches(|it: char| !it.is_ascii_alphanumeric());
        service_name(&match plain.is_empty()
            || !plain.bytes().all(|it| it.is_ascii_alphanumeric() || b"/-_.".contains(&it))
        {
            true => host.to_owned(),
            false => format!("{host}-{plain}"),
        })
    }
}

/// What a server came to.
pub(super) struct ServerRoutes {
    pub(super) routes: Vec<Route>,
    /// It sends all requests to https, at the same host.
    pub(super) to_https: bool,
}

pub(super) fn served(server: &Server<'_>, context: &mut Context) -> ServerRoutes {
    judge_rest(
        server.block,
        &[
            "listen",
            "server_name",
            "location",
            "return",
            "rewrite",
            "if",
            "root",
            "try_files",
            "proxy_redirect",
            "ssl_verify_client",
            "internal",
        ],
        context,
    );
    let mut to_https = false;
    let leads = server.block.iter().any(|it| it.name == "location" && it.args == ["/"]);
    for it in server.block {
        match &*it.name {
            "root" | "try_files" if leads => context.report.no_effect(
                &it.place,
                "applies only to locations that serve files; each of these is reported on its own line",
            ),
            "root" | "try_files" => {
                context.report.left_out(&it.place, "Seaway serves no files: let a backend serve them")
            }
            "if" => to_https |= condition(it, server, context),
            "proxy_redirect" => context
                .report
                .differs(&it.place, "Seaway passes Location on as the backend sends it, as with off"),
            "internal" => {
                context.report.left_out(&it.place, "Seaway does not read this directive in this block")
            }
            _ => {}
        }
    }
    // Before any location is looked at, in their order.
    let mut first: Vec<Route> = Vec::new();
    for it in server.block.iter().filter(|it| matches!(&*it.name, "return" | "rewrite")) {
        let code = it.arg(0).parse::<u16>().unwrap_or_default();
        if it.name == "return" && (400..600).contains(&code) {
            context.report.differs(
                &it.place,
                "requests that no route takes get 404, or what `frontDoor.unmatched` says",
            );
            unread(server, context);
            let has_redirects = to_https;
            return ServerRoutes {
                routes: if has_redirects { Vec::new() } else { with(first, vec![refused(server, it)]) },
                to_https: has_redirects,
            };
        }
        match redirect(it, server) {
            Ok(Some((_, true))) => {
                context.report.differs(&it.place, "redirects with status 308, whatever code the line has");
                to_https = true;
                if it.name == "return" || it.arg(0) == "^" || it.arg(0).starts_with("^(.*)") || it.arg(0).starts_with("^/(.*)") {
                    unread(server, context);
                    return ServerRoutes { routes: Vec::new(), to_https };
                }
            }
            Ok(Some((to, false))) => {
                context.report.translated(&it.place);
                let mut route = Route::new(it.place.clone(), Condition::default(), Target::Redirect(to));
                if it.name == "rewrite" && let Some(path) = fixed(it.arg(0)) {
                    route.condition.path = PathRule::Exact(path);
                    first.push(route);
                    continue;
                }
                let access = access(&server.scopes, context);
                (route.sources, route.closed, route.decodes) = (access.sources, access.closed, true);
                unread(server, context);
                return ServerRoutes { routes: with(first, vec![route]), to_https };
            }
            Err(why) if it.name == "return" => {
                context.report.closed(&it.place, &why);
                unread(server, context);
                return ServerRoutes { routes: with(first, vec![refused(server, it)]), to_https };
            }
            Ok(None) => first.push(unsaid(it, "Seaway replaces a prefix of the path, or all of it, by fixed text: write an HTTPRoute with URLRewrite", context)),
            Err(why) => first.push(unsaid(it, &why, context)),
        }
    }
    let mut routes = of_locations(server, context);
    // An exact path comes before the expressions that are closed.
    let closed: Vec<String> = first.iter().filter_map(|it| it.closed.clone()).collect();
    for it in routes.iter_mut().filter(|it| matches!(it.condition.path, PathRule::Exact(_))) {
        closed.first().into_iter().for_each(|why| it.close(why));
    }
    routes = with(first, routes);
    let is_https = |it: &Route| matches!(&it.target, Target::Redirect(to) if *to == Redirect { scheme: Some("https"), code: to.code, ..Redirect::default() });
    // `location / { return 301 https://$host$request_uri; }`
    let whole = routes.iter().position(|it| {
        it.condition.path == PathRule::Prefix("/".to_owned()) && is_https(it) && !it.is_protected()
    });
    if let Some(at) = whole {
        routes.remove(at);
        to_https = true;
    }
    ServerRoutes { routes, to_https }
}

fn with(mut first: Vec<Route>, rest: Vec<Route>) -> Vec<Route> {
    first.extend(rest);
    first
}

/// Paths of a rewrite that cannot be said.
fn unsaid(it: &Directive, why: &str, context: &mut Context) -> Route {
    context.report.closed(&it.place, &format!("{why}; requests for the paths of this block get 403"));
    let text = super::super::expression::decoded(&super::order::merged(it.arg(0)).0, false, false);
    let condition = Condition { path: PathRule::Regex(text), ..Condition::default() };
    let mut route = Route::new(it.place.clone(), condition, Target::Nothing);
    route.closed = Some(it.written());
    route
}

fn of_locations(server: &Server<'_>, context: &mut Context) -> Vec<Route> {
    let all = locations(server.block, &server.scopes, context);
    let mut routes = routes(server, &all, context);
    // What protects a server protects paths without a location, too; but nothing is there that would be served.
    if !all.iter().any(|it| it.path == "/") {
        let access = access(&server.scopes, context);
        if access.closed.is_some() || !access.sources.is_empty() {
            let mut route = Route::new(server.directive.place.clone(), Condition::default(), Target::Nothing);
            route.closed =
                Some("access to this location is restricted, and Seaway does not serve its files".to_owned());
            routes.push(route);
        }
    }
    routes
}

/// What a `return` before it makes superfluous.
fn unread(server: &Server<'_>, context: &mut Context) {
    fn all(block: &[Directive], context: &mut Context) {
        for it in block {
            context.report.no_effect(&it.place, "the server answers before it looks at locations");
            all(it.block.as_deref().unwrap_or_default(), context);
        }
    }
    for it in server.block.iter().filter(|it| it.name == "location") {
        all(std::slice::from_ref(it), context);
    }
}

fn refused(server: &Server<'_>, it: &Directive) -> Route {
    let mut route = Route::new(server.directive.place.clone(), Condition::default(), Target::Nothing);
    route.closed = Some(it.written());
    route.made = true;
    route
}

/// Whether an `if` redirects requests without TLS to https.
fn condition(it: &Directive, server: &Server<'_>, context: &mut Context) -> bool {
    cover(it.block.as_deref().unwrap_or_default(), context);
    if is_to_https(it, server) {
        context.report.differs(&it.place, "redirects with status 308, whatever code the line has");
        context.to_https.insert(it.place.clone());
        return true;
    }
    // Else access.rs says that it closes.
    if it.block.iter().flatten().all(lets_pass) {
        context.report.left_out(&it.place, NO_CONDITIONS);
    }
    false
}

pub(super) const NO_CONDITIONS: &str = "Seaway has no conditions: an HTTPRoute matches host, path, method, headers and query (docs/manifests.md)";

/// `if ($host = shop.example) { return 301 https://$host$request_uri; }`, as certbot writes it, and by `$scheme`.
pub(super) fn is_to_https(it: &Directive, server: &Server<'_>) -> bool {
    let text = it.args.join(" ");
    let text = text.trim_start_matches('(').trim_end_matches(')').trim();
    let is_redirect = match it.block.as_deref().unwrap_or_default() {
        [only] => matches!(redirect(only, server), Ok(Some((_, true)))),
        _ => false,
    };
    let by_host =
        text.strip_prefix("$host = ").and_then(|it| super::super::proxy::host(it.trim_matches('"')));
    let by_scheme = ["$scheme", "$https", "$server_port", "$http_x_forwarded_proto"]
        .iter()
        .any(|it| text.starts_with(it));
    is_redirect && (by_scheme || by_host.is_some_and(|it| server.names.hosts.contains(&it)))
}

/// `^/old$`
fn fixed(text: &str) -> Option<String> {
    let path = text.strip_prefix('^')?.strip_suffix('$')?.replace("\\/", "/");
    let plain = path.bytes().all(|it| it.is_ascii_alphanumeric() || b"/-_".contains(&it));
    (plain && path.starts_with('/')).then_some(path)
}

/// `return 301 https://$host$request_uri`: where to, and whether that is https at the same host. `None`: it is no redirect.
pub(super) fn redirect(it: &Directive, server: &Server<'_>) -> Result<Option<(Redirect, bool)>, String> {
    let (code, text) = match (&*it.name, it.args.as_slice()) {
        ("return", [text]) if text.contains("://") => (302, text.as_str()),
        ("return", [code, text]) if matches!(code.as_str(), "301" | "302" | "303" | "307" | "308") => {
            (code.parse().unwrap_or(302), text.as_str())
        }
        ("return", _) => {
            return Err(
                "Seaway sends no responses of its own but redirects and errors: have a backend send this one"
                    .to_owned(),
            );
        }
        ("rewrite", [from, to, flags @ ..]) => {
            let code = match flags.first().map(String::as_str) {
                Some("permanent") => 301,
                Some("redirect") => 302,
                _ if to.contains("://") => 302,
                _ => return Ok(None),
            };
            let all =
                matches!(from.as_str(), "^" | "^(.*)" | "^(.*)$" | "^/(.*)" | "^/(.*)$" | ".*" | "^.*$");
            if !all && fixed(from).is_none() {
                return Ok(None);
            }
            (code, to.as_str())
        }
        _ => return Ok(None),
    };
    let (scheme, rest) = match text.split_once("://") {
        Some(("http", rest)) => (Some("http"), rest),
        Some(("https", rest)) => (Some("https"), rest),
        Some(("$scheme", rest)) => (None, rest),
        Some(_) => return Err("the scheme of a redirect must be http, https or $scheme".to_owned()),
        None => {
            let to = Redirect { path: full(text)?, code, ..Redirect::default() };
            return Ok(Some((to, false)));
        }
    };
    let variables = ["$host", "$http_host", "$server_name"];
    let variable = variables.into_iter().find(|it| rest.starts_with(it));
    let end = match variable {
        Some(it) => it.len(),
        None => rest.find(['/', '$', ':']).unwrap_or(rest.len()),
    };
    let (name, after) = rest.split_at(end);
    let own: Vec<&Host> = server.names.hosts.iter().collect();
    let host = match (variable, own.as_slice()) {
        (Some("$server_name"), [Host::Exact(first), _, ..]) => Some(first.clone()),
        (Some(_), _) => None,
        (None, [Host::Exact(only)]) if only == name => None,
        (None, _) => match super::super::proxy::host(name) {
            Some(Host::Exact(name)) => Some(name),
            _ => return Err(format!("{name:?} is not a host name that Seaway can redirect to")),
        },
    };
    let (port, after) = match after.strip_prefix(':') {
        Some(rest) => {
            let rest = rest.strip_prefix("$server_port").unwrap_or(rest);
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            (rest.get(..digits).and_then(|it| it.parse().ok()), rest.get(digits..).unwrap_or_default())
        }
        None => (None, after),
    };
    let port = port.filter(|it| *it != 443 || scheme != Some("https"));
    let path = match after {
        "$request_uri" | "$request_uri?" | "$uri" | "$uri$is_args$args" | "/$request_uri" | "/$1" | "$1" => {
            None
        }
        "" => Some(Rewrite::Full("/".to_owned())),
        fixed => full(fixed)?,
    };
    let is_same = scheme == Some("https") && host.is_none() && port.is_none() && path.is_none();
    Ok(Some((Redirect { scheme, host, port, path, code }, is_same)))
}

fn full(text: &str) -> Result<Option<Rewrite>, String> {
    if text == "$request_uri" {
        return Ok(None);
    }
    if text.contains(['$', '?', '#']) || !text.starts_with('/') {
        return Err("Seaway redirects to a fixed path, or to the path of the request".to_owned());
    }
    Ok(Some(Rewrite::Full(text.to_owned())))
}
