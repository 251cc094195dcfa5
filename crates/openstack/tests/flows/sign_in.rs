//! Every kind of credential signs in on the real Keystone of `rig/openstack`, and what it refuses is told apart. Keystone
//! v2.0 has left it long ago: that is tried on the fake, in `sign_in.rs`.

#[path = "../client/counted.rs"]
mod counted;
#[path = "../client/kinds.rs"]
mod kinds;

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use counted::RecordedMetrics;
use kinds::ProjectUser;
use seaway_openstack::{
    Call, Class, Cloud, Credentials, Environment, Service, Settings, Source,
    credentials::{IdentityVersion, Located, SourceLocation},
};
use seaway_testkit::topology::{OpenStack, Project};
use serde_json::json;

const AUTH_URL: &str = "http://127.0.0.1:5000/v3";

fn site(project: &Project) -> ProjectUser {
    ProjectUser { auth_url: AUTH_URL.to_owned(), user: project.name.clone(), password: project.password() }
}

fn demo(auth_url: &str) -> Source {
    Source::Given(Credentials::password(auth_url, "demo", "demopw", "demo"))
}

#[tokio::test]
async fn every_kind_of_credential_signs_in() -> Result<()> {
    let Some(rig) = OpenStack::up() else { return Ok(()) };
    kinds::every_kind_signs_in(&site(&rig.project("kinds"))).await
}

#[tokio::test]
async fn what_keystone_refuses_in_one_word_is_told_apart() -> Result<()> {
    let Some(rig) = OpenStack::up() else { return Ok(()) };
    kinds::what_is_refused_in_one_word_is_told_apart(&site(&rig.project("refused"))).await
}

#[tokio::test]
async fn an_application_credential_that_expired_or_is_gone_is_told() -> Result<()> {
    let Some(rig) = OpenStack::up() else { return Ok(()) };
    let project = rig.project("expired");
    let site = site(&project);
    // There is time to make one and to sign in with it, on a slow machine too.
    let begun = Instant::now();
    site.enter_as(&site.user, &site.password, &site.user).await?;
    let soon = jiff::Timestamp::now() + Duration::from_secs(8) + 20 * begun.elapsed();
    let until = soon + Duration::from_secs(300);
    // Expiry is a moment of Keystone's clock: only asking tells that it has come.
    let expire = async |id: &str| {
        while site.by_credential(id, "s3cret").await.is_ok() {
            assert!(jiff::Timestamp::now() < until, "it does not expire");
        }
    };
    let soon = soon.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    kinds::a_credential_that_ended_is_told(&site, &soon, expire).await
}

#[tokio::test]
async fn a_token_made_elsewhere_signs_in() -> Result<()> {
    let Some(rig) = OpenStack::up() else { return Ok(()) };
    kinds::a_token_signs_in(&site(&rig.project("token"))).await
}

#[tokio::test]
async fn an_auth_url_works_whichever_way_it_is_written() -> Result<()> {
    let Some(_rig) = OpenStack::up() else { return Ok(()) };
    for url in [
        "http://127.0.0.1:5000",
        "http://127.0.0.1:5000/",
        "http://127.0.0.1:5000/v3/",
        "http://localhost:5000/v3///",
        "http://127.0.0.1:5000/v3/auth/tokens",
        "http://127.0.0.1:5000/v2.0",
    ] {
        let cloud = Cloud::connect(demo(url), Settings::default()).await.with_context(|| url.to_owned())?;
        assert_eq!(cloud.session().version, "v3", "{url}");
    }
    let mut old = Credentials::password(AUTH_URL, "demo", "demopw", "demo");
    old.version = Some(IdentityVersion::V2);
    let cloud = Cloud::connect(Source::Given(old), Settings::default()).await?;
    assert_eq!(cloud.session().version, "v3", "where there is no v2.0, v3 does it");
    let other = kinds::told(Cloud::connect(demo("http://127.0.0.1:9696"), Settings::default()).await);
    assert!(
        other.ends_with(
            "; the service says that its Keystone is http://127.0.0.1:5000/v3: is auth_url right?"
        ),
        "{other}"
    );
    Ok(())
}

