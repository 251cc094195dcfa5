//! What reads bytes of others has a fuzz target. Who writes another such file gives it a line here: of its target, or of the
//! reason why it needs none.

use std::collections::BTreeSet;

use super::{built::Workspace, fuzz::targets};

/// Words by which bytes and texts become something else.
const READS: [&str; 11] = [
    "from_utf8",
    "from_utf8_lossy",
    "from_slice",
    "from_reader",
    "from_str",
    "from_str_radix",
    "from_be_bytes",
    "from_le_bytes",
    "from_ne_bytes",
    "new_from_str",
    "split_once",
];

/// A file, or all of a folder below `crates/`, whether or not it says such a word; and its targets.
const PARSERS: [(&str, &[&str]); 60] = [
    ("acme/src/dns.rs", &["dns"]),
    ("acme/src/dns/", &["dns"]),
    ("admin/src/page/filter.rs", &["filter"]),
    ("announce/src/bfd/packet.rs", &["bfd"]),
    ("announce/src/bgp/message.rs", &["bgp"]),
    ("announce/src/bgp/message/", &["bgp"]),
    ("announce/src/diag.rs", &["netlink"]),
    ("announce/src/diag/tables.rs", &["tables"]),
    ("announce/src/layer2/heartbeat.rs", &["heartbeat"]),
    ("announce/src/layer2/packet/", &["neighbors"]),
    ("announce/src/netlink/message.rs", &["netlink"]),
    ("cli/src/import.rs", &["import"]),
    ("cli/src/import/", &["import"]),
    ("cli/src/settings.rs", &["settings"]),
    ("cli/src/settings/", &["settings"]),
    ("cluster/src/address.rs", &["address"]),
    ("cluster/src/decode.rs", &["object"]),
    ("cluster/src/host.rs", &["host"]),
    ("cluster/src/watch/host_leases.rs", &["lease"]),
    ("drivers/src/dns/", &["names"]),
    ("drivers/src/octavia/belongings.rs", &["names"]),
    ("drivers/src/octavia/names.rs", &["names"]),
    ("drivers/src/octavia/tags.rs", &["names"]),
    ("files/src/document.rs", &["manifest"]),
    ("files/src/folder/content.rs", &["manifest"]),
    ("files/src/last_good.rs", &["last_good"]),
    ("files/src/state_cache.rs", &["snapshot"]),
    ("files/src/state/ledger.rs", &["ledger"]),
    ("haproxy/src/runtime/", &["haproxy"]),
    ("manifests/src/", &["manifest", "object"]),
    ("openstack/src/call.rs", &["versions"]),
    ("openstack/src/cloud/versions.rs", &["versions"]),
    ("openstack/src/credentials/duration.rs", &["duration"]),
    ("openstack/src/credentials/ini.rs", &["ini"]),
    ("openstack/src/error/reply.rs", &["refusal"]),
    ("openstack/src/http/retry_after.rs", &["retry_after"]),
    ("openstack/src/identity/catalog.rs", &["catalog"]),
    ("openstack/src/identity/v2.rs", &["catalog"]),
    ("openstack/src/identity/v3.rs", &["catalog"]),
    ("openstack/src/octavia/tree.rs", &["status_tree"]),
    ("plan/src/annotations/", &["wish"]),
    ("plan/src/base64.rs", &["certificate"]),
    ("plan/src/certificates/", &["certificate"]),
    ("plan/src/http.rs", &["wish"]),
    ("plan/src/quantity.rs", &["wish"]),
    ("proxy/src/health/call.rs", &["call"]),
    ("proxy/src/http/compression.rs", &["rules"]),
    ("proxy/src/http/cors.rs", &["cors"]),
    ("proxy/src/http/grpc.rs", &["grpc"]),
    ("proxy/src/http/request_id.rs", &["trace_parent"]),
    ("proxy/src/http/rules.rs", &["rules"]),
    ("proxy/src/http/trusted_client.rs", &["forwarded"]),
    ("proxy/src/http/sticky.rs", &["cookies"]),
    ("proxy/src/takeover/message.rs", &["takeover"]),
    ("snapshot/src/routes/", &["paths"]),
    ("tree/src/", &["tree", "manifest", "clouds"]),
    ("wire/src/hello.rs", &["hello"]),
    ("wire/src/http/", &["request", "response", "chunks", "status"]),
    ("wire/src/http2/", &["frames"]),
    ("wire/src/proxy/", &["proxy"]),
];

