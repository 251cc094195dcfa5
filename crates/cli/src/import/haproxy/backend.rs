//! `backend`: servers, and who gets the next client.

use std::collections::BTreeMap;

use super::{
    super::proxy::{Backend, host, is_backend, no_backend, service_name},
    Context, checks,
    sections::{Line, Section},
    time,
};

/// What servers say of TLS and the PROXY protocol, which a Service says for all of them.
#[derive(Debug, Default, PartialEq)]
struct ServerOptions {
    tls: bool,
    verify: bool,
    name: Option<String>,
    proxy: Option<&'static str>,
    http2: bool,
    /// Connections at the same time.
    most: Option<u32>,
}

/// The place of the Service. `http`: requests are read, so that what is about them has an effect.
pub(super) fn backend<'s>(section: &'s Section, http: bool, context: &mut Context<'s>) -> Option<usize> {
    if checks::is_by_request(section, context) && checks::has_ports(section, context) {
        section.with("server").for_each(|it| context.report.closed(&it.place, checks::PORTS));
        return None;
    }
    let mut annotations = checks::annotations(section, http, context);
    let mut backend = Backend { name: service_name(&section.name), ..Backend::default() };
    balance(section, &mut annotations, context);
    affinity(section, http, &mut backend, &mut annotations, context);
    let mut all: Vec<(ServerOptions, &Line)> = Vec::new();
    for line in section.with("server") {
        if let Some((member, to)) = server(line, section, context) {
            backend.members.push(member);
            all.push((to, line));
        }
    }
    if let Some((first, _)) = all.first() {
        for (_, line) in all.iter().filter(|it| it.0 != *first) {
            context.report.differs(&line.place, "TLS, the PROXY protocol and maxconn are the same for all members of a Service: as the first server has them");
        }
        if first.tls && http {
            backend.app_protocol = Some(if first.http2 { "h2" } else { "https" });
            if !first.verify {
                annotations.insert("backend-tls-verify", "off".to_owned());
            }
            if let Some(name) = &first.name {
                annotations.insert("backend-tls-name", name.clone());
            }
        } else if first.tls {
            for (_, line) in &all {
                context.report.closed(
                    &line.place,
                    "Seaway speaks TLS to members only where it reads HTTP: no listener is created for this backend",
                );
            }
            return None;
        } else if first.http2 && http {
            backend.app_protocol = Some("h2c");
        }
        if let Some(most) = first.most {
            annotations.insert("max-connections-per-member", most.to_string());
            let wait = context.timeout(section, "queue").or_else(|| context.timeout(section, "connect"));
            wait.and_then(|it| annotations.insert("queue-timeout", time(it)));
        }
        if let Some(proxy) = first.proxy {
            annotations.insert("proxy-protocol", proxy.to_owned());
        }
    }
    if let Some(millis) = context
        .timeout(section, "connect")
        .filter(|it| Some(time(*it)) != context.proxy.timeouts.get("connect").cloned())
    {
        annotations.insert("timeout-connect", time(millis));
    }
    if http
        && let Some(millis) = context
            .timeout(section, "server")
            .filter(|it| Some(time(*it)) != context.proxy.timeouts.get("answer").cloned())
    {
        annotations.insert("timeout-answer", time(millis));
    }
    backend.annotations = annotations;
    if backend.members.is_empty() {
        context.report.left_out(
            &section.place,
            "this backend has no server that Seaway can connect to: requests for it get 403",
        );
        return None;
    }
    Some(context.proxy.backend(backend))
}

/// Whether any of its servers is one that Seaway can connect to.
pub(super) fn has_server(section: &Section) -> bool {
    let is_member = |it: &Line| {
        address(without_family(it.word(2))).is_some() && !it.after(3).iter().any(|it| it == "disabled")
    };
    section.with("server").any(is_member)
}

fn without_family(at: &str) -> &str {
    ["ipv4@", "ipv6@", "tcp@"].iter().find_map(|it| at.strip_prefix(it)).unwrap_or(at)
}

fn balance<'s>(section: &'s Section, said: &mut BTreeMap<&'static str, String>, context: &mut Context<'s>) {
    let Some(line) = context.lines(section, "balance").into_iter().next_back() else { return };
    let name = line.word(1).split('(').next().unwrap_or_default();
    let balance = match name {
        "roundrobin" | "static-rr" => return,
        "leastconn" => "least-connections",
        "source" => "source-hash",
        "first" => "first",
        "random" => "random-two",
        _ => {
            context.report.left_out(
                &line.place,
                "Seaway has round-robin, which is used, least-connections, random-two, source-hash and first",
            );
            return;
        }
    };
    said.insert("balance", balance.to_owned());
}

fn affinity<'s>(
    section: &'s Section,
    http: bool,
    backend: &mut Backend,
    said: &mut BTreeMap<&'static str, String>,
    context: &mut Context<'s>,
) {
    if let Some(line) = context.lines(section, "cookie").into_iter().next_back() {
        let words = line.after(2);
        let mode = words
            .iter()
            .find(|it| matches!(it.as_str(), "insert" | "prefix" | "rewrite"))
            .map(String::as_str);
        match mode {
            _ if !http => context
                .report
                .no_effect(&line.place, "no effect: this backend is TCP, and cookies need mode http"),
            Some(mode @ ("insert" | "prefix")) => {
                said.insert("sticky-cookie", line.word(1).to_owned());
                if mode == "prefix" {
                    said.insert("sticky-cookie-mode", "rewrite".to_owned());
                }
                context.report.differs(
                    &line.place,
                    "the cookie's value is a hash: clients with a cookie of HAProxy get another server once",
                );
            }
            _ => {
                context.report.left_out(&line.place, "only the cookie modes insert and prefix are supported")
            }
        }
    }
    for line in context.lines(section, "stick") {
        match (line.word(1), line.word(2)) {
            ("on" | "store-request" | "match", "src") => {
                backend.by_client = true;
                context
                    .report
                    .differs(&line.place, "a client is remembered for three hours after its last connection");
            }
            _ => context.report.left_out(
                &line.place,
                "Seaway keeps a client at its member by its address, or by a cookie (docs/balancing.md)",
            ),
        }
    }
}

