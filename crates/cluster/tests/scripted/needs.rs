//! What is asked for, and when: nothing that nobody needs, what is absent seldom, and all again of a store that was set back.

use std::time::Duration;

use seaway_cluster::{ExpiredHostPolicy, WantedSecrets, WatchTimings};
use seaway_model::{Kind, ObjectRef};

use crate::{
    server::{Answer, event, list, pace, status},
    watches::{begin_as, begin_as_host, begin_at, certificate, pool},
};

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3_600);

pub(crate) fn forbidden() -> Answer {
    Answer::Whole(403, status(403, "Forbidden", "cannot list it"))
}

#[tokio::test]
async fn no_secret_is_asked_for_while_nobody_names_one_and_nothing_is_wrong_then() {
    let listed = Answer::Whole(200, list("5", &[certificate("3")]));
    // In the whole cluster, and in the namespace of the one that is named.
    let scripts = vec![("/secrets?", vec![forbidden(), forbidden(), listed])];
    let mut heard = begin_at(pace(), Kind::Secret, &[], scripts).await;
    assert_eq!(heard.next().await, "not asked");
    let wishes = heard.watch.secret_interest();
    assert!(heard.asked.try_recv().is_err(), "nobody needs one");

    // Only now that is a fault.
    let named = || WantedSecrets::These([ObjectRef::new(Kind::Secret, "default", "c")].into());
    wishes.set_wanted(named());
    assert!(heard.asked().await.contains("type%3Dkubernetes.io%2Ftls"));
    let mut told = Vec::new();
    while told.last().is_none_or(|it| it != "put c") {
        told.push(heard.next().await);
    }
    assert!(told.iter().any(|it| it.starts_with("NotPermitted: may not list secrets")), "{told:?}");

    // And when nobody names one any more, nothing is known of any.
    wishes.set_wanted(WantedSecrets::These([].into()));
    while told.last().is_none_or(|it| it != "gone c") {
        told.push(heard.next().await);
    }
    assert!(told.contains(&"well".to_owned()) && told.contains(&"not asked".to_owned()), "{told:?}");
}

#[tokio::test]
async fn a_refusal_of_secrets_is_no_trouble_any_more_once_nobody_names_one() {
    let patient = WatchTimings { first_retry: NEVER, look_for: NEVER, ..pace() };
    let mut heard = begin_at(patient, Kind::Secret, &[], vec![("/secrets?", vec![forbidden()])]).await;
    assert_eq!(heard.next().await, "not asked");
    let wishes = heard.watch.secret_interest();
    wishes.set_wanted(WantedSecrets::Every);
    let mut told = vec![heard.next().await];
    while !told.iter().any(|it| it.starts_with("NotPermitted")) {
        told.push(heard.next().await);
    }
    wishes.set_wanted(WantedSecrets::These([].into()));
    while told.last().is_none_or(|it| it != "well") {
        told.push(heard.next().await);
    }
}

#[tokio::test]
async fn a_kind_that_is_absent_is_asked_for_as_soon_as_it_is_defined() {
    let definition = |version: &str| {
        r#"{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"ipaddresspools.metallb.io","resourceVersion":"VERSION"},"status":{"conditions":[{"type":"Established","status":"True"}]}}"#.replace("VERSION", version)
    };
    let missing = || Answer::Whole(404, status(404, "NotFound", "page not found"));
    let events = ["12", "13", "14"].map(|it| event("MODIFIED", &definition(it)));
    let scripts = vec![
        // The first answer may come before the API server is believed; then it is asked once more at once.
        (
            "/ipaddresspools?",
            vec![missing(), missing(), missing(), Answer::Whole(200, list("13", &[pool("p", "13")]))],
        ),
        (
            "/customresourcedefinitions?",
            vec![Answer::Whole(200, list("11", &[])), Answer::Stream(events.into())],
        ),
    ];
    let patient = WatchTimings { first_retry: NEVER, look_for: NEVER, ..pace() };
    let mut heard = begin_at(patient, Kind::IPAddressPool, &[], scripts).await;
    let mut told = Vec::new();
    while told.last().is_none_or(|it| it != "put p") {
        told.push(heard.next().await);
    }
    let mut asked = Vec::new();
    for _ in 0..6 {
        asked.push(heard.asked().await);
    }
    let of_definition = asked.iter().filter(|it| it.contains("metadata.name%3Dipaddresspools.metallb.io"));
    assert_eq!(of_definition.count(), 2, "{asked:?}");
}

