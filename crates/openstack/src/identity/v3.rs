//! Keystone v3: `POST /v3/auth/tokens`.

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Catalog, Endpoint, Entry, IssuedToken, NamedRef, moment};
use crate::credentials::{ApplicationCredential, AuthMethod, Credentials, Domain, Project, Scope, User};

/// What is posted. `scope` is not always the credentials' own: see `refused`.
#[allow(clippy::indexing_slicing, reason = "an object that was made here: a key that it lacks is added")]
pub(super) fn request(credentials: &Credentials, scope: &Scope) -> Value {
    let identity = match &credentials.proof {
        AuthMethod::Password { user, password } => {
            let mut user = user_of(user);
            user["password"] = json!(password.expose_secret());
            json!({"methods": ["password"], "password": {"user": user}})
        }
        AuthMethod::Token(token) => json!({"methods": ["token"], "token": {"id": token.expose_secret()}}),
        AuthMethod::ApplicationCredential { which, secret } => {
            let mut which = match which {
                ApplicationCredential::Id(id) => json!({ "id": id }),
                ApplicationCredential::Name { name, user } => json!({"name": name, "user": user_of(user)}),
            };
            which["secret"] = json!(secret.expose_secret());
            json!({"methods": ["application_credential"], "application_credential": which})
        }
    };
    let mut auth = json!({ "identity": identity });
    // An application credential brings its project along and must not ask for one.
    if !matches!(credentials.proof, AuthMethod::ApplicationCredential { .. })
        && let Some(scope) = scope_of(scope)
    {
        auth["scope"] = scope;
    }
    json!({ "auth": auth })
}

/// Explicitly no project, not even the user's default one.
#[allow(clippy::indexing_slicing, reason = "an object that was made here: a key that it lacks is added")]
pub(super) fn unscoped(credentials: &Credentials) -> Value {
    let mut body = request(credentials, &Scope::Unsaid);
    body["auth"]["scope"] = json!("unscoped");
    body
}

fn user_of(user: &User) -> Value {
    match user {
        User::Id(id) => json!({ "id": id }),
        User::Name { name, domain } => json!({"name": name, "domain": domain_of(domain)}),
    }
}

fn domain_of(domain: &Domain) -> Value {
    match domain {
        Domain::Id(id) => json!({ "id": id }),
        Domain::Name(name) => json!({ "name": name }),
    }
}

fn scope_of(scope: &Scope) -> Option<Value> {
    Some(match scope {
        Scope::Unsaid => return None,
        Scope::Project(Project::Id(id)) => json!({"project": {"id": id}}),
        Scope::Project(Project::Name { name, domain }) => {
            json!({"project": {"name": name, "domain": domain_of(domain)}})
        }
        Scope::Domain(domain) => json!({"domain": domain_of(domain)}),
        Scope::System => json!({"system": {"all": true}}),
        Scope::Trust(id) => json!({"OS-TRUST:trust": {"id": id}}),
    })
}

/// The reply of status 201; None if it is not one.
pub(super) fn grant(body: &Value, token: Option<SecretString>) -> Option<IssuedToken> {
    let Reply { token: told } = Reply::deserialize(body).ok()?;
    let entries = told.catalog.into_iter().map(|service| Entry {
        kind: service.kind,
        name: service.name.unwrap_or_default(),
        endpoints: service.endpoints.into_iter().map(Into::into).collect(),
    });
    Some(IssuedToken {
        token: token?,
        user: told.user.into(),
        project: told.project.map(Into::into),
        roles: told.roles.into_iter().map(|role| role.name).collect(),
        expires: told.expires_at.as_deref().and_then(moment),
        issued: told.issued_at.as_deref().and_then(moment),
        catalog: Catalog::new(entries.collect()),
    })
}

#[derive(Deserialize)]
struct Reply {
    token: TokenBody,
}

#[derive(Deserialize)]
struct TokenBody {
    #[serde(default)]
    expires_at: Option<String>,
    #[serde(default)]
    issued_at: Option<String>,
    user: NamedObject,
    #[serde(default)]
    project: Option<NamedObject>,
    #[serde(default)]
    roles: Vec<Role>,
    #[serde(default)]
    catalog: Vec<CatalogService>,
}

