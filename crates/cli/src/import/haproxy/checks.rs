//! Health checks and times of a backend, as annotations. A check that would say something else of a member is left out.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Context, duration,
    sections::{Line, Section},
    time,
};

/// Options that say how members are checked: of several, the last one counts.
const KINDS: &str = "httpchk tcp-check ssl-hello-chk mysql-check pgsql-check redis-check smtpchk ldap-check external-check spop-check";

/// `http`: Seaway reads requests, and speaks TLS to members that have it.
pub(super) fn annotations<'s>(
    section: &'s Section,
    http: bool,
    context: &mut Context<'s>,
) -> BTreeMap<&'static str, String> {
    let mut said = BTreeMap::new();
    if let Some(option) = option(section, context).filter(|_| !is_by_tls(section, http, context)) {
        request(option, section, &mut said, context);
    }
    servers(section, &mut said, context);
    if let Some(millis) = context.timeout(section, "check") {
        said.insert("health-check-timeout", time(millis));
    }
    said
}

/// The `option httpchk` that is in force.
fn option<'s>(section: &'s Section, context: &Context<'s>) -> Option<&'s Line> {
    let is_kind = |it: &&Line| it.word(0) == "option" && KINDS.split(' ').any(|of| of == it.word(1));
    let found = context.lineage(section).into_iter().find_map(|it| it.lines.iter().rev().find(is_kind))?;
    let turned_off = section.with("no").any(|it| it.word(1) == "option" && it.word(2) == "httpchk");
    (found.word(1) == "httpchk" && !turned_off).then_some(found)
}

/// Lines of the servers of a section, each with the defaults of servers before it.
fn server_words<'s>(section: &'s Section, context: &Context<'s>) -> Vec<(&'s Line, Vec<&'s str>)> {
    let defaults: Vec<&Line> = context.lines(section, "default-server");
    let defaults: Vec<&str> = defaults.iter().flat_map(|it| it.after(1)).map(String::as_str).collect();
    let own = |it: &'s Line| defaults.iter().copied().chain(it.after(3).iter().map(String::as_str)).collect();
    section.with("server").map(|it| (it, own(it))).collect()
}

/// Whether HAProxy checks by TLS where Seaway would check without it: each member would be down.
fn is_by_tls<'s>(section: &'s Section, http: bool, context: &mut Context<'s>) -> bool {
    let mut found = false;
    for (line, words) in server_words(section, context) {
        let has = |it: &str| words.contains(&it);
        let has_tls = http && has("ssl") && !has("no-ssl");
        if has("check-ssl") && !has("no-check-ssl") && !has_tls {
            context.report.left_out(
                &line.place,
                "check-ssl: Seaway checks by TLS only where it speaks TLS to members: it checks that they accept a connection",
            );
            found = true;
        }
    }
    found
}

/// Why members are not to be served: Seaway would ask all of them at one port, which says nothing of the others.
pub(super) const PORTS: &str = "check port: the servers are checked by HTTP at different ports, and Seaway checks all \
     members of a Service at one: write a Service for each server; this backend is not served";

/// Whether the servers of a section that are checked have different check ports.
pub(super) fn has_ports<'s>(section: &'s Section, context: &Context<'s>) -> bool {
    let port = |words: &[&'s str]| {
        let mut pairs = words.windows(2).filter(|it| it.first() == Some(&"port"));
        pairs.next_back().and_then(|it| it.get(1).copied())
    };
    let all: BTreeSet<Option<&str>> = server_words(section, context)
        .iter()
        .filter(|it| it.1.contains(&"check"))
        .map(|it| port(&it.1))
        .collect();
    all.len() > 1
}

/// Whether what HAProxy asks at the check ports decides which member is up.
pub(super) fn is_by_request<'s>(section: &'s Section, context: &Context<'s>) -> bool {
    option(section, context).is_some()
}

