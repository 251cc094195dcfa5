//! The drivers against a real API server.

use std::sync::Arc;

use seaway_cluster::{AddressDriver, Leadership, StatusDriver};
use seaway_engine::{Context, Driver, Fence, ProblemLog};
use seaway_model::{
    Address, AddressState, Desired, Fact, Kind, L4, ListenerId, ObjectRef, Owner, Problem, Reason, Status,
    Unit, fact::FactRef, outcome::ServingSocket,
};
use seaway_testkit::conformance::{Turn, each_walk, passes, wanders};

use crate::scene::{Heard, Scene, eventually};

/// Of several owners the second lacks a port.
fn address(ip: &str, owners: &[&str]) -> Address {
    let lacking = owners.get(1).map(|it| (Owner::Config((*it).into()), ListenerId { l4: L4::Tcp, port: 80 }));
    Address {
        ip: ip.parse().expect("an address"),
        pool: "public".into(),
        sharing: Some("web".into()),
        owners: owners.iter().map(|it| Owner::Config((*it).into())).collect(),
        plan_version: 1,
        ends: None,
        conflicts: lacking.into_iter().collect(),
        state: AddressState::Held,
        // Planned with all that is written.
        version: u64::MAX,
    }
}

fn desired(ip: &str, owners: &[&str]) -> Desired {
    Desired::Address(Arc::new(address(ip, owners)))
}

#[tokio::test]
async fn addresses_pass_the_suite_of_all_drivers() {
    let Some(scene) = Scene::up("suite") else { return };
    let cluster = scene.connect().await;
    let mut heard = Heard::of(&cluster);
    heard.until_synced().await;
    let driver = AddressDriver::new(cluster);
    for ip in ["192.0.2.11", "2001:db8::11"] {
        let unit = Unit::Address(ip.parse().expect("an address"));
        let wanted = [desired(ip, &["a"]), desired(ip, &["a", "b"]), desired(ip, &[])];
        passes(&driver, &unit, &wanted).await;
    }
}

/// Whatever is cut off and started again, at each rest the API server has the Address that is desired.
#[test]
fn addresses_survive_cuts_and_restarts_at_any_step() {
    let Some(scene) = Scene::up("walks") else { return };
    let ip = "192.0.2.13";
    let unit = Unit::Address(ip.parse().expect("an address"));
    let wanted = [&["a"][..], &["a", "b"], &["b"], &[]].map(|owners| desired(ip, owners));
    each_walk(8, wanted.len(), async |turns| {
        let start = async || {
            let cluster = scene.connect().await;
            Heard::of(&cluster).until_synced().await;
            AddressDriver::new(cluster)
        };
        let stored = async |_: &AddressDriver, desired: &Desired| {
            let owners = "jsonpath={.spec.owners[*].config}";
            let told = scene.kubectl(&["get", "address", "192-0-2-13", "--ignore-not-found", "-o", owners]);
            let held = match desired {
                Desired::Address(it) => it.owners.iter().map(|it| it.object().name.to_string()).collect(),
                _ => Vec::new(),
            };
            assert_eq!(told, held.join(" "));
        };
        // One that somebody owns is given back first, and never deleted at once.
        let given_back = Turn { desired: wanted.len() - 1, cut: None, restarts: false };
        let before = |turn: Turn| match turn.desired == wanted.len() {
            true => vec![given_back.clone(), turn],
            false => vec![turn],
        };
        let mut turns: Vec<Turn> = turns.into_iter().flat_map(before).collect();
        turns.push(given_back.clone());
        wanders(start, &unit, &wanted, &turns, stored).await;
    });
}

#[tokio::test]
async fn of_two_who_claim_an_address_at_once_one_has_it() {
    let Some(scene) = Scene::up("race") else { return };
    let (one, two) = (scene.connect().await, scene.connect().await);
    let (first, second) = (AddressDriver::new(one), AddressDriver::new(two.clone()));
    let unit = Unit::Address("192.0.2.12".parse().expect("an address"));
    let (ours, theirs) = (desired("192.0.2.12", &["a"]), desired("192.0.2.12", &["b"]));
    let claim = async |driver: &AddressDriver, wanted: &Desired| {
        let mut observed = driver.observe(&Context::default(), &unit, wanted).await.expect("is observed");
        let steps = driver.steps(wanted, &observed);
        assert_eq!(steps.len(), 1);
        driver.apply(&Context::default(), &unit, &steps[0], &mut observed).await
    };
    claim(&first, &ours).await.expect("is first");
    // The same again is no conflict: an answer may have been lost.
    let again = AddressDriver::new(scene.connect().await);
    claim(&again, &ours).await.expect("is there as it should be");
    claim(&second, &theirs).await.expect_err("is second");
    let there = scene.kubectl(&["get", "address", "192-0-2-12", "-o", "jsonpath={.spec.owners[*].config}"]);
    assert_eq!(there, "a");
    // A change of what somebody else has changed since is refused, too.
    let mut stale = second.observe(&Context::default(), &unit, &theirs).await.expect("is observed");
    claim(&first, &desired("192.0.2.12", &["a", "c"])).await.expect("goes on");
    let steps = second.steps(&theirs, &stale);
    second
        .apply(&Context::default(), &unit, &steps[0], &mut stale)
        .await
        .expect_err("it knows an older version");
    let released = Address { state: AddressState::Releasing, ..address("192.0.2.12", &[]) };
    for last in [Desired::Address(Arc::new(released)), Desired::Absent] {
        claim(&first, &last).await.expect("is released, and removed");
    }
}

