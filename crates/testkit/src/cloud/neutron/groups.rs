//! Security groups and their rules.

use serde_json::{Value, json};

use super::{GROUP, PORT, RULE, forms::bad, listing, missing, networks::owner};
use crate::cloud::{
    exchange::{Answer, Refusal, Reply, Request},
    python::quoted,
    state::State,
    store::{Fields, Row},
};

const DEFAULT: &str = "default";

/// Beside numbers.
const PROTOCOLS: [&str; 27] = [
    "any",
    "ah",
    "dccp",
    "egp",
    "esp",
    "gre",
    "hopopt",
    "icmp",
    "igmp",
    "ip",
    "ipip",
    "ipv6-encap",
    "ipv6-frag",
    "ipv6-icmp",
    "icmpv6",
    "ipv6-nonxt",
    "ipv6-opts",
    "ipv6-route",
    "ospf",
    "pgm",
    "rsvp",
    "sctp",
    "tcp",
    "udp",
    "udplite",
    "vrrp",
    "",
];

/// What makes two rules the same.
const IDENTITY: [&str; 8] = [
    "direction",
    "ethertype",
    "protocol",
    "port_range_min",
    "port_range_max",
    "remote_ip_prefix",
    "remote_group_id",
    "remote_address_group_id",
];

pub(super) fn list(state: &mut State, request: &Request) -> Answer {
    let project = request.caller.project.clone();
    if !project.is_empty() {
        state.default_group(&project);
    }
    listing::list(state, request, &GROUP)
}

pub(super) fn create(state: &mut State, request: &Request) -> Answer {
    let fields = GROUP.created(request)?;
    let project = owner(request, "security_group");
    state.default_group(&project);
    if fields["name"] == DEFAULT {
        return Err(default_exists());
    }
    state.has_room_for(&GROUP, &project)?;
    let id = state.add_group(fields, &project, false);
    state.told(201, &GROUP, &id)
}

pub(super) fn change(state: &mut State, request: &Request) -> Answer {
    let changes = GROUP.changed(request)?;
    let mut row = state.to_change(&GROUP, request)?;
    if changes.get("name").is_some_and(|it| it == DEFAULT) && row.text("name") != DEFAULT {
        return Err(default_exists());
    }
    row.fields.extend(changes);
    state.keep(&GROUP, row);
    state.told(200, &GROUP, &request.at[0])
}

pub(super) fn delete(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    let row = state.neutron.owned(&GROUP, id, &request.caller)?;
    if row.text("name") == DEFAULT && !request.caller.is_admin() {
        let message = "Insufficient rights for removing default security group.";
        return Err(Refusal::of(409, "SecurityGroupCannotRemoveDefault", message));
    }
    let uses = |port: &Row| {
        let groups = port.fields.get("security_groups").and_then(Value::as_array);
        groups.is_some_and(|it| it.iter().any(|it| it == id))
    };
    if state.neutron.table(&PORT).iter().any(uses) {
        return Err(Refusal::of(409, "SecurityGroupInUse", format!("Security Group {id} in use.")));
    }
    for rule in state.neutron.rules.child_ids(id) {
        state.neutron.rules.remove(&rule);
    }
    state.neutron.groups.remove(id);
    Ok(Reply::empty(204))
}

pub(super) fn create_rule(state: &mut State, request: &Request) -> Answer {
    let mut fields = RULE.created(request)?;
    let project = owner(request, "security_group_rule");
    check(&fields)?;
    let group = fields["security_group_id"].as_str().unwrap_or_default().to_owned();
    let parent = state.neutron.visible_object(&GROUP, &group, &request.caller)?;
    let of_default = parent.text("name") == DEFAULT;
    let is_same =
        |rule: &&Row| IDENTITY.iter().all(|name| meaning(&rule.fields, name) == meaning(&fields, name));
    if let Some(same) = state.neutron.rules.children(&group).find(is_same) {
        let message = format!("Security group rule already exists. Rule id is {}.", same.id);
        return Err(Refusal::of(409, "SecurityGroupRuleExists", message));
    }
    state.has_room_for(&RULE, &project)?;
    fields.insert("belongs_to_default_sg".to_owned(), of_default.into());
    let id = state.add_rule(fields, &group, &project);
    state.told(201, &RULE, &id)
}

/// What is said in two ways is the same: a protocol's name and its number, everybody and nobody in particular.
fn meaning(fields: &Fields, name: &str) -> Value {
    let said = fields.get(name).cloned().unwrap_or_default();
    let other = match (name, said.as_str()) {
        ("protocol", Some("6")) => "tcp",
        ("protocol", Some("17")) => "udp",
        ("protocol", Some("132")) => "sctp",
        ("remote_ip_prefix", Some("0.0.0.0/0" | "::/0")) => return Value::Null,
        _ => return said,
    };
    other.into()
}

