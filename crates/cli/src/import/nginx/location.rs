//! Locations of a server, as routes in nginx's order: exact, `^~`, expressions, prefixes by length.

use super::{
    super::{
        expression,
        proxy::{Condition, PathRule, Redirect, Rewrite, Route, Target},
        write::{REST, escaped},
    },
    access::{access, both},
    context::{Context, Scopes},
    cover,
    headers::{SentHost, headers},
    judge_rest, order,
    parse::Directive,
    pass::{ProxyPass, pass, prefix_rewrite},
    server::{NO_CONDITIONS, Server, is_to_https, redirect},
    words::lets_pass,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Exact,
    Priority,
    Regex,
    Prefix,
    Named,
}

#[derive(Clone)]
pub(super) struct Location<'d> {
    pub(super) kind: Kind,
    pub(super) path: String,
    pub(super) any_case: bool,
    pub(super) scopes: Scopes<'d>,
    pub(super) directive: &'d Directive,
    /// Those around it, by their places in the list as it is collected.
    pub(super) inside: Vec<usize>,
    /// What is within it, or which location comes first, cannot be said.
    pub(super) closed: Option<String>,
}

/// What a location does with its requests.
enum Content {
    Route(Target, Option<Rewrite>, Option<String>),
    /// As `server` does it: to https, at the same host.
    ToHttps(u16),
    /// Requests are refused, for this reason.
    Refuse(String),
    Nothing,
}

/// All locations, those within others too, in nginx's order.
pub(super) fn locations<'d>(
    block: &'d [Directive],
    scopes: &Scopes<'d>,
    context: &mut Context,
) -> Vec<Location<'d>> {
    let mut found = Vec::new();
    collect(block, scopes, &[], context, &mut found);
    let mut found = order::settled(found, context);
    // Expressions within a location come before those of the server.
    found.sort_by_key(|it| {
        let length = if it.kind == Kind::Regex { 0 } else { it.path.len() };
        (it.kind, std::cmp::Reverse(length), std::cmp::Reverse(it.inside.len()))
    });
    found
}

fn collect<'d>(
    block: &'d [Directive],
    scopes: &Scopes<'d>,
    inside: &[usize],
    context: &mut Context,
    found: &mut Vec<Location<'d>>,
) {
    for it in block.iter().filter(|it| it.name == "location") {
        let Some(inner) = &it.block else { continue };
        context.report.translated(&it.place);
        let (sign, path) = match it.args.as_slice() {
            [path] => match path.strip_prefix("~*").or_else(|| path.strip_prefix('~')) {
                Some(rest) if !path.starts_with("^~") => {
                    (path.get(..path.len() - rest.len()).unwrap_or("~"), rest)
                }
                _ => match path.strip_prefix('=') {
                    Some(rest) => ("=", rest),
                    None => ("", path.as_str()),
                },
            },
            [sign, path, ..] => (sign.as_str(), path.as_str()),
            [] => ("", ""),
        };
        let kind = match sign {
            "=" => Kind::Exact,
            "^~" => Kind::Priority,
            "~" | "~*" => Kind::Regex,
            _ if path.starts_with('@') => Kind::Named,
            _ => Kind::Prefix,
        };
        if matches!(kind, Kind::Exact | Kind::Priority | Kind::Prefix) && !path.starts_with('/') {
            context.report.no_effect(
                &it.place,
                "the path of a location must begin with /: no request matches this one",
            );
            cover(inner, context);
            continue;
        }
        let scopes = scopes.within(inner);
        let around: Vec<usize> = inside.iter().copied().chain([found.len()]).collect();
        found.push(Location {
            kind,
            path: path.to_owned(),
            any_case: sign == "~*",
            scopes: scopes.clone(),
            directive: it,
            inside: inside.to_vec(),
            closed: None,
        });
        collect(inner, &scopes, &around, context, found);
    }
}

