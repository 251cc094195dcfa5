//! `--address`: Seaway listens at these addresses alone. What has addresses of its own in the configuration listens at those of them
//! that the flag names, too; where that is none, nowhere.

use std::net::IpAddr;

use seaway_model::{Config, Reason, config::FrontDoor, load_balancer::Family};

use super::{Settings, doubts::Doubt};

/// Limits all that listens.
pub(crate) fn limit(settings: &mut Settings, only: &[IpAddr]) {
    if only.is_empty() {
        return;
    }
    settings.addresses = only.to_vec();
    settings.config.listen_only = only.to_vec();
    let doors = |config: &Config| -> Vec<FrontDoor> {
        let door = &config.front_door;
        std::iter::once(door).chain(door.entrances.values()).cloned().collect()
    };
    let before = doors(&settings.config);
    let door = &mut settings.config.front_door;
    limit_entrance(door, only, &before);
    door.entrances.values_mut().for_each(|it| limit_entrance(it, only, &before));
}

/// Where none is left, the addresses stay as they are written, and nothing listens there: [`Config::may_listen`].
fn limit_entrance(entrance: &mut FrontDoor, only: &[IpAddr], all: &[FrontDoor]) {
    let ports = |it: &FrontDoor| [it.port, it.tls.port];
    let its = entrance.addresses.clone();
    let is_at_all =
        |ip: &IpAddr| its.iter().any(|it| it.is_unspecified() && Family::of(*it) == Family::of(*ip));
    // At all addresses of the machine, it leaves those to others that name them.
    let is_anothers = |ip: &IpAddr| {
        all.iter()
            .any(|it| it.addresses.contains(ip) && ports(it).iter().any(|it| ports(entrance).contains(it)))
    };
    let is_its = |ip: &&IpAddr| its.contains(ip) || is_at_all(ip) && !is_anothers(ip);
    let left: Vec<IpAddr> = only.iter().filter(is_its).copied().collect();
    if !left.is_empty() {
        entrance.addresses = left;
    }
}

/// Which entrances listen nowhere for it. (Of `tcpServices` and `udpServices`, planning says so.)
pub(crate) fn doubts(settings: &Settings) -> Vec<Doubt> {
    let Config { front_door: door, listen_only, .. } = &settings.config;
    let listed = |ips: &[IpAddr]| ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let main = ("frontDoor.addresses".to_owned(), "the front door".to_owned(), door.addresses.clone());
    let entrances = door.entrances.iter().map(|(name, it)| {
        let field = format!("frontDoor.entrances[{name}].addresses");
        (field, format!("the entrance {name}"), it.addresses.clone())
    });
    let all = std::iter::once(main).chain(entrances);
    let nowhere = all.filter(|(.., ips)| !settings.config.may_listen(ips));
    let doubt = |(field, what, ips): (String, String, Vec<IpAddr>)| {
        let message = format!(
            "{what} listens nowhere: its address is {}, and --address names {} alone",
            listed(&ips),
            listed(listen_only)
        );
        let flags: Vec<String> = ips.iter().map(|ip| format!("--address {ip}")).collect();
        let fix = match ips.iter().all(IpAddr::is_unspecified) {
            true => format!("Add another address of this machine with --address, or set {field}."),
            false => format!("Add {}, or correct {field}.", flags.join(" ")),
        };
        Doubt::new(Reason::AddressMissing, field, message).fix(fix)
    };
    nowhere.map(doubt).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::settings::parse;

    fn ips(text: &str) -> Vec<IpAddr> {
        text.split_whitespace().map(|it| it.parse().expect("an address")).collect()
    }

    #[test]
    fn nothing_listens_at_an_address_that_the_flag_or_its_own_key_does_not_name() {
        let internal = "frontDoor: {entrances: [{name: internal, addresses: [10.9.0.2], port: 8080, tls: {port: 8443}}]}";
        let same_port = "frontDoor: {entrances: [{name: internal, addresses: [10.9.0.2]}]}";
        let follows = "frontDoor: {addresses: [10.9.0.3], entrances: [{name: internal, port: 8080, tls: {port: 8443}}]}";
        for (text, only, main, its, nowhere) in [
            (internal, "", ":: 0.0.0.0", "10.9.0.2", 0),
            (internal, "10.9.0.1", "10.9.0.1", "", 1),
            (internal, "10.9.0.1 10.9.0.2", "10.9.0.1 10.9.0.2", "10.9.0.2", 0),
            (same_port, "10.9.0.1 10.9.0.2", "10.9.0.1", "10.9.0.2", 0),
            (same_port, "10.9.0.2", "", "10.9.0.2", 1),
            (same_port, "2001:db8::1", "2001:db8::1", "", 1),
            (follows, "10.9.0.1", "", "", 2),
            (follows, "10.9.0.1 10.9.0.3", "10.9.0.3", "10.9.0.3", 0),
        ] {
            let mut settings = parse(text, Path::new("")).expect("is well written");
            limit(&mut settings, &ips(only));
            let config = &settings.config;
            let at = |it: &FrontDoor| {
                if config.may_listen(&it.addresses) { it.addresses.clone() } else { Vec::new() }
            };
            let case = format!("{text} {only}");
            assert_eq!(at(&config.front_door), ips(main), "{case}");
            assert_eq!(at(&config.front_door.entrances["internal"]), ips(its), "{case}");
            let told: Vec<String> = doubts(&settings).iter().map(ToString::to_string).collect();
            assert_eq!(told.len(), nowhere, "{case}: {told:?}");
            assert!(
                told.iter()
                    .all(|it| it.contains("Add --address 10.9.0.") || it.contains("Add another address")),
                "{told:?}"
            );
        }
    }
}
