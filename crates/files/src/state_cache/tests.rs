use std::{fs, os::unix::fs::PermissionsExt, sync::Arc};

use seaway_model::{Address, Change, Kind, fact::HostReport, fact::ResolvedName};
use seaway_testkit::{
    facts::{HOST, ip, put, shop},
    golden,
};
use tempfile::TempDir;

use super::*;
use crate::read_folder;

/// Of every kind that a cluster tells.
const ALL: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: shop, labels: {a: b}, annotations: {seaway.dev/balance: source-hash}}
spec:
  type: LoadBalancer
  selector: {app: shop}
  ports: [{name: http, port: 80, targetPort: web}]
  sessionAffinity: ClientIP
  loadBalancerSourceRanges: [10.0.0.0/8]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-1, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.1.0.1], nodeName: a, conditions: {ready: true}, hints: {forZones: [{name: z}]}}]
---
apiVersion: v1
kind: Node
metadata: {name: a, labels: {zone: z}}
status: {addresses: [{type: InternalIP, address: 10.0.0.1}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: other, labels: {team: blue}}
---
apiVersion: seaway.dev/v1alpha1
kind: AddressPool
metadata: {name: public}
spec: {addresses: [203.0.113.0/28, "2001:db8::1-2001:db8::9"]}
---
apiVersion: v1
kind: Secret
metadata: {name: cert}
type: kubernetes.io/tls
stringData: {tls.crt: "a certificate", tls.key: "a key"}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  hostnames: ["*.shop.example"]
  rules:
  - matches: [{path: {type: PathPrefix, value: /a}, headers: [{name: x, value: why}]}]
    filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: b, value: c}]}}]
    backendRefs: [{name: shop, port: 80, weight: 3}]
"#;

fn facts() -> Vec<Fact> {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("all.yaml"), ALL).expect("is written");
    let (_, changes, problems) = read_folder(folder.path()).expect("is read");
    assert_eq!(problems, []);
    let read =
        changes.into_iter().filter_map(|it| if let Change::Put(fact) = it { Some(fact) } else { None });
    let address = Address {
        ip: ip("203.0.113.1"),
        pool: "public".into(),
        sharing: Some("x".into()),
        owners: Vec::new(),
        plan_version: 1,
        ends: None,
        conflicts: Vec::new(),
        state: seaway_model::address::AddressState::Held,
        version: 4711,
    };
    let host = HostReport { host: "b".into(), holds: [ip("203.0.113.2")].into(), ..HostReport::default() };
    let name = ResolvedName { name: "db.example".into(), addresses: vec![ip("192.0.2.9")] };
    let others = [Fact::Address(Arc::new(address)), Fact::Host(Arc::new(host)), Fact::Name(Arc::new(name))];
    read.chain(others).collect()
}

fn place() -> (TempDir, StateCache) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("deep/a.snapshot");
    (folder, StateCache::at(path, origin("")))
}

fn origin(authority: &str) -> Origin {
    Origin { host: HOST.into(), server: "https://10.0.0.1".into(), authority: authority.into() }
}

fn refusal(snapshot: &StateCache) -> String {
    snapshot.read().expect_err("is refused").to_string()
}

