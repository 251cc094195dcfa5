//! `seaway.dev/backends`: the endpoints of a Service in one line, for folders. In a cluster, whoever may change a Service could
//! name any address with it: there EndpointSlices alone say who answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use seaway_model::{
    Fact, Kind, Name, ObjectRef,
    fact::{Endpoint, EndpointAddress, EndpointPort, Endpoints, Labels, Service, ServiceKind, TargetPort},
};
use seaway_plan::annotations::{BACKENDS, HEAVIEST, WEIGHT};

use super::{addresses, formats, meta::check_rule};
use crate::decode::{Field, lenient_ip};

/// As many endpoints as a slice may have.
const MOST: usize = 1000;
const FORM: &str = "must be ADDRESS:PORT, optionally followed by weight=N, name=WORD or backup; several \
                    are separated by commas (e.g. \"10.0.0.1:8080 name=a weight=3, 10.0.0.2:8080 backup\")";
/// Of a backend's name.
const LONGEST_NAME: usize = 63;

/// Those with one port and one weight are as one slice.
type Groups = BTreeMap<(Option<u16>, Option<u32>), Vec<Endpoint>>;

/// A Service of a folder, and the endpoints that its annotation names. The annotation has done its work then.
pub(super) fn expand_backends(root: &Field<'_>, facts: Vec<Fact>) -> Vec<Fact> {
    let [Fact::Service(service)] = facts.as_slice() else { return facts };
    let Some(text) = service.meta.annotations.get(BACKENDS) else { return facts };
    let metadata = root.child("metadata");
    let annotations = metadata.child("annotations");
    let field = annotations.key(BACKENDS);
    let groups = read(&field, text, service);
    let mut whole = Service::clone(service);
    whole.meta.annotations.remove(BACKENDS);
    let object = ObjectRef::new(Kind::Service, whole.meta.namespace.clone(), whole.meta.name.clone());
    let endpoints = groups.into_iter().zip(0_u16..).map(|(((number, weight), endpoints), part)| {
        let weight = weight.map(|it| (Name::from(WEIGHT), it.to_string().as_str().into()));
        // The Service's ports by their own names: all lead to this one.
        let ports = whole.ports.iter().map(|it| EndpointPort {
            name: it.name.clone(),
            protocol: it.protocol,
            port: number,
        });
        Fact::Endpoints(Arc::new(Endpoints {
            object: object.clone(),
            part,
            service: object.name.clone(),
            annotations: weight.into_iter().collect::<Labels>(),
            ports: ports.collect(),
            endpoints,
        }))
    });
    let endpoints: Vec<Fact> = endpoints.collect();
    [Fact::Service(Arc::new(whole))].into_iter().chain(endpoints).collect()
}

fn read(field: &Field<'_>, text: &str, service: &Service) -> Groups {
    let mut groups = Groups::new();
    if matches!(service.kind, ServiceKind::ExternalName(_)) {
        field.forbidden("the backend of a Service of type ExternalName is its externalName");
        return groups;
    }
    let written: Vec<&str> =
        text.split([',', '\n']).map(str::trim).filter(|written| !written.is_empty()).collect();
    if field.is_list() {
        // Its type is a fault already.
        field
            .error("write all backends in one string, separated by commas: \"10.0.0.1:8080, 10.0.0.2:8080\"");
    } else if written.is_empty() {
        field.invalid(text, FORM);
    } else if written.len() > MOST {
        field.too_many(written.len(), MOST);
    }
    let first = service.ports.first().map(|it| &it.target);
    let is_one_port = service.ports.iter().all(|it| Some(&it.target) == first);
    let is_anywhere = |number: bool| {
        let mut places = written.iter().filter_map(|it| it.split_whitespace().next());
        places.any(|it| port_of(it).is_some() == number)
    };
    let is_mixed = is_one_port && is_anywhere(true) && is_anywhere(false);
    let mut names: BTreeSet<Name> = BTreeSet::new();
    for written in written {
        let Some(Backend { at, number, weight, backup, name }) = backend(field, written) else { continue };
        if let Some(name) = name.as_ref().filter(|it| !names.insert(Name::clone(it))) {
            field.invalid(written, &format!("another backend has the name {name}: names must differ"));
        }
        let bare = written.split_whitespace().next().unwrap_or_default();
        if let Some((ip, port)) = ipv6_with_port(bare).filter(|_| is_one_port) {
            field.invalid(bare, &format!("an IPv6 address before a port stands in brackets: [{ip}]:{port}. If {bare} is the address, write [{bare}]"));
        } else if number.is_none() && is_mixed {
            field.invalid(bare, "must have a port, as others here do: ADDRESS:PORT");
        } else if let (None, true, Some(TargetPort::Name(name))) = (number, is_one_port, first) {
            let why = format!(
                "must have a port, because targetPort is a name ({name}), which no backend has: ADDRESS:PORT, or write a number in targetPort"
            );
            field.invalid(bare, &why);
        }
        if number.is_some() && !is_one_port {
            let why = "must have no port, because this Service has several: each uses its own targetPort";
            field.invalid(written, why);
        }
        groups.entry((number, weight)).or_default().push(Endpoint {
            at,
            ready: true,
            serving: true,
            terminating: false,
            node: None,
            for_zones: Vec::new(),
            for_nodes: Vec::new(),
            backup,
            name,
        });
    }
    groups
}

