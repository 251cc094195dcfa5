//! `cloud.conf`: who we are, for whoever comes from the OpenStack cloud controller manager.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use seaway_openstack::{
    Error, LoadedCredentials, Source,
    credentials::{AuthMethod, CloudConf, Domain, Interface, Project, Scope, User},
};

use crate::credentials::{FakeFilesystem, clouds, password, url};

fn read(machine: &FakeFilesystem) -> Result<LoadedCredentials, Error> {
    Source::CloudConf { file: machine.path("cloud.conf").into(), around: machine.around.clone() }.read()
}

fn of(machine: &FakeFilesystem, text: &str) -> Result<LoadedCredentials, Error> {
    machine.write("cloud.conf", text);
    read(machine)
}

const GLOBAL: &str =
    "[Global]\nauth-url=http://k:5000/v3\nUsername=u\npassword=\"p#w\"\ntenant-name=t\ndomain-name=Corp\n";

#[test]
fn cloud_conf_is_read_as_the_cloud_controller_manager_reads_it() {
    let machine = FakeFilesystem::new();
    let text = GLOBAL.to_owned()
        + "region = RegionOne # here\nos-endpoint-type = internal\ntls-insecure = false\nca-file=/ca.pem\n\
           [Metadata]\nrequest-timeout = 45s\n[BlockStorage]\nbs-version=v3\n[LoadBalancerClass \"gold\"]\nsubnet-id=s1\n";
    let reading = of(&machine, &text).expect("readable");
    let credentials = &reading.credentials;
    assert_eq!((url(credentials), password(credentials)), ("http://k:5000/v3", "p#w"));
    assert_eq!(credentials.timeout.map(|it| it.as_secs()), Some(45));
    assert_eq!(credentials.interface, Interface::Internal);
    let region = credentials.region.as_ref().expect("a region");
    assert_eq!(
        (region.value.as_str(), machine.short(&region.place.0)),
        ("RegionOne", "./cloud.conf:7".into())
    );
    assert!(
        matches!(&credentials.scope, Scope::Project(Project::Name { domain: Domain::Name(domain), .. }) if domain == "Corp")
    );
    let warnings: Vec<String> = reading.warnings.iter().map(|it| machine.short(it)).collect();
    assert_eq!(warnings, ["./cloud.conf:13: the section [BlockStorage] is not used here"]);

    let conf = CloudConf::read(Path::new(&machine.path("cloud.conf"))).expect("readable");
    let gold = conf.ini.subsections("LoadBalancerClass").next().expect("a class");
    assert_eq!(
        (gold.sub.as_deref(), gold.entries[0].value()),
        (Some("gold"), "s1"),
        "the driver finds its part"
    );
}

#[test]
fn a_request_timeout_is_a_duration_of_go() {
    let machine = FakeFilesystem::new();
    for (said, milliseconds) in
        [("1m", Some(60_000)), ("1m30s", Some(90_000)), ("500ms", Some(500)), ("0", None), ("", None)]
    {
        let text = format!("{GLOBAL}[Metadata]\nrequest-timeout = {said}\n");
        let credentials = of(&machine, &text).expect("readable").credentials;
        assert_eq!(credentials.timeout.map(|it| it.as_millis()), milliseconds, "{said:?}");
    }
}

/// What follows from such a file: credentials with what is secret in them, warnings, or an error.
fn meant(machine: &FakeFilesystem, lines: &[&str]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| machine.filled(line)).collect();
    match of(machine, &format!("[Global]\n{}\n", lines.join("\n"))) {
        Ok(LoadedCredentials { credentials, warnings, .. }) => {
            format!("{credentials:?} {} {warnings:?}", password(&credentials))
        }
        Err(error) => error.to_string(),
    }
}

