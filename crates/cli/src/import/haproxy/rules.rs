//! Rules of a frontend and of the backends that it leads to, in their order, as routes.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{
    super::{
        proxy::{Condition, HeaderChanges, PathRule, Route, Target},
        report::DirectiveLocation,
    },
    Context,
    actions::{ANSWERS, Action, REFUSES, REJECTS_NETWORKS, action, stage},
    backend::backend,
    changes::RewrittenParts,
    condition::{Acls, Term, terms},
    headers::headers,
    order::{Effect, Overlap, UNDECIDED, meet, put_before},
    sections::{Line, Section},
};

/// Which of its ports a frontend has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ports {
    pub(super) plain: bool,
    pub(super) tls: bool,
}

/// The routes of a frontend, or of a `listen`.
pub(super) fn routes<'s>(
    section: &'s Section,
    ports: Ports,
    context: &mut Context<'s>,
) -> Result<(Vec<Route>, bool)> {
    let acls = context.acls(section);
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
        routes = to_backend(&name, &place, section, context)?;
    }
    let uses = uses(section, &acls, ports, context)?;
    // Where all lead to backends that everyone may ask, whole segments are close enough, and are easier to read.
    let is_plain =
        |it: &Route| !it.is_protected() && it.https.is_none() && matches!(it.target, Target::Backends(_));
    let is_all_plain = routes.iter().all(is_plain)
        && uses.iter().all(|it| it.nearly.iter().all(|it| unsaid(it, ports).is_none()))
        && uses.iter().all(|it| !is_map(it.line) && it.to.iter().all(is_plain));
    for it in uses.into_iter().rev() {
        let terms = if is_all_plain { &it.nearly } else { &it.precisely };
        for term in terms.iter().rev() {
            choose(&it, term, ports, &mut routes, context)?;
        }
    }
    for route in routes.iter_mut().filter(|it| matches!(it.target, Target::Backends(_))) {
        add(&mut route.request, &request);
        add(&mut route.response, &response);
    }
    let to_https = requests(section, &acls, RewrittenParts::default(), ports, &mut routes, context)?;
    for route in routes.iter().filter(|it| it.closed.as_deref() == Some(UNDECIDED)) {
        context.report.closed(&route.place, UNDECIDED);
    }
    Ok((routes, to_https))
}

/// A `use_backend`.
struct UseBackend<'s> {
    line: &'s Line,
    precisely: Vec<Term>,
    /// By whole segments, and the first field of a name.
    nearly: Vec<Term>,
    to: Vec<Route>,
}

fn uses<'s>(
    section: &'s Section,
    acls: &Acls<'s>,
    ports: Ports,
    context: &mut Context<'s>,
) -> Result<Vec<UseBackend<'s>>> {
    let mut all = Vec::new();
    // An earlier line takes all requests of these ACLs: that they are not meant need not be said again.
    let mut taken: Vec<&str> = Vec::new();
    for line in section.with("use_backend") {
        let mut words = line.after(2).to_vec();
        if words.first().is_some_and(|it| it == "if") && !words.iter().any(|it| it == "or" || it == "||") {
            words.retain(|it| !it.strip_prefix('!').is_some_and(|it| taken.contains(&it)));
        }
        if words == ["if"] {
            words.clear();
        }
        if let [word, name] = line.after(2)
            && word == "if"
        {
            taken.push(name);
        }
        let (precisely, nearly) = (terms(&words, acls, true), terms(&words, acls, false));
        let is_lost = nearly.iter().all(|it| unsaid(it, ports).is_some());
        let to = match is_lost || is_map(line) {
            true => {
                // No route can lead there, but for those who write one by hand.
                if let Some(at) = context.backend(line.word(1)).and_then(|it| backend(it, true, context)) {
                    context.proxy.kept.insert(at);
                }
                Vec::new()
            }
            false => to_backend(line.word(1), &line.place, section, context)?,
        };
        all.push(UseBackend { line, precisely, nearly, to });
    }
    Ok(all)
}

/// `use_backend %[…]`
fn is_map(line: &Line) -> bool {
    line.word(1).contains("%[")
}

/// Why an HTTPRoute cannot match as a condition does.
fn unsaid(term: &Term, ports: Ports) -> Option<String> {
    match term {
        Term { unknown: Some(what), .. } => Some(format!("an HTTPRoute does not match by {what}")),
        Term { sources: Some(_), .. } | Term { not_sources: Some(_), .. } => {
            Some("Seaway does not route by the client's address".to_owned())
        }
        Term { sni, .. } if !sni.is_empty() => {
            Some("the server name in TLS (SNI) selects no backend in mode http".to_owned())
        }
        Term { tls: Some(tls), .. } if ports.plain && ports.tls => {
            Some(format!("both ports have the same routes: whether TLS was used ({tls}) selects none"))
        }
        _ => None,
    }
}

