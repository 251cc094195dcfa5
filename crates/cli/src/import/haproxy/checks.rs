//! Health checks and times of a backend, as annotations.

use std::collections::BTreeMap;

use super::{Context, duration, sections::Section, time};

pub(super) fn annotations<'s>(
    section: &'s Section,
    context: &mut Context<'s>,
) -> BTreeMap<&'static str, String> {
    let mut said = BTreeMap::new();
    http(section, &mut said, context);
    servers(section, &mut said, context);
    if let Some(millis) = context.timeout(section, "check") {
        said.insert("health-check-timeout", time(millis));
    }
    said
}

fn http<'s>(section: &'s Section, said: &mut BTreeMap<&'static str, String>, context: &mut Context<'s>) {
    let Some(option) = context.option(section, "httpchk") else { return };
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
                                "a check of Seaway sends the Host, and no other header",
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
            _ => context.report.left_out(&line.place, "a check of Seaway is one request"),
        }
    }
    if !path.starts_with('/') {
        path = "/".to_owned();
    }
    said.insert("health-check-path", path);
    if method != "GET" {
        context.report.differs(&option.place, "a check of Seaway is a GET");
    }
}

fn servers<'s>(section: &'s Section, said: &mut BTreeMap<&'static str, String>, context: &mut Context<'s>) {
    let lines = context.lines(section, "default-server").into_iter().chain(section.with("server"));
    for line in lines.collect::<Vec<_>>() {
        for pair in line.words.windows(2) {
            let [word, written] = pair else { continue };
            let (name, value) = match word.as_str() {
                "inter" => ("health-check-interval", duration(written).map(time)),
                "rise" => ("health-check-rise", Some(written.clone())),
                "fall" => ("health-check-fall", Some(written.clone())),
                "slowstart" => ("slow-start", duration(written).map(time)),
                "port" if line.word(0) == "server" || line.word(0) == "default-server" => {
                    ("health-check-port", Some(written.clone()))
                }
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
