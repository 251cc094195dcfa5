//! `defaults`: what a Service gets that says nothing else.

use std::{path::Path, sync::Arc};

use seaway_manifests::{decode::Field, tree::Value};
use seaway_model::{
    config::{Defaults, MemberSource},
    load_balancer::{Balance, CheckKind, ConnectionReuse, CookieKey, HealthCheck, PassiveHealthCheck},
};

/// As many letters as a key of 128 bits has in hexadecimal.
const SHORTEST_KEY: usize = 32;

pub(super) fn read(field: &Field<'_>, beside: &Path, defaults: &mut Defaults) {
    let section = field.object();
    let members = section.take("members").one_of(&[
        ("auto", MemberSource::Auto),
        ("pods", MemberSource::Pods),
        ("nodes", MemberSource::Nodes),
    ]);
    if let Some(members) = members {
        defaults.members = members;
    }
    let balance = section.take("balance").one_of(&[
        ("round-robin", Balance::RoundRobin),
        ("least-connections", Balance::LeastConnections),
        ("random-two", Balance::RandomTwo),
        ("source-hash", Balance::SourceHash),
        ("first", Balance::First),
        // As annotations have them, too.
        ("roundrobin", Balance::RoundRobin),
        ("leastconn", Balance::LeastConnections),
        ("random", Balance::RandomTwo),
        ("source", Balance::SourceHash),
    ]);
    if let Some(balance) = balance {
        defaults.balance = balance;
    }
    let check = section.take("healthCheck");
    if is_off(&check) {
        defaults.health = None;
    } else if check.is_set() {
        defaults.health = Some(health(&check));
    }
    let passive = section.take("passiveEjection");
    if is_off(&passive) {
        defaults.passive = None;
    } else if passive.is_set() {
        defaults.passive = Some(ejection(&passive));
    }
    if let Some(time) = section.take("slowStart").duration() {
        defaults.slow_start = Some(time).filter(|it| !it.is_zero());
    }
    if let Some(percent) = section.take("panicThreshold").integer_within(0, 100) {
        defaults.panic_threshold = percent;
    }
    let reuse = section.take("reuseConnections").one_of(&[
        ("safe", ConnectionReuse::Safe),
        ("strict", ConnectionReuse::Strict),
        ("always", ConnectionReuse::Always),
        ("never", ConnectionReuse::Never),
    ]);
    if let Some(reuse) = reuse {
        defaults.reuse = reuse;
    }
    defaults.cookie_key = cookie_key(&section.take("cookieKey"), beside);
    timeouts(&section.take("timeouts"), defaults);
    limits(&section.take("limits"), defaults);
    section.finish();
}

/// What a file says: a secret has no place in a configuration that people show to each other.
fn cookie_key(field: &Field<'_>, beside: &Path) -> Option<CookieKey> {
    let name = field.name()?;
    match std::fs::read_to_string(beside.join(name)) {
        Ok(text) if text.trim().len() >= SHORTEST_KEY => {
            return Some(CookieKey(Arc::new(text.trim().to_owned().into())));
        }
        Ok(_) => field.invalid(name, &format!("must be a file with {SHORTEST_KEY} bytes or more")),
        Err(error) => field.invalid(name, &format!("must be a file that can be read: {error}")),
    }
    None
}

/// `off`, which YAML 1.1 reads as false.
fn is_off(field: &Field<'_>) -> bool {
    match field.node().map(|node| &node.value) {
        Some(Value::Bool(on)) => !on,
        Some(Value::Text(text)) => matches!(text.as_str(), "off" | "none"),
        _ => false,
    }
}

fn health(field: &Field<'_>) -> HealthCheck {
    let section = field.object();
    let mut check = HealthCheck::default();
    let grpc = CheckKind::Grpc { service: "".into() };
    let kinds = [("tcp", CheckKind::Tcp), ("http", CheckKind::http()), ("grpc", grpc)];
    check.kind = section.take("kind").one_of(&kinds).unwrap_or(check.kind);
    let path = section.take("path");
    // One that is no path is doubted (`doubts.rs`), and not refused: earlier versions started with it.
    if let (Some(text), CheckKind::Http { path: asked, .. }) = (path.name(), &mut check.kind) {
        *asked = text.into();
    }
    if let Some(time) = section.take("interval").duration().filter(|it| !it.is_zero()) {
        check.interval = time;
    }
    if let Some(time) = section.take("timeout").duration().filter(|it| !it.is_zero()) {
        check.timeout = time;
    }
    check.rise = section.take("rise").integer_within(1, 255).unwrap_or(check.rise);
    check.fall = section.take("fall").integer_within(1, 255).unwrap_or(check.fall);
    // Whoever says how to check wants it done, unless he says this, too.
    check.while_used = section.take("whileUsed").bool().unwrap_or(false);
    section.finish();
    check
}

