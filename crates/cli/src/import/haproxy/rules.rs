//! Rules of a frontend and of the backends that it leads to, in their order, as routes.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{
    super::{
        proxy::{Condition, HeaderChanges, PathRule, Redirect, Rewrite, Route, Target, host},
        report::Place,
    },
    Context,
    backend::backend,
    changes::Changes,
    condition::{Acls, Term, acls, terms},
    headers::headers,
    order::{Effect, Meeting, meet, put_before},
    sections::{Line, Section},
};

/// Which of its ports a frontend has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ports {
    pub(super) plain: bool,
    pub(super) tls: bool,
}

/// What a rule does, before its condition is known.
enum Action {
    Refuse(&'static str),
    /// Requests that it is for are not looked at any more.
    Allow,
    Redirect(Redirect),
    ToHttps,
    Nothing,
}

const NO_PASSWORDS: &str = "the import writes no passwords: open it, and name users in seaway.dev/basic-auth, or restrict networks with `deny if !{ src … }`";
const REFUSES: &str = "this rule refuses by something that Seaway does not know: all that the rule may be \
                       about is closed";
const REJECTS_NETWORKS: &str = "the import writes no networks that may not ask: open it, and name them in seaway.dev/denied-source-ranges";
pub(super) const NO_LIMIT: &str =
    "the import writes no limit: open it, and give it seaway.dev/requests-per-second-per-client";
const NO_ANSWERS: &str = "Seaway does not refuse answers of backends";
const NO_SCRIPTS: &str =
    "Seaway runs no scripts and rules of others, and it is not known whether this one protects";

/// The routes of a frontend, or of a `listen`.
pub(super) fn routes<'s>(
    section: &'s Section,
    ports: Ports,
    context: &mut Context<'s>,
) -> Result<(Vec<Route>, bool)> {
    let acls = acls(context.defaults(section).into_iter().chain([section]));
    let mut routes: Vec<Route> = Vec::new();
    let (request, response) = headers(section, context);
    let default: Vec<&Line> = context.lines(section, "default_backend");
    let own =
        (section.kind == "listen" && section.with("server").next().is_some()).then(|| section.name.clone());
    let last = default
        .last()
        .map(|it| (it.place.clone(), it.word(1).to_owned()))
        .or(own.map(|it| (section.place.clone(), it)));
    if let Some((place, name)) = last {
        let to = to_backend(&name, &place, section, context)?;
        put(&Condition::default(), to, &mut routes)?;
    }
    let uses: Vec<&Line> = section.with("use_backend").collect();
    for line in uses.into_iter().rev() {
        let name = line.word(1);
        if name.contains("%[") {
            context
                .report
                .left_out(&line.place, "Seaway has no maps: write one use_backend for each host or path");
            continue;
        }
        for term in terms(line.after(2), &acls, false).into_iter().rev() {
            if let PathRule::Prefix(path) = &term.condition.path
                && path != "/"
            {
                let what = format!(
                    "path_beg {path}: Seaway compares whole segments, so it takes {path} and all below it, and nothing else that begins so"
                );
                context.report.differs(&line.place, &what);
            }
            let why = match &term {
                Term { unknown: Some(what), .. } => {
                    format!("an HTTPRoute does not match by {what}: these requests go where later rules lead")
                }
                Term { sources: Some(_), .. } | Term { not_sources: Some(_), .. } => {
                    "Seaway does not route by the client's address: these requests go where later rules lead"
                        .to_owned()
                }
                Term { sni, .. } if !sni.is_empty() => {
                    "the name in TLS selects no backend where HTTP is read: these requests go where later rules lead".to_owned()
                }
                Term { tls: Some(tls), .. } if ports.plain && ports.tls => {
                    format!("both ports have the same routes: whether TLS was used ({tls}) selects none")
                }
                Term { tls: Some(true), .. } if !ports.tls => continue,
                Term { tls: Some(false), .. } if !ports.plain => continue,
                _ => {
                    let to = to_backend(name, &line.place, section, context)?;
                    put(&term.condition, to, &mut routes)?;
                    continue;
                }
            };
            context.report.left_out(&line.place, &why);
        }
    }
    for route in routes.iter_mut().filter(|it| matches!(it.target, Target::Backends(_))) {
        add(&mut route.request, &request);
        add(&mut route.response, &response);
    }
    let to_https = requests(section, &acls, Changes::default(), ports, &mut routes, context)?;
    Ok((routes, to_https))
}

