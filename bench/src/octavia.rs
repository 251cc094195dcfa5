//! What a cluster costs the cloud: Services of which Octavia makes load balancers, some of which end TLS, by the controller
//! itself, with a real API server and a fake cloud that counts.
//!
//! ```text
//!   API server ──► seaway controller ──► fake cloud (its clock goes, a change takes a second)
//!       ▲                                     │
//!       └── one change, until all rests ◄─────┴── calls, polls, heartbeats
//! ```
//!
//! The driver by itself is counted by an example of `crates/drivers`, on a clock that is moved. Here is what the engine, a
//! watch and an audit make of it.

mod cluster;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use self::cluster::{ApiUsage, Audit, Cluster};
use self::table::{Row, Table};
use crate::contender::Programs;
use crate::cores;

pub struct Plan {
    pub version: String,
    pub services: Option<usize>,
    pub is_trial: bool,
    pub own_network: bool,
    pub out: Option<PathBuf>,
    pub json: Option<PathBuf>,
}

/// How large it is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// One more comes later.
    pub nodes: usize,
    /// Beside four that are looked at one by one.
    pub services: usize,
    rest: Duration,
    is_trial: bool,
}

/// Of less than a minute one audit would count as several.
const MINUTE: Duration = Duration::from_secs(60);
/// Each so-many-th of the many ends TLS.
const SECURE: usize = 5;
const MIB: f64 = (1 << 20) as f64;
/// An audit, at most, with the looks at what rests that come with it.
const AUDIT: f64 = 40.0;
/// In a minute: what there is, and our tag.
const HEARTBEATS: f64 = 4.0;
/// What Barbican is asked for one certificate: two lists; the certificate, its key, and the container of both, each of which is
/// made and then read.
const KEPT: f64 = 8.0;
/// Writes of a port that is appended.
const PORT: f64 = 8.0;
/// Of each Service for a Node: two pools, and a share in what the group of Nodes takes.
const NODE: f64 = 3.0;
/// Polls go by time, and not by how many are pending: where there are few they come every 150 ms, so that a write is seen to be
/// done soon; where there are a hundred, every two seconds. A Node takes two writes, one after the other.
const NODE_POLLS: f64 = 30.0;
/// What OpenStack's cloud controller manager asks for one Service with 100 Nodes and two ports.
mod theirs {
    pub const CREATE: f64 = 230.0;
    pub const PORT: f64 = 136.0;
    pub const NODE: f64 = 123.0;
    pub const RESTART: f64 = 112.0;
    pub const DELETE: f64 = 118.0;
}

/// Whether all targets were met.
pub fn run(programs: &Programs, plan: &Plan) -> Result<bool> {
    ensure!(plan.own_network, "the case octavia needs a network of its own (root)");
    let mut size = match plan.is_trial {
        true => Size { nodes: 10, services: 5, rest: MINUTE, is_trial: true },
        false => Size { nodes: 100, services: 96, rest: 2 * MINUTE, is_trial: false },
    };
    size.services = plan.services.map_or(size.services, |it| it.saturating_sub(4).max(1));
    let mut cluster = Cluster::up(programs, size)?;
    let rows = rows(&mut cluster, size).with_context(|| cluster.last_words())?;
    let table = Table { version: plan.version.clone(), size, rows };
    println!("\n{}", table.markdown()?);
    if let Some(path) = &plan.json {
        std::fs::write(path, table.json()?).with_context(|| path.display().to_string())?;
    }
    if let Some(path) = &plan.out {
        table.write_into(path)?;
    }
    Ok(table.is_good())
}

fn rows(cluster: &mut Cluster<'_>, size: Size) -> Result<Vec<Row>> {
    let (plain, secure) = ("shop", "secure");
    let mut rows = Vec::new();
    let all = (size.services + 4) as f64;
    // Its group is put at all Nodes once.
    cluster.create(&[("first", false)])?;
    // A Secret that nobody named before is read once one does, and all is made then.
    for (name, is_secure, case, must) in [
        (plain, false, "create, 2 ports", 12.0),
        (secure, true, "create, 2 ports, one ends TLS, its Secret is new", 12.0 + KEPT),
        ("another", true, "create, 2 ports, one ends TLS", 12.0 + KEPT),
    ] {
        let it = cluster.create(&[(name, is_secure)])?;
        it.shows(&[("POST lbaas/loadbalancers", 1), ("POST containers", usize::from(is_secure))])?;
        rows.push(Row::calls(case, &it, must).beside(theirs::CREATE));
    }
    let names: Vec<String> = (0..size.services).map(|it| format!("service-{it:03}")).collect();
    let many: Vec<(&str, bool)> =
        names.iter().enumerate().map(|(at, it)| (it.as_str(), at % SECURE == 0)).collect();
    let of_them = many.iter().filter(|(_, is_secure)| *is_secure).count() as f64;
    let it = cluster.create(&many)?;
    it.shows(&[("POST lbaas/loadbalancers", many.len())])?;
    let must = 12.0 * many.len() as f64 + KEPT * of_them;
    let case = "create all others at once, every fifth ends TLS";
    rows.push(Row::calls(case, &it, must).beside(theirs::CREATE * many.len() as f64));
    rows.push(Row::of(case, "CPU, s for each", it.cpu / many.len() as f64, 0.1));

    for (name, case) in [(plain, "one port appended"), (secure, "one port appended that ends TLS")] {
        let it = cluster.append_port(name)?;
        it.shows(&[("POST lbaas/listeners", 1)])?;
        rows.push(Row::of(case, "writes", it.writes as f64, PORT).polling(&it).beside(theirs::PORT));
        rows.push(Row::of(case, "renames", it.renames as f64, 0.0));
    }
    for (case, is_added) in
        [("one node added, all Services", true), ("one node removed, all Services", false)]
    {
        let it = if is_added { cluster.add_node()? } else { cluster.remove_node()? };
        rows.push(Row::calls(case, &it, NODE * all).beside(theirs::NODE * all));
        rows.push(Row::of(case, "polls", it.polls as f64, NODE_POLLS.max(all)));
    }
    for (name, case, must) in
        [("first", "delete, 2 ports", 5.0), ("another", "delete, 2 ports, one ends TLS", 5.0 + KEPT)]
    {
        let it = cluster.delete(name)?;
        it.shows(&[("DELETE lbaas/loadbalancers/ID", 1)])?;
        rows.push(Row::calls(case, &it, must).beside(theirs::DELETE));
    }
    cluster.end();
    let left = all - 2.0;
    let it = cluster.lead(Audit::Often)?;
    let case = "restart of the controller, all Services";
    rows.push(Row::calls(case, &it, AUDIT + left).beside(theirs::RESTART * left));
    rows.push(Row::of(case, "writes", it.writes as f64, 0.0));

    let before = cluster.spent()?;
    let it = cluster.rest(size.rest)?;
    let minutes = size.rest.as_secs_f64() / 60.0;
    let case = "a minute at rest, with an audit";
    rows.push(Row::of(case, "calls", (it.calls + it.polls) as f64 / minutes, AUDIT));
    rows.push(Row::of(case, "calls of heartbeats", it.heartbeats as f64 / minutes, HEARTBEATS));
    rows.push(Row::of(case, "writes", it.writes as f64 / minutes, 0.0));
    rows.push(Row::of(case, "CPU, s", (cluster.spent()? - before) / minutes, 0.5));

    let peak = cores::peak_memory(cluster.process()?).context("the controller has ended")?;
    rows.push(Row::of("all of it", "peak memory, MiB", peak as f64 / MIB, 300.0));
    Ok(rows)
}
