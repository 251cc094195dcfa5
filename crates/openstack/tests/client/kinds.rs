//! Every kind of credential, and every way to be refused: walks over any Keystone v3, the fake and the real one alike.

use anyhow::{Context, Result};
use seaway_openstack::{
    Call, Class, Cloud, Credentials, Error, Service, Settings, Source,
    credentials::{ApplicationCredential, AuthMethod, Domain, Project, Scope, User},
};
use serde_json::{Value, json};

/// A user with a project of the same name, in a cloud that also has `demo` and `admin`.
pub(crate) struct ProjectUser {
    pub(crate) auth_url: String,
    pub(crate) user: String,
    pub(crate) password: String,
}

impl ProjectUser {
    async fn enter(&self, proof: AuthMethod, scope: Scope) -> Result<Cloud, Error> {
        let credentials = Credentials::new(&self.auth_url, proof, scope);
        Cloud::connect(Source::Given(credentials), Settings::default()).await
    }

    pub(crate) async fn enter_as(&self, user: &str, password: &str, project: &str) -> Result<Cloud, Error> {
        let credentials = Credentials::password(&self.auth_url, user, password, project);
        Cloud::connect(Source::Given(credentials), Settings::default()).await
    }

    /// What a human reads who is not let in, without the request id.
    async fn refused(&self, user: &str, password: &str, project: &str) -> String {
        told(self.enter_as(user, password, project).await)
    }

    pub(crate) async fn by_credential(&self, id: &str, secret: &str) -> Result<Cloud, Error> {
        let which = ApplicationCredential::Id(id.to_owned());
        self.enter(AuthMethod::ApplicationCredential { which, secret: secret.into() }, Scope::Unsaid).await
    }
}

pub(crate) fn told(outcome: Result<Cloud, Error>) -> String {
    let error = match outcome {
        Ok(cloud) => panic!("let in: {:?}", cloud.session()),
        Err(error) => error,
    };
    let told = error.to_string();
    assert_eq!(error.class(), &Class::Credentials, "{told}");
    assert!(error.request_id().is_some_and(|id| told.ends_with(&format!(" ({id})"))), "{told}");
    told.split(" (req-").next().unwrap_or_default().to_owned()
}

pub(crate) async fn made(cloud: &Cloud, path: &str, body: Value, key: &str) -> Result<Value> {
    let reply = cloud.call(Call::post(Service::Identity, "prepare a test", path, body)).await?;
    reply.body.get(key).cloned().context("it is not in the reply")
}

pub(crate) fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

fn named(name: &str) -> User {
    User::Name { name: name.to_owned(), domain: Domain::default() }
}

pub(crate) async fn every_kind_signs_in(site: &ProjectUser) -> Result<()> {
    let cloud = site.enter_as(&site.user, &site.password, &site.user).await?;
    let session = cloud.session();
    let user = session.user.id.clone();
    let own = session.project.clone().context("a project")?;
    assert_eq!((session.kind, session.version), ("password", "v3"));
    assert_eq!((session.user.name.as_str(), own.name.as_str()), (site.user.as_str(), site.user.as_str()));
    assert!(session.expires.is_some());
    assert!(session.roles.iter().any(|role| role == "member"), "{:?}", session.roles);

    let by_id =
        AuthMethod::Password { user: User::Id(user.clone()), password: site.password.as_str().into() };
    site.enter(by_id, Scope::Project(Project::Id(own.id.clone()))).await?;

    let body = json!({"name": "by-test", "secret": "s3cret", "roles": [{"name": "member"}]});
    let path = format!("/users/{user}/application_credentials");
    let credential =
        made(&cloud, &path, json!({"application_credential": body}), "application_credential").await?;
    for which in [
        ApplicationCredential::Id(text(&credential, "id").to_owned()),
        ApplicationCredential::Name { name: "by-test".into(), user: named(&site.user) },
        ApplicationCredential::Name { name: "by-test".into(), user: User::Id(user.clone()) },
    ] {
        let proof = AuthMethod::ApplicationCredential { which, secret: "s3cret".into() };
        let cloud = site.enter(proof, Scope::Unsaid).await?;
        assert_eq!(cloud.session().kind, "application credential");
        assert_eq!(cloud.session().project.clone().context("a project")?.id, own.id);
        cloud.call(Call::get(Service::Network, "list networks", "/networks")).await?;
    }

    let demo = site.enter_as("demo", "demopw", "demo").await?;
    let trust = json!({"trust": {"trustor_user_id": user, "trustee_user_id": demo.session().user.id,
        "project_id": own.id, "impersonation": false, "roles": [{"name": "member"}]}});
    let trust = made(&cloud, "/OS-TRUST/trusts", trust, "trust").await?;
    let trusted = Scope::Trust(text(&trust, "id").to_owned());
    let proof = |password: &str| AuthMethod::Password { user: named("demo"), password: password.into() };
    let cloud = site.enter(proof("demopw"), trusted.clone()).await?;
    assert_eq!(cloud.session().kind, "trust");
    assert_eq!(cloud.session().project.clone().context("a project")?.id, own.id, "the trustor's project");

    let wrong = told(site.enter(proof("wrong"), trusted).await);
    assert!(wrong.contains("does not know user \"demo\""), "{wrong}");
    let gone = told(site.enter(proof("demopw"), Scope::Trust("0123456789abcdef".into())).await);
    assert!(gone.starts_with("sign in: the trust does not exist, or is not for this user; "), "{gone}");
    Ok(())
}

