//! Every kind of credential signs in on the real Keystone of `rig/openstack`, and what it refuses is told apart. Keystone
//! v2.0 has left it long ago: that is tried on the fake, in `sign_in.rs`.

#[path = "client/counted.rs"]
mod counted;

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use counted::Counted;
use seaway_openstack::{
    Call, Class, Cloud, Credentials, Error, Service, Settings, Source, Surroundings,
    credentials::{
        ApplicationCredential, Domain, IdentityVersion, Place, Placed, Project as Wanted, Proof, Scope, User,
    },
};
use seaway_testkit::topology::{OpenStack, Project};
use serde_json::{Value, json};

const AUTH_URL: &str = "http://127.0.0.1:5000/v3";

fn demo() -> User {
    User::Name { name: "demo".into(), domain: Domain::default() }
}

fn of_demo() -> Scope {
    Scope::Project(Wanted::Name { name: "demo".into(), domain: Domain::Name("Default".into()) })
}

async fn enter(proof: Proof, scope: Scope) -> Result<Cloud, Error> {
    Cloud::connect(Source::Given(Credentials::new(AUTH_URL, proof, scope)), Settings::default()).await
}

/// As a human would read it.
async fn refused(source: Source) -> String {
    match Cloud::connect(source, Settings::default()).await {
        Ok(cloud) => panic!("let in: {:?}", cloud.session()),
        Err(error) => {
            let told = error.to_string();
            assert!(error.request_id().is_none_or(|id| told.ends_with(&format!("({id})"))), "{told}");
            told.split(" (req-").next().unwrap_or_default().to_owned()
        }
    }
}