/// The routes of a server's locations.
pub(super) fn routes(server: &Server<'_>, locations: &[Location<'_>], context: &mut Context) -> Vec<Route> {
    let has_expressions = locations.iter().any(|it| it.kind == Kind::Regex);
    let mut routes = Vec::new();
    let mut spellings = order::Spellings::default();
    let https: Vec<bool> = locations.iter().map(|it| to_https(it, server, context)).collect();
    for (location, is_to_https) in locations.iter().zip(https) {
        read(location, context);
        if location.kind == Kind::Named {
            continue;
        }
        // nginx asks who may come in both, and takes the rest from the named one.
        let named = ends_in(location, locations);
        let scopes = named.map_or(&location.scopes, |it| &it.scopes);
        let mut access = access(&location.scopes, context);
        if named.is_some() {
            access = both(access, super::access::access(scopes, context));
        }
        let content = content(location, locations, server, context);
        let refused = matches!(content, Content::Refuse(_));
        let (target, rewrite, host, mut closed) = match content {
            Content::Route(target, rewrite, host) => (target, rewrite, host, access.closed),
            Content::ToHttps(code) => {
                // As the server decides whether another one answers there.
                let to = Redirect { scheme: Some("https"), code, ..Redirect::default() };
                (Target::Redirect(to), None, None, access.closed)
            }
            Content::Refuse(why) => (Target::Nothing, None, None, access.closed.or(Some(why))),
            Content::Nothing => (Target::Nothing, None, None, access.closed),
        };
        if !matches!(target, Target::Backends(_) | Target::Nothing) || refused {
            unasked(location, context);
        }
        if let Some(why) = location.closed.as_ref().or(named.and_then(|it| it.closed.as_ref())) {
            closed.get_or_insert_with(|| why.clone());
        }
        let headers = headers(scopes, &mut context.report);
        if matches!(target, Target::Backends(_)) && headers.closed.is_some() {
            closed = closed.or_else(|| headers.closed.clone());
        }
        let is_protected = closed.is_some() || !access.sources.is_empty();
        // Its requests must not go where the rest of the host goes.
        if target == Target::Nothing {
            if !is_protected {
                context.report.closed(&location.directive.place, NOT_SERVED);
            }
            closed.get_or_insert_with(|| NOT_SERVED.to_owned());
        }
        // A path that is matched by an expression keeps what it is.
        let is_replaced =
            location.kind == Kind::Priority && has_expressions && matches!(rewrite, Some(Rewrite::Prefix(_)));
        if is_replaced && closed.is_none() {
            let why = "cannot be given precedence over the regular-expression locations of this server, because it rewrites the path";
            context.report.closed(&location.directive.place, why);
            closed = Some(why.to_owned());
        }
        let is_protected = closed.is_some() || !access.sources.is_empty();
        let Some(path) = path(location, has_expressions, context) else { continue };
        if is_protected {
            let is_replaced = closed.is_none() && matches!(rewrite, Some(Rewrite::Prefix(_)));
            spellings.protect(location, &path, is_replaced);
        }
        let condition = Condition { path, ..Condition::default() };
        let mut route = Route::new(location.directive.place.clone(), condition, target);
        let is_forwarded = matches!(route.target, Target::Backends(_));
        route.rewrite = rewrite;
        if is_forwarded {
            route.request = headers.request;
            route.response = headers.response;
            route.rewrite_host = match headers.host {
                SentHost::Fixed(name) => Some(name),
                _ => host,
            };
        }
        (route.sources, route.closed, route.decodes) = (access.sources, closed, true);
        route.https = is_to_https.then_some(true);
        routes.push((route, headers.hsts));
    }
    let mut all = Vec::new();
    if let Some(which) = spellings.described() {
        let why = format!(
            "nginx compares decoded paths, and access to some paths is restricted here: requests with {which} get 403, and so do those with // in a restricted path"
        );
        context.report.differs(&server.directive.place, &why);
    }
    let refused = spellings.expressions();
    for text in refused {
        let condition = Condition { path: PathRule::Regex(text), ..Condition::default() };
        let mut route = Route::new(server.directive.place.clone(), condition, Target::Nothing);
        route.closed = Some("another spelling of a path with restricted access".to_owned());
        all.push(route);
    }
    for (route, hsts) in routes {
        if let Some(slash) = without_slash(&route, locations) {
            all.push(slash);
        }
        all.push(route);
        server.hsts.borrow_mut().push((all.len() - 1, hsts));
    }
    all
}

pub(super) const NOT_SERVED: &str = "the target of this location is not translated: requests for it get 403";

/// Whether an `if` of the location redirects requests without TLS to https.
fn to_https(location: &Location<'_>, server: &Server<'_>, context: &mut Context) -> bool {
    let mut found = false;
    for it in
        location.directive.block.iter().flatten().filter(|it| it.name == "if" && is_to_https(it, server))
    {
        context.report.differs(&it.place, "redirects with status 308, whatever code the line has");
        context.to_https.insert(it.place.clone());
        found = true;
    }
    found
}

