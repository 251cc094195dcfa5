//! `tcpServices` and `udpServices`: ports of Services on this host's own addresses.

use seaway_manifests::{
    decode::{Field, IntOrString},
    tree,
};
use seaway_model::{L4, Name, config::ExposedPort, fact::TargetPort};

/// `mysql:3306` (as the old --tcp-services wrote it), `shop/mysql:3306`, or a map.
pub(super) fn read(field: &Field<'_>, list: &str, l4: L4) -> Vec<ExposedPort> {
    let mut all = Vec::new();
    for (index, item) in field.items().enumerate() {
        let key = Name::from(format!("{list}[{index}]"));
        let found = match item.node().map(|node| &node.value) {
            Some(tree::Value::Map(_)) => exposed_map(&item, key, l4),
            _ => exposed_text(&item, key, l4),
        };
        all.extend(found);
    }
    all
}

fn exposed_text(item: &Field<'_>, key: Name, l4: L4) -> Option<ExposedPort> {
    let text = item.text()?;
    let parsed =
        text.rsplit_once(':').and_then(|(service, port)| Some((service_name(service)?, port_name(port)?)));
    if parsed.is_none() {
        item.invalid(text, "must name a Service and one of its ports, such as mysql:3306 or shop/mysql:db");
    }
    let ((namespace, service), port) = parsed?;
    Some(ExposedPort { key, l4, namespace, service, port, listen: None, address: None })
}

fn exposed_map(item: &Field<'_>, key: Name, l4: L4) -> Option<ExposedPort> {
    let entry = item.object();
    let (service, port) = (entry.take("service"), entry.take("port"));
    let named = service.text().and_then(|text| {
        let named = service_name(text);
        if named.is_none() {
            service.invalid(text, "must be NAME or NAMESPACE/NAME");
        }
        named
    });
    if !service.is_set() {
        service.required("NAME or NAMESPACE/NAME");
    }
    let target = match port.int_or_string() {
        Some(IntOrString::Int(_)) => port.port().map(TargetPort::Number),
        Some(IntOrString::Text(text)) => port_name(text),
        None => {
            if !port.is_set() {
                port.required("the number or the name of a port of that Service");
            }
            None
        }
    };
    let (listen, address) = (entry.take("listen").port(), entry.take("address").ip());
    entry.finish();
    let (namespace, service) = named?;
    Some(ExposedPort { key, l4, namespace, service, port: target?, listen, address })
}

fn service_name(text: &str) -> Option<(Name, Name)> {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    let plain = |it: &str| !it.is_empty() && !it.contains(['/', ':', ' ']);
    (plain(namespace) && plain(name)).then(|| (namespace.into(), name.into()))
}

fn port_name(text: &str) -> Option<TargetPort> {
    match text.parse::<u16>() {
        Ok(0) => None,
        Ok(number) => Some(TargetPort::Number(number)),
        Err(_) => (!text.is_empty() && !text.contains(['/', ' '])).then(|| TargetPort::Name(text.into())),
    }
}
