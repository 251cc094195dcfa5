//! What load balancers of a provider can do. Octavia tells a provider's name and no more: what the well-known ones
//! refuse is in their documentation, and in each Octavia's versions what its API has.

use serde::Serialize;

use crate::cloud::Versions;

/// Something that a load balancer may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Ability {
    Tcp,
    Udp,
    Sctp,
    Http,
    /// Ending TLS, with certificates of Barbican.
    Tls,
    Proxy,
    L7,
    AllowedCidrs,
    SourceIpAffinity,
    CookieAffinity,
    RoundRobin,
    Timeouts,
    AdditionalVips,
    Failover,
    Prometheus,
    /// Words by which one is found again.
    Tags,
    Flavors,
    Zones,
    /// A health check by HTTP that names a host.
    CheckedHost,
    /// Members of UDP that are asked by HTTP.
    UdpByHttp,
    /// TCP and UDP at one port.
    SharedPorts,
    /// TLS with members.
    MemberTls,
    /// Certificates of clients.
    Clients,
    /// Security groups of the user at the VIP.
    VipGroups,
    /// Which versions of TLS a listener speaks.
    TlsVersions,
    /// `Strict-Transport-Security`.
    Hsts,
    ConnectionLimits,
    /// A QoS policy of Neutron at the VIP.
    VipQos,
}

/// What a provider can do, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Abilities {
    pub can: Vec<Ability>,
    pub cannot: Vec<Ability>,
    /// A provider that nobody here has heard of: what it cannot, it says when it is asked.
    pub known: bool,
}

use Ability::{
    AdditionalVips, AllowedCidrs, CheckedHost, Clients, ConnectionLimits, CookieAffinity, Failover, Flavors,
    Hsts, Http, L7, MemberTls, Prometheus, Proxy, RoundRobin, Sctp, SharedPorts, SourceIpAffinity, Tags, Tcp,
    Timeouts, Tls, TlsVersions, Udp, UdpByHttp, VipGroups, VipQos, Zones,
};

const ALL: [Ability; 28] = [
    Tcp,
    Udp,
    Sctp,
    Http,
    Tls,
    Proxy,
    L7,
    AllowedCidrs,
    SourceIpAffinity,
    CookieAffinity,
    RoundRobin,
    Timeouts,
    AdditionalVips,
    Failover,
    Prometheus,
    Tags,
    Flavors,
    Zones,
    CheckedHost,
    UdpByHttp,
    SharedPorts,
    MemberTls,
    Clients,
    VipGroups,
    TlsVersions,
    Hsts,
    ConnectionLimits,
    VipQos,
];

/// `octavia` is the old name of `amphora`, `amphorav2` was its name for two releases.
const KNOWN: [(&[&str], &[Ability]); 2] =
    [(&["amphora", "amphorav2", "octavia"], &[]), (&["ovn"], &OVN_REFUSES)];

const OVN_REFUSES: [Ability; 21] = [
    Http,
    Tls,
    Proxy,
    L7,
    AllowedCidrs,
    CookieAffinity,
    RoundRobin,
    Timeouts,
    Failover,
    Prometheus,
    Flavors,
    Zones,
    CheckedHost,
    UdpByHttp,
    MemberTls,
    Clients,
    VipGroups,
    TlsVersions,
    Hsts,
    ConnectionLimits,
    VipQos,
];

/// Since which minor version of the API `2.x` there are words for it.
const SINCE: [(Ability, u32); 16] = [
    (Timeouts, 1),
    (Tags, 5),
    (Flavors, 6),
    (MemberTls, 8),
    (Clients, 8),
    (CheckedHost, 10),
    (AllowedCidrs, 12),
    (SharedPorts, 13),
    (Zones, 14),
    (UdpByHttp, 16),
    (TlsVersions, 17),
    (Sctp, 23),
    (Prometheus, 25),
    (AdditionalVips, 26),
    (Hsts, 27),
    (VipGroups, 29),
];

