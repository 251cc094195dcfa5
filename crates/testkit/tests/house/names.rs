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
const RIDDLES: &[(&str, &str)] = &[
    ("About", "key of a request"),
    ("AccessTo", "target of a log"),
    ("Added", "outcome of adding"),
    ("Admission", "which Services"),
    ("Adopted", "inherited sockets, what was adopted"),
    ("After", "what becomes of a connection"),
    ("Agreed", "NegotiatedCapabilities"),
    ("Arrivals", "limiter of new connections"),
    ("AsItIs", "IdentityHasher"),
    ("Ask", "what is still to be read"),
    ("Asked", "a request, parts of one, options"),
    ("AskedBy", "requested client authentication"),
    ("Asker", "Requester"),
    ("Away", "CircuitBreaker"),
    ("Belief", "readiness"),
    ("Believed", "policy, trusted address"),
    ("BelievedClient", "trusted address of a client"),
    ("Bell", "wakeup, waker"),
    ("Beside", "CompetingController"),
    ("BgpTask", "BgpConfigForwarder"),
    ("BgpWanted", "DesiredBgp"),
    ("Campaign", "LeaderElection"),
    ("Carried", "pending data"),
    ("Caught", "signal"),
    ("Closing", "ClosingSockets"),
    ("ClusterCounts", "ApiServerMetrics"),
    ("Coming", "remaining body, pending head"),
    ("Copying", "task, copies"),
    ("Crowded", "BusyLoadBalancers"),
    ("Desk", "queue, state of a writer"),
    ("Dice", "a source of randomness"),
    ("Dirt", "WorkItem"),
    ("Door", "context, listener, limit"),
    ("Drained", "DrainResult"),
    ("Durable", "Durability"),
    ("Engaged", "what was reserved"),
    ("Exactly", "verifier of one certificate"),
    ("Explicit", "explicit options"),
    ("Exposed", "ExposedPort"),
    ("Extra", "what is added: settings, rules"),
    ("Eye", "watch"),
    ("Fair", "FairQueue"),
    ("Faults", "validation errors"),
    ("Feed", "reflector, watch"),
    ("Fetched", "FetchResult"),
    ("Forest", "trees"),
    ("Forgotten", "removed object"),
    ("Found", "a result: match, entry, object"),
    ("Freed", "what is told of free capacity"),
    ("Garbled", "invalid input"),
    ("Gates", "backoffs"),
    ("Gathered", "what was gathered: addresses, jobs"),
    ("Grants", "access"),
    ("Guarding", "guard of what"),
    ("Hall", "context of a worker"),
    ("Heard", "event, message"),
    ("Hearing", "result of a frame"),
    ("Heirloom", "transferred flow"),
    ("Held", "what is kept, guard"),
    ("Herald", "EventRecorder"),
    ("Here", "context of what"),
    ("Hidden", "SecretText"),
    ("Hops", "PeerDistance"),
    ("HostSays", "HostStatus"),
    ("How", "options of what"),
    ("HttpRouting", "HttpFrontendOptions"),
    ("InTurn", "RoundRobinQueue"),
    ("Judge", "Validator"),
    ("Keeping", "writer"),
    ("Kept", "cache, stored objects"),
    ("Known", "last observation, cache"),
    ("KnownBy", "IdentifyingFields"),
    ("Lane", "FairnessKey"),
    ("Late", "timeout"),
    ("Likeness", "fields"),
    ("ListenerGone", "ReceiverDropped"),
    ("Listening", "guard of listening sockets"),
    ("Live", "PoolGeneration"),
    ("Look", "result of a scan"),
    ("Loose", "unused objects"),
    ("Lost", "missing objects"),
    ("Mail", "inbox"),
    ("Manner", "encoding"),
    ("Many", "connection"),
    ("Me", "OwnHost"),
    ("Meaning", "purpose"),
    ("MembersFrom", "MemberSource"),
    ("Mend", "RepairAction"),
    ("Multi", "stream"),
    ("Naming", "rules of names"),
    ("Need", "Requirement"),
    ("Newcomer", "accepted connection"),
    ("NotWritten", "an error"),
    ("Numbered", "NumberedRule"),
    ("OfWorker", "what of a worker"),
    ("On", "evidence"),
    ("One", "one what"),
    ("Opening", "guard of what is being made"),
    ("Openings", "NodeAccess"),
    ("Opens", "policy"),
    ("Ours", "local settings"),
    ("Outside", "CloudOptions"),
    ("Own", "addresses of what"),
    ("Paper", "buffer"),
    ("Parting", "state of GOAWAY"),
    ("Passing", "passthrough"),
    ("Passive", "PassiveHealthCheck"),
    ("Past", "history of what"),
    ("Patience", "deadline, timeout"),
    ("PeerProgress", "BgpSessionState"),
    ("Plug", "Neutron port"),
    ("Presupposed", "Precondition"),
    ("Pulses", "heartbeats, Leases"),
    ("Queues", "which queues: idle, waiting"),
    ("Rare", "extras"),
    ("Removed", "outcome of removing"),
    ("Replaced", "what was replaced"),
    ("Room", "quota"),
    ("Rounds", "scheduler"),
    ("Said", "status, value, decoded object"),
    ("Says", "what fields say: framing, status"),
    ("Seat", "ObservedMember"),
    ("Seen", "cache, stamp, view"),
    ("ServerNow", "running server"),
    ("Setback", "a failed attempt"),
    ("Share", "share of what"),
    ("Sheet", "pending set"),
    ("Shelves", "folders"),
    ("Short", "state of an exchange"),
    ("Shown", "view, display, status"),
    ("Sight", "inspection"),
    ("Sought", "search"),
    ("Stand", "state"),
    ("Started", "stopwatch, started process"),
    ("Story", "history"),
    ("Stuck", "stalled connections"),
    ("Succession", "peers of a handover"),
    ("Sums", "totals"),
    ("Swept", "transient folder"),
    ("Taken", "guard, what is counted"),
    ("Terms", "TLS configuration, timings"),
    ("Theirs", "settings of the peer"),
    ("Thing", "object"),
    ("Timed", "settings"),
    ("Told", "object, reply, report"),
    ("Tried", "an outcome"),
    ("Trunk", "upstream pool"),
    ("Tuned", "configuration"),
    ("Turns", "fair queue"),
    ("Twins", "duplicates"),
    ("Unclaimed", "records without a claim"),
    ("UnderWay", "guard of what is in flight"),
    ("Unfinished", "UnfinishedAttempt"),
    ("Unmatched", "response"),
    ("Unseen", "a problem"),
    ("Unverified", "VerificationError"),
    ("Unwritten", "guard of unwritten lines"),
    ("Used", "what uses, metered queue"),
    ("Viewed", "Resource"),
    ("Visit", "id of a target"),
    ("Waits", "waiter, queue"),
    ("Ward", "registry"),
    ("Watching", "guard of what is watched"),
    ("Ways", "reachability"),
    ("Weighed", "weighted queues"),
    ("Why", "reason, evidence"),
    ("Wide", "wildcard"),
    ("Within", "TLS around what"),
];

