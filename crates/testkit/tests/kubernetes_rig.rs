//! That the Kubernetes which tests stand in is as it says, and leaves nothing behind.
#![cfg(feature = "kubernetes")]

#[path = "kubernetes_rig/kubectl.rs"]
mod kubectl;
#[path = "kubernetes_rig/pool.rs"]
mod pool;

use std::{path::Path, process::Command, time::Instant};

use seaway_testkit::{
    kubernetes::{Cluster, Options, client, nodes_ready},
    topology::until,
};

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: web
        image: web
        ports: [{containerPort: 80, name: http}]
        readinessProbe: {httpGet: {path: /ready, port: http}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  ipFamilyPolicy: PreferDualStack
  selector: {app: web}
  ports: [{port: 80, targetPort: http}]
";

fn up() -> Option<Cluster> {
    Cluster::up(&Options::default())
}

/// Three pods behind a Service, all Ready.
fn with_web(cluster: &Cluster) {
    cluster.apply(WEB);
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout", "180s"]);
}

fn field(cluster: &Cluster, object: &str, path: &str) -> String {
    cluster.kubectl(&["get", object, "-o", &format!("jsonpath={path}")])
}

fn pods(cluster: &Cluster) -> Vec<String> {
    let names =
        cluster.kubectl(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].metadata.name}"]);
    names.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_control_plane_comes_up_and_leaves_nothing_behind() {
    // How long it takes is printed by the gate, as of every rig.
    let Some(cluster) = Cluster::alone(&Options::default()) else { return };
    let node = cluster.node("a");
    with_web(&cluster);
    let folder = cluster.kubeconfig().parent().expect("it is in the cluster's folder").to_owned();
    // Other tests of this process have theirs: pods are known by their names.
    let pods: Vec<String> = pods(&cluster).iter().map(|it| format!("HOSTNAME={it}\0")).collect();
    let is_pods = |name: &str| {
        // It may be another test's, and gone by now.
        let inside = Command::new("ip").args(["netns", "pids", name]).output().expect("ip starts");
        String::from_utf8_lossy(&inside.stdout).split_whitespace().any(|id| {
            let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            let environment = String::from_utf8_lossy(&environment);
            pods.iter().any(|pod| environment.contains(pod))
        })
    };
    let all = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let all = all.map(|it| it.file_name().to_string_lossy().into_owned());
    let mut namespaces: Vec<String> = all
        .filter(|it| it.starts_with(&format!("sw{}-", std::process::id())) && it.ends_with("-pod"))
        .collect();
    namespaces.retain(|it| is_pods(it));
    assert_eq!(namespaces.len(), 3, "{namespaces:?}");
    namespaces.extend([cluster.control(), node.namespace()].map(|it| it.name().to_owned()));
    drop((node, cluster));
    assert!(!folder.exists());
    for name in namespaces {
        assert!(!Path::new("/run/netns").join(&name).exists(), "{name} is left");
    }
    let of_it = folder.to_string_lossy().into_owned();
    until("all of its processes are gone", || {
        let all = std::fs::read_dir("/proc").expect("it is Linux").flatten();
        !all.map(|it| std::fs::read(it.path().join("cmdline")).unwrap_or_default())
            .any(|it| String::from_utf8_lossy(&it).contains(&of_it))
    });
}

#[test]
fn two_clusters_at_once_do_not_see_each_other() {
    let (Some(one), Some(two)) = (up(), up()) else { return };
    one.kubectl(&["create", "namespace", "here"]);
    assert!(two.try_kubectl(&["get", "namespace", "here"], "").is_err_and(|it| it.contains("NotFound")));
}

#[test]
fn pods_of_a_deployment_are_ready_and_answer_at_a_cluster_ip_and_at_node_ports() {
    let Some(cluster) = up() else { return };
    let [a, b] = ["a", "b"].map(|name| cluster.node(name));
    with_web(&cluster);
    let names = pods(&cluster);
    assert_eq!(names.len(), 3);
    let slices = ["get", "endpointslices", "-l", "kubernetes.io/service-name=web", "-o"];
    let listed = [&slices[..], &["jsonpath={.items[*].endpoints[*].targetRef.name}"]].concat();
    until("both slices list three pods", || cluster.kubectl(&listed).split_whitespace().count() == 6);
    let listed = cluster.kubectl(&listed);
    assert!(names.iter().all(|it| listed.contains(it)), "{listed}");

    let (v4, v6) = (
        field(&cluster, "svc/web", "{.spec.clusterIPs[0]}"),
        field(&cluster, "svc/web", "{.spec.clusterIPs[1]}"),
    );
    let port = field(&cluster, "svc/web", "{.spec.ports[0].nodePort}");
    let outside = cluster.neighbour("outside");
    let told = |asking: &seaway_testkit::topology::Namespace, url: &str| {
        until(&format!("a pod answers {url}"), || {
            asking.curl(url).is_ok_and(|it| names.iter().any(|name| it.starts_with(name.as_str())))
        });
    };
    told(a.namespace(), &format!("http://{v4}/"));
    told(b.namespace(), &format!("http://[{v6}]/"));
    for node in [&a, &b] {
        told(&outside, &format!("http://{}:{port}/", node.addresses()[0]));
        told(&outside, &format!("http://[{}]:{port}/", node.addresses()[1]));
    }
    assert!(outside.curl(&format!("http://{v4}/")).is_err(), "a ClusterIP is for the cluster alone");
}

#[test]
fn a_new_image_rolls_out_pod_by_pod() {
    let Some(cluster) = up() else { return };
    let _node = cluster.node("a");
    with_web(&cluster);
    let before = pods(&cluster);
    cluster.kubectl(&["set", "image", "deployment/web", "web=nginx"]);
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout", "180s"]);
    until("the old pods are gone", || {
        let now = pods(&cluster);
        now.len() == 3 && !now.iter().any(|it| before.contains(it))
    });
}

#[test]
fn logs_of_a_pod_are_read_as_from_a_kubelet() {
    let Some(cluster) = up() else { return };
    let node = cluster.node("a");
    with_web(&cluster);
    let pod = pods(&cluster).remove(0);
    let address = field(&cluster, &format!("pod/{pod}"), "{.status.podIP}");
    let answer =
        node.namespace().curl(&format!("http://{address}/hello")).expect("the node reaches its pods");
    assert!(answer.starts_with(&pod), "{answer}");
    until("the request is in the log", || cluster.kubectl(&["logs", &pod]).contains("GET /hello"));
    assert_eq!(cluster.kubectl(&["logs", &pod, "--tail", "1"]).lines().count(), 1);
}

#[test]
fn a_pod_that_is_not_ready_takes_no_traffic_and_one_that_ends_is_started_again() {
    let Some(cluster) = up() else { return };
    let node = cluster.node("a");
    with_web(&cluster);
    let pod = pods(&cluster).remove(0);
    let address = field(&cluster, &format!("pod/{pod}"), "{.status.podIP}");
    let of = |path: &str| field(&cluster, &format!("pod/{pod}"), path);
    let unready = format!("http://{address}/unready");
    let post =
        ["netns", "exec", node.namespace().name(), "curl", "-sS", "--noproxy", "*", "-X", "POST", &unready];
    assert!(Command::new("ip").args(post).status().expect("ip starts").success());
    until("it is not Ready", || of("{.status.conditions[?(@.type=='Ready')].status}") == "False");
    let not_ready = ["get", "endpointslices", "-l", "kubernetes.io/service-name=web", "-o"];
    let not_ready =
        [&not_ready[..], &["jsonpath={.items[0].endpoints[?(@.conditions.ready==false)].targetRef.name}"]]
            .concat();
    until("its endpoint is not ready", || cluster.kubectl(&not_ready) == pod);

    // Whoever listens there is the container.
    let inside = Command::new("pgrep").args(["-f", "pod-[0-9a-f]+ web"]).output().expect("pgrep starts");
    let of_this_pod = |id: &&str| {
        let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&format!("HOSTNAME={pod}\0"))
    };
    let ids = String::from_utf8_lossy(&inside.stdout).into_owned();
    let id = ids.split_whitespace().find(of_this_pod).expect("it runs");
    assert!(Command::new("kill").args(["-KILL", id]).status().expect("kill starts").success());
    until("it is started again, and Ready", || {
        of("{.status.containerStatuses[0].restartCount}") == "1"
            && of("{.status.conditions[?(@.type=='Ready')].status}") == "True"
    });
    assert_eq!(of("{.status.containerStatuses[0].lastState.terminated.exitCode}"), "137");
}

