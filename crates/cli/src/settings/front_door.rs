//! `frontDoor`: the listener that Services share, by path and host name.

use std::{collections::BTreeMap, path::Path};

use seaway_files::pem::PemFiles;
use seaway_manifests::decode::Field;
use seaway_model::{
    Name,
    config::{FrontDoor, FrontDoorServices, OpenPolicy, UnmatchedResponse},
    load_balancer::{HttpLimits, TracePolicy},
};
use seaway_plan::{annotations::MAIN, is_token, quantity::trusted_network};

use super::{
    acme, certificates,
    tenants::{self, ExplicitKeys},
    trusted_networks,
};

/// More than this is no page to answer with.
const LARGEST_PAGE: u64 = 1 << 20;

pub(super) fn read(
    field: &Field<'_>,
    beside: &Path,
    door: &mut FrontDoor,
    pems: &mut Vec<PemFiles>,
    said: &mut ExplicitKeys,
) {
    let section = field.object();
    match section.take("enabled").bool() {
        Some(true) => door.opens = OpenPolicy::Always,
        Some(false) => door.opens = OpenPolicy::Never,
        None => {}
    }
    let addresses = section.take("addresses");
    if addresses.is_set() {
        said.door_addresses = true;
        door.addresses = addresses.items().filter_map(|it| it.ip()).collect();
        if addresses.items().len() == 0 {
            addresses.required("an address; [\"::\", 0.0.0.0] are all of this host");
        }
    }
    door.port = section.take("port").port().unwrap_or(door.port);
    let services = [("all", FrontDoorServices::All), ("annotated", FrontDoorServices::Annotated)];
    if let Some(services) = section.take("services").one_of(&services) {
        (door.services, said.services) = (services, true);
    }
    tenants::parent(&section.take("parentRef"), door, said);
    tenants::owners(&section.take("hostOwners"), &mut door.owners, said);
    door.strip_prefix = section.take("stripPrefix").bool().unwrap_or(door.strip_prefix);
    door.unmatched = unmatched(&section.take("unmatched"), beside);
    certificates::certificates(&section.take("certificates"), beside, &mut door.tls, pems);
    let tls = section.take("tls");
    certificates::tls(&tls, beside, &mut door.tls, pems, said);
    one_port_each(&tls, door);
    door.tls.acme = acme::acme(&section.take("acme"), beside);
    door.http.pages = pages(&section.take("pages"), beside);
    let http = &mut door.http;
    http.request_id = section.take("requestId").bool().unwrap_or(http.request_id);
    let traces = [("keep", TracePolicy::Keep), ("make", TracePolicy::Make)];
    http.trace = section.take("traceparent").one_of(&traces).unwrap_or(http.trace);
    http.forwarded = section.take("forwarded").bool().unwrap_or(http.forwarded);
    let via = section.take("via");
    http.via = via
        .name()
        .filter(|it| {
            let named = is_token(it);
            if !named {
                via.invalid(*it, "must be a name of letters, digits and signs such as - and _");
            }
            named
        })
        .map(Name::from);
    limits(&section.take("limits"), &mut http.limits);
    let trusted = section.take("trusted");
    let read = |it: Field<'_>| trusted_network(trusted_networks::written(&it)?).ok();
    door.http.trusted.extend(trusted.items().filter_map(read));
    entrances(&section.take("entrances"), beside, door, pems, said);
    section.finish();
}

/// At one port nobody can tell requests in plaintext from TLS: only one of the two would be opened. Where only `port` is set to the
/// usual one of TLS, that is a doubt.
fn one_port_each(tls: &Field<'_>, door: &FrontDoor) -> bool {
    let of_tls = tls.child("port");
    let is_same = of_tls.is_set() && door.port == door.tls.port && door.opens != OpenPolicy::Never;
    if is_same {
        let number = i64::from(door.port);
        of_tls.invalid(number, "must be another port than `port`, where HTTP without TLS is served");
    }
    !is_same
}

