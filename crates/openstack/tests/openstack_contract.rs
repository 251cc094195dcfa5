//! The contract suite against the real cloud of `rig/openstack`: what it answers now is what the golden files say.
//!
//! `SEAWAY_WRITE_CONTRACT=1` writes the files anew instead. Only this program writes them, and so only the real cloud is
//! ever quoted in them. `SEAWAY_CONTRACT=name` plays one script alone. The tier is `openstack`; see `contract.rs` for how scripts are written.

#[path = "contract/compare.rs"]
mod compare;
#[path = "contract/play.rs"]
mod play;
#[path = "contract/record.rs"]
mod record;
#[path = "contract/script.rs"]
mod script;
#[path = "contract/scripts.rs"]
mod scripts;
#[path = "contract/stage.rs"]
mod stage;
#[path = "contract/told.rs"]
mod told;

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use compare::PollFrequency;
use script::Script;
use seaway_testkit::topology::OpenStack;
use serde_json::Value;
use stage::{Operator, Stage};

/// How many scripts are played at once: the cloud has two cores, and scripts mostly wait.
const AT_ONCE: usize = 6;
/// For a state that the cloud writes later than what it belongs to (`compare::LATE`) to be what was recorded.
const PATIENCE: Duration = Duration::from_secs(60);
/// `ovn` reports twice within that.
const REST: Duration = Duration::from_millis(500);
const AUTH_URL: &str = "http://127.0.0.1:5000/v3";

#[test]
fn the_real_cloud_answers_as_the_golden_files_say() {
    let Some(cloud) = OpenStack::up() else { return };
    let only = std::env::var("SEAWAY_CONTRACT").ok();
    let scripts =
        scripts::all().into_iter().filter(|path| only.as_deref().is_none_or(|it| is_named(path, it)));
    let mut scripts: Vec<PathBuf> = scripts.collect();
    assert!(!scripts.is_empty(), "no script is called {}", only.unwrap_or_default());
    // The long ones first, amphorae before all: the last one is waited for alone.
    scripts.sort_by_key(|path| (is_named(path, "octavia_amphora"), path.metadata().map_or(0, |it| it.len())));
    let left = Mutex::new(scripts);
    let next = || locked(&left).pop();
    let faults = Mutex::new(String::new());
    let stages = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            let in_this_test =
                thread::Builder::new().name(thread::current().name().unwrap_or("unknown").to_owned());
            let spawned = in_this_test.spawn_scoped(scope, || {
                while let Some(path) = next() {
                    let fault = play(&cloud, &path, &stages);
                    *locked(&faults) += &fault.unwrap_or_else(|it| format!("\n{}: {it:#}\n", path.display()));
                }
            });
            spawned.expect("a thread is started");
        }
    });
    let closed = close(&locked(&stages));
    let faults = faults.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(
        faults.is_empty(),
        "the real cloud answers otherwise (SEAWAY_WRITE_CONTRACT=1 writes it down):\n{faults}\n{}",
        if faults.contains("ERROR") { cloud.amphora_log(40) } else { String::new() }
    );
    closed.expect("nothing is left behind");
}

fn is_named(path: &Path, name: &str) -> bool {
    path.file_stem().is_some_and(|it| it == name)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plays one script, once, in a project of its own, and tells what differs. What differed for a while, as is known of it, is
/// printed.
fn play(cloud: &OpenStack, path: &Path, stages: &Mutex<Vec<Stage>>) -> Result<String> {
    let recorded = Script::read(path)?;
    if recorded.only_fake {
        return Ok(String::new());
    }
    let name = format!("contract-{}-{}", recorded.name.replace('_', "-"), std::process::id());
    let writes = std::env::var_os("SEAWAY_WRITE_CONTRACT").is_some();
    let operator =
        Box::new(Database { socket: cloud.clouds_yaml().with_file_name("run").join("mysql.sock") });
    let mut played = runtime()?.block_on(async {
        let mut stage = Stage::open(AUTH_URL, &name, operator, Duration::from_millis(50)).await?;
        stage.rest = REST;
        stage.patience = if writes { Duration::ZERO } else { PATIENCE };
        let played = play::play(Script::read(path)?, &mut stage).await;
        for difference in &stage.known_differences {
            seaway_testkit::rig("openstack", &format!("{}: {difference}", recorded.name));
        }
        locked(stages).push(stage);
        played
    })?;
    if writes {
        record::keep_ways(&recorded, &mut played);
        std::fs::write(path, record::written(&played))?;
        return Ok(String::new());
    }
    Ok(compare::differences(&recorded, &played, PollFrequency::Seldom))
}

/// Removes what the scripts left, and their projects.
fn close(stages: &[Stage]) -> Result<()> {
    let reset = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rig/openstack/reset");
    let names = stages.iter().map(|it| &it.known["name"]);
    let output = Command::new(reset).args(names).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    runtime()?.block_on(async {
        for stage in stages {
            for (kind, name) in [("users", "user"), ("projects", "project")] {
                stage.admin("DELETE", &format!("/{kind}/{}", stage.known[name]), Value::Null).await?;
            }
        }
        Ok(())
    })
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// The operator of the rig: whoever may write to Octavia's database.
struct Database {
    socket: PathBuf,
}

const TABLES: [(&str, &str); 7] = [
    ("loadbalancer", "load_balancer"),
    ("listener", "listener"),
    ("pool", "pool"),
    ("member", "member"),
    ("healthmonitor", "health_monitor"),
    ("l7policy", "l7policy"),
    ("rule", "l7rule"),
];

/// So many in a row are no bad luck.
const DEADLOCKS: usize = 20;

impl Database {
    fn run(&self, statements: &str) -> Result<()> {
        let mut tries = 0;
        loop {
            let output = Command::new("mariadb")
                .args(["--no-defaults", "-uroot", "octavia", "-e", statements])
                .arg(format!("--socket={}", self.socket.display()))
                .output()
                .context("mariadb")?;
            tries += 1;
            let said = String::from_utf8_lossy(&output.stderr);
            // Another script writes to the same tables.
            if said.contains("Deadlock") && tries < DEADLOCKS {
                continue;
            }
            ensure!(output.status.success(), "{said}");
            return Ok(());
        }
    }
}

impl Operator for Database {
    fn settle(&self, project: &str) -> Result<()> {
        // What is deleted is deleted with its relations: nobody looks at what is left of those.
        let ended = |(_, table): (&str, &str)| {
            let mine = format!("where project_id='{project}' and provisioning_status");
            let end = match table {
                "load_balancer" => {
                    format!("update {table} set provisioning_status='DELETED' {mine}='PENDING_DELETE'")
                }
                _ => format!("delete from {table} {mine}='PENDING_DELETE'"),
            };
            format!("{end}; update {table} set provisioning_status='ACTIVE' {mine} like 'PENDING%'; ")
        };
        let statements: String = TABLES.into_iter().map(ended).collect();
        self.run(&format!("set foreign_key_checks=0; {statements}"))
    }

    fn break_down(&self, kind: &str, id: &str) -> Result<()> {
        let table = TABLES.iter().find(|(it, _)| *it == kind).map(|(_, table)| table).context("a kind")?;
        self.run(&format!("update {table} set provisioning_status='ERROR' where id='{id}'"))
    }
}
