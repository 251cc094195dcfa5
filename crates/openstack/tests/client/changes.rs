//! Credentials that change under way: what is noticed, told, tried, and how often.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use seaway_openstack::{Class, Cloud, Credentials, Source, credentials::AuthMethod};
use tokio::sync::watch;

use crate::{
    keystone::{credentials, quick},
    logged::CapturedLog,
    session::{PasswordServer, hurried, networks, until},
};

const MINUTE: Duration = Duration::from_secs(60);

fn told(door: &PasswordServer, password: &str) -> Credentials {
    let mut told = credentials(&format!("{}/v3", door.server.url()));
    if let AuthMethod::Password { password: own, .. } = &mut told.proof {
        *own = password.into();
    }
    told
}

#[tokio::test]
async fn credentials_that_somebody_else_reads_are_taken_over() {
    for goes in [false, true] {
        let door = PasswordServer::new("old");
        let (sender, receiver) = watch::channel(told(&door, "old"));
        let cloud = Cloud::connect(Source::Told(receiver), quick()).await.expect("let in");
        door.password.send_replace("new");
        sender.send_replace(told(&door, "new"));
        let _kept = (!goes).then_some(sender);
        cloud.call(networks()).await.expect("with the new password, be it a last word");
    }
}

#[tokio::test]
async fn a_file_that_was_refused_is_read_again_after_its_chmod() {
    let folder = tempfile::tempdir().expect("a folder");
    let (door, file) = (PasswordServer::new("old"), folder.path().join("clouds.yaml"));
    door.write(&file, "old");
    let cloud = Cloud::connect(PasswordServer::source(&file), hurried().1).await.expect("let in");
    let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("set");
    door.write(&file, "new");
    mode(0o666);
    door.password.send_replace("new");
    let error = cloud.call(networks()).await.expect_err("the file is refused, the old password is of no use");
    assert_eq!(error.class(), &Class::Credentials, "{error}");
    mode(0o600);
    cloud.call(networks()).await.expect("nothing but the mode has changed");
}

#[tokio::test]
async fn a_file_that_comes_later_and_counts_more_is_noticed() {
    for later in ["clouds.yaml", "home/.config/openstack/secure.yaml", "secure.yml"] {
        let folder = tempfile::tempdir().expect("a folder");
        let door = PasswordServer::new("old");
        door.write(&folder.path().join("etc/openstack/clouds.yaml"), "old");
        let source = PasswordServer::source(&folder.path().join("clouds.yaml"));
        let cloud = Cloud::connect(source, quick()).await.expect("let in");
        door.password.send_replace("new");
        door.write(&folder.path().join(later), "new");
        cloud.call(networks()).await.unwrap_or_else(|error| panic!("{later}: {error}"));
    }
}

#[tokio::test]
async fn what_is_odd_about_changed_credentials_is_told_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let (door, file) = (PasswordServer::new("old"), folder.path().join("clouds.yaml"));
    door.write(&file, "old");
    let (logged, _guard) = CapturedLog::start();
    let cloud = Cloud::connect(PasswordServer::source(&file), quick()).await.expect("let in");
    assert_eq!((logged.count("INSECURE"), cloud.warnings().len()), (0, 0), "{}", logged.text());
    door.write(&file, "new");
    let text = fs::read_to_string(&file).expect("readable") + "    verify: false\n";
    fs::write(&file, text).expect("written");
    door.password.send_replace("new");
    cloud.call(networks()).await.expect("with the new password");
    assert_eq!((logged.count("INSECURE"), cloud.warnings().len()), (1, 1), "{}", logged.text());
}

/// Each try costs the user two failed logins, whose old password still works.
#[tokio::test]
async fn mistyped_credentials_are_tried_ever_more_seldom_until_they_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let (door, file) = (PasswordServer::new("old"), folder.path().join("clouds.yaml"));
    door.write(&file, "old");
    let (clock, settings) = hurried();
    let cloud = Cloud::connect(PasswordServer::source(&file), settings).await.expect("let in");
    let tried = || door.server.count("POST", "/auth/tokens");
    door.write(&file, "mistyped");
    // The token lives an hour: none of this is for its sake.
    for _ in 0..50 {
        clock.advance(MINUTE);
        cloud.call(networks()).await.expect("the old ones work");
    }
    until("they are tried", async || tried() >= 3).await;
    assert!((3..=9).contains(&tried()), "at once, after 1, 5 and 15 minutes, not {} times", tried());
    door.write(&file, "other");
    let before = tried();
    clock.advance(MINUTE);
    cloud.call(networks()).await.expect("the old ones work");
    until("another change is tried at once", async || tried() >= before + 2).await;
}
