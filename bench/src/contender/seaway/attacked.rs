//! The Services of `attacks`: shared ones, one whose members misbehave, and those that lead to themselves.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result};

use super::super::certificate::Certificate;
use super::{ENDING_TLS, MANIFESTS, SPEAKING_HTTP, Service, prepare, secret, service};
use crate::attacks::ports::{self, Loop};

pub fn write(folder: &Path, certificate: &Certificate) -> Result<()> {
    prepare(folder)?;
    let mut text = String::new();
    secret(&mut text, "bench", certificate);
    let http = Service { annotation: SPEAKING_HTTP, port: ports::HTTP_MEMBER, ..Service::default() };
    let udp = Service { port: ports::UDP_MEMBER, l4: "UDP", ..Service::default() };
    let h2 = Service { port: ports::H2_MEMBER, speaks: "kubernetes.io/h2c", ..http };
    let mut put = |one: Service<'_>, member: Ipv4Addr| service(&mut text, &one, &[member.to_string()]);
    put(Service { name: "http", listen: ports::HTTP, ..http }, ports::SHARED_MEMBER);
    put(Service { name: "h2-member", listen: ports::TO_H2, ..h2 }, ports::SHARED_MEMBER);
    put(Service { name: "tls", listen: ports::TLS, annotation: ENDING_TLS, ..http }, ports::SHARED_MEMBER);
    put(Service { name: "tcp", listen: ports::TCP, annotation: "", ..http }, ports::SHARED_MEMBER);
    put(Service { name: "udp", listen: ports::UDP, ..udp }, ports::SHARED_MEMBER);
    put(Service { name: "other", listen: ports::OTHER, ..http }, ports::OTHER_MEMBER);
    put(Service { name: "failing", listen: ports::FAILING, ..http }, ports::FAILING_MEMBER);
    for (index, port) in ports::desync().enumerate() {
        let name = format!("desync-{index}");
        let port_of_member = ports::desync_member(index).port();
        put(Service { name: &name, listen: port, port: port_of_member, ..http }, ports::DESYNC_MEMBER);
    }
    for ring in Loop::all() {
        let annotation = if ring.http { SPEAKING_HTTP } else { "" };
        for (listen, next) in ring.listeners() {
            let name = format!("loop-{listen}");
            put(Service { name: &name, listen, port: next, annotation, ..http }, Ipv4Addr::LOCALHOST);
        }
    }
    fs::write(folder.join(MANIFESTS).join("attacks.yaml"), text).context("cannot write manifests")
}
