//! That tests which share the OpenStack of `rig/openstack` do not see each other.
#![cfg(feature = "topology")]

use std::os::unix::fs::PermissionsExt;

use seaway_testkit::topology::{OpenStack, command};

/// The status with which Keystone answers a sign-in by password.
fn sign_in(user: &str, password: &str) -> String {
    let domain = r#""domain": {"id": "default"}"#;
    let body = format!(
        r#"{{"auth": {{"scope": {{"project": {{"name": "{user}", {domain}}}}}, "identity": {{"methods": ["password"],
            "password": {{"user": {{"name": "{user}", "password": "{password}", {domain}}}}}}}}}}}"#
    );
    let url = "http://127.0.0.1:5000/v3/auth/tokens";
    let json = "Content-Type: application/json";
    let silent = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "--noproxy", "*", "-H", json, "-d"];
    command("curl", &[&silent[..], &[&body, url]].concat())
}

#[test]
fn a_project_of_a_test_is_nobody_elses_and_goes_with_it() {
    let Some(rig) = OpenStack::up() else { return };
    let (one, two) = (rig.project("one"), rig.project("one"));
    assert_ne!(one.name, two.name);
    for project in [&one, &two] {
        let file = std::fs::metadata(project.clouds_yaml()).expect("written");
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        assert_eq!(sign_in(&project.name, &project.password()), "201");
    }
    assert_eq!(sign_in(&two.name, &one.password()), "401");
    let (name, password, file) = (two.name.clone(), two.password(), two.clouds_yaml());
    drop(two);
    assert_eq!(sign_in(&name, &password), "401");
    assert!(!file.exists());
    assert_eq!(sign_in(&one.name, &one.password()), "201");
}

#[test]
fn outside_of_the_cloud_is_a_network_with_the_gateway_of_floating_ips() {
    let Some(rig) = OpenStack::up() else { return };
    assert!(rig.outside().ip(&["address", "show", "dev", "eth0"]).contains("172.24.4.1/24"));
}
