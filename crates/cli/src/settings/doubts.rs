//! What is well written in `seaway.yaml`, and probably not meant, or will not work on this machine as it is now.

use std::{
    fmt,
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
};

use seaway_manifests::tree::{Entry, Node, Value};
use seaway_model::{Reason, config::OpenPolicy, dns::DnsProvider, load_balancer::CheckKind};
use seaway_plan::{
    contains_every_address,
    quantity::{probably_milliseconds, probe_path},
};
use seaway_proxy::AccessLogTarget;
use tracing::{info, warn};

use super::{Settings, empty_values};

/// A setting that is valid and probably not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// `frontDoor.tls.port`
    pub(crate) field: String,
    pub(crate) reason: Reason,
    pub(crate) message: String,
    pub(crate) fix: String,
}

impl Doubt {
    pub(super) fn new(reason: Reason, field: impl Into<String>, message: impl Into<String>) -> Doubt {
        Doubt { field: field.into(), reason, message: message.into(), fix: String::new() }
    }

    #[must_use]
    pub(super) fn fix(mut self, fix: impl Into<String>) -> Doubt {
        self.fix = fix.into();
        self
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)?;
        if self.fix.is_empty() { Ok(()) } else { write!(f, ". {}", self.fix) }
    }
}

/// Those of the text alone, which hold on every machine.
pub(crate) fn of_text(root: &Node, settings: &Settings) -> Vec<Doubt> {
    empty_values::doubts(root)
        .into_iter()
        .chain(trusting_everyone(settings))
        .chain(without_port_for_tls(settings))
        .chain(milliseconds(root))
        .collect()
}

/// `port` is set to the usual one of TLS, and nothing says where TLS is served then.
fn without_port_for_tls(settings: &Settings) -> impl Iterator<Item = Doubt> + '_ {
    let door = &settings.config.front_door;
    let main = std::iter::once(("frontDoor.port", door));
    let all = main.chain(door.entrances.values().map(|it| ("frontDoor.entrances", it)));
    let same = all.filter(|(_, it)| it.port == it.tls.port && it.opens != OpenPolicy::Never);
    same.map(|(key, it)| {
        let message = format!(
            "HTTP without TLS is served at port {}, which is also that of TLS: TLS is served nowhere",
            it.port
        );
        Doubt::new(Reason::PortConflict, key, message).fix("Set `port` or `tls.port` to another port.")
    })
}

/// Seconds, where milliseconds were probably meant.
fn milliseconds(root: &Node) -> Vec<Doubt> {
    let doubt = |section: &str, entry: &Entry| {
        let number = match &entry.value.value {
            Value::Int(number) => probably_milliseconds(&entry.key, &number.to_string())?,
            Value::Text(text) => probably_milliseconds(&entry.key, text.trim())?,
            _ => return None,
        };
        let field = format!("defaults.{section}.{}", entry.key);
        let message = format!("{number} without a unit is in seconds");
        let fix = format!("If milliseconds are meant, write {number}ms; else write {number}s.");
        Some(Doubt::new(Reason::Ignored, field, message).fix(fix))
    };
    let entries = |section: &'static str| {
        let section_of = root.child("defaults").and_then(|it| it.child(section));
        let entries = section_of.map(Node::entries).unwrap_or_default();
        entries.iter().filter_map(move |entry| doubt(section, entry)).collect::<Vec<_>>()
    };
    ["timeouts", "healthCheck"].into_iter().flat_map(entries).collect()
}

/// Those of this machine as it is now. Certificates are not here: who plans reads them.
pub(crate) fn of_machine(settings: &Settings) -> Vec<Doubt> {
    secrets_of_orders(settings)
        .chain(secrets_of_dns(settings))
        .chain(unreadable_layer2_key(settings))
        .chain(port_of_status_page(settings))
        .chain(missing_addresses(settings))
        .chain(folder_of_access_log(settings))
        .chain(path_of_checks(settings))
        .collect()
}

/// Whoever is trusted says which address a client has: where that is every client, each says it of itself.
fn trusting_everyone(settings: &Settings) -> impl Iterator<Item = Doubt> + '_ {
    let of_headers = "this contains every address, so each client is taken for a trusted proxy and chooses its own address with \
                      X-Forwarded-For: source ranges, limits for each client, and logs protect nothing";
    let of_members = "this contains every address, so any client that may send a PROXY protocol header chooses which client address \
                      members of transparent Services see";
    let sources = settings.config.tenants.sources.iter().map(Vec::as_slice);
    let keys = [("frontDoor.trusted", settings.config.front_door.http.trusted.as_slice(), of_headers)];
    let keys = keys.into_iter().chain(sources.map(move |it| ("tenants.transparentFrom", it, of_members)));
    keys.filter(|(_, networks, _)| contains_every_address(networks)).map(|(key, _, message)| {
        let fix = "Name only the networks of the proxies before Seaway; without one, remove the key.";
        Doubt::new(Reason::AddressForgeable, key, message).fix(fix)
    })
}