/// Further entrances: each has what the front door has, but for what it says itself, and for its certificates.
fn entrances(
    field: &Field<'_>,
    beside: &Path,
    door: &mut FrontDoor,
    pems: &mut Vec<PemFiles>,
    said: &mut ExplicitKeys,
) {
    for item in field.items() {
        let section = item.object();
        let mut own = FrontDoor { entrances: BTreeMap::new(), ..door.clone() };
        (own.tls.certificates, own.tls.acme) = (Vec::new(), None);
        let named = section.take("name");
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let name = named.name().filter(|it| {
            let is_name = !it.is_empty() && it.len() <= 63 && it.bytes().all(plain);
            if !is_name || *it == MAIN || door.entrances.contains_key(*it) {
                let told = "must be a unique name of lower-case letters, digits and -, and not main";
                named.invalid(*it, told);
                return false;
            }
            true
        });
        if !named.is_set() {
            named.required("a name, such as internal");
        }
        let (addresses, port) = (section.take("addresses"), section.take("port"));
        if addresses.is_set() {
            own.addresses = addresses.items().filter_map(|it| it.ip()).collect();
            if addresses.items().len() == 0 {
                addresses.required("an address of this host");
            }
        }
        own.port = port.port().unwrap_or(own.port);
        if section.take("unmatched").is_set() {
            own.unmatched = unmatched(&section.take("unmatched"), beside);
        }
        if section.take("pages").is_set() {
            own.http.pages = pages(&section.take("pages"), beside);
        }
        certificates::certificates(&section.take("certificates"), beside, &mut own.tls, pems);
        let secrets = own.tls.secrets;
        certificates::tls(&section.take("tls"), beside, &mut own.tls, pems, said);
        if own.tls.secrets != secrets {
            section
                .take("tls")
                .error("cannot have `secrets`: frontDoor.tls.secrets applies to all entrances");
            own.tls.secrets = secrets;
        }
        let tls = section.take("tls");
        // What it has of the front door is reported there.
        let has_own = port.is_set() || tls.child("port").is_set();
        let has_ports = !has_own || one_port_each(&tls, &own);
        section.finish();
        let others = std::iter::once(&*door).chain(door.entrances.values());
        let ports = |it: &FrontDoor| [it.port, it.tls.port];
        let shares = |it: &FrontDoor| it.addresses.iter().any(|ip| own.addresses.contains(ip));
        let is_taken = others
            .into_iter()
            .any(|it| shares(it) && ports(it).iter().any(|port| ports(&own).contains(port)));
        if is_taken && has_ports {
            let told = "must have addresses, or ports (`port` and `tls.port`), that no other entrance has";
            item.error(told);
        } else if let Some(name) = name.filter(|_| has_ports) {
            door.entrances.insert(name.into(), own);
        }
    }
}

fn limits(field: &Field<'_>, limits: &mut HttpLimits) {
    let section = field.object();
    let body = section.take("body");
    if let Some(most) = body.size() {
        limits.body = if most == 0 { u64::MAX } else { most };
    }
    for (key, limit) in [("head", &mut limits.head), ("target", &mut limits.target)] {
        let field = section.take(key);
        match field.size() {
            Some(most @ 1_024..=65_536) => *limit = most as u32,
            Some(most) => field.invalid(most as i64, "must be between 1Ki and 64Ki, inclusive"),
            None => {}
        }
    }
    limits.fields = section.take("fields").integer_within(8, 1_024).unwrap_or(limits.fields);
    section.finish();
}

fn unmatched(field: &Field<'_>, beside: &Path) -> Option<UnmatchedResponse> {
    let section = field.object();
    let code = section.take("code").integer_within(200, 599);
    let page = page(&section.take("page"), beside);
    section.finish();
    field.is_set().then(|| UnmatchedResponse { code: code.unwrap_or(404), page })
}

/// `{503: sorry.html}`
fn pages(field: &Field<'_>, beside: &Path) -> BTreeMap<u16, Name> {
    let mut pages = BTreeMap::new();
    for (key, file) in field.entries() {
        match key.parse::<u16>() {
            Ok(code @ 400..=599) => pages.extend(page(&file, beside).map(|page| (code, page))),
            _ => file.invalid(key, "must be the status of an error, 400 to 599"),
        }
    }
    pages
}

/// What a file says; one that is not absolute is beside the configuration.
fn page(field: &Field<'_>, beside: &Path) -> Option<Name> {
    let name = field.name()?;
    let path = beside.join(name);
    let told = match std::fs::metadata(&path) {
        Ok(it) if it.len() > LARGEST_PAGE => format!("must have at most {LARGEST_PAGE} bytes"),
        Ok(_) => match std::fs::read_to_string(&path) {
            Ok(text) => return Some(text.into()),
            Err(error) => format!("must be a file that can be read: {error}"),
        },
        Err(error) => format!("must be a file that can be read: {error}"),
    };
    field.invalid(name, &told);
    None
}

#[cfg(test)]
mod tests {
    use seaway_model::config::FrontDoor;