#[derive(Deserialize)]
struct NamedObject {
    #[serde(default)]
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    domain: Option<Role>,
}

/// Anything of which the name matters.
#[derive(Deserialize)]
struct Role {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct CatalogService {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    endpoints: Vec<CatalogEndpoint>,
}

#[derive(Deserialize)]
struct CatalogEndpoint {
    #[serde(default)]
    interface: String,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    region: Option<String>,
    #[serde(default)]
    region_id: Option<String>,
}

impl From<NamedObject> for NamedRef {
    fn from(thing: NamedObject) -> NamedRef {
        NamedRef { id: thing.id, name: thing.name, domain: thing.domain.map(|domain| domain.name) }
    }
}

impl From<CatalogEndpoint> for Endpoint {
    fn from(told: CatalogEndpoint) -> Endpoint {
        Endpoint {
            interface: told.interface,
            url: told.url.unwrap_or_default(),
            region: told.region,
            region_id: told.region_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(proof: AuthMethod, scope: Scope) -> Credentials {
        Credentials::new("http://keystone/v3", proof, scope)
    }

    fn demo() -> User {
        User::Name { name: "demo".into(), domain: Domain::default() }
    }

    #[track_caller]
    fn check(proof: AuthMethod, scope: Scope, auth: Value) {
        let credentials = credentials(proof, scope);
        assert_eq!(request(&credentials, &credentials.scope), json!({ "auth": auth }));
    }

    #[test]
    fn each_proof_and_scope_is_asked_for_as_the_api_wants_it() {
        let password = |user: User| AuthMethod::Password { user, password: "pw".into() };
        let by_name = json!({"methods": ["password"],
            "password": {"user": {"name": "demo", "domain": {"id": "default"}, "password": "pw"}}});
        check(
            password(demo()),
            Scope::Project(Project::Name { name: "shop".into(), domain: Domain::Name("Corp".into()) }),
            json!({"identity": by_name, "scope": {"project": {"name": "shop", "domain": {"name": "Corp"}}}}),
        );
        check(password(demo()), Scope::Unsaid, json!({ "identity": by_name }));
        check(
            password(demo()),
            Scope::Domain(Domain::Id("d1".into())),
            json!({"identity": by_name, "scope": {"domain": {"id": "d1"}}}),
        );
        check(
            password(demo()),
            Scope::System,
            json!({"identity": by_name, "scope": {"system": {"all": true}}}),
        );
        check(
            password(User::Id("u1".into())),
            Scope::Trust("t1".into()),
            json!({"identity": {"methods": ["password"], "password": {"user": {"id": "u1", "password": "pw"}}},
                "scope": {"OS-TRUST:trust": {"id": "t1"}}}),
        );
        check(
            AuthMethod::Token("tok".into()),
            Scope::Project(Project::Id("p1".into())),
            json!({"identity": {"methods": ["token"], "token": {"id": "tok"}}, "scope": {"project": {"id": "p1"}}}),
        );
    }

    #[test]
    fn an_application_credential_asks_for_no_scope() {
        let proof = |which| AuthMethod::ApplicationCredential { which, secret: "s".into() };
        let scope = || Scope::Project(Project::Id("p1".into()));
        check(
            proof(ApplicationCredential::Id("a1".into())),
            scope(),
            json!({"identity": {"methods": ["application_credential"],
                "application_credential": {"id": "a1", "secret": "s"}}}),
        );
        check(
            proof(ApplicationCredential::Name { name: "mine".into(), user: demo() }),
            scope(),
            json!({"identity": {"methods": ["application_credential"],
                "application_credential": {"name": "mine", "secret": "s",
                    "user": {"name": "demo", "domain": {"id": "default"}}}}}),
        );
    }

    #[test]
    fn a_strange_reply_is_no_grant_and_no_panic() {
        for strange in [json!(null), json!({}), json!({"token": []}), json!({"token": {"user": 7}})] {
            assert!(grant(&strange, Some("t".into())).is_none(), "{strange}");
        }
        let fine = json!({"token": {"user": {"id": "u"}, "expires_at": "never", "unknown": 1}});
        let grant = grant(&fine, Some("t".into())).expect("what is missing is left out");
        assert_eq!((grant.user.id.as_str(), grant.expires), ("u", None));
    }
}
