//! Nodes that are ports of Neutron, as machines of a cloud are.

use crate::{
    scene::deployment,
    stage::{Stage, until},
};

#[test]
fn a_node_that_is_a_port_of_neutron_serves_node_ports_to_its_network() {
    let Some(stage) = Stage::set(&["a", "b"]) else { return };
    let cluster = &stage.scene.cluster;
    cluster.apply(&deployment("shop", 1));
    cluster.apply(
        "
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {type: NodePort, ports: [{port: 80}], selector: {app: shop}}
",
    );
    cluster.kubectl(&["rollout", "status", "deployment/shop", "--timeout", "300s"]);
    let port = stage.scene.field("service/shop", "{.spec.ports[0].nodePort}");
    let pod = stage.scene.field("pods", "{.items[0].metadata.name}");

    let (client, here) = stage.land.machine("client");
    for node in &stage.scene.nodes {
        let said = stage.scene.field(&format!("node/{}", node.name()), "{.status.addresses[*].address}");
        let address = said.split(' ').next().unwrap_or_default();
        assert_eq!([address], node.addresses(), "what the Node says of itself is its address in Neutron");
        assert!(address.starts_with("10.0.0."), "{address}");
        let url = format!("http://{address}:{port}/");
        // Where the pod is not, kube-proxy leads on, over the cluster's own cable.
        until(&format!("{here:?} is answered by way of {}", node.name()), || {
            client.curl(&url).is_ok_and(|it| it.starts_with(&pod))
        });
    }
}