#[tokio::test]
async fn a_wrong_region_lists_those_that_there_are() -> Result<()> {
    let Some(_rig) = OpenStack::up() else { return Ok(()) };
    let mut credentials = Credentials::password(AUTH_URL, "demo", "demopw", "demo");
    let place = SourceLocation("clouds.yaml:7".into());
    credentials.region = Some(Located { value: "RegionTwo".into(), place });
    let cloud = Cloud::connect(Source::Given(credentials), Settings::default()).await?;
    let error = cloud.call(Call::get(Service::Network, "list networks", "/networks")).await.unwrap_err();
    assert_eq!(
        (error.class(), error.to_string().as_str()),
        (
            &Class::NoRegion,
            "list networks: the cloud has no network in region \"RegionTwo\"; set the region (clouds.yaml:7) to one of: \
             RegionOne"
        )
    );
    Ok(())
}

#[tokio::test]
async fn services_tell_their_versions() -> Result<()> {
    let Some(_rig) = OpenStack::up() else { return Ok(()) };
    let cloud = Cloud::connect(demo(AUTH_URL), Settings::default()).await?;
    assert!(cloud.versions(Service::LoadBalancer).await?.supports(2, 26));
    assert!(cloud.versions(Service::Compute).await?.supports(2, 90));
    for service in [Service::Identity, Service::Network, Service::KeyManager] {
        assert!(!cloud.versions(service).await?.ids.is_empty(), "{service}");
    }
    Ok(())
}

/// The cloud of a project's own user, by a file.
fn own(project: &Project, file: &Path) -> Source {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let around = Environment::in_folder(folder).with("OS_CLIENT_CONFIG_FILE", &file.display().to_string());
    Source::Client { cloud: Some(project.name.clone()), around }
}

#[tokio::test]
async fn a_password_changed_under_way_costs_a_hundred_callers_one_sign_in() -> Result<()> {
    let Some(rig) = OpenStack::up() else { return Ok(()) };
    let project = rig.project("changed");
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("clouds.yaml");
    let clouds = fs::read_to_string(project.clouds_yaml())?;
    write(&file, &clouds)?;

    let counted = RecordedMetrics::default();
    let settings = Settings { metrics: counted.metrics(), ..Settings::default() };
    let cloud = Cloud::connect(own(&project, &file), settings).await?;
    // Other services remember for minutes that a token was good.
    let projects = || Call::get(Service::Identity, "list own projects", "/auth/projects");
    cloud.call(projects()).await?;
    assert_eq!(counted.sign_ins("ok"), 1);

    // Keystone revokes all tokens of a user whose password changes.
    let body = json!({"user": {"original_password": project.password(), "password": "a-new-one"}});
    let path = format!("/users/{}/password", cloud.session().user.id);
    cloud.call(Call::post(Service::Identity, "change the password", path, body)).await?;
    // With them those that it gives within the same second.
    let begun = Instant::now();
    let site = ProjectUser { password: "a-new-one".to_owned(), ..site(&project) };
    while let Err(error) = site.enter_as(&site.user, &site.password, &site.user).await?.call(projects()).await
    {
        ensure!(begun.elapsed() < Duration::from_secs(60), error);
    }
    write(&file, &clouds.replace(&project.password(), "a-new-one"))?;

    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (cloud, call) = (cloud.clone(), projects());
        calls.spawn(async move { cloud.call(call).await });
    }
    for outcome in calls.join_all().await {
        outcome?;
    }
    assert_eq!(counted.sign_ins("ok"), 2, "one for the start, one for the hundred");
    assert_eq!(counted.sign_ins("credentials"), 0, "nobody tried the old one again");
    Ok(())
}

/// As its owner would: nobody else reads it.
fn write(file: &Path, text: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::write(file, text)?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))?;
    Ok(())
}
