//! The addresses of a Node, in the order of OpenStack's cloud controller manager: fixed addresses of active ports; access addresses;
//! the host name of the metadata; what Nova lists, by networks. Tools take the first of a type for the Node's own.

use std::net::IpAddr;

use seaway_cluster::{NodeAddress, NodeObject};
use seaway_model::config::CloudNetworking;

use super::server::Server;

pub(super) const INTERNAL: &str = "InternalIP";
const EXTERNAL: &str = "ExternalIP";
const HOST_NAME: &str = "Hostname";
/// Which addresses a kubelet was started with; others of the same type are left out.
const PROVIDED: &str = "alpha.kubernetes.io/provided-node-ip";

/// What the Node should have; nothing, where its server has no IP at all. An error: its kubelet was started with an address that the
/// server does not have.
pub fn addresses_of(
    node: &NodeObject,
    server: &Server,
    networking: &CloudNetworking,
) -> Result<Vec<NodeAddress>, String> {
    let mut all = of_server(server, networking);
    if !has_ip(&all) {
        return Ok(Vec::new());
    }
    if all.iter().all(|it| it.kind != HOST_NAME) {
        // As its kubelet said.
        all.extend(node.addresses.iter().filter(|it| it.kind == HOST_NAME).cloned());
    }
    match node.annotations.get(PROVIDED) {
        Some(provided) => preferring(provided, all),
        None => Ok(all),
    }
}

pub(super) fn has_ip(addresses: &[NodeAddress]) -> bool {
    addresses.iter().any(|it| it.kind == INTERNAL || it.kind == EXTERNAL)
}

/// What a kubelet says of where it is; what is no address is left out.
pub(super) fn claimed(node: &NodeObject) -> impl Iterator<Item = IpAddr> {
    let provided = node.annotations.get(PROVIDED).into_iter().flat_map(|it| it.split(','));
    let internal = node.addresses.iter().filter(|it| it.kind == INTERNAL).map(|it| it.address.as_str());
    provided.chain(internal).filter_map(|it| it.trim().parse().ok())
}

fn of_server(server: &Server, networking: &CloudNetworking) -> Vec<NodeAddress> {
    let is_wanted = |ip: &IpAddr| ip.is_ipv4() || !networking.no_ipv6;
    let mut all = Vec::new();
    for ip in server.ports.iter().filter(|it| it.is_active).flat_map(|it| &it.ips).filter(|it| is_wanted(it))
    {
        add(&mut all, INTERNAL, ip.to_string());
    }
    for ip in server.access.iter().filter(|it| is_wanted(it)) {
        add(&mut all, EXTERNAL, ip.to_string());
    }
    if !server.host_name.is_empty() {
        add(&mut all, HOST_NAME, server.host_name.clone());
    }
    let mut networks: std::collections::BTreeMap<&str, Vec<(IpAddr, bool)>> =
        std::collections::BTreeMap::new();
    for (network, addresses) in &server.addresses {
        networks.entry(network).or_default().extend(addresses.iter().map(|it| (it.ip, it.is_floating)));
    }
    for (network, ips) in server.ports.iter().flat_map(|it| &it.trunk) {
        networks.entry(network).or_default().extend(ips.iter().map(|it| (*it, false)));
    }
    let names = |list: &[seaway_model::Name], network: &str| list.iter().any(|it| it.as_str() == network);
    for (network, addresses) in networks {
        for (ip, is_floating) in addresses {
            let text = ip.to_string();
            let kind = if is_floating {
                EXTERNAL
            } else if names(&networking.public, network) {
                all.retain(|it| it.address != text);
                EXTERNAL
            } else if networking.internal.is_empty() || names(&networking.internal, network) {
                INTERNAL
            } else {
                all.retain(|it| it.address != text);
                continue;
            };
            if is_wanted(&ip) {
                add(&mut all, kind, text);
            }
        }
    }
    if !networking.order.is_empty() {
        sort(&mut all, networking);
    }
    all
}

fn add(all: &mut Vec<NodeAddress>, kind: &str, address: String) {
    let new = NodeAddress::new(kind, address);
    if !all.contains(&new) {
        all.push(new);
    }
}

/// Those in the first network come first, by their numbers, then those in the second; others stay as they are, behind them.
fn sort(all: &mut [NodeAddress], networking: &CloudNetworking) {
    all.sort_by_key(|it| {
        let ip: Option<IpAddr> = it.address.parse().ok();
        let at = ip.and_then(|ip| networking.order.iter().position(|network| network.contains(&ip)));
        (at.unwrap_or(usize::MAX), ip.filter(|_| at.is_some()))
    });
}

/// Of a type of which one was provided, that one alone, and those first.
fn preferring(provided: &str, all: Vec<NodeAddress>) -> Result<Vec<NodeAddress>, String> {
    let mut first: Vec<NodeAddress> = Vec::new();
    for text in provided.split(',').map(str::trim) {
        let ip: IpAddr = text
            .parse()
            .map_err(|_| format!("the annotation {PROVIDED} has {text:?}, which is not an address"))?;
        let before = first.len();
        first.extend(all.iter().filter(|it| it.address.parse() == Ok(ip)).cloned());
        if first.len() == before {
            return Err(format!(
                "the kubelet was started with the address {ip}, which the server of the Node does not have"
            ));
        }
    }
    let others = all.into_iter().filter(|it| first.iter().all(|found| found.kind != it.kind));
    let others: Vec<NodeAddress> = others.collect();
    first.extend(others);
    Ok(first)
}

#[cfg(test)]
mod tests {
    use seaway_model::Name;

