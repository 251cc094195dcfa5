//! Why Keystone said no. It answers 401 in the same words to a wrong password, an unknown project and a missing role;
//! signing in once more, for no project at all, tells them apart.

use reqwest::Method;
use secrecy::SecretString;
use serde_json::Value;

use super::{
    catalog::unversioned,
    sign_in::{Keystone, TokenRequest},
    v2, v3,
};

use crate::{
    credentials::{AuthMethod, Domain, IdentityVersion, Project, Scope},
    error::{Class, Error},
    http::HttpReply,
};

/// How many projects are named to whoever may have meant another.
const NAMED: usize = 20;

pub(super) async fn explain(keystone: &Keystone<'_>, asked: &TokenRequest, answer: &HttpReply) -> Error {
    let refusal = keystone.refusal(answer);
    if !says_nothing(answer) {
        // Its own words are as good: a password that has to be changed, a user who is locked.
        let fix = advice(refusal.message());
        return refusal.with_class(Class::Credentials).with_fix(fix);
    }
    let (message, fix) = match (answer.status, &keystone.credentials.proof) {
        (401 | 404, AuthMethod::ApplicationCredential { .. }) => application_credential(answer),
        (401 | 404, AuthMethod::Token(_)) => (
            "Keystone rejects the token: it has expired, or was revoked".to_owned(),
            "get another token (`openstack token issue`), or use an application credential, which does not \
             expire within hours"
                .to_owned(),
        ),
        (401, AuthMethod::Password { .. }) => password(keystone, asked, answer).await,
        (403 | 404, _) if matches!(keystone.credentials.scope, Scope::Trust(_)) => trust(),
        _ => return refusal.with_class(Class::Credentials),
    };
    Error::new(Class::Credentials, message)
        .with_fix(fix)
        .with_status(answer.status)
        .with_request_id(refusal.request_id())
}

/// 401 in the words for all occasions; 404, whose thing is named by an id that says little.
fn says_nothing(answer: &HttpReply) -> bool {
    let message = answer.body.json().pointer("/error/message").and_then(Value::as_str).unwrap_or_default();
    answer.status == 404 || message.is_empty() || message.contains("requires authentication")
}

fn advice(said: &str) -> &'static str {
    let says = |word: &str| said.to_ascii_lowercase().contains(word);
    if says("password") && says("expired") {
        "set a new one (`openstack user password set`), and write it into the credentials"
    } else if says("locked") {
        "too many wrong passwords: correct the credentials, then wait, or ask an administrator to unlock the user"
    } else if says("disabled") {
        "an administrator has to enable it: `openstack user show`, `openstack project show`"
    } else {
        "this is Keystone's own message; its operators can say more"
    }
}

fn application_credential(answer: &HttpReply) -> (String, String) {
    let message = if answer.status == 404 {
        "the application credential does not exist: it was deleted, or its id or name is wrong"
    } else {
        "Keystone rejects the application credential: it has expired, or its secret is wrong"
    };
    let fix = "see `openstack application credential list`; make another with `openstack application credential create`";
    (message.to_owned(), fix.to_owned())
}

fn trust() -> (String, String) {
    (
        "the trust does not exist, or is not for this user".to_owned(),
        "see `openstack trust list`; the user must be its trustee".to_owned(),
    )
}