/// Orders fail without them, and this is told only after they were to begin.
fn secrets_of_orders(settings: &Settings) -> impl Iterator<Item = Doubt> + '_ {
    let acme = settings.config.front_door.tls.acme.iter();
    let files = acme.flat_map(|acme| {
        let dns = acme.dns.iter().map(|it| ("dns.key.secretFile", &it.key.secret_file));
        dns.chain(acme.binding.iter().map(|it| ("externalAccount.hmacFile", &it.hmac_file)))
    });
    files.filter_map(|(key, file)| {
        let why = seaway_drivers::acme::read_secret(file).err()?;
        let fix = "Until it is readable, no certificate is ordered that needs it.";
        Some(Doubt::new(Reason::Unreadable, format!("frontDoor.acme.{key}"), why.to_string()).fix(fix))
    })
}

/// Names are not published without them.
fn secrets_of_dns(settings: &Settings) -> impl Iterator<Item = Doubt> + '_ {
    let zones = settings.config.dns.iter().flat_map(|it| &it.zones).enumerate();
    zones.filter_map(|(index, zone)| {
        let DnsProvider::Updates { key, .. } = &zone.by else { return None };
        let why = seaway_drivers::acme::read_mounted_secret(&key.secret_file).err()?;
        let field = format!("dns.zones[{index}].key.secretFile");
        let fix = format!("Until it is readable, no name of the zone {} is published.", zone.name);
        Some(Doubt::new(Reason::Unreadable, field, why.to_string()).fix(fix))
    })
}

/// Without it hosts announce nothing where there are others.
fn unreadable_layer2_key(settings: &Settings) -> Option<Doubt> {
    let why = seaway_node::read_key(settings.layer2.key_file.as_ref()?).err()?;
    let fix = "Until it is readable, addresses of pools with announce: l2 are not announced.";
    Some(Doubt::new(Reason::Unreadable, "layer2.keyFile", why.to_string()).fix(fix))
}

/// Clients do not reach what is served there.
fn missing_addresses(settings: &Settings) -> impl Iterator<Item = Doubt> + '_ {
    let door = &settings.config.front_door;
    let keys = [("host.addresses", &settings.addresses), ("frontDoor.addresses", &door.addresses)];
    let all = keys.into_iter().flat_map(|(key, ips)| ips.iter().map(move |ip| (key.to_owned(), *ip)));
    // What an entrance has of the front door is reported there.
    let entrances = door.entrances.iter().filter(|(_, it)| it.addresses != door.addresses);
    let entrances = entrances.flat_map(|(name, it)| {
        it.addresses.iter().map(move |ip| (format!("frontDoor.entrances[{name}].addresses"), *ip))
    });
    let exposed = settings.config.exposed.iter();
    let exposed = exposed.filter_map(|it| Some((format!("{}.address", it.key), it.address?)));
    all.chain(entrances).chain(exposed).filter(|(_, ip)| is_missing(*ip)).map(|(key, ip)| {
        let message =
            format!("no interface of this machine has {ip}, so clients do not reach Services there");
        let fix = format!("Put it on an interface (ip address add), or correct {key}.");
        Doubt::new(Reason::AddressMissing, key, message).fix(fix)
    })
}

/// `host.addresses` limits Services of type LoadBalancer, and the front door may still listen at all addresses. Whether
/// it listens is another question.
pub(crate) fn is_front_door_wider(settings: &Settings) -> bool {
    let door = &settings.config.front_door;
    let is_everywhere = door.addresses.iter().any(IpAddr::is_unspecified) && !settings.said.door_addresses;
    let is_limited = !settings.addresses.is_empty() && !settings.addresses.iter().any(IpAddr::is_unspecified);
    is_everywhere && is_limited && door.opens != OpenPolicy::Never
}

/// Says in the log of the start where the front door listens that was probably not meant, and what listens where no client arrives.
pub(crate) fn log_addresses(settings: &Settings) {
    log_wider_front_door(settings);
    log_missing_addresses(settings);
}

fn log_wider_front_door(settings: &Settings) {
    if is_front_door_wider(settings) {
        info!(
            "host.addresses does not limit the front door: when a Service uses it, it listens on all addresses of this \
             machine (to limit it, set frontDoor.addresses in seaway.yaml)"
        );
    }
}

