//! Whose records a name has: a TXT record beside it, one for each who writes there, which lists the addresses that are his.
//!
//! `heritage=seaway owner=prod host=edge-1 service=default/shop ttl=60 addresses=192.0.2.1,2001:db8::1`

use std::{collections::BTreeSet, fmt, net::IpAddr};

use seaway_model::dns::DnsName;

const HERITAGE: &str = "heritage=seaway";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Marker {
    /// Which installation.
    pub(super) owner: String,
    /// Of several hosts without a cluster.
    pub(super) host: Option<String>,
    pub(super) service: String,
    pub(super) ttl: u32,
    pub(super) addresses: BTreeSet<IpAddr>,
}

impl Marker {
    /// As it is to be, with these addresses.
    pub(super) fn of(wanted: &DnsName, addresses: BTreeSet<IpAddr>) -> Marker {
        Marker {
            owner: word(&wanted.installation),
            host: wanted.host.as_deref().map(word),
            service: wanted.service(),
            ttl: wanted.ttl,
            addresses,
        }
    }

    /// Nothing, if Seaway did not write this.
    pub(super) fn read(text: &str) -> Option<Marker> {
        let mut words = text.split(' ');
        if words.next() != Some(HERITAGE) {
            return None;
        }
        let (mut owner, mut host, mut service) = (None, None, None);
        let (mut ttl, mut addresses) = (None, None);
        for word in words {
            match word.split_once('=')? {
                ("owner", it) => owner = Some(it.to_owned()),
                ("host", it) => host = Some(it.to_owned()),
                ("service", it) => service = Some(it.to_owned()),
                ("ttl", it) => ttl = Some(it.parse().ok()?),
                ("addresses", it) => {
                    let all = it.split(',').map(str::parse).collect::<Result<_, _>>();
                    addresses = Some(all.ok()?);
                }
                // A later version wrote it: it is not judged by half of what it says.
                _ => return None,
            }
        }
        Some(Marker { owner: owner?, host, service: service?, ttl: ttl?, addresses: addresses? })
    }

    /// It is of the same installation, and of the same host where there are several.
    pub(super) fn is_mine(&self, wanted: &DnsName) -> bool {
        self.is_of_installation(wanted) && self.host == wanted.host.as_deref().map(word)
    }

    /// Another host publishes the same Service.
    pub(super) fn is_of_peer(&self, wanted: &DnsName) -> bool {
        self.is_of_installation(wanted) && !self.is_mine(wanted) && self.service == wanted.service()
    }

    fn is_of_installation(&self, wanted: &DnsName) -> bool {
        self.owner == word(&wanted.installation)
    }

    /// For people.
    pub(super) fn description(&self) -> String {
        let host = self.host.as_ref().map_or(String::new(), |it| format!(" on host {it}"));
        format!("Service {} of the installation {}{host}", self.service, self.owner)
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HERITAGE} owner={}", self.owner)?;
        if let Some(host) = &self.host {
            write!(f, " host={host}")?;
        }
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        write!(f, " service={} ttl={} addresses={}", self.service, self.ttl, addresses.join(","))
    }
}

/// For `fuzz/`: what is read is written as what reads back equal.
pub(crate) fn fuzz(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(read) = Marker::read(text) {
        assert_eq!(Marker::read(&read.to_string()), Some(read));
    }
}

/// Names of hosts may have any letters.
fn word(text: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '.' | '_' | '/');
    text.chars().map(|it| if is_plain(it) { it } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_as_it_was_written_and_nothing_else_is_one() {
        let marker = Marker {
            owner: "prod".into(),
            host: Some("edge-1".into()),
            service: "default/shop".into(),
            ttl: 60,
            addresses: ["192.0.2.1", "2001:db8::1"].map(|it| it.parse().expect("an address")).into(),
        };
        let text = marker.to_string();
        assert_eq!(
            text,
            "heritage=seaway owner=prod host=edge-1 service=default/shop ttl=60 addresses=192.0.2.1,2001:db8::1"
        );
        assert_eq!(Marker::read(&text), Some(marker.clone()));
        let alone = Marker { host: None, ..marker };
        assert_eq!(Marker::read(&alone.to_string()), Some(alone));
        for wrong in [
            "",
            "heritage=seaway",
            "heritage=external-dns,external-dns/owner=default",
            "heritage=seaway owner=a service=b ttl=x addresses=192.0.2.1",
            "heritage=seaway owner=a service=b ttl=1",
            "heritage=seaway owner=a service=b ttl=1 addresses=192.0.2",
            "heritage=seaway owner=a service=b ttl=1 addresses=192.0.2.1 more=1",
            "heritage=seaway2 owner=a service=b ttl=1 addresses=192.0.2.1",
        ] {
            assert_eq!(Marker::read(wrong), None, "{wrong}");
        }
    }
}
