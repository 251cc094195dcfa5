//! `kubectl seaway`: a cluster looked at once, planned as a controller that does not lead, and told to people.

mod explain;
mod release;
mod status;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Result, anyhow, bail};
use seaway_admin::View;
use seaway_cluster::{Access, Cluster, Credentials, HostSight, Pulse, Sight};
use seaway_model::{
    Change, Fact, Name, Problem, Reason,
    config::{CloudDefaults, Opens},
    fact::Held,
};
use seaway_plan::{Roles, World};
use tokio::task::JoinSet;

use crate::{
    args::kubectl::{Host, Kubectl, KubectlCommand, Reach},
    control::now,
    member::cloud::CLASS,
    output,
    run::runtime,
    settings::{self, ByDefault},
};

pub(crate) fn run(arguments: &Kubectl) -> Result<ExitCode> {
    runtime()?.block_on(async {
        match &arguments.command {
            KubectlCommand::Status(arguments) => status::run(arguments).await,
            KubectlCommand::Explain(arguments) => explain::run(arguments).await,
            KubectlCommand::Drain(arguments) => drain(arguments, true).await,
            KubectlCommand::Undrain(arguments) => drain(arguments, false).await,
            KubectlCommand::Release(arguments) => release::run(arguments).await,
        }
    })
}

async fn connect(reach: &Reach) -> Result<Cluster> {
    let credentials = credentials(reach.kubeconfig.as_deref(), reach.context.as_deref());
    let namespace = Some(reach.system_namespace.as_str().into());
    Ok(Cluster::connect(Access { credentials, namespace, ..Access::default() }).await?)
}

/// As kubectl finds its cluster.
pub(crate) fn credentials(kubeconfig: Option<&Path>, context: Option<&str>) -> Credentials {
    match (kubeconfig, context) {
        (Some(path), context) => {
            Credentials::Kubeconfig { path: path.to_owned(), context: context.map(str::to_owned) }
        }
        (None, Some(context)) => Credentials::Context(context.to_owned()),
        (None, None) => Credentials::Found,
    }
}

async fn drain(arguments: &Host, drain: bool) -> Result<ExitCode> {
    let (cluster, host) = (connect(&arguments.reach).await?, &arguments.host);
    if let Err(why) = cluster.drain(host, drain).await {
        bail!("loadbalancerhosts.seaway.dev {host}: {why}{}", may_patch(&why.to_string()));
    }
    output::line(&match drain {
        true => {
            format!("{host} takes nobody new; who is connected may finish (kubectl seaway undrain {host})")
        }
        false => format!("{host} serves again"),
    });
    Ok(ExitCode::SUCCESS)
}

fn may_patch(why: &str) -> &'static str {
    match why {
        why if why.contains("forbidden") => {
            "\nWhoever drains hosts may `patch` `loadbalancerhosts`: an administrator allows it."
        }
        "it is not there" => "\nHosts that there are: kubectl seaway status",
        _ => "",
    }
}

/// A cluster at one moment.
struct Glance {
    sight: Sight,
    world: World,
    /// By host, what its status page tells; or why it tells nothing.
    pages: BTreeMap<Name, Result<View, String>>,
}

impl Glance {
    /// `sought`: the one Service whose counters matter.
    async fn at(reach: &Reach, cluster: &Cluster, sought: Option<&str>) -> Result<Glance> {
        let settings = settings::load(reach.config.as_deref())?;
        let mut config = settings.config;
        if config.front_door.opens == Opens::WhenNeeded {
            config.front_door.opens = Opens::Never;
        }
        let mut sight = cluster.look().await.map_err(|it| anyhow!("{}", at_length(&it.0)))?;
        config.classless = match settings.by_default {
            Some(it) => it == ByDefault::Native,
            None => serves_classless(&sight),
        };
        // Theirs are ours as well, and their controller has told what it knows of them.
        let classless = match settings.by_default {
            Some(it) => it == ByDefault::Octavia,
            None => holds_classless(&sight),
        };
        let defaults = CloudDefaults { classless, ..CloudDefaults::default() };
        config.clouds = [(CLASS.into(), Arc::new(defaults))].into();
        let mut world = World::new(Roles::default(), Vec::new(), Arc::new(config));
        world.apply(Change::Time(now()));
        for change in std::mem::take(&mut sight.changes) {
            world.apply(change);
        }
        let pages = pages(cluster, &sight.hosts, sought).await;
        Ok(Glance { sight, world, pages })
    }