fn server<'s>(
    line: &'s Line,
    section: &'s Section,
    context: &mut Context<'s>,
) -> Option<(String, ServerOptions)> {
    let (name, at) = (line.word(1), line.word(2));
    let Some(mut member) = address(without_family(at)) else {
        context.report.left_out(&line.place, no_backend(without_family(at)));
        return None;
    };
    let named: String = name
        .chars()
        .map(|it| if it.is_ascii_alphanumeric() || "-_.".contains(it) { it } else { '-' })
        .take(63)
        .collect();
    if !named.is_empty() {
        member.push_str(&format!(" name={named}"));
    }
    let mut to = ServerOptions { verify: true, ..ServerOptions::default() };
    let defaults: Vec<&Line> = context.lines(section, "default-server");
    let words = defaults
        .iter()
        .flat_map(|it| it.after(1))
        .chain(line.after(3))
        .map(String::as_str)
        .collect::<Vec<_>>();
    let mut words = words.into_iter();
    let (mut is_disabled, mut is_behind) = (false, false);
    while let Some(word) = words.next() {
        match word {
            "check" | "no-check" | "on-error" | "resolve-prefer" | "init-addr" | "resolvers"
            | "check-ssl" | "no-check-ssl" | "no-ssl" | "track" | "observe" | "error-limit"
            | "on-marked-down" | "on-marked-up" | "cookie" | "inter" | "fastinter" | "downinter" | "rise"
            | "fall" | "slowstart" | "port" | "check-sni" | "id" | "redir" | "crt" | "ciphers"
            | "ciphersuites" | "ssl-min-ver" | "ssl-max-ver" | "pool-max-conn" | "pool-purge-delay"
            | "maxqueue" | "minconn" | "addr" | "check-proto" | "check-alpn" | "pool-low-conn"
            | "log-proto" | "tcp-ut" => {
                let has_value =
                    !matches!(word, "check" | "no-check" | "check-ssl" | "no-check-ssl" | "no-ssl");
                let value = if has_value { words.next().unwrap_or_default() } else { "" };
                if matches!(
                    (word, value),
                    ("on-marked-down", "shutdown-sessions") | ("on-marked-up", "shutdown-backup-sessions")
                ) {
                    context.report.left_out(
                        &line.place,
                        &format!(
                            "{word}: connections stay at their member when the state of members changes"
                        ),
                    );
                }
                if matches!(word, "crt" | "track" | "addr" | "observe" | "minconn" | "maxqueue") {
                    context
                        .report
                        .left_out(&line.place, &format!("{word}: Seaway has no such setting of one backend"));
                }
            }
            // Around the proxy, the member would get connections that it is not meant to get.
            "socks4" => {
                words.next();
                is_behind = true;
            }
            "weight" => match words.next() {
                Some("0") => member.push_str(" weight=0"),
                Some("1") | None => {}
                Some(number) => member.push_str(&format!(" weight={number}")),
            },
            "backup" => member.push_str(" backup"),
            "disabled" => is_disabled = true,
            "ssl" => to.tls = true,
            "verify" => to.verify = words.next() != Some("none"),
            "send-proxy" => to.proxy = Some("v1"),
            "send-proxy-v2" | "send-proxy-v2-ssl" | "send-proxy-v2-ssl-cn" => to.proxy = Some("v2"),
            "sni" | "verifyhost" => {
                let text = words.next().unwrap_or_default();
                let fixed = text
                    .strip_prefix("str(")
                    .and_then(|it| it.strip_suffix(')'))
                    .unwrap_or(text)
                    .trim_matches('\'');
                match host(fixed) {
                    Some(_) if fixed.contains('.') => to.name = Some(fixed.to_owned()),
                    _ => context.report.left_out(
                        &line.place,
                        "sni: the name that members get is fixed: seaway.dev/backend-tls-name",
                    ),
                }
            }
            "ca-file" => {
                words.next();
                if to.verify {
                    context.report.left_out(&line.place, "ca-file: put the file into a Secret, and name that in seaway.dev/backend-tls-authorities; until then members have to be signed by a CA of this machine");
                }
            }
            "proto" | "alpn" => to.http2 |= words.next().is_some_and(|it| it.split(',').next() == Some("h2")),
            "maxconn" => {
                to.most = words.next().and_then(|it| it.parse().ok()).filter(|it| *it > 0);
            }
            _ => context
                .report
                .left_out(&line.place, &format!("{word}: Seaway has no such setting of one backend")),
        }
    }
    if is_behind {
        let why = "Seaway connects to members directly, and not through a SOCKS proxy: the server is left out of the backends";
        context.report.left_out(&line.place, why);
        return None;
    }
    if is_disabled {
        context.report.no_effect(&line.place, "the server is disabled, so it is left out of the backends");
        return None;
    }
    Some((member, to))
}

fn address(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host {
        "localhost" => "127.0.0.1",
        host => host,
    };
    let port: u16 = port.parse().ok().filter(|it| *it > 0)?;
    let host = match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    };
    is_backend(&host).then(|| format!("{host}:{port}"))
}