#[tokio::test]
async fn who_does_not_lead_writes_nothing() {
    let Some(scene) = Scene::up("follower") else { return };
    let cluster = scene.connect().await;
    let campaign = seaway_cluster::LeaderElection::start(
        &cluster,
        "nobody",
        "test",
        seaway_cluster::LeaseTimings::LEADER,
    );
    let leading = campaign.leadership();
    campaign.resign().await;
    let driver = AddressDriver::new(cluster);
    let follows = Context::fenced(Fence::new(move || leading.is_held()));
    let unit = Unit::Address("192.0.2.39".parse().expect("an address"));
    let wanted = desired("192.0.2.39", &["a"]);
    let mut observed = driver.observe(&Context::default(), &unit, &wanted).await.expect("is observed");
    let steps = driver.steps(&wanted, &observed);
    driver.apply(&follows, &unit, &steps[0], &mut observed).await.expect_err("it does not lead");
    assert!(scene.try_kubectl(&["get", "address", "192-0-2-39"], "").is_err());
    scene.kubectl(&["delete", "lease", "nobody", "-n", "default", "--ignore-not-found"]);
}

#[tokio::test]
async fn an_address_reads_back_through_the_watch_as_it_was_written() {
    let Some(scene) = Scene::up("readback") else { return };
    let cluster = scene.connect().await;
    let mut heard = Heard::of(&cluster);
    let driver = AddressDriver::new(cluster);
    let owner = Owner::Object { object: ObjectRef::new(Kind::Service, "default", "x"), uid: "u".into() };
    let wanted = Address {
        conflicts: vec![(owner.clone(), ListenerId { l4: L4::Udp, port: 53 })],
        owners: vec![owner],
        state: AddressState::Releasing,
        ..address("2001:db8::14", &[])
    };
    let unit = Unit::Address(wanted.ip);
    let desired = Desired::Address(Arc::new(wanted.clone()));
    let mut observed = driver.observe(&Context::default(), &unit, &desired).await.expect("is observed");
    for step in driver.steps(&desired, &observed) {
        driver.apply(&Context::default(), &unit, &step, &mut observed).await.expect("is written");
    }
    let reference = FactRef::Address(wanted.ip);
    heard.until("it is told", |it| it.facts.contains_key(&reference)).await;
    assert_eq!(heard.facts[&reference], Fact::Address(Arc::new(wanted)));
    // Somebody deletes it by hand: that is told, and the driver would write it again.
    scene.kubectl(&["delete", "address", "2001-0db8-0000-0000-0000-0000-0000-0014"]);
    heard.until("it is gone", |it| !it.facts.contains_key(&reference)).await;
    let observed = driver.observe(&Context::default(), &unit, &desired).await.expect("is observed");
    assert_eq!(driver.steps(&desired, &observed).len(), 1);
}

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: shop}\nspec:\n  type: LoadBalancer\n  \
                       loadBalancerClass: seaway.dev/native\n  ports: [{port: 80}]\n";

struct Told {
    heard: Heard,
    driver: StatusDriver,
    owner: Owner,
    scene: Scene,
}

impl Told {
    async fn up(name: &str) -> Option<Told> {
        let scene = Scene::up(name)?;
        scene.apply_here(SERVICE);
        let cluster = scene.connect().await;
        let mut heard = Heard::of(&cluster);
        let namespace = scene.namespace.clone();
        heard.until("the Service is told", |it| it.service(&namespace, "shop").is_some()).await;
        let uid = heard.service(&namespace, "shop").expect("is told").meta.uid.clone();
        let owner = Owner::Object { object: ObjectRef::new(Kind::Service, namespace, "shop"), uid };
        let driver = StatusDriver::new(cluster, Leadership::always(), ProblemLog::default());
        Some(Told { heard, driver, owner, scene })
    }