async fn password(keystone: &Keystone<'_>, asked: &TokenRequest, answer: &HttpReply) -> (String, String) {
    let user = match &keystone.credentials.proof {
        AuthMethod::Password { user, .. } => user.to_string(),
        _ => String::new(),
    };
    let Some(projects) = projects(keystone, asked).await else {
        let place = &keystone.credentials.auth_url.place;
        // Any service says 401; each names Keystone, which may call itself by another name than we do.
        let other = answer.keystone.as_ref().filter(|named| unversioned(named) != unversioned(&asked.url));
        let other = other
            .map(|it| format!("; the service says that its Keystone is {it}: is auth_url right?"))
            .unwrap_or_default();
        return (
            format!("Keystone does not know {user}, or the password is wrong"),
            format!("check user, password and the user's domain (auth_url: {place}){other}"),
        );
    };
    match &keystone.credentials.scope {
        Scope::Project(wanted) => {
            let name = match wanted {
                Project::Id(id) => id,
                Project::Name { name, .. } => name,
            };
            let elsewhere = projects.iter().find(|it| it.name == *name || it.id == *name);
            let names: Vec<&str> = projects.iter().take(NAMED).map(|it| it.name.as_str()).collect();
            match (elsewhere, names.as_slice()) {
                (Some(there), _) if there.is_elsewhere(wanted) => (
                    format!("there is no {wanted}"),
                    format!(
                        "another domain has a project of that name: set project_domain_id (cloud.conf: \
                         tenant-domain-id) to {}",
                        there.domain.as_deref().unwrap_or_default()
                    ),
                ),
                (Some(_), _) => (
                    format!("Keystone refuses {user} access to {wanted}, although the user has a role there"),
                    "an administrator may have disabled it: `openstack project show`".to_owned(),
                ),
                (_, []) => (
                    format!("the password is right, but {user} has no role in any project"),
                    format!("as an administrator, run: openstack role add --project {name} --user … member"),
                ),
                (_, names) => (
                    format!(
                        "the password is right, but {user} has no role in {wanted}, or there is no such project"
                    ),
                    format!("the user has roles in: {}", names.join(", ")),
                ),
            }
        }
        Scope::Trust(_) => trust(),
        Scope::Domain(domain) => (
            format!("the password is right, but {user} has no role in {domain}"),
            "let an administrator add one, or name a project".to_owned(),
        ),
        Scope::System => (
            format!("the password is right, but {user} has no role for the whole system"),
            "name a project instead".to_owned(),
        ),
        Scope::Unsaid => (
            format!("Keystone refuses {user}"),
            "name a project: project_name (cloud.conf: tenant-name)".to_owned(),
        ),
    }
}

struct ScopeCandidate {
    id: String,
    name: String,
    domain: Option<String>,
}

impl ScopeCandidate {
    /// In another domain than was asked for; only ids can be compared.
    fn is_elsewhere(&self, wanted: &Project) -> bool {
        match (wanted, &self.domain) {
            (Project::Name { domain: Domain::Id(id), .. }, Some(domain)) => id != domain,
            _ => false,
        }
    }
}

/// What the user may use, if user and password are right.
async fn projects(keystone: &Keystone<'_>, asked: &TokenRequest) -> Option<Vec<ScopeCandidate>> {
    let (body, list, key) = match asked.version {
        IdentityVersion::V3 => (v3::unscoped(keystone.credentials), "auth/projects", "projects"),
        IdentityVersion::V2 => {
            (v2::request(keystone.credentials, &Scope::Unsaid).ok()?, "tenants", "tenants")
        }
    };
    let answer = keystone.ask(asked, &body).await.ok()?;
    let token = token(&answer).filter(|_| answer.status < 300)?;
    let url = format!("{}/{list}", asked.url);
    let listed = keystone.exchange(Method::GET, &url, None, Some(&token)).await.ok()?;
    let text = |project: &Value, key: &str| project.get(key).and_then(Value::as_str).map(str::to_owned);
    let projects = listed.body.json().get(key)?.as_array()?.iter().map(|project| {
        let (id, name) = (text(project, "id"), text(project, "name"));
        ScopeCandidate {
            id: id.unwrap_or_default(),
            name: name.unwrap_or_default(),
            domain: text(project, "domain_id"),
        }
    });
    Some(projects.collect())
}

fn token(answer: &HttpReply) -> Option<SecretString> {
    let v2 = || answer.body.json().pointer("/access/token/id")?.as_str().map(SecretString::from);
    answer.token.clone().or_else(v2)
}
