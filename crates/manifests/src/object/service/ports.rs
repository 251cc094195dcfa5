//! A Service's ports.

use seaway_model::{
    L4, Name,
    fact::{ServicePort, TargetPort},
};

use crate::{
    decode::{Field, IntOrString},
    object::{formats, meta::check_rule},
};

const PROTOCOLS: &[(&str, L4)] = &[("SCTP", L4::Sctp), ("TCP", L4::Tcp), ("UDP", L4::Udp)];

pub(super) fn read(list: &Field<'_>, cluster_only: bool) -> Vec<ServicePort> {
    let several = list.items().len() > 1;
    let mut ports: Vec<ServicePort> = Vec::new();
    for item in list.items() {
        let Some(port) = one(&item, several, cluster_only) else { continue };
        let twin = |same: &dyn Fn(&ServicePort) -> bool| ports.iter().any(same);
        if !port.name.is_empty() && twin(&|other| other.name == port.name) {
            item.child("name").duplicate(port.name.as_str());
        }
        if let Some(node_port) = port.node_port
            && twin(&|other| other.node_port == port.node_port && other.protocol == port.protocol)
        {
            item.child("nodePort").duplicate(i64::from(node_port));
        }
        if twin(&|other| other.port == port.port && other.protocol == port.protocol) {
            let message =
                format!("Duplicate value: {{\"port\":{},\"protocol\":\"{}\"}}", port.port, port.protocol);
            item.error(message);
        }
        ports.push(port);
    }
    ports
}

/// The protocol of a port of a Service or of an endpoint; nothing, if it is none that is known.
pub(in crate::object) fn protocol(port: &Field<'_>) -> Option<L4> {
    let field = port.child("protocol");
    match field.one_of(PROTOCOLS) {
        None if field.is_missing() => Some(L4::Tcp),
        known => known,
    }
}

pub(in crate::object) fn app_protocol(port: &Field<'_>) -> Option<Name> {
    let field = port.child("appProtocol");
    let name = field.text()?;
    check_rule(&field, name, formats::qualified_name);
    Some(name.into())
}

/// The name that tells a port from others; it may be absent where there is only one.
pub(in crate::object) fn name(port: &Field<'_>, required: bool) -> Name {
    let field = port.child("name");
    match field.name() {
        Some(name) => check_rule(&field, name, formats::dns1123_label),
        None if required && field.is_missing() => field.required(""),
        None => {}
    }
    field.name().unwrap_or_default().into()
}

pub(in crate::object) fn number(port: &Field<'_>) -> Option<u16> {
    let field = port.child("port");
    if !field.is_set() {
        // Absent is 0 to an API server, and that is what it complains of.
        field.invalid(0, "must be between 1 and 65535, inclusive");
    }
    field.port()
}

fn one(item: &Field<'_>, name_required: bool, cluster_only: bool) -> Option<ServicePort> {
    if item.is_not_a_map() {
        item.error("Invalid value: a port is a map, such as {port: 8080, targetPort: 80}");
        return None;
    }
    let name = name(item, name_required);
    let port = number(item);
    let protocol = protocol(item);
    let target = target(&item.child("targetPort"), port);
    let app_protocol = app_protocol(item);
    let node_port_field = item.child("nodePort");
    let node_port = node_port_field.integer().filter(|port| *port != 0).and_then(|_| node_port_field.port());
    if cluster_only && node_port.is_some() {
        node_port_field.forbidden("may not be used when `type` is 'ClusterIP'");
    }
    Some(ServicePort { name, protocol: protocol?, port: port?, target: target?, node_port, app_protocol })
}

/// Absent, 0 and empty all mean the Service's own port.
fn target(field: &Field<'_>, port: Option<u16>) -> Option<TargetPort> {
    match field.int_or_string() {
        None | Some(IntOrString::Int(0) | IntOrString::Text("")) => port.map(TargetPort::Number),
        Some(IntOrString::Int(_)) => field.port().map(TargetPort::Number),
        Some(IntOrString::Text(name)) => {
            check_rule(field, name, formats::port_name);
            Some(TargetPort::Name(name.into()))
        }
    }
}
