//! Who we are to the API server: what has expired is named, and what was renewed is taken up.

use std::{
    fs,
    io::Read,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{PrivateKeyDer, pem::PemObject},
};
use seaway_testkit::topology::until_within;

use crate::scene::{A_TERM, CONTROLLER, Scene, service};

/// A service account that may what a controller may.
fn account(scene: &Scene, name: &str) -> String {
    scene.cluster.kubectl(&["create", "serviceaccount", name]);
    scene.bind(&format!("--serviceaccount=default:{name}"), CONTROLLER);
    scene.cluster.kubectl(&["create", "token", name])
}

/// A kubeconfig of somebody else, who is known by these lines.
fn kubeconfig(scene: &Scene, name: &str, user: &str) -> PathBuf {
    let admin = fs::read_to_string(scene.cluster.kubeconfig()).expect("a kubeconfig");
    let (cluster, _) = admin.split_once("  user:\n").expect("it names a user last");
    let path = scene.cluster.kubeconfig().with_file_name(name);
    fs::write(&path, format!("{cluster}  user:\n{user}")).expect("is written");
    path
}

/// What has expired a day ago.
fn expired(scene: &Scene, user: &str) -> String {
    let rig = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rig/kubernetes/kubeconfig");
    let folder =
        scene.cluster.kubeconfig().parent().expect("it is in a folder").to_string_lossy().into_owned();
    let admin = fs::read_to_string(scene.cluster.kubeconfig()).expect("a kubeconfig");
    let server = admin.split("server: ").nth(1).and_then(|it| it.lines().next()).expect("a server");
    let mut command = scene.cluster.control().command(rig);
    let printed = command.args(["--dir", &folder, "--server", server, "--days", "-1", user]).output();
    let printed = printed.expect("the rig prints it");
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    String::from_utf8(printed.stdout).expect("is text")
}

fn leads(scene: &Scene, name: &str) {
    until_within(A_TERM, &format!("{name} leads"), || scene.leader().starts_with(&format!("{name}_")));
}

fn gives(scene: &Scene, name: &str) {
    scene.cluster.apply(&service(name, "selector: {app: shop}"));
    until_within(A_TERM, &format!("{name} has an address"), || {
        let owners = scene.field("addresses", "{.items[*].spec.owners[*].name}");
        owners.split_whitespace().any(|it| it == name)
    });
}

#[test]
fn certificates_that_have_expired_are_named_and_a_renewed_one_is_taken_up() {
    let Some(mut scene) = Scene::bare() else { return };
    scene.install();
    let good = fs::read_to_string(scene.cluster.kubeconfig_of(CONTROLLER, &[])).expect("a kubeconfig");
    let ours = scene.cluster.kubeconfig().with_file_name("renewed");
    fs::write(&ours, expired(&scene, CONTROLLER)).expect("is written");
    scene.lead_as("expired", &ours, "default");
    let mend = "The client certificate or the token has expired or is wrong";
    until_within(A_TERM, "it is named", || scene.log("expired").contains(mend));
    fs::write(&ours, good).expect("is written");
    leads(&scene, "expired");
    gives(&scene, "early");
    assert_eq!(scene.log("expired").matches(mend).count(), 1, "it is said once");
    scene.end("expired");

    // The API server's own has expired.
    let (at, authority) = api_server_of_long_ago(scene.cluster.kubeconfig().parent().expect("a folder"));
    let admin = fs::read_to_string(scene.cluster.kubeconfig()).expect("a kubeconfig");
    let old = admin.lines().map(|line| match line.trim_start() {
        it if it.starts_with("server:") => format!("    server: https://{at}\n"),
        it if it.starts_with("certificate-authority-data:") => {
            format!("    certificate-authority: {}\n", authority.display())
        }
        _ => format!("{line}\n"),
    });
    let there = scene.cluster.kubeconfig().with_file_name("long-ago");
    fs::write(&there, old.collect::<String>()).expect("is written");
    scene.lead_as("modern", &there, "default");
    until_within(A_TERM, "it is named", || scene.log("modern").contains("kubeadm certs renew"));
}

/// It listens, and shows a certificate that was good once.
fn api_server_of_long_ago(folder: &Path) -> (std::net::SocketAddr, PathBuf) {
    let mut params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
    (params.not_before, params.not_after) =
        (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2021, 1, 1));
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    let authority = folder.join("long-ago.pem");
    fs::write(&authority, certificate.pem()).expect("is written");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("PEM");
    let config = config.expect("versions").with_no_client_auth();
    let config = Arc::new(config.with_single_cert(vec![certificate.der().clone()], key).expect("its own"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("is bound");
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let connection = ServerConnection::new(config.clone()).expect("a server");
            // Nobody gets further than the handshake.
            let _ = StreamOwned::new(connection, socket).read(&mut [0]);
        }
    });
    (at, authority)
}

#[test]
fn tokens_in_files_and_of_plugins_may_be_swapped_while_they_are_used() {
    let Some(mut scene) = Scene::bare() else { return };
    scene.install();
    let file = scene.cluster.kubeconfig().with_file_name("token");
    let [first, second, third] = ["first", "second", "third"].map(|name| account(&scene, name));

    fs::write(&file, first).expect("is written");
    let reads = kubeconfig(&scene, "tokened", &format!("    tokenFile: {}\n", file.display()));
    scene.lead_as("reader", &reads, "default");
    leads(&scene, "reader");
    fs::write(&file, &second).expect("is written");
    scene.cluster.kubectl(&["delete", "serviceaccount", "first"]);
    gives(&scene, "of-second");
    scene.end("reader");

    let plugin = scene.cluster.kubeconfig().with_file_name("plugin");
    let asked = plugin.with_file_name("asked");
    // A token counts as expired a minute before it is.
    let script = format!(
        "#!/bin/sh\necho asked >>{}\ncat <<END\n{{\"apiVersion\": \"client.authentication.k8s.io/v1\", \
         \"kind\": \"ExecCredential\", \"status\": {{\"token\": \"$(cat {})\", \
         \"expirationTimestamp\": \"$(date -u -d '+61 seconds' +%Y-%m-%dT%H:%M:%SZ)\"}}}}\nEND\n",
        asked.display(),
        file.display()
    );
    fs::write(&plugin, script).expect("is written");
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).expect("is ours");
    let exec = format!(
        "    exec: {{apiVersion: client.authentication.k8s.io/v1, command: {}, interactiveMode: Never}}\n",
        plugin.display()
    );
    let asks = kubeconfig(&scene, "plugged", &exec);
    scene.lead_as("asker", &asks, "default");
    leads(&scene, "asker");
    fs::write(&file, third).expect("is written");
    scene.cluster.kubectl(&["delete", "serviceaccount", "second"]);
    gives(&scene, "of-third");
    let times = fs::read_to_string(&asked).expect("it was asked").lines().count();
    assert!(times >= 2, "what expired was asked for again");
    assert!(!scene.log("asker").contains("eyJ"), "no token is in the log");
}
