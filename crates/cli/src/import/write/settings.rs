//! The seaway.yaml.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{
    super::proxy::{FrontDoor, Proxy},
    yaml::{flow, scalar},
};

pub(super) fn text(proxy: &Proxy) -> Option<String> {
    let mut text = String::new();
    let serves_http = !proxy.routes.is_empty() || proxy.listeners.iter().any(|it| !it.passthrough.is_empty());
    // Of an Ingress, also where no route could be written: without it, each Service would be at its name.
    if serves_http || proxy.door.parent.is_some() {
        front_door(&proxy.door, &mut text);
    }
    for (key, udp) in [("tcpServices", false), ("udpServices", true)] {
        let at = proxy.listeners.iter().filter(|it| it.udp == udp).filter_map(|it| Some((it, it.address?)));
        let entries: Vec<String> = at
            .filter_map(|(it, address)| {
                let backend = proxy.backends.get(it.backend)?;
                let port = backend.port.unwrap_or(80);
                let entry = json!({
                    "service": backend.name, "port": port, "listen": it.port, "address": address.to_string(),
                });
                Some(format!("- {}\n", flow(&entry)))
            })
            .collect();
        if !entries.is_empty() {
            let _ = write!(text, "{key}:\n{}", entries.concat());
        }
    }
    if !proxy.timeouts.is_empty() {
        text.push_str("defaults:\n  timeouts:\n");
        for (key, value) in &proxy.timeouts {
            let _ = writeln!(text, "    {key}: {}", scalar(value));
        }
    }
    (!text.is_empty()).then(|| format!("# All keys: seaway config --example\n{text}"))
}

fn front_door(door: &FrontDoor, text: &mut String) {
    let mut lines = String::new();
    let mut line = |key: &str, value: Value| {
        let _ = writeln!(lines, "  {key}: {}", flow(&value));
    };
    if door.parent.is_some() {
        line("enabled", json!(true));
        // As in a cluster: a Service is not at its name as well.
        line("services", json!("annotated"));
    }
    if !door.addresses.is_empty() {
        line("addresses", door.addresses.iter().map(|it| json!(it.to_string())).collect());
    }
    if let Some(port) = door.http.filter(|it| *it != 80) {
        line("port", json!(port));
    }
    if let Some(parent) = &door.parent {
        line("parentRef", json!(parent));
    }
    if !door.trusted.is_empty() {
        line("trusted", json!(door.trusted));
    }
    if !door.certificates.is_empty() {
        lines.push_str("  certificates:\n");
        for it in &door.certificates {
            let mut entry = json!({"cert": it.cert.display().to_string()});
            if let (Some(fields), Some(key)) = (entry.as_object_mut(), &it.key) {
                fields.insert("key".to_owned(), json!(key.display().to_string()));
            }
            let _ = writeln!(lines, "  - {}", flow(&entry));
        }
    }
    let tls = tls(door);
    if !tls.is_empty() {
        let _ = write!(lines, "  tls:\n{tls}");
    }
    if !lines.is_empty() {
        let _ = write!(text, "frontDoor:\n{lines}");
    }
}

fn tls(door: &FrontDoor) -> String {
    let mut lines = String::new();
    let mut line = |key: &str, value: Value| {
        let _ = writeln!(lines, "    {key}: {}", flow(&value));
    };
    if let Some(port) = door.https.filter(|it| *it != 443) {
        line("port", json!(port));
    }
    if door.redirect {
        line("redirect", json!(true));
    }
    if door.modern {
        line("profile", json!("modern"));
    }
    if let Some(lasting) = &door.hsts {
        line("hsts", json!(lasting));
    }
    if let Some((authorities, required)) = &door.clients {
        let mut clients = json!({"authorities": authorities.display().to_string()});
        if let Some(fields) = clients.as_object_mut().filter(|_| !required) {
            fields.insert("required".to_owned(), json!(false));
        }
        line("clients", clients);
    }
    lines
}
