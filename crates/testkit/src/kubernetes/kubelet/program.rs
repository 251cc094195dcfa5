use std::{fs::OpenOptions, os::unix::process::CommandExt, path::Path, process::Stdio};

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};
use tokio::process::{Child, Command};

use super::{root, sandbox::Sandbox, walls};
use crate::{
    kubernetes::node::NodeContext,
    topology::{Namespace, Running},
};

/// A container of a pod, about to run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Program<'a> {
    pub(super) place: &'a NodeContext,
    pub(super) pod: &'a Pod,
    pub(super) sandbox: &'a Sandbox,
    pub(super) container: &'a Container,
    /// Once it runs: its first process.
    pub(super) process: Option<u32>,
}

/// Where a container's words are kept.
pub(super) fn log_of(place: &NodeContext, pod: &Pod, container: &str) -> std::path::PathBuf {
    let of = |it: &Option<String>| it.clone().unwrap_or_default();
    let name = format!("{}_{}_{container}.log", of(&pod.metadata.namespace), of(&pod.metadata.name));
    place.folder.join(name)
}

impl Program<'_> {
    pub(super) fn start(&self) -> Result<Child, String> {
        let image = self.image();
        let mut line = match (&self.container.command, self.place.images.get(image)) {
            (Some(command), _) if !command.is_empty() => command.clone(),
            (_, Some(program)) => program.clone(),
            _ => return Err(format!("no image is called {image:?}")),
        };
        line.extend(self.container.args.iter().flatten().cloned());
        let around = match self.place.roots.get(image) {
            Some(root) => root::around(self.place, self.pod, self.container, root, line)?,
            None => walls::around(self.place, self.pod, self.container, line)?,
        };
        let mut command = self.command(&around);
        let log = log_of(self.place, self.pod, &self.container.name);
        let log = OpenOptions::new().create(true).append(true).open(log).map_err(|it| it.to_string())?;
        let also = log.try_clone().map_err(|it| it.to_string())?;
        command.stdout(log).stderr(also);
        command.spawn().map_err(|it| it.to_string())
    }

    /// Something else to run in there, as probes and hooks do: among the files that the container sees. The program of an image is
    /// at its root, by its name.
    pub(super) fn inside(&self, line: &[String]) -> Command {
        let mut whole: Vec<String> = Vec::new();
        if let Some(process) = self.process {
            whole.extend(
                ["nsenter", "--target", &process.to_string(), "--mount", "--root", "--"].map(str::to_owned),
            );
        }
        let image = self.image();
        let own = line.first().and_then(|it| it.strip_prefix('/')).filter(|it| *it == image);
        let is_unpacked = self.place.roots.contains_key(image);
        match own.and_then(|image| self.place.images.get(image)).filter(|_| !is_unpacked) {
            Some(program) => whole.extend(program.iter().chain(line.iter().skip(1)).cloned()),
            None => whole.extend_from_slice(line),
        }
        self.command(&whole)
    }

    /// Its name alone.
    fn image(&self) -> &str {
        let image = self.container.image.as_deref().unwrap_or_default();
        let image = image.rsplit('/').next().unwrap_or_default();
        image.split(['@', ':']).next().unwrap_or_default()
    }

    fn command(&self, line: &[String]) -> Command {
        // A group of its own, which is ended as a whole.
        let mut command = self.sandbox.namespace().command(line.first().map_or("", String::as_str));
        command.process_group(0);
        let mut command = Command::from(command);
        command.args(line.iter().skip(1)).env_clear().envs(self.environment());
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    fn environment(&self) -> Vec<(String, String)> {
        let name = self.pod.metadata.name.clone().unwrap_or_default();
        let mut all = vec![
            ("PATH".to_owned(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("HOSTNAME".to_owned(), name),
            ("KUBERNETES_SERVICE_HOST".to_owned(), self.place.api.clone()),
            ("KUBERNETES_SERVICE_PORT".to_owned(), "443".to_owned()),
        ];
        for variable in self.container.env.iter().flatten() {
            all.push((variable.name.clone(), self.value_of(variable)));
        }
        all
    }

    fn value_of(&self, variable: &EnvVar) -> String {
        let field = variable.value_from.as_ref().and_then(|it| it.field_ref.as_ref());
        let Some(field) = field else { return variable.value.clone().unwrap_or_default() };
        let (about, spec) = (&self.pod.metadata, self.pod.spec.as_ref());
        let value = match &*field.field_path {
            "metadata.name" => about.name.clone(),
            "metadata.namespace" => about.namespace.clone(),
            "metadata.uid" => about.uid.clone(),
            "spec.nodeName" => spec.and_then(|it| it.node_name.clone()),
            "spec.serviceAccountName" => spec.and_then(|it| it.service_account_name.clone()),
            "status.podIP" => self.sandbox.addresses.first().cloned(),
            "status.podIPs" => Some(self.sandbox.addresses.join(",")),
            "status.hostIP" => self.place.addresses.first().cloned(),
            _ => None,
        };
        value.unwrap_or_default()
    }
}

/// The real one. What it says is beside the logs of the node's pods.
pub(super) fn kube_proxy(place: &NodeContext) -> Running {
    let kubeconfig = place.proxy_kubeconfig.to_string_lossy();
    let mut command = in_there(&place.namespace, &place.programs.join("kube-proxy"));
    command.args([
        "--kubeconfig",
        &kubeconfig,
        "--proxy-mode",
        "nftables",
        "--hostname-override",
        &place.name,
    ]);
    command.args(["--cluster-cidr", "10.244.0.0/16,fd00:244::/48"]);
    // The limits of conntrack are not for a namespace to set.
    for limit in ["max-per-core", "min", "tcp-timeout-established", "tcp-timeout-close-wait"] {
        command.args([&format!("--conntrack-{limit}"), "0"]);
    }
    let log = std::fs::File::create(place.folder.join("kube-proxy.log")).expect("a temporary folder");
    command.stdout(Stdio::null()).stderr(log);
    Running::start(&mut command)
}

fn in_there(namespace: &Namespace, program: &Path) -> std::process::Command {
    namespace.command(&program.to_string_lossy())
}