struct Backend {
    at: EndpointAddress,
    /// None: each port's own target.
    number: Option<u16>,
    weight: Option<u32>,
    backup: bool,
    name: Option<Name>,
}

fn backend(field: &Field<'_>, written: &str) -> Option<Backend> {
    let mut words = written.split_whitespace();
    let (at, number) = place(field, words.next()?)?;
    let mut backend = Backend { at, number, weight: None, backup: false, name: None };
    for word in words {
        match word.split_once('=') {
            None if word == "backup" => backend.backup = true,
            Some(("weight", number)) => {
                backend.weight = number.parse().ok().filter(|it| *it <= HEAVIEST);
                if backend.weight.is_none() {
                    field.invalid(written, &format!("weight must be a whole number from 0 to {HEAVIEST}"));
                    return None;
                }
            }
            Some(("name", name)) if is_name(name) => backend.name = Some(name.into()),
            Some(("name", _)) => {
                let why = format!("name must have 1 to {LONGEST_NAME} letters, digits, '-', '_' or '.'");
                field.invalid(written, &why);
                return None;
            }
            _ => {
                field.invalid(written, FORM);
                return None;
            }
        }
    }
    Some(backend)
}

/// It stands in columns, pages and logs.
fn is_name(text: &str) -> bool {
    (1..=LONGEST_NAME).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// `fd00::9:80`: an address, and probably meant to be another one with a port.
fn ipv6_with_port(text: &str) -> Option<(Ipv6Addr, u16)> {
    text.parse::<Ipv6Addr>().ok()?;
    let (ip, port) = text.rsplit_once(':')?;
    Some((ip.parse().ok()?, port.parse().ok()?))
}

fn port_of(text: &str) -> Option<&str> {
    let (host, port) = text.rsplit_once(':')?;
    (text.parse::<IpAddr>().is_err() && !host.is_empty() && !port.ends_with(']')).then_some(port)
}

/// `192.0.2.1:80`, `[2001:db8::1]:80`, `app.example:80`, or any of them without a port.
fn place(field: &Field<'_>, text: &str) -> Option<(EndpointAddress, Option<u16>)> {
    if let Some((scheme, rest)) = text.split_once("://") {
        let rest = rest.split('/').next().unwrap_or_default();
        let why =
            format!("write {rest:?}, without {scheme}://: backends are addresses with a port, not URLs");
        field.invalid(text, &why);
        return None;
    }
    if ["unix:", "unix@", "/"].iter().any(|it| text.starts_with(it)) || text.ends_with(".sock") {
        field.invalid(text, "backends are addresses with a port: Seaway does not connect to Unix sockets");
        return None;
    }
    if text.contains(['$', '{', '}']) {
        field.invalid(text, "variables are not replaced in manifests: write the address, or fill the file in before (envsubst)");
        return None;
    }
    if let Some((before, _)) = text.split_once('/') {
        field.invalid(
            text,
            &format!("write {before:?}, without a path: paths are matched by seaway.dev/path"),
        );
        return None;
    }
    if let Some((before, option)) = text.split_once(';').filter(|(_, it)| it.contains('=') || *it == "backup")
    {
        field.invalid(text, &format!("write \"{before} {option}\", with a space before {option}"));
        return None;
    }
    if let Some((host, port)) = text.split_once(';') {
        field.invalid(
            text,
            &format!(
                "write {host}:{port}, with a colon before the port; several backends are separated by commas"
            ),
        );
        return None;
    }
    if text.starts_with('[') != text.contains(']') {
        field.invalid(text, "an IPv6 address before a port stands in brackets, such as [2001:db8::1]:80");
        return None;
    }
    let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(text);
    let (host, port) = match (text.parse::<SocketAddr>(), bare.parse::<IpAddr>()) {
        (Ok(at), _) => (at.ip().to_string(), Some(at.port())),
        (_, Ok(ip)) => (ip.to_string(), None),
        _ => match text.rsplit_once(':') {
            None => (text.to_owned(), None),
            Some((host, port)) => match port.parse() {
                Ok(port) => (host.to_owned(), Some(port)),
                Err(_) => {
                    field.invalid(text, "the port must be a number from 1 to 65535");
                    return None;
                }
            },
        },
    };
    if port == Some(0) {
        field.invalid(text, "the port must be a number from 1 to 65535");
        return None;
    }
    if let Some(ip) = lenient_ip(&host) {
        return addresses::endpoint(field, text, ip).then_some((EndpointAddress::Ip(ip), port));
    }
    match host.as_str() {
        "" => field.invalid(text, FORM),
        name if !name.contains('.') && name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-' || it == b'_') && name != "localhost" => field
            .invalid(text, "names are resolved by DNS, and have a dot, such as web.example; names of containers or of Compose are not known here: write the address"),
        "localhost" => field.invalid(text, "write 127.0.0.1 or [::1]: names are resolved by DNS"),
        // No name of DNS ends in a number (RFC 3696, section 2).
        name if name.rsplit('.').next().is_some_and(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit())) => field
            .invalid(text, "not an IPv4 address: it has four numbers from 0 to 255, such as 192.0.2.10"),
        _ => check_rule(field, &host, formats::domain_name),
    }
    Some((EndpointAddress::Name(host.as_str().into()), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::{facts, faults};

    fn service(ports: &str, backends: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations:\n    seaway.dev/backends: {backends}\n\
             spec: {{ports: [{ports}]}}\n"
        )
    }

    /// Each slice: its port, its weight, who is in it.
    fn slices(ports: &str, backends: &str) -> Vec<(Option<u16>, Option<String>, Vec<String>)> {
        let all = facts(&service(ports, backends));
        let Some(Fact::Service(service)) = all.first() else { panic!("{all:?}") };
        assert!(service.meta.annotations.is_empty(), "it has done its work");
        let slices = all.iter().skip(1).map(|it| {
            let Fact::Endpoints(it) = it else { panic!("{it:?}") };
            assert_eq!(it.ports.len(), service.ports.len());
            let at = it.endpoints.iter().map(|it| match &it.at {
                EndpointAddress::Ip(ip) => ip.to_string(),
                EndpointAddress::Name(name) => name.to_string(),
            });
            (it.ports[0].port, it.annotations.get(WEIGHT).map(ToString::to_string), at.collect())
        });
        slices.collect()
    }

    #[test]
    fn backends_of_one_port_and_one_weight_are_as_one_slice() {
        let two = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
        let one = |it: &str| vec![it.to_owned()];
        assert_eq!(
            slices("{port: 80}", "10.0.0.1:3000, 10.0.0.2:3000"),
            [(Some(3000), None, two("10.0.0.1", "10.0.0.2"))]
        );
        assert_eq!(
            slices(
                "{port: 80}",
                "|-\n      10.0.0.1:3000 weight=9\n      [2001:db8::1]:3000\n      app.example:3001\n"
            ),
            [
                (Some(3000), None, one("2001:db8::1")),
                (Some(3000), Some("9".to_owned()), one("10.0.0.1")),
                (Some(3001), None, one("app.example")),
            ]
        );
        // Without a port: each port's own target.
        assert_eq!(
            slices("{name: a, port: 80}, {name: b, port: 443}", "127.0.0.1"),
            [(None, None, one("127.0.0.1"))]
        );
        // DNS speaks both.
        assert_eq!(
            slices("{name: t, port: 53}, {name: u, port: 53, protocol: UDP}", "'[::1]:5353'"),
            [(Some(5353), None, one("::1"))]
        );
    }

    #[test]
    fn backends_have_names_and_some_stand_by() {
        let written = "10.0.0.1:80 name=a weight=3, 10.0.0.2:80 backup name=sorry-1, 10.0.0.3:80";
        let all = facts(&service("{port: 80}", written));
        let endpoints = all.iter().skip(1).flat_map(|it| match it {
            Fact::Endpoints(it) => it.endpoints.clone(),
            _ => panic!("{it:?}"),
        });
        let mut told: Vec<_> = endpoints.map(|it| (it.name.map(|it| it.to_string()), it.backup)).collect();
        told.sort();
        let name = |it: &str| Some(it.to_owned());
        assert_eq!(told, [(None, false), (name("a"), false), (name("sorry-1"), true)]);
    }

    #[test]
    fn what_is_not_understood_is_told_with_what_to_write() {
        let table = [
            ("''", "must be ADDRESS:PORT"),
            ("10.0.0.1:x", "the port must be a number from 1 to 65535"),
            ("10.0.0.1:0", "the port must be a number from 1 to 65535"),
            ("10.0.0.1:3000 10.0.0.2:3000", "several are separated by commas"),
            ("10.0.0.1:3000 weight=-1", "weight must be a whole number from 0 to 1000000"),
            ("10.0.0.1:3000 name=", "name must have 1 to 63 letters"),
            ("10.0.0.1:3000 name=a/b", "name must have 1 to 63 letters"),
            ("10.0.0.1:3000 name=a, 10.0.0.2:3000 name=a", "another backend has the name a"),
            ("10.0.0.1:3000 bakcup", "must be ADDRESS:PORT, optionally followed by weight=N"),
            ("localhost:3000", "write 127.0.0.1 or [::1]"),
            ("0.0.0.0:3000", "may not be unspecified"),
            ("127.0.0.300:3000", "not an IPv4 address"),
            ("10.0.1:3000", "not an IPv4 address"),
            ("web:3000", "names are resolved by DNS, and have a dot"),
            ("5", "must be a string, in quotes"),
        ];
        for (backends, why) in table {
            let told = faults(&service("{port: 80}", backends));
            let at = "6 metadata.annotations[seaway.dev/backends]: ";
            assert!(told[0].starts_with(at) && told[0].contains(why), "{backends}: {told:?}");
        }
        let told = faults(&service("{name: a, port: 80}, {name: b, port: 443}", "10.0.0.1:3000"));
        assert!(told[0].contains("must have no port, because this Service has several"), "{told:?}");
    }

    #[test]
    fn a_service_of_an_external_name_has_no_other_backends() {
        let text = service("{port: 80}", "10.0.0.1:80")
            .replace("spec: {", "spec: {type: ExternalName, externalName: a.example, ");
        assert!(faults(&text)[0].contains("its externalName"), "{:?}", faults(&text));
    }

    #[test]
    fn a_cluster_does_not_go_by_it() {
        let text = r#"{"metadata": {"name": "web", "annotations": {"seaway.dev/backends": "10.0.0.1:1"}}, "spec": {"ports": [{"port": 80}]}}"#;
        let node = serde_json::from_str(text).expect("is JSON");
        let object = crate::object::read_as(Kind::Service, &node).expect("is known").expect("is whole");
        let [Fact::Service(service)] = object.facts.as_slice() else { panic!("{:?}", object.facts) };
        assert!(service.meta.annotations.contains_key(BACKENDS), "so that it is told");
    }
}
