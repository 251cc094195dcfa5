//! Annotations of an Ingress: of ingress-nginx each by its name, of others whether they protect.

use std::collections::BTreeMap;

use seaway_plan::quantity::network;

use super::{
    super::{
        nginx::may_refuse,
        proxy::{Host, Redirect, Rewrite, host},
        report::DirectiveLocation,
    },
    Context,
    objects::{Object, scalar},
};

/// What annotations say of all routes of an Ingress.
#[derive(Debug, Default)]
pub(super) struct Options {
    /// Of the Services that it leads to.
    pub(super) service: BTreeMap<&'static str, String>,
    pub(super) sources: Vec<String>,
    pub(super) closed: Option<String>,
    /// `None`: where there is a certificate.
    pub(super) https: Option<bool>,
    pub(super) rewrite: Option<String>,
    pub(super) by_expression: bool,
    pub(super) redirect: Option<Redirect>,
    pub(super) root: Option<String>,
    pub(super) aliases: Vec<Host>,
    pub(super) sent_host: Option<String>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) passthrough: bool,
    /// It counts at all paths of its hosts, of any Ingress, for this reason.
    pub(super) of_host: Option<&'static str>,
    /// Requests for `www.HOST` are redirected to `HOST`, or the other way round.
    pub(super) www: bool,
    /// Names that cannot be written.
    pub(super) lost: Vec<String>,
}

const SNIPPET: &str = "has a server-snippet, which is for all paths of this host";

/// Parts of names of annotations that may say who can connect.
const SAYS_WHO: [&str; 7] = ["whitelist", "allow", "deny", "cidr", "auth", "source-range", "blacklist"];

/// Whether it only takes a part of the requests of another Ingress.
pub(super) fn is_canary(object: &Object<'_>) -> bool {
    let is_it = |key: &str| key.strip_prefix(OURS) == Some("canary");
    object.annotations().iter().any(|it| is_it(&it.key) && scalar(&it.value).as_deref() == Some("true"))
}

pub(super) const OURS: &str = "nginx.ingress.kubernetes.io/";

const NO_EFFECT: &str = "proxy-buffering proxy-buffers-number proxy-buffer-size proxy-busy-buffers-size proxy-max-temp-file-size \
    proxy-request-buffering proxy-http-version proxy-next-upstream proxy-next-upstream-tries proxy-next-upstream-timeout service-upstream \
    enable-access-log enable-rewrite-log connection-proxy-header preserve-trailing-slash client-body-buffer-size ssl-ciphers \
    ssl-prefer-server-ciphers enable-opentelemetry enable-opentracing opentracing-trust-incoming-span session-cookie-path \
    session-cookie-hash affinity-mode \
    session-cookie-change-on-failure affinity-canary-behavior \
    proxy-ssl-protocols proxy-ssl-ciphers proxy-ssl-server-name websocket-services http2-push-preload use-port-in-redirects \
    proxy-redirect-from proxy-redirect-to disable-proxy-intercept-errors load-balance";

const PROTECTS: &str = "auth-url auth-signin auth-type auth-secret auth-secret-type auth-realm auth-method auth-snippet \
    auth-tls-secret auth-tls-verify-client auth-tls-verify-depth auth-tls-error-page auth-tls-match-cn \
    auth-tls-pass-certificate-to-upstream auth-response-headers auth-cache-key auth-cache-duration auth-proxy-set-headers \
    auth-signin-redirect-param auth-always-set-cookie auth-keepalive auth-keepalive-requests auth-keepalive-timeout auth-request-redirect \
    enable-global-auth limit-connections limit-rps limit-rpm limit-burst-multiplier limit-allowlist limit-whitelist limit-req-status-code \
    global-rate-limit global-rate-limit-window global-rate-limit-key global-rate-limit-ignored-cidrs denylist-source-range \
    enable-modsecurity enable-owasp-core-rules modsecurity-snippet modsecurity-transaction-id satisfy";

