//! Headers that rules of a section set, add and remove.

use super::{
    super::proxy::HeaderChanges,
    Context,
    actions::lets_pass,
    sections::{Line, Section},
};

/// Headers of requests and answers that all get.
pub(super) fn headers<'s>(section: &'s Section, context: &mut Context<'s>) -> (HeaderChanges, HeaderChanges) {
    let (mut request, mut response) = (HeaderChanges::default(), HeaderChanges::default());
    for line in context.rules(section) {
        let of_request = match line.word(0) {
            "http-request" => true,
            "http-response" | "http-after-response" => false,
            "reqadd" | "rspadd" => {
                context
                    .report
                    .left_out(&line.place, "write http-request set-header or http-response set-header");
                continue;
            }
            _ => continue,
        };
        let (word, name) = (line.word(1), line.word(2));
        if !matches!(word, "set-header" | "add-header" | "del-header" | "replace-header" | "replace-value") {
            if !of_request && lets_pass(line) {
                context
                    .report
                    .left_out(&line.place, "Seaway can only set, add and remove headers of responses");
            }
            continue;
        }
        let end = line.words.iter().position(|it| it == "if" || it == "unless").unwrap_or(line.words.len());
        let value = line.words.get(3..end).unwrap_or_default().join(" ");
        let lower = name.to_ascii_lowercase();
        let by_tls = line.words.get(end..).unwrap_or_default().iter().all(|it| {
            ["if", "unless", "{", "}", "!{", "!", "ssl_fc", "!ssl_fc", "https", "!https"]
                .contains(&it.as_str())
        });
        let is_ours = of_request && OURS.contains(&lower.as_str());
        let is_fixed = end == line.words.len() && !value.contains("%[") && word == "set-header";
        if is_ours && word == "del-header" && end == line.words.len() && adds(&lower, section, context) {
            context.report.no_effect(
                &line.place,
                "Seaway replaces what a client sends in this header, unless the client is in frontDoor.trusted",
            );
        } else if is_ours && word != "del-header" && by_tls && !is_fixed {
            match is_own_value(&lower, &value) {
                true => context.report.no_effect(&line.place, "Seaway sets it (docs/http.md)"),
                false => context.report.differs(&line.place, "Seaway sets a value of its own (docs/http.md)"),
            }
        } else if !of_request && lower == "strict-transport-security" && by_tls && word != "del-header" {
            let seconds = value
                .split(';')
                .find_map(|it| it.trim().strip_prefix("max-age="))
                .and_then(|it| it.parse::<u64>().ok());
            match seconds {
                Some(seconds) => {
                    context.proxy.door.hsts = Some(format!("{seconds}s"));
                    if value.to_ascii_lowercase().contains("subdomains") {
                        context
                            .report
                            .differs(&line.place, "Seaway's HSTS has no includeSubDomains or preload");
                    }
                }
                None => context.report.left_out(&line.place, "the value has no max-age"),
            }
        } else if of_request && !is_ours && overrides(word, &lower, &value, end < line.words.len()) {
            context.report.left_out(
                &line.place,
                "Seaway sets headers to fixed values, without a condition: the header is removed, so that clients cannot send it",
            );
            change(&mut request, "del-header", name, String::new(), line, context);
        } else if end < line.words.len() {
            context.report.left_out(
                &line.place,
                "a header with a condition: write it in a rule of an HTTPRoute (docs/http.md)",
            );
        } else if value.contains("%[") || word.starts_with("replace-") {
            context
                .report
                .left_out(&line.place, "Seaway has no variables; which headers it sets is in docs/http.md");
        } else {
            let list = if of_request { &mut request } else { &mut response };
            change(list, word, name, value, line, context);
        }
    }
    let options = context.lineage(section).into_iter().flat_map(|it| it.with("option"));
    let named = options.filter_map(|it| Some((it, of_forwardfor(it)?))).collect::<Vec<_>>();
    for (line, name) in named {
        context.report.left_out(
            &line.place,
            "members read the client's address in X-Forwarded-For; what a client sends in this header is removed",
        );
        change(&mut request, "del-header", name, String::new(), line, context);
    }
    (request, response)
}

/// Headers that Seaway sets.
const OURS: [&str; 5] =
    ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "x-request-id"];

/// `option forwardfor header X-Client`
pub(super) fn of_forwardfor(line: &Line) -> Option<&str> {
    let at = line.words.iter().position(|it| it == "header").filter(|_| line.word(1) == "forwardfor")?;
    Some(line.word(at.saturating_add(1))).filter(|it| !it.eq_ignore_ascii_case("X-Forwarded-For"))
}

/// Whether HAProxy sets the header after it has removed that of a client.
fn adds<'s>(name: &str, section: &'s Section, context: &Context<'s>) -> bool {
    let is_option = |it: &Line| {
        name == "x-forwarded-for"
            && it.word(0) == "option"
            && it.word(1) == "forwardfor"
            && of_forwardfor(it).is_none()
    };
    let is_rule = |it: &Line| {
        it.word(0) == "http-request"
            && matches!(it.word(1), "set-header" | "add-header")
            && it.word(2).eq_ignore_ascii_case(name)
    };
    // A backend may add it for all of its frontends.
    context.sections.iter().flat_map(|it| &it.lines).any(is_option) || context.rules(section).any(is_rule)
}

/// Whether Seaway sets the header to the same.
fn is_own_value(name: &str, value: &str) -> bool {
    let all: &[&str] = match name {
        "x-forwarded-for" => &["%[src]", "%ci"],
        "x-forwarded-proto" => &["http", "https", "%[ssl_fc,iif(https,http)]"],
        "x-forwarded-host" => &["%[req.hdr(host)]", "%[hdr(host)]", "%[req.hdr(Host)]", "%[hdr(Host)]"],
        "x-forwarded-port" => &["80", "443", "%[dst_port]", "%fp"],
        _ => return true,
    };
    all.contains(&value)
}

/// Whether members would get what a client sends, where HAProxy puts a value of its own or removes it.
fn overrides(word: &str, name: &str, value: &str, has_condition: bool) -> bool {
    let needed = ["host", "connection", "upgrade", "content-length", "transfer-encoding", "te", "cookie"];
    let is_ours = word == "set-header" && (value.contains("%[") || has_condition);
    (is_ours || word.starts_with("replace-") || word == "del-header" && has_condition)
        && !needed.contains(&name)
}

fn change(
    list: &mut HeaderChanges,
    word: &str,
    name: &str,
    value: String,
    line: &Line,
    context: &mut Context<'_>,
) {
    if !seaway_plan::is_token(name)
        || list.set.len().max(list.remove.len()).max(list.add.len()) >= 16
        || (value.is_empty() && word != "del-header")
    {
        context.report.left_out(
            &line.place,
            "an HTTPRoute sets, adds and removes at most 16 headers, each with a value",
        );
        return;
    }
    let pair = (name.to_owned(), value.split_whitespace().collect::<Vec<_>>().join(" "));
    // The last rule counts.
    let is_other = |it: &str| !it.eq_ignore_ascii_case(name);
    if word == "del-header" {
        list.set.retain(|it| is_other(&it.0));
        list.add.retain(|it| is_other(&it.0));
    } else if word == "set-header" {
        list.remove.retain(|it| is_other(it));
        list.set.retain(|it| is_other(&it.0));
    }
    match word {
        "del-header" if list.remove.iter().any(|it| it.eq_ignore_ascii_case(name)) => {}
        "del-header" => list.remove.push(name.to_owned()),
        "add-header" => list.add.push(pair),
        _ => list.set.push(pair),
    }
}
