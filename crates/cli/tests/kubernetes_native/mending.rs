//! What only somebody else can mend: told once, with what to do, asked for seldom; and once it is mended, it is done.

use std::collections::BTreeMap;

use seaway_openstack::{
    Cloud, Credentials, Settings, Source,
    neutron::{Network, NewNetwork, NewPort, NewSubnet, Port, Subnet},
    resource::Id,
};
use seaway_testkit::{cloud::Fault, topology::until};
use serde_json::json;

use crate::{
    leavings::serve,
    octavia::{Project, in_a_cloud},
};

/// Of one Service that is told, while those are made that were refused before.
const MOST: usize = 150;
const NOBODY: &str = "0f2b8f8e-6a55-4f3b-9d9e-3f1c9f8e0a71";

struct CloudProblem {
    service: &'static str,
    annotations: String,
    /// What is told, and what to do.
    words: &'static [&'static str],
    begin: ProblemCause,
}

enum ProblemCause {
    /// Of Octavia, or of Neutron: none more of these.
    Quota(&'static str),
    Fault(fn() -> Fault),
    /// Its own annotations, or the file, say what is not so.
    Nothing,
}

struct Operator<'p> {
    project: &'p Project,
    cloud: Cloud,
    id: String,
}

impl Operator<'_> {
    fn of(project: &Project) -> Operator<'_> {
        let credentials = Credentials::password(&project.fake.auth_url(), "admin", "adminpw", "admin");
        let cloud = Cloud::connect(Source::Given(credentials), Settings::default());
        let cloud = project.runtime.block_on(cloud).expect("signed in");
        Operator { project, cloud, id: project.fake.project_id("demo").expect("it is there") }
    }

    fn limit(&self, kind: &str, limit: i64) {
        let limits: BTreeMap<String, i64> = [(kind.to_owned(), limit)].into();
        self.project.runtime.block_on(async {
            match kind {
                "load_balancer" | "listener" => {
                    self.cloud.load_balancer_quotas(&self.id).change(&limits).await.expect("is set");
                }
                _ => self.cloud.network_quotas(&self.id).change(&limits).await.expect("is set"),
            }
        });
    }

    fn begin(&self, it: &ProblemCause) {
        match it {
            ProblemCause::Quota(kind) => self.limit(kind, 0),
            ProblemCause::Fault(fault) => self.project.fake.fail(fault()),
            ProblemCause::Nothing => {}
        }
    }

    fn mend(&self, it: &ProblemCause) {
        match it {
            ProblemCause::Quota(kind) => self.limit(kind, 500),
            ProblemCause::Fault(_) => self.project.fake.heal(),
            ProblemCause::Nothing => {}
        }
    }
}

/// A subnet with room for no more; who takes the room.
fn full(project: &Project) -> (Id<Subnet>, Vec<Id<Port>>) {
    project.runtime.block_on(async {
        let network = NewNetwork { name: "tiny".into(), ..NewNetwork::new() };
        let network = project.cloud.all::<Network>().create(&network).await.expect("a network").id;
        let new = NewSubnet {
            cidr: Some("192.168.7.0/30".to_owned()).into(),
            ..NewSubnet::new(network.clone(), 4)
        };
        let subnet = project.cloud.all::<Subnet>().create(&new).await.expect("a subnet").id;
        let mut ports = Vec::new();
        while let Ok(it) = project.cloud.all::<Port>().create(&NewPort::new(network.clone())).await {
            ports.push(it.id);
        }
        (subnet, ports)
    })
}

fn forbidden() -> Fault {
    let text = "Policy does not allow this request to be performed.";
    let no = json!({ "faultcode": "Client", "faultstring": text, "debuginfo": null });
    Fault::on("POST */lbaas/loadbalancers").always().reply(403, no)
}

