//! `plan --cloud`: what a controller would do in a cloud now. The cluster and the cloud are asked, and neither is changed.

use std::{collections::BTreeSet, path::Path, process::ExitCode, sync::Arc};

use anyhow::{Result, anyhow};
use seaway_cluster::{Access, Cluster};
use seaway_drivers::octavia::groups::Groups;
use seaway_engine::{Driver, Failure};
use seaway_model::{Change, Desired, LbKey, Owner, Problem, Unit};
use seaway_openstack::Settings as CloudSettings;
use seaway_plan::{Roles, World};
use serde_json::{Value, json};

use crate::{
    args::{Output, Plan},
    control::now,
    kubectl::credentials,
    member::cloud,
    output,
    run::runtime,
    settings::{self, Settings},
};

/// What would become of one thing in the cloud.
struct Prospect {
    whose: String,
    steps: Vec<String>,
    /// Why nothing would, or not all of it.
    problems: Vec<String>,
}

pub(super) fn plan(arguments: &Plan, file: &Path) -> Result<ExitCode> {
    let mut settings = settings::load(arguments.common.config.as_deref())?;
    cloud::configure(&mut settings, file)?;
    for line in &settings.told {
        output::error(&format!("warning: {line}"));
    }
    let prospects = runtime()?.block_on(look(arguments, file, &settings))?;
    match arguments.output {
        Output::Json => {
            let all: Vec<Value> = prospects.iter().map(as_json).collect();
            output::line(&serde_json::to_string_pretty(&all)?);
        }
        Output::Table => show(&prospects),
    }
    let is_well = prospects.iter().all(|it| it.problems.is_empty());
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(prospects: &[Prospect]) {
    let rows: Vec<Vec<String>> = prospects
        .iter()
        .flat_map(|it| it.steps.iter().map(|step| vec![it.whose.clone(), step.clone()]))
        .collect();
    match rows.is_empty() {
        true => output::line("Nothing would be changed."),
        false => output::line(output::table(&["FOR", "STEP"], &rows).trim_end()),
    }
    for problem in prospects.iter().flat_map(|it| &it.problems) {
        output::error(problem);
    }
    output::error(&format!("{} steps for {} objects; nothing was done", rows.len(), prospects.len()));
}

fn as_json(it: &Prospect) -> Value {
    json!({ "for": it.whose, "steps": it.steps, "problems": it.problems })
}

async fn look(arguments: &Plan, file: &Path, settings: &Settings) -> Result<Vec<Prospect>> {
    let credentials = credentials(arguments.kubeconfig.as_deref(), arguments.context.as_deref());
    let cluster = Cluster::connect(Access { credentials, ..Access::default() }).await?;
    let sight = cluster.look().await.map_err(|it| anyhow!(it.0.line()))?;
    for unseen in &sight.unseen {
        output::error(&format!("warning: {}", unseen.line()));
    }
    let placement = cloud::placement();
    let class = placement.class.clone();
    let mut world =
        World::new(Roles::default(), vec![Arc::new(placement)], Arc::new(settings.config.clone()));
    let mut units = BTreeSet::new();
    let recorded = cluster.recorded().await.unwrap_or_default();
    let deletions = Change::Deletions(recorded.deletions);
    let changes = [Change::Time(now())].into_iter().chain(sight.changes).chain([deletions]);
    for change in changes.chain([Change::Leads(true)]) {
        units.extend(world.apply(change).iter().map(|dirt| dirt.unit().clone()));
    }

    let defaults = &settings.config.clouds[cloud::CLASS];
    let dry = CloudSettings { dry_run: true, ..CloudSettings::default() };
    let name = &arguments.of.cluster_name;
    let driver = Arc::new(cloud::octavia(file, &cluster, name, defaults, dry, || true));
    // What is there and nobody wants any more goes, too.
    let found = cloud::audited(&driver).await.map_err(|it| anyhow!(words(it).join("; ")))?.found;
    for unit in &found {
        world.apply(Change::Found(unit.clone()));
    }
    units.extend(found);
    let groups = Groups::new(driver.clone());
    let mut prospects = Vec::new();
    for unit in units {
        let desired = held(world.desire(&unit));
        if driver.serves(&unit) {
            let mut one = prospect(&*driver, &unit, &desired).await;
            if one.problems.is_empty() {
                // All else of it can be.
                one.problems = driver.refuse(&desired).iter().map(|(_, it)| it.line()).collect();
            }
            prospects.push(one);
        } else if groups.serves(&unit) {
            prospects.push(prospect(&groups, &unit, &desired).await);
        }
    }
    let named = |problem: &Problem| problem.line();
    let seen: BTreeSet<String> = prospects.iter().flat_map(|it| it.problems.iter().cloned()).collect();
    let planned: Vec<String> = world.problems().iter().map(named).filter(|it| !seen.contains(it)).collect();
    if !planned.is_empty() {
        let whose = format!("Services of {class}");
        prospects.push(Prospect { whose, steps: Vec::new(), problems: planned });
    }
    Ok(prospects)
}

/// As if its Service were held already, which a controller sees to first.
fn held(desired: Desired) -> Desired {
    let Desired::LoadBalancer(mut wish) = desired else { return desired };
    if let Some(outside) = &mut Arc::make_mut(&mut wish).options.outside {
        outside.unheld = false;
    }
    Desired::LoadBalancer(wish)
}

async fn prospect<D: Driver>(driver: &D, unit: &Unit, desired: &Desired) -> Prospect {
    let told = |all: Vec<(Owner, Problem)>| all.iter().map(|(_, it)| it.line()).collect::<Vec<_>>();
    let mut prospect = Prospect { whose: whose(unit), steps: Vec::new(), problems: Vec::new() };
    prospect.problems = told(driver.refuse(desired));
    // What is left as it is has no steps; a Problem of the plan says why.
    if !prospect.problems.is_empty() || *desired == Desired::Released {
        return prospect;
    }
    match driver.observe(unit, desired).await {
        Ok(there) => {
            prospect.steps = driver.steps(desired, &there).iter().map(ToString::to_string).collect();
        }
        Err(failure) => prospect.problems = words(failure),
    }
    prospect
}

fn words(failure: Failure) -> Vec<String> {
    match failure {
        Failure::Told { problems, .. } | Failure::User(problems) if !problems.is_empty() => {
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