async fn made(cloud: &Cloud, path: String, body: Value, key: &str) -> Result<Value> {
    let reply = cloud.call(Call::post(Service::Identity, "prepare a test", path, body)).await?;
    reply.body.get(key).cloned().context("it is not in the reply")
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

#[tokio::test]
async fn every_kind_of_credential_signs_in() -> Result<()> {
    let Some(rig) = OpenStack::up() else { return Ok(()) };
    let project = rig.project("kinds");
    let password = || Proof::Password {
        user: User::Name { name: project.name.clone(), domain: Domain::default() },
        password: project.password().into(),
    };
    let name = |domain| Scope::Project(Wanted::Name { name: project.name.clone(), domain });

    let by_name = enter(password(), name(Domain::default())).await?;
    let session = by_name.session();
    let (user, own) = (session.user.id.clone(), session.project.clone().context("a project")?.id);
    assert_eq!((session.kind, session.version), ("password", "v3"));
    assert!(session.expires.is_some_and(|it| it > SystemTime::now()));
    assert!(session.roles.iter().any(|role| role == "member"), "{:?}", session.roles);

    let by_id = Proof::Password { user: User::Id(user.clone()), password: project.password().into() };
    enter(by_id, Scope::Project(Wanted::Id(own.clone()))).await?;

    let secret =
        |id: Value| json!({"name": "by-test", "secret": "s3cret", "roles": [{"name": "member"}], "id": id});
    let credential = made(
        &by_name,
        format!("/users/{user}/application_credentials"),
        json!({"application_credential": secret(Value::Null)}),
        "application_credential",
    );
    let credential = match credential.await {
        Ok(credential) => credential,
        // Some versions do not take an id at all.
        Err(_) => {
            let mut plain = secret(Value::Null);
            plain.as_object_mut().context("a map")?.remove("id");
            let path = format!("/users/{user}/application_credentials");
            made(&by_name, path, json!({"application_credential": plain}), "application_credential").await?
        }
    };
    for which in [
        ApplicationCredential::Id(text(&credential, "id").to_owned()),
        ApplicationCredential::Name {
            name: "by-test".into(),
            user: User::Name { name: project.name.clone(), domain: Domain::default() },
        },
        ApplicationCredential::Name { name: "by-test".into(), user: User::Id(user.clone()) },
    ] {
        let cloud =
            enter(Proof::ApplicationCredential { which, secret: "s3cret".into() }, Scope::Unsaid).await?;
        assert_eq!(cloud.session().kind, "application credential");
        assert_eq!(cloud.session().project.clone().context("a project")?.id, own);
        cloud.call(Call::get(Service::Network, "list networks", "/networks")).await?;
    }

    let demo = enter(Proof::Password { user: demo(), password: "demopw".into() }, of_demo()).await?;
    let trust = json!({"trust": {"trustor_user_id": user, "trustee_user_id": demo.session().user.id,
        "project_id": own, "impersonation": false, "roles": [{"name": "member"}]}});
    let trust = made(&by_name, "/OS-TRUST/trusts".into(), trust, "trust").await?;
    let trusted = enter(
        Proof::Password { user: self::demo(), password: "demopw".into() },
        Scope::Trust(text(&trust, "id").to_owned()),
    )
    .await?;
    assert_eq!(trusted.session().kind, "trust");
    assert_eq!(trusted.session().project.clone().context("a project")?.id, own, "the trustor's project");
    Ok(())
}

#[tokio::test]
async fn a_token_made_elsewhere_signs_in() -> Result<()> {
    let Some(_rig) = OpenStack::up() else { return Ok(()) };
    // What `openstack token issue` does.
    let body = json!({"auth": {"identity": {"methods": ["password"], "password": {"user":
        {"name": "demo", "domain": {"id": "default"}, "password": "demopw"}}}, "scope": {"project":
        {"name": "demo", "domain": {"id": "default"}}}}});
    let reply = reqwest::Client::builder()
        .no_proxy()
        .build()?
        .post(format!("{AUTH_URL}/auth/tokens"))
        .json(&body)
        .send()
        .await?;
    let token = reply.headers()["x-subject-token"].to_str()?.to_owned();
    let cloud = enter(Proof::Token(token.into()), of_demo()).await?;
    assert_eq!(cloud.session().kind, "token");
    cloud.call(Call::get(Service::LoadBalancer, "list load balancers", "/lbaas/loadbalancers")).await?;
    assert_eq!(
        enter(Proof::Token("gAAAA-nonsense".into()), of_demo()).await.map(|_| ()).unwrap_err().class(),
        &Class::Credentials
    );
    Ok(())
}

#[tokio::test]
async fn what_keystone_refuses_in_one_word_is_told_apart() -> Result<()> {
    let Some(rig) = OpenStack::up() else { return Ok(()) };
    let given = |user: &str, password: &str, project: &str| {
        Source::Given(Credentials::password(AUTH_URL, user, password, project))
    };
    assert_eq!(
        refused(given("demo", "wrong", "demo")).await,
        "sign in: Keystone does not know user \"demo\" of domain default, or the password is wrong; \
         check user, password and the user's domain (auth_url: as given)"
    );
    let unknown = refused(given("nobody", "demopw", "demo")).await;
    assert!(unknown.contains("does not know user \"nobody\""), "{unknown}");
    for project in ["admin", "no-such-project"] {
        let told = refused(given("demo", "demopw", project)).await;
        let expected = format!(
            "sign in: the password is right, but user \"demo\" of domain default has no role in project {project:?} \
             of domain default, or there is no such project; the user has roles in: "
        );
        assert!(told.starts_with(&expected), "{told}");
        assert!(told[expected.len()..].split(", ").any(|it| it == "demo"), "{told}");
    }

    let admin = Cloud::connect(given("admin", "adminpw", "admin"), Settings::default()).await?;
    let name = format!("lonely-{}", std::process::id());
    let user = json!({"user": {"name": name, "password": "pw", "domain_id": "default"}});
    let user = made(&admin, "/users".into(), user, "user").await?;
    let told = refused(given(&name, "pw", "demo")).await;
    let path = format!("/users/{}", text(&user, "id"));
    admin.call(Call::delete(Service::Identity, "clean up", path)).await?;
    assert!(told.contains(&format!("user {name:?} of domain default has no role in any project")), "{told}");
    drop(rig);
    Ok(())
}

#[tokio::test]
async fn an_application_credential_that_expired_or_is_gone_is_told() -> Result<()> {
    let Some(rig) = OpenStack::up() else { return Ok(()) };
    let project = rig.project("expired");
    let cloud = Cloud::connect(own(&project, &project.clouds_yaml()), Settings::default()).await?;
    let user = cloud.session().user.id.clone();
    let soon = jiff::Timestamp::now() + Duration::from_secs(8);
    let body = json!({"application_credential": {"name": "short", "secret": "s3cret",
        "expires_at": soon.strftime("%Y-%m-%dT%H:%M:%S").to_string()}});
    let path = format!("/users/{user}/application_credentials");
    let credential = made(&cloud, path, body, "application_credential").await?;
    let source = |id: &str, secret: &str| {
        let which = ApplicationCredential::Id(id.to_owned());
        let proof = Proof::ApplicationCredential { which, secret: secret.into() };
        Source::Given(Credentials::new(AUTH_URL, proof, Scope::Unsaid))
    };
    let id = text(&credential, "id");
    let expired = "sign in: Keystone does not take the application credential: it has expired, or its secret is wrong; \
                   see `openstack application credential list`; make another with `openstack application credential \
                   create`";
    assert_eq!(refused(source(id, "wrong")).await, expired);
    let until = jiff::Timestamp::now() + Duration::from_secs(60);
    // Expiry is a moment of Keystone's clock: only asking tells that it has come.
    while Cloud::connect(source(id, "s3cret"), Settings::default()).await.is_ok() {
        assert!(jiff::Timestamp::now() < until, "it does not expire");
    }
    assert_eq!(refused(source(id, "s3cret")).await, expired);
    let gone = refused(source("0123456789abcdef0123456789abcdef", "s3cret")).await;
    assert!(gone.starts_with("sign in: there is no such application credential: it was deleted"), "{gone}");
    Ok(())
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
        let cloud = Cloud::connect(
            Source::Given(Credentials::password(url, "demo", "demopw", "demo")),
            Settings::default(),
        )
        .await
        .with_context(|| url.to_owned())?;
        assert_eq!(cloud.session().version, "v3", "{url}");
    }
    let mut old = Credentials::password(AUTH_URL, "demo", "demopw", "demo");
    old.version = Some(IdentityVersion::V2);
    let cloud = Cloud::connect(Source::Given(old), Settings::default()).await?;
    assert_eq!(cloud.session().version, "v3", "where there is no v2.0, v3 does it");
    let other =
        refused(Source::Given(Credentials::password("http://127.0.0.1:9696", "demo", "demopw", "demo")))
            .await;
    assert!(other.ends_with("; it calls http://127.0.0.1:5000/v3 Keystone: is auth_url right?"), "{other}");
    Ok(())
}

