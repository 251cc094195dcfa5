//! What a cloud is asked for beyond where a load balancer is, each group by itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{ListenerId, TlsProfile};
use crate::name::Name;

/// Tags that a user asks for, of each kind of object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudTags {
    pub balancer: BTreeSet<Name>,
    pub listener: BTreeSet<Name>,
    pub pool: BTreeSet<Name>,
    pub floating: BTreeSet<Name>,
}

impl CloudTags {
    /// These, and those that are usual.
    #[must_use]
    pub fn and(&self, usual: &CloudTags) -> CloudTags {
        let both = |of: fn(&CloudTags) -> &BTreeSet<Name>| of(self).union(of(usual)).cloned().collect();
        CloudTags {
            balancer: both(|it| &it.balancer),
            listener: both(|it| &it.listener),
            pool: both(|it| &it.pool),
            floating: both(|it| &it.floating),
        }
    }
}

/// What is done about a load balancer that is stuck: Octavia leaves it PENDING.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StuckPolicy {
    /// After this its owner is told; `None`: as is usual.
    pub limit: Option<Duration>,
    /// Another is made beside one that never was ready.
    pub rebuild: bool,
}

/// What a listener that speaks HTTP adds to requests beside X-Forwarded-For.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloudHeaders {
    pub proto: bool,
    pub port: bool,
}

/// How members are asked, where that is said in a cloud's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudHealthMonitor {
    pub kind: Option<CloudHealthMonitorType>,
    /// What the Service says of single ports.
    pub kinds: BTreeMap<ListenerId, CloudHealthMonitorType>,
    /// Of HTTP and HTTPS.
    pub path: Option<Name>,
    /// The same: `200`, `200,202` or `200-204`.
    pub codes: Option<Name>,
    /// The Service itself says so.
    pub is_own: bool,
}

impl CloudHealthMonitor {
    /// Of a port, and whether its Service says so.
    pub fn at(&self, id: ListenerId) -> Option<(CloudHealthMonitorType, bool)> {
        let of_port = self.kinds.get(&id).map(|it| (*it, true));
        of_port.or_else(|| self.kind.map(|it| (it, self.is_own)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudHealthMonitorType {
    Http,
    /// HTTP by TLS; nobody looks at the certificate.
    Https,
    TlsHello,
    Tcp,
    UdpConnect,
    Ping,
    Sctp,
}

impl CloudHealthMonitorType {
    pub const ALL: [CloudHealthMonitorType; 7] = [
        CloudHealthMonitorType::Http,
        CloudHealthMonitorType::Https,
        CloudHealthMonitorType::TlsHello,
        CloudHealthMonitorType::Tcp,
        CloudHealthMonitorType::UdpConnect,
        CloudHealthMonitorType::Ping,
        CloudHealthMonitorType::Sctp,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            CloudHealthMonitorType::Http => "HTTP",
            CloudHealthMonitorType::Https => "HTTPS",
            CloudHealthMonitorType::TlsHello => "TLS-HELLO",
            CloudHealthMonitorType::Tcp => "TCP",
            CloudHealthMonitorType::UdpConnect => "UDP-CONNECT",
            CloudHealthMonitorType::Ping => "PING",
            CloudHealthMonitorType::Sctp => "SCTP",
        }
    }
}

/// What TLS with members is checked and shown by: references to the cloud's own store. None: nobody vouches for members, and
/// nothing is shown to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudMemberTls {
    pub authorities: Option<Name>,
    pub revoked: Option<Name>,
    pub certificate: Option<Name>,
}

/// Certificates that clients have to show where TLS ends: references to the cloud's own store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudClientAuth {
    pub authority: Option<Name>,
    pub revoked: Option<Name>,
    /// A client without one is served, too.
    pub optional: bool,
    /// They are asked for by an authority that the cloud does not have.
    pub by_secret: bool,
    /// They are asked for, and no authority is named.
    pub unvouched: bool,
}

/// How TLS is spoken with clients where it ends by a certificate of the cloud's own store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloudTlsOptions {
    pub profile: TlsProfile,
    /// `Strict-Transport-Security`, in seconds.
    pub hsts: Option<u32>,
}

/// What guards and limits the address of a load balancer, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudVip {
    /// Who may come is said by these, and by nothing else.
    pub groups: BTreeSet<Name>,
    pub qos: Option<Name>,
}
