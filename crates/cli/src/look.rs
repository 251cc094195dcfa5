//! `plan`, `check`, `explain`: the folder planned as `run` would, and nothing done.

pub(crate) mod check;
pub(crate) mod cloud;
mod haproxy;

use std::{
    collections::BTreeSet,
    fs::File,
    io::{Read as _, Write as _},
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use nix::sys::memfd::{MFdFlags, memfd_create};
use seaway_drivers::{
    HostPlacement,
    native::{self, bad_certificate, unusable_secret},
    presence::Presence,
};
use seaway_files::{Folder, read_folder};
use seaway_model::{
    Address, Change, Fact, Kind, Listener, ObjectRef, Owner, Problem, ProblemDetail, Reason,
    fact::{HostReport, Secret},
    load_balancer::{RateLimit, RequestRate},
    outcome::ServingSocket,
};
use seaway_plan::{
    FrontDoorView, Overview, PathView, Roles, ServiceKey, World, dry_run,
    explain::{explain as tell, explain_running},
    serves_nothing, slices_without_service, unserved_problems,
};
use serde_json::{Value, json};

use crate::{
    args::{CommonArgs, Explain, Output, Plan},
    control::now,
    member, output,
    run::{manifests_of, state_dir_of},
    running,
    settings::{DefaultDriver, Settings},
};

const NOTHING: &str =
    "the folder has no Service of type LoadBalancer, none for the front door, and no tcpServices entry";
const STANDARD_INPUT: &str = "standard input";

/// A folder, planned.
struct PlannedFolder {
    world: World,
    problems: Vec<Problem>,
    /// What is there and is used by nothing: it is no manifest, or no Service has it.
    unused: Vec<Problem>,
    folder: Folder,
}

/// What was given and served before this look.
#[derive(Default)]
struct PreviousState {
    addresses: Vec<Address>,
    serving: Vec<(Owner, ServingSocket)>,
}

impl PreviousState {
    /// What the state folder says, if there is one; it is neither made nor locked. Addresses are only of one that is named:
    /// others may be of other manifests.
    fn of(common: &CommonArgs, settings: &Settings) -> PreviousState {
        let named = common.state_dir.clone().or_else(|| settings.state_dir.clone());
        let used = state_dir_of(common.state_dir.as_deref(), settings).ok();
        PreviousState {
            addresses: named.map(|dir| seaway_files::state::stored_addresses(&dir)).unwrap_or_default(),
            serving: used.map(|dir| seaway_files::state::stored_serving(&dir)).unwrap_or_default(),
        }
    }
}

impl PlannedFolder {
    fn at(dir: &Path, settings: &Settings, before: PreviousState) -> Result<PlannedFolder> {
        let (folder, changes, _) = read_folder(dir)?;
        let roles = Roles { allocate: true, host: Some(settings.host.clone()) };
        let mut world = World::new(
            roles,
            vec![Arc::new(HostPlacement::new(settings.host.clone(), native::DRIVER))],
            Arc::new(settings.config.clone()),
        );
        before.serving.into_iter().for_each(|(owner, at)| world.was_served(owner, &at));
        let stored = before.addresses.into_iter().map(|it| Change::Put(Fact::Address(Arc::new(it))));
        let report = Change::Put(Fact::Host(Arc::new(host_report(settings))));
        let certificates = seaway_files::pem::read(&settings.pems);
        let secrets: Vec<Arc<Secret>> = changes.iter().filter_map(secret_of).collect();
        let first = stored.chain([report, Change::Time(now())]).chain(certificates);
        dry_run(&mut world, first.chain(changes).chain([Change::Synced(Kind::Address)]));
        let mut problems = world.problems();
        problems.extend(unusable(&world, settings, &secrets));
        problems.iter_mut().for_each(|it| name_secret_elsewhere(it, &secrets));
        problems.extend(check::at_status_page(&world, settings));
        let problems = located(&folder, problems);
        let mut unused = slices_without_service(&world);
        unused.extend(unserved_problems(&world));
        folder.locate(&mut unused);
        unused.extend(folder.unread_problems());
        if problems.is_empty() && unused.is_empty() && serves_nothing(&world) {
            let name = dir.display().to_string();
            let here =
                Problem::new(ObjectRef::new(Kind::Manifest, "", name.as_str()), Reason::Ignored, NOTHING);
            let fix =
                "A Service with type: LoadBalancer has a port of its own; seaway init writes a first one.";
            unused.push(here.fix(fix).in_file(name, 0, 0));
        }
        Ok(PlannedFolder { world, problems, unused, folder })
    }
}

impl PlannedFolder {
    /// What is piped in, as a file that lies on no disk.
    fn at_standard_input(settings: &Settings, before: PreviousState) -> Result<PlannedFolder> {
        let mut text = Vec::new();
        std::io::stdin().read_to_end(&mut text).context("standard input cannot be read")?;
        PlannedFolder::at_text(&text, settings, before)
    }

    fn at_text(text: &[u8], settings: &Settings, before: PreviousState) -> Result<PlannedFolder> {
        let file = memfd_create(c"standard input", MFdFlags::MFD_CLOEXEC)
            .context("standard input cannot be buffered (memfd_create)")?;
        let mut file = File::from(file);
        file.write_all(text)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut look = PlannedFolder::at(Path::new(&path), settings, before)?;
        let number = file.as_raw_fd().to_string();
        for problem in look.problems.iter_mut().chain(&mut look.unused) {
            if let Some(place) = problem.place.as_mut().filter(|it| *it.file == *path) {
                place.file = STANDARD_INPUT.into();
            }
            if problem.object.kind == Kind::Manifest && *problem.object.name == *number {
                problem.object.name = STANDARD_INPUT.into();
            }
        }
        Ok(look)
    }
}

impl PlannedFolder {
    /// A name that is resolved only at run time is no mistake of a manifest.
    fn mistakes(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(|it| it.reason != Reason::NameUnresolved).chain(&self.unused)
    }
}

/// What `check` would say of a manifest that is written nowhere yet.
pub(crate) fn mistakes_of(text: &str, settings: &Settings) -> Result<Vec<Problem>> {
    let look = PlannedFolder::at_text(text.as_bytes(), settings, PreviousState::default())?;
    Ok(look.mistakes().cloned().collect())
}

fn secret_of(change: &Change) -> Option<Arc<Secret>> {
    match change {
        Change::Put(Fact::Secret(secret)) => Some(secret.clone()),
        _ => None,
    }
}

/// Who looks for a Secret is helped by where it is: in a folder, nothing of that is a secret of another tenant.
fn name_secret_elsewhere(problem: &mut Problem, secrets: &[Arc<Secret>]) {
    let Some(ProblemDetail::Missing(missing)) = &problem.about else { return };
    if problem.reason != Reason::NoSuchSecret || secrets.iter().any(|it| it.object == *missing) {
        return;
    }
    let (namespace, name) = (missing.namespace.clone(), missing.name.clone());
    let other = |it: &&Arc<Secret>| it.object.name == name && it.object.namespace != namespace;
    if let Some(other) = secrets.iter().find(other) {
        problem.fix = format!(
            "There is one of this name in the namespace {}, and objects use Secrets of their own namespace: write namespace: {namespace} \
             in it.",
            other.object.namespace
        );
    }
}

/// What only who uses a certificate finds out: its key is another's. Of those that nothing uses, too.
fn unusable(world: &World, settings: &Settings, secrets: &[Arc<Secret>]) -> Vec<Problem> {
    let mut seen = BTreeSet::new();
    let mut problems = Vec::new();
    for overview in world.overview() {
        for (object, certificate) in overview.load_balancer.certificates.iter() {
            if seen.insert(object.clone())
                && let Err(error) = seaway_proxy::look_at(certificate)
            {
                problems.push(bad_certificate(object, &error, false));
            }
        }
    }
    // Those of the configuration, also where nothing is served by them yet.
    let files = seaway_files::pem::read(&settings.pems);
    for secret in files.iter().filter_map(secret_of).chain(secrets.iter().cloned()) {
        if seen.insert(secret.object.clone()) {
            problems.extend(unusable_secret(&secret));
        }
    }
    problems
}

fn located(folder: &Folder, mut problems: Vec<Problem>) -> Vec<Problem> {
    folder.locate(&mut problems);
    problems.sort_by(|a, b| (&a.place, &a.object, &a.field).cmp(&(&b.place, &b.object, &b.field)));
    problems
}

/// Without the right to ask for addresses, a plan is still a plan.
fn host_report(settings: &Settings) -> HostReport {
    let presence = Presence::new(settings.host.clone(), settings.addresses.clone(), []);
    let unknown = || HostReport {
        host: settings.host.clone(),
        addresses: settings.addresses.clone(),
        ..HostReport::default()
    };
    presence.report().unwrap_or_else(|_| unknown())
}

pub(crate) fn plan(arguments: &Plan) -> Result<ExitCode> {
    if let Some(file) = arguments.of.cloud_config.as_ref().filter(|_| arguments.cloud) {
        return Ok(cloud::plan(arguments, file));
    }
    let settings = arguments.common.settings()?;
    let dir = manifests_of(arguments.folder.dir(), &settings)?;
    let look = PlannedFolder::at(&dir, &settings, PreviousState::of(&arguments.common, &settings))?;
    if arguments.driver.is_some() {
        return haproxy::plan(&look, &settings, arguments);
    }
    match arguments.output {
        Output::Table => {
            output::line(table(&look).trim_end());
            for problem in &look.problems {
                output::error(&problem.to_string());
            }
        }
        Output::Json => output::line(&serde_json::to_string_pretty(&as_json(&look))?),
    }
    Ok(ExitCode::SUCCESS)
}

fn table(look: &PlannedFolder) -> String {
    let rows: Vec<Vec<String>> = look.world.overview().iter().map(row).collect();
    if rows.is_empty() {
        return format!("Nothing would be served: {NOTHING}.");
    }
    let mut text = output::table(&["OWNER", "POOL", "ADDRESSES", "PORTS", "MEMBERS", "PROBLEMS"], &rows);
    if let Some(door) = look.world.front_door() {
        text.push_str(&front_door(&door));
    }
    text.push_str(&names(look));
    text
}

/// What would be in DNS.
fn names(look: &PlannedFolder) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for overview in look.world.overview() {
        for it in look.world.dns_names(&overview.status.owner) {
            let (zone, ttl) = match &it.zone {
                Some(zone) => (zone.name.to_string(), format!("{}s", it.ttl)),
                None => ("-".to_owned(), "-".to_owned()),
            };
            rows.push(vec![it.name.to_string(), row(&overview)[0].clone(), zone, ttl]);
        }
    }
    match rows.is_empty() {
        true => String::new(),
        false => format!("\nNames in DNS:\n{}", output::table(&["NAME", "OWNER", "ZONE", "TTL"], &rows)),
    }
}