/// Says in the log of the start which addresses of the front door, its entrances, `tcpServices` and `udpServices` are missing. (Those of
/// `host.addresses` are a Problem that ends by itself.)
fn log_missing_addresses(settings: &Settings) {
    missing_addresses(settings).filter(|it| it.field != "host.addresses").for_each(|it| warn!("{it}"));
}

/// Sockets of a load balancer are bound whether the address is there or not; this one is not.
pub(crate) fn is_missing(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
}

/// Members may answer 400 to such a request, and then count as down.
fn path_of_checks(settings: &Settings) -> Option<Doubt> {
    let CheckKind::Http { path, .. } = &settings.config.defaults.health.as_ref()?.kind else {
        return None;
    };
    let why = probe_path(path).err()?;
    let fix = "Members may refuse health checks for it, and count as down.";
    Some(Doubt::new(Reason::Invalid, "defaults.healthCheck.path", why.to_string()).fix(fix))
}

/// `seaway run` does not start without it.
fn folder_of_access_log(settings: &Settings) -> Option<Doubt> {
    let AccessLogTarget::File(file) = &settings.access_log.as_ref()?.to else { return None };
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty())?;
    let error = folder.read_dir().err().filter(|it| it.kind() == ErrorKind::NotFound)?;
    let message = format!("{}: {error}", folder.display());
    Some(
        Doubt::new(Reason::Unreadable, "accessLog.to", message)
            .fix("Create the folder, or correct accessLog.to."),
    )
}

