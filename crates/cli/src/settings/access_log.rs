//! `accessLog`: who asked for what or connected to what, and what came of it.

use std::path::Path;

use seaway_manifests::decode::Field;
use seaway_proxy::{AccessLog, AccessLogFormat, AccessLogTarget};

pub(super) fn read(field: &Field<'_>, beside: &Path) -> Option<AccessLog> {
    let section = field.object();
    let forms = [
        ("off", None),
        ("common", Some(AccessLogFormat::Common)),
        ("combined", Some(AccessLogFormat::Combined)),
        ("json", Some(AccessLogFormat::Json)),
    ];
    let form =
        section.take("format").one_of(&forms).unwrap_or(field.is_set().then_some(AccessLogFormat::Combined));
    let to = match section.take("to").name() {
        None | Some("stdout") => AccessLogTarget::StandardOutput,
        Some(path) => AccessLogTarget::File(beside.join(path)),
    };
    let one_of = section.take("oneOf").integer_within(1, i64::from(u32::MAX)).unwrap_or(1);
    // Programs that read the forms of Apache expect requests, and an upgrade adds no lines to what they read.
    let connections = section.take("connections").bool().unwrap_or(form == Some(AccessLogFormat::Json));
    let flows = section.take("flows").bool().unwrap_or(false);
    section.finish();
    form.map(|form| AccessLog { form, to, one_of, connections, flows })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Settings, parse},
        *,
    };

    fn log(text: &str) -> Option<AccessLog> {
        parse(text, Path::new("/etc/seaway")).expect("it is right").access_log
    }

    #[test]
    fn an_access_log_is_what_is_asked_for() {
        assert_eq!(Settings::default().access_log, None);
        assert_eq!(log("accessLog: {format: 'off', to: a.log}\n"), None);
        let usual = AccessLog {
            form: AccessLogFormat::Combined,
            to: AccessLogTarget::StandardOutput,
            one_of: 1,
            connections: false,
            flows: false,
        };
        assert_eq!(log("accessLog: {to: stdout}\n"), Some(usual));
        for (path, expected) in [("a.log", "/etc/seaway/a.log"), ("/var/log/a.log", "/var/log/a.log")] {
            let text = format!(
                "accessLog: {{format: json, to: {path}, oneOf: 10, connections: false, flows: true}}\n"
            );
            let to = AccessLogTarget::File(expected.into());
            assert_eq!(
                log(&text),
                Some(AccessLog {
                    form: AccessLogFormat::Json,
                    to,
                    one_of: 10,
                    connections: false,
                    flows: true
                }),
                "{path}"
            );
        }
    }

    #[test]
    fn mistakes_are_told_at_their_places() {
        let faults =
            parse("accessLog: {format: apache, oneOf: 0}\n", Path::new("")).expect_err("it is wrong");
        let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "accessLog.format: Unsupported value: \"apache\": supported values: \"off\", \"common\", \"combined\", \"json\"",
                "accessLog.oneOf: Invalid value: 0: must be between 1 and 4294967295, inclusive",
            ]
        );
    }
}
