//! `mode tcp`: listeners with one backend, and TLS that is passed through by its name.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{
    super::proxy::{Condition, Host, OwnListener, WITH_PLAINTEXT},
    Context,
    actions::{lets_pass, stage},
    backend::{backend, has_server},
    bind::Bind,
    condition::{Term, terms},
    order::in_both,
    sections::{Line, Section},
    time,
};

const NOT_KNOWN: &str = "this line may refuse connections, or send them to another backend: no listener is created for \
     the frontend";
/// Rules that change the client's address, or lead elsewhere.
const MOVES: [&str; 6] = ["set-src", "expect-", "lua.", "use-service", "send-spoe", "switch-mode"];

pub(super) fn read<'s>(section: &'s Section, binds: &[Bind<'s>], context: &mut Context<'s>) -> Result<()> {
    let acls = context.acls(section);
    let mut admitted = TcpAccess::default();
    admitted.read(section, context);
    let mut by_name: Vec<(&Line, Vec<Host>)> = Vec::new();
    let mut always = None;
    for line in section.with("use_backend") {
        for term in terms(line.after(2), &acls, true) {
            let is_fixed = !line.word(1).contains("%[");
            match term {
                Term { sni, unknown: None, sources: None, not_sources: None, tls: None, condition }
                    if is_fixed && condition == Condition::default() =>
                {
                    match sni.is_empty() {
                        // It takes what no line before it has taken.
                        true => drop(always.get_or_insert_with(|| line.word(1).to_owned())),
                        false if always.is_none() => by_name.push((line, sni)),
                        false => {}
                    }
                }
                _ => admitted.close(
                    line,
                    "TCP is forwarded to one backend, and TLS by the names in req.ssl_sni: no listener is created for this frontend",
                    context,
                ),
            }
        }
    }
    let default: Option<String> = always
        .or_else(|| context.lines(section, "default_backend").last().map(|it| it.word(1).to_owned()))
        .or_else(|| (section.kind == "listen").then(|| section.name.clone()));
    if !by_name.is_empty() {
        for (line, _) in &by_name {
            if let Some(to) = context.backend(line.word(1)) {
                admitted.read(to, context);
            }
        }
        return passthrough(section, binds, by_name, admitted != TcpAccess::default(), context);
    }
    let Some(to) = default.as_deref().and_then(|it| context.backend(it)) else {
        for bind in binds {
            context.report.left_out(
                &bind.line.place,
                "this frontend has no known backend: no listener is created for this frontend",
            );
        }
        return Ok(());
    };
    if to.place != section.place {
        admitted.read(to, context);
    }
    let TcpAccess { sources, closed } = admitted;
    let sources = sources.unwrap_or_default();
    let Some(place) = backend(to, false, context) else { return Ok(()) };
    if let Some(it) = context.proxy.backends.get_mut(place) {
        // What is about HTTP has no effect here.
        it.annotations.remove("timeout-answer");
    }
    let idle = [("tunnel", to), ("client", section), ("server", to)]
        .iter()
        .filter_map(|(name, of)| context.timeout(of, name))
        .max();
    for bind in binds {
        let mut annotations = BTreeMap::new();
        if let Some(millis) = idle {
            annotations.insert("timeout-idle", time(millis));
        }
        if let Some(line) = section.with("maxconn").last() {
            annotations.insert("max-connections", line.word(1).to_owned());
            context.report.differs(
                &line.place,
                "each connection above the limit is reset; it does not wait in a queue",
            );
        }
        let why = match (&closed, bind) {
            (Some(why), _) => why,
            (None, Bind { closed: Some(why), .. }) => why,
            (None, it) if it.ssl => {
                "TLS at a Service's own address ends with a Secret that seaway.dev/tls names: no listener is created for this frontend"
            }
            (None, it) if it.proxy_protocol && !sources.is_empty() => {
                "HAProxy compares these networks with the address in the PROXY header, or with the proxy's own, and Seaway cannot tell which: no listener is created for this frontend"
            }
            _ => {
                if bind.proxy_protocol {
                    annotations.insert("proxy-protocol-from", "0.0.0.0/0, ::/0".to_owned());
                    context.report.differs(
                        &bind.line.place,
                        "name the trusted proxies in \
                         seaway.dev/proxy-protocol-from: until then, as in HAProxy, every client is trusted",
                    );
                }
                if bind.address.is_some()
                    && let Some(it) = context.proxy.backends.get_mut(place)
                {
                    it.port = Some(bind.port);
                    it.annotations.extend(std::mem::take(&mut annotations));
                    if !sources.is_empty() {
                        it.annotations.insert("source-ranges", sources.join(", "));
                    }
                }
                let (port, address) = (bind.port, bind.address);
                let sources = sources.clone();
                context.proxy.listeners.push(OwnListener {
                    backend: place,
                    port,
                    udp: false,
                    address,
                    annotations,
                    sources,
                    passthrough: Vec::new(),
                });
                continue;
            }
        };
        context.report.closed(&bind.line.place, why);
    }
    Ok(())
}