#[test]
fn what_somebody_must_mend_is_told_once_with_what_to_do_and_goes_on_by_itself() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    project.port_of("a", &scene.field("node/a", "{.status.addresses[0].address}"));
    let operator = Operator::of(&project);
    let (tiny, ports) = full(&project);
    project.reword("[BlockStorage]", "manage-security-groups=true\n[BlockStorage]");
    project.reword("demopw", "wrong");
    scene.lead("controller");
    let internal = "seaway.dev/internal: \"true\"";
    let troubles = [
        ("password", String::new(), &["password is wrong", "Check user"][..], ProblemCause::Nothing),
        ("group", String::new(), &["security"], ProblemCause::Quota("security_group")),
        (
            "role",
            String::new(),
            &["Policy does not allow", "openstack role assignment list"],
            ProblemCause::Fault(forbidden),
        ),
        (
            "balancer",
            String::new(),
            &["load balancer", "loadbalancer quota set"],
            ProblemCause::Quota("load_balancer"),
        ),
        ("listener", String::new(), &["listener", "quota set"], ProblemCause::Quota("listener")),
        ("port", String::new(), &["port", "openstack quota set"], ProblemCause::Quota("port")),
        ("address", String::new(), &["floating", "quota set"], ProblemCause::Quota("floatingip")),
        ("network", format!("seaway.dev/floating-network: {NOBODY}"), &[NOBODY], ProblemCause::Nothing),
        (
            "subnet",
            format!("{internal}, seaway.dev/subnet: {tiny}"),
            &["address", "subnet"],
            ProblemCause::Nothing,
        ),
        (
            "neutron",
            String::new(),
            &["Neutron fails on requests", "is retried"],
            ProblemCause::Fault(|| Fault::on("POST */floatingips").always().status(500)),
        ),
        (
            "octavia",
            String::new(),
            &["Octavia cannot be reached", "is retried"],
            ProblemCause::Fault(|| Fault::on("* /load-balancer/*").always().lose_request()),
        ),
    ];
    let troubles = troubles.map(|(service, annotations, words, begin)| CloudProblem {
        service,
        annotations,
        words,
        begin,
    });
    for it in &troubles {
        operator.begin(&it.begin);
        project.fake.forget_requests();
        serve(&scene, it.service, 80, &it.annotations);
        scene.until_told(it.service, it.words);
        until("an event says it", || !scene.warnings(it.service).is_empty());
        let (warnings, requests) = (scene.warnings(it.service), project.fake.requests().len());
        assert_eq!(warnings.len(), 1, "{}: {warnings:?}", it.service);
        let said = warnings[0].to_lowercase();
        assert!(it.words.iter().any(|it| said.contains(&it.to_lowercase())), "{}: {said}", it.service);
        assert!(requests <= MOST, "{}: {requests} requests", it.service);
        operator.mend(&it.begin);
        match it.service {
            // Nobody makes a group before the next has its trouble, nor is told of this one any more.
            "password" => {
                operator.begin(&troubles[1].begin);
                project.reword("wrong", "demopw");
                scene.until_told(it.service, troubles[1].words);
            }
            // Who is away for one is away for all.
            "neutron" => {
                for it in troubles.iter().take_while(|it| it.service != "octavia") {
                    scene.until_served(&[it.service]);
                    until("it is away for nobody any more", || scene.problems(it.service).is_empty());
                }
            }
            "network" => serve(&scene, it.service, 80, ""),
            "subnet" => project.runtime.block_on(async {
                for id in &ports {
                    project.cloud.all::<Port>().delete(id).await.expect("is deleted");
                }
            }),
            _ => {}
        }
    }
    for it in &troubles {
        scene.until_served(&[it.service]);
        until("nothing is wrong any more", || scene.problems(it.service).is_empty());
    }
    assert_eq!(project.balancers().len(), troubles.len(), "each has one");
    assert_eq!(project.floating().len(), troubles.len() - 1, "each has one but who is internal");
    let groups = project
        .everything()
        .values()
        .filter(|it| it.starts_with("SecurityGroup") && it.contains("lb-sg-"))
        .count();
    assert_eq!(groups, 1);
    let names: Vec<&str> = troubles.iter().map(|it| it.service).collect();
    scene.cluster.kubectl(&[&["delete", "service"][..], &names].concat());
    assert!(project.balancers().is_empty() && project.floating().is_empty());
}
