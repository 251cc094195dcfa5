//! `seaway openstack check` and `show`, against a cloud that lives in the test.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, process::Output};

use seaway_openstack::{
    Call, Cloud, Credentials, Service, Settings, Source,
    neutron::{
        FloatingIp, Gateway, Network, NewFloatingIp, NewNetwork, NewRouter, NewSubnet, Router, Subnet,
    },
    octavia::{
        Algorithm, LoadBalancer, MonitorType, NewHealthMonitor, NewListener, NewLoadBalancer, NewMember,
        NewPool, PoolProtocol, Protocol,
    },
    resource::Query,
};
use seaway_testkit::cloud::{self as fake, Fault};
use serde_json::{Value, json};

use crate::harness::{PATIENCE, run, seaway, stderr, stdout};

/// A fake cloud, and a folder whose clouds.yaml leads there.
struct Scene {
    fake: fake::Cloud,
    folder: tempfile::TempDir,
}

impl Scene {
    fn set() -> Scene {
        let scene = Scene { fake: fake::Cloud::start(), folder: tempfile::tempdir().expect("a folder") };
        scene.write("clouds.yaml", &scene.clouds("demopw"));
        scene
    }

    fn clouds(&self, password: &str) -> String {
        let auth = json!({
            "auth_url": self.fake.auth_url(), "username": "demo", "password": password, "project_name": "demo",
            "user_domain_id": "default", "project_domain_id": "default",
        });
        json!({"clouds": {"shop": {"auth": auth, "region_name": "RegionOne"}}}).to_string()
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.folder.path().join(name);
        fs::write(&file, text).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("for its owner alone");
        file
    }

    fn seaway(&self, arguments: &[&str]) -> Output {
        let mut command = seaway();
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OS_")) {
            command.env_remove(name);
        }
        command.current_dir(self.folder.path()).env("HOME", self.folder.path());
        command.arg("openstack").args(arguments).output().expect("seaway starts")
    }

    /// Two load balancers, one of them with all that a tree shows.
    fn furnish(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let credentials = Credentials::password(&self.fake.auth_url(), "demo", "demopw", "demo");
            let cloud =
                Cloud::connect(Source::Given(credentials), Settings::default()).await.expect("signed in");
            furnish(&cloud).await;
        });
    }
}

async fn furnish(cloud: &Cloud) {
    let network = NewNetwork { name: "shop".into(), ..NewNetwork::new() };
    let network = cloud.all::<Network>().create(&network).await.expect("a network").id;
    let subnet = NewSubnet { cidr: Some("10.50.0.0/24".to_owned()).into(), ..NewSubnet::new(network, 4) };
    let subnet = cloud.all::<Subnet>().create(&subnet).await.expect("a subnet").id;
    let balancers = cloud.all::<LoadBalancer>();
    let plain = NewLoadBalancer {
        provider: Some("ovn".to_owned()).into(),
        vip_subnet_id: Some(subnet.clone()).into(),
        ..NewLoadBalancer::new()
    };
    let idle = NewLoadBalancer { name: "idle".into(), ..plain.clone() };
    balancers.create(&idle).await.expect("a load balancer");
    let member = |last: u8| NewMember {
        name: format!("node-{last}").into(),
        ..NewMember::new(std::net::IpAddr::from([10, 50, 0, last]), 8080u16)
    };
    let pool = NewPool {
        name: "web".into(),
        members: vec![member(11), member(12)].into(),
        healthmonitor: NewHealthMonitor {
            name: "m".into(),
            ..NewHealthMonitor::new(MonitorType::Tcp, 5u64, 3u64, 2u64)
        }
        .into(),
        ..NewPool::new(PoolProtocol::Tcp, Algorithm::SourceIpPort)
    };
    let listener = NewListener {
        name: "web".into(),
        default_pool: pool.into(),
        ..NewListener::new(Protocol::Tcp, 80u16)
    };
    let web = NewLoadBalancer {
        name: "web".into(),
        tags: ["shop".to_owned()].into_iter().collect::<std::collections::BTreeSet<_>>().into(),
        listeners: vec![listener].into(),
        ..plain
    };
    let web = balancers.create(&web).await.expect("a load balancer").id;
    let web = balancers.until_ready(&web, PATIENCE).await.expect("it becomes ACTIVE");
    let outside = Query::all().with("router:external", true);
    let outside = cloud.all::<Network>().list::<Network>(outside).await.expect("networks").remove(0).id;
    let router = NewRouter {
        external_gateway_info: Some(Gateway::of_network(outside.clone())).into(),
        ..NewRouter::new()
    };
    let router = cloud.all::<Router>().create(&router).await.expect("a router").id;
    let path = format!("/routers/{router}/add_router_interface");
    let call = Call::put(Service::Network, "add router interface", path, json!({ "subnet_id": subnet }));
    cloud.call(call).await.expect("plugged in");
    let floating = NewFloatingIp { port_id: web.vip_port_id.into(), ..NewFloatingIp::new(outside) };
    cloud.all::<FloatingIp>().create(&floating).await.expect("a floating IP");
}

