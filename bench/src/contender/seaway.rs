//! Seaway: the one place that knows its command line, its configuration and the manifests it is given.

pub mod attacked;
pub mod crowded;
pub mod member;

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::certificate::Certificate;
use super::{BULK, CALLS, DATAGRAMS, Role, SECURE, SMALL, STREAMS, WEB, first_line};
use crate::backend::{GRPC_PORT, MEMBERS, TCP_PORT, UDP_PORT, WEB_PORT};

pub const ADMIN: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1936);
/// Where the members of the large folder listen.
pub const LARGE_MEMBERS_PORT: u16 = 9301;
const MANIFESTS: &str = "manifests";

/// The one worker that every contender has, and the address that the Services ask for; all else as delivered:
/// statistics, timeouts and health checks are on.
const CONFIG: &str = "dataPlane:\n  workers: 1\nhost:\n  name: bench\n  addresses: [127.0.0.1]\n";
/// Asks for an address by name, which wins over any pool.
const ADDRESS: &str = "  loadBalancerIP: 127.0.0.1\n";
/// Makes a Service hash by the client's address.
const HASHING: &str = "seaway.dev/balance: source-hash";
/// HTTP, too.
const ENDING_TLS: &str = "seaway.dev/tls: bench";
const SPEAKING_HTTP: &str = "seaway.dev/protocol: http";

/// The user `bench` with the password `bench`.
pub const PASSWORDS: &str = "seaway.dev/basic-auth: users";
const USERS: &str = "bench:$5$seawaybench$o6zgw01coYvcSnOkyIUfgcRJ2HzdS3xkh5DUVnCxAtA";
/// Asks a Service with the same members: its path is a question of the bench, for the shortest answer.
pub const ASKING: &str =
    "seaway.dev/forward-auth: asked:9118/auth/e51da55e00000000ffffffffffffffff1800000010000000";
const ASKED_PORT: u16 = 9118;

pub fn version(program: &Path) -> Result<String> {
    first_line(program, &["--version"])
}

/// `seaway run` over a folder that one of the functions below filled.
pub fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("run").arg("--config").arg(folder.join("seaway.yaml"));
    command.arg("--manifests").arg(folder.join(MANIFESTS));
    command.arg("--state-dir").arg(folder.join("state"));
    command
}

/// `seaway openstack show` of the cloud that the folder's clouds.yaml names.
pub fn show(program: &Path, folder: &Path, what: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["openstack", "show", "--output", "json", what]);
    for (name, _) in std::env::vars_os() {
        // A cloud of whoever runs the bench is none of its business.
        if name.to_string_lossy().starts_with("OS_") {
            command.env_remove(name);
        }
    }
    command
        .env("OS_CLIENT_CONFIG_FILE", folder.join("clouds.yaml"))
        .env("OS_CLOUD", "crowd")
        .env("no_proxy", "*");
    command
}

pub fn is_ready() -> bool {
    is_ready_at(ADMIN)
}

pub fn is_ready_at(admin: SocketAddrV4) -> bool {
    answers_ready(admin).unwrap_or(false)
}

