//! Names of Services in DNS, by real name servers: BIND and Knot.

use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, sync::Arc};

use seaway_drivers::dns::DnsNames;
use seaway_engine::{Context, Driver, Failure, Fence, Gate, work_once};
use seaway_model::{
    Desired, Kind, Name, ObjectRef, Owner, Problem, Reason, Unit,
    acme::{DnsKey, DnsKeyAlgorithm},
    dns::{DnsName, DnsProvider, DnsZone},
};
use seaway_testkit::{
    conformance,
    facts::ip,
    topology::{NameServer, NameServerKind, TSIG_SECRET},
};

const KINDS: [NameServerKind; 2] = [NameServerKind::Bind, NameServerKind::Knot];
const WWW: &str = "www.shop.example";

struct Scene {
    server: NameServer,
    key: PathBuf,
}

impl Scene {
    fn new(kind: NameServerKind, records: &str) -> Option<Scene> {
        let server = NameServer::start(kind, records)?;
        let key = server.key_file("tsig.key", TSIG_SECRET);
        Some(Scene { server, key })
    }

    fn wanted(&self, name: &str, host: Option<&str>, service: &str, addresses: &[&str]) -> Desired {
        Desired::DnsName(Arc::new(self.name(name, host, service, addresses)))
    }

    fn name(&self, name: &str, host: Option<&str>, service: &str, addresses: &[&str]) -> DnsName {
        named(self.server.at(), &self.key, name, host, service, addresses)
    }

    fn www(&self, addresses: &[&str]) -> Desired {
        self.wanted(WWW, None, "shop", addresses)
    }

    fn addresses(&self, name: &str) -> Vec<String> {
        [self.server.all(name, "A"), self.server.all(name, "AAAA")].concat()
    }
}

fn named(
    server: SocketAddr,
    key: &std::path::Path,
    name: &str,
    host: Option<&str>,
    service: &str,
    addresses: &[&str],
) -> DnsName {
    let key =
        DnsKey { name: "seaway".into(), algorithm: DnsKeyAlgorithm::HmacSha256, secret_file: key.to_owned() };
    let by = DnsProvider::Updates { server, key };
    let zone = DnsZone { name: "shop.example".into(), by, ttl: 60, namespaces: Vec::new() };
    let object = ObjectRef::new(Kind::Service, "default", service);
    DnsName {
        name: name.into(),
        zone: Arc::new(zone),
        installation: "prod".into(),
        host: host.map(Name::from),
        owner: Owner::Object { object, uid: "u".into() },
        ttl: 60,
        addresses: addresses.iter().map(|it| it.parse().expect("an address")).collect(),
        keeps: many()
            .iter()
            .map(String::as_str)
            .chain(["192.0.2.1", "192.0.2.2", "2001:db8::1"])
            .map(ip)
            .collect(),
        withdraws: addresses.is_empty(),
        rivals: BTreeSet::new(),
    }
}

/// As many as a name has at most.
fn many() -> Vec<String> {
    (0..16).map(|it| format!("2001:db8:aaaa:bbbb:cccc:dddd:eeee:ff{it:02x}")).collect()
}

fn driver() -> DnsNames {
    DnsNames::default()
}

fn unit(name: &str) -> Unit {
    Unit::DnsName(name.into())
}

/// Works on it once, as the engine does.
async fn work(
    driver: &DnsNames,
    name: &str,
    desired: &Desired,
) -> Result<(Vec<String>, Vec<Problem>), Failure> {
    let unit = unit(name);
    let mut observed = driver.observe(&Context::default(), &unit, desired).await?;
    let steps = driver.steps(desired, &observed);
    for step in &steps {
        driver.apply(&Context::default(), &unit, step, &mut observed).await?;
    }
    let told = driver.conclude(&unit, desired, &observed);
    Ok((steps.iter().map(ToString::to_string).collect(), told.problems.into_iter().map(|it| it.1).collect()))
}

async fn done(driver: &DnsNames, name: &str, desired: &Desired) {
    let (_, problems) = work(driver, name, desired).await.expect("it works");
    assert_eq!(problems, []);
}

async fn told(driver: &DnsNames, name: &str, desired: &Desired) -> String {
    let (steps, problems) = work(driver, name, desired).await.expect("it works");
    assert_eq!(steps, [""; 0], "nothing is changed");
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].reason, Reason::NameNotPublished);
    problems[0].message.clone()
}