fn parsed(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).expect("it is JSON")
}

#[test]
fn check_tells_what_a_cloud_has_and_is_content() {
    let scene = Scene::set();
    let output = scene.seaway(&["check", "--cloud", "shop"]);
    let told = stdout(&output);
    assert!(output.status.success(), "{told}{}", stderr(&output));
    for part in [
        "as demo by password, project demo",
        "load-balancer_member",
        "network       http://127.0.0.1",
        "load-balancer http://127.0.0.1",
        "v2.30",
        "provider      ovn",
        "cannot: HTTP, TLS",
        "outside       public",
        "172.24.4.0/24",
        "quota         load balancers: 0 of",
        "quota         security groups: ",
    ] {
        assert!(told.contains(part), "{part:?} is missing:\n{told}");
    }
    assert!(!told.contains("MISSING"), "{told}");
    assert!(stderr(&output).contains("nothing is missing"), "{}", stderr(&output));
}

#[test]
fn check_names_what_is_missing_with_what_to_type_and_exits_with_1() {
    let scene = Scene::set();
    let cases = [
        (
            Fault::on("GET */lbaas/loadbalancers").always().status(403),
            "openstack role add --user demo --project demo",
        ),
        (
            Fault::on("GET */networks").always().reply(200, json!({"networks": []})),
            "openstack network create --external",
        ),
        (
            Fault::on("GET */lbaas/providers").always().reply(200, json!({"providers": []})),
            "enabled_provider_drivers",
        ),
        (
            Fault::on("GET */quotas/*/details.json")
                .always()
                .reply(200, json!({"quota": {"floatingip": {"limit": 2, "used": 2, "reserved": 0}}})),
            "all 2 floating IPs of the quota are used",
        ),
    ];
    for (fault, part) in cases {
        scene.fake.heal();
        scene.fake.fail(fault);
        let output = scene.seaway(&["check", "--cloud", "shop"]);
        let told = stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{part}:\n{told}");
        assert!(told.contains("MISSING") && told.contains(part), "{part:?} is missing:\n{told}");
        let json = parsed(&scene.seaway(&["check", "--cloud", "shop", "-o", "json"]));
        assert_eq!(json["findings"][0]["weight"], "missing", "{json}");
    }
}

#[test]
fn one_broken_service_hides_nothing_of_the_others() {
    let scene = Scene::set();
    scene.fake.fail(Fault::on("* /network/*").always().status(500));
    let output = scene.seaway(&["check", "--cloud", "shop"]);
    let told = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    for part in
        ["Neutron (network) does not answer", "provider      ovn", "quota         load balancers: 0 of"]
    {
        assert!(told.contains(part), "{part:?} is missing:\n{told}");
    }
}