#[tokio::test]
async fn a_wrong_region_lists_those_that_there_are() -> Result<()> {
    let Some(_rig) = OpenStack::up() else { return Ok(()) };
    let mut credentials = Credentials::password(AUTH_URL, "demo", "demopw", "demo");
    let place = Place("clouds.yaml:7".into());
    credentials.region = Some(Placed { value: "RegionTwo".into(), place });
    let cloud = Cloud::connect(Source::Given(credentials), Settings::default()).await?;
    let error = cloud.call(Call::get(Service::Network, "list networks", "/networks")).await.unwrap_err();
    assert_eq!(
        (error.class(), error.to_string().as_str()),
        (
            &Class::NoRegion,
            "list networks: there is no network in region \"RegionTwo\"; set the region (clouds.yaml:7) to one of: \
             RegionOne"
        )
    );
    Ok(())
}

#[tokio::test]
async fn services_tell_their_versions() -> Result<()> {
    let Some(_rig) = OpenStack::up() else { return Ok(()) };
    let cloud = enter(Proof::Password { user: demo(), password: "demopw".into() }, of_demo()).await?;
    assert!(cloud.versions(Service::LoadBalancer).await?.has(2, 26));
    assert!(cloud.versions(Service::Compute).await?.has(2, 90));
    for service in [Service::Identity, Service::Network, Service::KeyManager] {
        assert!(!cloud.versions(service).await?.ids.is_empty(), "{service}");
    }
    Ok(())
}

/// The cloud of a project's own user, by a file.
fn own(project: &Project, file: &Path) -> Source {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let around = Surroundings::within(folder).with("OS_CLIENT_CONFIG_FILE", &file.display().to_string());
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

    let counted = Counted::default();
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
