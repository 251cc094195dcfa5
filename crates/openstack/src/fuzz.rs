//! Targets for fuzzing: plain functions over bytes that panic when an invariant does not hold.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "what is wrong ends the fuzz target"
)]

use std::path::Path;

use serde_json::Value;

use crate::{
    Call, Class, Error, Reply, Service,
    credentials::{
        CloudConf,
        ini::{Entry, Ini, Section},
    },
    error::{ErrorReply, is_of_a_service},
    octavia::{StatusTree, TreePool, read_statistics, read_tree},
};
pub use crate::{
    cloud::fuzz::versions,
    credentials::fuzz::{clouds, duration},
    http::fuzz::retry_after,
    identity::fuzz::catalog,
};

/// Any text is sections, or is refused with a line of its own; what was read, written down plainly, reads back equal.
pub fn ini(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let lines = text.split('\n').count();
    let ini = match Ini::parse(text) {
        Ok(ini) => ini,
        Err(broken) => return assert!((1..=lines).contains(&broken.line), "{broken} of {lines} lines"),
    };
    let mut plain = String::new();
    for section in &ini.sections {
        assert!((1..=lines).contains(&section.line), "a section is somewhere");
        let sub = section.sub.as_ref().map(|sub| format!(" {}", quoted(sub, false))).unwrap_or_default();
        plain.push_str(&format!("[{}{sub}]\n", section.name));
        for entry in &section.entries {
            assert!((1..=lines).contains(&entry.line), "a key is somewhere");
            plain.push_str(&format!("{} = {}\n", entry.key, quoted(entry.value(), true)));
        }
    }
    let again = Ini::parse(&plain).expect("what was written plainly can be read");
    let told = |ini: &Ini| -> Vec<String> {
        let entry = |it: &Entry| format!("{:?} {:?}", it.key, it.value());
        let all = |it: &Section| {
            format!("{:?} {:?} {:?}", it.name, it.sub, it.entries.iter().map(entry).collect::<Vec<_>>())
        };
        ini.sections.iter().map(all).collect()
    };
    assert_eq!(told(&again), told(&ini), "what was written plainly is the same");
    // Whatever it is, it does not stop the process.
    if let Ok(conf) = CloudConf::parse(Path::new("cloud.conf"), text) {
        _ = conf.unknown_keys();
        _ = conf.resolve_for_fuzzing();
    }
}

fn quoted(text: &str, breaks: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    let text = if breaks { text.replace('\n', "\\n") } else { text };
    format!("\"{text}\"")
}

/// Whatever a service says with a status of 400 and above is one short line, of a class that this status may have. The first line
/// of the input is the status.
pub fn refusal(bytes: &[u8]) {
    let (status, body) = bytes.split_at(bytes.iter().position(|byte| *byte == b'\n').unwrap_or(0));
    let Some(status) = std::str::from_utf8(status).ok().and_then(|it| it.parse().ok()) else { return };
    let read = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let page = std::str::from_utf8(body).ok().filter(|_| read.is_null());
    let call = Call::get(Service::Network, "list ports", "/ports");
    let refusal = ErrorReply {
        status,
        body: &read,
        request_id: Some("req-1"),
        retry_after: None,
        page: page.map(|_| "Sorry"),
    };
    let error = Error::from_reply(&call, &refusal);
    assert!(!error.message().is_empty() && error.message().chars().count() <= 600, "{error}");
    assert!(!error.to_string().contains(['\n', '\r', '\u{85}', '\u{2028}']), "{error} is more than one line");
    assert_eq!((error.status(), error.request_id()), (Some(status), Some("req-1")));
    match error.class() {
        Class::Unauthorized => assert_eq!(status, 401),
        // Who takes something for gone forgets it.
        Class::NotFound => assert!(matches!(status, 404 | 410)),
        Class::Quota { what } => assert!(!what.is_empty()),
        Class::Stale => assert_eq!(status, 412),
        _ => assert!(!matches!(status, 401 | 404 | 410), "{error}"),
    }
    // What a service wrote, it wrote in an object.
    assert!(!is_of_a_service(&read) || read.is_object());
}

/// A status tree has as many listeners, pools and members as the reply has, or is refused as something that the API does not
/// promise.
pub fn status_tree(bytes: &[u8]) {
    let Ok(body) = serde_json::from_slice::<Value>(bytes) else { return };
    let reply = || Reply { status: 200, body: body.clone(), request_id: None };
    match read_tree(reply()) {
        Ok(tree) => tree_holds(&tree, body.pointer("/statuses/loadbalancer").expect("it was read")),
        Err(error) => assert_eq!(error.class(), &Class::Strange, "{error}"),
    }
    if let Err(error) = read_statistics(reply()) {
        assert_eq!(error.class(), &Class::Strange, "{error}");
    }
}

fn tree_holds(tree: &StatusTree, body: &Value) {
    let count = |of: &Value, key: &str| of.get(key).and_then(Value::as_array).map_or(0, Vec::len);
    let same_pools = |pools: &[TreePool], of: &Value| {
        assert_eq!(pools.len(), count(of, "pools"));
        for (index, pool) in pools.iter().enumerate() {
            let of = &of["pools"][index];
            assert_eq!(pool.members.len(), count(of, "members"));
            let monitors =
                ["health_monitor", "healthmonitor"].iter().filter_map(|key| of.get(key)?.get("id"));
            assert_eq!(usize::from(pool.health_monitor.is_some()), monitors.count());
        }
    };
    assert_eq!(tree.listeners.len(), count(body, "listeners"));
    for (index, listener) in tree.listeners.iter().enumerate() {
        same_pools(&listener.pools, &body["listeners"][index]);
    }
    same_pools(&tree.pools, body);
}
