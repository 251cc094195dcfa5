//! `plan --cloud`: what a controller would do in a cloud now. The cluster and the cloud are asked, and neither is changed.

mod diff;
mod filter;
mod members;
mod parallel;
mod report;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Result, anyhow, bail};
use seaway_cluster::{Cluster, ClusterAccess};
use seaway_drivers::octavia::{Audited, groups::Groups};
use seaway_engine::{Attempt, Driver, Failure, dry_run};
use seaway_model::{Change, Desired, LbKey, ObjectRef, Owner, Problem, Unit};
use seaway_openstack::Settings as CloudSettings;
use seaway_plan::{Roles, World};

use self::{
    diff::{Describe, Diff},
    filter::{Filter, object_of},
};
use crate::{
    args::{Output, Plan},
    control::now,
    kubectl::credentials,
    member::{Part, cloud, in_cluster},
    output,
    run::runtime,
    settings::Settings,
};

/// What would become of one thing in the cloud.
#[derive(Debug)]
struct PlannedObject {
    whose: String,
    /// The Service, if it is for one.
    object: Option<ObjectRef>,
    steps: Vec<Diff>,
    /// What is done once all steps are, and others have done theirs.
    later: Vec<String>,
    /// Why nothing would, or not all of it.
    problems: Vec<String>,
}

/// As a controller that is started with these arguments.
pub(crate) fn settings_of(arguments: &Plan, file: &Path) -> Result<Settings> {
    let mut settings = arguments.common.settings()?;
    in_cluster(&mut settings, Part::Controller, Some(file));
    if let Some(why) = cloud::refused(&settings) {
        bail!("{why}");
    }
    Ok(settings)
}

pub(super) fn plan(arguments: &Plan, file: &Path) -> ExitCode {
    match shown(arguments, file) {
        Ok(code) => code,
        Err(error) => {
            output::error(&format!("seaway: {}", seaway_engine::chain(error.as_ref())));
            // Scripts take 1 for changes: what is not known is none.
            ExitCode::from(report::PROBLEMS)
        }
    }
}

fn shown(arguments: &Plan, file: &Path) -> Result<ExitCode> {
    let settings = settings_of(arguments, file)?;
    for line in settings.doubts.iter().chain(&settings.told) {
        output::error(&format!("warning: {line}"));
    }
    let prospects = runtime()?.block_on(look(arguments, file, &settings))?;
    match arguments.output {
        Output::Json => output::line(&serde_json::to_string_pretty(&report::as_json(&prospects))?),
        Output::Table => {
            output::line(&report::table(&prospects));
            prospects.iter().flat_map(|it| &it.problems).for_each(|it| output::error(it));
            output::error(&report::summary(&prospects));
        }
    }
    Ok(report::exit(&prospects))
}

async fn look(arguments: &Plan, file: &Path, settings: &Settings) -> Result<Vec<PlannedObject>> {
    let credentials = credentials(arguments.kubeconfig.as_deref(), arguments.context.as_deref());
    let metallb = settings.metallb.clone();
    let cluster =
        Cluster::connect(ClusterAccess { credentials, metallb, ..ClusterAccess::default() }).await?;
    let sight = cluster.inspect(None).await.map_err(|it| anyhow!(it.0.line()))?;
    for unseen in sight.unseen_leases.iter().chain(&sight.unseen) {
        output::error(&format!("warning: {}", unseen.line()));
    }
    let placement = cloud::placement();
    let mut world =
        World::new(Roles::default(), vec![Arc::new(placement)], Arc::new(settings.config.clone()));
    let mut units = BTreeSet::new();
    let recorded = cluster.read_records().await.unwrap_or_default();
    let deletions = Change::Deletions(recorded.deletions);
    let changes = [Change::Time(now())].into_iter().chain(sight.changes).chain([deletions]);
    for change in changes.chain([Change::Leads(true)]) {
        units.extend(world.apply(change).iter().map(|dirt| dirt.unit().clone()));
    }
    let filter = Filter::of(arguments, &world)?;

    let defaults = &settings.config.clouds[cloud::CLASS];
    let limits = settings.requests;
    let dry = CloudSettings { dry_run: true, limits, ..CloudSettings::default() };
    let name = &arguments.of.cluster_name;
    let driver = Arc::new(cloud::octavia(
        Arc::new(cloud::Connection::to(file, dry)),
        &cluster,
        name,
        defaults,
        || true,
    ));
    // What is there and not wanted any more goes, too.
    let audited = driver.audit_of(&cloud::placement()).await.map_err(|it| anyhow!(words(it).join("; ")))?;
    let Audited { found, there, .. } = audited;
    // Whatever has to wait for its turn: it is shown what its adoption does.
    units.extend(world.apply(Change::CloudInventory(there)).iter().map(|dirt| dirt.unit().clone()));
    units.extend(world.adopt(usize::MAX).1.iter().map(|dirt| dirt.unit().clone()));
    for unit in &found {
        units.extend(world.apply(Change::FoundInCloud(unit.clone())).iter().map(|dirt| dirt.unit().clone()));
    }
    units.extend(found);
    let groups = Arc::new(Groups::new(driver.clone()));
    let mut jobs: Vec<parallel::Job<PlannedObject>> = Vec::new();
    for unit in units.iter().filter(|it| filter.admits_unit(it)) {
        let (unit, desired) = (unit.clone(), held(world.desire(unit)));
        if driver.serves(&unit) {
            let driver = driver.clone();
            jobs.push(Box::pin(async move { prospect(&*driver, &unit, &desired).await }));
        } else if groups.serves(&unit) {
            let groups = groups.clone();
            jobs.push(Box::pin(async move { prospect(&*groups, &unit, &desired).await }));
        }
    }
    let count = jobs.len();
    let tell = |done| output::error(&format!("… {done} of {count} inspected"));
    let mut prospects = parallel::run_all(jobs, tell).await?;
    add_planned(&mut prospects, &world, &filter);
    prospects.iter_mut().for_each(|it| filter.retain(it));
    Ok(prospects)
}

