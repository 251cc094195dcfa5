//! What a cluster keeps otherwise than it was written, and two of one name: told, and nothing is lost by it.

use std::collections::BTreeSet;

use seaway_testkit::topology::{until, until_within};

use crate::scene::{A_TERM, Scene, service};

fn owners(scene: &Scene) -> BTreeSet<String> {
    let told = scene.field("addresses", "{.items[*].spec.owners[*].name}");
    told.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_definition_that_is_older_is_named_and_two_of_one_name_are_two() {
    let Some(mut scene) = Scene::bare() else { return };
    scene.install();
    // Of a time when nothing was shared.
    let definition = scene.cluster.kubectl(&["get", "crd", "addresses.seaway.dev", "-o", "json"]);
    let mut definition: serde_json::Value = serde_json::from_str(&definition).expect("is JSON");
    let spec = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["properties"].as_object_mut().expect("has fields").remove("sharing").expect("it is shared");
    scene.cluster.kubectl(&["delete", "crd", "addresses.seaway.dev"]);
    for key in ["resourceVersion", "uid", "creationTimestamp"] {
        definition["metadata"].as_object_mut().expect("has fields").remove(key);
    }
    definition.as_object_mut().expect("has fields").remove("status");
    scene.cluster.apply(&definition.to_string());
    scene.cluster.kubectl(&["wait", "--for=condition=Established", "crd", "addresses.seaway.dev"]);

    scene.lead("twin");
    let shared = |name: &str, port: u16| {
        service(name, "selector: {app: shop}")
            .replace(
                &format!("name: {name}"),
                &format!("name: {name}, annotations: {{seaway.dev/share: web}}"),
            )
            .replace("port: 80", &format!("port: {port}"))
    };
    scene.cluster.apply(&shared("shop", 80));
    let problems = |name: &str| {
        let path = "{.status.conditions[?(@.type==\"seaway.dev/Problems\")].message}";
        scene.field(&format!("service/{name}"), path)
    };
    until("it is named", || {
        let told = problems("shop");
        told.contains("definition of Address is older") && told.contains("seaway crds | kubectl apply -f -")
    });
    scene.install_definitions();
    until_within(A_TERM, "it is mended", || {
        scene.field("address/203-0-113-0", "{.spec.sharing}") == "web" && !problems("shop").contains("older")
    });

    // Two controllers on machines of one name.
    scene.lead("twin#2");
    scene.cluster.apply(&[shared("other", 81), shared("greedy", 80)].join("---"));
    until("they share it, but for the port that is taken", || {
        scene.field("address/203-0-113-0", "{.spec.owners[*].name}") == "other shop"
    });
    let holder = scene.leader();
    scene.kill("twin");
    until_within(A_TERM, "the other leads", || {
        let now = scene.leader();
        now != holder && now.starts_with("twin_")
    });
    scene.cluster.apply(&service("last", "selector: {app: shop}"));
    until_within(A_TERM, "it gives addresses out", || owners(&scene).contains("last"));
    let counted = scene.field("addresses", "{.items[*].metadata.name}").split_whitespace().count();
    assert_eq!(counted, 3, "shop and other, greedy, last: {:?}", owners(&scene));
}
