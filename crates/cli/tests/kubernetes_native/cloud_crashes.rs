//! Whatever befalls a controller at a request that changes something in a cloud: what is wanted comes to be there, once,
//! and nothing stays there in the end. The driver alone is held to more of it (crates/drivers/tests/octavia/crash.rs).

use std::{collections::BTreeMap, time::Duration};

use seaway_openstack::{
    neutron::{FixedIp, NewPort, Port, SecurityGroup, Subnet},
    octavia::{HealthMonitor, Listener},
    resource::Query,
};
use seaway_testkit::{
    faults::{Fault, RequestHold, RequestMatcher},
    topology::until_within,
};

use crate::{
    octavia::{Project, in_a_cloud},
    scene::*,
};

/// What befalls a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RequestFault {
    KilledBefore,
    KilledAfter,
    ReplyLost,
}

/// All that is asked for from the first day to the last.
const WRITES: [&str; 16] = [
    "POST */security-groups",
    "POST */security-group-rules",
    "PUT */ports/*",
    "POST */lbaas/loadbalancers",
    "POST */floatingips",
    "POST */lbaas/listeners",
    "POST */lbaas/pools",
    "PUT */lbaas/pools/*/members",
    "POST */lbaas/healthmonitors",
    "DELETE */lbaas/pools/*",
    "DELETE */lbaas/listeners/*",
    "DELETE */security-group-rules/*",
    "DELETE */floatingips/*",
    "PUT */ports/*",
    "DELETE */lbaas/loadbalancers/*",
    "DELETE */security-groups/*",
];

const LONG: Duration = Duration::from_secs(300);
const READY: &str = "{.status.conditions[?(@.type=='seaway.dev/Ready')].status}";

struct Walk {
    scene: Scene,
    project: Project,
    blow: RequestFault,
    /// Those that nobody came to yet.
    armed: Vec<(&'static str, RequestHold)>,
    running: String,
    started: usize,
    struck: Vec<&'static str>,
}

impl Walk {
    fn up(blow: RequestFault) -> Option<Walk> {
        let (mut scene, project) = in_a_cloud()?;
        scene.nodes = vec![scene.cluster.node("a")];
        project
            .reword("[LoadBalancer]\n", "[LoadBalancer]\nmanage-security-groups=true\ncreate-monitor=true\n");
        let mut walk = Walk {
            scene,
            project,
            blow,
            armed: Vec::new(),
            running: String::new(),
            started: 0,
            struck: Vec::new(),
        };
        walk.plug();
        Some(walk)
    }

    /// The Node has a port.
    fn plug(&mut self) {
        let at = self.scene.field("node/a", "{.status.addresses[0].address}").parse().expect("an address");
        let Project { runtime, cloud, subnet, .. } = &self.project;
        runtime.block_on(async {
            let network = cloud.all::<Subnet>().read::<Subnet>(subnet).await.expect("is read").network_id;
            let fixed = FixedIp { ip_address: Some(at), ..FixedIp::on(subnet.clone()) };
            let new = NewPort {
                fixed_ips: vec![fixed].into(),
                device_owner: "compute:nova".into(),
                ..NewPort::new(network)
            };
            cloud.all::<Port>().create(&new).await.expect("a port");
        });
    }

    /// What of these is to come is struck once; the same again is not.
    fn arm(&mut self) {
        let mut seen = BTreeMap::new();
        for write in WRITES {
            // Of a Node's port: when it gets the group, and when it gives it back. What was struck is asked for again,
            // unless it was done.
            let nth = seen
                .entry(write)
                .and_modify(|it| *it += if self.blow == RequestFault::KilledBefore { 2 } else { 1 });
            let nth = *nth.or_insert(1_usize);
            let (on, hold): (RequestMatcher, RequestHold) = (Fault::on(write).nth(nth), RequestHold::new());
            self.project.fake.fail(match self.blow {
                RequestFault::KilledBefore => on.hold(&hold),
                RequestFault::KilledAfter => on.hold_reply(&hold),
                RequestFault::ReplyLost => on.lose_reply(),
            });
            if self.blow != RequestFault::ReplyLost {
                self.armed.push((write, hold));
            }
        }
    }

    fn start(&mut self) {
        self.started += 1;
        self.running = format!("controller-{}", self.started);
        self.scene.lead(&self.running.clone());
    }

    fn is_struck(&mut self) {
        // Several load balancers and groups are worked on at once.
        let struck: Vec<_> =
            self.armed.extract_if(.., |(_, hold)| hold.waiting() > 0).map(|it| it.0).collect();
        if struck.is_empty() {
            return;
        }
        self.struck.extend(struck);
        self.scene.kill(&self.running.clone());
        // As if its term were over.
        self.scene.cluster.kubectl(&["delete", "lease", "seaway-controller", "--ignore-not-found"]);
        self.start();
    }

