//! Keystone: who may do what where, and the catalog.

mod catalog;
mod tokens;
mod v3;

use std::collections::BTreeMap;

use serde_json::json;

use self::catalog::Endpoint;
use super::{
    clock::{Ids, Moment},
    exchange::{Caller, Refusal, Reply, Request},
    routes::Service,
};

pub(super) use self::tokens::Token;

pub(super) const SERVICE: Service =
    Service { prefix: "/identity", versions: &["/v3", ""], routes: v3::ROUTES, refuse };

pub(super) const REGION: &str = "RegionOne";
const DEFAULT: &str = "default";

/// What a new user gets in each project of its own: what load balancers and secrets need.
const MEMBER: [&str; 3] = ["member", "creator", "load-balancer_member"];

#[derive(Clone, Debug, Default)]
pub(super) struct Identity {
    users: BTreeMap<String, User>,
    projects: BTreeMap<String, Project>,
    /// Ids by name.
    roles: BTreeMap<String, String>,
    /// Roles by user and project.
    grants: BTreeMap<(String, String), Vec<String>>,
    tokens: BTreeMap<String, Token>,
    endpoints: Vec<Endpoint>,
    /// How long tokens live, in seconds.
    lifetime: u64,
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
            Identity { lifetime: 4 * 3600, endpoints: catalog::all(base, ids), ..Identity::default() };
        for role in ["admin", "manager", "member", "reader", "service", "creator", "load-balancer_member"] {
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
        let (user, project) = (ids.hex(), ids.hex());
        self.users.insert(
            user.clone(),
            User { id: user.clone(), name: name.to_owned(), password: password.to_owned() },
        );
        self.projects.insert(project.clone(), Project { id: project.clone(), name: name.to_owned() });
        for role in roles {
            self.roles.entry((*role).to_owned()).or_insert_with(|| ids.hex());
        }
        self.grants.insert((user, project.clone()), roles.iter().map(|role| (*role).to_owned()).collect());
        project
    }

    /// Whose token the request carries; nobody's, if it has none that is valid now.
    pub(super) fn caller(&self, request: &Request, now: Moment) -> Option<Caller> {
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
}

fn refuse(refusal: &Refusal) -> Reply {
    let title = match refusal.status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        _ => "Internal Server Error",
    };
    let error = json!({"code": refusal.status, "title": title, "message": refusal.message});
    Reply::json(refusal.status, json!({ "error": error }))
}
