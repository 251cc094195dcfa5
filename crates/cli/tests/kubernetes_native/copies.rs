//! Certificates that hosts read as copies: served, renewed, kept while they are named, and gone afterwards.

use std::{fs, path::Path, time::Duration};

use seaway_testkit::{
    kubernetes::Node,
    topology::{until, until_within},
};

use crate::scene::{A_TERM, CONTROLLER, NODE, POOL, Scene, deployment, service};

const CONFIGURATION: &str =
    "{defaultDriver: native, certificateCopies: seaway-certificates, admin: {listen: [\"127.0.0.1:0\"]}}";
const TLS: &str =
    "\nmetadata: {name: shop, annotations: {seaway.dev/tls: shop-tls, seaway.dev/tls-ports: '443'}}";
/// A copy that nothing names stays for a minute.
const KEPT: Duration = Duration::from_secs(240);

/// As `deploy/kubernetes` has it, for users of this test; controllers may read the Secrets of one namespace alone.
fn let_in(scene: &Scene) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes");
    let file = folder.join("components/certificates/certificates.yaml");
    let manifest = fs::read_to_string(file).expect("is there");
    let parts = manifest.split("\n---\n");
    let user = |text: &str, name: &str| {
        let account = format!("{{kind: ServiceAccount, name: {name}, namespace: seaway-system}}");
        text.replace(&account, &format!("{{kind: User, name: {name}, apiGroup: rbac.authorization.k8s.io}}"))
    };
    let parts: Vec<String> = parts.map(|it| user(&user(it, CONTROLLER), NODE)).collect();
    assert_eq!(parts.iter().filter(|it| it.contains("kind: User")).count(), 2);
    scene.cluster.apply(&parts.join("\n---\n"));
    for (user, role) in [
        (CONTROLLER, "clusterrolebinding seaway-reader"),
        (CONTROLLER, "clusterrolebinding seaway-controller"),
        (CONTROLLER, "rolebinding seaway-leader"),
        (CONTROLLER, "rolebinding seaway-records"),
        (CONTROLLER, "rolebinding seaway-lease-reader"),
        (CONTROLLER, "rolebinding seaway-certificates"),
        (NODE, "clusterrolebinding seaway-reader"),
        (NODE, "clusterrolebinding seaway-node"),
        (NODE, "rolebinding seaway-leases"),
    ] {
        let (kind, role) = role.split_once(' ').expect("a kind and a role");
        let binding = format!("{user}-{role}");
        scene.cluster.kubectl(&[
            "create",
            kind,
            &binding,
            &format!("--clusterrole={role}"),
            &format!("--user={user}"),
        ]);
    }
}

fn write_certificate(scene: &Scene, name: &str, host: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let made = rcgen::generate_simple_self_signed(vec![host.to_owned()]).expect("is made");
    let [chain, key] = ["chain", "key"].map(|it| folder.path().join(it));
    fs::write(&chain, made.cert.pem()).expect("is written");
    fs::write(&key, made.signing_key.serialize_pem()).expect("is written");
    let [chain, key] = [("cert", chain), ("key", key)].map(|(it, at)| format!("--{it}={}", at.display()));
    let secret = ["create", "secret", "tls", name, &chain, &key, "--dry-run=client", "-o", "yaml"];
    scene.cluster.kubectl(&secret)
}

/// Whether a pod answers by TLS, with a certificate for that name.
fn answers(scene: &Scene, ip: &str, host: &str, authority: &Path) -> bool {
    let mut curl = scene.outside.command("curl");
    curl.args(["-sSf", "--noproxy", "*", "-m", "5", "--cacert"]).arg(authority);
    curl.args(["--resolve", &format!("{host}:443:{ip}"), &format!("https://{host}/")]);
    let output = curl.output().expect("curl starts");
    output.status.success() && output.stdout.starts_with(b"shop-")
}

/// The certificate of a Secret, as a file.
fn authority(scene: &Scene, folder: &Path, secret: &str) -> std::path::PathBuf {
    let encoded = scene.field(&format!("secret/{secret}"), "{.data.tls\\.crt}");
    let bytes = seaway_plan::base64::bytes_of(&encoded).expect("is base64");
    let path = folder.join("authority.pem");
    fs::write(&path, bytes).expect("is written");
    path
}

fn copy_is_there(scene: &Scene) -> bool {
    let get = ["get", "secret", "default.shop-tls", "-n", "seaway-certificates", "-o", "name"];
    scene.cluster.try_kubectl(&get, "").is_ok()
}

#[test]
fn hosts_serve_certificates_from_copies_that_go_when_nothing_names_them() {
    let Some(mut scene) = Scene::bare() else { return };
    scene.configuration = CONFIGURATION;
    scene.nodes = vec![scene.cluster.node("a")];
    scene.install_definitions();
    scene.cluster.apply(POOL);
    let_in(&scene);
    let first = write_certificate(&scene, "shop-tls", "shop.example");
    scene.cluster.apply(&first);
    scene.lead("controller");
    scene.serve(0);
    scene.lead_to(0);
    scene.cluster.apply(&deployment("shop", 1));
    let shop = service("shop", "selector: {app: shop}").replace("port: 80", "port: 443, targetPort: 80");
    scene.cluster.apply(&shop.replace("\nmetadata: {name: shop}", TLS));
    let ip = scene.address("shop");
    let folder = tempfile::tempdir().expect("a folder");
    let trusted = authority(&scene, folder.path(), "shop-tls");
    until("it answers by TLS", || answers(&scene, &ip, "shop.example", &trusted));
    assert!(copy_is_there(&scene));

    // Renewed: by a watch of the namespace that binds the role.
    scene.cluster.apply(&write_certificate(&scene, "shop-tls", "new.example"));
    let renewed = authority(&scene, folder.path(), "shop-tls");
    until("the renewed certificate is shown", || answers(&scene, &ip, "new.example", &renewed));

    // Whoever serves may not read it itself.
    let who = format!("--as={NODE}");
    for (namespace, may) in [("default", false), ("kube-system", false), ("seaway-certificates", true)] {
        let asked = ["auth", "can-i", "get", "secrets", &who, "-n", namespace];
        assert_eq!(scene.cluster.try_kubectl(&asked, "").is_ok(), may, "{namespace}");
    }

    // What vanishes stays in use, after a change of leaders as well.
    scene.cluster.kubectl(&["delete", "secret", "shop-tls"]);
    scene.end("controller");
    scene.lead("second");
    until_within(A_TERM, "the second leads", || scene.leader().contains("second"));
    scene.cluster.apply(&deployment("other", 1));
    scene.cluster.apply(&service("other", "selector: {app: other}"));
    scene.answering("other");
    assert!(copy_is_there(&scene) && answers(&scene, &ip, "new.example", &renewed));
    let node: &Node = &scene.nodes[0];
    assert!(!scene.state(node).contains("may not list"), "{}", scene.state(node));

    scene.cluster.kubectl(&["annotate", "service", "shop", "seaway.dev/tls-", "seaway.dev/tls-ports-"]);
    until_within(KEPT, "nothing names it any more", || !copy_is_there(&scene));
}