/// Who may connect, as `tcp-request` says.
#[derive(Default, PartialEq)]
struct TcpAccess {
    /// `None`: all.
    sources: Option<Vec<String>>,
    closed: Option<String>,
}

impl TcpAccess {
    /// Every rule that rejects counts, but for those that an `accept` of the same set of rules let in before.
    fn read<'s>(&mut self, section: &'s Section, context: &mut Context<'s>) {
        let acls = context.acls(section);
        let mut accepted: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for line in context.rules(section).filter(|it| it.word(0) == "tcp-request") {
            let at =
                line.words.iter().position(|it| it == "if" || it == "unless").unwrap_or(line.words.len());
            let found = terms(line.after(at), &acls, true);
            let accepted = accepted.entry(line.word(1)).or_default();
            match line.word(2) {
                "reject" | "silent-drop" => {
                    for term in found {
                        match term {
                            Term { not_sources: Some(networks), unknown: None, sni, .. } if sni.is_empty() => {
                                self.only(networks.iter().chain(accepted.iter()).cloned().collect());
                            }
                            _ if at == line.words.len() && !accepted.is_empty() => self.only(accepted.clone()),
                            _ => self.close(line, "Seaway refuses TCP connections by source address only (seaway.dev/denied-source-ranges): this frontend is not served", context),
                        }
                    }
                }
                "accept" => {
                    for term in found {
                        match term {
                            Term {
                                sources: Some(networks),
                                not_sources: None,
                                unknown: None,
                                tls: None,
                                condition,
                                sni,
                            } if sni.is_empty() && condition == Condition::default() => {
                                accepted.extend(networks);
                            }
                            _ => context.report.no_effect(
                                &line.place,
                                "Seaway waits for the TLS ClientHello and reads the server name without this line",
                            ),
                        }
                    }
                }
                word if MOVES.iter().any(|it| word.starts_with(it)) => {
                    self.close(
                        line,
                        "this rule decides which address is the client's, or which server gets the \
                         connection: no listener is created for this frontend",
                        context,
                    );
                }
                _ if lets_pass(line) => context.report.no_effect(
                    &line.place,
                    "Seaway waits for the TLS ClientHello and reads the server name without this line",
                ),
                _ => self.close(line, NOT_KNOWN, context),
            }
        }
        // Rules of HTTP in the defaults are for sections of HTTP.
        let is_http = context.is_http(section);
        let is_own = |it: &&Line| is_http || section.lines.iter().any(|of| of.place == it.place);
        let is_rule = |it: &&Line| stage(it).is_some() && it.word(0) != "tcp-request" && !lets_pass(it);
        let is_of_http = |it: &&Line| it.word(0).starts_with("http-") || it.word(0) == "redirect";
        for line in context.rules(section).filter(is_rule).filter(|it| !is_of_http(it) || is_own(it)) {
            self.close(line, NOT_KNOWN, context);
        }
        if self.sources.as_ref().is_some_and(Vec::is_empty) {
            // An empty list would let all in.
            self.closed.get_or_insert_with(|| {
                "the lists of networks that may connect have no network in common: no listener is created for this frontend"
                    .to_owned()
            });
        }
    }

    fn only(&mut self, networks: Vec<String>) {
        self.sources = Some(match &self.sources {
            Some(known) => in_both(known, &networks),
            None => networks,
        });
    }

    fn close(&mut self, line: &Line, why: &str, context: &mut Context<'_>) {
        context.report.closed(&line.place, why);
        self.closed.get_or_insert_with(|| why.to_owned());
    }
}