/// nginx redirects `/shop` to `/shop/`, where that is a location which leads to a backend.
fn without_slash(route: &Route, locations: &[Location<'_>]) -> Option<Route> {
    let PathRule::Prefix(path) = &route.condition.path else { return None };
    let short = path.strip_suffix('/').filter(|it| !it.is_empty())?;
    let is_taken = locations.iter().any(|it| it.kind != Kind::Regex && it.path == short);
    if is_taken || route.is_protected() || !matches!(route.target, Target::Backends(_)) {
        return None;
    }
    let condition = Condition { path: PathRule::Exact(short.to_owned()), ..route.condition.clone() };
    let to = Redirect { path: Some(Rewrite::Full(path.clone())), code: 301, ..Redirect::default() };
    let mut route = Route { target: Target::Redirect(to), rewrite: None, ..route.clone() };
    route.condition = condition;
    (route.rewrite_host, route.request, route.response) = (None, Default::default(), Default::default());
    route.made = true;
    Some(route)
}

fn path(location: &Location<'_>, has_expressions: bool, context: &mut Context) -> Option<PathRule> {
    let path = location.path.clone();
    Some(match location.kind {
        Kind::Exact => PathRule::Exact(path),
        Kind::Regex => {
            PathRule::Regex(expression::decoded(&order::merged(&path).0, location.any_case, false))
        }
        Kind::Priority if has_expressions => {
            PathRule::Regex(format!("{}{REST}", order::merged(&escaped(&path)).0))
        }
        Kind::Priority | Kind::Prefix => {
            if path != "/" && !path.ends_with('/') {
                let why = format!("{path} is matched by whole segments: {path}x is not its path");
                context.report.differs(&location.directive.place, &why);
            }
            PathRule::Prefix(path)
        }
        Kind::Named => return None,
    })
}

/// Reports what stands in a location.
fn read(location: &Location<'_>, context: &mut Context) {
    let Some(block) = &location.directive.block else { return };
    judge_rest(
        block,
        &[
            "location",
            "return",
            "rewrite",
            "if",
            "try_files",
            "root",
            "alias",
            "proxy_pass",
            "grpc_pass",
            "proxy_redirect",
            "allow",
            "deny",
            "auth_basic",
            "internal",
        ],
        context,
    );
    for it in block {
        match (&*it.name, it.arg(0)) {
            ("allow" | "deny" | "auth_basic" | "internal", _) => context.report.translated(&it.place),
            ("proxy_redirect", "off" | "default") => {
                context
                    .report
                    .differs(&it.place, "Seaway passes Location on as the backend sends it, as with off");
            }
            ("proxy_redirect", _) => context.report.left_out(
                &it.place,
                "Seaway passes Location on as the backend sends it: tell the backend its public address",
            ),
            _ => {}
        }
    }
}

/// The named location that `try_files` ends in.
fn fallback<'l, 'd>(it: &Directive, all: &'l [Location<'d>]) -> Option<&'l Location<'d>> {
    let last = it.args.last().filter(|it| it.starts_with('@'))?;
    all.iter().find(|it| it.kind == Kind::Named && it.path == *last)
}

fn is_refusal(code: &str) -> bool {
    code.parse::<u16>().is_ok_and(|it| (400..600).contains(&it))
}