fn add(to: &mut HeaderChanges, more: &HeaderChanges) {
    // Those of the defaults are in both.
    let new = |to: &[(String, String)], more: &[(String, String)]| -> Vec<_> {
        more.iter().filter(|it| !to.contains(it)).cloned().collect()
    };
    to.set.extend(new(&to.set, &more.set));
    to.add.extend(new(&to.add, &more.add));
    let removed: Vec<_> = more.remove.iter().filter(|it| !to.remove.contains(it)).cloned().collect();
    to.remove.extend(removed);
}

fn put(condition: &Condition, to: Vec<Route>, routes: &mut Vec<Route>) -> Result<()> {
    for route in to.into_iter().rev() {
        match meet(condition, &route.condition) {
            Meeting::Exactly(both) => put_before(&both, &Effect::Ends(Box::new(route)), routes)?,
            Meeting::Nothing => {}
            // It leads to the same backend; what protects a part of it protects all.
            Meeting::Wider(_) | Meeting::Unknown(_) => {
                put_before(condition, &Effect::Ends(Box::new(route)), routes)?
            }
        }
    }
    Ok(())
}

/// A backend with its own rules: one route, or several.
fn to_backend<'s>(
    name: &str,
    place: &Place,
    from: &'s Section,
    context: &mut Context<'s>,
) -> Result<Vec<Route>> {
    let mut route = Route::new(place.clone(), Condition::default(), Target::Nothing);
    let Some(section) = context.backend(name) else {
        context.report.left_out(place, "no backend has this name: requests get 403");
        route.close("the backend does not exist");
        return Ok(vec![route]);
    };
    match backend(section, true, context) {
        Some(at) => route.target = Target::Backends(vec![(at, 1)]),
        None => route.close("the backend has no server that Seaway can connect to"),
    }
    if section.place == from.place {
        return Ok(vec![route]);
    }
    (route.request, route.response) = headers(section, context);
    let acls = acls(context.defaults(section).into_iter().chain([section]));
    let mut routes = vec![route];
    let mut changes = Changes::default();
    context.rules(from).for_each(|it| changes.note(it));
    requests(section, &acls, changes, Ports { plain: true, tls: true }, &mut routes, context)?;
    Ok(routes)
}

/// What is done with requests before a backend is looked for; whether all plaintext ones are sent to https.
fn requests<'s>(
    section: &'s Section,
    acls: &Acls<'_>,
    mut changes: Changes,
    ports: Ports,
    routes: &mut Vec<Route>,
    context: &mut Context<'s>,
) -> Result<bool> {
    let of =
        |words: &'static [&'static str]| context.rules(section).filter(move |it| words.contains(&it.word(0)));
    let answers = of(&["http-response", "http-after-response"]).filter(|it| it.word(1) == "deny");
    let lines: Vec<&Line> = of(&["tcp-request"])
        .chain(of(&["http-request", "block", "rate-limit"]))
        .chain(of(&["redirect"]))
        .chain(answers)
        .collect();
    let mut rules: Vec<(&Line, Action, usize)> = Vec::new();
    for line in lines {
        let (action, condition) = action(line, context);
        rules.push((line, action, condition));
    }
    // `allow if { src … }`, and then `deny`: who is not there is refused.
    let mut allowed: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    let mut effects: Vec<(Place, Term, Effect)> = Vec::new();
    let mut to_https = false;
    for (line, action, at) in rules {
        let mut found = terms(line.after(at), acls, true);
        found.iter_mut().for_each(|it| changes.spoil(it));
        changes.note(line);
        // What one set of rules lets in has to pass the others.
        let set = (line.word(0), if line.word(0) == "tcp-request" { line.word(1) } else { "" });
        match action {
            Action::Nothing => {}
            Action::Allow => match found.as_slice() {
                [
                    Term {
                        sources: Some(networks),
                        not_sources: None,
                        unknown: None,
                        tls: None,
                        condition,
                        ..
                    },
                ] if *condition == Condition::default() => {
                    allowed.entry(set).or_default().extend(networks.iter().cloned());
                }
                _ => context
                    .report
                    .closed(&line.place, "requests that this rule allows are still subject to later rules"),
            },
            Action::Refuse(why) => {
                let allowed = allowed.get(&set).map(Vec::as_slice);
                for term in found {
                    effects.extend(refused(line, why, term, allowed, ports, context));
                }
            }
            Action::Redirect(to) => {
                for term in found {
                    if term.unknown.is_some() || term.sources.is_some() || term.not_sources.is_some() {
                        context
                            .report
                            .left_out(&line.place, "the condition is not one that an HTTPRoute has");
                        continue;
                    }
                    if term.tls.is_some() && ports.plain && ports.tls {
                        context.report.differs(&line.place, "both ports redirect");
                    }
                    let route =
                        Route::new(line.place.clone(), Condition::default(), Target::Redirect(to.clone()));
                    effects.push((line.place.clone(), term, Effect::Ends(Box::new(route))));
                }
            }
            Action::ToHttps => {
                for term in found {
                    if term.tls == Some(true) {
                        continue;
                    }
                    context.report.differs(&line.place, match term.unknown {
                        Some(_) => "the code is 308, and a part of the condition is not understood: more is redirected",
                        None => "the code is 308",
                    });
                    to_https |= term.condition == Condition::default();
                    effects.push((line.place.clone(), term, Effect::ToHttps(true)));
                }
            }
        }
    }
    for (_, term, effect) in effects.into_iter().rev() {
        put_before(&term.condition, &effect, routes)?;
    }
    Ok(to_https)
}