fn passthrough<'s>(
    section: &'s Section,
    binds: &[Bind<'s>],
    by_name: Vec<(&'s Line, Vec<Host>)>,
    protected: bool,
    context: &mut Context<'s>,
) -> Result<()> {
    let Some(bind) = binds.first() else { return Ok(()) };
    if protected || bind.closed.is_some() || bind.proxy_protocol || bind.address.is_some() || bind.ssl {
        context.report.closed(
            &bind.line.place,
            "the front door passes TLS on at all of its addresses, to every client: no listener is created for this frontend",
        );
        return Ok(());
    }
    if context.proxy.door.has_plaintext_at(bind.port) {
        context.report.left_out(&bind.line.place, WITH_PLAINTEXT);
        return Ok(());
    }
    for line in context.lines(section, "default_backend") {
        context
            .report
            .left_out(&line.place, "TLS is passed on by host names alone: connections for other names end");
    }
    let mut others = binds.iter().filter(|it| it.line.place != bind.line.place || it.port != bind.port);
    if let Some(other) = others.next() {
        context.report.left_out(
            &other.line.place,
            "the front door passes TLS on at one port, the first of this frontend: this one is not opened",
        );
    }
    if let Some((line, why)) = misled(&by_name, context) {
        context.report.closed(&line.place, why);
        return Ok(());
    }
    context.proxy.door.https = Some(bind.port);
    for (line, hosts) in by_name {
        let Some(to) = context.backend(line.word(1)) else {
            context
                .report
                .left_out(&line.place, "no backend has this name: connections for these host names end");
            continue;
        };
        let Some(place) = backend(to, false, context) else { continue };
        if let Some(it) = context.proxy.backends.get_mut(place) {
            it.annotations.remove("timeout-connect");
        }
        match context.proxy.listeners.iter_mut().find(|it| it.backend == place && !it.passthrough.is_empty())
        {
            Some(known) => known.passthrough.extend(hosts),
            None => context.proxy.listeners.push(OwnListener {
                backend: place,
                port: 443,
                udp: false,
                address: None,
                annotations: BTreeMap::new(),
                sources: Vec::new(),
                passthrough: hosts,
            }),
        }
    }
    Ok(())
}

/// A line whose connections would go to another one's backend: HAProxy takes the first name that fits, Seaway the most exact
/// one, and names without a backend fall to wider ones.
fn misled<'s>(by_name: &[(&'s Line, Vec<Host>)], context: &Context<'s>) -> Option<(&'s Line, &'static str)> {
    let serves = |line: &Line| context.backend(line.word(1)).is_some_and(has_server);
    for (at, (line, hosts)) in by_name.iter().enumerate() {
        for (later, names) in by_name.iter().skip(at.saturating_add(1)) {
            let is_other = later.word(1) != line.word(1);
            let pairs = hosts.iter().flat_map(|one| names.iter().map(move |two| (one, two)));
            for (one, name) in pairs.filter(|_| is_other) {
                let Some(both) = one.meet(name) else { continue };
                if both == *name {
                    return Some((
                        later,
                        "an earlier line matches the same names, and Seaway would send them to the most specific one: \
                             no listener is created for the frontend",
                    ));
                }
                if !serves(line) {
                    return Some((
                        line,
                        "the backend of a host name has no server, and a wildcard name would take its connections: no \
                             listener is created for the frontend",
                    ));
                }
            }
        }
    }
    None
}
