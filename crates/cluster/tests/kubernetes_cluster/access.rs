//! What stands in the way is told with what to do about it.

use std::sync::Arc;

use seaway_cluster::{
    AccessError, AddressCounts, AddressDriver, Cluster, ClusterAccess, CredentialSource, HostStatusWriter,
    LEADER, LeaderElection, LeaseTimings, PoolStatus, PoolStatusWriter, ProgramInfo, WantedSecrets,
};
use seaway_model::{
    Address, AddressState, Desired, Kind, ObjectRef, Owner, Unit,
    fact::{FactRef, HostStatus},
};
use seaway_testkit::{conformance::converges, kubernetes::Gate};

use crate::scene::{Heard, PACE, Scene, connect, eventually};

fn kubernetes() -> ObjectRef {
    ObjectRef::new(Kind::Config, "", "kubernetes")
}

fn role_without(scene: &Scene, verb: &str, resource: &str, user: &str) {
    let rules = [
        ("''", "namespaces, nodes, services"),
        ("discovery.k8s.io", "endpointslices"),
        ("seaway.dev", "addresses, addresspools, loadbalancerhosts, nameowners"),
    ];
    let rules: String = rules
        .iter()
        .flat_map(|(group, resources)| resources.split(", ").map(move |it| (group, it)))
        .map(|(group, it)| {
            let verbs: Vec<&str> =
                ["list", "watch"].into_iter().filter(|have| (*have, it) != (verb, resource)).collect();
            format!("- {{apiGroups: [{group}], resources: [{it}], verbs: [{}]}}\n", verbs.join(", "))
        })
        .collect();
    scene.apply(&format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {user}}}\nrules:\n{rules}---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {user}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {user}}}\n\
         subjects: [{{kind: User, name: {user}, apiGroup: rbac.authorization.k8s.io}}]\n"
    ));
}

#[tokio::test]
async fn the_reader_role_is_enough_to_watch_and_a_missing_verb_is_named() {
    let Some(scene) = Scene::up("roles") else { return };
    for (user, role) in [("reader", "seaway-reader"), ("reader-tls", "seaway-certificates")] {
        scene.kubectl(&[
            "create",
            "clusterrolebinding",
            user,
            &format!("--clusterrole={role}"),
            "--user=reader",
        ]);
    }
    // As controller.yaml binds it in Seaway's own namespace, which is `default` here.
    let leases = ["create", "rolebinding", "reader", "-n", "default", "--clusterrole=seaway-lease-reader"];
    scene.kubectl(&[&leases[..], &["--user=reader"]].concat());
    let mut heard = Heard::of(&connect(&scene.cluster.kubeconfig_of("reader", &[]), PACE).await);
    heard.want(WantedSecrets::Every);
    heard.until_synced().await;
    heard.until("Secrets are told", |it| it.synced.contains(&Kind::Secret)).await;
    // Rights that were given just now may be believed a moment later.
    heard.until("nothing is wrong", |it| it.wrong(&scene).is_empty()).await;
    for (verb, resource, user) in [
        ("list", "services", "no-list"),
        ("watch", "endpointslices", "no-watch"),
        ("list", "addresspools", "no-pools"),
        ("list", "loadbalancerhosts", "no-hosts"),
    ] {
        role_without(&scene, verb, resource, user);
        let kubeconfig = scene.cluster.kubeconfig_of(user, &[]);
        let mut heard = Heard::of(&connect(&kubeconfig, PACE).await);
        heard.want(WantedSecrets::Every);
        let wanted = format!("may not {verb} {resource}");
        heard.until(&wanted, |it| it.told_of(&kubernetes()).contains(&wanted)).await;
        assert!(heard.told_of(&kubernetes()).contains("seaway crds | kubectl apply -f -"));
        heard.until("secrets count as empty", |it| it.synced.contains(&Kind::Secret)).await;
        match resource {
            "services" => assert!(!heard.synced.contains(&Kind::Service), "nothing is planned without"),
            "loadbalancerhosts" => {
                let told = heard.told_of(&kubernetes());
                assert!(told.contains("Seaway changes no Service until these objects are listed"), "{told}");
                assert!(
                    !heard.synced.contains(&Kind::LoadBalancerHost),
                    "addresses would be free that hosts serve"
                );
            }
            "addresspools" => {
                heard.until("pools count as empty", |it| it.synced.contains(&Kind::AddressPool)).await;
            }
            _ => {}
        }
        // It is allowed after all: nobody has to start anything again.
        role_without(&scene, "no", "verb", user);
        heard.until("it is taken back", |it| !it.told_of(&kubernetes()).contains(&wanted)).await;
        heard.until_synced().await;
    }
}