/// A line for all paths and host names that lead to one thing.
fn front_door(door: &FrontDoorView) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut lost = String::new();
    for entrance in &door.entrances {
        let name = entrance.object.to_string();
        for lead in &entrance.leads {
            match rows.iter_mut().find(|row| row[0] == name && row[1] == lead.to) {
                Some(row) => row[3] = format!("{} {}", row[3], lead.at),
                None => rows.push(vec![name.clone(), lead.to.clone(), members_of(lead), lead.at.clone()]),
            }
        }
        for it in &entrance.lost {
            lost.push_str(&format!(
                "{name} is not routed {}: {} claimed it first\n",
                it.claims.join(" "),
                it.to
            ));
        }
    }
    let at: Vec<String> = door.at.iter().map(ToString::to_string).collect();
    let table = output::table(&["WHO", "LEADS TO", "MEMBERS", "AT"], &rows);
    let mut others = String::new();
    for (name, at) in &door.others {
        let at: Vec<String> = at.iter().map(ToString::to_string).collect();
        others.push_str(&format!("Entrance {name} of the front door, at {}\n", at.join(" ")));
    }
    format!("\nThe front door, at {}:\n{others}{table}{lost}", at.join(" "))
}

fn members_of(lead: &PathView) -> String {
    match lead.pools.as_slice() {
        [] => "-".to_owned(),
        pools => pools.iter().map(|(_, members)| members).sum::<usize>().to_string(),
    }
}