#[test]
fn whoever_is_not_let_in_is_told_in_one_line() {
    let scene = Scene::set();
    scene.write("clouds.yaml", &scene.clouds("wrong"));
    let output = scene.seaway(&["check", "--cloud", "shop"]);
    let told = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.starts_with("MISSING") && told.contains("not signed in") && told.lines().count() == 1,
        "{told}"
    );
    assert!(!told.contains("wrong\"") && !stderr(&output).contains("demopw"), "{told}");
    let output = scene.seaway(&["show", "--cloud", "nowhere"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("no cloud \"nowhere\"") && stderr(&output).contains("shop"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn credentials_of_a_cloud_controller_manager_will_do_and_a_file_that_others_read_is_told() {
    let scene = Scene::set();
    let text = format!(
        "[Global]\nauth-url = {}\nusername = demo\npassword = demopw\ntenant-name = demo\ndomain-id = default\n\
         [BlockStorage]\nbs-version = v3\n",
        scene.fake.auth_url()
    );
    let file = scene.write("cloud.conf", &text);
    let file = file.to_str().expect("a plain name");
    let output = scene.seaway(&["check", "--cloud-conf", file]);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    fs::set_permissions(file, fs::Permissions::from_mode(0o644)).expect("for all to read");
    let output = scene.seaway(&["check", "--cloud-conf", file]);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    assert!(stderr(&output).contains("chmod"), "{}", stderr(&output));
}

#[test]
fn show_draws_load_balancers_as_trees() {
    let scene = Scene::set();
    scene.furnish();
    let output = scene.seaway(&["show", "--cloud", "shop"]);
    let told = stdout(&output);
    assert!(output.status.success(), "{told}{}", stderr(&output));
    let lines: Vec<&str> = told.lines().collect();
    let begin: [&str; 7] = [
        "idle  10.50.0.",
        "web  10.50.0.",
        "└─ TCP 80  web",
        "   └─ pool  web  TCP SOURCE_IP_PORT",
        "      ├─ monitor  TCP every 5 s, timeout 3 s, 2 in a row",
        "      ├─ 10.50.0.11:8080  node-11",
        "      └─ 10.50.0.12:8080  node-12",
    ];
    assert_eq!(lines.len(), begin.len(), "{told}");
    for (line, begin) in lines.iter().zip(begin) {
        assert!(line.starts_with(begin), "{begin:?}: {line}");
    }
    for part in ["floating IP 172.24.4.", "tags: shop"] {
        assert!(lines[1].contains(part), "{part:?} is missing: {told}");
    }

    let few = stdout(&scene.seaway(&["show", "web", "--cloud", "shop", "--no-members"]));
    assert!(few.contains("2 members") && !few.contains("idle") && !few.contains("node-11"), "{few}");
    let tagged = parsed(&scene.seaway(&["show", "--tag", "shop", "-o", "json", "--cloud", "shop"]));
    assert_eq!(tagged["loadBalancers"].as_array().map(Vec::len), Some(1), "{tagged}");
    let members = &tagged["loadBalancers"][0]["listeners"][0]["pool"]["members"];
    assert_eq!(members[1]["address"], "10.50.0.12", "{tagged}");
    let id = tagged["loadBalancers"][0]["id"].as_str().expect("an id");
    assert!(stdout(&scene.seaway(&["show", id, "--cloud", "shop"])).starts_with("web"));
    let nothing = scene.seaway(&["show", "wbe", "--cloud", "shop"]);
    assert_eq!((nothing.status.code(), stdout(&nothing).as_str()), (Some(1), ""));
    assert!(stderr(&nothing).contains("this load balancer does not exist"), "{}", stderr(&nothing));
}

#[test]
fn what_cannot_be_shown_is_told_and_the_rest_is_shown() {
    let scene = Scene::set();
    scene.furnish();
    scene.fake.fail(Fault::on("GET */floatingips").always().status(403));
    let output = scene.seaway(&["show", "--cloud", "shop"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("node-12"), "{}", stdout(&output));
    assert!(stderr(&output).contains("cannot be read: list floating IPs"), "{}", stderr(&output));
}

#[test]
fn help_teaches_by_examples() {
    for (arguments, part) in [
        (&["openstack", "--help"][..], "check"),
        (&["openstack", "check", "--help"], "seaway openstack check --cloud shop"),
        (&["openstack", "show", "--help"], "seaway openstack show web"),
    ] {
        let told = stdout(&run(arguments));
        assert!(told.contains(part), "{part:?} is missing:\n{told}");
    }
}