#[test]
fn every_kind_of_facts_is_read_as_it_was_written_and_by_nobody_else() {
    let (_folder, snapshot) = place();
    assert!(snapshot.read().expect("nothing is no mistake").is_none());
    let facts = facts();
    let kinds: Vec<_> = facts.iter().map(std::mem::discriminant).collect();
    assert!(kinds.iter().collect::<std::collections::HashSet<_>>().len() == 10, "{facts:?}");
    snapshot.write(false, facts.iter()).expect("is written");
    let recalled = snapshot.read().expect("is read").expect("is there");
    assert_eq!(recalled.facts, facts);
    let version = |facts: &[Fact]| {
        facts.iter().find_map(|it| if let Fact::Address(it) = it { Some(it.version) } else { None })
    };
    assert_eq!(version(&recalled.facts), Some(4711), "hosts say by it how far they are");
    let mode = fs::metadata(snapshot.path()).expect("is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let folder = snapshot.path().parent().expect("has one");
    assert_eq!(fs::metadata(folder).expect("is there").permissions().mode() & 0o777, 0o700);
}

/// A machine that left a cluster for another one, without a restart, has the same folder in memory; and in pods, API servers have the
/// same URL.
#[test]
fn of_two_clusters_with_the_same_url_each_reads_its_own_and_both_one_of_before() {
    let (_folder, before) = place();
    let of = |authority: &str| StateCache::at(before.path().to_owned(), origin(authority));
    before.write(false, facts().iter()).expect("is written");
    assert!(of("a").read().is_ok() && of("b").read().is_ok());
    of("a").write(false, facts().iter()).expect("is written");
    assert!(of("a").read().is_ok() && before.read().is_ok());
    assert!(refusal(&of("b")).contains("another certificate authority"));
}

#[test]
fn what_is_not_ours_or_not_whole_is_refused_with_the_reason() {
    let (_folder, snapshot) = place();
    snapshot.write(false, facts().iter()).expect("is written");
    let good = fs::read_to_string(snapshot.path()).expect("is text");
    let with = |text: &str| {
        fs::write(snapshot.path(), text).expect("is written");
        refusal(&snapshot)
    };
    let cut = |lines: usize| good.lines().take(lines).map(|it| format!("{it}\n")).collect::<String>();
    assert_eq!(with(&cut(5)), "the end of the file is missing");
    let without_one: Vec<&str> =
        good.lines().enumerate().filter(|(at, _)| *at != 3).map(|(_, it)| it).collect();
    assert_eq!(with(&without_one.join("\n")), "the end of the file is missing");
    assert_eq!(
        with(&good[..good.len() / 2]),
        format!("line {} is not in the form that Seaway writes", cut_line(&good))
    );
    assert_eq!(with("what is this?"), "line 1 is not in the form that Seaway writes");
    assert_eq!(with("\u{0}"), "line 1 is not in the form that Seaway writes");
    assert_eq!(with(""), "the end of the file is missing");
    let newer = good.replacen("\"seaway\":1", "\"seaway\":7", 1);
    assert_eq!(
        with(&newer),
        "the file was written by another version of seaway (format 7; this version reads format 1)"
    );
    let foreign = good.replacen(HOST, "edge-2", 1);
    assert_eq!(
        with(&foreign),
        "the file is a snapshot of host edge-2 with the API server https://10.0.0.1, or of another cluster with the same URL and \
         another certificate authority"
    );
    fs::write(snapshot.path(), &good).expect("is written");
    fs::set_permissions(snapshot.path(), fs::Permissions::from_mode(0o620)).expect("is ours");
    assert_eq!(
        refusal(&snapshot),
        "the owner of the file is neither root nor the user of this process, or its mode lets others write to it"
    );
    fs::set_permissions(snapshot.path(), fs::Permissions::from_mode(0o600)).expect("is ours");
    assert!(snapshot.read().is_ok(), "what was refused is good by itself");
}

/// In which line the first half ends.
fn cut_line(text: &str) -> usize {
    text[..text.len() / 2].lines().count()
}

#[test]
fn a_keeper_writes_what_is_whole_and_only_what_changed() {
    let (_folder, snapshot) = place();
    let keep = |recalled: Option<&CachedState>, changes: &[Change]| {
        let keeper =
            StateCacheWriter::start(snapshot.clone(), recalled, [Kind::Service, Kind::Node]).expect("starts");
        changes.iter().for_each(|it| keeper.record(it));
        drop(keeper);
        snapshot.read().expect("is read").map(|it| it.facts.len())
    };
    let told = || [put(&shop()), Change::Synced(Kind::Service)];
    assert_eq!(keep(None, &told()), None, "a part is never written");
    let whole: Vec<Change> = told().into_iter().chain([Change::Synced(Kind::Node)]).collect();
    assert_eq!(keep(None, &whole), Some(1));

    let kept = snapshot.read().expect("is read").expect("is there");
    let written = || fs::metadata(snapshot.path()).expect("is there").ino();
    let before = written();
    assert_eq!(keep(Some(&kept), &whole), Some(1));
    assert_eq!(written(), before, "the same again is not written");
    let gone = Change::Gone(kept.facts[0].reference());
    assert_eq!(keep(Some(&kept), &[gone]), Some(0));
}

#[test]
fn whether_a_host_drains_is_kept_beside_the_facts() {
    let (_folder, snapshot) = place();
    let keep = |recalled: Option<&CachedState>, changes: &[Change]| {
        let keeper = StateCacheWriter::start(snapshot.clone(), recalled, [Kind::Service]).expect("starts");
        changes.iter().for_each(|it| keeper.record(it));
        drop(keeper);
        snapshot.read().expect("is read").expect("is there")
    };
    let first = keep(None, &[put(&shop()), Change::Synced(Kind::Service)]);
    assert!(!first.drains);
    let draining = keep(Some(&first), &[Change::HostDrains(true)]);
    assert!(draining.drains);
    let later = keep(Some(&draining), &[put(&seaway_testkit::facts::service("later", &[]))]);
    assert_eq!((later.drains, later.facts.len()), (true, 2), "nobody took it back");
    assert!(!keep(Some(&later), &[Change::HostDrains(false)]).drains);
}

/// What a host wrote down before it was upgraded. A variant that is missing here does not compile.
#[test]
fn the_form_of_facts_is_the_golden_one() {
    const GOLDEN: &str = include_str!("../../golden/facts.jsonl");
    golden::round_trips(GOLDEN, |line| {
        serde_json::from_str::<Fact>(line).and_then(|it| serde_json::to_string(&it))
    });
    let key = |fact: Fact| match fact {
        Fact::Service(_) => 0,
        Fact::Endpoints(_) => 1,
        Fact::Node(_) => 2,
        Fact::Namespace(_) => 3,
        Fact::AddressPool(_) => 4,
        Fact::HttpRoute(_) => 5,
        Fact::Secret(_) => 6,
        Fact::Address(_) => 7,
        Fact::NameOwner(_) => 8,
        Fact::Name(_) => 9,
        Fact::Host(_) => 10,
        Fact::Challenge(_) => 11,
        Fact::Announcing(_) => 12,
    };
    let keys: std::collections::BTreeSet<u32> =
        GOLDEN.lines().map(|line| key(serde_json::from_str(line).expect("is read"))).collect();
    assert_eq!(keys, (0..=12).collect(), "every variant is in the golden file");
}

/// As a version before names in DNS wrote it: that it knows nothing of them takes none away.
#[test]
fn an_old_snapshot_opens_with_the_names_in_dns_of_its_services() {
    let (_folder, snapshot) = place();
    snapshot.write(false, facts().iter()).expect("is written");
    let service = "{\"Service\":{\"meta\":{\"namespace\":\"default\",\"name\":\"old\",\"uid\":\"u\",\"created\":1764000000000,\
                   \"labels\":{},\"annotations\":{\"external-dns.alpha.kubernetes.io/hostname\":\"www.shop.example\"}},\
                   \"kind\":\"LoadBalancer\",\"headless\":false,\"selector\":{},\"ports\":[],\
                   \"families\":{\"policy\":\"Single\",\"first\":null,\"second\":null},\"affinity\":null,\"local_only\":false,\
                   \"health_check_node_port\":null,\"load_balancer_ip\":null,\"class\":null,\"source_ranges\":[],\
                   \"publish_not_ready\":false,\"leaving\":false,\"published\":[]}}";
    let old = format!(
        "{{\"seaway\":1,\"host\":\"{HOST}\",\"server\":\"https://10.0.0.1\",\"written\":4711}}\n{service}\n{{\"facts\":1}}\n"
    );
    fs::write(snapshot.path(), old).expect("is written");
    let recalled = snapshot.read().expect("is read").expect("is there");
    let [Fact::Service(old)] = &recalled.facts[..] else { panic!("{:?}", recalled.facts) };
    let name = old.meta.annotations.get("external-dns.alpha.kubernetes.io/hostname");
    assert_eq!(name.map(|it| it.as_str()), Some("www.shop.example"));
}

#[test]
fn the_head_and_the_end_of_a_snapshot_are_the_golden_ones() {
    let (_folder, snapshot) = place();
    for (drains, word) in [(false, ""), (true, ",\"drains\":true")] {
        let mut written = Vec::new();
        let facts = std::iter::empty::<&Fact>();
        snapshot
            .write_to(&mut written, Time(4711), drains, facts.collect::<Vec<_>>().into_iter())
            .expect("there is room");
        let golden = format!(
            "{{\"seaway\":1,\"host\":\"{HOST}\",\"server\":\"https://10.0.0.1\",\"written\":4711{word}}}\n{{\"facts\":0}}\n"
        );
        assert_eq!(String::from_utf8(written).expect("is text"), golden);
    }
}

#[test]
fn a_writer_that_is_held_writes_nothing_and_all_that_was_told_once_it_is_released() {
    let (_folder, snapshot) = place();
    let keeper = StateCacheWriter::start(snapshot.clone(), None, [Kind::Service]).expect("a thread");
    keeper.pause();
    facts().into_iter().map(Change::Put).for_each(|it| keeper.record(&it));
    keeper.record(&Change::Synced(Kind::Service));
    drop(keeper);
    assert!(!snapshot.path().exists(), "another process writes it");
    let keeper = StateCacheWriter::start(snapshot.clone(), None, [Kind::Service]).expect("a thread");
    keeper.pause();
    facts().into_iter().map(Change::Put).for_each(|it| keeper.record(&it));
    keeper.record(&Change::Synced(Kind::Service));
    keeper.resume();
    drop(keeper);
    let written = snapshot.read().expect("is read").expect("is there");
    assert!(!written.facts.is_empty() && written.facts.iter().all(|it| matches!(it, Fact::Service(_))));
}