fn refused(
    line: &Line,
    why: &'static str,
    term: Term,
    allowed: Option<&[String]>,
    ports: Ports,
    context: &mut Context<'_>,
) -> Option<(Place, Term, Effect)> {
    let closed = |why: &str| {
        let mut route = Route::new(line.place.clone(), Condition::default(), Target::Nothing);
        route.close(why);
        Effect::Ends(Box::new(route))
    };
    let place = line.place.clone();
    if term.tls == Some(false) && term.unknown.is_none() && ports.tls {
        context.report.differs(&place, "plaintext requests are redirected to https instead");
        return Some((place, term, Effect::ToHttps(true)));
    }
    let networks =
        term.not_sources.clone().or_else(|| allowed.map(<[String]>::to_vec).filter(|_| why == REFUSES));
    let effect = match (&term.unknown, networks, &term.sources) {
        (Some(what), ..) => {
            context.report.closed(&place, &format!("{why} ({what})"));
            closed(&format!("{}: {what}", line.word(1)))
        }
        (None, Some(networks), None) if why == REFUSES => Effect::Restricts(networks),
        (None, _, Some(_)) => {
            context.report.closed(&place, REJECTS_NETWORKS);
            closed(REJECTS_NETWORKS)
        }
        // A condition that Seaway has: requests get 403, as they did.
        (None, None, None) if why == REFUSES => closed(&line.written()),
        _ => {
            context.report.closed(&place, why);
            closed(why)
        }
    };
    Some((place, term, effect))
}

/// What a rule does, and where its condition begins.
fn action(line: &Line, context: &mut Context<'_>) -> (Action, usize) {
    let report = &mut context.report;
    let at = line.words.iter().position(|it| it == "if" || it == "unless").unwrap_or(line.words.len());
    match line.word(0) {
        "block" => return (Action::Refuse(REFUSES), at),
        "rate-limit" => {
            report.closed(&line.place, NO_LIMIT);
            return (Action::Refuse(NO_LIMIT), at);
        }
        "redirect" => return (redirect(line.after(1), line, context), at),
        // By what an answer is, nothing is refused.
        "http-response" | "http-after-response" => {
            report.closed(&line.place, NO_ANSWERS);
            return (Action::Refuse(NO_ANSWERS), line.words.len());
        }
        "tcp-request" => {
            return match (line.word(1), line.word(2)) {
                (_, "reject" | "silent-drop") => (Action::Refuse(REFUSES), at),
                ("connection" | "content" | "session", "accept") => (Action::Allow, at),
                _ => {
                    report.no_effect(&line.place, "this line takes effect only where another rule uses it");
                    (Action::Nothing, at)
                }
            };
        }
        _ => {}
    }
    let word = line.word(1);
    let action = match word {
        "deny" | "reject" | "tarpit" | "silent-drop" => Action::Refuse(REFUSES),
        "allow" => Action::Allow,
        "auth" => Action::Refuse(NO_PASSWORDS),
        "return" => match line
            .after(2)
            .windows(2)
            .find(|it| it.first().is_some_and(|it| it == "status"))
            .and_then(|it| it.last())
            .map(String::as_str)
        {
            Some(code) if code.starts_with('4') || code.starts_with('5') => {
                report.differs(&line.place, "requests get 403");
                Action::Refuse(REFUSES)
            }
            _ => {
                report.left_out(
                    &line.place,
                    "Seaway answers nothing by itself but redirects and errors: let a backend answer",
                );
                Action::Nothing
            }
        },
        "redirect" => redirect(line.after(2), line, context),
        "set-header" | "add-header" | "del-header" | "replace-header" => Action::Nothing,
        "use-service" | "send-spoe-group" | "wait-for-body" | "wait-for-handshake" => {
            report.closed(&line.place, NO_SCRIPTS);
            Action::Refuse(NO_SCRIPTS)
        }
        word if word.starts_with("lua.") => {
            report.closed(&line.place, NO_SCRIPTS);
            Action::Refuse(NO_SCRIPTS)
        }
        "set-path" | "replace-path" | "set-uri" | "replace-uri" | "replace-pathq" | "set-pathq"
        | "set-query" | "set-method" | "normalize-uri" => {
            report.left_out(&line.place, "Seaway replaces a prefix of the path by fixed text, in an HTTPRoute with URLRewrite (docs/manifests.md): members get the path as the client sent it");
            Action::Nothing
        }
        "cache-use" => {
            report.left_out(&line.place, "Seaway does not cache");
            Action::Nothing
        }
        _ => {
            report.no_effect(
                &line.place,
                "this line takes effect only where another rule uses it, or is about logs",
            );
            Action::Nothing
        }
    };
    (action, at)
}

