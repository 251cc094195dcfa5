//! HTTP/2 as h2spec, which others wrote, judges it: every one of its cases, in the clear and over TLS, before members
//! that speak HTTP/1.1 and HTTP/2.
//!
//! `SEAWAY_H2SPEC` says where the program is; `rig/h2spec/install` builds it. Without it nothing is asked.
#![allow(clippy::unwrap_used)]

#[path = "../http/peer.rs"]
#[allow(dead_code)]
mod peer;
#[path = "../http/scene.rs"]
#[allow(dead_code)]
mod scene;
#[path = "../tcp/stage.rs"]
mod stage;

use std::{net::SocketAddr, process::Command, sync::Arc};

use seaway_model::{
    Kind, ObjectRef, Pool,
    load_balancer::{BackendProtocol, Certificate, Protocol, TlsByName},
};

use crate::{peer::Echo, scene::Member, stage::*};

/// So many has h2spec 2.2.1, to which nothing was added since; fewer were left out.
const CASES: u32 = 146;

#[test]
fn h2spec_finds_no_fault_before_members_of_http_1() {
    let member = Member::saying("hello");
    judge(member.at(), BackendProtocol::Http1, &[]);
}

#[test]
fn h2spec_finds_no_fault_before_members_of_http_2() {
    let member = Echo::new(usize::MAX);
    judge(member.at, BackendProtocol::Http2, &[]);
}

#[test]
fn h2spec_finds_no_fault_over_tls() {
    let member = Member::saying("hello");
    judge(member.at(), BackendProtocol::Http1, &["--tls", "--insecure"]);
}

#[test]
fn h2spec_finds_no_fault_over_tls_before_members_of_http_2() {
    let member = Echo::new(usize::MAX);
    judge(member.at, BackendProtocol::Http2, &["--tls", "--insecure"]);
}

fn judge(member: SocketAddr, protocol: BackendProtocol, options: &[&str]) {
    let Some(h2spec) = std::env::var_os("SEAWAY_H2SPEC") else {
        return seaway_testkit::skip(None, "SEAWAY_H2SPEC names no h2spec; rig/h2spec/install builds it");
    };
    let stage = Stage::new();
    stage.put(Pool { protocol, ..pool(&[member]) });
    let certificate = ObjectRef::new(Kind::Secret, "default", "own");
    let (at, _) = stage.open(HERE, |listener| {
        listener.protocol = Protocol::Http;
        listener.tls = (!options.is_empty())
            .then(|| Arc::new(TlsByName { default: vec![certificate.clone()], ..TlsByName::default() }));
    });
    stage.proxy.put_certificate(&stage.key, &certificate, &Arc::new(own_certificate())).unwrap();
    let port = at.port().to_string();
    let mut command = Command::new(h2spec);
    command.args(["--host", "127.0.0.1", "--port", &port, "--timeout", "10", "--strict"]).args(options);
    let output = command.output().expect("h2spec runs");
    let told = String::from_utf8_lossy(&output.stdout);
    let all = format!("{CASES} tests, {CASES} passed, 0 skipped, 0 failed");
    assert!(
        output.status.success() && told.contains(&all),
        "{told}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn own_certificate() -> Certificate {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    Certificate {
        chain: own.cert.pem().into(),
        key: own.signing_key.serialize_pem().into(),
        authorities: "".into(),
        staple: None,
        users: String::new().into(),
    }
}
