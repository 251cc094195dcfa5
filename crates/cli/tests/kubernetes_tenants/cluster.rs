//! Two namespaces, and who writes in the hostile one.

use std::{fs, net::SocketAddr, path::PathBuf};

use seaway_testkit::topology::{Namespace, Web, until};

use crate::{
    scene::{Scene, deployment, service},
    translated,
};

const DEFINITIONS: &str = include_str!("../../../cluster/tests/corpus/definitions.yaml");
const CONFIGURATION: &str = "
defaultDriver: native
admin: {listen: [\"127.0.0.1:0\"]}
frontDoor: {enabled: true, port: 8000, tls: {port: 8443}, parentRef: infra/public}
";
const MACHINES: &str = "
apiVersion: seaway.dev/v1alpha1
kind: AddressPool
metadata: {name: machines}
spec: {hosts: true, autoAssign: false}
";
/// Where programs of the machines listen for all addresses: as sshd, another, and the API server do.
pub(crate) const MACHINE: [u16; 3] = [22, 9_443, 6_443];

pub(crate) struct Shared {
    machine: Vec<Web>,
    /// Of whoever writes in `evil`.
    mallory: String,
    /// The Service `shop/shop`, at an address of its own.
    pub(crate) shop: SocketAddr,
    /// The front door, where `shop/door` has `shop.example`.
    pub(crate) door: SocketAddr,
    /// Whose way to the pool is through the second Node.
    pub(crate) beside: Namespace,
    pub(crate) scene: Scene,
}

impl Shared {
    pub(crate) fn up() -> Option<Shared> {
        Shared::by(CONFIGURATION)
    }

    /// As above, by another configuration.
    pub(crate) fn by(configuration: &'static str) -> Option<Shared> {
        let mut scene = Scene::bare()?;
        scene.configuration = configuration;
        scene.nodes = ["a", "b"].map(|name| scene.cluster.node(name)).into();
        scene.cluster.define(DEFINITIONS);
        scene.install();
        // Machines' own addresses are there for who asks for them by name.
        scene.cluster.apply(MACHINES);
        scene.cluster.apply(&translated::policies());
        for namespace in ["infra", "shop", "evil"] {
            scene.cluster.kubectl(&["create", "namespace", namespace]);
        }
        scene.lead("controller");
        for at in 0..scene.nodes.len() {
            scene.serve(at);
        }
        scene.lead_to(0);
        let mallory = admit(&scene);
        let machine = listen(&scene);
        let beside = scene.cluster.neighbour("beside");
        beside.route("203.0.113.0/28", &scene.nodes[1].addresses()[0]);
        let node = scene.nodes[0].addresses()[0].parse().expect("an address");
        let [shop, door] = [80, 8_000].map(|port| SocketAddr::new(node, port));
        let mut shared = Shared { machine, mallory, shop, door, beside, scene };
        shared.open_shop();
        Some(shared)
    }

    /// The shop is served by both ways before anybody tries anything; so is what the hostile namespace has a right to.
    fn open_shop(&mut self) {
        // Older than all that the shop has, and nobody's at the front door yet.
        self.applies("apiVersion: v1\nkind: Service\nmetadata: {name: old}\nspec: {ports: [{port: 80}], selector: {app: evil}}\n");
        let door = "
apiVersion: v1
kind: Service
metadata: {name: door, annotations: {seaway.dev/host: shop.example, seaway.dev/tls: certificate}}
spec: {ports: [{port: 80}], selector: {app: shop}}
";
        let all = [
            deployment("shop", 2),
            service("shop", "selector: {app: shop}"),
            secret("certificate", &self.certificate("shop")),
            door.to_owned(),
        ];
        self.admin("shop", &all.join("---"));
        let all = [deployment("evil", 1), service("evil", "selector: {app: evil}")];
        self.applies(&all.join("---"));
        for name in ["shop", "evil"] {
            let deployment = format!("deployment/{name}");
            self.scene.cluster.kubectl(&["-n", name, "rollout", "status", &deployment, "--timeout", "180s"]);
            let url = format!("http://{}/", self.scene_address(name, name));
            for from in [&self.scene.outside, &self.beside] {
                let is_served = || from.curl(&url).is_ok_and(|it| it.starts_with(name));
                until(&format!("{name} is served"), is_served);
            }
        }
        self.shop.set_ip(self.scene_address("shop", "shop").parse().expect("an address"));
        until("the shop is served at the front door", || self.door_answers("shop.example", "/", "shop-"));
        until("its certificate is shown", || self.shows("shop", "shop.example").is_ok());
    }

    /// What an administrator writes.
    #[track_caller]
    pub(crate) fn admin(&self, namespace: &str, manifest: &str) {
        let applied = self.scene.cluster.try_kubectl(&["-n", namespace, "apply", "-f", "-"], manifest);
        applied.unwrap_or_else(|error| panic!("{error}\n{manifest}"));
    }

    /// What comes of a command of the hostile namespace's.
    pub(crate) fn attempt(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let arguments = [&["--kubeconfig", &self.mallory], arguments].concat();
        self.scene.cluster.try_kubectl(&arguments, input)
    }

    /// What it may write in its namespace.
    #[track_caller]
    pub(crate) fn applies(&self, manifest: &str) {
        let applied = self.attempt(&["-n", "evil", "apply", "-f", "-"], manifest);
        applied.unwrap_or_else(|error| panic!("{error}\n{manifest}"));
    }

    /// Waits until a Service of it has a Problem that says so.
    #[track_caller]
    pub(crate) fn is_refused(&self, service: &str, why: &str) {
        let path = "{.status.conditions[?(@.type==\"seaway.dev/Problems\")].message}";
        let mut said = String::new();
        until(&format!("{service} has a Problem: {why}"), || {
            let arguments = ["-n", "evil", "get", "service", service, "-o", &format!("jsonpath={path}")];
            let now = self.scene.cluster.try_kubectl(&arguments, "").unwrap_or_default();
            if now != said {
                eprintln!("{service}: {now}");
                said = now;
            }
            said.contains(why)
        });
    }

    /// The address of a Service, once it has one.
    pub(crate) fn scene_address(&self, namespace: &str, service: &str) -> String {
        let mut address = String::new();
        until(&format!("{namespace}/{service} has an address"), || {
            address = self.address_now(namespace, service);
            !address.is_empty()
        });
        address
    }

    /// As above; nothing, where it has none.
    pub(crate) fn address_now(&self, namespace: &str, service: &str) -> String {
        let path = "jsonpath={.status.loadBalancer.ingress[0].ip}";
        let arguments = ["-n", namespace, "get", "service", service, "-o", path];
        self.scene.cluster.try_kubectl(&arguments, "").unwrap_or_default()
    }

    /// What the Services of the shop have published.
    pub(crate) fn published(&self) -> String {
        let path = "jsonpath={range .items[*]}{.metadata.name}={.status.loadBalancer.ingress[*].ip} {end}";
        self.scene.cluster.kubectl(&["-n", "shop", "get", "services", "-o", path])
    }

    /// A page of the front door, with more arguments of curl.
    pub(crate) fn asks_door(&self, host: &str, path: &str, more: &[&str]) -> String {
        let url = format!("http://{}{path}", self.door);
        let mut curl = self.scene.outside.command("curl");
        curl.args(["-sS", "--noproxy", "*", "-m", "5", "-H", &format!("Host: {host}")]).args(more).arg(url);
        String::from_utf8_lossy(&curl.output().expect("curl starts").stdout).trim_end().to_owned()
    }

    pub(crate) fn door_answers(&self, host: &str, path: &str, who: &str) -> bool {
        self.asks_door(host, path, &[]).starts_with(who)
    }

    /// Asks the front door by TLS, believing the certificate of one namespace alone.
    pub(crate) fn shows(&self, believed: &str, host: &str) -> Result<String, String> {
        let authority = self.file(believed, "crt");
        let at = format!("::{}:8443", self.door.ip());
        let mut curl = self.scene.outside.command("curl");
        curl.args(["-sSf", "--noproxy", "*", "-m", "5", "--cacert"]).arg(authority);
        let output =
            curl.args(["--connect-to", &at, &format!("https://{host}/")]).output().expect("curl starts");
        let text = |it: &[u8]| String::from_utf8_lossy(it).trim_end().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Certificate and key for `shop.example`, self-signed, of that namespace.
    pub(crate) fn certificate(&self, of: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["shop.example".to_owned()]).expect("a certificate");
        let pair = (made.cert.pem(), made.signing_key.serialize_pem());
        fs::write(self.file(of, "crt"), &pair.0).expect("is written");
        pair
    }

    fn file(&self, of: &str, kind: &str) -> PathBuf {
        self.scene.cluster.kubeconfig().with_file_name(format!("{of}.{kind}"))
    }

    /// Who listens on the machine ends, and begins again, as an upgrade of sshd does.
    pub(crate) fn restart_machine(&mut self) {
        self.machine.clear();
        self.machine = listen(&self.scene);
    }

    /// What the host of the front door has to say against a route of the hostile namespace, each with its reason.
    pub(crate) fn told_of_route(&self, name: &str) -> Vec<String> {
        let state = self.scene.state(&self.scene.nodes[0]);
        let state: serde_json::Value = serde_json::from_str(&state).unwrap_or_default();
        let all = state["problems"].as_array().into_iter().flatten();
        let its = all.filter(|it| it["object"]["kind"] == "HTTPRoute" && it["object"]["name"] == name);
        let text = |it: &serde_json::Value| it.as_str().unwrap_or_default().to_owned();
        its.map(|it| format!("{}: {}", text(&it["reason"]), text(&it["message"]))).collect()
    }

    /// What answers at a port, asked from outside.
    pub(crate) fn asks(&self, ip: &str, port: u16) -> Result<String, String> {
        self.scene.outside.curl(&format!("http://{ip}:{port}/"))
    }
}

/// Gives somebody `edit`, EndpointSlices and HTTPRoutes in the namespace `evil`; with what to be that somebody.
fn admit(scene: &Scene) -> String {
    let here = ["-n", "evil", "create"];
    let also = "--resource=endpointslices.discovery.k8s.io,httproutes.gateway.networking.k8s.io";
    for arguments in [
        &["role", "also", "--verb=*", also][..],
        &["rolebinding", "edit", "--clusterrole=edit", "--user=mallory"],
        &["rolebinding", "also", "--role=also", "--user=mallory"],
    ] {
        scene.cluster.kubectl(&[&here[..], arguments].concat());
    }
    scene.cluster.kubeconfig_of("mallory", &[]).to_string_lossy().into_owned()
}

fn listen(scene: &Scene) -> Vec<Web> {
    let all = scene.nodes.iter().flat_map(|node| MACHINE.map(|port| (node.namespace(), port)));
    all.map(|(node, port)| node.run(|| Web::start_at("the machine", ("0.0.0.0", port)))).collect()
}

pub(crate) fn secret(name: &str, (certificate, key): &(String, String)) -> String {
    let quoted = |it: &str| format!("{it:?}");
    format!(
        "
apiVersion: v1
kind: Secret
metadata: {{name: {name}}}
type: kubernetes.io/tls
stringData: {{tls.crt: {}, tls.key: {}}}
",
        quoted(certificate),
        quoted(key)
    )
}
