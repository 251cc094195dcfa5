//! What each provider can do: `ovn` layer 4, `amphora` all, and `noop_driver` accepts everything and never reports back.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::Octavia;
use crate::cloud::{
    exchange::Refusal,
    store::{Fields, Row, text},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Provider {
    Ovn,
    Amphora,
    Noop,
}

/// With the words of the rig's configuration.
pub(super) const ALL: [(Provider, &str, &str); 3] = [
    (Provider::Ovn, "ovn", "Layer 4 load balancing in OVN (real)"),
    (Provider::Amphora, "amphora", "Layer 7 control plane with simulated amphorae"),
    (Provider::Noop, "noop_driver", "Accepts everything and never reports back"),
];

impl Provider {
    pub(super) fn named(name: &str) -> Result<Provider, Refusal> {
        let found = ALL.iter().find(|(_, it, _)| *it == name).map(|(provider, ..)| *provider);
        found.ok_or_else(|| Refusal::new(400, format!("Provider '{name}' is not enabled.")))
    }

    pub(super) fn of(balancer: &Row) -> Provider {
        Provider::named(balancer.text("provider")).unwrap_or(Provider::Noop)
    }

    pub(super) fn name(self) -> &'static str {
        ALL.iter().find(|(it, ..)| *it == self).map_or("", |(_, name, _)| name)
    }

    pub(super) fn check_listener(self, fields: &Fields) -> Result<(), Refusal> {
        if self != Provider::Ovn {
            return Ok(());
        }
        let protocol = text(fields, "protocol");
        if !protocol.is_empty() && !["TCP", "UDP", "SCTP"].contains(&protocol) {
            return Err(self.no_option(format!("OVN provider does not support {protocol} protocol")));
        }
        if fields.get("allowed_cidrs").and_then(Value::as_array).is_some_and(|it| !it.is_empty()) {
            return Err(self.no_option("OVN provider does not support allowed_cidrs option"));
        }
        Ok(())
    }

    pub(super) fn check_pool(self, fields: &Fields) -> Result<(), Refusal> {
        let (protocol, algorithm) = (text(fields, "protocol"), text(fields, "lb_algorithm"));
        let persistence = fields.get("session_persistence").and_then(|it| it["type"].as_str());
        match self {
            Provider::Ovn if !["", "TCP", "UDP", "SCTP"].contains(&protocol) => {
                Err(self.no_option(format!("OVN provider does not support {protocol} protocol")))
            }
            Provider::Ovn if !["", "SOURCE_IP_PORT"].contains(&algorithm) => {
                Err(self.no_option(format!("OVN provider does not support {algorithm} algorithm")))
            }
            // A mistake in its code, where it would say so.
            Provider::Ovn if persistence.is_some_and(|it| it != "SOURCE_IP") => {
                Err(self.broken("'dict' object has no attribute 'type'"))
            }
            Provider::Amphora if algorithm == "SOURCE_IP_PORT" => {
                Err(self.no_option(format!("Amphora provider does not support {algorithm} algorithm.")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn check_monitor(self, fields: &Fields) -> Result<(), Refusal> {
        let kind = text(fields, "type");
        if self == Provider::Ovn && !["TCP", "UDP-CONNECT"].contains(&kind) {
            return Err(self.no_option(format!(
                "OVN provider does not support {kind} health monitor type. Supported types: UDP-CONNECT, TCP"
            )));
        }
        Ok(())
    }

    pub(super) fn check_policy(self, listener: &Row) -> Result<(), Refusal> {
        match self {
            Provider::Ovn => Err(self.no_action("This provider does not support creating l7policies.")),
            Provider::Amphora if !["HTTP", "TERMINATED_HTTPS"].contains(&listener.text("protocol")) => {
                let protocol = listener.text("protocol");
                Err(self.no_option(format!("{protocol} protocol listeners do not support L7 policies")))
            }
            _ => Ok(()),
        }
    }

    /// `vip` is the balancer's; the subnet is where its address is, with its range.
    pub(super) fn check_member(self, fields: &Fields, vip: &Vip, in_batch: bool) -> Result<(), Refusal> {
        if self != Provider::Ovn {
            return Ok(());
        }
        if ["monitor_address", "monitor_port"]
            .iter()
            .any(|name| fields.get(*name).is_some_and(|it| !it.is_null()))
        {
            return Err(self.no_option(if in_batch {
                "OVN provider does not support monitor options"
            } else {
                "OVN Load Balancer does not support different member monitor address or port."
            }));
        }
        let Ok(address) = text(fields, "address").parse::<IpAddr>() else { return Ok(()) };
        if !vip.is_mixed && vip.address.is_some_and(|it| it.is_ipv4() != address.is_ipv4()) {
            let message =
                "OVN provider does not support mixing IPv4/IPv6 configuration within the same Load Balancer.";
            return Err(self.no_option(message));
        }
        let is_near = vip.range.is_some_and(|range| range.contains(&address));
        if text(fields, "subnet_id").is_empty() && !is_near {
            let what = if in_batch { "batch update" } else { "creation" };
            return Err(self.no_option(format!(
                "Subnet is required, or Loadbalancer associated with Pool must have a subnet, for Member {what} with OVN \
                 Provider Driver if it is not the same as LB VIP subnet"
            )));
        }
        Ok(())
    }

    pub(super) fn check_failover(self) -> Result<(), Refusal> {
        match self {
            Provider::Ovn => Err(self.no_option("OVN provider does not support loadbalancer failover")),
            _ => Ok(()),
        }
    }

    fn no_option(self, message: impl std::fmt::Display) -> Refusal {
        Refusal::new(
            501,
            format!("Provider '{}' does not support a requested option: {message}", self.name()),
        )
    }

    pub(super) fn no_action(self, message: &str) -> Refusal {
        Refusal::new(
            501,
            format!("Provider '{}' does not support a requested action: {message}", self.name()),
        )
    }

    pub(super) fn broken(self, message: impl std::fmt::Display) -> Refusal {
        Refusal::new(500, format!("Provider '{}' reports error: {message}", self.name()))
    }
}

/// What a provider wants to know of the balancer's own address.
#[derive(Clone, Debug, Default)]
pub(super) struct Vip {
    pub(super) address: Option<IpAddr>,
    pub(super) range: Option<ipnet::IpNet>,
    /// It has addresses of both families.
    pub(super) is_mixed: bool,
}

/// What becomes of an object's operating status when its change is done; nothing, where the provider leaves it.
pub(super) fn operating(
    octavia: &Octavia,
    provider: Provider,
    kind: &str,
    row: &Row,
) -> Option<&'static str> {
    let on =
        |status| if row.fields.get("admin_state_up") == Some(&json!(false)) { "OFFLINE" } else { status };
    match (provider, kind) {
        (Provider::Ovn, "pool") => {
            let has_members = octavia.members.children(&row.id).next().is_some();
            let was = row.text("operating_status");
            Some(on(match was {
                _ if has_members || row.is("with_listener") => "ONLINE",
                "ERROR" => "ERROR",
                _ => "OFFLINE",
            }))
        }
        (Provider::Ovn, "member") => {
            let pool = row.parent.as_deref().unwrap_or_default();
            let is_watched = octavia.monitors.children(pool).next().is_some();
            Some(on(if is_watched { "ONLINE" } else { "NO_MONITOR" }))
        }
        (Provider::Ovn, _) => Some(on("ONLINE")),
        // No amphora of the rig reports health; only what has none of its own is told to be well.
        (Provider::Amphora, "healthmonitor" | "rule") => Some(on("ONLINE")),
        (Provider::Amphora | Provider::Noop, _) => None,
    }
}
