//! A cluster that was rebuilt from a backup takes over the load balancers of the old one: `seaway openstack adopt --from-uid`.

use std::mem;

use crate::{
    leavings::says,
    scene::{Scene, deployment},
    stage::{AUTH_URL, Stage, until},
    tree::{beyond_tags, differences},
};

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: shop}
spec:
  type: LoadBalancer
  loadBalancerClass: seaway.dev/octavia
  selector: {app: shop}
  ports: [{name: a, port: 80}, {name: b, port: 81, targetPort: 80}]
";

#[test]
fn a_rebuilt_cluster_takes_over_load_balancers_of_the_old_one_with_their_addresses() {
    let Some(mut stage) = Stage::set(&["a"]) else { return };
    stage.land.monitors = "";
    stage.lead(AUTH_URL);
    stage.scene.cluster.apply(SERVICE);
    let address = stage.address("shop");
    let before = stage.land.at_rest(|all| !all.is_empty());
    let uid = |stage: &Stage| stage.scene.field("namespace/kube-system", "{.metadata.uid}");
    let old = uid(&stage);

    // The old cluster is gone, with its machine; the new one has a Service of the same name.
    stage.scene.kill("controller");
    let Some(rebuilt) = Scene::bare() else { return };
    let mut gone = mem::replace(&mut stage.scene, rebuilt);
    gone.nodes.clear();
    stage.join("b");
    stage.scene.cluster.apply(SERVICE);
    stage.scene.cluster.apply(&deployment("shop", 1));
    assert_ne!(uid(&stage), old);

    let (done, told) = says(&stage, &["adopt", "--from-uid", &old]);
    assert!(!done && told.contains("seaway crds | kubectl apply -f -") && !told.contains("purge"), "{told}");
    stage.scene.install();

    let there = stage.land.everything();
    let (done, listed) = says(&stage, &["adopt", "--from-uid", &old]);
    assert!(done && listed.contains("default/shop") && listed.contains("nothing was written"), "{listed}");
    assert_eq!(differences(&there, &stage.land.everything()), [""; 0], "it only looked");
    let (done, told) = says(&stage, &["adopt", "--from-uid", &old, "--yes"]);
    assert!(done && told.contains("1 of 1 adopted"), "{told}");
    stage.land.at_rest(|all| !all.is_empty());
    let changed = differences(&there, &stage.land.everything());
    assert!(!changed.is_empty());
    assert_eq!(beyond_tags(&changed), [""; 0], "tags and descriptions name the new cluster");
    let (done, told) = says(&stage, &["adopt", "--from-uid", &old, "--yes"]);
    assert!(done && told.contains("there is nothing to adopt"), "{told}");

    stage.scene.configuration = "{admin: {listen: [\"127.0.0.1:0\"]}, lease: 30s}";
    stage.scene.cluster_name = "seven";
    stage.scene.cloud = Some(stage.land.conf.path().to_owned());
    stage.scene.lead("controller");
    stage.answers(&format!("http://{address}/"), "shop");
    stage.answers(&format!("http://{address}:81/"), "shop");
    assert_eq!(stage.address("shop"), address);
    let now = stage.land.at_rest(|all| all.len() == before.len());
    let kept = |key: &&String| !key.starts_with("members");
    assert!(before.keys().filter(kept).eq(now.keys().filter(kept)), "{before:?} {now:?}");

    stage.scene.cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    until("nothing is left", || stage.land.told(&["loadbalancers", "floatingips"]).is_empty());
    drop(gone);
}