    fn status(&self, ip: &str, served: bool, problems: &[&str]) -> Desired {
        let ip = ip.parse().expect("an address");
        let problems = problems.iter().map(|it| Problem::new(self.owner.object(), Reason::NoEndpoints, *it));
        Desired::Status(Arc::new(Status {
            owner: self.owner.clone(),
            addresses: vec![ip],
            serving: if served {
                vec![ServingSocket { ip, protocol: L4::Tcp, port: 80 }]
            } else {
                Vec::new()
            },
            members: 1,
            ready: served,
            problems: problems.collect(),
            pool: None,
            announced: None,
            shown: seaway_model::outcome::PublishedAs::default(),
            waits: None,
            takes_over: true,
            unreported: false,
            replaced: None,
            ports: Vec::new(),
            left: false,
        }))
    }

    /// As the engine does; how many steps it took, and who is told what.
    async fn work(&self, desired: &Desired) -> (usize, Vec<Problem>) {
        let unit = Unit::Status(self.owner.clone());
        let mut observed =
            self.driver.observe(&Context::default(), &unit, desired).await.expect("is observed");
        let steps = self.driver.steps(desired, &observed);
        for step in &steps {
            self.driver.apply(&Context::default(), &unit, step, &mut observed).await.expect("is written");
        }
        let told = self.driver.conclude(&unit, desired, &observed);
        (steps.len(), told.problems.into_iter().map(|(_, problem)| problem).collect())
    }

    /// Events come in their turn.
    async fn hears(&self, wanted: &[&str]) {
        let told = async || (self.events() == wanted).then_some(());
        eventually(&format!("the events are {wanted:?}"), told).await;
    }

    fn events(&self) -> Vec<String> {
        let query = "jsonpath={range .items[*]}{.reason}{\"\\n\"}{end}";
        let events = self.scene.here(&["get", "events.v1.events.k8s.io", "-o", query]);
        let mut events: Vec<String> = events.lines().map(str::to_owned).collect();
        events.sort();
        events
    }

    fn field(&self, path: &str) -> String {
        self.scene.here(&["get", "service", "shop", "-o", &format!("jsonpath={{{path}}}")])
    }
}

#[tokio::test]
async fn statuses_pass_the_suite_of_all_drivers() {
    let Some(told) = Told::up("status-suite").await else { return };
    let unit = Unit::Status(told.owner.clone());
    let wanted = [
        told.status("192.0.2.21", false, &["waits"]),
        told.status("192.0.2.21", true, &[]),
        told.status("192.0.2.22", true, &[]),
    ];
    passes(&told.driver, &unit, &wanted).await;
    assert_eq!(told.field(".status"), "{\"loadBalancer\":{}}");
}

/// Whatever is cut off and started again, at each rest the Service says what is desired, and what others say of it stays.
#[test]
fn statuses_survive_cuts_and_restarts_at_any_step() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let Some(told) = runtime.block_on(Told::up("status-walks")) else { return };
    let theirs = r#"{"status":{"conditions":[{"type":"example.com/Checked","status":"True","reason":"Seen","message":"",
        "lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#;
    let as_another = ["--subresource=status", "--type=merge", "--field-manager=checker", "-p", theirs];
    told.scene.here(&[&["patch", "service", "shop"], &as_another[..]].concat());
    let unit = Unit::Status(told.owner.clone());
    let served = ["192.0.2.41", "192.0.2.42", "2001:db8::41"];
    let mut wanted = served.map(|ip| told.status(ip, true, &[])).to_vec();
    wanted.push(told.status("192.0.2.41", false, &["nobody is there"]));
    wanted.push(told.status("192.0.2.42", false, &[]));
    let start = async || {
        let cluster = told.scene.connect().await;
        let mut heard = Heard::of(&cluster);
        heard.until("the Service is told", |it| it.service(&told.scene.namespace, "shop").is_some()).await;
        StatusDriver::new(cluster, Leadership::always(), ProblemLog::default())
    };
    let says = async |_: &StatusDriver, desired: &Desired| {
        let ingress = told.field(".status.loadBalancer.ingress[*].ip");
        let ready = told.field(".status.conditions[?(@.type==\"seaway.dev/Ready\")].status");
        match desired {
            Desired::Status(it) if it.ready => {
                assert_eq!((ingress, &*ready), (it.addresses[0].to_string(), "True"));
            }
            // Nothing is published before it is served, and what was published stays while nobody serves it.
            Desired::Status(_) => {
                assert!(ingress.is_empty() || served.contains(&&*ingress), "{ingress}");
                assert_eq!(ready, "False");
            }
            _ => assert_eq!((&*ingress, &*ready), ("", "")),
        }
        assert_eq!(told.field(".status.conditions[?(@.type==\"example.com/Checked\")].reason"), "Seen");
    };
    each_walk(8, wanted.len(), async |turns| wanders(start, &unit, &wanted, &turns, says).await);
}