pub(crate) async fn a_token_signs_in(site: &ProjectUser) -> Result<()> {
    let scope =
        || Scope::Project(Project::Name { name: site.user.clone(), domain: Domain::Name("Default".into()) });
    let token = issued(site).await?;
    let cloud = site.enter(AuthMethod::Token(token.into()), scope()).await?;
    assert_eq!(cloud.session().kind, "token");
    cloud.call(Call::get(Service::Network, "list networks", "/networks")).await?;
    let nonsense = told(site.enter(AuthMethod::Token("gAAAA-nonsense".into()), scope()).await);
    assert!(nonsense.starts_with("sign in: Keystone rejects the token: "), "{nonsense}");
    Ok(())
}

/// As `openstack token issue` gets it.
async fn issued(site: &ProjectUser) -> Result<String> {
    let body = json!({"auth": {
        "identity": {"methods": ["password"],
            "password": {"user": {"name": site.user, "domain": {"id": "default"}, "password": site.password}}},
        "scope": {"project": {"name": site.user, "domain": {"id": "default"}}},
    }});
    let client = reqwest::Client::builder().no_proxy().build()?;
    let reply = client.post(format!("{}/auth/tokens", site.auth_url)).json(&body).send().await?;
    Ok(reply.headers().get("x-subject-token").context("a token")?.to_str()?.to_owned())
}

pub(crate) async fn what_is_refused_in_one_word_is_told_apart(site: &ProjectUser) -> Result<()> {
    let (user, password) = (site.user.as_str(), site.password.as_str());
    assert_eq!(
        site.refused(user, "wrong", user).await,
        format!(
            "sign in: Keystone does not know user {user:?} of domain default, or the password is wrong; check user, \
             password and the user's domain (auth_url: as given)"
        )
    );
    let unknown = site.refused("nobody", password, user).await;
    assert!(unknown.contains("does not know user \"nobody\""), "{unknown}");
    for project in ["admin", "no-such-project"] {
        assert_eq!(
            site.refused(user, password, project).await,
            format!(
                "sign in: the password is right, but user {user:?} of domain default has no role in project {project:?} \
                 of domain default, or there is no such project; the user has roles in: {user}"
            )
        );
    }

    let admin = site.enter_as("admin", "adminpw", "admin").await?;
    let lonely = format!("lonely-{user}");
    let body = json!({"user": {"name": lonely, "password": "pw", "domain_id": "default"}});
    let made = made(&admin, "/users", body, "user").await?;
    let told = site.refused(&lonely, "pw", user).await;
    let path = format!("/users/{}", text(&made, "id"));
    admin.call(Call::delete(Service::Identity, "clean up", path)).await?;
    assert!(
        told.contains(&format!(
            "but user {lonely:?} of domain default has no role in any project; as an administrator, run: openstack role add"
        )),
        "{told}"
    );
    Ok(())
}

/// Of an application credential: wrong in its secret, expired, or not there. Made with `expires_at`, it is waited for
/// with `expire`.
pub(crate) async fn a_credential_that_ended_is_told(
    site: &ProjectUser,
    expires_at: &str,
    expire: impl AsyncFnOnce(&str),
) -> Result<()> {
    let cloud = site.enter_as(&site.user, &site.password, &site.user).await?;
    let body = json!({"name": "short", "secret": "s3cret", "expires_at": expires_at});
    let path = format!("/users/{}/application_credentials", cloud.session().user.id);
    let credential =
        made(&cloud, &path, json!({"application_credential": body}), "application_credential").await?;
    let id = text(&credential, "id");
    site.by_credential(id, "s3cret").await?;
    let ended = "sign in: Keystone rejects the application credential: it has expired, or its secret is wrong; \
                 see `openstack application credential list`; make another with `openstack application credential \
                 create`";
    assert_eq!(told(site.by_credential(id, "wrong").await), ended);
    expire(id).await;
    assert_eq!(told(site.by_credential(id, "s3cret").await), ended);
    let gone = told(site.by_credential("0123456789abcdef0123456789abcdef", "s3cret").await);
    assert!(gone.starts_with("sign in: the application credential does not exist: it was deleted"), "{gone}");
    Ok(())
}
