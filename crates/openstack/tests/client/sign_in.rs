//! Every kind of credential, on the fake: Keystone v3 as the real one has it, and v2.0, which no real one has any more.

use std::time::Duration;

use anyhow::{Context, Result};
use seaway_openstack::{
    Call, Class, Cloud, Credentials, Service, Settings, Source,
    credentials::{ApplicationCredential, AuthMethod, Domain, IdentityVersion, Scope},
};
use seaway_testkit::cloud::{Cloud as Fake, IdentityVersions};
use serde_json::{Value, json};

use crate::{
    counted::RecordedMetrics,
    keystone::quick,
    kinds::{self, ProjectUser},
};

fn site(fake: &Fake) -> ProjectUser {
    fake.add_project("shop", "shop-pw", &["member", "load-balancer_member"]);
    ProjectUser { auth_url: fake.auth_url(), user: "shop".into(), password: "shop-pw".into() }
}

#[tokio::test]
async fn every_kind_of_credential_signs_in() -> Result<()> {
    kinds::every_kind_signs_in(&site(&Fake::start())).await
}

#[tokio::test]
async fn what_keystone_refuses_in_one_word_is_told_apart() -> Result<()> {
    kinds::what_is_refused_in_one_word_is_told_apart(&site(&Fake::start())).await
}

#[tokio::test]
async fn an_application_credential_that_expired_or_is_gone_is_told() -> Result<()> {
    let fake = Fake::start();
    let expires = jiff::Timestamp::try_from(fake.now() + Duration::from_secs(3600))?;
    let expires = expires.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    let expire = async |_: &str| fake.advance(Duration::from_secs(3601));
    kinds::a_credential_that_ended_is_told(&site(&fake), &expires, expire).await
}

#[tokio::test]
async fn a_token_made_elsewhere_signs_in() -> Result<()> {
    kinds::a_token_signs_in(&site(&Fake::start())).await
}

#[tokio::test]
async fn a_token_that_ends_under_way_is_renewed_for_all_services() -> Result<()> {
    let fake = Fake::start();
    let counted = RecordedMetrics::default();
    let settings = Settings { metrics: counted.metrics(), ..quick() };
    let source = Source::Given(Credentials::password(&fake.auth_url(), "demo", "demopw", "demo"));
    let cloud = Cloud::connect(source, settings).await?;
    fake.advance(Duration::from_secs(5 * 3600));
    for (service, path) in [
        (Service::LoadBalancer, "/lbaas/loadbalancers"),
        (Service::Network, "/networks"),
        (Service::Compute, "/servers"),
        (Service::KeyManager, "/secrets"),
    ] {
        cloud.call(Call::get(service, "list", path)).await?;
    }
    assert_eq!(counted.sign_ins("ok"), 2);
    Ok(())
}

/// On a Keystone that speaks these, with this URL, at `/v2.0` or `/v3` in the end.
async fn speaks(
    versions: IdentityVersions,
    path: &str,
    adjust: impl FnOnce(&mut Credentials),
) -> Result<&'static str> {
    let fake = Fake::start();
    fake.speak(versions);
    let mut credentials =
        Credentials::password(&format!("{}/identity{path}", fake.url()), "demo", "demopw", "demo");
    adjust(&mut credentials);
    let cloud = Cloud::connect(Source::Given(credentials), quick()).await?;
    let session = cloud.session();
    let listed = cloud.call(Call::get(Service::LoadBalancer, "list", "/lbaas/loadbalancers")).await?;
    assert_eq!(listed.body["loadbalancers"], json!([]));
    assert_eq!(session.project.as_ref().map(|it| it.name.as_str()), Some("demo"));
    Ok(session.version)
}

#[tokio::test]
async fn the_version_is_found_whichever_way_the_url_is_written() -> Result<()> {
    let nothing = |_: &mut Credentials| {};
    for path in ["", "/", "/v2.0", "/v2.0/", "/v2.0/tokens", "/v3", "/v3/auth/tokens"] {
        assert_eq!(speaks(IdentityVersions::V2, path, nothing).await?, "v2.0", "{path:?}");
    }
    for path in ["", "/", "/v2.0", "/v3", "/v3/"] {
        assert_eq!(speaks(IdentityVersions::V3, path, nothing).await?, "v3", "{path:?}");
    }
    assert_eq!(speaks(IdentityVersions::Both, "", nothing).await?, "v3", "the newer, if nobody says");
    assert_eq!(speaks(IdentityVersions::Both, "/v2.0", nothing).await?, "v2.0");
    assert_eq!(
        speaks(IdentityVersions::Both, "/v3", |it| it.version = Some(IdentityVersion::V2)).await?,
        "v2.0"
    );
    assert_eq!(
        speaks(IdentityVersions::Both, "/v2.0", |it| it.version = Some(IdentityVersion::V3)).await?,
        "v3"
    );
    Ok(())
}

#[tokio::test]
async fn the_old_keystone_takes_tokens_and_tells_refusals_apart_too() -> Result<()> {
    let fake = Fake::start();
    fake.speak(IdentityVersions::V2);
    let url = format!("{}/identity/v2.0", fake.url());
    let enter = async |user: &str, password: &str, project: &str| {
        Cloud::connect(Source::Given(Credentials::password(&url, user, password, project)), quick()).await
    };
    let wrong = kinds::told(enter("demo", "wrong", "demo").await);
    assert!(wrong.contains("does not know user \"demo\""), "{wrong}");
    let project = kinds::told(enter("demo", "demopw", "admin").await);
    assert!(
        project.contains("the password is right, but") && project.ends_with("roles in: demo"),
        "{project}"
    );

    let client = reqwest::Client::builder().no_proxy().build()?;
    let body = json!({"auth": {"tenantName": "demo", "passwordCredentials": {"username": "demo", "password": "demopw"}}});
    let reply: Value = client.post(format!("{url}/tokens")).json(&body).send().await?.json().await?;
    let token = reply.pointer("/access/token/id").and_then(Value::as_str).context("a token")?;
    let scope = Credentials::password(&url, "", "", "demo").scope;
    let credentials = Credentials::new(&url, AuthMethod::Token(token.into()), scope);
    let cloud = Cloud::connect(Source::Given(credentials), quick()).await?;
    assert_eq!((cloud.session().kind, cloud.session().version), ("token", "v2.0"));
    Ok(())
}

#[tokio::test]
async fn what_the_old_keystone_cannot_say_is_not_asked_of_it() -> Result<()> {
    let fake = Fake::start();
    fake.speak(IdentityVersions::V2);
    let which = ApplicationCredential::Id("a1".into());
    let proof = || AuthMethod::ApplicationCredential { which: which.clone(), secret: "s".into() };
    let password = || Credentials::password("", "demo", "demopw", "demo").proof;
    for (proof, scope) in [
        (proof(), Scope::Unsaid),
        (password(), Scope::Trust("t1".into())),
        (password(), Scope::Domain(Domain::default())),
    ] {
        let credentials = Credentials::new(&format!("{}/identity/v2.0", fake.url()), proof, scope);
        let error = Cloud::connect(Source::Given(credentials), quick()).await.err().context("not let in")?;
        let told = error.to_string();
        assert_eq!(error.class(), &Class::Credentials, "{told}");
        assert!(
            told.starts_with("sign in: Keystone v2.0 does not support ") && told.contains("there is no v3"),
            "{told}"
        );
    }
    assert_eq!(fake.count("POST */tokens"), 3, "each asked for v3 once, and v2.0 was sent no secret");
    Ok(())
}