#[tokio::test]
async fn a_service_tells_its_address_and_each_change_is_one_event() {
    let Some(mut told) = Told::up("events").await else { return };
    told.work(&told.status("192.0.2.23", false, &["nobody is there"])).await;
    assert_eq!(told.field(".status.loadBalancer.ingress"), "", "nobody serves it yet");
    told.work(&told.status("192.0.2.23", true, &[])).await;
    assert_eq!(told.field(".status.loadBalancer.ingress"), r#"[{"ip":"192.0.2.23","ipMode":"Proxy"}]"#);
    assert_eq!(told.work(&told.status("192.0.2.23", true, &[])).await.0, 0);
    told.hears(&["AddressPublished", "NoEndpoints"]).await;
    // All hosts vanish, and somebody else plans after a restart.
    let (cluster, namespace) = (told.scene.connect().await, told.scene.namespace.clone());
    told.heard = Heard::of(&cluster);
    told.heard.until("the Service is told", |it| it.service(&namespace, "shop").is_some()).await;
    told.driver = StatusDriver::new(cluster, Leadership::always(), ProblemLog::default());
    assert_eq!(told.work(&told.status("192.0.2.23", true, &[])).await.0, 0, "a restart writes nothing");
    told.work(&told.status("192.0.2.23", false, &[])).await;
    assert_eq!(told.field(".status.loadBalancer.ingress[0].ip"), "192.0.2.23");
    let ready = ".status.conditions[?(@.type==\"seaway.dev/Ready\")]";
    assert_eq!(told.field(&format!("{ready}.status")), "False");
    assert_eq!(told.field(&format!("{ready}.reason")), "NotServed");
    assert_eq!(told.events(), ["AddressPublished", "NoEndpoints"], "nothing is told twice");
    told.work(&Desired::Absent).await;
    assert_eq!(told.field(".status"), "{\"loadBalancer\":{}}");
    told.hears(&["AddressPublished", "AddressWithdrawn", "NoEndpoints"]).await;
}

#[tokio::test]
async fn what_another_controller_left_is_taken_over_and_what_it_writes_later_is_left_to_it() {
    let Some(mut told) = Told::up("rival").await else { return };
    let (cluster, namespace) = (told.scene.cluster.clone(), told.scene.namespace.clone());
    let patch = |says: &str| {
        let status = format!(r#"{{"status":{{"loadBalancer":{says}}}}}"#);
        cluster.kubectl(&[
            "-n",
            &namespace,
            "patch",
            "service",
            "shop",
            "--subresource=status",
            "--type=merge",
            "--field-manager=other",
            "-p",
            &status,
        ]);
    };
    patch(r#"{"ingress":[{"ip":"192.0.2.24"}]}"#);
    let connected = told.scene.connect().await;
    told.heard = Heard::of(&connected);
    told.heard.until("the Service is told", |it| it.service(&namespace, "shop").is_some()).await;
    told.driver = StatusDriver::new(connected, Leadership::always(), ProblemLog::default());
    told.work(&told.status("192.0.2.24", true, &[])).await;
    assert_eq!(told.field(".status.loadBalancer.ingress[0].ipMode"), "Proxy");
    let wrong = told.heard.wrong(&told.scene);
    assert!(wrong.is_empty(), "who was here first is no rival: {wrong:?}");
    patch(r#"{"ingress":[{"ip":"192.0.2.25"}]}"#);
    let object = told.owner.object();
    told.heard.until("the other's writing is told", |it| it.problems.contains_key(&object)).await;
    let problem = &told.heard.problems[&object][0];
    assert_eq!(problem.reason, Reason::OtherController);
    assert!(problem.message.contains("other"), "{}", problem.message);
    assert_eq!(told.work(&told.status("192.0.2.24", true, &[])).await.0, 0, "nobody fights");
    assert_eq!(told.field(".status.loadBalancer.ingress[0].ip"), "192.0.2.25");
    // It takes back what it wrote: ours is written again.
    patch("null");
    told.heard.until("that it is gone is told", |it| !it.problems.contains_key(&object)).await;
    assert_eq!(told.work(&told.status("192.0.2.24", true, &[])).await.0, 2, "it is written and told");
    assert_eq!(told.field(".status.loadBalancer.ingress[0].ip"), "192.0.2.24");
}

#[tokio::test]
async fn a_service_made_again_under_its_name_is_another() {
    let Some(told) = Told::up("again").await else { return };
    told.scene.here(&["delete", "service", "shop"]);
    told.scene.apply_here(SERVICE);
    let (steps, problems) = told.work(&told.status("192.0.2.26", true, &[])).await;
    assert!(steps <= 3 && problems.is_empty(), "{steps} {problems:?}");
    assert_eq!(told.field(".status"), "{\"loadBalancer\":{}}", "its status is not the other's");
}
