//! What each line of rules does with requests. A line that is not known to let all of them pass refuses them: what cannot be
//! written, closes.

use super::{
    super::proxy::{Redirect, Rewrite, host},
    Context,
    sections::Line,
    words,
};

/// What a rule does, before its condition is known.
pub(super) enum Action {
    /// For one of the reasons below.
    Refuse(&'static str),
    /// Requests that it is for are not looked at any more.
    Allow,
    Redirect(Redirect),
    ToHttps,
    Nothing,
}

pub(super) const REFUSES: &str = "this rule refuses requests by a condition that Seaway does not know: everything that the rule may apply to is closed (403)";
/// In place of a redirect or an answer.
pub(super) const ANSWERS: &str = "Seaway has no counterpart to this response or redirect, or cannot limit it to these requests: they get 403";
pub(super) const REJECTS_NETWORKS: &str = "deny lists are not imported, so the route is closed (403): list these networks in seaway.dev/denied-source-ranges, then remove seaway.dev/source-ranges";
const NO_PASSWORDS: &str = "passwords are not imported, so the route is closed (403): set seaway.dev/basic-auth, then remove seaway.dev/source-ranges; or restrict networks with `deny if !{ src … }`";
const NO_LIMIT: &str = "rate limits are not imported, so the route is closed (403): set seaway.dev/requests-per-second-per-client, then remove seaway.dev/source-ranges";
const NO_RESPONSES: &str = "Seaway does not refuse or replace responses of backends";
const NO_SCRIPTS: &str =
    "Seaway runs no scripts and rules of others, and cannot tell whether this one restricts access";
const NO_REWRITE: &str = "Seaway replaces a prefix of the path by fixed text, in an HTTPRoute with URLRewrite \
     (docs/manifests.md), and members would get what the client sent: everything that the line may apply to is closed (403)";
const NO_CHOICE: &str = "Seaway selects servers by balance, weights and session affinity: everything that the line may apply to is closed (403)";
const NO_HOST: &str =
    "members would get the Host that the client sent: everything that the line may apply to is closed (403)";

/// Actions that change nothing about who gets an answer, and from where. Of names with arguments, the part before `(`.
const PASS: &str = "set-var set-var-fmt unset-var capture set-log-level set-nice set-tos set-mark set-fc-tos set-fc-mark set-bc-tos set-bc-mark \
    set-priority-class set-priority-offset track-sc0 track-sc1 track-sc2 track-sc sc-add-gpc sc-inc-gpc sc-inc-gpc0 sc-inc-gpc1 sc-set-gpt \
    sc-set-gpt0 do-log set-bandwidth-limit pause set-timeout set-retries disable-l7-retry add-acl del-acl set-map del-map strict-mode \
    early-hint wait-for-body wait-for-handshake cache-use cache-store add-headers-bin set-headers-bin del-headers-bin";
const HEADERS: &str = "set-header add-header del-header replace-header replace-value";
/// What conditions compare afterwards is spoiled by them (changes.rs), and nothing else.
const SOURCES: &str = "set-src set-src-port";
const FILTERS: &str = "spoe compression comp-req comp-res cache trace bwlim-in bwlim-out";

/// When HAProxy looks at a line of rules, compared with others. `None`: it is no rule.
pub(super) fn stage(line: &Line) -> Option<u8> {
    match line.word(0) {
        "tcp-request" => Some(0),
        "http-request" | "block" | "rate-limit" | "monitor-net" => Some(1),
        "redirect" => Some(2),
        "http-response" | "http-after-response" | "tcp-response" | "use-server" => Some(3),
        _ => (!lets_pass(line)).then_some(1),
    }
}

/// Whether a line of a section refuses no request and no response, and sends none elsewhere. What is not known may do so.
pub(super) fn lets_pass(line: &Line) -> bool {
    let has = |list: &str, word: &str| {
        let word = word.split('(').next().unwrap_or_default();
        list.split_whitespace().any(|it| it == word)
    };
    match line.word(0) {
        "http-request" if has(HEADERS, line.word(1)) => !changes_host(line),
        "http-request" => has(PASS, line.word(1)) || has(SOURCES, line.word(1)),
        "http-response" | "http-after-response" => {
            let also = ["allow", "set-status", "del-header", "set-cookie-fmt"];
            has(PASS, line.word(1)) || has(HEADERS, line.word(1)) || also.contains(&line.word(1))
        }
        "tcp-request" | "tcp-response" if line.word(1) == "inspect-delay" => true,
        "tcp-request" => has(PASS, line.word(2)) || has(SOURCES, line.word(2)),
        "tcp-response" => has(PASS, line.word(2)) || line.word(2) == "accept",
        "block" | "rate-limit" | "redirect" | "use-server" | "monitor-net" => false,
        "filter" => has(FILTERS, line.word(1)),
        _ => words::is_known(line),
    }
}

/// Whether members get another `Host`, and not a fixed one.
fn changes_host(line: &Line) -> bool {
    let is_header = HEADERS.split(' ').any(|it| it == line.word(1));
    let is_fixed = matches!(line.word(1), "set-header" | "del-header")
        && !line.words.iter().any(|it| it.contains("%[") || it == "if" || it == "unless");
    is_header && line.word(2).eq_ignore_ascii_case("host") && !is_fixed
}

/// What a rule does, and where its condition begins.
pub(super) fn action(line: &Line, context: &mut Context<'_>) -> (Action, usize) {
    let at = line.words.iter().position(|it| it == "if" || it == "unless").unwrap_or(line.words.len());
    if lets_pass(line) {
        remark(line, context);
        return (Action::Nothing, at);
    }
    let action = match (line.word(0), line.word(1), line.word(2)) {
        ("block", ..) | ("tcp-request", _, "reject" | "silent-drop") => Action::Refuse(REFUSES),
        ("tcp-request", "connection" | "content" | "session", "accept") => Action::Allow,
        ("rate-limit", ..) => Action::Refuse(NO_LIMIT),
        ("monitor-net", ..) => Action::Refuse(REJECTS_NETWORKS),
        ("use-server", ..) => Action::Refuse(NO_CHOICE),
        ("redirect", ..) => redirect(line.after(1)),
        // By what a response is, nothing is refused.
        ("http-response" | "http-after-response" | "tcp-response", ..) => {
            return (Action::Refuse(NO_RESPONSES), line.words.len());
        }
        ("http-request", "deny" | "reject" | "tarpit" | "silent-drop", _) => Action::Refuse(REFUSES),
        ("http-request", "allow", _) => Action::Allow,
        ("http-request", "auth", _) => Action::Refuse(NO_PASSWORDS),
        ("http-request", "return", _) => Action::Refuse(if refuses(line) {
            context.report.differs(&line.place, "requests get 403");
            REFUSES
        } else {
            ANSWERS
        }),
        ("http-request", "redirect", _) => redirect(line.after(2)),
        ("http-request", word, _) if changes_request(word) => Action::Refuse(NO_REWRITE),
        ("http-request", ..) if changes_host(line) => Action::Refuse(NO_HOST),
        ("http-request" | "tcp-request", ..) => Action::Refuse(NO_SCRIPTS),
        ("option", "http-restrict-req-hdr-names", _) => {
            return (Action::Refuse(words::NAMES), line.words.len());
        }
        _ => return (Action::Refuse(words::UNKNOWN), line.words.len()),
    };
    (action, at)
}

/// `return status 403`
fn refuses(line: &Line) -> bool {
    let code = line.words.iter().skip_while(|it| *it != "status").nth(1);
    code.is_some_and(|it| it.starts_with('4') || it.starts_with('5'))
}

/// What members are asked for.
fn changes_request(word: &str) -> bool {
    let words = [
        "set-path",
        "replace-path",
        "set-uri",
        "replace-uri",
        "set-pathq",
        "replace-pathq",
        "set-query",
        "set-method",
        "normalize-uri",
    ];
    words.contains(&word)
}

fn remark(line: &Line, context: &mut Context<'_>) {
    match (line.word(0), line.word(1)) {
        ("http-request", "cache-use") => context.report.left_out(&line.place, "Seaway does not cache"),
        // headers.rs says what becomes of it.
        ("http-request", word) if HEADERS.split(' ').any(|it| it == word) => {}
        ("http-request" | "tcp-request" | "tcp-response", _) => context.report.no_effect(
            &line.place,
            "this line only prepares what another rule uses, or configures logs: alone it has no effect",
        ),
        _ => {}
    }
}

/// Where to; what an HTTPRoute cannot say is refused.
fn redirect(words: &[String]) -> Action {
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
        return Action::Refuse(ANSWERS);
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
        return Action::Refuse(ANSWERS);
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
        return Action::Refuse(ANSWERS);
    }
    Action::Redirect(to)
}