/// An L2Advertisement, as MetalLB has it.
fn advertisement(name: &str, version: &str) -> String {
    format!(
        r#"{{"apiVersion":"metallb.io/v1beta1","kind":"L2Advertisement","metadata":{{"name":"{name}","namespace":"default","uid":"u","resourceVersion":"{version}"}},"spec":{{"ipAddressPools":["p"]}}}}"#
    )
}

#[tokio::test]
async fn announcements_of_metallb_are_reported_once_each_while_they_are_there() {
    let events =
        vec![event("MODIFIED", &advertisement("lan", "14")), event("DELETED", &advertisement("lan", "15"))];
    let scripts = vec![(
        "/namespaces/default/l2advertisements?",
        vec![Answer::Whole(200, list("13", &[advertisement("lan", "13")])), Answer::Stream(events)],
    )];
    let mut heard =
        begin_as(ExpiredHostPolicy::Watched, pace(), Kind::MetallbL2Advertisement, &[], scripts).await;
    let told = "Unsupported: Seaway does not act on it";
    assert!(heard.next().await.starts_with(told));
    assert_eq!(heard.next().await, "synced");
    assert!(heard.next().await.starts_with(told), "the same, for it was changed");
    assert_eq!(heard.next().await, "well", "it was deleted");
    assert!(heard.asked().await.contains("/namespaces/default/"), "as MetalLB reads its own namespace only");
}

#[tokio::test]
async fn who_may_not_see_announcements_of_metallb_reports_nothing_and_asks_seldom() {
    let missing = || Answer::Whole(404, status(404, "NotFound", "page not found"));
    let mut answers: Vec<Answer> = (0..20).map(|_| forbidden()).collect();
    answers.extend([missing(), missing(), Answer::Whole(200, list("13", &[advertisement("lan", "13")]))]);
    let scripts = vec![
        ("/namespaces/default/l2advertisements?", answers),
        ("/namespaces/default/bgppeers?", vec![forbidden()]),
    ];
    let mut heard =
        begin_as(ExpiredHostPolicy::Watched, pace(), Kind::MetallbL2Advertisement, &[], scripts).await;
    assert_eq!(heard.next().await, "synced", "what may not be seen counts as none");
    assert!(heard.next().await.starts_with("Unsupported"), "and no refusal was told before");

    // One refusal does not have the other kind ask at once, and again.
    let patient = WatchTimings { first_retry: NEVER, look_for: NEVER, ..pace() };
    let refused = || (0..9).map(|_| forbidden()).collect();
    let scripts = vec![
        ("/namespaces/default/l2advertisements?", refused()),
        ("/namespaces/default/bgppeers?", refused()),
    ];
    let mut heard = begin_as(ExpiredHostPolicy::Watched, patient, Kind::MetallbBGPPeer, &[], scripts).await;
    assert_eq!(heard.next().await, "synced");
    let mut asked = vec![heard.asked().await];
    asked.extend(std::iter::from_fn(|| heard.asked.try_recv().ok()));
    let most = asked.iter().filter(|it| it.contains("/namespaces/default/bgppeers")).count();
    assert!(most <= 2, "before the API server was believed, and after: {asked:?}");
}

/// Without them nobody is taken for dead, so that no address of a dead host is given again: somebody has to hear of that.
#[tokio::test]
async fn who_may_not_list_leases_of_hosts_says_so_until_it_may() {
    let leases = vec![forbidden(), forbidden(), Answer::Whole(200, list("9", &[]))];
    let scripts = vec![("/leases?", leases)];
    let mut heard = begin_as(ExpiredHostPolicy::Watched, pace(), Kind::LoadBalancerHost, &[], scripts).await;
    let mut told = Vec::new();
    while told.last().is_none_or(|it| it != "well") {
        told.push(heard.next().await);
    }
    let of_leases: Vec<&String> = told.iter().filter(|it| it.contains("Leases of hosts")).collect();
    assert_eq!(of_leases.len(), 1, "once: {told:?}");
    assert!(
        of_leases[0].starts_with("NotPermitted: Leases of hosts cannot be listed in namespace default"),
        "{told:?}"
    );
}

