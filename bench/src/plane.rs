//! A control plane of Kubernetes that is full of Services, in the network of the bench: there is no node but what the
//! host's `seaway node` is, and pods are addresses of which each is answered.

pub mod api;
pub mod network;
pub mod objects;

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use self::api::Api;
use crate::sys;

/// Where the API server is: a link that leads nowhere, for it is to have an address beyond loopback.
const ADDRESS: &str = "10.10.0.1";
const LINK: &str = "seaway-bench";
const PODS: &str = "10.244.0.0/15";
/// Clients that fill it at once.
const WRITERS: usize = 8;

/// Of the audit log.
const LONGEST_LINE: u64 = 64 << 10;

/// What is written down of the requests of our users: all that change something.
const AUDIT: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: [seaway-controller, seaway-node]
  verbs: [create, update, patch, delete, deletecollection]
- level: None
";

/// A request of ours that changed something, or would have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Write {
    pub user: String,
    pub verb: String,
    /// With what is below it: `services/status`.
    pub resource: String,
}

/// Dropping it takes it down.
pub struct Plane {
    rig: PathBuf,
    programs: PathBuf,
    folder: tempfile::TempDir,
}

impl Plane {
    /// `from`: what etcd keeps is copied from there, if it is there.
    pub fn up(rig: &Path, from: Option<&Path>) -> Result<Self> {
        let installed = Command::new(rig.join("install")).output().context("rig/kubernetes/install")?;
        ensure!(
            installed.status.success(),
            "no Kubernetes is installed. Type: {}",
            rig.join("install").display()
        );
        let programs = String::from_utf8_lossy(&installed.stdout).lines().last().unwrap_or_default().into();
        let folder = tempfile::Builder::new().prefix("seaway-bench-").tempdir()?;
        let plane = Self { rig: rig.to_owned(), programs, folder };
        for line in [
            format!("link add {LINK} type bridge"),
            format!("address add {ADDRESS}/16 dev {LINK}"),
            format!("link set {LINK} up"),
            format!("route add local {PODS} dev lo"),
        ] {
            said(Command::new("ip").args(line.split(' ')))?;
        }
        fs::write(plane.folder.path().join("audit.yaml"), AUDIT)?;
        if let Some(kept) = from.filter(|it| it.exists()) {
            fs::create_dir_all(plane.data())?;
            copy(kept, &plane.data())?;
        }
        plane.start()?;
        Ok(plane)
    }

    fn start(&self) -> Result<()> {
        let mut up = self.command("up");
        up.args(["--address", ADDRESS, "--node-grace", "1h", "--for", &std::process::id().to_string()]);
        up.arg("--audit").arg(self.folder.path().join("audit.yaml"));
        said(&mut up).map(drop)
    }