fn content(
    location: &Location<'_>,
    all: &[Location<'_>],
    server: &Server<'_>,
    context: &mut Context,
) -> Content {
    let block = location.directive.block.as_deref().unwrap_or_default();
    let mut content = Content::Nothing;
    let mut prefix = None;
    for it in block {
        let done = match &*it.name {
            // It answers, whatever stands below it.
            "return" if is_refusal(it.arg(0)) => {
                context.report.differs(&it.place, "requests get 403");
                return Content::Refuse(it.written());
            }
            "rewrite" if !is_of_all(it, location) && redirects(it) => return closed(it, PARTLY, context),
            "return" | "rewrite" => match redirect(it, server) {
                Ok(Some((to, true))) => {
                    context.report.translated(&it.place);
                    return Content::ToHttps(to.code);
                }
                Ok(Some((to, false))) => {
                    context.report.translated(&it.place);
                    return Content::Route(Target::Redirect(to), None, None);
                }
                Ok(None) => match prefix_rewrite(it, &location.path) {
                    Some(by) => {
                        context.report.translated(&it.place);
                        prefix = Some(by);
                        continue;
                    }
                    None => {
                        return closed(
                            it,
                            "Seaway replaces a prefix of the path, or all of it, by fixed text",
                            context,
                        );
                    }
                },
                Err(why) => return closed(it, &why, context),
            },
            // Those that rewrite or answer come first, wherever they stand.
            "proxy_pass" | "grpc_pass" => continue,
            "try_files" => match fallback(it, all) {
                Some(named) => {
                    context
                        .report
                        .differs(&it.place, "Seaway serves no files: all requests go to the named location");
                    let of = Location { kind: Kind::Prefix, path: location.path.clone(), ..named.clone() };
                    match of.directive.block.iter().flatten().any(|it| it.name == "try_files") {
                        true => closed(it, "the named location has try_files itself", context),
                        false => self::content(&of, all, server, context),
                    }
                }
                None => {
                    context.report.left_out(&it.place, FILES);
                    Content::Nothing
                }
            },
            "root" | "alias" => {
                let is_more = block
                    .iter()
                    .any(|it| matches!(&*it.name, "proxy_pass" | "grpc_pass" | "return" | "rewrite"));
                match is_more || block.iter().any(|it| it.name == "try_files" && fallback(it, all).is_some())
                {
                    true => context.report.no_effect(&it.place, "the location does not serve a file"),
                    false => context.report.left_out(&it.place, FILES),
                }
                continue;
            }
            "if" => {
                cover(it.block.as_deref().unwrap_or_default(), context);
                // Else access.rs says that it closes, or it is translated.
                if it.block.iter().flatten().all(lets_pass) {
                    context.report.left_out(&it.place, NO_CONDITIONS);
                }
                continue;
            }
            _ => continue,
        };
        if matches!(content, Content::Nothing) {
            content = done;
        }
    }
    match block.iter().find(|it| matches!(&*it.name, "proxy_pass" | "grpc_pass")) {
        Some(it) if fallback_of(block, all).is_none() && block.iter().any(|it| it.name == "try_files") => {
            closed(
                it,
                "try_files here forwards only requests whose file exists, and Seaway cannot check that",
                context,
            )
        }
        Some(it) if fallback_of(block, all).is_none() => forwarded(it, location, prefix, server, context),
        _ => content,
    }
}

const PARTLY: &str = "this line redirects only some paths of the location: write an HTTPRoute with RequestRedirect for these paths";

fn closed(it: &Directive, why: &str, context: &mut Context) -> Content {
    context.report.closed(&it.place, why);
    Content::Refuse(format!("{}: {why}", it.written()))
}

/// With `permanent` or `redirect`, or to another host.
fn redirects(it: &Directive) -> bool {
    matches!(it.arg(2), "permanent" | "redirect") || it.arg(1).contains("://")
}

/// Whether it takes each path of the location.
fn is_of_all(it: &Directive, location: &Location<'_>) -> bool {
    let all = ["^", "^(.*)", "^(.*)$", "^/(.*)", "^/(.*)$", ".*", "^.*$"];
    all.contains(&it.arg(0)) || (location.kind == Kind::Exact && it.arg(0) == format!("^{}$", location.path))
}

fn fallback_of<'l, 'd>(block: &[Directive], all: &'l [Location<'d>]) -> Option<&'l Location<'d>> {
    block.iter().filter(|it| it.name == "try_files").find_map(|it| fallback(it, all))
}

/// A backend below what answers gets no request.
fn unasked(location: &Location<'_>, context: &mut Context) {
    let block = location.directive.block.iter().flatten();
    for it in block.filter(|it| matches!(&*it.name, "proxy_pass" | "grpc_pass")) {
        context.report.no_effect(&it.place, "no effect: a return or rewrite of this location answers first");
    }
}

/// The named location that answers for this one.
fn ends_in<'l, 'd>(location: &Location<'d>, all: &'l [Location<'d>]) -> Option<&'l Location<'d>> {
    fallback_of(location.directive.block.as_deref().unwrap_or_default(), all)
}

const FILES: &str = "Seaway serves no files: let a backend serve them; until then these requests get 403";

fn forwarded(
    it: &Directive,
    location: &Location<'_>,
    prefix: Option<Rewrite>,
    server: &Server<'_>,
    context: &mut Context,
) -> Content {
    match pass(it, location, &server.name(&location.path), context) {
        Ok(ProxyPass { backend, rewrite, named, is_dns }) => {
            context.report.translated(&it.place);
            let rewrite = prefix.or(rewrite);
            if let (Some(Rewrite::Prefix(by)), false) = (&rewrite, location.path.ends_with('/'))
                && by == "/"
            {
                context.report.differs(&it.place, "the upstream gets /x; nginx would send //x");
            }
            let sent = headers(&location.scopes, &mut context.report).host;
            let host = (sent == SentHost::Backend && is_dns)
                .then(|| named.rsplit_once(':').map_or(named.clone(), |it| it.0.to_owned()));
            let host = host.filter(|it| super::super::proxy::host(it).is_some());
            if sent == SentHost::Backend && host.is_none() {
                let why = format!("members get the Host that the client sent; nginx sends them {named}");
                context.report.differs(&it.place, &why);
            }
            Content::Route(Target::Backends(vec![(backend, 1)]), rewrite, host)
        }
        Err(why) => {
            context.report.left_out(&it.place, &why);
            Content::Nothing
        }
    }
}
