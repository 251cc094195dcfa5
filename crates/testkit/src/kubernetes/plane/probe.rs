//! New objects of which controllers make others: once they have, they have heard of all that came before, in the order in
//! which it was stored.

use std::time::Duration;

use hyper::{Request, header::CONTENT_TYPE};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::sleep;

const NAME: &str = "seaway-testkit-probe";
const APPS: &str = "/apis/apps/v1/namespaces/default";
const CORE: &str = "/api/v1/namespaces";
const PAUSE: Duration = Duration::from_millis(20);

/// Makes such objects, and waits until each controller has answered. What is made stays.
pub(super) async fn answered(client: &Client) -> Result<(), kube::Error> {
    let labels = json!({"app": NAME});
    // No pod of it begins.
    let template = json!({
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "none", "image": "none"}], "nodeSelector": {NAME: "none"}},
    });
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    let mut none = spec.clone();
    none["replicas"] = json!(0);
    let service = json!({"selector": labels, "ports": [{"port": 80}]});
    create(client, CORE.to_owned(), &Value::Null).await?;
    create(client, format!("{APPS}/deployments"), &none).await?;
    create(client, format!("{APPS}/daemonsets"), &spec).await?;
    create(client, format!("{CORE}/default/services"), &service).await?;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let answers = [
        format!("{CORE}/{NAME}/serviceaccounts?limit=1"),
        format!("{CORE}/{NAME}/configmaps?limit=1"),
        format!("{CORE}/default/endpoints?fieldSelector=metadata.name={NAME}"),
        format!("{slices}?labelSelector=kubernetes.io/service-name={NAME}"),
        format!("{APPS}/replicasets?labelSelector=app={NAME}"),
        format!("{APPS}/daemonsets?fieldSelector=metadata.name={NAME}"),
    ];
    for path in answers {
        while !is_answered(client, &path).await? {
            sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Until it is there: the API server may not have heard yet of the end of a webhook or a quota that refuses it.
async fn create(client: &Client, path: String, spec: &Value) -> Result<(), kube::Error> {
    let mut object = json!({"metadata": {"name": NAME}});
    if !spec.is_null() {
        object["spec"] = spec.clone();
    }
    loop {
        let request = Request::post(&path).header(CONTENT_TYPE, "application/json");
        let request = request.body(object.to_string().into_bytes()).expect("a request");
        match client.request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.code != 409 => sleep(PAUSE).await,
            Err(kube::Error::Api(_)) | Ok(_) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Something is there, and a workload has been looked at.
async fn is_answered(client: &Client, path: &str) -> Result<bool, kube::Error> {
    let listed: Value = client.request(Request::get(path).body(Vec::new()).expect("a request")).await?;
    let is_workload = path.starts_with(APPS);
    Ok(listed["items"]
        .as_array()
        .is_some_and(|all| all.iter().any(|it| !is_workload || it["status"]["observedGeneration"] == 1)))
}