    /// Keeps what is there now for later runs. It stands still meanwhile.
    pub fn keep_in(&self, folder: &Path) -> Result<()> {
        said(self.command("down").arg("--keep"))?;
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent)?;
        }
        copy(&self.data(), folder)?;
        self.start()
    }

    /// The process of Kubernetes' own controllers.
    pub fn controllers(&self) -> Result<u32> {
        self.process("kube-controller-manager")
    }

    pub fn process(&self, name: &str) -> Result<u32> {
        let text = fs::read_to_string(self.dir().join(format!("run/{name}.pid")))?;
        text.split_whitespace().next().context("a process")?.parse().context("a process")
    }

    /// What etcd keeps.
    fn data(&self) -> PathBuf {
        self.dir().join("data")
    }

    /// A client of an administrator.
    pub fn api(&self) -> Result<Api> {
        Api::new(ADDRESS, &self.dir().join("certificates"))
    }

    /// Who we are in it, as a file.
    pub fn kubeconfig(&self, user: &str) -> Result<PathBuf> {
        let server = format!("https://{ADDRESS}:6443");
        let file = self.folder.path().join(format!("{user}.kubeconfig"));
        fs::write(&file, said(self.command("kubeconfig").args(["--server", &server, user]))?)?;
        Ok(file)
    }

    pub fn kubectl(&self, arguments: &[&str], input: &str) -> Result<()> {
        let mut kubectl = Command::new(self.programs.join("kubectl"));
        kubectl
            .args(arguments)
            .env("KUBECONFIG", self.dir().join("kubeconfig"))
            .env("HOME", self.folder.path());
        let mut child =
            kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().context("it is piped")?.write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        ensure!(
            output.status.success(),
            "kubectl {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// Creates so many of what `make` makes, several at once.
    pub fn create(&self, count: usize, make: impl Fn(usize) -> (String, Value) + Sync) -> Result<()> {
        self.in_parallel(count, |api, index| {
            let (path, object) = make(index);
            api.ask("POST", &path, Some(&object)).map(drop)
        })
    }

    /// Asks so many questions, several at once.
    pub fn in_parallel(
        &self,
        count: usize,
        ask: impl Fn(&mut Api, usize) -> Result<()> + Sync,
    ) -> Result<()> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut api = self.api()?;
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return Ok(());
                }
                ensure!(!sys::interrupted(), "interrupted");
                ask(&mut api, index)?;
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|it| it.join().unwrap_or_else(|_| bail!("a client panicked")))
        })
    }

    /// Where the last whole line of the audit log ends now: what is written later begins there.
    pub fn mark(&self) -> Result<u64> {
        let Ok(mut file) = fs::File::open(self.audit_log()) else { return Ok(0) };
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LONGEST_LINE)))?;
        let mut tail = Vec::new();
        file.take(LONGEST_LINE).read_to_end(&mut tail)?;
        let begun = tail.iter().rev().take_while(|it| **it != b'\n').count();
        Ok(length.saturating_sub(LONGEST_LINE) + (tail.len() - begun) as u64)
    }

    /// What we wrote since.
    pub fn written_since(&self, mark: u64) -> Result<Vec<Write>> {
        let mut file = fs::File::open(self.audit_log()).context("the audit log")?;
        file.seek(SeekFrom::Start(mark))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // The last line may not be whole yet.
        let lines = text.rsplit_once('\n').map_or("", |(whole, _)| whole).lines();
        lines.map(|line| write_in(line).with_context(|| format!("the audit log says {line}"))).collect()
    }

    fn audit_log(&self) -> PathBuf {
        self.dir().join("log/audit.log")
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("plane")
    }

    /// A command of the rig, free to run on every core.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.rig.join(name));
        command.arg("--dir").arg(self.dir()).stdin(Stdio::null());
        sys::confine_child(&mut command, None);
        command
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        let _gone = self.command("down").output();
        let _gone = Command::new("ip").args(["link", "del", LINK]).output();
        let _gone = Command::new("ip").args(["route", "del", "local", PODS, "dev", "lo"]).output();
    }
}

fn write_in(line: &str) -> Result<Write> {
    let event: Value = serde_json::from_str(line)?;
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (resource, below) = (text("/objectRef/resource"), text("/objectRef/subresource"));
    let resource = if below.is_empty() { resource } else { format!("{resource}/{below}") };
    Ok(Write { user: text("/user/username"), verb: text("/verb"), resource })
}

/// A folder with all that is in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    said(Command::new("cp").arg("-aT").args([from, to])).map(drop)
}

/// Runs a program to its end, and returns what it printed.
fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let [said, told] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
    ensure!(output.status.success(), "{command:?}: {said}{told}");
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_audit_log_is_a_write() {
        let line = r#"{"verb":"patch","user":{"username":"seaway-node"},"objectRef":{"resource":"services","subresource":"status"}}"#;
        let write =
            Write { user: "seaway-node".into(), verb: "patch".into(), resource: "services/status".into() };
        assert_eq!(write_in(line).unwrap(), write);
        assert!(write_in("{").is_err());
    }
}
