//! ACLs: what an `if` or `unless` asks of a request, as matches of an HTTPRoute.

use std::collections::BTreeMap;

use super::{
    super::{
        expression::whole,
        proxy::{Condition, Host, PathRule, Value, host},
        write::{REST, escaped},
    },
    order::{Overlap, in_both},
    sections::{Line, Section},
};

/// All of this has to be so.
#[derive(Clone, Debug, Default)]
pub(super) struct Term {
    pub(super) condition: Condition,
    pub(super) tls: Option<bool>,
    /// Networks of clients.
    pub(super) sources: Option<Vec<String>>,
    pub(super) not_sources: Option<Vec<String>>,
    /// Names in TLS that was not ended (`req.ssl_sni`).
    pub(super) sni: Vec<Host>,
    /// What more is asked, and is not understood.
    pub(super) unknown: Option<String>,
}

/// The ACLs of a section, by name: any line of a name is enough.
pub(super) type Acls<'s> = BTreeMap<&'s str, Vec<&'s Line>>;

pub(super) fn acls<'s>(sections: impl Iterator<Item = &'s Section>) -> Acls<'s> {
    let mut acls = Acls::new();
    for line in sections.flat_map(|it| it.lines.iter()).filter(|it| it.word(0) == "acl") {
        acls.entry(line.word(1)).or_default().push(line);
    }
    acls
}

/// As many alternatives as one condition may come to.
const MOST: usize = 200;

/// The alternatives of a condition: of none, one that is always so. `precisely`: the beginning of a path as bytes, not as
/// whole segments, and nothing that only nearly is what HAProxy compares.
pub(super) fn terms(words: &[String], acls: &Acls<'_>, precisely: bool) -> Vec<Term> {
    let (word, rest) = match words.split_first() {
        None => return vec![Term::default()],
        Some(split) => split,
    };
    let mut alternatives: Vec<Vec<(bool, Vec<String>)>> = vec![Vec::new()];
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "or" | "||" => alternatives.push(Vec::new()),
            "and" | "&&" => {}
            _ => {
                let mut bare = word.trim_start_matches('!');
                let mut marks = word.len() - bare.len();
                // HAProxy lets blanks stand behind an exclamation mark.
                while bare.is_empty() {
                    let Some(next) = rest.next() else { return vec![unknown(words)] };
                    bare = next.trim_start_matches('!');
                    marks += next.len() - bare.len();
                }
                let negated = marks % 2 == 1;
                let mut atom = vec![bare.to_owned()];
                if bare == "{" {
                    atom = rest.by_ref().take_while(|it| *it != "}").cloned().collect();
                    atom.insert(0, "{".to_owned());
                }
                if let Some(last) = alternatives.last_mut() {
                    last.push((negated, atom));
                }
            }
        }
    }
    if word == "unless" {
        alternatives = match <[_; 1]>::try_from(alternatives) {
            Ok([all]) => all.into_iter().map(|(negated, atom)| vec![(!negated, atom)]).collect(),
            Err(_) => return vec![unknown(words)],
        };
    } else if word != "if" {
        return vec![unknown(words)];
    }
    let mut terms = Vec::new();
    for all in alternatives {
        let mut sum = vec![Term::default()];
        for (negated, atom) in all {
            let found = atom_terms(&atom, negated, acls, precisely);
            let product = sum.iter().flat_map(|one| found.iter().filter_map(move |two| both(one, two)));
            sum = product.take(MOST.saturating_add(1)).collect();
            if sum.len() > MOST {
                // A part of them would be less than what is asked for.
                return vec![unknown(words)];
            }
        }
        terms.extend(sum);
    }
    terms
}

fn unknown(words: &[String]) -> Term {
    Term { unknown: Some(words.join(" ")), ..Term::default() }
}

