//! Names below `seaway.dev/`: what Seaway writes on other people's objects, and reads there.

use std::collections::BTreeSet;

use seaway_testkit::golden;

use super::{
    built::{Workspace, root},
    source::Source,
};

const BEFORE: &str = "seaway.dev/";

/// Annotations, labels, finalizers, conditions, classes, tags: who renames one loses what stands on objects already.
#[test]
fn names_on_other_peoples_objects_are_the_golden_ones() {
    let mut names = BTreeSet::new();
    let ships = |it: &&Source| ["crates/testkit/", "bench/"].iter().all(|part| !it.path.starts_with(part));
    for source in Workspace::read().sources().filter(ships) {
        if source.is_test() {
            continue;
        }
        let text = source.text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for (at, _) in line.match_indices(BEFORE) {
                let rest = line.get(at + BEFORE.len()..).unwrap_or_default();
                let end =
                    rest.find(|it: char| !it.is_ascii_alphanumeric() && it != '-').unwrap_or(rest.len());
                names.insert(format!("{BEFORE}{}\n", rest.get(..end).unwrap_or_default()));
            }
        }
    }
    let file = root().join("crates/testkit/golden/names.txt");
    golden::same(file, &names.into_iter().collect::<String>());
}

/// Names of types that say nothing of what the type is, and what the field calls it.
const RIDDLES: [(&str, &str); 52] = [
    ("Adopted", "inherited sockets, what was adopted"),
    ("Arrivals", "limiter of new connections"),
    ("Asked", "a request, parts of one, options"),
    ("Away", "CircuitBreaker"),
    ("Belief", "readiness"),
    ("Bell", "wakeup, waker"),
    ("Campaign", "LeaderElection"),
    ("Carried", "pending data"),
    ("Desk", "queue, state of a writer"),
    ("Dice", "a source of randomness"),
    ("Door", "context, listener, limit"),
    ("Engaged", "what was reserved"),
    ("Eye", "watch"),
    ("Fair", "FairQueue"),
    ("Feed", "reflector, watch"),
    ("Forest", "trees"),
    ("Found", "a result: match, entry, object"),
    ("Freed", "what is told of free capacity"),
    ("Hall", "context of a worker"),
    ("Heard", "event, message"),
    ("Heirloom", "transferred flow"),
    ("Herald", "EventRecorder"),
    ("Lane", "FairnessKey"),
    ("Likeness", "fields"),
    ("Listening", "guard of listening sockets"),
    ("Mail", "inbox"),
    ("Many", "connection"),
    ("Multi", "stream"),
    ("Newcomer", "accepted connection"),
    ("Opening", "guard of what is being made"),
    ("Patience", "deadline, timeout"),
    ("Pulses", "heartbeats, Leases"),
    ("Queues", "which queues: idle, waiting"),
    ("Rare", "extras"),
    ("Said", "status, value, decoded object"),
    ("Seen", "cache, stamp, view"),
    ("Share", "share of what"),
    ("Sheet", "pending set"),
    ("Shelves", "folders"),
    ("Short", "state of an exchange"),
    ("Sight", "inspection"),
    ("Story", "history"),
    ("Stuck", "stalled connections"),
    ("Taken", "guard, what is counted"),
    ("Terms", "TLS configuration, timings"),
    ("Thing", "object"),
    ("Told", "object, reply, report"),
    ("Trunk", "upstream pool"),
    ("Tuned", "configuration"),
    ("Turns", "fair queue"),
    ("Ward", "registry"),
    ("Wide", "wildcard"),
];

/// The next issue writes these anew, under the right names.
const NOT_YET: [&str; 4] =
    ["crates/engine/", "crates/drivers/src/octavia", "crates/plan/src/", "crates/cli/src/"];

#[test]
fn types_are_named_by_what_they_are() {
    let mut found = Vec::new();
    for source in Workspace::read().sources() {
        let is_ours = source.path.starts_with("crates/") && source.path.contains("/src/");
        let ships = is_ours && !source.path.starts_with("crates/testkit/");
        if !ships || source.is_test() || NOT_YET.iter().any(|it| source.path.starts_with(it)) {
            continue;
        }
        for words in source.words_outside_tests().windows(2) {
            let [(_, kind), (line, name)] = words else { continue };
            let defines = ["struct", "enum", "trait", "type", "union"].contains(&kind.as_str());
            let riddle = RIDDLES.iter().find(|(it, _)| defines && it == name);
            found.extend(riddle.map(|(it, instead)| format!("{}:{line}: {it}: say: {instead}", source.path)));
        }
    }
    assert!(found.is_empty(), "types that say nothing of what they are:\n{}", found.join("\n"));
}
