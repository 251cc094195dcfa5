//! `layer2`: how hosts that announce addresses by ARP and NDP agree with each other.

use std::{collections::BTreeSet, path::Path};

use seaway_manifests::decode::Field;
use seaway_model::{
    Name,
    layer2::{Layer2, Layer2Peer},
};
use seaway_node::Layer2Settings;

/// Where the DaemonSet mounts the Secret `seaway-layer2`.
pub(crate) const KEY_IN_POD: &str = "/etc/seaway-layer2/key";

pub(super) fn read(field: &Field<'_>, beside: &Path) -> (Layer2Settings, Layer2) {
    let section = field.object();
    let usual = Layer2Settings::default();
    let settings = Layer2Settings {
        key_file: section.take("keyFile").name().map(|it| beside.join(it)),
        port: section.take("port").port().unwrap_or(usual.port),
    };
    let mut names: BTreeSet<Name> = BTreeSet::new();
    let mut peer = |item: Field<'_>| {
        let entry = item.object();
        let (name, addresses) = (entry.take("name"), entry.take("addresses"));
        entry.finish();
        if !name.is_set() {
            name.required("the name of the other host, as its `host.name` or its host name says");
        }
        let ips: Vec<_> = addresses.items().filter_map(|it| it.ip()).collect();
        if addresses.items().len() == 0 {
            addresses.required("the address of the other host in the network that both are in");
        }
        let name = Name::from(name.name()?);
        if !names.insert(name.clone()) {
            item.duplicate(name.as_str());
        }
        (!ips.is_empty()).then_some(Layer2Peer { name, addresses: ips })
    };
    let peers = section.take("peers");
    let peers = peers.items().filter_map(&mut peer).collect();
    section.finish();
    (settings, Layer2 { peers })
}

#[cfg(test)]
mod tests {
    use super::{super::parse, *};

    #[test]
    fn hosts_that_agree_on_addresses_are_read() {
        let text = "layer2: {keyFile: l2.key, port: 2000, peers: [{name: b, addresses: [192.0.2.2]}]}";
        let read = parse(text, Path::new("/etc/seaway")).expect("it is right");
        let key_file = Some(Path::new("/etc/seaway/l2.key").to_owned());
        assert_eq!(read.layer2, Layer2Settings { key_file, port: 2000 });
        let addresses = vec!["192.0.2.2".parse().expect("an address")];
        assert_eq!(read.config.layer2.peers, [Layer2Peer { name: "b".into(), addresses }]);
        let none = parse("", Path::new("")).expect("it is right");
        assert_eq!((none.layer2, none.config.layer2), Default::default());
    }

    #[test]
    fn a_host_without_a_name_or_an_address_is_refused_with_its_place() {
        for (text, field) in [
            ("layer2: {peers: [{addresses: [192.0.2.2]}]}", "layer2.peers[0].name"),
            ("layer2: {peers: [{name: b}]}", "layer2.peers[0].addresses"),
            ("layer2: {peers: [{name: b, addresses: [b.example]}]}", "layer2.peers[0].addresses[0]"),
            (
                "layer2: {peers: [{name: b, addresses: [192.0.2.2]}, {name: b, addresses: [192.0.2.3]}]}",
                "layer2.peers[1]",
            ),
            ("layer2: {port: 0}", "layer2.port"),
            ("layer2: {key: secret}", "layer2.key"),
        ] {
            let faults = parse(text, Path::new("")).expect_err("it is wrong");
            let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
            assert!(told.len() == 1 && told[0].starts_with(&format!("{field}: ")), "{text}: {told:?}");
        }
    }
}
