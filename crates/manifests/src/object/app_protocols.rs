//! Values of `appProtocol` that are nearly ones by which Seaway chooses what it speaks: such a port is served as plain TCP.

use super::likely_mistakes::items;
use crate::{
    decode::{ValidationError, nearest},
    tree::{Node, Value},
};

/// Values of `appProtocol` by which Seaway chooses what it speaks.
const PROTOCOLS: [&str; 8] = ["http", "https", "ws", "wss", "h2c", "h2", "grpc", "grpcs"];

pub(super) fn app_protocols(field: &str, node: &Node) -> Vec<ValidationError> {
    let mut faults = Vec::new();
    for (index, port) in items(node, "ports").enumerate() {
        let Some(Node { at, value: Value::Text(written) }) = port.child("appProtocol") else { continue };
        let name = written.strip_prefix("kubernetes.io/").unwrap_or(written);
        // Short ones are near each other: h3 is no misspelt h2.
        if name.len() < 4 || PROTOCOLS.contains(&name) {
            continue;
        }
        let lower = name.to_ascii_lowercase();
        let version = lower.split_once('/').filter(|(it, _)| ["http", "https"].contains(it));
        let meant = version.map(|(protocol, version)| match (protocol, version.starts_with('2')) {
            ("http", true) => "kubernetes.io/h2c",
            _ => protocol,
        });
        let long: Vec<&str> = PROTOCOLS.into_iter().filter(|it| it.len() >= 4).collect();
        if let Some(meant) = meant.or_else(|| nearest(&lower, &long)) {
            let message = format!(
                "{written:?} is not a protocol that Seaway knows, and is served as plain TCP (did you mean {meant:?}?)"
            );
            faults.push(ValidationError { field: format!("{field}[{index}].appProtocol"), at: *at, message });
        }
    }
    faults
}
