//! The configuration as a whole: its example, all keys that ever were, and mistakes with their places. Single sections have tests of
//! their own beside their readers.

use seaway_model::fact::TargetPort;

use super::*;

fn parse(text: &str) -> Result<Settings, Vec<ValidationError>> {
    super::parse(text, Path::new(""))
}

fn faults(text: &str) -> Vec<String> {
    let faults = parse(text).expect_err("it is wrong");
    faults.iter().map(|it| format!("{}: {it}", it.at)).collect()
}

#[test]
fn the_example_shows_every_key_and_its_default() {
    let settings = parse(EXAMPLE).expect("the example is right");
    assert_eq!(settings, Settings::default());
    // With every commented key in force, it is still right: none is misspelt or out of date.
    let all: Vec<&str> = EXAMPLE
        .lines()
        .map(|line| line.strip_prefix('#').filter(|it| !it.starts_with(' ')).unwrap_or(line))
        .collect();
    // All that is below this key stays a comment, and a key without a value that protects is refused.
    let all = all.join("\n").replace("\ntenants:\n", "\ntenants: {}\n");
    let full = parse(&all).expect("the example is right with every key in force");
    assert_eq!(full.config.exposed.len(), 4);
}

#[test]
fn every_key_that_ever_was_is_still_understood() {
    // Files that it names are not here.
    let mut faults = faults(include_str!("../../golden/seaway.yaml"));
    assert_eq!(faults.len(), 3, "public names change only with an alias: {faults:?}");
    faults.retain(|it| !it.contains("must be a file that can be read"));
    assert!(faults.is_empty(), "public names change only with an alias: {faults:?}");
}

#[test]
fn an_unknown_key_is_refused_with_its_place_and_a_suggestion() {
    assert_eq!(
        faults("host:\n  name: a\ndefualts: {}\n"),
        ["3:1: defualts: unknown field (did you mean \"defaults\"?)"]
    );
    assert_eq!(faults("log:\n  levl: info\n"), ["2:3: log.levl: unknown field (did you mean \"level\"?)"]);
}

#[test]
fn checks_that_are_asked_for_do_not_rest_unless_that_is_asked_for_too() {
    let rests = |text: &str| parse(text).expect("right").config.defaults.health.map(|it| it.while_used);
    assert_eq!(rests(""), Some(true));
    assert_eq!(rests("defaults: {healthCheck: {kind: tcp}}"), Some(false));
    assert_eq!(rests("defaults: {healthCheck: {kind: http, whileUsed: true}}"), Some(true));
    assert_eq!(rests("defaults: {healthCheck: off}"), None);
}

#[test]
fn how_many_requests_a_cloud_gets_is_said_and_takes_a_new_process() {
    let usual = parse("").expect("right");
    assert_eq!(usual.requests, Limits { per_second: 50, in_flight: 32 });
    let settings = parse("cloud: {requestsPerSecond: 10, inFlight: 4}").expect("right");
    assert_eq!(settings.requests, Limits { per_second: 10, in_flight: 4 });
    assert_eq!(settings.needs_restart(&usual), ["cloud.requestsPerSecond", "cloud.inFlight"]);
    for wrong in ["requestsPerSecond: 0", "requestsPerSecond: 10000", "inFlight: 0", "inFlight: many"] {
        let told = faults(&format!("cloud: {{{wrong}}}"));
        assert_eq!(told.len(), 1, "{wrong}: {told:?}");
    }
}

#[test]
fn all_mistakes_are_told_at_once() {
    let told =
        faults("admin:\n  listen: [nowhere]\ntcpServices: [mysql, {port: 3306}]\ndrain: soon\nlease: 10ms\n");
    assert_eq!(told.len(), 5, "{told:?}");
}

#[test]
fn copies_of_certificates_are_of_those_that_are_named() {
    let settings = parse("certificateCopies: seaway-certificates").expect("right");
    assert_eq!(settings.copies.as_deref(), Some("seaway-certificates"));
    let all = "certificateCopies: a\nfrontDoor: {tls: {secrets: all}}";
    assert!(faults(all)[0].contains("certificateCopies: cannot be combined with"), "{:?}", faults(all));
    assert!(parse(&all.replace("all", "named")).is_ok());
}

#[test]
fn services_are_named_as_the_old_flag_did_or_by_a_map() {
    let settings = parse("tcpServices: ['mysql:3306', 'shop/web:http', {service: a/b, port: 1, listen: 2, address: 127.0.0.1}]").expect("right");
    let short = &settings.config.exposed[0];
    assert_eq!(
        (short.namespace.as_str(), short.service.as_str(), &short.port),
        ("default", "mysql", &TargetPort::Number(3306))
    );
    assert_eq!(settings.config.exposed[1].port, TargetPort::Name("http".into()));
    assert_eq!(settings.config.exposed[2].listen, Some(2));
}

#[test]
fn what_is_probably_not_meant_is_kept_for_the_log_with_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("seaway.yaml");
    std::fs::write(&file, "log:\nfrontDoor:\n  trusted: ['::/0']\n  port: 443\n").expect("written");
    let settings = load(Some(&file)).expect("it is right");
    let at = |place: &str| format!("{}:{place}: ", file.display());
    assert_eq!(settings.doubts.len(), 3, "{:?}", settings.doubts);
    assert!(
        settings.doubts[0].starts_with(&(at("1:1") + "log: this key has no value")),
        "{:?}",
        settings.doubts
    );
    assert!(settings.doubts[1].starts_with(&(at("3:3") + "frontDoor.trusted: ")), "{:?}", settings.doubts);
    assert!(settings.doubts[2].starts_with(&(at("4:3") + "frontDoor.port: ")), "{:?}", settings.doubts);
}