fn redirect(words: &[String], line: &Line, context: &mut Context<'_>) -> Action {
    let mut to = Redirect { code: 302, ..Redirect::default() };
    let (mut https, mut text) = (false, None);
    let mut rest = words.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        match word {
            "scheme" => https = rest.next() == Some("https"),
            "location" | "prefix" => text = rest.next().map(|it| (word, it)),
            "code" => to.code = rest.next().and_then(|it| it.parse().ok()).unwrap_or(302),
            "if" | "unless" => break,
            _ => {}
        }
    }
    let Some((word, text)) = text else {
        if https {
            return Action::ToHttps;
        }
        context
            .report
            .left_out(&line.place, "Seaway redirects plaintext requests to https, not the other way round");
        return Action::Nothing;
    };
    // `https://%[hdr(host)]%[capture.req.uri]`
    let same = [
        "https://%[hdr(host)]%[capture.req.uri]",
        "https://%[req.hdr(host)]%[capture.req.uri]",
        "https://%[hdr(host)]%[path]",
    ];
    if same.contains(&text) {
        return Action::ToHttps;
    }
    let whole = text.trim_end_matches("%[capture.req.uri]").trim_end_matches("%[path]");
    let (scheme, place) = match whole.split_once("://") {
        Some(("https", rest)) => (Some("https"), rest),
        Some(("http", rest)) => (Some("http"), rest),
        _ => (None, whole),
    };
    let (name, path) = match scheme {
        Some(_) => place.split_at(place.find('/').unwrap_or(place.len())),
        None => ("", place),
    };
    let (name, port) = name.split_once(':').map_or((name, None), |(name, port)| (name, port.parse().ok()));
    let known =
        name.is_empty() || host(name).is_some_and(|it| it.written() == name && !name.starts_with('*'));
    if whole.contains(['%', '?']) || !known || (!path.is_empty() && !path.starts_with('/')) {
        context.report.left_out(
            &line.place,
            "Seaway redirects to a fixed host, and to a fixed path or that of the request",
        );
        return Action::Nothing;
    }
    (to.scheme, to.host, to.port) = (scheme, Some(name.to_owned()).filter(|it| !it.is_empty()), port);
    let keeps = word == "prefix" || whole.len() < text.len();
    to.path = match (keeps, path.trim_end_matches('/')) {
        (true, "") => None,
        (true, path) => Some(Rewrite::Prefix(path.to_owned())),
        (false, "") => Some(Rewrite::Full("/".to_owned())),
        (false, _) => Some(Rewrite::Full(path.to_owned())),
    };
    if matches!(to.path, Some(Rewrite::Prefix(_))) {
        context.report.left_out(
            &line.place,
            "write an HTTPRoute with RequestRedirect and replacePrefixMatch (docs/manifests.md)",
        );
        return Action::Nothing;
    }
    Action::Redirect(to)
}
