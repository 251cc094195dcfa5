use seaway_openstack::{
    Call, Cloud, Service,
    neutron::{NewPort, Port},
    nova::{Attachment, Interface, NewInterface, NewServer, Server},
    resource::Query,
};

use super::{PATIENCE, network};

pub(crate) async fn servers_and_interfaces(cloud: &Cloud) {
    let (network, _) = network(cloud, "servers", "10.35.0.0/24").await;
    let new = NewServer {
        flavor_id: first(cloud, "flavors").await.into(),
        image_id: first(cloud, "images").await.into(),
        networks: vec![Attachment::Network(network.clone())].into(),
        ..NewServer::new("walk.1")
    };
    let servers = cloud.all::<Server>();
    let made = servers.create(&new).await.expect("a server");
    let server = servers.until_ready(&made.id, PATIENCE).await.expect("it becomes ACTIVE");
    assert_eq!(server.addresses["servers"][0].kind, "fixed", "{server:?}");
    let listed = servers.list::<Server>(Query::named(r"^walk\.1$")).await.expect("servers");
    assert_eq!(listed.iter().map(|it| &it.id).collect::<Vec<_>>(), [&server.id]);

    let port = NewPort { name: "second".into(), ..NewPort::new(network) };
    let port = cloud.all::<Port>().create(&port).await.expect("a port").id;
    let interfaces = cloud.within::<Interface>(&server.id);
    let new = NewInterface { port_id: port.clone().into(), ..NewInterface::new() };
    let plugged = interfaces.create(&new).await.expect("plugged in");
    assert_eq!(plugged.id, port.of());
    assert_eq!(interfaces.list::<Interface>(Query::all()).await.expect("interfaces").len(), 2);
    interfaces.delete(&plugged.id).await.expect("unplugged");
    interfaces.until_gone(&plugged.id, PATIENCE).await.expect("it goes");

    servers.delete(&server.id).await.expect("deleted");
    servers.until_gone(&server.id, PATIENCE).await.expect("it goes");
}

/// Flavors and images are for tests alone.
async fn first(cloud: &Cloud, kind: &str) -> String {
    let call = Call::get(Service::Compute, "list what tests need", format!("/{kind}"));
    let reply = cloud.call(call).await.expect("a list");
    reply.body[kind][0]["id"].as_str().expect("an id").to_owned()
}