/// None is passed over in silence.
#[test]
fn each_key_of_global_changes_who_we_are_or_is_told() {
    let machine = FakeFilesystem::with(&[("other/clouds.yaml", &clouds(&["a", "b"]))]);
    let own = ["auth-url=http://k:5000/v3", "username=u", "password=p", "tenant-name=t", "domain-name=d"];
    let trust = ["auth-url=http://k", "trust-id=t", "trustee-id=i", "trustee-password=p"];
    let by_id = ["auth-url=http://k", "application-credential-id=a", "application-credential-secret=s"];
    let by_name = [
        "auth-url=http://k",
        "username=u",
        "domain-name=d",
        "application-credential-name=a",
        "application-credential-secret=s",
    ];
    let token = ["auth-url=http://k", "token=x", "tenant-id=t"];
    let of_cloud = ["use-clouds=true", "clouds-file=FOLDER/other/clouds.yaml", "cloud=b"];
    let without = |all: &[&'static str], key: &str| -> Vec<&'static str> {
        all.iter().copied().filter(|it| !it.starts_with(&format!("{key}="))).collect()
    };
    let mut walked = 0;
    let mut is_heard = |before: &[&str], line: &str| {
        let after = [before, &[line]].concat();
        assert_ne!(meant(&machine, before), meant(&machine, &after), "{line} beside {before:?}");
        walked += 1;
    };
    // Each of a whole set, taken away.
    for all in [&own[..], &trust, &by_id, &by_name, &token, &of_cloud] {
        for line in all {
            is_heard(&without(all, line.split('=').next().expect("a key")), line);
        }
    }
    // Instead of one of them.
    for (instead, line) in [
        ("username", "user-id=1"),
        ("tenant-name", "tenant-id=1"),
        ("tenant-name", "project-id=1"),
        ("tenant-name", "project-name=1"),
        ("domain-name", "domain-id=1"),
    ] {
        is_heard(&without(&own, instead), line);
    }
    // Beside all of them.
    for line in [
        "tenant-domain-id=1",
        "project-domain-id=1",
        "tenant-domain-name=1",
        "project-domain-name=1",
        "user-domain-id=1",
        "user-domain-name=1",
        "region=R",
        "os-endpoint-type=internal",
        "os-endpoint-type=nowhere",
        "ca-file=/ca.pem",
        "cert-file=/cert.pem",
        "key-file=/key.pem",
        "tls-insecure=true",
        "tls-insecure=perhaps",
        "auht-url=http://k",
    ] {
        is_heard(&own, line);
    }
    is_heard(&own, "[Metadata]\nrequest-timeout=45s");
    assert!(walked > 40, "{walked}");
}

#[test]
fn trustees_and_application_credentials_of_cloud_conf_are_understood() {
    let machine = FakeFilesystem::new();
    let trust = "[Global]\nauth-url=http://k\ntrust-id=t1\ntrustee-id=u1\ntrustee-password=tp\nuser-id=other\npassword=op\n";
    let credentials = of(&machine, trust).expect("readable").credentials;
    assert_eq!(credentials.scope, Scope::Trust("t1".into()));
    assert!(matches!(&credentials.proof, AuthMethod::Password { user: User::Id(id), .. } if id == "u1"));
    assert_eq!(password(&credentials), "tp");
    let credential =
        "[Global]\nauth-url=http://k\napplication-credential-id=a1\napplication-credential-secret=s\n";
    let credentials = of(&machine, credential).expect("readable").credentials;
    assert!(matches!(credentials.proof, AuthMethod::ApplicationCredential { .. }));
}

#[test]
fn cloud_conf_may_send_us_to_clouds_yaml_and_counts_more() {
    let machine = FakeFilesystem::with(&[("other/clouds.yaml", &clouds(&["a", "b"]))]);
    let text = format!(
        "[Global]\nuse-clouds = true\nclouds-file = {}\ncloud = b\nregion = R9\n",
        machine.path("other/clouds.yaml")
    );
    let reading = of(&machine, &text).expect("readable");
    assert_eq!(url(&reading.credentials), "http://b:5000/v3");
    assert_eq!(reading.credentials.region.expect("a region").value, "R9");
    assert_eq!(reading.files.len(), 2, "both are watched");
}

#[test]
fn mistakes_in_cloud_conf_are_told_by_line() {
    let machine = FakeFilesystem::new();
    for (text, told) in [
        ("[Global\n", "./cloud.conf:1: not a section"),
        ("[Global]\nauth-url=k\n", "./cloud.conf:2: auth_url: \"k\" has to begin with http://"),
        ("[Global]\nauth-url=http://k\nusername=u\n", "[Global] of ./cloud.conf has no password; "),
        (
            "[Global]\nuse-clouds=perhaps\n",
            "./cloud.conf:2: use-clouds: \"perhaps\" is neither true nor false",
        ),
        ("", "[Global] of ./cloud.conf has no auth_url; "),
    ] {
        let error = machine.short(&of(&machine, text).expect_err("a mistake").to_string());
        assert!(error.starts_with(&format!("read the credentials: {told}")), "{text:?}: {error}");
    }
}

#[test]
fn cloud_conf_in_a_secret_volume_is_readable_by_design() {
    let machine = FakeFilesystem::new();
    machine.write("..v1/cloud.conf", GLOBAL);
    fs::set_permissions(machine.path("..v1/cloud.conf"), fs::Permissions::from_mode(0o644)).expect("set");
    symlink("..v1", machine.path("..data")).expect("linked");
    symlink("..data/cloud.conf", machine.path("cloud.conf")).expect("linked");
    let source =
        Source::CloudConf { file: machine.path("cloud.conf").into(), around: machine.around.clone() };
    assert!(source.read().expect("readable").warnings.is_empty());
}
