//! The Services of `attacks`: shared ones, one whose members misbehave, and those that lead to themselves.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::super::certificate::Certificate;
use super::{CONFIG, ENDING_TLS, MANIFESTS, SPEAKING_HTTP, Service, prepare, secret, service};
use crate::attacks::REDIRECTED;
use crate::attacks::ports::{self, Loop};

/// What one namespace may have in a cluster.
const EXPRESSIONS: usize = 64;

/// Services of a tenant who floods with health checks, and members of each.
pub const PROBED: usize = 8;
pub const PROBED_MEMBERS: usize = 250;
/// More often than anybody may have it.
const CHECKED: &str = "seaway.dev/health-check: tcp\n    seaway.dev/health-check-interval: 1ms";
/// What a Service may have in a cluster.
const LIMITS: &str = "tenants:\n  limits:\n    checkInterval: 500ms\n    checksPerSecond: 1000\n";

/// Where the Services of [`probed`] are said.
pub fn probed_file(folder: &Path) -> PathBuf {
    folder.join(MANIFESTS).join("probed.yaml")
}

/// Nobody listens at their members, which costs none but the contender.
pub fn probed() -> String {
    let mut text = String::new();
    for index in 0..PROBED {
        let first = u32::from(Ipv4Addr::new(127, 33, 0, 1)) + (index * PROBED_MEMBERS) as u32;
        let members: Vec<String> =
            (0..PROBED_MEMBERS).map(|at| Ipv4Addr::from(first + at as u32).to_string()).collect();
        let name = format!("probed-{index}");
        let listen = ports::PROBED + index as u16;
        service(
            &mut text,
            &Service { name: &name, listen, port: 9, annotation: CHECKED, ..Service::default() },
            &members,
        );
    }
    text
}

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
    let mut alone = |one: Service<'_>| service(&mut text, &one, &[]);
    alone(Service { name: "no-member-tcp", listen: ports::NO_MEMBER_TCP, annotation: "", ..http });
    text += &expressions();
    let mut put = |one: Service<'_>, member: Ipv4Addr| service(&mut text, &one, &[member.to_string()]);
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
    let door = format!(
        "{CONFIG}{LIMITS}frontDoor:\n  enabled: true\n  addresses: [127.0.0.1]\n  port: {}\n  services: annotated\n",
        ports::EXPRESSIONS
    );
    fs::write(folder.join("seaway.yaml"), door).context("cannot write seaway.yaml")?;
    fs::write(folder.join(MANIFESTS).join("attacks.yaml"), text).context("cannot write manifests")
}

/// None of which matches what is asked.
fn expressions() -> String {
    let matches: String = (0..EXPRESSIONS)
        .map(|at| {
            format!("    - path: {{type: RegularExpression, value: \"/(a|b|[a-f])*(x|y){{1,20}}{at}.*\"}}\n")
        })
        .collect();
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: expressions\nspec:\n  rules:\n  \
         - matches:\n{matches}    backendRefs:\n    - name: http\n      port: {}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: redirected\nspec:\n  hostnames: \
         [{REDIRECTED}]\n  rules:\n  - filters:\n    - type: RequestRedirect\n      requestRedirect: {{scheme: https}}\n---\n",
        ports::HTTP
    )
}
