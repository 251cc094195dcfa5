//! Who stands behind a Service, in every way to write it.

use std::{
    net::{SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use crate::{
    backends::{Backend, Datagrams, Talk, Web, ask as ask_by_udp, manifest},
    front_door::{ask, with_door},
    harness::{Seaway, Setup, own_addresses, until},
    manifests::Service,
};

const TERMINATING: &str = "ready: false, serving: true, terminating: true";

fn only(seaway: &Seaway, port: u16, name: &str) {
    until(&format!("{name} alone answers"), || {
        (0..6).all(|_| Talk::open(seaway.at(port)).is_ok_and(|it| it.with == name))
    });
}

/// When the connection is cut; it is used until then.
fn cut(talk: &mut Talk) -> Instant {
    until("it is cut", || talk.echo(b"still here?").is_err());
    Instant::now()
}

#[test]
fn a_terminating_endpoint_gets_nobody_new_and_its_connections_may_finish() {
    let (goes, stays) = (Backend::start("goes"), Backend::start("stays"));
    let service = Service::tcp("shop", 8080).with("drain", "1h");
    let seaway = Setup::new().write("shop.yaml", &service.clone().to(goes.at).text()).start();
    let mut long = Talk::open(seaway.at(8080)).expect("served");
    seaway.folder.write("shop.yaml", &service.clone().being(TERMINATING, goes.at).to(stays.at).text());
    only(&seaway, 8080, "stays");
    until("it drains", || seaway.member(goes.at)["state"] == "draining");
    long.echo(b"let me finish").expect("it may");
    // Taken off the list, it drains still.
    seaway.folder.write("shop.yaml", &service.to(stays.at).text());
    until("it is off the list", || {
        seaway.member(goes.at).is_null() || seaway.member(goes.at)["state"] == "draining"
    });
    long.echo(b"let me finish").expect("it may");
}

#[test]
fn a_drain_ends_at_its_deadline() {
    let (goes, stays) = (Backend::start("goes"), Backend::start("stays"));
    let service = Service::tcp("shop", 8080).with("drain", "800ms");
    let seaway = Setup::new().write("shop.yaml", &service.clone().to(goes.at).text()).start();
    let mut long = Talk::open(seaway.at(8080)).expect("served");
    let begun = Instant::now();
    seaway.folder.write("shop.yaml", &service.clone().being(TERMINATING, goes.at).to(stays.at).text());
    assert!(cut(&mut long) - begun >= Duration::from_millis(700), "it was given its time");
    only(&seaway, 8080, "stays");
}

#[test]
fn a_member_that_is_removed_drains_until_the_deadline_too() {
    let (goes, stays) = (Backend::start("goes"), Backend::start("stays"));
    let service = Service::tcp("shop", 8080).with("drain", "800ms");
    let seaway = Setup::new().write("shop.yaml", &service.clone().to(goes.at).text()).start();
    let mut long = Talk::open(seaway.at(8080)).expect("served");
    let begun = Instant::now();
    seaway.folder.write("shop.yaml", &service.to(stays.at).text());
    only(&seaway, 8080, "stays");
    assert!(cut(&mut long) - begun >= Duration::from_millis(700), "it was given its time");
}

#[test]
fn a_service_that_is_removed_lets_its_connections_finish() {
    let backend = Backend::start("a");
    let service = Service::tcp("shop", 8080).with("drain", "800ms").to(backend.at);
    let seaway = Setup::new().write("shop.yaml", &service.text()).start();
    let mut long = Talk::open(seaway.at(8080)).expect("served");
    let begun = Instant::now();
    seaway.folder.remove("shop.yaml");
    until("nobody new comes in", || Talk::open(seaway.at(8080)).is_err());
    assert!(cut(&mut long) - begun >= Duration::from_millis(700), "it was given its time");
}

#[test]
fn where_all_are_terminating_those_that_still_serve_are_used() {
    let (serves, dead) = (Backend::start("serves"), Backend::start("dead"));
    let service = Service::tcp("shop", 8080)
        .being(TERMINATING, serves.at)
        .being("ready: false, serving: false, terminating: true", dead.at);
    let seaway = Setup::new().write("shop.yaml", &service.text()).start();
    only(&seaway, 8080, "serves");
}

#[test]
fn an_endpoint_that_is_not_ready_is_left_out_unless_such_are_published() {
    let (ready, not) = (Backend::start("ready"), Backend::start("not"));
    let service = Service::tcp("shop", 8080).to(ready.at).being("ready: false", not.at);
    let seaway = Setup::new().write("shop.yaml", &service.text()).start();
    only(&seaway, 8080, "ready");
    seaway.folder.write("shop.yaml", &service.spec("publishNotReadyAddresses: true").text());
    until("both answer", || Talk::open(seaway.at(8080)).is_ok_and(|it| it.with == "not"));
}

#[test]
fn endpoints_objects_are_read_as_slices_are() {
    let (ready, not) = (Backend::start("ready"), Backend::start("not"));
    let text = |ready: SocketAddr, not: SocketAddr| {
        Service::tcp("shop", 8080).text()
            + &format!(
                "---\napiVersion: v1\nkind: Endpoints\nmetadata: {{name: shop}}\nsubsets:\n- addresses: [{{ip: {}}}]\n  ports: [{{name: main, port: {}}}]\n- notReadyAddresses: [{{ip: {}}}]\n  ports: [{{name: main, port: {}}}]\n",
                ready.ip(),
                ready.port(),
                not.ip(),
                not.port()
            )
    };
    let seaway = Setup::new().write("shop.yaml", &text(ready.at, not.at)).start();
    only(&seaway, 8080, "ready");
    seaway.folder.write("shop.yaml", &text(not.at, ready.at));
    only(&seaway, 8080, "not");
}

#[test]
fn a_list_in_json_is_read_as_its_items() {
    let backend = Backend::start("a");
    let slice = serde_json::json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "shop-1", "labels": {"kubernetes.io/service-name": "shop"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [backend.at.ip().to_string()]}],
        "ports": [{"name": "main", "port": backend.at.port(), "protocol": "TCP"}],
    });
    let service = |port: u16| {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop"},
            "spec": {"type": "LoadBalancer", "ports": [{"name": "main", "port": port}]},
        })
    };
    let list =
        |port| serde_json::json!({"apiVersion": "v1", "kind": "List", "items": [service(port), slice]});
    let seaway = Setup::new().write("all.json", &list(8080).to_string()).start();
    only(&seaway, 8080, "a");
    assert!(seaway.problems().is_empty(), "{:?}", seaway.problems());
    let mut wrong = list(8080);
    wrong["items"][0]["spec"]["ports"][0]["port"] = serde_json::json!("eighty");
    let pretty = serde_json::to_string_pretty(&wrong).expect("JSON");
    seaway.folder.write("all.json", &pretty);
    let line = 1 + pretty.lines().position(|it| it.contains("eighty")).expect("it is there");
    until("the mistake is told with its line", || {
        seaway.problems().iter().any(|it| it.2.contains(&format!("all.json:{line}:")))
    });
    only(&seaway, 8080, "a");
    seaway.folder.write("all.json", &list(8081).to_string());
    only(&seaway, 8081, "a");
}

