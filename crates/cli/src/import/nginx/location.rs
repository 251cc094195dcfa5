//! Locations of a server, as routes in nginx's order: exact, `^~`, expressions, prefixes by length.

use super::{
    super::{
        expression,
        proxy::{Condition, PathRule, Redirect, Rewrite, Route, Target},
        write::{REST, escaped},
    },
    access::access,
    context::{Context, Scopes},
    cover,
    headers::{SentHost, headers},
    judge_rest,
    parse::Directive,
    pass::{Pass, pass},
    server::{Server, redirect},
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
    any_case: bool,
    pub(super) scopes: Scopes<'d>,
    pub(super) directive: &'d Directive,
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
    collect(block, scopes, context, &mut found);
    found.sort_by_key(|it| {
        let length = if it.kind == Kind::Regex { 0 } else { it.path.len() };
        (it.kind, std::cmp::Reverse(length))
    });
    found
}

fn collect<'d>(
    block: &'d [Directive],
    scopes: &Scopes<'d>,
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
        let scopes = scopes.within(inner);
        collect(inner, &scopes, context, found);
        found.push(Location { kind, path: path.to_owned(), any_case: sign == "~*", scopes, directive: it });
    }
}

/// The routes of a server's locations.
pub(super) fn routes(server: &Server<'_>, locations: &[Location<'_>], context: &mut Context) -> Vec<Route> {
    let has_expressions = locations.iter().any(|it| it.kind == Kind::Regex);
    let mut routes = Vec::new();
    let mut refuses_by_expression = false;
    for location in locations {
        read(location, context);
        if location.kind == Kind::Named {
            continue;
        }
        let access = access(&location.scopes, &mut context.report);
        let content = content(location, locations, server, context);
        let (target, rewrite, host) = match content {
            Content::Route(target, rewrite, host) => (target, rewrite, host),
            Content::ToHttps(code) => {
                // As the server decides whether another one answers there.
                let to = Redirect { scheme: Some("https"), code, ..Redirect::default() };
                (Target::Redirect(to), None, None)
            }
            Content::Refuse(_) | Content::Nothing => (Target::Nothing, None, None),
        };
        let mut closed = access.closed;
        if let Content::Refuse(why) = content_reason(location) {
            closed.get_or_insert(why);
        }
        let is_protected = closed.is_some() || !access.sources.is_empty();
        if target == Target::Nothing && !is_protected {
            continue;
        }
        if target == Target::Nothing {
            closed.get_or_insert_with(|| "what it leads to is not translated".to_owned());
        }
        // A path that is matched by an expression keeps what it is.
        let is_replaced =
            location.kind == Kind::Priority && has_expressions && matches!(rewrite, Some(Rewrite::Prefix(_)));
        if is_replaced && is_protected && closed.is_none() {
            let why = "an HTTPRoute cannot put it before the expressions of the server, because its path is replaced";
            context.report.closed(&location.directive.place, why);
            closed = Some(why.to_owned());
        }
        let as_prefix = is_replaced && closed.is_none();
        if as_prefix {
            context.report.differs(
                &location.directive.place,
                "expressions of the server come before it, because its path is replaced",
            );
        }
        let Some(path) = path(location, has_expressions && !as_prefix, locations, context) else { continue };
        refuses_by_expression |= location.kind == Kind::Regex && is_protected;
        let headers = headers(&location.scopes, &mut context.report);
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
        routes.push((route, headers.hsts));
    }
    let mut all = Vec::new();
    if refuses_by_expression {
        let path = PathRule::Regex(expression::needless_escapes());
        let place = server.directive.place.clone();
        context.report.differs(
            &place,
            "an expression protects paths here, and nginx compares decoded paths: requests with %-escapes of letters, digits, \".\" or \"/\" in their paths get 403",
        );
        let mut route = Route::new(place, Condition { path, ..Condition::default() }, Target::Nothing);
        route.closed = Some("another spelling of a path that is protected".to_owned());
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

fn path(
    location: &Location<'_>,
    has_expressions: bool,
    all: &[Location<'_>],
    context: &mut Context,
) -> Option<PathRule> {
    let path = location.path.clone();
    Some(match location.kind {
        Kind::Exact => PathRule::Exact(path),
        Kind::Regex => PathRule::Regex(expression::whole(&path, location.any_case, true)),
        Kind::Priority if has_expressions => {
            let is_within = |it: &&Location<'_>| {
                it.kind == Kind::Prefix && it.path.len() > path.len() && it.path.starts_with(&path)
            };
            if let Some(inner) = all.iter().find(is_within) {
                context.report.differs(&inner.directive.place, "the location ^~ around it gets its requests");
            }
            PathRule::Regex(format!("{}{REST}", escaped(&path)))
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

/// Refusals need no look at the rest.
fn content_reason(location: &Location<'_>) -> Content {
    let block = location.directive.block.as_deref().unwrap_or_default();
    let refused = block.iter().find(|it| it.name == "return" && is_refusal(it.arg(0)));
    refused.map_or(Content::Nothing, |it| Content::Refuse(it.written()))
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
            "return" if is_refusal(it.arg(0)) => {
                context.report.differs(&it.place, "requests get 403");
                Content::Refuse(it.written())
            }
            "return" | "rewrite" => match redirect(it, server) {
                Ok(Some((to, true))) => {
                    context.report.translated(&it.place);
                    Content::ToHttps(to.code)
                }
                Ok(Some((to, false))) => {
                    context.report.translated(&it.place);
                    Content::Route(Target::Redirect(to), None, None)
                }
                Ok(None) => {
                    match prefix_rewrite(it, &location.path) {
                        Some(by) => {
                            context.report.translated(&it.place);
                            prefix = Some(by);
                            continue;
                        }
                        None => context.report.left_out(
                            &it.place,
                            "Seaway replaces a prefix of the path, or all of it, by fixed text",
                        ),
                    }
                    return Content::Nothing;
                }
                Err(why) => {
                    context.report.left_out(&it.place, &why);
                    return Content::Nothing;
                }
            },
            "proxy_pass" | "grpc_pass" => return forwarded(it, location, prefix, server, context),
            "try_files" => match fallback(it, all) {
                Some(named) => {
                    context
                        .report
                        .differs(&it.place, "Seaway serves no files: all requests go to the named location");
                    let inner = named.directive.block.as_deref().unwrap_or_default();
                    match inner.iter().find(|it| matches!(&*it.name, "proxy_pass" | "grpc_pass")) {
                        Some(it) => {
                            return forwarded(
                                it,
                                &Location {
                                    kind: Kind::Prefix,
                                    path: location.path.clone(),
                                    ..named.clone()
                                },
                                None,
                                server,
                                context,
                            );
                        }
                        None => Content::Nothing,
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
                    true => context.report.no_effect(&it.place, "what the location serves is not a file"),
                    false => context.report.left_out(&it.place, FILES),
                }
                continue;
            }
            "if" => {
                cover(it.block.as_deref().unwrap_or_default(), context);
                context.report.left_out(&it.place, "Seaway has no conditions: an HTTPRoute matches host, path, method, headers and query (docs/manifests.md)");
                continue;
            }
            _ => continue,
        };
        if matches!(content, Content::Nothing) {
            content = done;
        }
    }
    content
}

const FILES: &str = "Seaway serves no files: let a backend serve them; until then these requests go where the rest of the host goes, or get 404";

fn forwarded(
    it: &Directive,
    location: &Location<'_>,
    prefix: Option<Rewrite>,
    server: &Server<'_>,
    context: &mut Context,
) -> Content {
    match pass(it, location, &server.name(&location.path), context) {
        Ok(Pass { backend, rewrite, named, is_dns }) => {
            context.report.translated(&it.place);
            let rewrite = prefix.or(rewrite);
            if let (Some(Rewrite::Prefix(by)), false) = (&rewrite, location.path.ends_with('/'))
                && by == "/"
            {
                context.report.differs(&it.place, "nginx makes //x of the path here, and Seaway /x");
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

/// `rewrite ^/shop/(.*)$ /$1 break;` in `location /shop/`.
fn prefix_rewrite(it: &Directive, path: &str) -> Option<Rewrite> {
    if it.name != "rewrite" || it.arg(2) != "break" {
        return None;
    }
    let from = it.arg(0).strip_prefix('^')?;
    let from = from.strip_suffix('$').unwrap_or(from);
    let found = from.strip_suffix("(.*)").map(|it| (it, false));
    let (before, slash) = found.or_else(|| from.strip_suffix("(/.*)").map(|it| (it, true)))?;
    let before = before.trim_end_matches('?').replace("\\/", "/").replace("\\.", ".");
    if before.trim_end_matches('/') != path.trim_end_matches('/') || before.contains(['(', '[', '\\']) {
        return None;
    }
    let to = it.arg(1).strip_suffix("$1")?;
    let is_whole = if slash { !to.ends_with('/') } else { to.ends_with('/') };
    let by = to.trim_end_matches('/');
    (is_whole && !by.contains(['$', '?']))
        .then(|| Rewrite::Prefix(if by.is_empty() { "/".to_owned() } else { by.to_owned() }))
}
