use std::path::Path;

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// A client for whoever a kubeconfig names. It must be made in a runtime.
pub async fn client(kubeconfig: &Path) -> Client {
    let file = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("it names a cluster")).expect("its certificates are good")
}

/// The names of the nodes that are Ready.
pub async fn nodes_ready(client: &Client) -> Result<Vec<String>, kube::Error> {
    let nodes = Api::<Node>::all(client.clone()).list(&Default::default()).await?;
    Ok(nodes.items.into_iter().filter(is_ready).filter_map(|it| it.metadata.name).collect())
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().filter_map(|it| it.conditions.as_ref()).flatten();
    conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True")
}
