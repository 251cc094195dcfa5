use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Once,
        atomic::{AtomicU32, Ordering},
    },
};

use super::{Namespace, command};
use crate::skip;

const FOLDER: &str = "SEAWAY_RIG_OPENSTACK";

/// The role of projects that tests use one after the other: they outlive the tests, and the process.
pub const SHARED: &str = "shared";

/// The OpenStack that `rig/openstack/up` has started, which tests share.
#[derive(Debug)]
pub struct OpenStack {
    folder: PathBuf,
}

impl OpenStack {
    /// The one whose folder `SEAWAY_RIG_OPENSTACK` names, as `./test openstack` sets it. Without it the test is skipped,
    /// and says so; with `CI=true` it fails instead.
    #[track_caller]
    pub fn up() -> Option<OpenStack> {
        let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
            skip(None, &format!("{FOLDER} names no running cloud: ./test openstack starts one"));
            return None;
        };
        assert!(
            folder.join("clouds.yaml").is_file(),
            "{FOLDER}: there is no clouds.yaml in {}",
            folder.display()
        );
        Some(OpenStack { folder })
    }

    /// Has the clouds `admin`, `demo` and `alt`. Tests use a [`Project`] of their own.
    pub fn clouds_yaml(&self) -> PathBuf {
        self.folder.join("clouds.yaml")
    }

    /// What OVN itself has in that column for a load balancer of Octavia: a line for each transport.
    pub fn in_ovn(&self, load_balancer: &str, column: &str) -> String {
        let database = format!("--db=unix:{}", self.folder.join("run/ovs/ovnnb_db.sock").display());
        let of = format!("name={load_balancer}");
        let mut command = Command::new("ovn-nbctl");
        command.args([&database, "--bare", "--columns", column, "find", "load_balancer", &of]);
        let said = command.stdin(Stdio::null()).output().expect("ovn-nbctl runs");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8_lossy(&said.stdout).into_owned()
    }

    /// Takes all backends out of a load balancer behind Octavia's back, as two writes of its provider at once may: nobody
    /// asks its members any more, they are OFFLINE, and the provider leaves out whoever is OFFLINE.
    pub fn lose_in_ovn(&self, load_balancer: &str) {
        let database = format!("--db=unix:{}", self.folder.join("run/ovs/ovnnb_db.sock").display());
        let rows = self.in_ovn(load_balancer, "_uuid");
        for row in rows.split_whitespace() {
            super::command("ovn-nbctl", &[&database, "clear", "load_balancer", row, "vips"]);
        }
    }

    /// Puts a load balancer into ERROR, as a provider that gave up does. No API can.
    pub fn put_in_error(&self, load_balancer: &str) {
        let socket = format!("--socket={}", self.folder.join("run/mysql.sock").display());
        let statement =
            format!("update load_balancer set provisioning_status='ERROR' where id='{load_balancer}'");
        command("mariadb", &["--no-defaults", &socket, "-uroot", "octavia", "-e", &statement]);
    }

    /// All of OVN's load balancers, and what its health monitors found, for the report of a test that failed.
    pub fn ovn(&self) -> String {
        let mut all = String::new();
        for (program, database, table, columns) in [
            ("ovn-sbctl", "ovnsb_db", "service_monitor", "ip,port,protocol,logical_port,src_ip,status"),
            (
                "ovn-nbctl",
                "ovnnb_db",
                "load_balancer",
                "name,protocol,vips,health_check,ip_port_mappings,external_ids",
            ),
            ("ovn-nbctl", "ovnnb_db", "load_balancer_health_check", "_uuid,vip,options,external_ids"),
        ] {
            let database =
                format!("--db=unix:{}", self.folder.join(format!("run/ovs/{database}.sock")).display());
            let mut command = Command::new(program);
            let columns = format!("--columns={columns}");
            command.args([database.as_str(), "--format=csv", columns.as_str(), "list", table]);
            let said = command.stdin(Stdio::null()).output();
            let said = said.map_or_else(|error| error.to_string().into_bytes(), |it| it.stdout);
            all.push_str(&String::from_utf8_lossy(&said));
            all.push('\n');
        }
        all
    }

    /// What went wrong last where amphorae are made, in the words of Octavia's worker and of Nova, with the end of each traceback:
    /// a load balancer in ERROR does not say why.
    pub fn amphora_log(&self, lines: usize) -> String {
        let mut all = String::new();
        for service in ["octavia-worker", "nova-compute", "nova-conductor", "nova-scheduler"] {
            let log = fs::read(self.folder.join(format!("log/{service}.log"))).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let found: Vec<&str> = log.lines().filter(|it| it.contains(" ERROR ")).collect();
            let last = found.get(found.len().saturating_sub(lines)..).unwrap_or_default();
            all.push_str(&format!("{service}:\n{}\n", last.join("\n")));
        }
        all
    }

    /// What OVN's provider logged last: requests that it began, statuses that it sent, and what went wrong. For the report of
    /// a test that failed: a request whose status never came stays PENDING, and only this log has the reason.
    pub fn provider_log(&self, lines: usize) -> String {
        let mut all = String::new();
        for service in ["octavia-api", "octavia-driver-agent"] {
            let log = fs::read(self.folder.join(format!("log/{service}.log"))).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let of_provider = log.lines().filter(|it| it.contains(" ovn_octavia_provider.")).filter(|it| {
                ["Handling request", "Updating status", " WARNING ", " ERROR "]
                    .iter()
                    .any(|part| it.contains(part))
            });
            let found: Vec<&str> = of_provider.collect();
            let last = found.get(found.len().saturating_sub(lines)..).unwrap_or_default();
            all.push_str(&format!("{service}:\n{}\n", last.join("\n")));
        }
        all
    }

    /// A project that nobody else uses.
    #[track_caller]
    pub fn project(&self, role: &str) -> Project {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| self.sweep());
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{role}-{}-{number}", std::process::id());
        let folder = PathBuf::from(rig("project", &["create", &name]).trim_end());
        Project { name, folder }
    }

    /// Deletes, meanwhile, the shared projects of processes that are no more.
    fn sweep(&self) {
        let Ok(folders) = self.folder.join("projects").read_dir() else { return };
        let names = folders.filter_map(|it| it.ok()?.file_name().into_string().ok());
        let dead: Vec<String> = names.filter(|it| is_of_the_dead(it)).collect();
        std::thread::spawn(move || dead.iter().for_each(|it| rig_quietly("project", &["delete", it])));
    }

    /// The internet: from there, floating IPs are reached, and there 172.24.4.1 is.
    pub fn outside(&self) -> Namespace {
        Namespace::existing("rig-ext")
    }

    /// A server of Nova, by its id: a namespace with its ports.
    pub fn server(&self, id: &str) -> Namespace {
        Namespace::existing(&format!("rig-{}", &id[..8]))
    }
}

