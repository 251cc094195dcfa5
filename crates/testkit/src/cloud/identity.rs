//! Keystone: who may do what where, and the catalog.

mod catalog;
mod credentials;
mod people;
mod sign_in;
mod tokens;
mod trusts;
mod v2;
mod v3;

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;

use self::{catalog::Endpoint, credentials::Credential, tokens::Token, trusts::Trust};
use super::{
    clock::{FakeTime, Ids},
    exchange::{Caller, Refusal, Reply, Request},
    routes::Service,
};

pub(super) const SERVICE: Service =
    Service { prefix: "/identity", versions: &["/v3", "/v2.0", ""], routes: v3::ROUTES, refuse };

const DEFAULT: &str = "default";

const FOUR_HOURS: Duration = Duration::from_secs(4 * 3600);

/// What load balancers and secrets need.
pub(super) const MEMBER: [&str; 3] = ["member", "creator", "load-balancer_member"];

/// Whoever has the first, has the second too.
const IMPLIED: [(&str, &str); 3] = [("admin", "manager"), ("manager", "member"), ("member", "reader")];

/// Which versions of the identity API are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdentityVersions {
    #[default]
    V3,
    V2,
    Both,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Identity {
    users: BTreeMap<String, User>,
    projects: BTreeMap<String, Project>,
    /// Ids by name.
    roles: BTreeMap<String, String>,
    /// Roles by user and project.
    grants: BTreeMap<(String, String), Vec<String>>,
    tokens: BTreeMap<String, Token>,
    credentials: BTreeMap<String, Credential>,
    trusts: BTreeMap<String, Trust>,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) speaks: IdentityVersions,
    /// How long tokens live.
    pub(super) lifetime: Duration,
}

#[derive(Clone, Debug)]
struct User {
    id: String,
    name: String,
    password: String,
}

#[derive(Clone, Debug)]
struct Project {
    id: String,
    name: String,
}

impl Identity {
    pub(super) fn new(base: &str, ids: &mut Ids) -> Identity {
        let mut this =
            Identity { lifetime: FOUR_HOURS, endpoints: catalog::all(base, ids), ..Identity::default() };
        for role in ["manager", "reader", "service", "load-balancer_admin", "load-balancer_global_observer"] {
            this.roles.insert(role.to_owned(), ids.hex());
        }
        for (name, password, roles) in [
            ("admin", "adminpw", &["admin", "load-balancer_admin"][..]),
            ("demo", "demopw", &MEMBER[..]),
            ("alt", "demopw", &MEMBER[..]),
        ] {
            this.add_project(name, password, roles, ids);
        }
        this
    }

    /// A project, and a user of the same name with these roles in it. Tells the project's id.
    pub(super) fn add_project(
        &mut self,
        name: &str,
        password: &str,
        roles: &[&str],
        ids: &mut Ids,
    ) -> String {
        let user = self.add_user(name, password, ids);
        let project = ids.hex();
        self.projects.insert(project.clone(), Project { id: project.clone(), name: name.to_owned() });
        for role in roles {
            self.roles.entry((*role).to_owned()).or_insert_with(|| ids.hex());
        }
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        self.grants.insert((user, project.clone()), roles);
        project
    }

    fn add_user(&mut self, name: &str, password: &str, ids: &mut Ids) -> String {
        let id = ids.hex();
        let user = User { id: id.clone(), name: name.to_owned(), password: password.to_owned() };
        self.users.insert(id.clone(), user);
        id
    }

    /// False if there is no such user.
    pub(super) fn set_password(&mut self, name: &str, password: &str) -> bool {
        let found = self.users.values_mut().find(|it| it.name == name);
        found.map(|user| password.clone_into(&mut user.password)).is_some()
    }

    pub(super) fn revoke_all(&mut self) {
        self.tokens.clear();
    }

    pub(super) fn project_id(&self, name: &str) -> Option<String> {
        self.project_named(name).map(|it| it.id.clone())
    }

    /// Whose token the request carries; nobody's, if it has none that is valid now.
    pub(super) fn caller(&self, request: &Request, now: FakeTime) -> Option<Caller> {
        let token = request.header("x-auth-token")?;
        let found = self.tokens.get(token).filter(|it| it.expires > now)?;
        Some(Caller {
            user: found.user.clone(),
            project: found.project.clone().unwrap_or_default(),
            roles: found.roles.clone(),
            token: token.to_owned(),
        })
    }

    fn user_named(&self, name: &str) -> Option<&User> {
        self.users.values().find(|it| it.name == name)
    }

    fn project_named(&self, name: &str) -> Option<&Project> {
        self.projects.values().find(|it| it.name == name)
    }

    /// With those that they imply.
    fn with_implied(roles: &[String]) -> Vec<String> {
        let mut all = roles.to_vec();
        for (role, implied) in IMPLIED {
            if all.iter().any(|it| it == role) && !all.iter().any(|it| it == implied) {
                all.push(implied.to_owned());
            }
        }
        all
    }

    fn granted(&self, user: &str, project: &str) -> Option<Vec<String>> {
        let roles = self.grants.get(&(user.to_owned(), project.to_owned()))?;
        (!roles.is_empty()).then(|| Identity::with_implied(roles))
    }
}

fn refuse(refusal: &Refusal) -> Reply {
    let title = match refusal.status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    };
    let mut error = json!({"code": refusal.status, "title": title, "message": refusal.message});
    // What went wrong with a method comes with what it has to say, which is nothing.
    if refusal.kind == "method" {
        error["identity"] = json!({});
    }
    Reply::json(refusal.status, json!({ "error": error }))
}

/// Why, is never told.
fn unauthorized() -> Refusal {
    Refusal::new(401, "The request you have made requires authentication.")
}

fn not_allowed(action: &str) -> Refusal {
    let message = "You are not authorized to perform the requested action";
    Refusal::new(403, if action.is_empty() { format!("{message}.") } else { format!("{message}: {action}.") })
}

fn malformed(what: &str) -> Refusal {
    Refusal::new(
        400,
        format!(
            "{what} The server could not comply with the request since it is either malformed or otherwise incorrect. \
             The client is assumed to be in error."
        ),
    )
}