pub(super) fn options(object: &Object<'_>, context: &mut Context<'_>) -> Options {
    let mut options = Options::default();
    for (nth, entry) in (1_u32..).zip(object.annotations()) {
        let place = DirectiveLocation { file: object.place.file.clone(), line: entry.at.line, nth };
        let value = scalar(&entry.value).unwrap_or_default();
        context.report.expect(&place, &format!("{}: {value}", entry.key));
        match entry.key.strip_prefix(OURS) {
            Some(name) => of_nginx(name, value.trim(), &place, &mut options, context),
            None => of_others(&entry.key, value.trim(), &place, &mut options, context),
        }
    }
    options
}

fn of_nginx(
    name: &str,
    value: &str,
    place: &DirectiveLocation,
    options: &mut Options,
    context: &mut Context<'_>,
) {
    let has = |list: &str| list.split_whitespace().any(|it| it == name);
    let report = &mut context.report;
    let yes = ["1", "t", "true"].contains(&&*value.to_ascii_lowercase());
    report.translated(place);
    match name {
        "ssl-redirect" => options.https = options.https.filter(|it| *it).or((!yes).then_some(false)),
        "force-ssl-redirect" => options.https = yes.then_some(true).or(options.https),
        "rewrite-target" => options.rewrite = Some(value.to_owned()),
        "use-regex" => options.by_expression = yes,
        "whitelist-source-range" | "allowlist-source-range" => {
            let networks: Vec<&str> = value.split(',').map(str::trim).filter(|it| !it.is_empty()).collect();
            match networks.iter().all(|it| network(it).is_ok()) && !networks.is_empty() {
                true => options.sources = networks.into_iter().map(str::to_owned).collect(),
                false => {
                    report.closed(place, "the annotation has a network that is not valid");
                    options.closed.get_or_insert_with(|| name.to_owned());
                }
            }
        }
        "proxy-body-size" => match size(value) {
            Some(size) => drop(options.service.insert("max-body-size", size)),
            None => report.left_out(place, "this is not a size"),
        },
        "proxy-connect-timeout" | "proxy-read-timeout" | "proxy-send-timeout" => match value.trim_end_matches('s').parse::<u64>() {
            Ok(seconds) if seconds > 0 => {
                let key = if name == "proxy-connect-timeout" { "timeout-connect" } else { "timeout-answer" };
                let known = options.service.get(key).and_then(|it| it.trim_end_matches('s').parse().ok()).unwrap_or(0);
                options.service.insert(key, format!("{}s", seconds.max(known)));
            }
            _ => report.left_out(place, "this is not a number of seconds"),
        },
        "affinity" if value == "cookie" => {
            options.service.entry("sticky-cookie").or_insert_with(|| "INGRESSCOOKIE".to_owned());
        }
        "session-cookie-name" => drop(options.service.insert("sticky-cookie", value.to_owned())),
        "session-cookie-samesite" if value.eq_ignore_ascii_case("lax") => report.no_effect(place, "Seaway's cookie has SameSite=Lax"),
        "session-cookie-samesite" => report.left_out(place, "Seaway's cookie has SameSite=Lax: browsers do not send it from frames of other sites (None would), and send it when a link of another site is followed (Strict would not)"),
        "session-cookie-conditional-samesite-none" => report.left_out(place, "Seaway's cookie has SameSite=Lax for all clients"),
        "session-cookie-max-age" | "session-cookie-expires" => report.left_out(place, "Seaway's cookie ends with the browser's session, and a client may get another member then"),
        "session-cookie-domain" => report.left_out(place, "Seaway's cookie has no Domain attribute: browsers send it to the host of the request only"),
        "session-cookie-secure" => report.differs(place, "Seaway's cookie is Secure where the request came by TLS"),
        "backend-protocol" => match value.to_ascii_uppercase().as_str() {
            "HTTP" | "AUTO_HTTP" => {}
            "HTTPS" => {
                options.service.insert("backend-tls", "true".to_owned());
                options.service.entry("backend-tls-verify").or_insert_with(|| "off".to_owned());
            }
            "GRPC" => report.left_out(place, "write appProtocol: grpc at the port of the Service"),
            "GRPCS" => report.left_out(place, "write appProtocol: grpcs at the port of the Service"),
            _ => report.left_out(place, "Seaway speaks only HTTP and gRPC to members"),
        },
        "proxy-ssl-verify" if value == "on" => drop(options.service.insert("backend-tls-verify", "on".to_owned())),
        "proxy-ssl-verify" => {}
        "proxy-ssl-name" => drop(options.service.insert("backend-tls-name", value.to_owned())),
        "proxy-ssl-secret" => report.left_out(place, "name the Secret with ca.crt in seaway.dev/backend-tls-authorities of the Service; Seaway shows members no certificate"),
        "upstream-hash-by" if matches!(value, "$remote_addr" | "$binary_remote_addr") => {
            options.service.insert("balance", "source-hash".to_owned());
        }
        "upstream-hash-by" => report.left_out(place, "Seaway can hash only the client's address; to use that, set seaway.dev/balance: source-hash"),
        "permanent-redirect" | "temporal-redirect" => {
            let usual = if name == "permanent-redirect" { 301 } else { 302 };
            match redirect(value, usual) {
                Some(to) => options.redirect = Some(to),
                None => {
                    report.closed(place, "Seaway redirects to a fixed host and path: requests get 403");
                    options.closed.get_or_insert_with(|| name.to_owned());
                }
            }
        }
        "permanent-redirect-code" | "temporal-redirect-code" => report.left_out(place, "write statusCode at the RequestRedirect of the HTTPRoute"),
        "app-root" if value.starts_with('/') => options.root = Some(value.to_owned()),
        "app-root" => {
            report.closed(place, "Seaway redirects to a path of the host: requests get 403");
            options.closed.get_or_insert_with(|| name.to_owned());
        }
        "server-alias" => {
            for name in value.split([',', ' ']).filter(|it| !it.is_empty()) {
                match host(name) {
                    Some(host) => options.aliases.push(host),
                    None => {
                        report.left_out(place, "Seaway does not support this form of a host name: write one such as shop.example or *.shop.example");
                        options.lost.push(name.to_owned());
                    }
                }
            }
        }
        "upstream-vhost" if host(value).is_some_and(|it| matches!(it, Host::Exact(_))) => options.sent_host = Some(value.to_owned()),
        "x-forwarded-prefix" => options.headers.push(("X-Forwarded-Prefix".to_owned(), value.to_owned())),
        "ssl-passthrough" => options.passthrough = yes,
        "from-to-www-redirect" => options.www = yes,
        "configuration-snippet" | "server-snippet" | "stream-snippet" => {
            match may_refuse(value) {
                Some(what) => {
                    report.closed(place, &format!("this snippet may restrict access, or send requests elsewhere ({what}), and \
                         Seaway does not read nginx configuration in annotations"));
                    options.closed.get_or_insert_with(|| name.to_owned());
                    if name == "server-snippet" {
                        options.of_host = Some(SNIPPET);
                    }
                }
                None => report.left_out(place, "Seaway does not read nginx's language in annotations: an HTTPRoute sets headers (docs/http.md)"),
            }
        }
        _ if name.starts_with("canary") => report.left_out(place, "write an HTTPRoute with weights or header matches (docs/manifests.md)"),
        _ if name.starts_with("cors-") || name == "enable-cors" => report.left_out(place, "write an HTTPRoute with the filter CORS (docs/manifests.md)"),
        _ if has(PROTECTS) => {
            report.closed(place, if name.contains("limit") {
                "rate limits are not imported, so the route is closed (403): set seaway.dev/requests-per-second-per-client, then remove seaway.dev/source-ranges"
            } else if name == "denylist-source-range" {
                "deny lists are not imported, so the route is closed (403): list these networks in seaway.dev/denied-source-ranges, then remove seaway.dev/source-ranges"
            } else if name.starts_with("auth-tls-") {
                "client certificates are not imported, so the host is closed (403): set frontDoor.tls.clients in seaway.yaml, which is for all hosts, then remove seaway.dev/source-ranges"
            } else {
                "authentication is not imported, so the route is closed (403): set seaway.dev/basic-auth or seaway.dev/forward-auth, then remove seaway.dev/source-ranges"
            });
            if name.starts_with("auth-tls-") {
                options.of_host = Some("requires client certificates for this host");
            }
            options.closed.get_or_insert_with(|| name.to_owned());
        }
        _ if has(NO_EFFECT) => report.no_effect(place, "Seaway does this without a setting, or does not need it"),
        _ if SAYS_WHO.iter().any(|it| name.contains(it)) => {
            report.closed(place, "Seaway does not know this annotation, which may restrict who can connect");
            options.closed.get_or_insert_with(|| name.to_owned());
        }
        _ if value == "false" => report.no_effect(place, "this turns off something that Seaway never does"),
        _ => report.left_out(place, "Seaway has no counterpart"),
    }
}

