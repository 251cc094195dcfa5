//! What a token says, and until when.

use serde_json::{Value, json};

use super::{Identity, catalog};
use crate::cloud::clock::Moment;

#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(super) id: String,
    pub(super) user: String,
    /// None for a token that is good for choosing a project, and for little else.
    pub(super) project: Option<String>,
    pub(super) roles: Vec<String>,
    pub(super) methods: Vec<String>,
    pub(super) audit: String,
    pub(super) issued: Moment,
    pub(super) expires: Moment,
}

impl Identity {
    /// A token as version 3 tells it.
    pub(super) fn described(&self, token: &Token) -> Value {
        let user = &self.users[&token.user];
        let domain = json!({"id": "default", "name": "Default"});
        let mut body = json!({
            "methods": token.methods,
            "user": {"id": user.id, "name": user.name, "domain": domain, "password_expires_at": null},
            "audit_ids": [token.audit],
            "expires_at": token.expires.precise(),
            "issued_at": token.issued.precise(),
        });
        if let Some(project) = token.project.as_ref().and_then(|id| self.projects.get(id)) {
            body["project"] = json!({"id": project.id, "name": project.name, "domain": domain});
            body["is_domain"] = json!(false);
            body["roles"] =
                token.roles.iter().map(|name| json!({"id": self.roles[name], "name": name})).collect();
            body["catalog"] = catalog::v3(&self.endpoints);
        }
        json!({ "token": body })
    }
}