fn failed(result: Result<(Vec<String>, Vec<Problem>), Failure>) -> String {
    match result.expect_err("it fails") {
        Failure::Retry { why, problems, .. } => {
            assert_eq!(problems.len(), 1);
            assert_eq!(problems[0].1.message, why);
            why
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn names_converge_and_each_step_may_be_done_twice() {
    for kind in KINDS {
        // A wildcard answers for all names that are not there.
        let Some(scene) = Scene::new(kind, "* A 203.0.113.7\n* TXT \"any\"") else { return };
        for name in [WWW, "*.eu.shop.example"] {
            let many = many();
            let many: Vec<&str> = many.iter().map(String::as_str).collect();
            let keeps = DnsName { withdraws: false, ..scene.name(name, None, "shop", &[]) };
            let wanted = [
                scene.wanted(name, None, "shop", &["192.0.2.1", "2001:db8::1"]),
                scene.wanted(name, None, "shop", &["192.0.2.2", "192.0.2.1"]),
                Desired::DnsName(Arc::new(keeps)),
                scene.wanted(name, None, "blog", &many),
                scene.wanted(name, None, "blog", &[]),
                scene.wanted(name, None, "shop", &["192.0.2.1"]),
            ];
            conformance::passes(&driver(), &unit(name), &wanted).await;
        }
        assert_eq!(scene.addresses(WWW), ["203.0.113.7"], "nothing is left of ours");
        assert_eq!(scene.server.all("_seaway.www.shop.example", "TXT"), ["\"any\""]);
    }
}

#[test]
fn a_process_that_ends_anywhere_leaves_what_the_next_one_goes_on_with() {
    for kind in KINDS {
        let Some(scene) = Scene::new(kind, "") else { return };
        let wanted = [scene.www(&["192.0.2.1"]), scene.www(&["192.0.2.2", "2001:db8::1"]), scene.www(&[])];
        conformance::each_walk(20, wanted.len(), async |turns| {
            let check = async |_: &DnsNames, desired: &Desired| {
                let expected = match desired {
                    Desired::DnsName(it) if !it.addresses.is_empty() => it.addresses.clone(),
                    _ => return,
                };
                let found: BTreeSet<_> =
                    scene.addresses(WWW).iter().map(|it| it.parse().expect("an address")).collect();
                assert_eq!(found, expected);
            };
            conformance::wanders(async || driver(), &unit(WWW), &wanted, &turns, check).await;
            // A process that was started at last does not know of what another one left.
            let driver = driver();
            done(&driver, WWW, &wanted[0]).await;
            done(&driver, WWW, &Desired::Absent).await;
            assert_eq!(scene.addresses(WWW), [""; 0]);
        });
    }
}

#[tokio::test]
async fn names_that_seaway_did_not_write_are_told_and_never_touched() {
    for kind in KINDS {
        let records = "www A 203.0.113.9\nmail MX 10 ns\nalias CNAME ns\ned A 203.0.113.8\n\
                       a-ed TXT \"heritage=external-dns,external-dns/owner=default\"";
        let Some(scene) = Scene::new(kind, records) else { return };
        for (name, expected) in [
            (WWW, "A 203.0.113.9"),
            ("mail.shop.example", "MX records"),
            ("alias.shop.example", "an alias (CNAME) for ns.shop.example"),
            ("ed.shop.example", "(external-dns wrote it, says the TXT record at a-ed.shop.example)"),
            ("shop.example", "NS records"),
        ] {
            let driver = driver();
            let message = told(&driver, name, &scene.wanted(name, None, "shop", &["192.0.2.1"])).await;
            assert!(message.contains("Seaway did not write it") && message.contains(expected), "{message}");
            done(&driver, name, &Desired::Absent).await;
        }
        assert_eq!(scene.addresses(WWW), ["203.0.113.9"]);
        assert_eq!(scene.server.all("_seaway.www.shop.example", "TXT"), [""; 0]);
        // Another installation's, in the same zone.
        let driver = driver();
        let mut theirs = scene.name("a.shop.example", None, "shop", &["192.0.2.9"]);
        theirs.installation = "test".into();
        done(&driver, "a.shop.example", &Desired::DnsName(Arc::new(theirs))).await;
        let message =
            told(&driver, "a.shop.example", &scene.wanted("a.shop.example", None, "shop", &["192.0.2.1"]))
                .await;
        assert!(message.contains("Service default/shop of the installation test"), "{message}");
        assert_eq!(scene.addresses("a.shop.example"), ["192.0.2.9"]);
    }
}

#[tokio::test]
async fn what_somebody_changes_is_told_and_what_somebody_removes_comes_back() {
    for kind in KINDS {
        let Some(scene) = Scene::new(kind, "* A 203.0.113.7") else { return };
        let driver = driver();
        let two = scene.www(&["192.0.2.1", "192.0.2.2"]);
        done(&driver, WWW, &two).await;
        scene.server.update("update delete www.shop.example A 192.0.2.2");
        done(&driver, WWW, &two).await;
        assert_eq!(scene.addresses(WWW), ["192.0.2.1", "192.0.2.2"]);
        // Without any, the wildcard answers.
        scene.server.update("update delete www.shop.example A");
        assert_eq!(
            scene.addresses(WWW).len(),
            0,
            "its marker is below it, so that the wildcard does not answer"
        );
        done(&driver, WWW, &two).await;
        assert_eq!(scene.addresses(WWW), ["192.0.2.1", "192.0.2.2"]);

        scene.server.update("update add www.shop.example 60 A 203.0.113.9");
        let message = told(&driver, WWW, &two).await;
        assert!(message.contains("203.0.113.9 was added to www.shop.example"), "{message}");
        // A host that drains leaves all the same.
        let (steps, problems) = work(&driver, WWW, &scene.www(&["192.0.2.1"])).await.expect("it works");
        assert_eq!((steps.len(), problems.len()), (1, 1), "{steps:?} {problems:?}");
        assert_eq!(scene.addresses(WWW), ["192.0.2.1", "203.0.113.9"]);
        done(&driver, WWW, &Desired::Absent).await;
        assert_eq!(scene.addresses(WWW), ["203.0.113.9"], "what was added by hand stays");
        let message = told(&driver, WWW, &two).await;
        assert!(message.contains("Seaway did not write it: A 203.0.113.9"), "{message}");
    }
}

#[tokio::test]
async fn two_hosts_write_into_one_name_and_each_takes_out_its_own() {
    for kind in KINDS {
        let Some(scene) = Scene::new(kind, "") else { return };
        let (one, two) = (driver(), driver());
        let a = scene.wanted(WWW, Some("edge-1"), "shop", &["192.0.2.1"]);
        let b = scene.wanted(WWW, Some("edge-2"), "shop", &["192.0.2.2"]);
        // Both look before either writes: one of them has to look again.
        let unit = unit(WWW);
        let mut seen = two.observe(&Context::default(), &unit, &b).await.expect("it works");
        done(&one, WWW, &a).await;
        let late = two.steps(&b, &seen);
        let lost = two.apply(&Context::default(), &unit, &late[0], &mut seen).await;
        assert!(matches!(lost, Err(Failure::Retry { .. })), "{lost:?}");
        done(&two, WWW, &b).await;
        done(&one, WWW, &a).await;
        assert_eq!(scene.addresses(WWW), ["192.0.2.1", "192.0.2.2"]);
        done(&one, WWW, &scene.wanted(WWW, Some("edge-1"), "shop", &[])).await;
        assert_eq!(scene.addresses(WWW), ["192.0.2.2"]);
        done(&two, WWW, &Desired::Absent).await;
        assert_eq!(scene.addresses(WWW), [""; 0]);
    }
}

#[tokio::test]
async fn a_key_that_is_wrong_and_a_server_that_is_away_are_told_in_one_line_and_nothing_is_lost() {
    for kind in KINDS {
        let Some(mut scene) = Scene::new(kind, "") else { return };
        let driver = driver();
        let good = scene.www(&["192.0.2.1"]);
        done(&driver, WWW, &good).await;
        let other = scene.server.key_file("other.key", "b3RoZXI=");
        let wrong = named(scene.server.at(), &other, WWW, None, "shop", &["192.0.2.2"]);
        let why = failed(work(&driver, WWW, &Desired::DnsName(Arc::new(wrong))).await);
        assert!(
            why.starts_with("www.shop.example is not up to date in DNS: ") && why.ends_with("(BADSIG)"),
            "{why}"
        );
        let missing =
            named(scene.server.at(), &scene.key.with_extension("no"), WWW, None, "shop", &["192.0.2.2"]);
        let why = failed(work(&driver, WWW, &Desired::DnsName(Arc::new(missing))).await);
        assert!(
            why.contains("dns.zones (shop.example): key.secretFile: ") && why.contains("No such file"),
            "{why}"
        );
        assert_eq!(scene.addresses(WWW), ["192.0.2.1"]);
        scene.server.end();
        let why = failed(work(&driver, WWW, &scene.www(&["192.0.2.2"])).await);
        assert!(why.contains("cannot be reached"), "{why}");
        scene.server.resume();
        assert_eq!(scene.addresses(WWW), ["192.0.2.1"], "it has what it had");
        done(&driver, WWW, &scene.www(&["192.0.2.2"])).await;
        assert_eq!(scene.addresses(WWW), ["192.0.2.2"]);
        // Who does not lead writes nothing.
        let follows = Gate::fenced(Fence::new(|| false));
        let waits = work_once(&DnsNames::default(), &unit(WWW), &good, &follows).await.map(drop);
        assert!(matches!(waits, Err(Failure::Wait { .. })), "{waits:?}");
        assert_eq!(scene.addresses(WWW), ["192.0.2.2"]);
    }
}
