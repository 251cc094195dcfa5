//! The rows about what Octavia has and our own data plane has not.

use seaway_model::Name;

use super::{
    PerPort, Row,
    cloud::{named, theirs},
    http::yes_or_no,
};
use crate::quantity::{ids, list, pending_limit, probe_codes, probe_kind, probe_path, tags};

pub(crate) const FORWARDED_PROTO: &str = "seaway.dev/x-forwarded-proto";
pub(crate) const FORWARDED_PORT: &str = "seaway.dev/x-forwarded-port";
pub(crate) const PROBE_KIND: &str = "seaway.dev/cloud-monitor-type";
pub(crate) const CALLED: &str = "seaway.dev/load-balancer-name";
pub(crate) const TLS_OTHERS: &str = "seaway.dev/tls-sni-containers";
pub(crate) const CLIENT_AUTHORITY: &str = "seaway.dev/client-ca-container";

pub(super) const ROWS: &[Row] = &[
    Row {
        names: &[CALLED],
        help: "the name of an existing load balancer, which the Service adopts or shares, as with load-balancer-id (Octavia only)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.called = Some(it)),
    },
    Row {
        names: &["seaway.dev/load-balancer-group"],
        help: "any word; Services of a namespace with the same word share a load balancer, and need different ports (Octavia only)",
        set: |wishes, text| group(text).map(|it| wishes.cloud.group = Some(it)),
    },
    Row {
        names: &["seaway.dev/load-balancer-tags", theirs!("load-balancer-tags")],
        help: "more tags of the load balancer: team=shop,billing (Octavia only)",
        set: |wishes, text| tags(text).map(|it| wishes.cloud.tags.balancer = it),
    },
    Row {
        names: &["seaway.dev/listener-tags", theirs!("listener-tags")],
        help: "more tags of the listeners: team=shop,billing (Octavia only)",
        set: |wishes, text| tags(text).map(|it| wishes.cloud.tags.listener = it),
    },
    Row {
        names: &["seaway.dev/pool-tags", theirs!("pool-tags")],
        help: "tags of the pools (Octavia only)",
        set: |wishes, text| tags(text).map(|it| wishes.cloud.tags.pool = it),
    },
    Row {
        names: &["seaway.dev/floating-ip-tags"],
        help: "tags of the floating IP that Seaway creates (Octavia only)",
        set: |wishes, text| tags(text).map(|it| wishes.cloud.tags.floating = it),
    },
    Row {
        names: &[FORWARDED_PROTO],
        help: "true: as x-forwarded-for, and members get the client's scheme in X-Forwarded-Proto; of single ports: \
            443:true (Octavia only)",
        set: |wishes, text| {
            wishes.cloud.forwarded_proto = PerPort::read(text, yes_or_no)?;
            wishes.http.ask(wishes.cloud.forwarded_proto.clone());
            Ok(())
        },
    },
    Row {
        names: &[FORWARDED_PORT],
        help: "true: as x-forwarded-for, and members get the port that the client came to in X-Forwarded-Port; of \
            single ports: 443:true (Octavia only)",
        set: |wishes, text| {
            wishes.cloud.forwarded_port = PerPort::read(text, yes_or_no)?;
            wishes.http.ask(wishes.cloud.forwarded_port.clone());
            Ok(())
        },
    },
    Row {
        names: &[PROBE_KIND],
        help: "how members are probed: HTTP, HTTPS, TLS-HELLO, TCP, UDP-CONNECT, PING or SCTP; of single ports: \
             443:TLS-HELLO (Octavia only)",
        set: |wishes, text| {
            wishes.cloud.probe_at = PerPort::read(text, probe_kind)?;
            wishes.cloud.probe.kind = wishes.cloud.probe_at.others();
            Ok(())
        },
    },
    Row {
        names: &["seaway.dev/cloud-monitor-path"],
        help: "the path of HTTP and HTTPS health checks; / (Octavia only)",
        set: |wishes, text| probe_path(text).map(|it| wishes.cloud.probe.path = Some(it)),
    },
    Row {
        names: &["seaway.dev/cloud-monitor-codes"],
        help: "the HTTP status of healthy members: 200, 200,202 or 200-204; 200 (Octavia only)",
        set: |wishes, text| probe_codes(text).map(|it| wishes.cloud.probe.codes = Some(it)),
    },
    Row {
        names: &["seaway.dev/backend-tls-ca-container"],
        help: "with seaway.dev/backend-tls: the reference of a secret of Barbican, the CA certificate for members (Octavia only)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.member_tls.authorities = Some(it)),
    },
    Row {
        names: &["seaway.dev/backend-tls-crl-container"],
        help: "the reference of a secret of Barbican: the list of certificates of members that are revoked (Octavia only)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.member_tls.revoked = Some(it)),
    },
    Row {
        names: &["seaway.dev/backend-tls-container"],
        help: "the reference of a container or secret of Barbican: the certificate that is shown to members (Octavia only)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.member_tls.certificate = Some(it)),
    },
    Row {
        names: &[TLS_OTHERS],
        help: "more certificates beside seaway.dev/tls-container: references of containers or secrets of Barbican, chosen by SNI (Octavia only)",
        set: |wishes, text| {
            wishes.cloud.tls_others = list(text, named)?;
            if wishes.cloud.tls_others.is_empty() {
                Err("no certificate is named".to_owned())
            } else {
                Ok(())
            }
        },
    },
    Row {
        names: &[CLIENT_AUTHORITY],
        help: "the reference of a secret of Barbican: the CA certificate for client certificates, which are then required (Octavia only)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.client_authority = Some(it)),
    },
    Row {
        names: &["seaway.dev/client-crl-container"],
        help: "the reference of a secret of Barbican: the list of certificates of clients that are revoked (Octavia only)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.client_revoked = Some(it)),
    },
    Row {
        names: &["seaway.dev/vip-security-groups"],
        help: "ids of security groups for the VIP port, instead of Octavia's own (Octavia only; Octavia's API 2.29)",
        set: |wishes, text| ids(text).map(|it| wishes.cloud.place.vip_groups = Some(it)),
    },
    Row {
        names: &["seaway.dev/vip-qos-policy"],
        help: "the id of a QoS policy of Neutron for the VIP (Octavia only)",
        set: |wishes, text| named(text).map(|it| wishes.cloud.place.vip_qos = Some(it)),
    },
    Row {
        names: &["seaway.dev/pending-limit"],
        help: "how long the load balancer may stay PENDING before an event says so, at least 1m; 15m (Octavia only)",
        set: |wishes, text| pending_limit(text).map(|it| wishes.cloud.pending_limit = Some(it)),
    },
    Row {
        names: &["seaway.dev/rebuild-on-pending"],
        help: "true: a load balancer that is PENDING_CREATE for longer than seaway.dev/pending-limit is abandoned, and another one is created (Octavia only)",
        set: |wishes, text| yes_or_no(text).map(|it| wishes.cloud.rebuild_pending = Some(it)),
    },
];

/// It is part of a tag.
fn group(text: &str) -> Result<Name, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if text.is_empty() || text.len() > 63 || !text.bytes().all(is_plain) {
        return Err(format!("{text:?} is not a word of up to 63 letters, digits, -, _ and ."));
    }
    Ok(text.into())
}
