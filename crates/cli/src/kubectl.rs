//! `kubectl seaway`: a cluster looked at once, planned as a controller that does not lead, and told to people.

mod class;
mod differs;
mod explain;
mod release;
mod status;

use std::{collections::BTreeMap, path::Path, process::ExitCode, sync::Arc};

use anyhow::{Result, anyhow, bail};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use seaway_admin::View;
use seaway_cluster::{
    Cluster, ClusterAccess, CredentialSource, HostInspection, HostLiveness, Inspection, RequestError,
    ServiceInspection,
};
use seaway_model::{
    Change, Fact, Name, Problem, Reason,
    config::{AdoptionConfig, CloudDefaults},
    fact::FinalizerOwner,
};
use seaway_plan::{Overview, RELEASED, Roles, World};
use tokio::task::JoinSet;

use crate::{
    args::kubectl::{ClusterArgs, Host, HostCommand, Kubectl, KubectlCommand},
    control::now,
    member::{Part, cloud::CLASS, in_cluster},
    output,
    run::runtime,
    settings::{self, DefaultDriver},
};

pub(crate) fn run(arguments: &Kubectl) -> Result<ExitCode> {
    runtime()?.block_on(async {
        match &arguments.command {
            KubectlCommand::Status(arguments) => status::run(arguments).await,
            KubectlCommand::Explain(arguments) => explain::run(arguments).await,
            KubectlCommand::Drain(arguments) => drain(arguments, true).await,
            KubectlCommand::Undrain(arguments) => drain(arguments, false).await,
            KubectlCommand::Host(HostCommand::Forget(arguments)) => forget(arguments).await,
            KubectlCommand::Release(arguments) => release::run(arguments).await,
        }
    })
}

async fn connect(reach: &ClusterArgs) -> Result<Cluster> {
    let credentials = credentials(reach.kubeconfig.as_deref(), reach.context.as_deref());
    let namespace = Some(reach.system_namespace.as_str().into());
    let metallb = settings::load(reach.config.as_deref())?.metallb;
    Ok(Cluster::connect(ClusterAccess { credentials, namespace, metallb, ..ClusterAccess::default() })
        .await?)
}

/// As kubectl finds its cluster.
pub(crate) fn credentials(kubeconfig: Option<&Path>, context: Option<&str>) -> CredentialSource {
    match (kubeconfig, context) {
        (Some(path), context) => {
            CredentialSource::Kubeconfig { path: path.to_owned(), context: context.map(str::to_owned) }
        }
        (None, Some(context)) => CredentialSource::Context(context.to_owned()),
        (None, None) => CredentialSource::Detected,
    }
}

async fn drain(arguments: &Host, drain: bool) -> Result<ExitCode> {
    let (cluster, host) = (connect(&arguments.reach).await?, &arguments.host);
    if let Err(why) = cluster.set_drain(host, drain).await {
        bail!("loadbalancerhosts.seaway.dev {host}: {why}{}", may_patch(&why));
    }
    output::line(&match drain {
        true => {
            format!(
                "host {host} accepts no new connections; open ones may finish. To end the drain: \
                     kubectl seaway undrain {host}"
            )
        }
        false => format!("host {host} accepts new connections again"),
    });
    Ok(ExitCode::SUCCESS)
}

/// Only what is not heard of any more.
async fn forget(arguments: &Host) -> Result<ExitCode> {
    let (cluster, host) = (connect(&arguments.reach).await?, &arguments.host);
    let pulse = cluster.host_liveness(host).await;
    let pulse = pulse.map_err(|why| anyhow!("the Lease of {host} cannot be read: {why}"))?;
    if pulse == HostLiveness::Alive {
        bail!(
            "host {host} is alive: its Lease is renewed. Before it can be forgotten, drain it with kubectl \
             seaway drain {host}, and stop it."
        );
    }
    if let Err(why) = cluster.forget_host(host).await {
        let may = match why.is_forbidden() {
            true => {
                "\nForgetting hosts needs the right to `delete` `loadbalancerhosts`: ask an administrator."
            }
            false => may_patch(&why),
        };
        bail!("loadbalancerhosts.seaway.dev {host}: {why}{may}");
    }
    output::line(&format!(
        "host {host} is forgotten: addresses that this host may hold can be given to other Services once \
         they are released"
    ));
    Ok(ExitCode::SUCCESS)
}

fn may_patch(why: &RequestError) -> &'static str {
    match why {
        why if why.is_forbidden() => {
            "\nDraining hosts needs the right to `patch` `loadbalancerhosts`: ask an administrator."
        }
        why if why.is_not_found() => "\nTo list the hosts: kubectl seaway status",
        _ => "",
    }
}