fn request<'s>(
    option: &'s Line,
    section: &'s Section,
    said: &mut BTreeMap<&'static str, String>,
    context: &mut Context<'s>,
) {
    said.insert("health-check", "http".to_owned());
    let (method, uri) = match (option.word(2), option.word(3)) {
        ("", _) => ("OPTIONS", "/"),
        (uri, _) if uri.starts_with('/') => ("OPTIONS", uri),
        (method, uri) => (method, uri),
    };
    let mut path = uri.to_owned();
    if let Some(host) = option
        .words
        .iter()
        .find_map(|it| it.split_once("Host:"))
        .map(|it| it.1.trim())
        .filter(|it| !it.is_empty())
    {
        said.insert("health-check-host", host.to_owned());
    }
    let mut method = method.to_owned();
    for line in context.lines(section, "http-check") {
        context.report.translated(&line.place);
        match line.word(1) {
            "send" => {
                let words = line.after(2);
                let mut words = words.iter().map(String::as_str);
                while let Some(word) = words.next() {
                    match word {
                        "meth" => method = words.next().unwrap_or_default().to_owned(),
                        "uri" => path = words.next().unwrap_or_default().to_owned(),
                        "ver" => drop(words.next()),
                        "hdr" => match (words.next(), words.next()) {
                            (Some(name), Some(value)) if name.eq_ignore_ascii_case("host") => {
                                said.insert("health-check-host", value.to_owned());
                            }
                            _ => context.report.left_out(
                                &line.place,
                                "a health check of Seaway sends the Host header, and no other one",
                            ),
                        },
                        _ => context.report.left_out(
                            &line.place,
                            &format!("{word}: a check of Seaway sends a path and a Host"),
                        ),
                    }
                }
            }
            "expect" => match (line.word(2), line.word(3)) {
                ("status", code)
                    if code.bytes().all(|it| it.is_ascii_digit() || it == b'-') && !code.is_empty() =>
                {
                    said.insert("health-check-status", code.to_owned());
                }
                ("rstatus", "^2" | "^2[0-9][0-9]" | "2..") => {
                    drop(said.insert("health-check-status", "200-299".to_owned()))
                }
                ("rstatus", "^[23]" | "^[2-3]" | "(2|3)[0-9][0-9]" | "^[23]..") => {}
                ("string", text) => drop(said.insert("health-check-expect", text.to_owned())),
                _ => context
                    .report
                    .left_out(&line.place, "a check of Seaway expects a status, a range of them, or a text"),
            },
            "disable-on-404" => {
                context.report.left_out(&line.place, "write 200-399 or so in seaway.dev/health-check-status")
            }
            _ => context.report.left_out(&line.place, "a health check of Seaway sends one request"),
        }
    }
    if !path.starts_with('/') {
        path = "/".to_owned();
    }
    said.insert("health-check-path", path);
    if method != "GET" {
        context.report.differs(&option.place, "a health check of Seaway is a GET request");
    }
}

fn servers<'s>(section: &'s Section, said: &mut BTreeMap<&'static str, String>, context: &mut Context<'s>) {
    let lines = context.lines(section, "default-server").into_iter().chain(section.with("server"));
    let has_ports = has_ports(section, context);
    for line in lines.collect::<Vec<_>>() {
        for pair in line.words.windows(2) {
            let [word, written] = pair else { continue };
            let (name, value) = match word.as_str() {
                "inter" => ("health-check-interval", duration(written).map(time)),
                "rise" => ("health-check-rise", Some(written.clone())),
                "fall" => ("health-check-fall", Some(written.clone())),
                "slowstart" => ("slow-start", duration(written).map(time)),
                "port" if has_ports => {
                    let why =
                        "check port: Seaway checks all members of a Service at one port: it is left out";
                    context.report.left_out(&line.place, why);
                    continue;
                }
                "port" => ("health-check-port", Some(written.clone())),
                _ => continue,
            };
            match (said.get(name), value) {
                (_, None) => {
                    context.report.left_out(&line.place, &format!("{word}: {written:?} is not a duration"))
                }
                (None, Some(value)) => drop(said.insert(name, value)),
                (Some(known), Some(value)) if *known == value => {}
                _ => context.report.differs(
                    &line.place,
                    &format!(
                        "{word} applies to all members of a Service: the value of the first server is used"
                    ),
                ),
            }
        }
    }
}