fn atom_terms(atom: &[String], negated: bool, acls: &Acls<'_>, precisely: bool) -> Vec<Term> {
    let name = atom.first().map_or("", String::as_str);
    let lines: Vec<&[String]> = match (name, acls.get(name)) {
        ("{", _) => vec![atom.get(1..).unwrap_or_default()],
        (_, Some(lines)) => lines.iter().map(|it| it.after(2)).collect(),
        (_, None) => return predefined(name, negated),
    };
    let all: Vec<Term> = lines.iter().flat_map(|it| criterion(it, precisely)).collect();
    if !negated {
        return all;
    }
    // Not one and not the other: of those that can be turned around, which are single.
    let said = || lines.iter().map(|it| it.join(" ")).collect::<Vec<_>>().join(" or ");
    let unclear = vec![Term { unknown: Some(format!("!{{ {} }}", said())), ..Term::default() }];
    let [only] = all.as_slice() else { return unclear };
    if only.condition != Condition::default() || only.unknown.is_some() || !only.sni.is_empty() {
        return unclear;
    }
    vec![Term {
        tls: only.tls.map(|it| !it),
        not_sources: only.sources.clone(),
        sources: only.not_sources.clone(),
        ..Term::default()
    }]
}

fn predefined(name: &str, negated: bool) -> Vec<Term> {
    let method = |it: &str| Term {
        condition: Condition { method: Some(it.to_owned()), ..Condition::default() },
        ..Term::default()
    };
    match (name, negated) {
        ("TRUE" | "HTTP", false) | ("FALSE", true) => vec![Term::default()],
        ("FALSE", false) | ("TRUE", true) => Vec::new(),
        ("METH_GET", false) => vec![method("GET"), method("HEAD")],
        (
            "METH_POST" | "METH_HEAD" | "METH_OPTIONS" | "METH_PUT" | "METH_DELETE" | "METH_CONNECT"
            | "METH_TRACE",
            false,
        ) => {
            vec![method(name.trim_start_matches("METH_"))]
        }
        ("LOCALHOST", false) => {
            vec![Term { sources: Some(vec!["127.0.0.0/8".to_owned()]), ..Term::default() }]
        }
        ("LOCALHOST", true) => {
            vec![Term { not_sources: Some(vec!["127.0.0.0/8".to_owned()]), ..Term::default() }]
        }
        _ => vec![Term { unknown: Some(name.to_owned()), ..Term::default() }],
    }
}

