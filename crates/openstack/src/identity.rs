//! Keystone.

/// What a sign-in came to.
#[derive(Clone, Debug, Default)]
pub struct Session {
    pub user: Named,
    pub project: Option<Named>,
    pub roles: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Named {
    pub id: String,
    pub name: String,
}