/// The front door listens on this host's addresses; where these are loopback, the status page is in its way.
fn port_of_status_page(settings: &Settings) -> Option<Doubt> {
    let door = &settings.config.front_door;
    let ports = [("frontDoor.port", door.port), ("frontDoor.tls.port", door.tls.port)];
    let addresses = if door.addresses.is_empty() { &settings.addresses } else { &door.addresses };
    // Of its defaults: loopback.
    let usual = [SocketAddr::from((Ipv4Addr::LOCALHOST, seaway_admin::server::PORT))];
    let admin = settings.admin.as_deref().unwrap_or(&usual);
    let is_taken = |at: &&SocketAddr| at.ip().is_unspecified() || addresses.contains(&at.ip());
    let of_door = |at: &SocketAddr| ports.iter().find(|(_, port)| *port == at.port()).map(|(key, _)| *key);
    let taken = admin.iter().filter(is_taken).find_map(|at| Some((at, of_door(at)?)));
    let (at, key) = taken.filter(|_| door.opens != OpenPolicy::Never)?;
    // Without the key, its default is in the way of what the configuration does say.
    let field = if settings.admin.is_some() { "admin.listen" } else { key };
    let message =
        format!("{at} is where both the status page (admin.listen) and the front door ({key}) listen");
    Some(Doubt::new(Reason::PortInUse, field, message).fix("Give one of the two another port."))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use seaway_manifests::tree;

    use super::*;
    use crate::settings::parse;

    fn doubts(text: &str) -> Vec<String> {
        let settings = parse(text, Path::new("/nowhere")).expect("is well written");
        of_machine(&settings).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn to_trust_every_address_is_a_doubt() {
        for (networks, is_everyone) in [
            ("0.0.0.0/0", true),
            ("'::/0'", true),
            ("'2000::/3'", true),
            ("0.0.0.0/1, 128.0.0.0/1", true),
            ("10.0.0.0/8, 128.0.0.0/2, 0.0.0.0/1, 192.0.0.0/2", true),
            ("0.0.0.0/1, 128.0.0.0/2", false),
            ("10.0.0.0/8, '2001:db8::/32'", false),
            ("", false),
        ] {
            for text in [
                format!("frontDoor: {{trusted: [{networks}]}}"),
                format!("tenants: {{transparentFrom: [{networks}]}}"),
            ] {
                let [root] = &tree::parse(&text).expect("is YAML")[..] else { panic!("one document") };
                let found = of_text(root, &parse(&text, Path::new("")).expect("is well written"));
                let reasons: Vec<Reason> = found.iter().map(|it| it.reason).collect();
                let expected = if is_everyone { vec![Reason::AddressForgeable] } else { Vec::new() };
                assert_eq!(reasons, expected, "{text}");
                assert!(
                    found.iter().all(|it| text.contains(it.field.rsplit('.').next().unwrap_or_default()))
                );
            }
        }
        // In a folder, that is the default, and no doubt.
        assert_eq!(doubts("tenants: {}"), [""; 0]);
    }

    #[test]
    fn seconds_that_were_probably_milliseconds_are_a_doubt() {
        for (text, field) in [
            ("defaults: {timeouts: {connect: 5000}}", Some("defaults.timeouts.connect")),
            ("defaults: {timeouts: {answer: '50000'}}", Some("defaults.timeouts.answer")),
            ("defaults: {healthCheck: {interval: 2000}}", Some("defaults.healthCheck.interval")),
            ("defaults: {timeouts: {connect: 5000ms}}", None),
            ("defaults: {timeouts: {connect: 5, idle: 7200}}", None),
        ] {
            let [root] = &tree::parse(text).expect("is YAML")[..] else { panic!("one document") };
            let found = of_text(root, &parse(text, Path::new("")).expect("is well written"));
            let fields: Vec<&str> = found.iter().map(|it| &*it.field).collect();
            assert_eq!(fields, field.into_iter().collect::<Vec<_>>(), "{text}");
            assert!(found.iter().all(|it| it.fix.contains("ms; else write")), "{found:?}");
        }
    }

    #[test]
    fn a_secret_of_orders_that_cannot_be_read_is_found() {
        let found = doubts(
            "frontDoor:\n  acme:\n    externalAccount: {keyId: a, hmacFile: eab.key}\n    \
             dns: {server: 192.0.2.53, key: {name: k, secretFile: tsig.key}}\n",
        );
        let expected =
            ["dns.key.secretFile: /nowhere/tsig.key: ", "externalAccount.hmacFile: /nowhere/eab.key: "];
        assert_eq!(found.len(), 2, "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(&format!("frontDoor.acme.{expected}")), "{found}");
        }
    }

    #[test]
    fn files_that_cannot_be_read_and_a_port_that_two_want_are_found() {
        assert_eq!(doubts(""), [""; 0]);
        let nowhere = doubts("host: {addresses: [127.0.0.1, 192.0.2.9]}");
        assert_eq!(nowhere.len(), 1, "{nowhere:?}");
        assert!(
            nowhere[0].starts_with("host.addresses: no interface of this machine has 192.0.2.9"),
            "{nowhere:?}"
        );
        let of_door = doubts("frontDoor: {addresses: [127.0.0.1, 192.0.2.9]}");
        assert_eq!(of_door.len(), 1, "{of_door:?}");
        assert!(
            of_door[0].starts_with("frontDoor.addresses: no interface of this machine has 192.0.2.9"),
            "{of_door:?}"
        );
        for (text, field) in [
            (
                "frontDoor: {entrances: [{name: a, addresses: [127.0.0.1, 192.0.2.9]}]}",
                "frontDoor.entrances[a].addresses",
            ),
            (
                "tcpServices: [{service: db, port: 1, address: 127.0.0.1}, {service: db, port: 2, address: 192.0.2.9}]",
                "tcpServices[1].address",
            ),
            ("udpServices: [{service: db, port: 2, address: 192.0.2.9}]", "udpServices[0].address"),
        ] {
            let told = doubts(text);
            assert_eq!(told.len(), 1, "{text}: {told:?}");
            let begin = format!("{field}: no interface of this machine has 192.0.2.9");
            assert!(told[0].starts_with(&begin), "{told:?}");
        }
        let log = doubts("accessLog: {to: logs/access.log}");
        assert_eq!(log.len(), 1, "{log:?}");
        assert!(log[0].starts_with("accessLog.to: /nowhere/logs: No such file"), "{log:?}");
        let table = [
            ("frontDoor: {port: 1936}\nadmin: {listen: ['0.0.0.0:1936']}", 1),
            ("frontDoor: {port: 1936, addresses: [127.0.0.1]}\nadmin: {listen: ['127.0.0.1:1936']}", 1),
            ("frontDoor: {port: 1936, addresses: [127.0.0.2]}\nadmin: {listen: ['127.0.0.1:1936']}", 0),
            ("frontDoor: {port: 8080}\nadmin: {listen: ['0.0.0.0:1936']}", 0),
            ("frontDoor: {port: 1936, addresses: [127.0.0.1]}", 1),
            ("defaults: {healthCheck: {kind: http, path: healthz}}", 1),
            ("defaults: {healthCheck: {kind: http, path: /healthz}}", 0),
        ];
        for (text, count) in table {
            assert_eq!(doubts(text).len(), count, "{text}: {:?}", doubts(text));
        }
        for (addresses, is_wider) in [("127.0.0.1", true), ("'::', 0.0.0.0", false)] {
            let text = format!("host: {{addresses: [{addresses}]}}");
            let settings = parse(&text, Path::new("/nowhere")).expect("is well written");
            assert_eq!(is_front_door_wider(&settings), is_wider, "{addresses}");
        }
    }
}
