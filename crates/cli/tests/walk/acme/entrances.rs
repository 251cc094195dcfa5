//! Host names that are only at a further entrance of the front door.

use std::sync::Arc;

use super::{authority, problem, shop};
use crate::{
    backends::Web,
    front_door::ask,
    harness::{Folder, Setup, own_address, until},
    manifests::Service,
    tls::{OPEN, TLS, is_served},
};

/// Of the main entrance: the authority asks at the port of the other one.
const ELSEWHERE: u16 = OPEN + 1;
const ELSEWHERE_TLS: u16 = TLS + 1;

#[test]
fn host_names_of_all_entrances_get_certificates_whichever_of_them_the_authority_reaches() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let Some(authority) = authority(3600) else { return };
        let (web, ip, folder) = (Web::start("shop"), own_address(), Arc::new(Folder::new()));
        authority.lead_to(ip);
        folder.write("shop.yaml", &shop(&web));
        let admin = Service::web("admin").with("host", "admin.example").with("entrance", "internal");
        folder.write("admin.yaml", &admin.to(web.at).text());
        let config = authority.config(ip);
        let config = config.replace(&format!("port: {OPEN}\n"), &format!("port: {ELSEWHERE}\n"));
        let config = config.replace(&format!("{{port: {TLS}"), &format!("{{port: {ELSEWHERE_TLS}"));
        let internal = format!(
            "    challenge: {challenge}\n  entrances:\n  - name: internal\n    addresses: [\"{ip}\"]\n    port: {OPEN}\n    \
             tls: {{port: {TLS}, redirect: true}}\n"
        );
        let seaway = Setup::again(folder.clone(), ip).config(&format!("{config}{internal}")).start();
        let root = authority.root();
        until("it is served at the entrance", || is_served(seaway.at(TLS), "admin.example", &root));
        assert_eq!(ask(seaway.at(OPEN), "GET", "admin.example/", "").status, 308);
        let elsewhere = ask(seaway.at(ELSEWHERE), "GET", "admin.example/", "");
        assert_eq!(elsewhere.status, 404, "it is not at the main one");
        match challenge {
            // The entrance answers by http for names that are not there, too.
            "http-01" => {
                until("so is the other", || is_served(seaway.at(ELSEWHERE_TLS), "shop.example", &root));
                assert_eq!(problem(&seaway), None);
            }
            _ => until("that the other one is not reached is told", || problem(&seaway).is_some()),
        }
    }
}
