//! The real openstack-cloud-controller-manager (OCCM), which `rig/occm/install` builds: its service controller alone.

use std::{
    env, fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use seaway_testkit::skip;

use crate::stage::Stage;

/// Names the program; `./test peers` sets it.
const PROGRAM: &str = "SEAWAY_OCCM";

/// A running OCCM. Dropping it kills it.
pub(crate) struct Occm {
    child: Child,
    log: PathBuf,
}

impl Occm {
    /// Where the program is. Without it the test is skipped, and says so; with `CI=true` it fails instead.
    pub(crate) fn program() -> Option<PathBuf> {
        let program = env::var_os(PROGRAM).map(PathBuf::from);
        if program.is_none() {
            skip(None, &format!("{PROGRAM} is not set: rig/occm/install builds OCCM and prints its path"));
        }
        program
    }

    /// Starts it with the `cloud.conf` of that stage, as an administrator of the cluster.
    pub(crate) fn start(program: &PathBuf, stage: &Stage) -> Occm {
        let log = tempfile::Builder::new().prefix("occm-").suffix(".log").tempfile().expect("a log");
        let (file, log) = log.keep().expect("a log");
        let mut command = Command::new(program);
        command.args(["--cloud-provider=openstack", "--controllers=service-lb-controller"]);
        command.args(["--leader-elect=false", "--secure-port=0", "--v=2"]);
        // Amphorae take a minute each. Where it writes the groups of ports, one at a time, as it does by default: of two workers
        // that write one port, one loses what the other wrote (its issue 2630), and nothing brings that back.
        let at_once = match stage.land.options.contains("manage-security-groups") {
            true => 1,
            false if stage.land.provider.contains("amphora") => 8,
            false => 2,
        };
        command.arg(format!("--concurrent-service-syncs={at_once}"));
        command.arg(format!("--cluster-name={}", stage.scene.cluster_name));
        command.arg("--cloud-config").arg(stage.land.conf.path());
        command.arg("--kubeconfig").arg(stage.scene.cluster.kubeconfig());
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("the same log")).stderr(file);
        Occm { child: command.spawn().expect("OCCM starts"), log }
    }

    /// It does nothing until it is resumed.
    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("process ids are small");
        kill(Pid::from_raw(id), signal).expect("it runs");
    }

    /// How often it has said since its start that this Service is as it should be.
    pub(crate) fn ensured(&self, service: &str) -> usize {
        let its = format!("object=\"default/{service}\"");
        let log = self.log();
        log.lines().filter(|line| line.contains(&its) && line.contains("EnsuredLoadBalancer")).count()
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Occm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- OCCM\n{}", self.log());
        }
        let _ = fs::remove_file(&self.log);
    }
}