fn ejection(field: &Field<'_>) -> PassiveHealthCheck {
    let section = field.object();
    let mut passive = PassiveHealthCheck::default();
    passive.failures = section.take("failures").integer_within(1, 255).unwrap_or(passive.failures);
    if let Some(errors) = section.take("errors").integer_within(0, 255) {
        passive.errors = Some(errors).filter(|it| *it > 0);
    }
    passive.share = section.take("share").integer_within(0, 100).unwrap_or(passive.share);
    if let Some(time) = section.take("eject").duration() {
        passive.eject = time;
    }
    section.finish();
    passive
}

fn timeouts(field: &Field<'_>, defaults: &mut Defaults) {
    let section = field.object();
    let times = &mut defaults.timeouts;
    for (key, time) in [
        ("connect", &mut times.connect),
        ("idle", &mut times.idle),
        ("halfClosed", &mut times.half_closed),
        ("udp", &mut times.udp_idle),
        ("drain", &mut times.drain),
        ("header", &mut times.header),
        ("keepAlive", &mut times.keep_alive),
        ("answer", &mut times.answer),
    ] {
        let field = section.take(key);
        match field.duration() {
            Some(it) if it.is_zero() && key != "drain" => field.invalid("0", "must be greater than 0"),
            Some(it) => *time = it,
            None => {}
        }
    }
    section.finish();
}

fn limits(field: &Field<'_>, defaults: &mut Defaults) {
    let section = field.object();
    let most = i64::from(u32::MAX);
    let limit = |it: u32| Some(it).filter(|it| *it > 0);
    if let Some(it) = section.take("connections").integer_within(0, most) {
        defaults.limits.connections = limit(it);
    }
    if let Some(it) = section.take("newPerSecond").integer_within(0, most) {
        defaults.limits.new_per_second = limit(it);
    }
    section.finish();
}

#[cfg(test)]
mod tests {
    use super::{super::parse, *};

    #[test]
    fn words_and_durations_are_those_of_annotations() {
        let read = |text: &str| {
            let settings = parse(text, Path::new("")).map_err(|it| format!("{it:?}"));
            settings.expect(text).config.defaults
        };
        for (word, balance) in [
            ("leastconn", Balance::LeastConnections),
            ("roundrobin", Balance::RoundRobin),
            ("source", Balance::SourceHash),
            ("random", Balance::RandomTwo),
        ] {
            assert_eq!(read(&format!("defaults: {{balance: {word}}}")).balance, balance);
        }
        let five = Some(std::time::Duration::from_secs(5));
        for text in ["5", "'5'", "5s", "5000ms"] {
            assert_eq!(read(&format!("defaults: {{slowStart: {text}}}")).slow_start, five, "{text}");
        }
        // An annotation has these words as well (`health-check: grpc`), and `off` for none.
        let kind = |text: &str| {
            let health = read(&format!("defaults: {{healthCheck: {text}}}")).health;
            health.map(|it| it.kind)
        };
        let grpc = CheckKind::Grpc { service: "".into() };
        for (word, expected) in [("tcp", CheckKind::Tcp), ("http", CheckKind::http()), ("grpc", grpc)] {
            assert_eq!(kind(&format!("{{kind: {word}}}")), Some(expected), "{word}");
        }
        assert_eq!((kind("off"), kind("none")), (None, None));
        let door = |text: &str| {
            let text = format!("frontDoor: {{limits: {{body: {text}}}}}");
            let settings = parse(&text, Path::new("")).map_err(|it| format!("{it:?}"));
            settings.expect(&text).config.front_door.http.limits.body
        };
        for (text, bytes) in [("10Mi", 10 << 20), ("10M", 10_000_000), ("512Ki", 512 << 10), ("4096", 4096)] {
            assert_eq!(door(text), bytes, "{text}");
        }
        let wrong = parse("defaults: {slowStart: -5}", Path::new(""));
        assert!(wrong.is_err_and(|it| it[0].message.contains("must be a duration")));
    }

    #[test]
    fn the_key_of_cookies_is_in_a_file_and_long_enough() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = "0123456789abcdef0123456789abcdef";
        for (text, told) in [
            (Some(format!("{key}\n")), None),
            (Some("short\n".to_owned()), Some("must be a file with 32 bytes or more")),
            (None, Some("must be a file that can be read: No such file or directory (os error 2)")),
        ] {
            let path = folder.path().join("cookie.key");
            match &text {
                Some(text) => std::fs::write(&path, text).expect("written"),
                None => std::fs::remove_file(&path).expect("removed"),
            }
            match parse("defaults: {cookieKey: cookie.key}\n", folder.path()) {
                Ok(settings) => {
                    let found = settings.config.defaults.cookie_key.expect("it is there");
                    assert_eq!((found.as_bytes(), told), (key.as_bytes(), None));
                    assert!(!format!("{found:?}").contains(key), "nobody sees it");
                }
                Err(faults) => {
                    let fault = faults[0].to_string();
                    assert!(told.is_some_and(|it| fault.ends_with(it)), "{fault}");
                }
            }
        }
    }
}
