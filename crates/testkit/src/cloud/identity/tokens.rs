//! What a token says, and until when.

use serde_json::{Value, json};

use super::{DEFAULT, Identity, User, catalog};
use crate::cloud::{clock::FakeTime, state::State};

#[derive(Clone, Debug)]
pub(in crate::cloud) struct Token {
    pub(super) id: String,
    pub(super) user: String,
    /// None for a token that is good for choosing a project, and for little else.
    pub(super) project: Option<String>,
    pub(super) roles: Vec<String>,
    pub(super) methods: Vec<String>,
    /// By whose leave.
    pub(super) by: TokenMethod,
    audit: String,
    issued: FakeTime,
    pub(super) expires: FakeTime,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum TokenMethod {
    #[default]
    Oneself,
    Credential(String),
    Trust(String),
}

impl State {
    pub(super) fn issue(
        &mut self,
        user: String,
        project: Option<String>,
        roles: Vec<String>,
        methods: Vec<String>,
        by: TokenMethod,
    ) -> Token {
        let token = Token {
            id: format!("gAAAA{}", self.ids.hex()),
            user,
            project,
            roles,
            methods,
            by,
            audit: self.ids.hex()[..22].to_owned(),
            issued: self.now,
            expires: self.now.after(self.identity.lifetime),
        };
        self.identity.tokens.insert(token.id.clone(), token.clone());
        token
    }
}

impl Identity {
    /// As version 3 tells it.
    pub(super) fn told_by_v3(&self, token: &Token) -> Value {
        let domain = json!({"id": DEFAULT, "name": "Default"});
        let user = self.users.get(&token.user).map(|it| {
            json!({
                "id": it.id, "name": it.name, "domain": domain, "password_expires_at": null,
            })
        });
        let mut body = json!({
            "methods": token.methods,
            "user": user,
            "audit_ids": [token.audit],
            "expires_at": token.expires.precise(),
            "issued_at": token.issued.precise(),
        });
        if let Some(project) = token.project.as_ref().and_then(|id| self.projects.get(id)) {
            body["project"] = json!({"id": project.id, "name": project.name, "domain": domain});
            body["is_domain"] = json!(false);
            body["catalog"] = catalog::v3(&self.endpoints);
            let role = |name: &String| json!({"id": self.roles[name], "name": name});
            body["roles"] = token.roles.iter().map(role).collect();
        }
        match &token.by {
            TokenMethod::Oneself => {}
            TokenMethod::Credential(id) => {
                let name = self.credentials.get(id).map(|it| it.name.clone());
                body["application_credential"] = json!({"id": id, "name": name, "restricted": true});
            }
            TokenMethod::Trust(id) => {
                let trust = self.trusts.get(id);
                body["OS-TRUST:trust"] = json!({
                    "id": id,
                    "impersonation": trust.is_some_and(|it| it.impersonation),
                    "trustor_user": {"id": trust.map(|it| &it.trustor)},
                    "trustee_user": {"id": trust.map(|it| &it.trustee)},
                });
                body["roles"] = token.roles.iter().map(|name| self.whole_role(name)).collect();
                if let Some(fields) = body.as_object_mut() {
                    fields.remove("is_domain");
                }
            }
        }
        json!({ "token": body })
    }

    /// As version 2.0 told it.
    pub(super) fn told_by_v2(&self, token: &Token) -> Value {
        let project = token.project.as_ref().and_then(|id| self.projects.get(id));
        let tenant =
            project.map(|it| json!({"id": it.id, "name": it.name, "enabled": true, "description": ""}));
        let user: Option<&User> = self.users.get(&token.user);
        let name = user.map(|it| it.name.as_str());
        let roles: Vec<Value> = token.roles.iter().map(|it| json!({ "name": it })).collect();
        let ids: Vec<&String> = token.roles.iter().map(|it| &self.roles[it]).collect();
        let mut told = json!({
            "id": token.id,
            "issued_at": token.issued.precise(),
            "expires": token.expires.zulu(),
            "audit_ids": [token.audit],
        });
        if let Some(tenant) = tenant {
            told["tenant"] = tenant;
        }
        let catalog = if project.is_some() { catalog::v2(&self.endpoints) } else { json!([]) };
        json!({"access": {
            "token": told,
            "serviceCatalog": catalog,
            "user": {"id": token.user, "name": name, "username": name, "roles": roles, "roles_links": []},
            "metadata": {"is_admin": 0, "roles": ids},
        }})
    }

    /// With all that a role has.
    pub(super) fn whole_role(&self, name: &str) -> Value {
        let options = if super::IMPLIED.iter().any(|(a, b)| [*a, *b].contains(&name)) {
            json!({"immutable": true})
        } else {
            json!({})
        };
        json!({"id": self.roles.get(name), "name": name, "domain_id": null, "description": null, "options": options})
    }
}
