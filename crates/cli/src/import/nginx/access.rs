//! Who may ask: what Seaway can say too, and what closes a location.

use std::{collections::BTreeSet, net::IpAddr};

use seaway_plan::quantity::network;

use super::{
    super::report::Report,
    context::{Context, Scopes},
    parse::Directive,
    words::{ends_nothing, lets_pass, protects},
};

/// Who may ask.
#[derive(Debug, Default)]
pub(super) struct Access {
    /// Empty: everyone.
    pub(super) sources: Vec<String>,
    pub(super) closed: Option<String>,
}

const AUTHENTICATION: &str = "passwords are not imported, so the route is closed (403): set seaway.dev/basic-auth, then remove seaway.dev/source-ranges; or restrict networks with allow and deny";

pub(super) fn access(scopes: &Scopes<'_>, context: &mut Context) -> Access {
    let trusted: BTreeSet<String> = context.proxy.door.trusted.iter().cloned().collect();
    let Context { report, unread, to_https, .. } = context;
    let mut access = networks(scopes, report);
    let any = scopes.argument("satisfy") == "any" && !access.sources.is_empty();
    let mut close = |why: String| {
        access.closed.get_or_insert(why);
    };
    for it in scopes.all(&["auth_basic"]).into_iter().filter(|it| it.arg(0) != "off") {
        match any {
            // Less than nginx allows, and no more.
            true => report.left_out(
                &it.place,
                "satisfy any: only the networks of allow are let in; passwords are not imported",
            ),
            false => {
                report.closed(&it.place, AUTHENTICATION);
                close(format!("{}: {AUTHENTICATION}", it.written()));
            }
        }
    }
    for it in scopes.everywhere() {
        if let Some(why) = protects(it)
            && is_in_force(scopes, &it.name, it)
            && !ends_nothing(it, scopes.block_of(it))
        {
            report.closed(&it.place, why);
            close(format!("{}: {why}", it.written()));
        }
        // What is in it is not known.
        if it.name == "include" && unread.contains(&it.place) && may_protect(it, scopes) {
            let why = "the block could not be read completely, and it may restrict who can connect";
            report.closed(&it.place, why);
            close(format!("include {}: {why}", it.arg(0)));
        }
        // A condition that refuses, or sends requests elsewhere.
        if it.name == "if" && !to_https.contains(&it.place) && !it.block.iter().flatten().all(lets_pass) {
            let why =
                "Seaway does not refuse, redirect or select backends by variables; let the backend do it";
            report.closed(&it.place, why);
            close(format!("{}: {why}", it.written()));
        }
    }
    if let Some(it) = scopes.one("internal").filter(|_| scopes.everywhere().any(|it| it.name == "internal")) {
        report.differs(&it.place, "requests get 403 instead of 404; Seaway does not follow X-Accel-Redirect");
        close("internal".to_owned());
    }
    // nginx compares networks with the address that the header names, if a proxy sent it that is believed.
    if let (Some(it), false) = (scopes.one("set_real_ip_from"), access.sources.is_empty())
        && believed(scopes).is_none_or(|it| it != trusted)
    {
        let why = "Seaway would take the client address from other proxies or another header than nginx, so the networks of \
                   allow and deny would match other clients";
        report.closed(&it.place, why);
        access.closed.get_or_insert_with(|| why.to_owned());
    }
    access
}

/// Both have to let a request in.
pub(super) fn both(one: Access, two: Access) -> Access {
    let mut closed = one.closed.or(two.closed);
    let sources = match (one.sources.is_empty(), two.sources.is_empty()) {
        (true, _) => two.sources,
        (_, true) => one.sources,
        _ => {
            if one.sources != two.sources {
                closed.get_or_insert_with(|| {
                    "two allow lists apply to this request, and Seaway evaluates one: closed (403)".to_owned()
                });
            }
            one.sources
        }
    };
    Access { sources, closed }
}

/// Proxies whose `X-Forwarded-For` is believed; nginx reads X-Real-IP if nothing is said. `None`: Seaway cannot do the same.
pub(super) fn believed(scopes: &Scopes<'_>) -> Option<BTreeSet<String>> {
    let all = scopes.all(&["set_real_ip_from"]);
    let is_known =
        all.is_empty() || scopes.argument("real_ip_header").eq_ignore_ascii_case("X-Forwarded-For");
    (is_known && all.iter().all(|it| network(it.arg(0)).is_ok()))
        .then(|| all.iter().map(|it| it.arg(0).to_owned()).collect())
}

/// Files of nginx itself say nothing of that. Patterns of all servers name folders of servers, which are not served then.
fn may_protect(it: &Directive, scopes: &Scopes<'_>) -> bool {
    let known = [
        "mime.types",
        "proxy_params",
        "fastcgi_params",
        "fastcgi.conf",
        "uwsgi_params",
        "scgi_params",
        "options-ssl-nginx.conf",
    ];
    let file = it.arg(0);
    let is_folder = file.contains(['*', '?']) && scopes.is_of_all_servers(it);
    !is_folder && !known.contains(&file.rsplit('/').next().unwrap_or(file))
}

/// Whether an inner block does not say otherwise.
fn is_in_force(scopes: &Scopes<'_>, name: &str, it: &Directive) -> bool {
    scopes.all(&[name]).iter().any(|of| of.place == it.place)
}

/// The first rule that fits decides; without one, everyone may ask.
fn networks(scopes: &Scopes<'_>, report: &mut Report) -> Access {
    let rules = scopes.all(&["allow", "deny"]);
    let mut access = Access::default();
    let mut close = |it: &Directive, why: &str, report: &mut Report| {
        report.closed(&it.place, why);
        access.closed.get_or_insert_with(|| format!("{}: {why}", it.written()));
    };
    for (at, it) in rules.iter().enumerate() {
        let last = rules.len() == at.saturating_add(1);
        match (&*it.name, it.arg(0)) {
            ("deny", "all") => {
                if access.sources.is_empty() {
                    access.closed.get_or_insert_with(|| "deny all".to_owned());
                }
                return access;
            }
            ("allow", "all") if at == 0 => return access,
            ("allow", "unix:") => {}
            ("allow", text) if network(text).is_ok() => access.sources.push(text.to_owned()),
            ("allow", "all") => {
                close(
                    it,
                    "not translated: list the networks that may connect, or name those that may not in seaway.dev/denied-source-ranges",
                    report,
                );
                return access;
            }
            ("deny", _) => {
                close(
                    it,
                    "not translated: write allow for each network that may connect, then deny all, or name this one in seaway.dev/denied-source-ranges",
                    report,
                );
                return access;
            }
            _ => {
                close(it, "this is not a network", report);
                return access;
            }
        }
        if last {
            // Whoever is not named may ask as well.
            access.sources.clear();
        }
    }
    access
}

/// An address that only this machine reaches.
pub(super) fn is_loopback(address: &IpAddr) -> bool {
    address.is_loopback()
}