#[test]
fn a_target_port_is_found_by_its_name() {
    let backend = Backend::start("a");
    let text = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: shop}}\nspec:\n  type: LoadBalancer\n  ports:\n  - {{name: http, port: 8080, targetPort: web}}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: shop-1, labels: {{kubernetes.io/service-name: shop}}}}\naddressType: IPv4\nendpoints: [{{addresses: [{}]}}]\nports: [{{name: web, port: {}}}]\n",
        backend.at.ip(),
        backend.at.port()
    );
    let seaway = Setup::new().write("shop.yaml", &text).start();
    only(&seaway, 8080, "a");
    seaway.folder.write("shop.yaml", &text.replace("{name: web,", "{name: wbe,"));
    until("the wrong name is told", || seaway.has_problem("NoSuchPort"));
}

#[test]
fn a_headless_service_is_served_by_the_configuration() {
    let backend = Backend::start("a");
    let service = Service::tcp("db", 5432).cluster_ip().spec("clusterIP: None").to(backend.at);
    let config = "tcpServices: [db:5432]\nudpServices: [db:5353]\n";
    let seaway = Setup::new().config(config).write("db.yaml", &service.text()).start();
    only(&seaway, 5432, "a");
    // It has no such UDP port: that entry alone is spoiled, and told.
    until("it is told", || seaway.has_problem("NoSuchPort"));
}