fn answers_ready(admin: SocketAddrV4) -> Result<bool> {
    let mut admin = TcpStream::connect(admin)?;
    admin.set_read_timeout(Some(Duration::from_millis(500)))?;
    admin.write_all(b"GET /ready HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
    let mut answer = [0; 12];
    admin.read_exact(&mut answer)?;
    Ok(&answer == b"HTTP/1.1 200")
}

/// The Services that the cases with peers use, at the addresses where the peers listen.
/// `annotations`: of the Service that is asked by HTTP/1.1.
pub fn write_small_folder(
    folder: &Path,
    role: Role,
    certificate: &Certificate,
    annotations: &str,
) -> Result<()> {
    if role == Role::Attacked {
        return attacked::write(folder, certificate);
    }
    prepare(folder)?;
    let mut text = String::new();
    let asked = format!("{SPEAKING_HTTP}\n    {annotations}");
    let services = match role {
        Role::Attacked => vec![],
        Role::Stream => vec![
            Service { name: "small", listen: SMALL.port(), port: TCP_PORT, ..Service::default() },
            Service { name: "bulk", listen: BULK.port(), port: TCP_PORT, ..Service::default() },
            Service {
                name: "datagrams",
                listen: DATAGRAMS.port(),
                port: UDP_PORT,
                l4: "UDP",
                ..Service::default()
            },
        ],
        Role::Web => {
            secret(&mut text, "bench", certificate);
            if annotations == PASSWORDS {
                writeln!(
                    text,
                    "apiVersion: v1\nkind: Secret\nmetadata: {{name: users}}\nstringData: {{auth: \"{USERS}\"}}\n---"
                )?;
            }
            let web = Service { annotation: SPEAKING_HTTP, port: WEB_PORT, ..Service::default() };
            let asked_about = Service { name: "asked", listen: ASKED_PORT, ..web };
            let others = (annotations == ASKING).then_some(asked_about);
            let all = [
                Service { name: "web", listen: WEB.port(), annotation: asked.trim_end(), ..web },
                Service { name: "streams", listen: STREAMS.port(), ..web },
                Service { name: "calls", listen: CALLS.port(), port: GRPC_PORT, speaks: "grpc", ..web },
                Service { name: "secure", listen: SECURE.port(), annotation: ENDING_TLS, ..web },
            ];
            all.into_iter().chain(others).collect()
        }
    };
    let members: Vec<String> = MEMBERS.iter().map(Ipv4Addr::to_string).collect();
    for one in services {
        service(&mut text, &one, &members);
    }
    fs::write(folder.join(MANIFESTS).join("bench.yaml"), text).context("cannot write manifests")
}

/// Adds to the configuration.
pub fn configure_more(folder: &Path, lines: &str) -> Result<()> {
    let file = folder.join("seaway.yaml");
    let text = fs::read_to_string(&file)? + lines;
    fs::write(file, text).context("cannot write the configuration")
}

/// As many workers instead of the one.
pub fn configure_workers(folder: &Path, workers: usize) -> Result<()> {
    let file = folder.join("seaway.yaml");
    let text = fs::read_to_string(&file)?.replacen("workers: 1\n", &format!("workers: {workers}\n"), 1);
    fs::write(file, text).context("cannot write the configuration")
}

/// How the large folder is laid out.
pub mod large {
    pub const SERVICES: usize = 5_000;
    pub const HASHING: usize = 100;
    pub const FIRST_PORT: u16 = 12_000;
    /// The Service whose endpoint changes; it does not hash.
    pub const CHANGED: usize = 2_500;
}

/// 5,000 Services with four endpoints each, 100 Services to a file; the one that changes has a file of its own.
pub fn write_large_folder(folder: &Path) -> Result<()> {
    prepare(folder)?;
    let manifests = folder.join(MANIFESTS);
    let others: Vec<usize> = (0..large::SERVICES).filter(|index| *index != large::CHANGED).collect();
    for (number, chunk) in others.chunks(100).enumerate() {
        let mut text = String::new();
        for index in chunk {
            let members: Vec<String> =
                (0..4).map(|member| large_member(*index, member).to_string()).collect();
            large_service(&mut text, *index, &members);
        }
        fs::write(manifests.join(format!("services-{number:02}.yaml")), text)?;
    }
    write_changed_service(folder, large_member(large::CHANGED, 3))
}

/// Writes the file of the one Service that changes, in one atomic step, with `last` as its fourth endpoint.
pub fn write_changed_service(folder: &Path, last: Ipv4Addr) -> Result<()> {
    let mut members: Vec<String> =
        (0..3).map(|member| large_member(large::CHANGED, member).to_string()).collect();
    members.push(last.to_string());
    let mut text = String::new();
    large_service(&mut text, large::CHANGED, &members);
    // Not inside the watched folder: only the rename shall be seen there.
    let written = folder.join("changed.yaml.new");
    fs::write(&written, text)?;
    fs::rename(written, folder.join(MANIFESTS).join("changed.yaml"))
        .context("cannot move the changed manifest")
}

/// Every member of the large folder has an address of its own, all of which the bench's own listener answers.
pub fn large_member(service: usize, member: usize) -> Ipv4Addr {
    let number = u32::try_from(service * 4 + member).unwrap_or(0);
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 16, 0, 1)) + number)
}