fn row(overview: &Overview) -> Vec<String> {
    let status = &overview.status;
    let listed = |all: Vec<String>| if all.is_empty() { "-".to_owned() } else { all.join(",") };
    let object = status.owner.object();
    let owner = if object.namespace.is_empty() {
        object.name.to_string()
    } else {
        format!("{}/{}", object.namespace, object.name)
    };
    vec![
        owner,
        status.pool.as_ref().map_or("-".to_owned(), ToString::to_string),
        listed(status.addresses.iter().map(ToString::to_string).collect()),
        listed(overview.load_balancer.listeners.keys().map(ToString::to_string).collect()),
        status.members.to_string(),
        status.problems.len().to_string(),
    ]
}

fn as_json(look: &PlannedFolder) -> Value {
    let services: Vec<Value> = look.world.overview().iter().map(service_json).collect();
    let front_door = look.world.front_door().map(|it| front_door_json(&it));
    json!({ "services": services, "frontDoor": front_door, "problems": look.problems })
}

fn front_door_json(door: &FrontDoorView) -> Value {
    let entrances = door.entrances.iter().map(|it| {
        json!({
            "object": it.object,
            "leads": it.leads.iter().map(lead_json).collect::<Vec<_>>(),
            "lost": it.lost.iter().map(|lost| json!({ "at": lost.claims, "to": lost.to })).collect::<Vec<_>>(),
        })
    });
    let mut it = json!({ "at": door.at, "entrances": entrances.collect::<Vec<_>>() });
    for (name, at) in &door.others {
        it["otherEntrances"][name.as_str()] = json!(at);
    }
    it
}