/// `hdr(host) -i shop.example`: an alternative for each value.
fn criterion(words: &[String], precisely: bool) -> Vec<Term> {
    let unclear = || vec![Term { unknown: Some(words.join(" ")), ..Term::default() }];
    let Some((sample, rest)) = words.split_first() else { return unclear() };
    let (mut any_case, mut way, mut values) = (false, None, Vec::new());
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-i" => any_case = true,
            "-m" => way = rest.next().map(String::as_str),
            "--" => {}
            it if it.starts_with('-') && it.len() == 2 => return unclear(),
            it => values.push(it),
        }
    }
    let lower = sample.to_ascii_lowercase();
    let mut plain = lower.replace(",lower", "");
    // The host that Seaway compares has no port.
    if plain.contains("hdr(host)") {
        plain = plain.replace(",field(1,:)", "").replace(",host_only", "");
    }
    let (name, argument) = match plain.split_once('(') {
        Some((name, rest)) if rest.ends_with(')') => (name.to_owned(), rest.trim_end_matches(')').to_owned()),
        Some(_) => return unclear(),
        None => (plain.clone(), String::new()),
    };
    if name.contains(',') || argument.contains(['(', ',']) {
        return unclear();
    }
    let any_case = any_case || lower.contains(",lower");
    let name = name.strip_prefix("req.").or_else(|| name.strip_prefix("req_")).unwrap_or(&name).to_owned();
    // `path_beg` is `path -m beg`.
    let (fetch, by_name) = match name.rsplit_once('_') {
        Some((fetch, way)) if ["beg", "end", "sub", "reg", "dir", "dom", "str"].contains(&way) => {
            (fetch.to_owned(), Some(way.to_owned()))
        }
        _ => (name, None),
    };
    let way = by_name.or(way.map(str::to_owned)).unwrap_or_else(|| "str".to_owned());
    let is_usual = way == "str" || way == "ip" || way == "bool";
    // Without a value, and compared in another way than by one, nothing would be asked for.
    let each = |of: &dyn Fn(&str) -> Option<Condition>| -> Vec<Term> {
        if values.is_empty() {
            return unclear();
        }
        let of_value = |value: &&str| match of(value) {
            Some(condition) => Term { condition, ..Term::default() },
            None => Term { unknown: Some(words.join(" ")), ..Term::default() },
        };
        values.iter().map(of_value).collect()
    };
    match (fetch.as_str(), argument.as_str()) {
        ("ssl_fc", _) if is_usual && (values.is_empty() || values == ["1"] || values == ["0"]) => {
            vec![Term { tls: Some(values != ["0"]), ..Term::default() }]
        }
        ("dst_port", _) if !is_usual => unclear(),
        ("dst_port", _) if values == ["443"] => vec![Term { tls: Some(true), ..Term::default() }],
        ("dst_port", _) if values == ["80"] => vec![Term { tls: Some(false), ..Term::default() }],
        ("src", _)
            if is_usual
                && values.iter().all(|it| seaway_plan::quantity::network(it).is_ok())
                && !values.is_empty() =>
        {
            vec![Term {
                sources: Some(values.iter().map(|it| (*it).to_owned()).collect()),
                ..Term::default()
            }]
        }
        ("method", _) if way == "str" => each(&|value| {
            let is_plain = value.bytes().all(|it| it.is_ascii_uppercase());
            is_plain.then(|| Condition { method: Some(value.to_owned()), ..Condition::default() })
        }),
        ("hdr" | "fhdr", "host") => {
            let hosts: Vec<Option<Host>> = values.iter().map(|it| host_of(it, &way)).collect();
            let clear: Vec<Host> = hosts.iter().flatten().cloned().collect();
            if clear.len() < hosts.len() || clear.is_empty() {
                return unclear();
            }
            vec![Term { condition: Condition { hosts: clear, ..Condition::default() }, ..Term::default() }]
        }
        ("ssl_sni" | "ssl_fc_sni", _) => {
            let hosts: Vec<Host> = values.iter().filter_map(|it| host_of(it, &way)).collect();
            if hosts.len() < values.len() || hosts.is_empty() {
                return unclear();
            }
            let of_tls = fetch == "ssl_fc_sni";
            let condition =
                Condition { hosts: if of_tls { hosts.clone() } else { Vec::new() }, ..Condition::default() };
            vec![Term { condition, sni: if of_tls { Vec::new() } else { hosts }, ..Term::default() }]
        }
        // What follows the path is not compared.
        ("url" | "capture.req.uri", _)
            if !matches!(way.as_str(), "str" | "beg")
                || values.iter().any(|it| !it.starts_with('/') || it.contains('?')) =>
        {
            unclear()
        }
        // Without what follows the path, it is more than what is asked for.
        ("url" | "capture.req.uri", _) if way == "str" => {
            let mut all = each(&|value| {
                Some(Condition { path: path_of(value, &way, any_case, precisely)?, ..Condition::default() })
            });
            all.iter_mut().filter(|_| precisely).for_each(|it| it.unknown = Some(words.join(" ")));
            all
        }
        ("path" | "url" | "capture.req.uri", _) => each(&|value| {
            Some(Condition { path: path_of(value, &way, any_case, precisely)?, ..Condition::default() })
        }),
        ("hdr" | "fhdr", name) if !name.is_empty() => {
            if way == "found" {
                return vec![with_header(name, Value::Regex(REST.to_owned()))];
            }
            // Of several fields HAProxy compares each, and each part of a list, and Seaway the first. So what is known is that
            // there is one.
            if precisely {
                let there = with_header(name, Value::Regex(REST.to_owned()));
                return vec![Term { unknown: Some(words.join(" ")), ..there }];
            }
            each(&|value| Some(with_header(name, value_of(value, &way, any_case)?).condition))
        }
        // Of several parameters HAProxy compares each, and it has other separators.
        ("url_param" | "urlp", _) if precisely => unclear(),
        ("url_param" | "urlp", name) if !name.is_empty() => each(&|value| {
            let query = BTreeMap::from([(argument_case(sample, name), value_of(value, &way, any_case)?)]);
            Some(Condition { query, ..Condition::default() })
        }),
        _ => unclear(),
    }
}