pub(crate) fn host(name: &str, version: &str, address: &str) -> String {
    format!(
        r#"{{"apiVersion":"seaway.dev/v1alpha1","kind":"LoadBalancerHost","metadata":{{"name":"{name}","resourceVersion":"{version}"}},"status":{{"addresses":["{address}"],"applied":"{version}"}}}}"#
    )
}

/// What the host `me` is told of itself: nothing.
pub(crate) fn of_itself() -> (&'static str, Vec<Answer>) {
    ("metadata.name%3Dme", vec![Answer::Whole(200, list("5", &[])), Answer::Stream(Vec::new())])
}

#[tokio::test]
async fn a_host_hears_of_others_when_their_addresses_change_and_of_nothing_else() {
    let events = vec![
        event("ADDED", &host("b", "6", "10.0.0.2")),
        // It matches no more: that is no deletion.
        event("DELETED", &host("b", "7", "10.0.0.2")),
        event("ADDED", &host("c", "8", "10.0.0.3")),
    ];
    let known = [host("b", "3", "10.0.0.1"), host("me", "4", "10.0.0.9")];
    let scripts = vec![
        of_itself(),
        ("status.addressesChanged%3Dtrue", vec![Answer::Stream(events)]),
        ("/loadbalancerhosts?", vec![Answer::Whole(200, list("5", &known))]),
    ];
    let mut heard = begin_as_host(scripts).await;
    for told in ["put b", "synced", "put b", "put c"] {
        assert_eq!(heard.next().await, told);
    }
    let mut asked = Vec::new();
    for _ in 0..4 {
        asked.push(heard.asked().await);
    }
    let watches = asked.iter().filter(|it| it.contains("watch=true"));
    assert_eq!(watches.clone().count(), 2, "of itself and of others: {asked:?}");
    assert!(watches.clone().all(|it| it.contains("fieldSelector=")), "{asked:?}");
}

/// It would serve, though it is to drain, until it hears of itself.
#[tokio::test]
async fn a_host_has_not_heard_all_before_it_has_heard_of_itself() {
    let slow = || Answer::Whole(503, status(503, "ServiceUnavailable", "not yet"));
    let own = Answer::Whole(200, list("5", &[host("me", "4", "10.0.0.9")]));
    let scripts = vec![
        ("metadata.name%3Dme", vec![slow(), slow(), slow(), own, Answer::Stream(Vec::new())]),
        ("/loadbalancerhosts?", vec![Answer::Whole(200, list("5", &[host("b", "3", "10.0.0.1")]))]),
    ];
    let mut heard = begin_as_host(scripts).await;
    let mut told = Vec::new();
    while told.last().is_none_or(|it| it != "synced") {
        told.push(heard.next().await);
    }
    assert!(told.contains(&"put me".to_owned()), "{told:?}");
}

#[tokio::test]
async fn where_definitions_are_older_a_host_hears_of_all_that_others_say() {
    let unknown = r#"field label not supported: status.addressesChanged"#;
    let known = || Answer::Whole(200, list("5", &[host("b", "3", "10.0.0.1")]));
    let scripts = vec![
        of_itself(),
        ("status.addressesChanged%3Dtrue", vec![Answer::Whole(400, status(400, "BadRequest", unknown))]),
        (
            "/loadbalancerhosts?",
            vec![known(), known(), Answer::Stream(vec![event("DELETED", &host("b", "9", "10.0.0.1"))])],
        ),
    ];
    let mut heard = begin_as_host(scripts).await;
    for told in ["put b", "synced", "put b", "gone b"] {
        assert_eq!(heard.next().await, told);
    }
}

fn service(name: &str, version: u64) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{name}","namespace":"default","uid":"u","resourceVersion":"{version}"}},"spec":{{"ports":[{{"port":80}}]}}}}"#
    )
}

