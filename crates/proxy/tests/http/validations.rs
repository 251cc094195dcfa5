//! Names that a certificate authority checks by TLS-ALPN-01 (RFC 8737), beside those who are served.

use std::{io::Read, net::SocketAddr, sync::Arc};

use rustls::pki_types::{CertificateDer, pem::PemObject};
use seaway_model::load_balancer::{Certificate, ClientAuth, HostPattern, TlsByName};
use seaway_proxy::{RefusalReason, shows_validation};

use crate::{scene::*, stage::*, tls::*};

/// `checked.example` is checked, and `a.example` is served.
fn checking(authority: &Authority, clients: Option<ClientAuth>) -> (Stage, SocketAddr, Certificate, Member) {
    let member = Member::saying("hello");
    let proof = authority.certificate("checked.example");
    let tls = TlsByName {
        default: vec![object("a")],
        validations: [("checked.example".into(), Arc::new(proof.clone()))].into(),
        clients,
        ..TlsByName::default()
    };
    let stage = Stage::new();
    stage.put(pool(&[member.at()]));
    if tls.clients.is_some() {
        give(&stage, "ca", &authority.as_authorities());
    }
    let (at, _) = stage.open(HERE, |listener| {
        listener.protocol = seaway_model::load_balancer::Protocol::Http;
        listener.tls = Some(Arc::new(tls.clone()));
    });
    give(&stage, "a", &authority.certificate("a.example"));
    (stage, at, proof, member)
}

fn asking(authority: &Authority, protocols: &[&str]) -> rustls::ClientConfig {
    let mut config = config(authority);
    config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
    config
}

#[test]
fn an_authority_sees_the_proof_of_the_name_that_is_checked_and_then_the_end() {
    let authority = Authority::new();
    let (stage, at, proof, _member) = checking(&authority, None);
    assert_eq!(shows_validation(at, "checked.example", &proof), Ok(()));
    let mut stream = secure(at, "checked.example", asking(&authority, &["acme-tls/1"])).unwrap();
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"acme-tls/1"[..]));
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"", "its end is told, and nothing else");
    let listener = stage.listener(at);
    assert_eq!((listener.requests, listener.refused(RefusalReason::Tls)), (0, 0));
    eventually("all have ended", || stage.listener(at).traffic.current == 0);
}

#[test]
fn nobody_else_sees_the_proof_and_no_other_name_is_proven() {
    let authority = Authority::new();
    let (stage, at, proof, _member) = checking(&authority, None);
    let is_proof = |stream: &Secured| {
        let proof = CertificateDer::from_pem_slice(proof.chain.as_bytes()).unwrap();
        stream.conn.peer_certificates().unwrap()[0] == proof
    };
    for protocols in [&[] as &[&str], &["h2"], &["http/1.1"], &["acme-tls/1", "http/1.1"]] {
        let mut stream = secure(at, "a.example", asking(&authority, protocols)).unwrap();
        assert!(!is_proof(&stream), "{protocols:?}");
        if !protocols.contains(&"h2") {
            assert!(get(&mut stream).unwrap().ends_with("hello"), "{protocols:?}");
        }
        // The name that is checked has no certificate of its own yet: who is served gets another one, and says so.
        let wrong = secure(at, "checked.example", asking(&authority, protocols)).unwrap_err();
        assert!(wrong.to_string().contains("not valid for name"), "{protocols:?}: {wrong}");
    }
    // Those four went away, which is counted as well.
    for name in ["a.example", "sub.checked.example", "other.example"] {
        secure(at, name, asking(&authority, &["acme-tls/1"])).unwrap_err();
    }
    eventually("they are refused", || stage.listener(at).refused(RefusalReason::Tls) == 4 + 3);
    assert!(shows_validation(at, "a.example", &proof).is_err());
}

#[test]
fn an_authority_needs_no_certificate_of_clients_and_others_still_do() {
    let authority = Authority::new();
    let clients = Some(ClientAuth { authorities: object("ca"), required: true });
    let (_stage, at, proof, _member) = checking(&authority, clients);
    assert_eq!(shows_validation(at, "checked.example", &proof), Ok(()));
    let served = secure(at, "a.example", config(&authority)).and_then(|mut it| get(&mut it));
    assert!(served.is_err(), "it showed none");
}

#[test]
fn a_name_that_is_passed_on_is_left_to_its_member_and_the_checked_one_is_shown_before_any_certificate() {
    let authority = Authority::new();
    let (_behind, behind, theirs, _member) = checking(&authority, None);
    let own = authority.certificate("own.example");
    let stage = Stage::new();
    let id = seaway_model::PoolId("behind".into());
    stage.put(seaway_model::Pool { id: id.clone(), ..pool(&[behind]) });
    let tls = TlsByName {
        through: [(HostPattern::Exact("checked.example".into()), vec![(id, 1)])].into(),
        validations: [("own.example".into(), Arc::new(own.clone()))].into(),
        ..TlsByName::default()
    };
    let (at, _) = stage.open(HERE, |listener| {
        listener.protocol = seaway_model::load_balancer::Protocol::Http;
        listener.tls = Some(Arc::new(tls.clone()));
    });
    assert_eq!(shows_validation(at, "own.example", &own), Ok(()));
    assert_eq!(shows_validation(at, "checked.example", &theirs), Ok(()), "its member answers for it");
    secure(at, "own.example", config(&authority)).unwrap_err();
}