impl Abilities {
    pub fn of(provider: &str, versions: Option<&Versions>) -> Abilities {
        let refused = KNOWN.iter().find(|(names, _)| names.contains(&provider)).map(|(_, refused)| *refused);
        let too_old = |ability: Ability| {
            let since = SINCE.iter().find(|(it, _)| *it == ability);
            since.zip(versions).is_some_and(|((_, minor), versions)| !versions.supports(2, *minor))
        };
        let (cannot, can) = ALL
            .into_iter()
            .partition(|it| refused.is_some_and(|refused| refused.contains(it)) || too_old(*it));
        Abilities { can, cannot, known: refused.is_some() }
    }

    pub fn has(&self, ability: Ability) -> bool {
        self.can.contains(&ability)
    }
}

impl Ability {
    /// As a human says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Tcp => "TCP",
            Udp => "UDP",
            Sctp => "SCTP",
            Http => "HTTP",
            Tls => "TLS",
            Proxy => "PROXY protocol",
            L7 => "layer 7 policies",
            AllowedCidrs => "source ranges (allowed_cidrs)",
            SourceIpAffinity => "session affinity by client address",
            CookieAffinity => "session affinity by cookie",
            RoundRobin => "round robin",
            Timeouts => "timeouts",
            AdditionalVips => "additional VIPs (dual stack)",
            Failover => "failover",
            Prometheus => "Prometheus listener",
            Tags => "tags",
            Flavors => "flavors",
            Zones => "availability zones",
            CheckedHost => "HTTP health check with a Host header (domain_name)",
            UdpByHttp => "HTTP health checks of UDP members",
            SharedPorts => "TCP and UDP at one port",
            MemberTls => "TLS to members",
            Clients => "client certificates (mTLS)",
            VipGroups => "security groups of the VIP",
            TlsVersions => "selectable TLS versions",
            Hsts => "Strict-Transport-Security (HSTS)",
            ConnectionLimits => "connection limits",
            VipQos => "QoS policy of the VIP",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octavia(minor: u32) -> Versions {
        Versions { ids: (0..=minor).map(|it| format!("v2.{it}")).collect(), micro: None }
    }

    #[test]
    fn an_ability_needs_the_provider_and_the_words_of_its_version() {
        for (provider, minor, ability, has) in [
            ("amphora", 30, L7, true),
            ("octavia", 30, AllowedCidrs, true),
            ("amphora", 11, AllowedCidrs, false),
            ("amphora", 25, AdditionalVips, false),
            ("ovn", 30, Tcp, true),
            ("ovn", 30, AdditionalVips, true),
            ("ovn", 30, Http, false),
            ("ovn", 22, Sctp, false),
            ("amphora", 4, Tags, false),
            ("amphora", 5, Tags, true),
            ("amphora", 5, Flavors, false),
            ("amphora", 6, Flavors, true),
            ("ovn", 30, Flavors, false),
            ("ovn", 30, Zones, false),
            ("amphora", 13, Zones, false),
            ("amphora", 14, Zones, true),
            ("amphora", 9, CheckedHost, false),
            ("amphora", 12, SharedPorts, false),
            ("ovn", 13, SharedPorts, true),
            ("amphora", 15, UdpByHttp, false),
            ("amphora", 16, UdpByHttp, true),
            ("amphora", 28, VipGroups, false),
            ("amphora", 29, VipGroups, true),
            ("ovn", 30, VipGroups, false),
            ("amphora", 16, TlsVersions, false),
            ("amphora", 17, TlsVersions, true),
            ("amphora", 26, Hsts, false),
            ("amphora", 27, Hsts, true),
            ("amphora", 7, MemberTls, false),
            ("amphora", 8, MemberTls, true),
            ("ovn", 30, MemberTls, false),
            ("f5", 30, Http, true),
        ] {
            let abilities = Abilities::of(provider, Some(&octavia(minor)));
            assert_eq!(abilities.has(ability), has, "{provider} 2.{minor} {}", ability.as_str());
        }
        assert!(!Abilities::of("f5", None).known);
        assert!(Abilities::of("amphora", None).cannot.is_empty(), "nothing is too old that nobody was asked");
    }
}
