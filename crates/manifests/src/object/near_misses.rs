//! What an API server accepts, and what nearly is something that Seaway reads: in a file, a mistake rather than a choice.

use seaway_model::Kind;

use crate::{
    decode::{Fault, nearest},
    tree::{Node, Value},
};

/// Values of `appProtocol` by which Seaway chooses what it speaks.
const PROTOCOLS: [&str; 8] = ["http", "https", "ws", "wss", "h2c", "h2", "grpc", "grpcs"];
const OURS: &str = "seaway.dev/";

pub(super) fn near_misses(kind: Kind, node: &Node) -> Vec<Fault> {
    let mut faults = Vec::new();
    if matches!(kind, Kind::Service | Kind::HTTPRoute) {
        faults.extend(labels(node));
    }
    let of_ports = |field: &str, at: &Node| app_protocols(field, at);
    match kind {
        Kind::Service => faults.extend(node.child("spec").iter().flat_map(|it| of_ports("spec.ports", it))),
        Kind::EndpointSlice => faults.extend(of_ports("ports", node)),
        Kind::Endpoints => faults.extend(
            items(node, "subsets")
                .enumerate()
                .flat_map(|(index, it)| of_ports(&format!("subsets[{index}].ports"), it)),
        ),
        _ => {}
    }
    faults
}

fn items<'n>(node: &'n Node, key: &str) -> impl Iterator<Item = &'n Node> {
    let items = match node.child(key).map(|it| &it.value) {
        Some(Value::List(items)) => items.as_slice(),
        _ => &[],
    };
    items.iter()
}

fn labels(node: &Node) -> Vec<Fault> {
    let labels =
        node.child("metadata").and_then(|it| it.child("labels")).map(Node::entries).unwrap_or_default();
    let ours = labels.iter().filter(|it| it.key.starts_with(OURS));
    ours.map(|it| Fault {
        field: format!("metadata.labels.{}", it.key),
        at: it.at,
        message: "a label, which has no effect: settings of Seaway are annotations; move it to metadata.annotations".into(),
    })
    .collect()
}

fn app_protocols(field: &str, node: &Node) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, port) in items(node, "ports").enumerate() {
        let Some(Node { at, value: Value::Text(written) }) = port.child("appProtocol") else { continue };
        let name = written.strip_prefix("kubernetes.io/").unwrap_or(written);
        // Short ones are near each other: h3 is no misspelt h2.
        if name.len() < 4 || PROTOCOLS.contains(&name) {
            continue;
        }
        let lower = name.to_ascii_lowercase();
        let long = PROTOCOLS.into_iter().filter(|it| it.len() >= 4).collect::<Vec<_>>();
        if let Some(near) = nearest(&lower, &long) {
            let message = format!(
                "{written:?} is no protocol that Seaway knows, and is served as plain TCP (did you mean {near:?}?)"
            );
            faults.push(Fault { field: format!("{field}[{index}].appProtocol"), at: *at, message });
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::super::tests::read_text;

    fn said(text: &str) -> Vec<String> {
        let reading = read_text(text).remove(0);
        assert!(reading.result.is_ok(), "{:?}", reading.result);
        reading.ignored.iter().map(|it| format!("{} {it}", it.at.line)).collect()
    }

    #[test]
    fn a_protocol_that_is_nearly_known_is_named() {
        let service = |protocol: &str| {
            format!(
                "apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\nspec:\n  ports:\n  - {{port: 80, appProtocol: {protocol}}}\n"
            )
        };
        for (typo, near) in
            [("htpp", "http"), ("HTTP", "http"), ("kubernetes.io/htpps", "https"), ("grcp", "grpc")]
        {
            let said = said(&service(typo));
            assert_eq!(said.len(), 1, "{typo}: {said:?}");
            assert!(said[0].starts_with("6 spec.ports[0].appProtocol: "), "{said:?}");
            assert!(said[0].ends_with(&format!("(did you mean {near:?}?)")), "{said:?}");
        }
        for known in [
            "http",
            "kubernetes.io/h2c",
            "wss",
            "tcp",
            "h3",
            "redis",
            "mysql",
            "mongo",
            "amqp",
            "ldap",
            "smtp",
            "imap",
            "kafka",
        ] {
            assert_eq!(said(&service(known)), [""; 0], "{known}");
        }
        let slice = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a, labels: {kubernetes.io/service-name: a}}\n\
                     addressType: IPv4\nendpoints: []\nports:\n- {port: 80, appProtocol: htpp}\n";
        assert!(said(slice)[0].starts_with("7 ports[0].appProtocol: "), "{:?}", said(slice));
    }

    #[test]
    fn a_setting_that_is_written_as_a_label_is_named() {
        let text = "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  labels:\n    seaway.dev/source-ranges: all\n    app: a\n\
                    spec: {ports: [{port: 80}]}\n";
        let said = said(text);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].starts_with("6 metadata.labels.seaway.dev/source-ranges: a label, which has no effect"),
            "{said:?}"
        );
    }
}