/// As `deploy/kubernetes` has it without certificates.yaml.
#[tokio::test]
async fn without_certificates_yaml_no_request_is_refused_and_no_problem_is_told_until_an_object_names_one() {
    let Some(scene) = Scene::up("no-tls") else { return };
    let user = "no-tls";
    scene.kubectl(&["create", "clusterrolebinding", user, "--clusterrole=seaway-reader", "--user=no-tls"]);
    let gate = Gate::here(&scene.cluster.kubeconfig_of(user, &[]));
    let mut heard = Heard::of(&connect(gate.kubeconfig(), PACE).await);
    heard.until_synced().await;
    heard.until("nothing is wrong", |it| !it.problems.contains_key(&kubernetes())).await;
    assert_eq!(gate.count("GET */secrets*"), 0, "{:?}", gate.requests());

    let named = ObjectRef::new(Kind::Secret, &*scene.namespace, "shop-tls");
    heard.want(WantedSecrets::These([named].into()));
    let wanted = "may not list secrets";
    heard.until(wanted, |it| it.told_of(&kubernetes()).contains(wanted)).await;
    let told = heard.told_of(&kubernetes());
    let bind = format!("kubectl -n {} create rolebinding seaway-certificates", scene.namespace);
    assert!(told.contains(&bind), "{told}");
    heard.want(WantedSecrets::These([].into()));
    heard.until("it is taken back", |it| !it.problems.contains_key(&kubernetes())).await;
    scene.kubectl(&["delete", "clusterrolebinding", user]);
}

#[tokio::test]
async fn wrong_credentials_and_none_are_told_with_their_mend() {
    let Some(scene) = Scene::up("wrong") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kubeconfig");
    let access = |path: &std::path::Path| ClusterAccess {
        credentials: CredentialSource::Kubeconfig { path: path.to_owned(), context: None },
        pace: PACE,
        ..ClusterAccess::default()
    };
    let missing = Cluster::connect(access(&path)).await.err().expect("there is none");
    assert!(
        matches!(missing, AccessError::Kubeconfig { .. })
            && missing.to_string().contains("--kubeconfig FILE")
    );
    std::fs::write(&path, "no: [yaml").expect("is written");
    assert!(Cluster::connect(access(&path)).await.is_err());
    // Somebody whom the API server does not know, until somebody puts the right file there.
    let good = std::fs::read_to_string(&scene.kubeconfig).expect("a kubeconfig");
    let cut = |text: &str, key: &str| -> String {
        text.lines().filter(|line| !line.trim_start().starts_with(key)).map(|it| format!("{it}\n")).collect()
    };
    let stranger = cut(&cut(&good, "client-certificate"), "client-key");
    let stranger = stranger.replace(
        "  user:
",
        "  user:
    token: nobody
",
    );
    std::fs::write(&path, &stranger).expect("is written");
    let mut heard = Heard::of(&connect(&path, PACE).await);
    heard
        .until("it is told", |it| it.told_of(&kubernetes()).contains("does not accept Seaway's credentials"))
        .await;
    assert!(
        heard.told_of(&kubernetes()).contains("get a new kubeconfig"),
        "{}",
        heard.told_of(&kubernetes())
    );
    std::fs::write(&path, &good).expect("is written");
    heard.until_synced().await;
    heard.until("all is well", |it| it.wrong(&scene).is_empty()).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_and_one_of_another_authority_are_told_apart() {
    let Some(scene) = Scene::up("server") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let good = std::fs::read_to_string(&scene.kubeconfig).expect("a kubeconfig");
    let told = async |text: String, wanted: &str| {
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, text).expect("is written");
        let mut heard = Heard::of(&connect(&path, PACE).await);
        heard.until(wanted, |it| it.told_of(&kubernetes()).contains(wanted)).await;
        heard.told_of(&kubernetes())
    };
    let server = good.split("server: ").nth(1).and_then(|it| it.lines().next()).expect("names a server");
    let closed = told(good.replace(server, "https://127.0.0.1:1"), "cannot be reached").await;
    assert!(closed.contains("`server:` in the kubeconfig is right"), "{closed}");
    let other = rcgen::generate_simple_self_signed(["kubernetes".to_owned()]).expect("a certificate");
    let authority = folder.path().join("ca.pem");
    std::fs::write(&authority, other.cert.pem()).expect("is written");
    let swapped: String = good
        .lines()
        .map(|line| match line.trim_start().strip_prefix("certificate-authority-data:") {
            Some(_) => {
                let indent = &line[..line.len() - line.trim_start().len()];
                format!("{indent}certificate-authority: {}\n", authority.display())
            }
            None => format!("{line}\n"),
        })
        .collect();
    assert_ne!(swapped.trim(), good.trim(), "the kubeconfig says who vouches for the server");
    let foreign = told(swapped, "cannot be reached").await;
    assert!(foreign.contains("certificate-authority-data"), "{foreign}");
}