/// Puts what a `use_backend` says for one alternative before all of `routes`. Where that cannot be said, those requests must
/// not go to what comes after it.
fn choose(
    it: &UseBackend<'_>,
    term: &Term,
    ports: Ports,
    routes: &mut Vec<Route>,
    context: &mut Context<'_>,
) -> Result<()> {
    let place = &it.line.place;
    let why = match is_map(it.line) {
        true => Some("Seaway has no maps: write one use_backend for each host or path".to_owned()),
        false => unsaid(term, ports),
    };
    if let Some(why) = why {
        let why = format!("{why}: all requests that this rule may match get 403");
        context.report.closed(place, &why);
        let mut route = Route::new(place.clone(), Condition::default(), Target::Nothing);
        route.close(&why);
        return put_before(&term.condition, &Effect::Closes(Box::new(route)), routes);
    }
    if term.tls.is_some_and(|it| if it { !ports.tls } else { !ports.plain }) {
        return Ok(());
    }
    if let PathRule::Prefix(path) = &term.condition.path
        && path != "/"
    {
        let what = format!(
            "path_beg {path}: Seaway compares whole segments, so it takes {path} and all below it, and nothing else that begins so"
        );
        context.report.differs(place, &what);
    }
    put(&term.condition, it.to.clone(), routes)
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
            Overlap::Exactly(both) => put_before(&both, &Effect::Ends(Box::new(route)), routes)?,
            Overlap::Nothing => {}
            // It leads to the same backend; what protects a part of it protects all.
            Overlap::Wider(_) | Overlap::Unknown(_) => {
                put_before(condition, &Effect::Ends(Box::new(route)), routes)?
            }
        }
    }
    Ok(())
}

/// A backend with its own rules: one route, or several.
fn to_backend<'s>(
    name: &str,
    place: &DirectiveLocation,
    from: &'s Section,
    context: &mut Context<'s>,
) -> Result<Vec<Route>> {
    let mut route = Route::new(place.clone(), Condition::default(), Target::Nothing);
    let Some(section) = context.backend(name) else {
        context.report.closed(place, "no backend has this name: requests get 403");
        route.close("the backend does not exist");
        return Ok(vec![route]);
    };
    match backend(section, true, context) {
        Some(at) => route.target = Target::Backends(vec![(at, 1)]),
        None => route.close("no server of the backend could be translated"),
    }
    if section.place == from.place {
        return Ok(vec![route]);
    }
    (route.request, route.response) = headers(section, context);
    let acls = context.acls(section);
    let mut routes = vec![route];
    let mut changes = RewrittenParts::default();
    context.rules(from).for_each(|it| changes.note(it));
    requests(section, &acls, changes, Ports { plain: true, tls: true }, &mut routes, context)?;
    Ok(routes)
}

/// What is done with requests before a backend is looked for; whether all plaintext ones are sent to https.
fn requests<'s>(
    section: &'s Section,
    acls: &Acls<'_>,
    mut changes: RewrittenParts,
    ports: Ports,
    routes: &mut Vec<Route>,
    context: &mut Context<'s>,
) -> Result<bool> {
    let mut lines: Vec<(u8, &Line)> =
        context.rules(section).filter_map(|it| Some((stage(it)?, it))).collect();
    lines.sort_by_key(|it| it.0);
    let mut rules: Vec<(&Line, Action, usize)> = Vec::new();
    for (_, line) in lines {
        let (action, condition) = action(line, context);
        rules.push((line, action, condition));
    }
    // `allow if { src … }`, and then `deny`: who is not there is refused.
    let mut allowed: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    let mut effects: Vec<(DirectiveLocation, Term, Effect)> = Vec::new();
    let mut to_https = false;
    for (line, action, at) in rules {
        let mut found = terms(line.after(at), acls, true);
        for term in &mut found {
            changes.spoil(term);
            if !term.sni.is_empty() {
                term.unknown.get_or_insert_with(|| "the server name in TLS (req.ssl_sni)".to_owned());
            }
        }
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
                        // By who asks, requests are refused where they were sent elsewhere.
                        effects.extend(refused(line, ANSWERS, term, None, ports, context));
                        continue;
                    }
                    if term.tls.is_some() && ports.plain && ports.tls {
                        context.report.differs(
                            &line.place,
                            "the redirect applies with and without TLS: its condition on ssl_fc is dropped",
                        );
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
                        Some(_) => "redirects with status 308, whatever code the line has; a part of the condition is not understood, so more requests are redirected",
                        None => "redirects with status 308, whatever code the line has",
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
) -> Option<(DirectiveLocation, Term, Effect)> {
    let closed = |why: &str| {
        let mut route = Route::new(line.place.clone(), Condition::default(), Target::Nothing);
        route.close(why);
        Effect::Closes(Box::new(route))
    };
    let place = line.place.clone();
    if term.tls == Some(false) && term.unknown.is_none() && ports.tls {
        context.report.differs(&place, "plaintext requests are redirected to https instead");
        return Some((place, term, Effect::ToHttps(true)));
    }
    let refuses = why == REFUSES;
    let restricts = refuses || why == ANSWERS;
    let networks = term
        .not_sources
        .clone()
        .filter(|_| restricts)
        .or_else(|| allowed.map(<[String]>::to_vec).filter(|_| refuses));
    let effect = match (&term.unknown, networks, &term.sources) {
        (Some(what), ..) => {
            context.report.closed(&place, &format!("{why} ({what})"));
            closed(&format!("{}: {what}", line.word(1)))
        }
        (None, Some(networks), None) => {
            if !refuses {
                context.report.closed(&place, why);
            }
            Effect::Restricts(networks)
        }
        (None, _, Some(_)) => {
            let why = if refuses { REJECTS_NETWORKS } else { why };
            context.report.closed(&place, why);
            closed(why)
        }
        // A condition that Seaway has: requests get 403, as they did.
        (None, None, None) if refuses && term.not_sources.is_none() => closed(&line.written()),
        _ => {
            context.report.closed(&place, why);
            closed(why)
        }
    };
    Some((place, term, effect))
}