pub fn large_port(service: usize) -> u16 {
    large::FIRST_PORT + service as u16
}

fn large_service(text: &mut String, index: usize, members: &[String]) {
    let service_of = Service {
        name: &format!("service-{index:04}"),
        listen: large_port(index),
        port: LARGE_MEMBERS_PORT,
        annotation: if index < large::HASHING { HASHING } else { "" },
        ..Service::default()
    };
    service(text, &service_of, members);
}

fn prepare(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder.join(MANIFESTS))?;
    fs::create_dir_all(folder.join("state"))?;
    fs::write(folder.join("seaway.yaml"), CONFIG).context("cannot write seaway.yaml")
}

fn secret(text: &mut String, name: &str, certificate: &Certificate) {
    let block = |pem: &str| pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
    write!(
        text,
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |\n{}  \
         tls.key: |\n{}---\n",
        block(&certificate.chain),
        block(&certificate.key)
    )
    .expect("writing to a String cannot fail");
}

#[derive(Clone, Copy)]
struct Service<'a> {
    name: &'a str,
    listen: u16,
    /// Of its members.
    port: u16,
    l4: &'a str,
    annotation: &'a str,
    /// Its `appProtocol`, or nothing.
    speaks: &'a str,
}

impl Default for Service<'_> {
    fn default() -> Self {
        Self { name: "", listen: 0, port: 0, l4: "TCP", annotation: "", speaks: "" }
    }
}

fn service(text: &mut String, service: &Service<'_>, members: &[String]) {
    let Service { name, listen, port, l4, annotation, speaks } = service;
    let line = |before: &str, value: &str| match value {
        "" => String::new(),
        one => format!("{before}{one}\n"),
    };
    let annotations = line("  annotations:\n    ", annotation);
    let speaks = line("    appProtocol: ", speaks);
    let endpoints: String = members.iter().map(|ip| format!("- addresses: [{ip}]\n")).collect();
    write!(
        text,
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n{annotations}spec:\n  type: LoadBalancer\n{ADDRESS}  \
         ports:\n  - name: main\n    port: {listen}\n    targetPort: {port}\n    protocol: {l4}\n{speaks}---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {name}-1\n  labels:\n    \
         kubernetes.io/service-name: {name}\naddressType: IPv4\nports:\n- name: main\n  port: {port}\n  \
         protocol: {l4}\nendpoints:\n{endpoints}---\n"
    )
    .expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_large_folder_holds_every_service_once_and_an_own_address_for_every_member() {
        let folder = tempfile::tempdir().unwrap();
        write_large_folder(folder.path()).unwrap();
        let text: String = fs::read_dir(folder.path().join(MANIFESTS))
            .unwrap()
            .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect();
        assert_eq!(text.matches("kind: Service\n").count(), large::SERVICES);
        assert_eq!(text.matches(HASHING).count(), large::HASHING);
        let addresses: std::collections::BTreeSet<&str> =
            text.lines().filter(|line| line.starts_with("- addresses:")).collect();
        assert_eq!(addresses.len(), large::SERVICES * 4);
    }

    #[test]
    fn a_change_replaces_one_endpoint_and_leaves_nothing_else_in_the_watched_folder() {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path()).unwrap();
        write_changed_service(folder.path(), Ipv4Addr::new(127, 99, 0, 1)).unwrap();
        let names: Vec<_> = fs::read_dir(folder.path().join(MANIFESTS))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(names, ["changed.yaml"]);
        let text = fs::read_to_string(folder.path().join(MANIFESTS).join("changed.yaml")).unwrap();
        assert!(text.contains("127.99.0.1") && !text.contains(&large_member(large::CHANGED, 3).to_string()));
    }
}