fn of_others(
    key: &str,
    value: &str,
    place: &DirectiveLocation,
    options: &mut Options,
    context: &mut Context<'_>,
) {
    let report = &mut context.report;
    let of_ingress = [
        "ingress",
        "haproxy.org",
        "traefik",
        "alb.",
        "appgw",
        "konghq",
        "istio",
        "contour",
        "nginx.org",
        "nginx.com",
    ];
    if !of_ingress.iter().any(|it| key.contains(it))
        || key == "kubernetes.io/ingress.class"
        || key.starts_with("cert-manager.io/")
    {
        let is_of_certificates = key.split('/').next().is_some_and(|it| it.ends_with("cert-manager.io"));
        if !is_of_certificates && SAYS_WHO.iter().any(|it| key.to_ascii_lowercase().contains(it)) {
            report.closed(place, "Seaway does not know this annotation, which may restrict who can connect");
            options.closed.get_or_insert_with(|| key.to_owned());
            return;
        }
        return report.no_effect(place, "this annotation is for another program");
    }
    let protects = [
        "auth",
        "allow",
        "deny",
        "whitelist",
        "middleware",
        "limit",
        "jwt",
        "waf",
        "polic",
        "plugins",
        "snippet",
        "rate",
    ];
    let lower = key.to_ascii_lowercase();
    let is_internal = lower.ends_with("/scheme") && value == "internal";
    match is_internal || protects.iter().chain(&SAYS_WHO).any(|it| lower.contains(it)) {
        true => {
            report.closed(
                place,
                "this annotation may restrict access, and Seaway reads only annotations of ingress-nginx",
            );
            options.closed.get_or_insert_with(|| key.to_owned());
            if lower.contains("server-snippet") {
                options.of_host = Some(SNIPPET);
            }
        }
        false => report.left_out(place, "Seaway reads annotations of ingress-nginx alone"),
    }
}

/// `8m` is `8Mi`.
fn size(text: &str) -> Option<String> {
    let digits = text.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G']);
    digits.parse::<u64>().ok()?;
    Some(match text.get(digits.len()..)? {
        "" => digits.to_owned(),
        unit => format!("{digits}{}i", unit.to_ascii_uppercase()),
    })
}

fn redirect(url: &str, code: u16) -> Option<Redirect> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = ["http", "https"].into_iter().find(|it| *it == scheme)?;
    let (name, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let name = host(name).filter(|it| matches!(it, Host::Exact(_)))?.written();
    if path.contains(['$', '?', '#']) {
        return None;
    }
    let path = Rewrite::Full(if path.is_empty() { "/".to_owned() } else { path.to_owned() });
    Some(Redirect { scheme: Some(scheme), host: Some(name), port: None, path: Some(path), code })
}