    /// What else somebody should know who looks.
    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.sight.unseen.iter().map(at_length).collect();
        let unread = |(host, page): (&Name, &Result<View, String>)| {
            page.as_ref().err().map(|why| format!("host {host} tells no counters: {why}"))
        };
        notes.extend(self.pages.iter().filter_map(unread));
        notes
    }
}

/// How Seaway is configured there is not to be seen; what it does is.
fn serves_classless(sight: &Sight) -> bool {
    let ours = sight.services.iter().filter(|it| it.ready.is_some());
    let ours: BTreeSet<(&str, &str)> = ours.map(|it| (&*it.namespace, &*it.name)).collect();
    sight.changes.iter().any(|change| match change {
        Change::Put(Fact::Service(it)) => {
            it.class.is_none() && ours.contains(&(&*it.meta.namespace, &*it.meta.name))
        }
        _ => false,
    })
}

/// By its finalizer: so a cloud serves them, or did.
fn holds_classless(sight: &Sight) -> bool {
    sight.changes.iter().any(|change| match change {
        Change::Put(Fact::Service(it)) => it.class.is_none() && it.held == Held::ByUs,
        _ => false,
    })
}

fn at_length(problem: &Problem) -> String {
    let bind = match problem.message.contains("leases.") {
        true => {
            "And let whoever looks see them: kubectl create rolebinding NAME -n seaway-system \
             --clusterrole=seaway-lease-reader --user=WHO"
        }
        false => {
            "And let whoever looks see it: kubectl create clusterrolebinding NAME --clusterrole=seaway-viewer \
             --user=WHO"
        }
    };
    let lines = [problem.message.as_str(), &problem.fix];
    let bind = Some(bind).filter(|_| problem.reason == Reason::NotPermitted);
    let lines: Vec<&str> = lines.into_iter().filter(|it| !it.is_empty()).chain(bind).collect();
    lines.join("\n    ")
}

/// All at once: one that does not answer keeps nobody waiting for another.
async fn pages(
    cluster: &Cluster,
    hosts: &[(HostSight, Pulse)],
    sought: Option<&str>,
) -> BTreeMap<Name, Result<View, String>> {
    let path = sought.map_or("state".to_owned(), |it| format!("state?q={}", encoded(it)));
    let mut asked = JoinSet::new();
    for (host, _) in hosts.iter().filter(|(_, pulse)| pulse.may_live()) {
        let (cluster, path, page) = (cluster.clone(), path.clone(), host.running.page.clone());
        let name = host.report.host.clone();
        asked.spawn(async move {
            let Some(page) = page else {
                return (name, Err("it runs in no pod, or does not know in which".to_owned()));
            };
            let read = cluster.read_page(&page, &path).await.map_err(|why| why.to_string());
            (name, read.and_then(|it| serde_json::from_str(&it).map_err(|why| why.to_string())))
        });
    }
    asked.join_all().await.into_iter().collect()
}

/// As a query may have it (RFC 3986, 2.1).
fn encoded(text: &str) -> String {
    let byte = |it: u8| match it {
        b'-' | b'.' | b'_' | b'~' => char::from(it).to_string(),
        it if it.is_ascii_alphanumeric() => char::from(it).to_string(),
        it => format!("%{it:02X}"),
    };
    text.bytes().map(byte).collect()
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
    use super::*;

    #[test]
    fn what_is_sought_stays_one_word_of_the_query() {
        assert_eq!(encoded("default/shop-1.x"), "default%2Fshop-1.x");
        assert_eq!(encoded("a&limit=0 #\u{e4}%"), "a%26limit%3D0%20%23%C3%A4%25");
    }
}