/// What planning says of Services that a cloud serves, and of all that is no Service.
fn add_planned(prospects: &mut Vec<PlannedObject>, world: &World, filter: &Filter<'_>) {
    let mut of_cloud: BTreeMap<ObjectRef, bool> = BTreeMap::new();
    for overview in world.overview() {
        let is_in_cloud = overview.demand.as_ref().is_some_and(|it| it.cloud.is_some());
        of_cloud.insert(overview.status.owner.object(), is_in_cloud);
    }
    for problem in world.problems() {
        // The native driver serves it: who plans for a cloud alone knows neither its hosts nor its addresses.
        let is_native = of_cloud.get(&problem.object) == Some(&false);
        if is_native || !filter.admits(Some(&problem.object)) {
            continue;
        }
        let line = problem.line();
        if prospects.iter().any(|it| it.problems.contains(&line)) {
            continue;
        }
        match prospects.iter_mut().find(|it| it.object.as_ref() == Some(&problem.object)) {
            Some(prospect) => prospect.problems.push(line),
            None => {
                let (whose, object) = (problem.object.to_string(), Some(problem.object));
                let (steps, later) = (Vec::new(), Vec::new());
                prospects.push(PlannedObject { whose, object, steps, later, problems: vec![line] });
            }
        }
    }
}

/// As if its Service were held already, which a controller sees to first.
fn held(desired: Desired) -> Desired {
    let Desired::LoadBalancer(mut wish) = desired else { return desired };
    if let Some(outside) = &mut Arc::make_mut(&mut wish).options.cloud {
        outside.unheld = false;
    }
    Desired::LoadBalancer(wish)
}

async fn prospect<D>(driver: &D, unit: &Unit, desired: &Desired) -> PlannedObject
where
    D: Driver,
    D::Step: Describe<D::Observed>,
{
    let told = |all: Vec<(Owner, Problem)>| all.iter().map(|(_, it)| it.line()).collect::<Vec<_>>();
    let (whose, object) = (whose(unit), object_of(unit));
    let (steps, later) = (Vec::new(), Vec::new());
    let mut prospect = PlannedObject { whose, object, steps, later, problems: Vec::new() };
    match dry_run(driver, unit, desired).await {
        // What is left as it is has no steps; a Problem of the plan says why.
        Ok(None) => {}
        Ok(Some(Attempt { observed: there, steps, report })) => {
            let described = steps.iter().enumerate().map(|(at, it)| it.describe(&there, &steps[..at]));
            prospect.steps = described.collect();
            prospect.later = D::Step::later(desired, &there, &steps);
            // What the driver itself says: what cannot be, by the provider of the load balancer that is there.
            prospect.problems = told(report.problems);
        }
        Err(failure) => prospect.problems = words(failure),
    }
    prospect
}

fn words(failure: Failure) -> Vec<String> {
    match failure {
        Failure::Retry { problems, .. } | Failure::User(problems) if !problems.is_empty() => {
            problems.iter().map(|(_, it)| it.line()).collect()
        }
        other => vec![other.to_string()],
    }
}

fn whose(unit: &Unit) -> String {
    match unit {
        Unit::LoadBalancer(_, key @ (LbKey::Of(_) | LbKey::Second(..))) => key.to_string(),
        other => other.to_string(),
    }
}
