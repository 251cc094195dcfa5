//! Host names that are proven by TLS, where port 80 of the authority leads elsewhere.

use std::sync::Arc;

use super::{authority, problem, shop};
use crate::{
    backends::Web,
    front_door::ask,
    harness::{Folder, Setup, own_address, until},
    tls::{OPEN, TLS, is_served},
};

/// Not where the authority asks by HTTP.
const ELSEWHERE: u16 = OPEN + 1;

#[test]
fn a_host_name_is_proven_by_tls_where_port_80_is_not_reached() {
    let Some(authority) = authority(3600) else { return };
    let (web, ip, folder) = (Web::start("shop"), own_address(), Arc::new(Folder::new()));
    authority.lead_to(ip);
    folder.write("shop.yaml", &shop(&web));
    let config = authority.config(ip).replace(&format!("port: {OPEN}\n"), &format!("port: {ELSEWHERE}\n"));
    let config = format!("{config}    challenge: tls-alpn-01\n");
    let seaway = Setup::again(folder.clone(), ip).config(&config).start();
    let (secure, root) = (seaway.at(TLS), authority.root());
    until("it is served by https", || is_served(secure, "shop.example", &root));
    assert_eq!((problem(&seaway), authority.orders()), (None, 1));
    assert_eq!(ask(seaway.at(ELSEWHERE), "GET", "shop.example/", "").status, 308);
    assert!(!seaway.log().contains("PRIVATE KEY"));
}

#[test]
fn a_name_that_cannot_be_reached_by_tls_is_told_and_its_listener_closes_again() {
    let Some(authority) = authority(3600) else { return };
    let (web, ip, folder) = (Web::start("shop"), own_address(), Arc::new(Folder::new()));
    // Nothing listens there.
    authority.lead_to(own_address());
    folder.write("shop.yaml", &shop(&web));
    let config = format!("{}    challenge: tls-alpn-01\n", authority.config(ip));
    let seaway = Setup::again(folder.clone(), ip).config(&config).start();
    until("why there is no certificate is told", || problem(&seaway).is_some());
    let told = problem(&seaway).expect("a Problem");
    assert!(told.starts_with("no certificate was issued: ") && told.contains("tls-alpn-01"), "{told}");
    until("nothing listens for TLS", || std::net::TcpStream::connect(seaway.at(TLS)).is_err());
    assert_eq!(ask(seaway.at(OPEN), "GET", "shop.example/", "").body, "shop", "http goes on");
    assert_eq!(authority.orders(), 1);
}