/// A cluster at one moment.
struct ClusterView {
    sight: Inspection,
    world: World,
    /// By host, what its status page tells; or why it tells nothing.
    pages: BTreeMap<Name, Result<View, String>>,
}

impl ClusterView {
    /// `sought`: the one Service whose counters matter.
    /// `namespace`: what is told of who may look at no other.
    async fn at(
        reach: &ClusterArgs,
        cluster: &Cluster,
        namespace: Option<&str>,
        sought: Option<&str>,
    ) -> Result<ClusterView> {
        let mut settings = settings::load(reach.config.as_deref())?;
        let mut sight =
            cluster.inspect(namespace).await.map_err(|it| anyhow!("{}", at_length(&it.0, BIND)))?;
        let by_default = *settings.by_default.get_or_insert_with(|| serves_classless(&sight));
        in_cluster(&mut settings, Part::Controller, None);
        let mut config = settings.config;
        // Its controller knows the cloud, and has said what it knows of each Service.
        let classless = by_default == DefaultDriver::Octavia;
        let defaults = CloudDefaults { classless, ..CloudDefaults::default() };
        config.clouds = [(CLASS.into(), Arc::new(defaults))].into();
        // What is adopted, only the controller knows; it has told.
        config.adopt = AdoptionConfig { beside_occm: true, ..AdoptionConfig::default() };
        let mut world = World::new(Roles::default(), Vec::new(), Arc::new(config));
        world.apply(Change::Time(now()));
        for change in std::mem::take(&mut sight.changes) {
            world.apply(change);
        }
        let pages = pages(cluster, &sight.hosts, sought).await;
        Ok(ClusterView { sight, world, pages })
    }

    /// What else somebody should know who looks.
    fn notes(&self) -> Vec<String> {
        let mut notes = unseen(&self.sight);
        notes.extend(self.sight.only.as_ref().map(|namespace| {
            format!(
                "you may list the namespace {namespace} only: hosts, pools and the leader are not shown. The ClusterRole \
                 seaway-viewer allows listing them."
            )
        }));
        let unread = |(host, page): (&Name, &Result<View, String>)| {
            page.as_ref().err().map(|why| format!("the counters of host {host} cannot be read: {why}"))
        };
        notes.extend(self.pages.iter().filter_map(unread));
        notes
    }
}

/// Whether a cloud serves it, or did.
fn is_of_cloud(overview: &Overview) -> bool {
    overview.demand.as_ref().is_some_and(|it| it.cloud.is_some())
}

/// Which driver serves Services without a class. How Seaway is configured there is not to be seen; what it does is: those
/// that a cloud serves have a finalizer, which may be one that the cloud provider's controller wrote before.
fn serves_classless(sight: &Inspection) -> DefaultDriver {
    let said: BTreeMap<(&str, &str), &ServiceInspection> =
        sight.services.iter().map(|it| ((&*it.namespace, &*it.name), it)).collect();
    let mut seen = DefaultDriver::None;
    for change in &sight.changes {
        let Change::Put(Fact::Service(service)) = change else { continue };
        let key = (&*service.meta.namespace, &*service.meta.name);
        let Some(said) = said.get(&key).filter(|_| service.class.is_none()) else { continue };
        let is_released = said.problems.iter().any(|it| it.contains(RELEASED));
        match (service.held, said.ready.is_some()) {
            _ if is_released => {}
            (FinalizerOwner::ByUs, _) | (FinalizerOwner::ByOthers, true) => return DefaultDriver::Octavia,
            (FinalizerOwner::No, true) => seen = DefaultDriver::Native,
            _ => {}
        }
    }
    seen
}

/// What could not be listed, and how an administrator permits it.
fn unseen(sight: &Inspection) -> Vec<String> {
    let leases = sight.unseen_leases.iter().map(|it| at_length(it, BIND_LEASES));
    leases.chain(sight.unseen.iter().map(|it| at_length(it, BIND))).collect()
}

const BIND_LEASES: &str = "To let a user list them: kubectl create rolebinding NAME -n seaway-system \
                           --clusterrole=seaway-lease-reader --user=USER";
const BIND: &str = "To let a user list them: kubectl create clusterrolebinding NAME --clusterrole=seaway-viewer \
                    --user=USER; or inspect one namespace only: -n NAMESPACE";

/// `bind`: how an administrator permits it.
fn at_length(problem: &Problem, bind: &str) -> String {
    let lines = [problem.message.as_str(), &problem.fix];
    let bind = Some(bind).filter(|_| problem.reason == Reason::NotPermitted);
    let lines: Vec<&str> = lines.into_iter().filter(|it| !it.is_empty()).chain(bind).collect();
    lines.join("\n    ")
}