#[test]
fn a_pool_of_metallb_is_taken_as_it_is() {
    let backend = Backend::start("a");
    let [first, last] = own_addresses();
    let pool = format!(
        "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {{name: public, namespace: metallb-system}}\nspec:\n  addresses: [{first}-{last}]\n"
    );
    let service = Service::tcp("shop", 8080).to(backend.at);
    let seaway = Setup::new().write("pool.yaml", &pool).write("shop.yaml", &service.text()).start();
    let served = Talk::open((first, 8080).into()).or_else(|_| Talk::open((last, 8080).into()));
    assert_eq!(served.expect("served on an address of the pool").with, "a");
    assert!(Talk::open(seaway.at(8080)).is_err(), "not on the host's own");
    assert!(seaway.problems().is_empty(), "{:?}", seaway.problems());
}

#[test]
fn an_external_name_that_is_no_name_is_refused() {
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: db}\nspec: {type: ExternalName, externalName: \"not a name\"}\n";
    let seaway = Setup::new().write("db.yaml", text).start();
    until("it is told", || {
        seaway.problems().iter().any(|it| it.0 == "Invalid" && it.2.contains("db.yaml:4:"))
    });
}

#[test]
fn backends_in_one_line_are_served_and_followed_and_a_mistake_leaves_them_as_they_were() {
    let (a, b) = (Backend::start("a"), Backend::start("b"));
    let naming = |backends: &str| manifest("shop", 8080, &[("seaway.dev/backends", backends)], &[]);
    let seaway = Setup::new().write("shop.yaml", &naming(&a.at.to_string())).start();
    only(&seaway, 8080, "a");
    seaway.folder.write("shop.yaml", &naming(&format!("{} weight=0, {}", a.at, b.at)));
    only(&seaway, 8080, "b");
    seaway.folder.write("shop.yaml", &naming("localhost:8080"));
    until("it is told", || seaway.problems().iter().any(|it| it.1.contains("write 127.0.0.1")));
    only(&seaway, 8080, "b");
    seaway.folder.write("shop.yaml", &naming(&a.at.to_string()));
    only(&seaway, 8080, "a");
    // Without it, nobody answers, and the line to write is told.
    seaway.folder.write("shop.yaml", &manifest("shop", 8080, &[], &[]));
    until("it is told", || seaway.state()["problems"].to_string().contains("seaway.dev/backends"));
}

#[test]
fn backends_in_one_line_are_served_by_udp_and_by_http_of_a_host_and_path() {
    let (dns, web, other) = (Datagrams::start("u"), Web::start("web"), Web::start("other"));
    let by_host = |name: &str, host: &str, backends: String| {
        Service::web(name).with("host", host).with("backends", &backends).text()
    };
    let seaway = with_door("")
        .write("dns.yaml", &Service::udp("dns", 5353).with("backends", &dns.at.to_string()).text())
        .write("web.yaml", &by_host("web", "shop.example/api", format!("{} name=a weight=2", web.at)))
        .write("other.yaml", &by_host("other", "shop.example", other.at.to_string()))
        .start();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    assert_eq!(ask_by_udp(&socket, seaway.at(5353), b"q").expect("answered"), b"u q");
    for (url, expected) in
        [("shop.example/api/x", "web"), ("shop.example/", "other"), ("shop.example/apis", "other")]
    {
        assert_eq!(ask(seaway.at(8080), "GET", url, "").body, expected, "{url}");
    }
    assert_eq!(seaway.member(web.at)["name"], "a");
    assert_eq!(seaway.problems(), []);
}