/// Files that say such a word and have no target.
const OTHERS: [(&str, &str); 60] = [
    (
        "acme/src/directory.rs",
        "serde_json reads what the authority that is named answers, each of its readers a value",
    ),
    ("acme/src/order.rs", "text as UTF-8, which `certificate` reads"),
    ("admin/src/logging.rs", "a log filter of who may change it; each part of it is a word of a short list"),
    ("admin/src/logging/escape.rs", "it writes"),
    ("admin/src/metrics/objects.rs", "the name that this process gives a Service of its own"),
    ("admin/src/server/metrics_guard.rs", "one word of a field that hyper has read, before one blank"),
    ("admin/src/server/routes.rs", "the body that `logging` reads"),
    ("announce/src/process.rs", "names of processes, to be shown"),
    ("cli/src/probe.rs", "the status line of its own process, by a socket that this user alone may open"),
    ("haproxy/src/from/respelled.rs", "two digits of an escape in a path that was judged as a manifest's"),
    ("cluster/src/route_records.rs", "serde_json reads what Seaway wrote into a ConfigMap of its own"),
    ("cli/src/args/controllers.rs", "words of the command line"),
    ("cli/src/demo.rs", "it reads what its own backends write"),
    ("cli/src/demo/client.rs", "it reads what its own backends write"),
    (
        "cli/src/member/handover/folder.rs",
        "lines that processes of the same user wrote, in a folder that is closed to others",
    ),
    ("cli/src/init.rs", "an argument that was judged as a manifest"),
    ("cli/src/kubectl.rs", "what kubectl prints for who calls it, once"),
    ("cli/src/kubectl/explain.rs", "an argument"),
    ("cli/src/look.rs", "an argument"),
    ("cli/src/look/cloud/filter.rs", "an argument"),
    ("cli/src/schema/config.rs", "the example of seaway.yaml, which is part of the program"),
    ("cli/src/operate/client.rs", "JSON of our own process, in a folder of its own user"),
    (
        "cli/src/operate/server.rs",
        "JSON of the own user or root, a line of bounded length that serde_json reads",
    ),
    ("cli/src/operate/target.rs", "an argument"),
    ("cli/src/operate/weights.rs", "an argument"),
    ("cli/src/running.rs", "JSON of our own process, which is known by when it started"),
    (
        "cluster/src/dns_endpoints.rs",
        "the key that it wrote; serde_json reads what the API server tells, and addresses are values of their own",
    ),
    ("cluster/src/copies.rs", "one word of an annotation of ours, before one slash"),
    ("cluster/src/passwords.rs", "a password as UTF-8, of the bytes that the API server has decoded"),
    ("cluster/src/records.rs", "JSON of our own; what cannot be read is nothing"),
    ("cluster/src/records/limit.rs", "JSON of our own; what cannot be read is nothing"),
    ("drivers/src/nodes/server.rs", "one field of a Node, split at one slash, whose parts are compared"),
    ("drivers/src/acme/reach.rs", "it compares what our own front door answers"),
    ("drivers/src/acme/stored.rs", "a host name, which was judged before"),
    ("drivers/src/octavia/groups/neutron_ports.rs", "a Node's `providerID`, of which one id is taken"),
    ("files/src/pem.rs", "files of the administrator, which rustls reads; `certificate` reads their texts"),
    ("plan/src/front_door/orders.rs", "a host name, which was judged before"),
    ("files/src/state/dns_records.rs", "JSON of our own; what cannot be read is told"),
    ("files/src/state/weights.rs", "JSON of our own; what cannot be read is told"),
    ("haproxy/src/process/files.rs", "the first words of a file, compared"),
    ("haproxy/src/process/alerts.rs", "lines that HAProxy prints: `observed` reads them, or they are logged"),
    ("haproxy/src/process/launch.rs", "what HAProxy prints, which `observed` reads"),
    ("openstack/src/http/transport.rs", "serde_json reads the body, each of its readers a value"),
    ("openstack/src/recorded.rs", "a test"),
    ("openstack/src/resource/id.rs", "the characters of an id, one by one"),
    ("openstack/src/resource/pages.rs", "a link to the next page, of which one parameter is taken"),
    ("plan/src/front_door/host_tls.rs", "a host name that was read, without its first label"),
    ("plan/src/front_door/owners.rs", "a host name that was read, without its first label"),
    ("proxy/src/memory/cgroups.rs", "files of the kernel, each of one number or of names with numbers"),
    ("proxy/src/failing.rs", "a test"),
    ("proxy/src/http/gzip.rs", "a checksum of what goes through"),
    ("proxy/src/running/passthrough.rs", "a host name that was read, without its first label"),
    ("proxy/src/sys/datagram/peer.rs", "an address in a structure of the kernel"),
    ("proxy/src/tls/hosts.rs", "a name that `hello` has read, without its first label"),
    ("proxy/src/tls.rs", "a name that `hello` has read, without its first label"),
    ("proxy/src/udp/flows.rs", "a hash"),
    (
        "cluster/src/records/heartbeats.rs",
        "a list of texts that Seaway wrote, by serde_json; what cannot be read is none",
    ),
    ("cluster/src/status/content.rs", "lines of a condition that Seaway wrote"),
    ("plan/src/certificates.rs", "a host name that was read, without its first label"),
    ("drivers/src/octavia/sole.rs", "a tag of a few words between dots; what cannot be read is another's"),
];