/// Project, user and application credential of a test. Dropping it deletes it with all that is in it.
#[derive(Debug)]
pub struct Project {
    /// Of project and user.
    pub name: String,
    folder: PathBuf,
}

impl Project {
    /// Has the clouds NAME (by password), NAME-credential (by application credential) and `admin`.
    pub fn clouds_yaml(&self) -> PathBuf {
        self.folder.join("clouds.yaml")
    }

    pub fn password(&self) -> String {
        format!("{}-pw", self.name)
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        rig_quietly("project", &["delete", &self.name]);
    }
}

/// `shared-PROCESS-NUMBER`, of a process that has ended. Any other name may be somebody's who works in this cloud.
fn is_of_the_dead(project: &str) -> bool {
    let rest = project.strip_prefix(SHARED).and_then(|it| it.strip_prefix('-'));
    let process = rest.and_then(|it| it.split_once('-')).and_then(|(it, _)| it.parse::<u32>().ok());
    process.is_some_and(|it| !Path::new("/proc").join(it.to_string()).exists())
}

/// Runs a command of `rig/openstack`, and tells what it printed.
#[track_caller]
pub(super) fn rig(name: &str, arguments: &[&str]) -> String {
    command(&path(name).to_string_lossy(), arguments)
}

/// As above, where nobody could do anything about its failure.
pub(super) fn rig_quietly(name: &str, arguments: &[&str]) {
    let _ = Command::new(path(name)).args(arguments).stdin(Stdio::null()).output();
}

fn path(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../rig/openstack")).join(name)
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_shared_projects_of_ended_processes_are_swept_away() {
        let own = format!("shared-{}-0", std::process::id());
        for (project, is_dead) in [
            ("shared-4294967295-0", true),
            (own.as_str(), false),
            ("mine-4294967295-0", false),
            ("demo-2026-11", false),
            ("shared", false),
            ("shared-x-0", false),
        ] {
            assert_eq!(super::is_of_the_dead(project), is_dead, "{project}");
        }
    }
}