#[tokio::test]
async fn the_roles_of_controller_and_node_are_enough_for_what_they_write() {
    let Some(scene) = Scene::up("writers") else { return };
    let bind = |kind: &str, user: &str, role: &str| {
        let (role, user_is) = (format!("--clusterrole={role}"), format!("--user={user}"));
        scene.kubectl(&["create", kind, &format!("{user}-{}", &role[14..]), &role, &user_is]);
    };
    for user in ["control", "host"] {
        bind("clusterrolebinding", user, "seaway-reader");
    }
    bind("rolebinding", "control", "seaway-leader");
    bind("rolebinding", "host", "seaway-leases");
    bind("rolebinding", "control", "seaway-lease-reader");
    bind("clusterrolebinding", "control", "seaway-controller");
    bind("clusterrolebinding", "control", "seaway-cloud");
    bind("clusterrolebinding", "host", "seaway-node");
    let control = connect(&scene.cluster.kubeconfig_of("control", &[]), PACE).await;
    eventually("it may tell clusters apart", async || control.identity().await.ok()).await;
    let campaign = LeaderElection::start(&control, LEADER, "test", LeaseTimings::LEADER);
    campaign.leadership().changed_from(false).await;
    let mut heard = Heard::of(&control);
    heard.until_synced().await;
    let addresses = AddressDriver::new(control.clone());
    let ip = "192.0.2.51".parse().expect("an address");
    let wanted = |owners: &[&str], state| {
        Desired::Address(Arc::new(Address {
            ip,
            pool: "public".into(),
            sharing: None,
            owners: owners.iter().map(|it| Owner::Config((*it).into())).collect(),
            plan_version: 1,
            ends: None,
            conflicts: Vec::new(),
            // Planned with all that is written.
            version: u64::MAX,
            state,
        }))
    };
    let (held, released) = (AddressState::Held, AddressState::Releasing);
    let all = [wanted(&["a"], held), wanted(&["b"], held), wanted(&[], released)];
    converges(&addresses, &Unit::Address(ip), &all).await;
    scene.apply(
        "apiVersion: seaway.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: counted}\nspec: {addresses: [192.0.2.64/28]}\n",
    );
    let pools = PoolStatusWriter::start(&control, campaign.leadership());
    let v4 = AddressCounts { assigned: 3, available: 13 };
    let object = ObjectRef::new(Kind::AddressPool, "", "counted");
    pools.publish([(object, PoolStatus { v4, ..PoolStatus::default() })].into());
    eventually("the pool is told how full it is", async || {
        let row = scene.kubectl(&["get", "addresspool", "counted", "--no-headers"]);
        let cells: Vec<&str> = row.split_whitespace().collect();
        (cells.len() == 6 && cells[2..5] == ["3", "13", "True"]).then_some(())
    })
    .await;
    let host = connect(&scene.cluster.kubeconfig_of("host", &[]), PACE).await;
    let life = LeaderElection::start_host_lease(&host, "writers", LeaseTimings::HOST);
    life.leadership().changed_from(false).await;
    let reports = HostStatusWriter::start(&host, "writers", ProgramInfo::default());
    reports.publish(HostStatus { applied: 1, ..HostStatus::default() });
    let reference = FactRef::Host("writers".into());
    heard.until("the host is heard", |it| it.facts.contains_key(&reference)).await;
    heard
        .until("nothing is missed, though neither may read Secrets", |it| {
            !it.problems.contains_key(&kubernetes())
        })
        .await;
    life.resign().await;
    campaign.resign().await;
    scene.kubectl(&["delete", "addresspool", "counted"]);
    scene.kubectl(&["delete", "lbhost", "writers"]);
}