/// Parameters have cases.
fn argument_case(sample: &str, lower: &str) -> String {
    let written = sample.split_once('(').map_or(lower, |it| it.1.trim_end_matches(')'));
    if written.eq_ignore_ascii_case(lower) { written.to_owned() } else { lower.to_owned() }
}

fn with_header(name: &str, value: Value) -> Term {
    let headers = BTreeMap::from([(name.to_owned(), value)]);
    Term { condition: Condition { headers, ..Condition::default() }, ..Term::default() }
}

fn host_of(value: &str, way: &str) -> Option<Host> {
    let value = value.trim_end_matches(":80").trim_end_matches(":443");
    match way {
        "str" => host(value).filter(|it| matches!(it, Host::Exact(_))),
        "end" => host(&format!("*.{}", value.strip_prefix('.')?)),
        _ => None,
    }
}

fn path_of(value: &str, way: &str, any_case: bool, precisely: bool) -> Option<PathRule> {
    let text = |it: String| PathRule::Regex(if any_case { format!("(?i:{it})") } else { it });
    let letters = |it: &str| it.bytes().any(|it| it.is_ascii_alphabetic());
    let any_case_counts = any_case && letters(value);
    Some(match way {
        "str" if any_case_counts => text(escaped(value)),
        "str" => PathRule::Exact(value.to_owned()),
        "beg" if value == "/" => PathRule::Prefix("/".to_owned()),
        "beg" if any_case_counts => text(format!("{}{REST}", escaped(value))),
        "beg" if precisely => PathRule::Begins(value.to_owned()),
        "beg" => PathRule::Prefix(value.to_owned()),
        "end" if !any_case_counts => PathRule::Ends(value.to_owned()),
        "sub" if !any_case_counts => PathRule::Contains(value.to_owned()),
        "end" => text(format!("{REST}{}", escaped(value))),
        "sub" => text(format!("{REST}{}{REST}", escaped(value))),
        "dir" => text(format!("{REST}/{}(?:/{REST})?", escaped(value.trim_matches('/')))),
        "reg" => PathRule::Regex(whole(value, any_case, false)),
        _ => return None,
    })
}

fn value_of(value: &str, way: &str, any_case: bool) -> Option<Value> {
    let text = |it: String| Value::Regex(if any_case { format!("(?i:{it})") } else { it });
    Some(match way {
        "str" if any_case => text(escaped(value)),
        "str" => Value::Exact(value.to_owned()),
        "beg" => text(format!("{}{REST}", escaped(value))),
        "end" => text(format!("{REST}{}", escaped(value))),
        "sub" => text(format!("{REST}{}{REST}", escaped(value))),
        "reg" => Value::Regex(whole(value, any_case, false)),
        _ => return None,
    })
}

/// Both at once; `None`: no request is both.
fn both(one: &Term, two: &Term) -> Option<Term> {
    let tls = match (one.tls, two.tls) {
        (Some(one), Some(two)) if one != two => return None,
        (one, two) => one.or(two),
    };
    let (condition, unclear) = match super::order::meet(&one.condition, &two.condition) {
        Overlap::Exactly(condition) => (condition, None),
        Overlap::Nothing => return None,
        Overlap::Wider(_) | Overlap::Unknown(_) => (
            one.condition.clone(),
            Some("two regular expressions in one condition cannot be combined".to_owned()),
        ),
    };
    let sources = match (&one.sources, &two.sources) {
        (Some(one), Some(two)) => Some(in_both(one, two)),
        (one, two) => one.clone().or_else(|| two.clone()),
    };
    if sources.as_ref().is_some_and(Vec::is_empty) {
        return None;
    }
    // Neither in one nor in the other: not in all of them.
    let not_sources = match (&one.not_sources, &two.not_sources) {
        (Some(one), Some(two)) => Some(one.iter().chain(two).cloned().collect()),
        (one, two) => one.clone().or_else(|| two.clone()),
    };
    Some(Term {
        condition,
        tls,
        sources,
        not_sources,
        sni: if one.sni.is_empty() { two.sni.clone() } else { one.sni.clone() },
        unknown: one.unknown.clone().or_else(|| two.unknown.clone()).or(unclear),
    })
}
