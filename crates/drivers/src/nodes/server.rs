//! A server of the cloud as far as a Node says something of it, and which server a Node is.

use std::{collections::BTreeMap, net::IpAddr};

use seaway_cluster::NodeObject;
use seaway_model::Name;

/// Where a Node that this project initialised keeps which server it is.
pub(super) const SERVER: &str = "seaway.dev/openstack-server";
pub(super) const REGION_LABEL: &str = "topology.kubernetes.io/region";
const SCHEME: &str = "openstack://";

/// A server with its ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Server {
    pub id: Name,
    pub name: Name,
    /// As Nova writes it: `ACTIVE`.
    pub status: String,
    /// Why it is in ERROR.
    pub fault: String,
    pub zone: String,
    pub host_id: String,
    /// The flavor's name, or its id where the name is no label.
    pub flavor: String,
    pub access: Vec<IpAddr>,
    /// Of its metadata.
    pub host_name: String,
    /// By network.
    pub addresses: BTreeMap<String, Vec<ServerAddress>>,
    pub ports: Vec<ServerPort>,
    /// The network of a trunk whose name was not told when it was asked for; empty: all is known.
    pub unread_network: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    pub ip: IpAddr,
    pub is_floating: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerPort {
    pub is_active: bool,
    pub ips: Vec<IpAddr>,
    /// Of ports of its trunk: the network's name, and their addresses there.
    pub trunk: Vec<(String, Vec<IpAddr>)>,
}

impl Server {
    pub(super) fn is_gone_soon(&self) -> bool {
        matches!(&*self.status, "DELETED" | "SOFT_DELETED")
    }

    /// By its ports, or as Nova says.
    pub(super) fn has_address(&self, ip: IpAddr) -> bool {
        let trunks = self.ports.iter().flat_map(|it| &it.trunk).flat_map(|(_, ips)| ips);
        let ports = self.ports.iter().flat_map(|it| &it.ips).chain(trunks);
        let listed = self.addresses.values().flatten().map(|it| &it.ip);
        ports.chain(listed).chain(&self.access).any(|it| *it == ip)
    }
}

/// Whose server a Node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderMatch {
    Ours(Name),
    /// Of another provider, or of another region.
    Others,
    /// Nothing says so yet.
    Unknown,
}

impl ProviderMatch {
    pub fn of(node: &NodeObject, region: Option<&str>) -> ProviderMatch {
        let said = node.labels.get(REGION_LABEL).map(String::as_str).filter(|it| !it.is_empty());
        let is_elsewhere =
            said.is_some_and(|it| region.is_some_and(|ours| ours != it && as_label(ours) != it));
        match &node.provider_id {
            Some(_) if is_elsewhere => ProviderMatch::Others,
            Some(text) => match parsed(text) {
                Some((there, id)) if there.is_empty() || Some(there) == region => {
                    ProviderMatch::Ours(id.into())
                }
                _ => ProviderMatch::Others,
            },
            None => match node.annotations.get(SERVER) {
                Some(id) if !is_elsewhere && is_id(id) => ProviderMatch::Ours(id.as_str().into()),
                _ => ProviderMatch::Unknown,
            },
        }
    }
}

/// Region and id of `openstack:///ID` and `openstack://REGION/ID`.
fn parsed(provider_id: &str) -> Option<(&str, &str)> {
    let (region, id) = provider_id.strip_prefix(SCHEME)?.split_once('/')?;
    is_id(id).then_some((region, id))
}

fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_'))
}

/// As OpenStack writes ids: five groups of lower case, with dashes.
pub(super) fn is_uuid(id: &str) -> bool {
    let is_hex = |it: u8| matches!(it, b'0'..=b'9' | b'a'..=b'f');
    let groups = id.split('-').map(|it| it.bytes().all(is_hex).then_some(it.len()));
    groups.eq([8, 4, 4, 4, 12].map(Some))
}

/// `region`: where ids are written with it.
pub(super) fn provider_id(id: &str, region: Option<&str>) -> String {
    format!("{SCHEME}{}/{id}", region.unwrap_or_default())
}

/// Letters that no label has become dashes.
pub(super) fn as_label(text: &str) -> String {
    let mut label = String::new();
    for letter in text.chars() {
        match letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.') {
            true => label.push(letter),
            // Several in a row are one dash.
            false if label.ends_with('\0') => {}
            false => label.push('\0'),
        }
    }
    let label = label.replace('\0', "-");
    let label = label.trim_matches(|it| matches!(it, '-' | '_' | '.'));
    label.get(..63).unwrap_or(label).to_owned()
}

