//! Whom a Service of somebody's may take addresses from by `spec.externalIPs`: nobody whose address is of a pool. On a real API
//! server, by the policies of `deploy/kubernetes/components/policies`.

use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use seaway_testkit::kubernetes::client;
use serde_json::json;

use crate::{
    policies::{POLICIES, installed, manifest, refused},
    scene::{Scene, eventually},
};

const POOLS: &str = "
apiVersion: seaway.dev/v1alpha1
kind: AddressPool
metadata: {name: public}
spec:
  addresses: [203.0.113.0/28, ' 198.51.100.9 - 198.51.101.20 ', 192.0.2.7, '2001:db8:113::/124', '2001:db8:5::ff-2001:db8:5:1::2', '::5-::ff']
---
apiVersion: seaway.dev/v1alpha1
kind: AddressPool
metadata: {name: machines}
spec: {hosts: true}
---
";

/// As many as a pool may have, each a range.
fn ranges() -> String {
    let range =
        |at: u32| format!("'2001:db8:{at:x}:aaaa:bbbb:cccc:dddd:1-2001:db8:{at:x}:aaaa:bbbb:cccc:dddd:ffff'");
    let all: Vec<String> = (0x1000..0x1100).map(range).collect();
    format!(
        "apiVersion: seaway.dev/v1alpha1\nkind: AddressPool\nmetadata: {{name: ranges}}\nspec: {{addresses: [{}]}}\n",
        all.join(", ")
    )
}

fn named(external: &[String]) -> Service {
    let spec = json!({"ports": [{"port": 80}], "externalIPs": external});
    serde_json::from_value(json!({"metadata": {"name": "evil"}, "spec": spec})).expect("is a Service")
}

fn dry() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

async fn services(scene: &Scene) -> Api<Service> {
    Api::namespaced(client(&scene.kubeconfig).await, &scene.namespace)
}

#[tokio::test]
async fn a_service_takes_no_address_of_a_pool_by_its_external_ips() {
    let Some(scene) = installed() else { return };
    let services = services(&scene).await;
    // What is there before it is an address of a pool.
    let before = ["203.0.113.9", "192.0.2.99"].map(str::to_owned);
    services.create(&PostParams::default(), &named(&before)).await.expect("no pool has it");
    scene.apply(&format!("{POOLS}{}", ranges()));
    let ask = async |external: &[String]| {
        let mut service = named(external);
        service.metadata.name = Some("asks".to_owned());
        services.create(&dry(), &service).await
    };
    eventually("policies and pools count", async || {
        let public = ask(&["192.0.2.7".to_owned()]).await.is_err();
        (public && ask(&["2001:db8:10ff:aaaa:bbbb:cccc:dddd:2".to_owned()]).await.is_err()).then_some(())
    })
    .await;
    for taken in [
        "203.0.113.7",
        "198.51.100.9",
        "198.51.100.255",
        "198.51.101.0",
        "198.51.101.20",
        "192.0.2.7",
        "2001:db8:113::f",
        "2001:0DB8:0113::5",
        "2001:db8:5::ff",
        "2001:db8:5:0:1::",
        "2001:db8:5:1::2",
        "::5",
        "::ff",
    ] {
        let told = refused(ask(&["192.0.2.8".to_owned(), taken.to_owned()]).await);
        let why = format!("spec.externalIPs: {taken} is an address of the AddressPool public");
        assert!(told.contains(&why) && told.contains("seaway.dev/address"), "{taken}: {told}");
    }
    for free in [
        "203.0.113.16",
        "198.51.100.8",
        "198.51.101.21",
        "198.51.20.10",
        "19.8.51.100",
        "192.0.2.6",
        "2001:db8:113::10",
        "2001:db8:5::fe",
        "2001:db8:5:1::3",
        "::4",
        "::100",
        "10.10.1.1",
    ] {
        ask(&[free.to_owned()]).await.unwrap_or_else(|error| panic!("{free}: {error}"));
    }
    // As many as are compared, with as many as a pool may have; more are not.
    let mut many: Vec<String> =
        (0..63).map(|at| format!("2001:db8:ffff:aaaa:bbbb:cccc:dddd:{:x}", 0x1000 + at)).collect();
    ask(&many).await.expect("no pool has any of them");
    many.push("2001:db8:10ff:aaaa:bbbb:cccc:dddd:eee".to_owned());
    let told = refused(ask(&many).await);
    assert!(told.contains("dddd:eee is an address of the AddressPool ranges"), "{told}");
    // Alone: of two policies that refuse, the API server says either.
    many.pop();
    many.extend(["2001:db8:ffff::1".to_owned(), "2001:db8:ffff::2".to_owned()]);
    let told = refused(ask(&many).await);
    assert!(told.contains("more than 64"), "{told}");
    // Of versions before 1.36, which take it for 203.0.113.7.
    for odd in ["203.0.113.007", "::ffff:203.0.113.7"] {
        assert!(ask(&[odd.to_owned()]).await.is_err(), "{odd}");
    }

    // What exists is changed as before, and loses what it has; it gets nothing more.
    let patch = async |body: serde_json::Value| {
        services.patch("evil", &PatchParams::default(), &Patch::Merge(body)).await
    };
    let more = ["203.0.113.9", "192.0.2.99", "203.0.113.10"];
    let told = refused(patch(json!({"spec": {"externalIPs": more}})).await);
    assert!(told.contains("203.0.113.10 is an address"), "{told}");
    for body in [
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"ports": [{"port": 81}]}}),
        json!({"spec": {"externalIPs": ["203.0.113.9", "192.0.2.98"]}}),
        json!({"spec": {"externalIPs": ["203.0.113.9"]}}),
        json!({"spec": {"externalIPs": null}}),
    ] {
        patch(body.clone()).await.unwrap_or_else(|error| panic!("{body}: {error}"));
    }
    let told = refused(patch(json!({"spec": {"externalIPs": ["203.0.113.9"]}})).await);
    assert!(told.contains("203.0.113.9 is an address"), "what it gave up it does not get back: {told}");
    // Without pools all is as it is in a cluster without Seaway.
    scene.kubectl(&["delete", "addresspools", "--all"]);
    eventually("no pool counts", async || ask(&["203.0.113.7".to_owned()]).await.ok().map(drop)).await;
}

#[tokio::test]
async fn services_are_written_where_address_pools_are_not_defined() {
    let Some(scene) = Scene::alone() else { return };
    scene.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: seaway-system}\n");
    scene.apply(&manifest(POLICIES));
    let services = services(&scene).await;
    let many: Vec<String> = (1..=65).map(|at| format!("192.0.2.{at}")).collect();
    eventually("policies count", async || {
        let answer = services.create(&dry(), &named(&many)).await;
        answer.err().filter(|it| it.to_string().contains("more than 64")).map(drop)
    })
    .await;
    for external in [&[][..], &["192.0.2.1".to_owned()]] {
        services.create(&dry(), &named(external)).await.expect("it is nobody's");
    }
}