    use super::{
        super::server::{ServerAddress, ServerPort},
        *,
    };

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn server() -> Server {
        let at = |text: &str, is_floating| ServerAddress { ip: ip(text), is_floating };
        let port = |is_active, ips: &[&str]| ServerPort {
            is_active,
            ips: ips.iter().map(|it| ip(it)).collect(),
            ..ServerPort::default()
        };
        Server {
            ports: vec![
                port(true, &["10.0.0.9", "fd00::9"]),
                port(true, &["10.1.0.3"]),
                port(false, &["10.2.0.1"]),
            ],
            access: vec![ip("198.51.100.1"), ip("2001:db8::1")],
            addresses: [
                ("zone".to_owned(), vec![at("10.1.0.3", false), at("203.0.113.7", true)]),
                ("alpha".to_owned(), vec![at("10.0.0.9", false), at("fd00::9", false)]),
            ]
            .into(),
            ..Server::default()
        }
    }

    fn addresses_as_text(node: &NodeObject, server: &Server, networking: &CloudNetworking) -> Vec<String> {
        let all = addresses_of(node, server, networking).expect("it has some");
        all.iter().map(|it| format!("{} {}", it.kind, it.address)).collect()
    }

    #[test]
    fn addresses_have_the_order_of_the_cloud_controller_manager() {
        let node = NodeObject {
            addresses: vec![NodeAddress::new(HOST_NAME, "a"), NodeAddress::new(INTERNAL, "10.9.9.9")],
            ..NodeObject::default()
        };
        let usual = CloudNetworking::default();
        let all = [
            "InternalIP 10.0.0.9",
            "InternalIP fd00::9",
            "InternalIP 10.1.0.3",
            "ExternalIP 198.51.100.1",
            "ExternalIP 2001:db8::1",
            "ExternalIP 203.0.113.7",
            "Hostname a",
        ];
        assert_eq!(addresses_as_text(&node, &server(), &usual), all);
        let named = Server { host_name: "b.example".into(), ..server() };
        assert_eq!(addresses_as_text(&node, &named, &usual)[5], "Hostname b.example");
        assert_eq!(
            addresses_as_text(&node, &named, &usual).len(),
            7,
            "the kubelet's host name is not needed"
        );

        let no_ipv6 = CloudNetworking { no_ipv6: true, ..CloudNetworking::default() };
        assert!(addresses_as_text(&node, &server(), &no_ipv6).iter().all(|it| !it.contains("::")));

        let public = CloudNetworking { public: vec![Name::from("zone")], ..CloudNetworking::default() };
        let all = addresses_as_text(&node, &server(), &public);
        assert!(all.contains(&"ExternalIP 10.1.0.3".to_owned()), "{all:?}");
        assert!(!all.contains(&"InternalIP 10.1.0.3".to_owned()), "not twice: {all:?}");

        let internal = CloudNetworking { internal: vec![Name::from("alpha")], ..CloudNetworking::default() };
        let all = addresses_as_text(&node, &server(), &internal);
        assert!(all.iter().all(|it| !it.ends_with(" 10.1.0.3")), "its network is not one of them: {all:?}");
        assert!(all.contains(&"ExternalIP 203.0.113.7".to_owned()), "floating IPs stay: {all:?}");

        let order = ["203.0.113.0/24", "10.0.0.0/8"].map(|it| it.parse().expect("a network")).to_vec();
        let sorted = CloudNetworking { order, ..CloudNetworking::default() };
        let all = addresses_as_text(&node, &server(), &sorted);
        assert_eq!(all[..3], ["ExternalIP 203.0.113.7", "InternalIP 10.0.0.9", "InternalIP 10.1.0.3"]);
        assert_eq!(all[3..5], ["InternalIP fd00::9", "ExternalIP 198.51.100.1"], "others keep their order");
    }

    #[test]
    fn addresses_of_a_trunk_count_under_their_network() {
        let mut server = server();
        server.ports[0].trunk = vec![("public".to_owned(), vec![ip("192.0.2.8")])];
        let public = CloudNetworking { public: vec![Name::from("public")], ..CloudNetworking::default() };
        let all = addresses_as_text(&NodeObject::default(), &server, &public);
        assert!(all.contains(&"ExternalIP 192.0.2.8".to_owned()), "{all:?}");
    }

    #[test]
    fn what_a_kubelet_was_started_with_comes_first_and_is_required() {
        let node = |provided: &str| NodeObject {
            annotations: [(PROVIDED.to_owned(), provided.to_owned())].into(),
            ..NodeObject::default()
        };
        let all = addresses_as_text(&node("10.1.0.3"), &server(), &CloudNetworking::default());
        assert_eq!(all[..2], ["InternalIP 10.1.0.3", "ExternalIP 198.51.100.1"]);
        let both = addresses_as_text(&node("10.1.0.3,fd00::9"), &server(), &CloudNetworking::default());
        assert_eq!(both[..2], ["InternalIP 10.1.0.3", "InternalIP fd00::9"]);
        for provided in ["10.77.0.1", "x"] {
            let wrong = addresses_of(&node(provided), &server(), &CloudNetworking::default());
            assert!(wrong.is_err_and(|it| it.contains(provided)), "{provided}");
        }
    }

    #[test]
    fn a_server_without_addresses_takes_none_away() {
        let node = NodeObject { addresses: vec![NodeAddress::new(HOST_NAME, "a")], ..NodeObject::default() };
        assert_eq!(addresses_of(&node, &Server::default(), &CloudNetworking::default()), Ok(Vec::new()));
        let named = Server { host_name: "b.example".into(), ..Server::default() };
        assert_eq!(
            addresses_of(&node, &named, &CloudNetworking::default()),
            Ok(Vec::new()),
            "a name is none"
        );
    }
}