pub(super) fn is_label(text: &str) -> bool {
    !text.is_empty() && as_label(text) == text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(provider_id: Option<&str>, region: Option<&str>, server: Option<&str>) -> NodeObject {
        let pairs = |key: &str, value: Option<&str>| {
            value.map(|it| (key.to_owned(), it.to_owned())).into_iter().collect()
        };
        NodeObject {
            provider_id: provider_id.map(str::to_owned),
            labels: pairs(REGION_LABEL, region),
            annotations: pairs(SERVER, server),
            ..NodeObject::default()
        }
    }

    #[test]
    fn a_node_is_ours_by_scheme_and_region() {
        let ours = || ProviderMatch::Ours("1a-2b".into());
        for (provider_id, label, server, region, whose) in [
            (Some("openstack:///1a-2b"), None, None, Some("One"), ours()),
            (Some("openstack:///1a-2b"), None, None, None, ours()),
            (Some("openstack://One/1a-2b"), None, None, Some("One"), ours()),
            (Some("openstack://Two/1a-2b"), None, None, Some("One"), ProviderMatch::Others),
            (Some("openstack://One/1a-2b"), None, None, None, ProviderMatch::Others),
            // It was initialised in another region, by ids without one.
            (Some("openstack:///1a-2b"), Some("Two"), None, Some("One"), ProviderMatch::Others),
            (Some("openstack:///1a-2b"), Some("One"), None, Some("One"), ours()),
            (Some("aws:///eu/i-1"), None, Some("1a-2b"), Some("One"), ProviderMatch::Others),
            (Some("openstack:///"), None, None, Some("One"), ProviderMatch::Others),
            (Some("openstack:///a/b"), None, None, Some("One"), ProviderMatch::Others),
            (Some("openstack:///../x"), None, None, Some("One"), ProviderMatch::Others),
            (Some("openstack://1a-2b"), None, None, Some("One"), ProviderMatch::Others),
            (Some("1a-2b"), None, None, Some("One"), ProviderMatch::Others),
            (None, None, None, Some("One"), ProviderMatch::Unknown),
            (None, None, Some("1a-2b"), Some("One"), ours()),
            (None, None, Some(""), Some("One"), ProviderMatch::Unknown),
            (None, Some("Two"), Some("1a-2b"), Some("One"), ProviderMatch::Unknown),
            // A region that is no label value stands there as one.
            (Some("openstack:///1a-2b"), Some("One-east"), None, Some("One (east)"), ours()),
            (Some("openstack:///1a-2b"), Some("One-west"), None, Some("One (east)"), ProviderMatch::Others),
        ] {
            assert_eq!(
                ProviderMatch::of(&node(provider_id, label, server), region),
                whose,
                "{provider_id:?} {label:?} {server:?}"
            );
        }
        assert_eq!(provider_id("1a", None), "openstack:///1a");
        assert_eq!(provider_id("1a", Some("One")), "openstack://One/1a");
    }

    #[test]
    fn what_is_no_label_becomes_one() {
        for (text, label) in [
            ("nova", "nova"),
            ("az 1 (east)", "az-1-east"),
            ("-_x_-", "x"),
            ("a--b", "a--b"),
            ("", ""),
            ("zürich", "z-rich"),
        ] {
            assert_eq!(as_label(text), label);
        }
        assert_eq!(as_label(&"x".repeat(70)).len(), 63);
        assert!(is_label("m1.small") && !is_label("m1 small") && !is_label("") && !is_label("-x"));
    }
    #[test]
    fn an_id_is_one_as_openstack_writes_it() {
        for (id, is_one) in [
            ("c3b1a5e0-2f5b-4d55-9a0b-8f1b0c0e0001", true),
            ("C3B1A5E0-2F5B-4D55-9A0B-8F1B0C0E0001", false),
            ("c3b1a5e02f5b4d559a0b8f1b0c0e0001", false),
            ("c3b1a5e0-2f5b-4d55-9a0b-8f1b0c0e000g", false),
            ("c3b1a5e0-2f5b-4d55-9a0b-8f1b0c0e00011", false),
            ("c3b1a5e0-2f5b-4d55-9a0b-8f1b0c0e0001-", false),
            ("web-1", false),
            ("", false),
        ] {
            assert_eq!(is_uuid(id), is_one, "{id}");
        }
    }
}