/// All at once: one that does not answer keeps nobody waiting for another.
async fn pages(
    cluster: &Cluster,
    hosts: &[(HostInspection, HostLiveness)],
    sought: Option<&str>,
) -> BTreeMap<Name, Result<View, String>> {
    let path = sought.map_or("state".to_owned(), |it| format!("state?q={}", encoded(it)));
    let mut asked = JoinSet::new();
    for (host, _) in hosts.iter().filter(|(_, pulse)| pulse.may_live()) {
        let (cluster, path, page) = (cluster.clone(), path.clone(), host.running.page.clone());
        let name = host.report.host.clone();
        asked.spawn(async move {
            let Some(page) = page else {
                return (
                    name,
                    Err("the host does not run in a pod, or does not know the name of its pod".to_owned()),
                );
            };
            let read = cluster.read_status_page(&page, &path).await.map_err(|why| why.to_string());
            (name, read.and_then(|it| serde_json::from_str(&it).map_err(|why| why.to_string())))
        });
    }
    asked.join_all().await.into_iter().collect()
}

/// As a query may have it (RFC 3986, 2.1 and 2.3).
fn encoded(text: &str) -> String {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Open now, and since its program started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Connections {
    open: u64,
    total: u64,
}

/// Of a Service on a host, or of all of them.
fn connections(view: &View, service: Option<(&str, &str)>) -> Connections {
    let mut sum = Connections::default();
    let of =
        |it: &&seaway_admin::view::ServiceView| service.is_none_or(|key| key == (&*it.namespace, &*it.name));
    for service in view.services.iter().filter(of) {
        for listener in &service.listeners {
            sum.open += listener.sessions.current;
            sum.total += listener.sessions.total;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use seaway_model::fact::Service;
    use seaway_testkit::facts::shop;

    use super::*;

    #[test]
    fn how_to_permit_a_list_does_not_depend_on_words() {
        let object = seaway_model::ObjectRef::new(seaway_model::Kind::Config, "", "kubernetes");
        let problem = |reason| Problem::new(object.clone(), reason, "in other words");
        let refused = Inspection {
            unseen: vec![problem(Reason::NotPermitted), problem(Reason::Unreachable)],
            unseen_leases: Some(problem(Reason::NotPermitted)),
            ..Inspection::default()
        };
        let told = unseen(&refused);
        assert!(told[0].contains("seaway-lease-reader"), "{told:?}");
        assert!(told[1].contains("seaway-viewer"), "{told:?}");
        assert_eq!(told[2], "in other words");
    }

    #[test]
    fn what_is_sought_stays_one_word_of_the_query() {
        assert_eq!(encoded("default/shop-1.x"), "default%2Fshop-1.x");
        assert_eq!(encoded("a&limit=0 #\u{e4}%"), "a%26limit%3D0%20%23%C3%A4%25");
    }

    #[test]
    fn the_driver_of_services_without_a_class_is_seen_by_what_it_did() {
        let sight = |service: Service, is_told: bool, problem: &str| Inspection {
            services: vec![ServiceInspection {
                namespace: service.meta.namespace.clone(),
                name: service.meta.name.clone(),
                ready: is_told.then(|| (true, "Served".into(), "".into())),
                problems: Some(problem.to_owned()).into_iter().filter(|it| !it.is_empty()).collect(),
                ..ServiceInspection::default()
            }],
            changes: vec![Change::Put(Fact::Service(Arc::new(service)))],
            ..Inspection::default()
        };
        let held = |held: FinalizerOwner| Service { held, ..shop() };
        let of_a_class = |it: Service| Service { class: Some("seaway.dev/octavia".into()), ..it };
        for (sight, driver) in [
            (Inspection::default(), DefaultDriver::None),
            (sight(shop(), false, ""), DefaultDriver::None),
            (sight(shop(), true, ""), DefaultDriver::Native),
            (sight(held(FinalizerOwner::ByUs), false, ""), DefaultDriver::Octavia),
            (sight(held(FinalizerOwner::ByUs), true, RELEASED), DefaultDriver::None),
            // The cloud provider's controller serves it, or Seaway took it over.
            (sight(held(FinalizerOwner::ByOthers), false, ""), DefaultDriver::None),
            (sight(held(FinalizerOwner::ByOthers), true, ""), DefaultDriver::Octavia),
            (sight(of_a_class(held(FinalizerOwner::ByUs)), true, ""), DefaultDriver::None),
        ] {
            assert_eq!(serves_classless(&sight), driver, "{sight:?}");
        }
    }
}