fn lead_json(lead: &PathView) -> Value {
    let pools = lead.pools.iter().map(|(id, members)| json!({ "id": id, "members": members }));
    let mut it = json!({ "at": lead.at, "to": lead.to, "pools": pools.collect::<Vec<_>>() });
    for (name, nets) in [("sources", &lead.sources), ("deniedSources", &lead.denied)] {
        if let Some(fields) = it.as_object_mut().filter(|_| !nets.is_empty()) {
            fields.insert(name.to_owned(), json!(nets));
        }
    }
    put_rates(&mut it, &lead.rates);
    it
}

fn put_rates(it: &mut Value, rates: &[RateLimit]) {
    let rate = |limit: &RateLimit| {
        let RequestRate { per_second, burst, key } = &limit.rate;
        json!({ "of": limit.of, "perSecond": per_second, "burst": burst, "key": key.to_string() })
    };
    if let Some(fields) = it.as_object_mut().filter(|_| !rates.is_empty()) {
        fields.insert("clientRates".to_owned(), rates.iter().map(rate).collect());
    }
}

fn listener_json(listener: &Listener) -> Value {
    let mut it = json!({
        "name": listener.name,
        "protocol": listener.l4,
        "port": listener.port,
        "sources": listener.sources,
        "maxConnections": listener.limits.connections,
        "maxNewConnectionsPerSecond": listener.limits.new_per_second,
    });
    if let Some(fields) = it.as_object_mut().filter(|_| !listener.denied.is_empty()) {
        fields.insert("deniedSources".to_owned(), json!(listener.denied));
    }
    listener.rules.iter().for_each(|rule| put_rates(&mut it, &rule.rates));
    it
}

fn service_json(overview: &Overview) -> Value {
    let listeners = overview.load_balancer.listeners.values();
    let pools = overview.load_balancer.pools.values();
    json!({
        "owner": overview.status.owner.to_string(),
        "pool": overview.status.pool,
        "addresses": overview.status.addresses,
        "listeners": listeners.map(|it| listener_json(it)).collect::<Vec<_>>(),
        "pools": pools.map(|it| json!({
            "id": it.id,
            "balance": it.balance,
            "members": it.members.iter().map(|member| json!({
                "address": member.at.to_string(),
                "state": member.state,
                "weight": member.weight,
                "node": member.node,
                "hostName": member.host_name,
                "name": member.name,
                "backup": member.backup,
            })).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}

pub(crate) fn explain(arguments: &Explain) -> Result<ExitCode> {
    let mut settings = arguments.common.settings()?;
    if settings.by_default == Some(DefaultDriver::Octavia) {
        // A folder has no cloud, and yet it is to be said that one serves them.
        member::cloud::without(&mut settings);
    }
    let dir: PathBuf = manifests_of(arguments.folder.dir(), &settings)?;
    let asked = state_dir_of(arguments.common.state_dir.as_deref(), &settings)
        .map_err(|error| error.to_string())
        .and_then(|state| running::ask_running_process(&state, &dir));
    let planned = |settings: &Settings| {
        PlannedFolder::at(&dir, settings, PreviousState::of(&arguments.common, settings))
            .context("the folder cannot be planned")
    };
    let mut look = planned(&settings)?;
    if let (Ok((_, view)), true) = (&asked, settings.addresses.is_empty()) {
        // Where it serves: it may have been started with --address. Addresses of pools are not the host's own.
        if look.world.pools().is_empty() {
            settings.addresses = running::addresses(view);
            look = planned(&settings)?;
        }
    }
    let (namespace, name) = arguments.service.split_once('/').unwrap_or(("default", &arguments.service));
    let key = ServiceKey::new(namespace, name);
    let told = match &asked {
        Ok((_, view)) => explain_running(&look.world, &key, &running::standings(view, &key)),
        Err(_) => tell(&look.world, &key),
    };
    match told {
        Ok(text) => output::line(text.trim_end()),
        Err(why) => {
            // It may be there, and be broken.
            let broken = look.problems.iter().filter(|it| it.object == key.object());
            broken.for_each(|it| output::error(&it.to_string()));
            bail!("{why}")
        }
    }
    output::line(&match asked {
        Ok((at, _)) => {
            format!("The states of members are from the process that serves this folder: http://{at}/")
        }
        Err(why) => {
            format!(
                "The states of members are unknown, because no process that serves this folder answers: {why}"
            )
        }
    });
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod typical_mistakes;

/// What `check` says of a folder and a configuration beside it.
#[cfg(test)]
pub(crate) fn mistakes_in(dir: &Path, config: Option<&Path>) -> Result<Vec<Problem>> {
    let settings = crate::settings::load(config)?;
    Ok(PlannedFolder::at(dir, &settings, PreviousState::default())?.mistakes().cloned().collect())
}