    use super::super::{Settings, parse};
    use super::*;

    fn door(text: &str, beside: &Path) -> FrontDoor {
        parse(text, beside).expect("it is right").config.front_door
    }

    #[test]
    fn every_key_of_the_front_door_is_heeded() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("404.html"), "<p>not here</p>").expect("written");
        std::fs::write(folder.path().join("503.html"), "<p>later</p>").expect("written");
        let text = "frontDoor:\n  enabled: true\n  addresses: [127.0.0.1]\n  port: 8080\n  services: annotated\n  \
                    stripPrefix: false\n  unmatched: {code: 410, page: 404.html}\n  pages: {503: 503.html}\n  \
                    trusted: [10.0.0.0/8, '::1']\n  requestId: false\n  traceparent: make\n  forwarded: true\n  \
                    via: edge-1\n  limits: {body: 10Mi, head: 32Ki, target: 4096, fields: 100}\n";
        let door = door(text, folder.path());
        assert_eq!(
            (door.opens, door.port, door.services),
            (OpenPolicy::Always, 8080, FrontDoorServices::Annotated)
        );
        assert_eq!(door.addresses, ["127.0.0.1".parse::<std::net::IpAddr>().expect("an address")]);
        assert!(!door.strip_prefix);
        assert_eq!(
            door.unmatched,
            Some(UnmatchedResponse { code: 410, page: Some("<p>not here</p>".into()) })
        );
        assert_eq!(door.http.pages, BTreeMap::from([(503, "<p>later</p>".into())]));
        let http = &door.http;
        assert_eq!((http.request_id, http.trace, http.forwarded), (false, TracePolicy::Make, true));
        assert_eq!(http.via, Some("edge-1".into()));
        let limits = HttpLimits { body: 10 << 20, head: 32 << 10, target: 4 << 10, fields: 100 };
        assert_eq!(http.limits, limits);
        let trusted: Vec<String> = door.http.trusted.iter().map(ToString::to_string).collect();
        assert_eq!(trusted, ["10.0.0.0/8", "::1/128"]);
    }

    #[test]
    fn an_entrance_has_what_the_front_door_has_but_for_what_it_says_itself() {
        let text = "frontDoor:\n  port: 8000\n  unmatched: {code: 410}\n  trusted: [10.0.0.0/8]\n  certificates: [{secret: a/b}]\n  \
                    tls: {port: 8001, profile: modern}\n  entrances:\n  - {name: internal, addresses: [127.0.0.1], port: 8080}\n  \
                    - name: api\n    port: 9000\n    unmatched: {code: 404}\n    certificates: [{secret: c/d}]\n    \
                    tls: {port: 9001, redirect: true}\n";
        let door = door(text, Path::new(""));
        let names: Vec<&str> = door.entrances.keys().map(Name::as_str).collect();
        assert_eq!(names, ["api", "internal"]);
        let (api, internal) = (&door.entrances["api"], &door.entrances["internal"]);
        assert_eq!(
            (internal.port, internal.tls.port, internal.unmatched.clone()),
            (8080, 8001, door.unmatched.clone())
        );
        assert_eq!(internal.addresses, ["127.0.0.1".parse::<std::net::IpAddr>().expect("an address")]);
        assert_eq!(
            (internal.tls.terms.clone(), internal.http.clone()),
            (door.tls.terms.clone(), door.http.clone())
        );
        assert!(internal.tls.certificates.is_empty() && internal.entrances.is_empty());
        assert_eq!((api.addresses.clone(), api.port, api.tls.port), (door.addresses.clone(), 9000, 9001));
        assert_eq!((api.tls.redirect, api.tls.certificates[0].name.as_str()), (true, "d"));
        assert_eq!(api.unmatched.as_ref().map(|it| it.code), Some(404));
    }

    #[test]
    fn mistakes_of_entrances_are_told_at_their_places() {
        for (text, expected) in [
            ("{port: 1, tls: {port: 2}}", "frontDoor.entrances[0].name: Required value"),
            ("{name: main, port: 1, tls: {port: 2}}", "frontDoor.entrances[0].name: Invalid value"),
            ("{name: A b, port: 1, tls: {port: 2}}", "frontDoor.entrances[0].name: Invalid value"),
            (
                "{name: a, port: 1, tls: {port: 2}}, {name: a, port: 3, tls: {port: 4}}",
                "frontDoor.entrances[1].name: Invalid value",
            ),
            ("{name: a}", "frontDoor.entrances[0]: must have addresses, or ports"),
            ("{name: a, port: 8080}", "frontDoor.entrances[0]: must have addresses, or ports"),
            (
                "{name: a, port: 1, tls: {port: 2}}, {name: b, port: 2, tls: {port: 3}}",
                "frontDoor.entrances[1]: must have addresses",
            ),
            (
                "{name: a, port: 1, tls: {port: 2}, acme: {email: a@b.example}}",
                "frontDoor.entrances[0].acme: unknown field",
            ),
            (
                "{name: a, port: 1, tls: {port: 2, secrets: named}}",
                "frontDoor.entrances[0].tls: cannot have `secrets`",
            ),
            (
                "{name: a, port: 1, tls: {port: 2}, entrances: []}",
                "frontDoor.entrances[0].entrances: unknown field",
            ),
        ] {
            let faults = parse(&format!("frontDoor: {{entrances: [{text}]}}\n"), Path::new(""))
                .expect_err("it is wrong");
            assert!(faults[0].to_string().starts_with(expected), "{text}: {}", faults[0]);
        }
    }

    #[test]
    fn one_port_for_both_listeners_is_refused_at_its_line() {
        for (text, expected) in [
            (
                "frontDoor:\n  port: 8080\n  tls:\n    port: 8080\n",
                "4 frontDoor.tls.port: Invalid value: 8080",
            ),
            ("frontDoor:\n  tls: {port: 80}\n", "2 frontDoor.tls.port: Invalid value: 80"),
            (
                "frontDoor:\n  entrances:\n  - name: a\n    port: 81\n    tls:\n      port: 81\n",
                "6 frontDoor.entrances[0].tls.port: Invalid value: 81",
            ),
        ] {
            let mistakes = parse(text, Path::new("")).expect_err("it is wrong");
            let found: Vec<String> = mistakes.iter().map(|it| format!("{} {it}", it.at.line)).collect();
            assert!(found.len() == 1 && found[0].starts_with(expected), "{text}: {found:?}");
            assert!(found[0].contains("must be another port than"), "{found:?}");
        }
    }

    #[test]
    fn a_front_door_that_never_opens_may_have_any_ports() {
        let text = "frontDoor: {enabled: false, port: 443, tls: {port: 443}}\n";
        assert_eq!(door(text, Path::new("")).port, 443);
    }

    #[test]
    fn what_is_not_said_is_as_usual() {
        let usual = Settings::default().config.front_door;
        assert_eq!(door("frontDoor: {}\n", Path::new("")), usual);
        let off = door("frontDoor: {enabled: false}\n", Path::new(""));
        assert_eq!(off, FrontDoor { opens: OpenPolicy::Never, ..usual });
    }

    #[test]
    fn mistakes_are_told_at_their_places() {
        let text = "frontDoor:\n  prot: 80\n  port: 0\n  addresses: []\n  services: some\n  pages:\n    200: a\n    \
                    404: nowhere.html\n  unmatched: {code: 99}\n  trusted: [everybody]\n  via: a b\n  limits: {head: 1Mi, \
                    body: much}\n";
        let faults = parse(text, Path::new("/nonexistent")).expect_err("it is wrong");
        let told: Vec<String> = faults.iter().map(|it| format!("{} {it}", it.at.line)).collect();
        assert_eq!(
            told,
            [
                "2 frontDoor.prot: unknown field (did you mean \"port\"?)",
                "3 frontDoor.port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "4 frontDoor.addresses: Required value: an address; [\"::\", 0.0.0.0] are all of this host",
                "5 frontDoor.services: Unsupported value: \"some\": supported values: \"all\", \"annotated\"",
                "7 frontDoor.pages[200]: Invalid value: \"200\": must be the status of an error, 400 to 599",
                "8 frontDoor.pages[404]: Invalid value: \"nowhere.html\": must be a file that can be read: No such file or directory (os error 2)",
                "9 frontDoor.unmatched.code: Invalid value: 99: must be between 200 and 599, inclusive",
                "10 frontDoor.trusted[0]: Invalid value: \"everybody\": must be a network or an address, such as 10.0.0.0/8 or 2001:db8::1",
                "11 frontDoor.via: Invalid value: \"a b\": must be a name of letters, digits and signs such as - and _",
                "12 frontDoor.limits.head: Invalid value: 1048576: must be between 1Ki and 64Ki, inclusive",
                "12 frontDoor.limits.body: Invalid value: \"much\": must be a size (e.g. 1048576, 512Ki, 10Mi or 1Gi)",
            ]
        );
    }
}
