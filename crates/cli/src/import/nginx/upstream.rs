//! `upstream`: members, and who gets the next client.

use std::collections::BTreeMap;

use super::{
    super::proxy::{is_backend, no_backend},
    context::Context,
    judge_rest,
    parse::Directive,
};

/// Of what leads to an upstream without members.
pub(super) const NO_SERVERS: &str =
    "Seaway can connect to none of the servers of this upstream: see their lines";

/// What an upstream says.
#[derive(Clone, Debug, Default)]
pub(super) struct Upstream {
    pub(super) members: Vec<String>,
    pub(super) annotations: BTreeMap<&'static str, String>,
}

/// One address: `127.0.0.1:3000`, `app.example`, with the port where none is said.
pub(super) fn member(text: &str, port: Option<u16>) -> Option<String> {
    if text.starts_with("unix:") || text.contains('$') || text.is_empty() {
        return None;
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, number)) if !number.ends_with(']') && (!host.contains(':') || host.ends_with(']')) => {
            (host, Some(number.parse::<u16>().ok()?))
        }
        _ => (text, port),
    };
    let host = if host == "localhost" { "127.0.0.1" } else { host };
    if !is_backend(host) || port == Some(0) {
        return None;
    }
    Some(format!("{host}:{}", port?))
}

/// `port`: of servers that name none.
pub(super) fn upstream(block: &[Directive], port: Option<u16>, context: &mut Context) -> Upstream {
    let mut upstream = Upstream::default();
    let report = &mut context.report;
    let (mut fails, mut limits): (Vec<String>, Vec<String>) = Default::default();
    for it in block {
        report.translated(&it.place);
        match (&*it.name, it.arg(0)) {
            ("server", at) => {
                let Some(mut member) = member(at, port) else {
                    report.left_out(&it.place, no_backend(at));
                    continue;
                };
                let (mut is_down, mut max_fails, mut most) = (false, "1".to_owned(), "0".to_owned());
                for word in it.args.iter().skip(1) {
                    match word.split_once('=').unwrap_or((word, "")) {
                        ("weight", number) => member.push_str(&format!(" weight={number}")),
                        ("backup", _) => member.push_str(" backup"),
                        ("down", _) => is_down = true,
                        ("max_fails", number) => max_fails = number.to_owned(),
                        ("fail_timeout", _) => {
                            report.differs(
                                &it.place,
                                "fail_timeout: a member that failed gets no requests for \
                                 `defaults.passiveEjection.eject` (10s)",
                            );
                        }
                        ("slow_start", time) => {
                            drop(upstream.annotations.insert("slow-start", time.to_owned()))
                        }
                        // Without a queue, as there: it is no part of the free nginx.
                        ("max_conns", number) => most = number.to_owned(),
                        ("resolve", _) => {}
                        (word, _) => report.left_out(
                            &it.place,
                            &format!("{word}: Seaway has no such setting of one backend"),
                        ),
                    }
                }
                if is_down {
                    report.no_effect(&it.place, "the server is down, so it is left out of the backends");
                    continue;
                }
                if limits.first().is_some_and(|it| *it != most) {
                    report.differs(
                        &it.place,
                        "max_conns is the same for all members of a Service: as the first server has it",
                    );
                }
                limits.push(most);
                fails.push(max_fails);
                upstream.members.push(member);
            }
            ("least_conn", _) => drop(upstream.annotations.insert("balance", "least-connections".to_owned())),
            ("ip_hash", _) => drop(upstream.annotations.insert("balance", "source-hash".to_owned())),
            ("random", _) => drop(upstream.annotations.insert("balance", "random-two".to_owned())),
            ("hash", "$remote_addr" | "$binary_remote_addr") => {
                upstream.annotations.insert("balance", "source-hash".to_owned());
            }
            ("hash", _) => report.left_out(
                &it.place,
                "Seaway can hash only the client's address; to use that, set seaway.dev/balance: source-hash",
            ),
            ("sticky", "cookie") => drop(upstream.annotations.insert("sticky-cookie", it.arg(1).to_owned())),
            ("sticky", _) => report
                .left_out(&it.place, "seaway.dev/sticky-cookie keeps a client at its member by a cookie"),
            _ => {}
        }
    }
    // Without a queue, as there: it is no part of the free nginx.
    if let Some(most) = limits.into_iter().next().filter(|it| it != "0") {
        upstream.annotations.insert("max-connections-per-member", most);
        upstream.annotations.insert("queue-timeout", "0s".to_owned());
    }
    fails.dedup();
    if let [number] = fails.as_slice()
        && number != "1"
    {
        let value = if number == "0" { "off" } else { number };
        upstream.annotations.insert("passive-ejection", value.to_owned());
    }
    let read = ["server", "least_conn", "ip_hash", "random", "hash", "sticky"];
    judge_rest(block, &read, context);
    upstream
}
