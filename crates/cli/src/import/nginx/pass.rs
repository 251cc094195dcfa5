//! `proxy_pass`: which backend, and what becomes of the path.

use super::{
    super::proxy::{Backend, Rewrite, no_backend, service_name},
    context::{Context, Scopes},
    location::{Kind, Location},
    parse::Directive,
    upstream::{NO_SERVERS, Upstream, member, upstream},
};

/// Where a location leads.
#[derive(Debug)]
pub(super) struct ProxyPass {
    pub(super) backend: usize,
    pub(super) rewrite: Option<Rewrite>,
    /// The name that nginx sends to the backend in `Host`, if nothing else is said.
    pub(super) named: String,
    /// It is a name of DNS, not that of an upstream.
    pub(super) is_dns: bool,
}

/// `Err`: why it cannot be said.
pub(super) fn pass(
    it: &Directive,
    location: &Location<'_>,
    name: &str,
    context: &mut Context,
) -> Result<ProxyPass, String> {
    let written = &*constants(it.arg(0), &location.scopes);
    let (scheme, rest) = written.split_once("://").unwrap_or(("", written));
    let end = rest.find('/').unwrap_or(rest.len());
    let (at, path) = rest.split_at(end);
    if at.contains('$') {
        return Err("Seaway has no variables: name the backend".to_owned());
    }
    let is_tls = matches!(scheme, "https" | "grpcs");
    let (app_protocol, port) = match scheme {
        "http" => (None, 80),
        "https" => (Some("https"), 443),
        "grpc" => (Some("grpc"), 80),
        "grpcs" => (Some("grpcs"), 443),
        "" if it.name == "grpc_pass" => (Some("grpc"), 80),
        _ => return Err(format!("{written:?} is not http:// or https:// with a backend")),
    };
    let known = context.upstreams.get(at).and_then(|it| it.block.clone());
    let is_upstream = known.is_some();
    let Upstream { members, mut annotations } = match known {
        Some(block) => upstream(&block, Some(80), context),
        None => Upstream { members: member(at, Some(port)).into_iter().collect(), ..Upstream::default() },
    };
    if members.is_empty() {
        return Err(if is_upstream { NO_SERVERS } else { no_backend(at) }.to_owned());
    }
    annotations.extend(super::headers::terms(&location.scopes, context));
    if is_tls {
        annotations.extend(verification(&location.scopes, at, context));
    }
    let is_address = at.trim_start_matches('[').starts_with(|it: char| it.is_ascii_digit() || it == ':')
        || at.starts_with("localhost");
    let named = if is_upstream || !is_address { service_name(at) } else { name.to_owned() };
    let backend = context.proxy.backend(Backend {
        name: named,
        members,
        app_protocol,
        annotations,
        ..Backend::default()
    });
    let rewrite = rewrite(path, location)?;
    Ok(ProxyPass { backend, rewrite, named: at.to_owned(), is_dns: !is_upstream && !is_address })
}

/// A text with what `set` says of its variables: `set $app shop;` is how names are resolved while nginx runs. A variable stays
/// where its value is not the same for all requests.
fn constants(text: &str, scopes: &Scopes<'_>) -> String {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        made.push_str(before);
        let is_letter = |it: char| it == '_' || it.is_ascii_alphanumeric();
        let braced = after.strip_prefix('{').and_then(|it| it.split_once('}'));
        let (name, behind) =
            braced.unwrap_or_else(|| after.split_at(after.find(|it| !is_letter(it)).unwrap_or(after.len())));
        match constant(name, scopes) {
            Some(value) => made.push_str(value),
            None => made.push_str(&format!("${{{name}}}")),
        }
        rest = behind;
    }
    made.push_str(rest);
    made
}

fn constant<'d>(name: &str, scopes: &Scopes<'d>) -> Option<&'d str> {
    let sets = |it: &Directive| it.name == "set" && it.arg(0).strip_prefix('$') == Some(name);
    let may_be_other = |it: &Directive| it.name == "if" && it.block.iter().flatten().any(sets);
    if scopes.everywhere().any(may_be_other) {
        return None;
    }
    scopes.last(sets).map(|it| it.arg(1)).filter(|it| !it.contains('$'))
}

fn verification(scopes: &Scopes<'_>, at: &str, context: &mut Context) -> Vec<(&'static str, String)> {
    let mut said = Vec::new();
    if scopes.argument("proxy_ssl_verify") != "on" {
        said.push(("backend-tls-verify", "off".to_owned()));
    } else if let Some(it) = scopes.one("proxy_ssl_trusted_certificate") {
        context.report.left_out(
            &it.place,
            "members have to be signed by a CA of this machine: put the file into a Secret, and name that in seaway.dev/backend-tls-authorities",
        );
    }
    let name = match scopes.argument("proxy_ssl_name") {
        "" | "$proxy_host" | "$host" => at.rsplit_once(':').map_or(at, |it| it.0),
        name => name,
    };
    if super::super::proxy::host(name).is_some()
        && name.contains(|it: char| it.is_ascii_alphabetic())
        && name.contains('.')
    {
        said.push(("backend-tls-name", name.to_owned()));
    }
    said
}

/// What replaces the part of the path that the location matches.
fn rewrite(uri: &str, location: &Location<'_>) -> Result<Option<Rewrite>, String> {
    if uri.is_empty() {
        return Ok(None);
    }
    if uri.contains(['$', '?']) {
        return Err("Seaway replaces a prefix of the path by fixed text alone".to_owned());
    }
    let path = location.path.as_str();
    match location.kind {
        Kind::Exact => Ok((uri != path).then(|| Rewrite::Full(uri.to_owned()))),
        Kind::Prefix | Kind::Priority if uri == path => Ok(None),
        Kind::Prefix | Kind::Priority if path.ends_with('/') && !uri.ends_with('/') && uri != "/" => {
            Err(format!(
                "location and proxy_pass differ in their trailing slash, so {path}x would be sent as {uri}x: end both with /, or neither"
            ))
        }
        Kind::Prefix | Kind::Priority => {
            let by = uri.trim_end_matches('/');
            Ok(Some(Rewrite::Prefix(if by.is_empty() { "/".to_owned() } else { by.to_owned() })))
        }
        Kind::Regex | Kind::Named => Err("proxy_pass may not have a path in a named or regular-expression \
                                          location (nginx refuses that, too)"
            .to_owned()),
    }
}

/// `rewrite ^/shop/(.*)$ /$1 break;` in `location /shop/`.
pub(super) fn prefix_rewrite(it: &Directive, path: &str) -> Option<Rewrite> {
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
