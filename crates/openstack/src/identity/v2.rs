//! Keystone v2.0: `POST /v2.0/tokens`. It knows no domains, trusts or application credentials, and left in Queens.

use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Catalog, Endpoint, Entry, IssuedToken, NamedRef, moment};
use crate::credentials::{AuthMethod, Credentials, Project, Scope, User};

/// What is posted; or what of the credentials this API cannot say.
#[allow(clippy::indexing_slicing, reason = "an object that was made here: a key that it lacks is added")]
pub(super) fn request(credentials: &Credentials, scope: &Scope) -> Result<Value, &'static str> {
    let mut auth = match &credentials.proof {
        AuthMethod::Password { user, password } => {
            let password = password.expose_secret();
            let user = match user {
                User::Id(id) => json!({"userId": id, "password": password}),
                User::Name { name, .. } => json!({"username": name, "password": password}),
            };
            json!({ "passwordCredentials": user })
        }
        AuthMethod::Token(token) => json!({"token": {"id": token.expose_secret()}}),
        AuthMethod::ApplicationCredential { .. } => return Err("application credentials"),
    };
    match scope {
        Scope::Unsaid => {}
        Scope::Project(Project::Id(id)) => auth["tenantId"] = json!(id),
        Scope::Project(Project::Name { name, .. }) => auth["tenantName"] = json!(name),
        Scope::Domain(_) => return Err("domains"),
        Scope::System => return Err("a scope of the whole system"),
        Scope::Trust(_) => return Err("trusts"),
    }
    Ok(json!({ "auth": auth }))
}

/// The reply of status 200; None if it is not one.
pub(super) fn grant(body: &Value) -> Option<IssuedToken> {
    let Reply { access } = Reply::deserialize(body).ok()?;
    let entries = access.service_catalog.into_iter().map(|service| Entry {
        endpoints: service.endpoints.into_iter().flat_map(CatalogEndpoint::by_interface).collect(),
        kind: service.kind,
        name: service.name,
    });
    Some(IssuedToken {
        token: access.token.id.into(),
        user: access.user.map(Into::into).unwrap_or_default(),
        roles: Vec::new(),
        project: access.token.tenant.map(Into::into),
        expires: moment(&access.token.expires),
        issued: access.token.issued_at.as_deref().and_then(moment),
        catalog: Catalog::new(entries.collect()),
    })
    .map(|grant| IssuedToken { roles: roles(body), ..grant })
}

fn roles(body: &Value) -> Vec<String> {
    let roles = body.pointer("/access/user/roles").and_then(Value::as_array);
    roles.into_iter().flatten().filter_map(|role| Some(role.get("name")?.as_str()?.to_owned())).collect()
}

#[derive(Deserialize)]
struct Reply {
    access: Access,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Access {
    token: Token,
    #[serde(default)]
    user: Option<NamedObject>,
    #[serde(default)]
    service_catalog: Vec<CatalogService>,
}

#[derive(Deserialize)]
struct Token {
    id: String,
    #[serde(default)]
    expires: String,
    #[serde(default)]
    issued_at: Option<String>,
    #[serde(default)]
    tenant: Option<NamedObject>,
}

#[derive(Deserialize)]
struct NamedObject {
    #[serde(default)]
    id: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct CatalogService {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    endpoints: Vec<CatalogEndpoint>,
}

/// One region, with all its interfaces.
#[derive(Deserialize)]
struct CatalogEndpoint {
    #[serde(default)]
    region: Option<String>,
    #[serde(rename = "publicURL", default)]
    public: Option<String>,
    #[serde(rename = "internalURL", default)]
    internal: Option<String>,
    #[serde(rename = "adminURL", default)]
    admin: Option<String>,
}

impl CatalogEndpoint {
    fn by_interface(self) -> impl Iterator<Item = Endpoint> {
        let region = self.region;
        [("public", self.public), ("internal", self.internal), ("admin", self.admin)].into_iter().filter_map(
            move |(interface, url)| {
                Some(Endpoint {
                    interface: interface.to_owned(),
                    url: url?,
                    region: region.clone(),
                    region_id: None,
                })
            },
        )
    }
}

impl From<NamedObject> for NamedRef {
    fn from(thing: NamedObject) -> NamedRef {
        NamedRef { id: thing.id, name: thing.name, domain: None }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn passwords_and_tokens_are_asked_for_as_the_old_api_wants_it() {
        let mut credentials = Credentials::password("http://keystone/v2.0", "demo", "pw", "shop");
        assert_eq!(
            request(&credentials, &credentials.scope),
            Ok(json!({"auth": {"tenantName": "shop",
                "passwordCredentials": {"username": "demo", "password": "pw"}}})),
        );
        credentials.proof = AuthMethod::Token("tok".into());
        assert_eq!(
            request(&credentials, &Scope::Project(Project::Id("p1".into()))),
            Ok(json!({"auth": {"tenantId": "p1", "token": {"id": "tok"}}})),
        );
        assert_eq!(request(&credentials, &Scope::Trust("t".into())), Err("trusts"));
    }

    #[test]
    fn a_token_that_does_not_say_when_it_was_made_lives_by_our_clock() {
        let body = json!({"access": {"token": {"id": "tok", "expires": "2026-01-01T01:00:00Z"}}});
        let grant = grant(&body).expect("a grant");
        let expires = SystemTime::from(grant.expires.expect("it says so"));
        let minute = Duration::from_secs(60);
        assert_eq!(grant.life(expires - minute), Some(minute));
        assert_eq!(grant.life(expires + minute), None, "a clock that is wrong must not renew it for ever");
    }

    #[test]
    fn one_endpoint_of_the_old_catalog_is_three_of_the_new() {
        let body = json!({"access": {
            "token": {"id": "tok", "expires": "2026-01-01T01:00:00Z", "issued_at": "2026-01-01T00:00:00.123",
                "tenant": {"id": "p1", "name": "shop"}},
            "user": {"id": "u1", "name": "demo", "roles": [{"name": "member"}]},
            "serviceCatalog": [{"type": "network", "name": "neutron", "endpoints": [
                {"region": "R1", "publicURL": "http://public", "internalURL": "http://internal"}]}],
        }});
        let grant = grant(&body).expect("a grant");
        assert_eq!(grant.life(UNIX_EPOCH).map(|life| life.as_secs()), Some(3599));
        assert_eq!((grant.user.name.as_str(), grant.roles.join(",")), ("demo", "member".to_owned()));
        let interfaces: Vec<&str> =
            grant.catalog.entries()[0].endpoints.iter().map(|it| it.interface.as_str()).collect();
        assert_eq!(interfaces, ["public", "internal"]);
    }
}