    /// How many there are of each kind.
    fn there(&self) -> BTreeMap<&'static str, usize> {
        let Project { runtime, cloud, .. } = &self.project;
        let (listeners, monitors, groups, ports) = runtime.block_on(async {
            (
                cloud.all::<Listener>().list::<Listener>(Query::all()).await.expect("are listed"),
                cloud.all::<HealthMonitor>().list::<HealthMonitor>(Query::all()).await.expect("are listed"),
                cloud.all::<SecurityGroup>().list::<SecurityGroup>(Query::all()).await.expect("are listed"),
                cloud.all::<Port>().list::<Port>(Query::all()).await.expect("are listed"),
            )
        });
        let ours: Vec<_> = groups.into_iter().filter(|it| it.name.starts_with("lb-sg-")).collect();
        let rules = ours.iter().flat_map(|it| &it.security_group_rules.0);
        let has_ours = |it: &&Port| it.security_groups.iter().any(|id| ours.iter().any(|it| it.id == *id));
        let all = [
            ("load balancers", self.project.balancers().len()),
            ("listeners", listeners.len()),
            ("monitors", monitors.len()),
            ("members", self.project.members().len()),
            ("floating IPs", self.project.floating().len()),
            ("groups", ours.len()),
            ("rules", rules.filter(|it| it.port_range_min.is_some()).count()),
            ("Nodes in the group", ports.iter().filter(has_ours).count()),
            ("VIPs", ports.iter().filter(|it| it.device_owner == "Octavia").count()),
        ];
        all.into_iter().filter(|(_, number)| *number > 0).collect()
    }

    fn comes_to(&mut self, what: &str, kinds: &[(&'static str, usize)], ready: &str) {
        let wanted: BTreeMap<_, _> = kinds.iter().copied().collect();
        let blow = self.blow;
        until_within(LONG, &format!("{blow:?}: {what}"), || {
            self.is_struck();
            self.there() == wanted && self.scene.field("service/shop", READY) == ready
        });
    }
}

fn ports(ports: &[(u16, &str)]) -> String {
    let one = |(port, protocol): &(u16, &str)| {
        format!("{{name: p{port}, port: {port}, targetPort: 80, protocol: {protocol}}}")
    };
    let all: Vec<String> = ports.iter().map(one).collect();
    format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: shop}}
spec: {{type: LoadBalancer, selector: {{app: shop}}, ports: [{}]}}
",
        all.join(", ")
    )
}

/// So many ports, each with what belongs to it.
fn whole(ports: usize) -> [(&'static str, usize); 9] {
    let each = ["listeners", "monitors", "members", "rules"].map(|it| (it, ports));
    let one = ["load balancers", "floating IPs", "groups", "Nodes in the group", "VIPs"].map(|it| (it, 1));
    let all: Vec<_> = each.into_iter().chain(one).collect();
    all.try_into().expect("nine")
}

fn walk(blow: RequestFault) {
    let Some(mut walk) = Walk::up(blow) else { return };
    walk.arm();
    walk.start();
    walk.scene.cluster.apply(&ports(&[(80, "TCP"), (53, "UDP")]));
    walk.comes_to("it is created", &whole(2), "True");
    walk.scene.cluster.apply(&ports(&[(80, "TCP"), (53, "UDP"), (443, "TCP")]));
    walk.comes_to("a port comes", &whole(3), "True");
    walk.scene.cluster.apply(&ports(&[(53, "UDP"), (443, "TCP")]));
    walk.comes_to("a port goes", &whole(2), "True");
    walk.scene.cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    walk.comes_to("it is deleted", &[], "");
    until_within(LONG, "nothing holds it", || walk.scene.is_gone("service/shop"));
    // The last of all may have been done just after it was looked whether somebody came to it.
    walk.is_struck();
    if blow != RequestFault::ReplyLost {
        assert!(
            walk.armed.is_empty(),
            "never came: {:?}",
            walk.armed.iter().map(|it| it.0).collect::<Vec<_>>()
        );
        assert_eq!(walk.struck.len(), WRITES.len());
    }
    let lost =
        walk.project.fake.requests().iter().filter(|it| it.method != "GET" && it.status.is_none()).count();
    assert!(lost >= WRITES.len(), "{lost} were struck");
}

#[test]
fn a_cloud_gets_what_is_wanted_from_a_controller_that_is_killed_before_each_kind_of_write() {
    walk(RequestFault::KilledBefore);
}

#[test]
fn a_cloud_gets_what_is_wanted_from_a_controller_that_is_killed_after_each_kind_of_write() {
    walk(RequestFault::KilledAfter);
}

#[test]
fn a_cloud_gets_what_is_wanted_though_the_reply_to_each_kind_of_write_is_lost() {
    walk(RequestFault::ReplyLost);
}