fn check(fields: &Fields) -> Result<(), Refusal> {
    let refuse = |kind: &'static str, message: String| Err(Refusal::of(400, kind, message));
    let protocol = &fields["protocol"];
    let name = protocol.as_str().unwrap_or_default();
    if !PROTOCOLS.contains(&name) && name.parse::<u8>().is_err() {
        let known: Vec<String> =
            PROTOCOLS.iter().filter(|it| !it.is_empty()).map(|it| format!("'{it}'")).collect();
        let message = format!(
            "Security group rule protocol {name} not supported. Only protocol values (None, {}) and integer \
             representations [0 to 255] are supported.",
            known.join(", ")
        );
        return refuse("SecurityGroupRuleInvalidProtocol", message);
    }
    let (least, most) = (fields["port_range_min"].as_i64(), fields["port_range_max"].as_i64());
    if protocol.is_null() && (least.is_some() || most.is_some()) {
        let message = "Must also specify protocol if port range is given.".to_owned();
        return refuse("SecurityGroupProtocolRequiredWithPorts", message);
    }
    if ["tcp", "udp"].contains(&name) && least > most {
        let message = "For TCP/UDP protocols, port_range_min must be <= port_range_max".to_owned();
        return refuse("SecurityGroupInvalidPortRange", message);
    }
    if fields["remote_ip_prefix"].is_string() && fields["remote_group_id"].is_string() {
        let message =
            "Only one of remote_ip_prefix or remote_group_id or remote_address_group_id may be provided."
                .to_owned();
        return refuse("SecurityGroupMultipleRemoteEntites", message);
    }
    let prefix = fields["remote_ip_prefix"].as_str().unwrap_or_default();
    let family = fields["ethertype"].as_str().unwrap_or_default();
    if !prefix.is_empty() && prefix.contains(':') != (family == "IPv6") {
        let message = format!("Conflicting value ethertype {family} for CIDR {prefix}");
        return refuse("SecurityGroupRuleParameterConflict", message);
    }
    if fields["direction"].is_null() {
        return Err(bad(format!(
            "Invalid input for direction. Reason: {} is not in valid_values.",
            quoted(&fields["direction"])
        )));
    }
    Ok(())
}

pub(super) fn delete_rule(state: &mut State, request: &Request) -> Answer {
    let id = &request.at[0];
    state.neutron.visible_object(&RULE, id, &request.caller)?;
    state.neutron.rules.remove(id).ok_or_else(|| missing(&RULE, id))?;
    Ok(Reply::empty(204))
}

impl State {
    /// Every project has one, from the first time that Neutron hears of it.
    pub(super) fn default_group(&mut self, project: &str) -> String {
        if let Some(found) = self.neutron.groups.of_project(project).find(|it| it.text("name") == DEFAULT) {
            return found.id.clone();
        }
        let fields = json!({
            "name": DEFAULT, "description": "Default security group", "stateful": true, "shared": false,
        });
        self.add_group(fields.as_object().cloned().unwrap_or_default(), project, true)
    }

    fn add_group(&mut self, fields: Fields, project: &str, is_default: bool) -> String {
        let row = self.new_row(fields, project);
        let id = row.id.clone();
        self.neutron.groups.put(row);
        let directions: &[&str] = if is_default { &["egress", "ingress"] } else { &["egress"] };
        for direction in directions {
            for family in ["IPv4", "IPv6"] {
                let from = if *direction == "ingress" { json!(id) } else { Value::Null };
                let own = if is_default { Value::Null } else { json!(false) };
                let mut fields: Fields =
                    RULE.fields.iter().map(|it| (it.name.to_owned(), Value::Null)).collect();
                let settings = json!({
                    "security_group_id": id, "direction": direction, "ethertype": family, "remote_group_id": from,
                    "belongs_to_default_sg": own,
                });
                fields.extend(settings.as_object().cloned().unwrap_or_default());
                self.add_rule(fields, &id, project);
            }
        }
        id
    }

    fn add_rule(&mut self, mut fields: Fields, group: &str, project: &str) -> String {
        let prefix = fields.get("remote_ip_prefix").cloned().unwrap_or_default();
        fields.insert("normalized_cidr".to_owned(), prefix);
        let mut row = self.new_row(fields, project);
        row.parent = Some(group.to_owned());
        let id = row.id.clone();
        self.neutron.rules.put(row);
        id
    }
}

fn default_exists() -> Refusal {
    Refusal::of(409, "SecurityGroupDefaultAlreadyExists", "Default security group already exists.")
}
