//! What is well written in `seaway.yaml`, and will not work on this machine as it is now.

use std::{
    fs::File,
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
};

use seaway_model::{config::OpenPolicy, dns::DnsProvider, load_balancer::CheckKind};
use seaway_plan::quantity::probe_path;
use seaway_proxy::AccessLogTarget;
use tracing::info;

use super::Settings;

/// Warnings about settings that are valid and probably not meant, a line each.
pub(crate) fn doubtful_settings(settings: &Settings) -> Vec<String> {
    let parts = settings.pems.iter().flat_map(|pem| &pem.parts);
    let unreadable = parts.filter_map(|(_, path)| {
        let error = File::open(path).err()?;
        Some(format!(
            "{}: {error}. Until it can be read, nothing that needs this certificate is served.",
            path.display()
        ))
    });
    unreadable
        .chain(secrets_of_orders(settings))
        .chain(secrets_of_dns(settings))
        .chain(key_of_layer2(settings))
        .chain(port_of_status_page(settings))
        .chain(missing_addresses(settings))
        .chain(folder_of_access_log(settings))
        .chain(path_of_checks(settings))
        .collect()
}

/// Orders fail without them, and this is told only after they were to begin.
fn secrets_of_orders(settings: &Settings) -> impl Iterator<Item = String> + '_ {
    let acme = settings.config.front_door.tls.acme.iter();
    let files = acme.flat_map(|acme| {
        let dns = acme.dns.iter().map(|it| ("dns.key.secretFile", &it.key.secret_file));
        dns.chain(acme.binding.iter().map(|it| ("externalAccount.hmacFile", &it.hmac_file)))
    });
    files.filter_map(|(key, file)| {
        let why = seaway_drivers::acme::read_secret(file).err()?;
        Some(format!(
            "frontDoor.acme.{key}: {why}. Until it is readable, no certificate is ordered that needs it."
        ))
    })
}

/// Names are not published without them.
fn secrets_of_dns(settings: &Settings) -> impl Iterator<Item = String> + '_ {
    let zones = settings.config.dns.iter().flat_map(|it| &it.zones);
    zones.filter_map(|zone| {
        let DnsProvider::Updates { key, .. } = &zone.by else { return None };
        let why = seaway_drivers::acme::read_mounted_secret(&key.secret_file).err()?;
        Some(format!(
            "dns.zones ({}): key.secretFile: {why}. Until it is readable, no name of this zone is published.",
            zone.name
        ))
    })
}

/// Without it hosts announce nothing where there are others.
fn key_of_layer2(settings: &Settings) -> Option<String> {
    let why = seaway_node::read_key(settings.layer2.key_file.as_ref()?).err()?;
    Some(format!(
        "layer2.keyFile: {why}. Until it is readable, addresses of pools with announce: l2 are not announced."
    ))
}

/// Clients do not reach what is served there.
fn missing_addresses(settings: &Settings) -> impl Iterator<Item = String> + '_ {
    let door = &settings.config.front_door;
    let keys = [("host.addresses", &settings.addresses), ("frontDoor.addresses", &door.addresses)];
    let all = keys.into_iter().flat_map(|(key, ips)| ips.iter().map(move |ip| (key, *ip)));
    all.filter(|(_, ip)| is_missing(*ip)).map(|(key, ip)| {
        format!(
            "{key}: no interface of this machine has {ip}, so clients do not reach Services there. Put it on \
             an interface (ip address add), or correct {key}."
        )
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

/// Says so in the log of the start.
pub(crate) fn log_wider_front_door(settings: &Settings) {
    if is_front_door_wider(settings) {
        info!(
            "host.addresses does not limit the front door: when a Service uses it, it listens on all addresses of this \
             machine (to limit it, set frontDoor.addresses in seaway.yaml)"
        );
    }
}

/// Sockets of a load balancer are bound whether the address is there or not; this one is not.
pub(crate) fn is_missing(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
}

/// Members may answer 400 to such a request, and then count as down.
fn path_of_checks(settings: &Settings) -> Option<String> {
    let CheckKind::Http { path, .. } = &settings.config.defaults.health.as_ref()?.kind else {
        return None;
    };
    let why = probe_path(path).err()?;
    Some(format!(
        "defaults.healthCheck.path: {why}. Members may refuse health checks for it, and count as down."
    ))
}

/// `seaway run` does not start without it.
fn folder_of_access_log(settings: &Settings) -> Option<String> {
    let AccessLogTarget::File(file) = &settings.access_log.as_ref()?.to else { return None };
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty())?;
    let error = folder.read_dir().err().filter(|it| it.kind() == ErrorKind::NotFound)?;
    Some(format!("accessLog.to: {}: {error}. Make the folder, or correct accessLog.to.", folder.display()))
}

/// The front door listens on this host's addresses; where these are loopback, the status page is in its way.
fn port_of_status_page(settings: &Settings) -> Option<String> {
    let door = &settings.config.front_door;
    let ports = [door.port, door.tls.port];
    let addresses = if door.addresses.is_empty() { &settings.addresses } else { &door.addresses };
    // Of its defaults: loopback.
    let usual = [SocketAddr::from((Ipv4Addr::LOCALHOST, seaway_admin::server::PORT))];
    let admin = settings.admin.as_deref().unwrap_or(&usual);
    let is_taken = |at: &&std::net::SocketAddr| {
        ports.contains(&at.port()) && (at.ip().is_unspecified() || addresses.contains(&at.ip()))
    };
    let at = admin.iter().find(is_taken).filter(|_| door.opens != OpenPolicy::Never)?;
    Some(format!("admin.listen: {at} is where the front door listens. Give one of the two another port."))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::settings::parse;

    fn doubts(text: &str) -> Vec<String> {
        doubtful_settings(&parse(text, Path::new("/nowhere")).expect("is well written"))
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
        let missing = doubts("frontDoor: {certificates: [{cert: a.pem, key: a.key}]}");
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[0].starts_with("/nowhere/a.pem: No such file or directory"), "{missing:?}");
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