/// The same of functions.
const RIDDLES_OF_FUNCTIONS: &[(&str, &str)] = &[
    ("bar", "forbidden_reason"),
    ("doing", "with_operation"),
    ("feel", "judge_ what"),
    ("hear", "receive, handle"),
    ("heard", "receive, last_heard"),
    ("lead_back", "route_replies_back"),
    ("left", "remaining, leftovers"),
    ("likeness", "sent_fields"),
    ("mend", "repair"),
    ("noticed", "problems of what"),
    ("opens", "opening_guard"),
    ("put_together", "build_ what"),
    ("stands", "connection_guard"),
    ("through", "passthrough"),
    ("told_to", "describe_to"),
    ("unvouched", "missing_authorities"),
    ("want", "set_desired"),
];

#[test]
fn types_and_functions_are_named_by_what_they_are() {
    let mut found = Vec::new();
    for source in Workspace::read().sources() {
        let is_ours = source.path.starts_with("crates/") && source.path.contains("/src/");
        let ships = is_ours && !source.path.starts_with("crates/testkit/");
        if !ships || source.is_test() {
            continue;
        }
        for words in source.words_outside_tests().windows(2) {
            let [(_, kind), (line, name)] = words else { continue };
            let riddles = match kind.as_str() {
                "struct" | "enum" | "trait" | "type" | "union" => RIDDLES,
                "fn" => RIDDLES_OF_FUNCTIONS,
                _ => continue,
            };
            let riddle = riddles.iter().find(|(it, _)| it == name);
            found.extend(riddle.map(|(it, instead)| format!("{}:{line}: {it}: say: {instead}", source.path)));
        }
    }
    assert!(found.is_empty(), "names that say nothing of what they are:\n{}", found.join("\n"));
}
