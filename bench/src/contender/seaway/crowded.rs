//! Folders in which much stands behind one front door.

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result};

use super::super::certificate::Certificate;
use super::super::{FRONT_DOOR, SECURE_DOOR};
use super::{CONFIG, MANIFESTS, prepare, secret};
use crate::backend::{MEMBERS, WEB_PORT};

/// Whom the routes lead to, in turn.
const SERVICES: usize = 10;

pub fn host(index: usize) -> String {
    format!("host-{index:05}.example")
}

/// Where the Services are that stand behind every host.
pub const SERVICE_PATH: &str = "/behind-0";

pub fn path(index: usize) -> String {
    format!("/route-{index:05}")
}

/// So many HTTPRoutes, each with a host and a path of its own, 100 to a file; the first, which changes, alone.
pub fn write_routes(folder: &Path, count: usize) -> Result<()> {
    begin(folder)?;
    let others: Vec<usize> = (1..count).collect();
    for (number, chunk) in others.chunks(100).enumerate() {
        let text: String = chunk.iter().map(|index| route(*index, "")).collect();
        fs::write(folder.join(MANIFESTS).join(format!("routes-{number:02}.yaml")), text)?;
    }
    put_changed(folder, &route(0, ""))
}

pub fn write_changed_route(folder: &Path) -> Result<()> {
    const MOVED: &str = "  - matches: [{path: {value: /changed}}]\n    filters:\n    \
                         - {type: RequestRedirect, requestRedirect: {path: {type: ReplaceFullPath, replaceFullPath: /new}}}\n";
    put_changed(folder, &route(0, MOVED))
}

fn route(index: usize, more: &str) -> String {
    let (host, path, service) = (host(index), path(index), index % SERVICES);
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: route-{index:05}}}\nspec:\n  \
         hostnames: [{host}]\n  rules:\n  - matches: [{{path: {{value: {path}}}}}]\n    \
         backendRefs: [{{name: behind-{service}, port: 80}}]\n{more}---\n"
    )
}

/// A Secret for each, 100 to a file; the first, which changes, alone.
pub fn write_certificates(folder: &Path, certificates: &[Certificate]) -> Result<()> {
    begin(folder)?;
    let (first, others) = certificates.split_first().context("there is at least one")?;
    for (number, chunk) in others.chunks(100).enumerate() {
        let mut text = String::new();
        for (index, certificate) in chunk.iter().enumerate() {
            secret(&mut text, &format!("certificate-{:05}", 1 + number * 100 + index), certificate);
        }
        fs::write(folder.join(MANIFESTS).join(format!("certificates-{number:02}.yaml")), text)?;
    }
    write_changed_certificate(folder, first)
}

pub fn write_changed_certificate(folder: &Path, certificate: &Certificate) -> Result<()> {
    let mut text = String::new();
    secret(&mut text, "certificate-00000", certificate);
    put_changed(folder, &text)
}

/// In one atomic step.
fn put_changed(folder: &Path, text: &str) -> Result<()> {
    // Not inside the watched folder: only the rename shall be seen there.
    let written = folder.join("changed.yaml.new");
    fs::write(&written, text)?;
    fs::rename(written, folder.join(MANIFESTS).join("changed.yaml"))
        .context("cannot move the changed manifest")
}

fn begin(folder: &Path) -> Result<()> {
    prepare(folder)?;
    let door = format!(
        "{CONFIG}frontDoor:\n  addresses: [127.0.0.1]\n  port: {}\n  tls: {{port: {}}}\n",
        FRONT_DOOR.port(),
        SECURE_DOOR.port()
    );
    fs::write(folder.join("seaway.yaml"), door).context("cannot write seaway.yaml")?;
    let endpoints: String = MEMBERS.iter().map(|ip: &Ipv4Addr| format!("- addresses: [{ip}]\n")).collect();
    let mut text = String::new();
    for index in 0..SERVICES {
        let name = format!("behind-{index}");
        write!(
            text,
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec:\n  ports:\n  \
             - {{port: 80, appProtocol: http}}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  \
             name: {name}-1\n  labels: {{kubernetes.io/service-name: {name}}}\naddressType: IPv4\nports:\n\
             - port: {WEB_PORT}\nendpoints:\n{endpoints}---\n"
        )
        .expect("writing to a String cannot fail");
    }
    fs::write(folder.join(MANIFESTS).join("services.yaml"), text).context("cannot write manifests")
}