/// The API server answers again, from a backup: whoever went on with its watches would hear nothing.
#[tokio::test]
async fn a_store_that_was_set_back_is_noticed_and_all_kinds_are_told_again() {
    let cut = |event: String| Answer::Cut(format!("{event}\n{{"));
    let lower = Answer::Whole(200, list("80", &[service("a", 70)]));
    let older = Answer::Whole(200, list("900", &[service("a", 70)]));
    for (name, small) in [("lower", lower), ("older, and versions were bumped", older)] {
        let scripts = vec![(
            "/services?",
            vec![
                Answer::Whole(200, list("100", &[service("a", 70), service("gone", 90)])),
                cut(event("MODIFIED", &service("a", 500))),
                // It has read no rights yet.
                forbidden(),
                small,
                Answer::Whole(200, list("80", &[service("a", 70), service("b", 60)])),
                Answer::Stream(vec![event("ADDED", &service("c", 81))]),
            ],
        )];
        let mut heard = begin_at(pace(), Kind::Service, &[], scripts).await;
        let mut told = Vec::new();
        while told.last().is_none_or(|it| it != "put c") {
            told.push(heard.next().await);
        }
        let is_trouble = |it: &String| it.starts_with("Unreachable") || it.starts_with("NotPermitted");
        told.retain(|it| it != "well" && !is_trouble(it));
        let wanted = [
            "put a",
            "put gone",
            "synced",
            "put a",
            "set back",
            "put a",
            "put b",
            "missing gone",
            "synced",
            "put c",
        ];
        assert_eq!(told, wanted, "{name}");
    }
}

/// A host that began after the backup was made may live, and serve.
#[tokio::test]
async fn a_host_that_a_restored_backup_lacks_is_missing_and_one_that_a_later_list_lacks_is_gone() {
    let listed = |version: &str, hosts: &[&str]| {
        let hosts: Vec<String> = hosts.iter().map(|it| host(it, "50", "10.0.0.1")).collect();
        Answer::Whole(200, list(version, &hosts))
    };
    let expired = || Answer::Whole(410, status(410, "Expired", "too old resource version"));
    let scripts = vec![(
        "/loadbalancerhosts?",
        vec![
            listed("100", &["a", "b", "c"]),
            Answer::Cut("{".to_owned()),
            listed("80", &["a", "b"]),
            listed("80", &["a", "b"]),
            expired(),
            listed("90", &["a"]),
            listed("90", &["a"]),
            Answer::Stream(Vec::new()),
        ],
    )];
    let mut heard = begin_at(pace(), Kind::LoadBalancerHost, &[], scripts).await;
    let mut told = Vec::new();
    while told.last().is_none_or(|it: &String| !it.starts_with("gone")) {
        told.push(heard.next().await);
    }
    told.retain(|it| !it.starts_with("put") && it != "well");
    assert_eq!(told, ["synced", "set back", "missing c", "synced", "gone b"]);
}

/// Versions were bumped, and nothing that is left is older: what was deleted since is there again.
#[tokio::test]
async fn a_store_that_was_set_back_is_noticed_by_what_was_deleted_since() {
    let both = || Answer::Whole(200, list("900", &[service("a", 70), service("b", 90)]));
    let scripts = vec![(
        "/services?",
        vec![
            Answer::Whole(200, list("100", &[service("a", 70), service("b", 90)])),
            Answer::Cut(format!("{}\n{{", event("DELETED", &service("b", 500)))),
            Answer::Whole(200, list("900", &[service("a", 70)])),
            Answer::Whole(410, status(410, "Expired", "too old resource version")),
            both(),
            both(),
            Answer::Stream(vec![event("ADDED", &service("c", 901))]),
        ],
    )];
    let mut heard = begin_at(pace(), Kind::Service, &[], scripts).await;
    let mut told = Vec::new();
    while told.last().is_none_or(|it| it != "put c") {
        told.push(heard.next().await);
    }
    told.retain(|it| it != "well" && !it.starts_with("Unreachable"));
    let wanted = ["put a", "put b", "synced", "gone b", "set back", "put a", "put b", "synced", "put c"];
    assert_eq!(told, wanted);
}

/// A role of an older version: that no advertisement may be seen does not mean that there is none.
#[tokio::test]
async fn what_restricts_announcing_and_may_not_be_listed_does_not_count_as_none() {
    let list_of_ours = Answer::Whole(200, list("13", &[]));
    let scripts = vec![(
        "/seaway.dev/v1alpha1/bgpadvertisements?",
        vec![forbidden(), forbidden(), forbidden(), list_of_ours, Answer::Stream(Vec::new())],
    )];
    let mut heard = begin_at(pace(), Kind::BGPAdvertisement, &[], scripts).await;
    let mut told = Vec::new();
    while told.last().is_none_or(|it| it != "synced") {
        told.push(heard.next().await);
    }
    assert!(told[0].starts_with("NotPermitted"), "{told:?}");
    assert!(told.iter().any(|it| it.contains("not asked")), "{told:?}");
}