fn is_below(path: &str, part: &str) -> bool {
    let path = path.strip_prefix("crates/").unwrap_or(path);
    if part.ends_with('/') { path.starts_with(part) } else { path == part }
}

#[test]
fn what_reads_bytes_of_others_has_a_fuzz_target() {
    let house = Workspace::read();
    let sources: Vec<_> =
        house.sources().filter(|it| it.path.contains("/src/") && !it.path.contains("/fuzz")).collect();
    let mut faults = Vec::new();
    for source in &sources {
        // Tests, and programs for developers, read what they wrote.
        if source.is_test() || !source.path.starts_with("crates/") || source.path.contains("/testkit/") {
            continue;
        }
        let path = &source.path;
        let is_parser = PARSERS.iter().any(|(part, _)| is_below(path, part));
        let is_other = OTHERS.iter().any(|(part, _)| is_below(path, part));
        let word = source.words_outside_tests().into_iter().find(|(_, word)| READS.contains(&&**word));
        match word {
            Some((line, word)) if !is_parser && !is_other => faults.push(format!(
                "{path}:{line} says {word}: give it a fuzz target (fuzz/README.md) and a line in PARSERS, or say in OTHERS why not"
            )),
            Some(_) if is_parser && is_other => faults.push(format!("{path} is in PARSERS and in OTHERS")),
            None if is_other => faults.push(format!("{path} reads nothing: take it out of OTHERS")),
            _ => {}
        }
    }
    let parts = PARSERS.iter().map(|(part, _)| *part).chain(OTHERS.iter().map(|(part, _)| *part));
    for part in parts.filter(|part| !sources.iter().any(|it| is_below(&it.path, part))) {
        faults.push(format!("crates/{part} is not there"));
    }
    let named: BTreeSet<&str> = PARSERS.iter().flat_map(|(_, targets)| targets.iter().copied()).collect();
    let targets = targets();
    faults.extend(
        named.iter().filter(|it| !targets.contains_key(**it)).map(|it| format!("no target is called {it}")),
    );
    for target in targets.keys().filter(|it| !named.contains(it.as_str())) {
        faults.push(format!("nothing in PARSERS says what the target {target} reads"));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