#[test]
fn a_pod_asks_the_api_server_as_its_service_account() {
    let Some(cluster) = up() else { return };
    let _node = cluster.node("a");
    cluster.apply(
        "
apiVersion: v1
kind: Pod
metadata: {name: asks}
spec:
  containers:
  - name: asks
    image: none
    command: [sh, -c]
    args:
    - |
      cd /var/run/secrets/kubernetes.io/serviceaccount
      curl -sS --noproxy '*' --retry 20 --retry-connrefused --cacert ca.crt -H \"Authorization: Bearer $(cat token)\" \
        https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/$(cat namespace)/pods
      exec sleep 60
",
    );
    let refused = r#"User \"system:serviceaccount:default:default\" cannot list resource"#;
    until("it is known by its account", || {
        cluster.try_kubectl(&["logs", "asks"], "").is_ok_and(|it| it.contains(refused))
    });
    assert!(!Path::new("/run/secrets/kubernetes.io").exists(), "the machine's own /run is left alone");
}

#[test]
fn a_deleted_pod_has_its_grace_and_no_more() {
    let Some(cluster) = up() else { return };
    let _node = cluster.node("a");
    cluster.apply(
        "
apiVersion: v1
kind: Pod
metadata: {name: stays}
spec:
  terminationGracePeriodSeconds: 5
  containers: [{name: stays, image: stubborn}]
",
    );
    until("it has begun", || {
        cluster.try_kubectl(&["logs", "stays"], "").is_ok_and(|it| it.contains("here to stay"))
    });
    let began = Instant::now();
    cluster.kubectl(&["delete", "pod", "stays", "--wait=false"]);
    until("it is gone", || {
        cluster.try_kubectl(&["get", "pod", "stays"], "").is_err_and(|it| it.contains("NotFound"))
    });
    // Less than who does not say how long it may take.
    assert!((5..30).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    // The node keeps what it has said.
    let log = cluster.kubeconfig().with_file_name("a").join("default_stays_stays.log");
    assert!(std::fs::read_to_string(log).expect("it has a log").contains("no\n"), "it was asked");
}

#[test]
fn kube_proxy_leaves_an_address_alone_that_is_a_proxys() {
    let Some(cluster) = up() else { return };
    let node = cluster.node("a");
    with_web(&cluster);
    cluster.kubectl(&["patch", "svc", "web", "-p", r#"{"spec": {"type": "LoadBalancer"}}"#]);
    let rules = || node.namespace().run(|| seaway_testkit::topology::command("nft", &["list", "ruleset"]));
    for (mode, taken) in [("VIP", true), ("Proxy", false)] {
        let status = format!(
            r#"{{"status": {{"loadBalancer": {{"ingress": [{{"ip": "192.0.2.7", "ipMode": "{mode}"}}]}}}}}}"#
        );
        cluster.kubectl(&["patch", "svc", "web", "--subresource", "status", "-p", &status]);
        until(&format!("kube-proxy takes the address of a {mode}: {taken}"), || {
            rules().contains("192.0.2.7") == taken
        });
    }
}

#[test]
fn a_killed_node_is_not_ready_and_comes_back() {
    let options = Options { node_grace: "10s".to_owned(), ..Options::default() };
    let Some(cluster) = Cluster::up(&options) else { return };
    let [mut a, _b] = ["a", "b"].map(|name| cluster.node(name));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let ready = || {
        runtime
            .block_on(async { nodes_ready(&client(cluster.kubeconfig()).await).await.expect("it answers") })
    };
    until("both are Ready", || ready() == ["a", "b"]);
    a.kill();
    until("only the other one is Ready", || ready() == ["b"]);
    a.start();
    until("it is back", || ready() == ["a", "b"]);
}

#[test]
fn an_api_server_that_was_killed_or_paused_is_the_same_again() {
    let Some(cluster) = up() else { return };
    cluster.kubectl(&["create", "namespace", "kept"]);
    cluster.pause_api();
    let hurried = ["get", "namespace", "kept", "--request-timeout", "1s"];
    assert!(cluster.try_kubectl(&hurried, "").is_err());
    cluster.resume_api();
    cluster.kubectl(&["get", "namespace", "kept"]);
    cluster.kill_api();
    assert!(cluster.try_kubectl(&hurried, "").is_err());
    cluster.start_api();
    cluster.kubectl(&["get", "namespace", "kept"]);
}

#[test]
fn anybody_has_a_kubeconfig_and_only_the_rights_that_are_theirs() {
    let Some(cluster) = up() else { return };
    let forbidden = |file: &Path| {
        let file = file.to_string_lossy().into_owned();
        let refused = cluster.try_kubectl(&["--kubeconfig", &file, "get", "nodes"], "");
        refused.is_err_and(|it| it.contains("forbidden"))
    };
    let account = "system:serviceaccount:default:default";
    let (ada, default) = (cluster.kubeconfig_of("ada", &["seamen"]), cluster.kubeconfig_of(account, &[]));
    assert!(forbidden(&ada) && forbidden(&default));
    for (name, to) in [("a", "--group=seamen"), ("b", "--serviceaccount=default:default")] {
        cluster.kubectl(&["create", "clusterrolebinding", name, "--clusterrole", "system:node", to]);
    }
    until("both may", || !forbidden(&ada) && !forbidden(&default));
}
